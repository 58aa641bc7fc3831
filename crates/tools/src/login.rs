//! Allowing an upstream server in a browser: the code flow of OAuth 2.1 with PKCE.
//!
//!   endpoints ─► client (given or registered) ─► a person opens the address ─► loopback callback
//!             ─► code ─► tokens ─► the file that the service reads

use crate::auth_config::{BrowserAuth, ServerAuth};
use crate::config::{ServerTransport, ToolServer};
use crate::http::plain_client;
use crate::oauth::{self, OauthIdentity};
use crate::token_cache::{KeptTokens, TokenFile};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use url::Url;

/// How long a person may take.
const THOUGHT: Duration = Duration::from_secs(300);
/// How long a browser may take to send a request, and its size.
const PATIENCE: Duration = Duration::from_secs(5);
const LONGEST_HEAD: usize = 16 << 10;

impl ToolServer {
    /// The address and settings, if a person has to allow the use of this server.
    pub fn browser_auth(&self) -> Option<(&str, &BrowserAuth)> {
        match &self.transport {
            ServerTransport::Http { url, auth: Some(ServerAuth::Browser(own)), .. } => {
                Some((url, own))
            }
            _ => None,
        }
    }

    /// Whether a person has to allow it now: there is no token that works or can be renewed.
    pub fn needs_login(&self) -> Result<bool, String> {
        let Some((url, own)) = self.browser_auth() else { return Ok(false) };
        let kept = TokenFile::new(url, own)?.read()?;
        let lasts =
            |kept: &KeptTokens| kept.tokens.refresh_token.is_some() || kept.tokens.is_fresh(0);
        Ok(!kept.is_some_and(|kept| lasts(&kept)))
    }

    /// Gets tokens. `show` tells a person which address to open. Returns the file with the tokens.
    pub async fn login(&self, show: impl FnOnce(&str)) -> Result<PathBuf, String> {
        let Some((url, own)) = self.browser_auth() else {
            return Err(format!("tool server `{}` has no `auth` with a browser", self.name));
        };
        let cache = TokenFile::new(url, own)?;
        let server = Url::parse(url).map_err(|error| error.to_string())?;
        let client = plain_client()?;
        let endpoints = oauth::discover(&client, &server).await?;
        let port = own.redirect_port.unwrap_or(0);
        let listener = TcpListener::bind(("127.0.0.1", port)).await;
        let listener =
            listener.map_err(|error| format!("cannot listen for the answer: {error}"))?;
        let port = listener.local_addr().map_err(|error| error.to_string())?.port();
        let redirect = format!("http://127.0.0.1:{port}/callback");
        let scopes = if own.scope.is_empty() { &endpoints.scopes } else { &own.scope };
        let scope = scopes.join(" ");
        let identity = match &own.client_id {
            Some(id) => {
                OauthIdentity { client_id: id.clone(), client_secret: own.client_secret.clone() }
            }
            None => oauth::register(&client, &endpoints, &redirect, &scope).await?,
        };
        let (verifier, state) = (random()?, random()?);
        let mut address = endpoints.authorize.clone();
        let challenge = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()));
        address
            .query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &identity.client_id)
            .append_pair("redirect_uri", &redirect)
            .append_pair("code_challenge", &challenge)
            .append_pair("code_challenge_method", "S256")
            .append_pair("state", &state)
            .append_pair("resource", url)
            .extend_pairs((!scope.is_empty()).then_some(("scope", &scope)));
        show(address.as_str());
        let code = timeout(THOUGHT, called_back(&listener, &state, &endpoints.issuer)).await;
        let code = code.map_err(|_| format!("no answer from the browser within {THOUGHT:?}"))??;
        let form = [
            ("grant_type", "authorization_code"),
            ("code", code.as_str()),
            ("redirect_uri", redirect.as_str()),
            ("code_verifier", verifier.as_str()),
            ("resource", url),
        ];
        let tokens = oauth::grant(&client, &endpoints.token, &identity, &form).await?;
        let token_url = endpoints.token.to_string();
        cache.write(&KeptTokens { token_url, client: identity, tokens })?;
        Ok(cache.path().to_owned())
    }
}

fn random() -> Result<String, String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| error.to_string())?;
    Ok(BASE64_URL_SAFE_NO_PAD.encode(bytes))
}

/// Waits for the browser to come back with a code. Requests of others do not end the wait.
async fn called_back(listener: &TcpListener, state: &str, issuer: &str) -> Result<String, String> {
    loop {
        let (mut stream, _) = listener.accept().await.map_err(|error| error.to_string())?;
        let head = timeout(PATIENCE, head_of(&mut stream)).await.ok().flatten();
        let answer = head.and_then(|head| answer_in(&head, state, issuer));
        let (status, said) = match &answer {
            Some(Ok(_)) => ("200 OK", "Done. You can close this page."),
            Some(Err(_)) => ("200 OK", "The server did not allow it. You can close this page."),
            None => ("404 Not Found", "Nothing is here."),
        };
        let text = format!(
            "HTTP/1.1 {status}\r\ncontent-type: text/plain\r\nconnection: close\r\n\
             content-length: {}\r\n\r\n{said}",
            said.len()
        );
        let _ = timeout(PATIENCE, stream.write_all(text.as_bytes())).await;
        if let Some(answer) = answer {
            return answer;
        }
    }
}

async fn head_of(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut buffer = [0; 2048];
    while head.len() <= LONGEST_HEAD {
        let read = stream.read(&mut buffer).await.ok().filter(|read| *read > 0)?;
        head.extend_from_slice(&buffer[..read]);
        if head.windows(4).any(|end| end == b"\r\n\r\n") {
            return String::from_utf8(head).ok();
        }
    }
    None
}

/// The code or the refusal in a request; none, if it is not the answer to our question.
fn answer_in(head: &str, state: &str, issuer: &str) -> Option<Result<String, String>> {
    let target = head.strip_prefix("GET ")?.split(' ').next()?;
    let url = Url::parse("http://127.0.0.1/").ok()?.join(target).ok()?;
    if url.path() != "/callback" {
        return None;
    }
    let fields: HashMap<_, _> = url.query_pairs().into_owned().collect();
    if fields.get("state").is_none_or(|own| own != state) {
        return None;
    }
    // RFC 9207: an answer of another server is not for us
    let other = |own: &String| own.trim_end_matches('/') != issuer.trim_end_matches('/');
    if fields.get("iss").is_some_and(other) {
        return Some(Err("the answer came from another authorization server".into()));
    }
    let refused = || {
        let word = fields.get("error").map_or("no code", String::as_str);
        let word: String = word.chars().take(100).collect();
        format!("the authorization server refused: {word}")
    };
    Some(fields.get("code").cloned().ok_or_else(refused))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_answer_ends_the_wait() {
        let of = |target: &str| {
            answer_in(&format!("GET {target} HTTP/1.1\r\n\r\n"), "s", "https://id.example")
        };
        assert_eq!(of("/callback?state=s&code=a%20b"), Some(Ok("a b".into())));
        assert_eq!(of("/callback?state=other&code=a"), None, "forged");
        assert_eq!(of("/callback?code=a"), None);
        assert_eq!(of("/favicon.ico"), None);
        assert!(of("/callback?state=s&error=access_denied").is_some_and(|end| end.is_err()));
        assert!(
            of("/callback?state=s&code=a&iss=https%3A%2F%2Fevil.example")
                .is_some_and(|end| end.is_err())
        );
        assert!(
            of("/callback?state=s&code=a&iss=https%3A%2F%2Fid.example%2F")
                .is_some_and(|end| end.is_ok())
        );
    }
}
