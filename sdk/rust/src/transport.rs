//! Requests over one connection pool: retried where that is safe, with typed errors.

use crate::retry::{Retry, is_worth};
use crate::sse::Lines;
use crate::{Error, Result, Streamed};
use futures_util::stream::{self, BoxStream, Stream, StreamExt, TryStreamExt};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Method, RequestBuilder, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::time::Duration;

/// Maximum bytes of a refusal.
const LONGEST_REFUSAL: usize = 1 << 20;

/// One request.
#[derive(Debug, Clone)]
pub struct Call {
    pub method: Method,
    pub path: String,
    pub query: Vec<(&'static str, String)>,
    pub body: Option<Value>,
    /// Sent unchanged.
    pub content: Option<Vec<u8>>,
    /// A range of bytes.
    pub range: Option<String>,
    /// The number of the last received event.
    pub last_event: Option<String>,
    pub key: Option<String>,
    /// Whether it is idempotent.
    pub repeatable: bool,
    /// Whether the connection may be silent for long, for long work.
    pub without_timeout: bool,
}

impl Call {
    fn new(method: Method, path: String, repeatable: bool) -> Call {
        let (body, content, range, last_event, key) = (None, None, None, None, None);
        let (query, without_timeout) = (Vec::new(), false);
        Call {
            method,
            path,
            query,
            body,
            content,
            range,
            last_event,
            key,
            repeatable,
            without_timeout,
        }
    }

    pub fn get(path: impl Into<String>) -> Call {
        Call::new(Method::GET, path.into(), true)
    }

    pub fn post(path: impl Into<String>) -> Call {
        Call::new(Method::POST, path.into(), false)
    }

    pub fn patch(path: impl Into<String>) -> Call {
        Call::new(Method::PATCH, path.into(), true)
    }

    pub fn put(path: impl Into<String>, content: Vec<u8>) -> Call {
        Call { content: Some(content), ..Call::new(Method::PUT, path.into(), true) }
    }

    pub fn delete(path: impl Into<String>) -> Call {
        Call::new(Method::DELETE, path.into(), false)
    }

    pub fn repeatable(mut self) -> Call {
        self.repeatable = true;
        self
    }

    pub fn without_timeout(mut self) -> Call {
        self.without_timeout = true;
        self
    }

    pub fn query(mut self, name: &'static str, value: impl ToString) -> Call {
        self.query.push((name, value.to_string()));
        self
    }

    pub fn body(mut self, body: &impl Serialize) -> Result<Call> {
        let value = serde_json::to_value(body);
        self.body = Some(value.map_err(|error| Error::invalid(error.to_string()))?);
        Ok(self)
    }
}

#[derive(Debug)]
pub struct Transport {
    pub http: reqwest::Client,
    /// The same without a bound on silence.
    pub without_timeout: reqwest::Client,
    pub base: String,
    pub token: Option<String>,
    pub retry: Retry,
}

impl Transport {
    /// The answer to a request, as a type.
    pub async fn json<T: DeserializeOwned>(&self, call: Call) -> Result<T> {
        let mut tries = 1;
        loop {
            let failure = match self.once(&call).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            if tries >= self.retry.attempts || !is_worth(&failure, call.repeatable) {
                return Err(failure);
            }
            tokio::time::sleep(self.retry.pause(tries - 1, &failure)).await;
            tries += 1;
        }
    }

    async fn once<T: DeserializeOwned>(&self, call: &Call) -> Result<T> {
        read(self.send(call).await?).await
    }

    /// The response to a request with a streamed body, which can be sent only once.
    pub async fn upload<T: DeserializeOwned>(
        &self,
        call: &Call,
        pieces: impl Stream<Item = Result<Vec<u8>>> + Send + 'static,
    ) -> Result<T> {
        let request = self.request(call).body(reqwest::Body::wrap_stream(pieces));
        read(good(request.send().await?).await?).await
    }

    /// Waits before a broken stream is resumed; fails after too many attempts.
    pub async fn breathe(&self, failure: Error, broken: u32) -> Result<()> {
        if broken >= self.retry.resumes || !is_worth(&failure, true) {
            return Err(failure);
        }
        tokio::time::sleep(self.retry.pause(broken, &failure)).await;
        Ok(())
    }

    /// Pieces of a response as they arrive. Sent once: the reader knows where to resume.
    pub async fn stream(&self, call: &Call) -> Result<BoxStream<'static, Result<Vec<u8>>>> {
        let pieces = self.send(call).await?.bytes_stream();
        Ok(pieces.map(|piece| Ok(piece?.to_vec())).boxed())
    }

    /// Lines of a response that cannot be requested again, as types.
    pub async fn lines<T: DeserializeOwned + Send + 'static>(
        &self,
        call: &Call,
    ) -> Result<Streamed<T>> {
        let state = (self.stream(call).await?, Lines::default());
        let read = |line: String| {
            let strange = |error| Error::protocol(format!("a line that is not ours: {error}"));
            serde_json::from_str(&line).map_err(strange)
        };
        let batches = stream::try_unfold(state, move |(mut pieces, mut lines)| async move {
            let broke = || Error::broken("the connection broke before the end");
            let piece = pieces.next().await.ok_or_else(broke)??;
            let batch = lines.feed(&piece)?.into_iter().map(read);
            Ok::<_, Error>(Some((stream::iter(batch), (pieces, lines))))
        });
        Ok(batches.try_flatten().boxed())
    }

    /// A successful response; otherwise its error.
    async fn send(&self, call: &Call) -> Result<Response> {
        good(self.request(call).send().await?).await
    }

    fn request(&self, call: &Call) -> RequestBuilder {
        let url = format!("{}{}", self.base, call.path);
        let http = if call.without_timeout { &self.without_timeout } else { &self.http };
        let mut request = http.request(call.method.clone(), url).query(&call.query);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        if let Some(key) = &call.key {
            request = request.header("idempotency-key", key);
        }
        if let Some(range) = &call.range {
            request = request.header("range", range);
        }
        if let Some(last) = &call.last_event {
            request = request.header("last-event-id", last);
        }
        if let Some(body) = &call.body {
            request = request.json(body);
        }
        if let Some(content) = &call.content {
            request = request.body(content.clone());
        }
        request
    }
}

/// A successful response; otherwise its error.
async fn good(response: Response) -> Result<Response> {
    match response.status().is_success() {
        true => Ok(response),
        false => Err(refused(response).await),
    }
}

/// A response as a type.
async fn read<T: DeserializeOwned>(response: Response) -> Result<T> {
    let status = response.status();
    let bytes = response.bytes().await?;
    serde_json::from_slice(&bytes).map_err(|error| {
        Error::protocol(format!("an answer with status {status} that is not ours: {error}"))
    })
}

async fn refused(mut response: Response) -> Error {
    let status = response.status().as_u16();
    let after = response.headers().get("retry-after").and_then(|value| value.to_str().ok());
    let after = after.and_then(|text| text.parse().ok()).map(Duration::from_secs);
    let mut body = Vec::new();
    while let Ok(Some(piece)) = response.chunk().await {
        body.extend_from_slice(&piece);
        if body.len() > LONGEST_REFUSAL {
            break;
        }
    }
    let mut error = Error::refusal(status, &body);
    if let Error::Api(error) = &mut error {
        error.retry_after = after;
    }
    error
}

/// All characters except RFC 3986's unreserved ones.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A name as part of a path; a name that would change the path is refused here.
pub fn segment(text: &str) -> Result<String> {
    if matches!(text, "" | "." | "..") {
        return Err(Error::invalid(format!("{text:?} is not a name")));
    }
    Ok(utf8_percent_encode(text, ESCAPED).to_string())
}

/// A path of a machine.
pub fn at(machine: &str, rest: &str) -> Result<String> {
    Ok(format!("/v1/machine/{}{rest}", segment(machine)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_where_they_are() {
        assert_eq!(at("work-1", "/exec").expect("a path"), "/v1/machine/work-1/exec");
        assert_eq!(segment("a/b?c#d%é").expect("a name"), "a%2Fb%3Fc%23d%25%C3%A9");
        for wrong in ["", ".", ".."] {
            assert_eq!(segment(wrong).expect_err("refused").code(), "request.invalid");
        }
    }
}
