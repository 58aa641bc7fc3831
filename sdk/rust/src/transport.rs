//! Requests over one pool of connections: made again where that is safe, errors typed.

use crate::retry::{Retry, is_worth};
use crate::{Error, Result};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use reqwest::{Method, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::time::Duration;

/// A refusal has at most this many bytes.
const LONGEST_REFUSAL: usize = 1 << 20;

/// One request.
#[derive(Debug, Clone)]
pub struct Call {
    pub method: Method,
    pub path: String,
    pub query: Vec<(&'static str, String)>,
    pub body: Option<Value>,
    pub key: Option<String>,
    /// Whether making it twice does what making it once does.
    pub repeatable: bool,
    /// How long it may take in all; for most the silence of the connection is the measure.
    pub timeout: Option<Duration>,
}

impl Call {
    fn new(method: Method, path: String, repeatable: bool) -> Call {
        Call { method, path, query: Vec::new(), body: None, key: None, repeatable, timeout: None }
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

    pub fn delete(path: impl Into<String>) -> Call {
        Call::new(Method::DELETE, path.into(), false)
    }

    pub fn repeatable(mut self) -> Call {
        self.repeatable = true;
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
        let response = self.send(call).await?;
        let status = response.status();
        let bytes = response.bytes().await?;
        serde_json::from_slice(&bytes).map_err(|error| {
            Error::protocol(format!("an answer with status {status} that is not ours: {error}"))
        })
    }

    /// Pieces of an answer as they come. Tried once: who reads them knows where to go on.
    pub async fn stream(&self, call: &Call) -> Result<BoxStream<'static, Result<Vec<u8>>>> {
        let pieces = self.send(call).await?.bytes_stream();
        Ok(pieces.map(|piece| Ok(piece?.to_vec())).boxed())
    }

    /// A good answer; the error that any other is.
    async fn send(&self, call: &Call) -> Result<Response> {
        let url = format!("{}{}", self.base, call.path);
        let mut request = self.http.request(call.method.clone(), url).query(&call.query);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        if let Some(key) = &call.key {
            request = request.header("idempotency-key", key);
        }
        if let Some(body) = &call.body {
            request = request.json(body);
        }
        if let Some(timeout) = call.timeout {
            request = request.timeout(timeout);
        }
        let response = request.send().await?;
        match response.status().is_success() {
            true => Ok(response),
            false => Err(refused(response).await),
        }
    }
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

/// A name as part of a path; one that would change the path is refused here.
pub fn segment(text: &str) -> Result<String> {
    if matches!(text, "" | "." | "..") {
        return Err(Error::invalid(format!("{text:?} is not a name")));
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let coded = text.bytes().map(|byte| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    });
    Ok(coded.collect())
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
