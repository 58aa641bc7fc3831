//! The service behind a proxy: its address, and how to restart it.

use super::Sent;
use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::Value;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

type Revival = Pin<Box<dyn Future<Output = bool> + Send>>;
type Revive = Box<dyn Fn() -> Revival + Send + Sync>;
type Edit = Arc<dyn Fn(&mut Value) + Send + Sync>;

pub struct Upstream {
    http: Client,
    url: String,
    token: Option<String>,
    headers: Vec<(&'static str, String)>,
    revive: Option<Revive>,
    edit: Option<Edit>,
}

impl Upstream {
    /// A service whose MCP is at this address.
    pub fn new(http: Client, url: impl Into<String>) -> Upstream {
        let (token, headers, revive, edit) = Default::default();
        Upstream { http, url: url.into(), token, headers, revive, edit }
    }

    pub fn with_token(self, token: Option<String>) -> Upstream {
        Upstream { token, ..self }
    }

    /// Sent with every request.
    pub fn with_headers(self, headers: Vec<(&'static str, String)>) -> Upstream {
        Upstream { headers, ..self }
    }

    /// Restarts a service that does not answer; whether it did.
    pub fn with_revival<F>(self, revive: impl Fn() -> F + Send + Sync + 'static) -> Upstream
    where
        F: Future<Output = bool> + Send + 'static,
    {
        let revive: Revive = Box::new(move || Box::pin(revive()));
        Upstream { revive: Some(revive), ..self }
    }

    /// Changes each message of the client before it is sent, on a thread that may block.
    pub fn with_edit(self, edit: impl Fn(&mut Value) + Send + Sync + 'static) -> Upstream {
        Upstream { edit: Some(Arc::new(edit)), ..self }
    }

    /// A message as it is sent.
    pub(super) async fn edited(&self, mut message: Value) -> Sent<Value> {
        let Some(edit) = self.edit.clone() else { return Ok(message) };
        let edited = tokio::task::spawn_blocking(move || {
            edit(&mut message);
            message
        });
        edited.await.map_err(|error| format!("the message could not be prepared: {error}"))
    }

    pub(super) async fn post(
        &self,
        message: &Value,
        headers: &[(&'static str, String)],
    ) -> Sent<Response> {
        let body = message.to_string();
        let request = || {
            let request = self.request(Method::POST, headers).body(body.clone());
            let request = request.header("content-type", "application/json");
            request.header("accept", "application/json, text/event-stream")
        };
        match request().send().await {
            // nothing was sent: the service can be restarted and the request repeated
            Err(error) if error.is_connect() && self.revived().await => {
                request().send().await.map_err(|error| said(&error))
            }
            sent => sent.map_err(|error| said(&error)),
        }
    }

    pub(super) async fn get(&self, headers: &[(&'static str, String)]) -> Sent<Response> {
        let request = self.request(Method::GET, headers).header("accept", "text/event-stream");
        request.send().await.map_err(|error| said(&error))
    }

    pub(super) async fn delete(&self, headers: &[(&'static str, String)]) -> Sent<Response> {
        self.request(Method::DELETE, headers).send().await.map_err(|error| said(&error))
    }

    fn request(&self, method: Method, headers: &[(&'static str, String)]) -> RequestBuilder {
        let mut request = self.http.request(method, &self.url);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        let all = self.headers.iter().chain(headers);
        all.fold(request, |request, (name, value)| request.header(*name, value))
    }

    async fn revived(&self) -> bool {
        match &self.revive {
            Some(revive) => revive().await,
            None => false,
        }
    }
}

/// A whole body, if it is not too long.
pub async fn read(mut response: Response, max: usize) -> Sent<Vec<u8>> {
    let mut body = Vec::new();
    while let Some(part) = response.chunk().await.map_err(|error| said(&error))? {
        body.extend_from_slice(&part);
        if body.len() > max {
            return Err(format!("an answer is at most {max} bytes"));
        }
    }
    Ok(body)
}

/// The innermost cause.
fn said(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    format!("the service did not answer: {cause}")
}
