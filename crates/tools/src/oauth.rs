//! OAuth 2.1 as MCP uses it: where a server's tokens are issued, registration, and requests for
//! tokens.
//!
//!   server ─► protected resource metadata ─► authorization server ─► its metadata: endpoints
//!          └─ none: the server issues tokens itself
//!
//! Every answer has a bound and a deadline. Errors name codes of the protocol, never a secret.

use crate::auth_config::check_endpoint;
use crate::bounds::MessageScan;
use reqwest::header::{ACCEPT, WWW_AUTHENTICATE};
use reqwest::{Client, RequestBuilder, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use url::Url;

/// Bytes of an answer, and how long it may take.
const LONGEST: usize = 256 << 10;
const PATIENCE: Duration = Duration::from_secs(15);
const LONGEST_TOKEN: usize = 16 << 10;
const RESOURCE: &str = "/.well-known/oauth-protected-resource";
const SERVER: &str = "/.well-known/oauth-authorization-server";
const OPENID: &str = "/.well-known/openid-configuration";

/// Where a server's tokens are issued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OauthEndpoints {
    pub issuer: String,
    pub authorize: Url,
    pub token: Url,
    pub register: Option<Url>,
    /// Scopes that the server asks for, if it says so.
    pub scopes: Vec<String>,
}

/// A client, as an authorization server knows it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OauthIdentity {
    pub client_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<String>,
}

/// Tokens that were issued.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssuedTokens {
    pub access_token: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh_token: Option<String>,
    /// Seconds since 1970; no end, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u64>,
}

/// An address in metadata.
#[derive(Deserialize)]
#[serde(try_from = "String")]
struct Endpoint(Url);

impl TryFrom<String> for Endpoint {
    type Error = url::ParseError;

    fn try_from(text: String) -> Result<Endpoint, url::ParseError> {
        Url::parse(&text).map(Endpoint)
    }
}

#[derive(Deserialize)]
struct ServerMetadata {
    issuer: String,
    authorization_endpoint: Endpoint,
    token_endpoint: Endpoint,
    registration_endpoint: Option<Endpoint>,
    code_challenge_methods_supported: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct ResourceMetadata {
    #[serde(default)]
    authorization_servers: Vec<Endpoint>,
    #[serde(default)]
    scopes_supported: Vec<String>,
}

pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl IssuedTokens {
    /// Whether the token can be used for a while.
    pub fn is_fresh(&self, buffer: u64) -> bool {
        self.expires_at.is_none_or(|end| end > now() + buffer)
    }
}

/// The JSON object that a request is answered with, and its status.
async fn fetch(request: RequestBuilder) -> Result<(StatusCode, Value), String> {
    let work = async {
        let told = |error: reqwest::Error| error.without_url().to_string();
        let mut response = request.header(ACCEPT, "application/json").send().await.map_err(told)?;
        let (status, mut body) = (response.status(), Vec::new());
        while let Some(piece) = response.chunk().await.map_err(told)? {
            if body.len() + piece.len() > LONGEST {
                return Err("the answer is too large".to_owned());
            }
            body.extend_from_slice(&piece);
        }
        MessageScan::check(&body).map_err(|what| format!("the answer has {what}"))?;
        Ok((status, serde_json::from_slice(&body).unwrap_or_default()))
    };
    let done = tokio::time::timeout(PATIENCE, work).await;
    done.unwrap_or_else(|_| Err(format!("no answer within {PATIENCE:?}")))
}

/// `/.well-known/NAME` of an address, before its path.
fn well_known(base: &Url, name: &str, with_path: bool) -> Url {
    let mut url = base.clone();
    let path = base.path().trim_end_matches('/').to_owned();
    url.set_path(&format!("{name}{}", if with_path { path.as_str() } else { "" }));
    url.set_query(None);
    url.set_fragment(None);
    url
}

/// Finds where the tokens of a server are issued.
pub async fn discover(client: &Client, server: &Url) -> Result<OauthEndpoints, String> {
    let (issuer, scopes) = match resource(client, server).await? {
        Some(found) => {
            let first = found.authorization_servers.into_iter().next();
            let first = first.ok_or("its metadata names no authorization server")?;
            (first.0, found.scopes_supported)
        }
        None => {
            let mut origin = server.clone();
            origin.set_path("/");
            origin.set_query(None);
            (origin, Vec::new())
        }
    };
    check_endpoint(&issuer, server)?;
    let found = metadata(client, &issuer).await?;
    let endpoints = match found {
        Some(found) => checked(found, &issuer, scopes)?,
        // the paths that servers had before metadata was required
        None => {
            let at = |path: &str| issuer.join(path).map_err(|error| error.to_string());
            let (authorize, token) = (at("/authorize")?, at("/token")?);
            let (issuer, register) = (issuer.to_string(), Some(at("/register")?));
            OauthEndpoints { issuer, authorize, token, register, scopes }
        }
    };
    for url in [Some(&endpoints.authorize), Some(&endpoints.token), endpoints.register.as_ref()] {
        url.map_or(Ok(()), |url| check_endpoint(url, server))?;
    }
    Ok(endpoints)
}

/// A server's description of itself, at the address that its refusal names, or a well-known one.
async fn resource(client: &Client, server: &Url) -> Result<Option<ResourceMetadata>, String> {
    let probe = client.get(server.clone()).header(ACCEPT, "text/event-stream");
    let probed = tokio::time::timeout(PATIENCE, probe.send()).await;
    let probed = probed.map_err(|_| format!("no answer within {PATIENCE:?}"))?;
    let probed = probed.map_err(|error| error.without_url().to_string())?;
    let named = probed.headers().get(WWW_AUTHENTICATE).and_then(|text| text.to_str().ok());
    let named = named.and_then(named_metadata).filter(|url| url.origin() == server.origin());
    let usual = [true, false].map(|with_path| well_known(server, RESOURCE, with_path));
    for url in named.into_iter().chain(usual) {
        let (status, body) = fetch(client.get(url)).await?;
        if status.is_success() && body.is_object() {
            let odd = |error| format!("its metadata cannot be read: {error}");
            return serde_json::from_value(body).map(Some).map_err(odd);
        }
    }
    Ok(None)
}

/// `resource_metadata` of a refusal.
fn named_metadata(challenge: &str) -> Option<Url> {
    let (_, rest) = challenge.split_once("resource_metadata=")?;
    let value = match rest.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next()?,
        None => rest.split([',', ' ']).next()?,
    };
    Url::parse(value).ok()
}

async fn metadata(client: &Client, issuer: &Url) -> Result<Option<ServerMetadata>, String> {
    let mut inside = issuer.clone();
    inside.set_path(&format!("{}{OPENID}", issuer.path().trim_end_matches('/')));
    let places = [well_known(issuer, SERVER, true), well_known(issuer, OPENID, true), inside];
    for url in places {
        let (status, body) = fetch(client.get(url)).await?;
        if status.is_success() && body.is_object() {
            let odd = |error| format!("the authorization server's metadata: {error}");
            return serde_json::from_value(body).map(Some).map_err(odd);
        }
    }
    Ok(None)
}

fn checked(
    found: ServerMetadata,
    issuer: &Url,
    scopes: Vec<String>,
) -> Result<OauthEndpoints, String> {
    // RFC 8414: another server's metadata could lead codes there
    if found.issuer.trim_end_matches('/') != issuer.as_str().trim_end_matches('/') {
        return Err("the authorization server's metadata is that of another issuer".into());
    }
    let methods = found.code_challenge_methods_supported;
    if methods.is_some_and(|all| !all.iter().any(|method| method == "S256")) {
        return Err("the authorization server does not support PKCE with S256".into());
    }
    Ok(OauthEndpoints {
        issuer: found.issuer,
        authorize: found.authorization_endpoint.0,
        token: found.token_endpoint.0,
        register: found.registration_endpoint.map(|endpoint| endpoint.0),
        scopes,
    })
}

/// Registers this service as a client (RFC 7591).
pub async fn register(
    client: &Client,
    endpoints: &OauthEndpoints,
    redirect: &str,
    scope: &str,
) -> Result<OauthIdentity, String> {
    let Some(url) = &endpoints.register else {
        let said = "the authorization server registers no clients: write `client_id` into `auth`";
        return Err(said.into());
    };
    let mut body = json!({
        "client_name": "Stasis", "redirect_uris": [redirect], "response_types": ["code"],
        "grant_types": ["authorization_code", "refresh_token"],
        "token_endpoint_auth_method": "none",
    });
    if !scope.is_empty() {
        body["scope"] = scope.into();
    }
    let (status, answer) = fetch(client.post(url.clone()).json(&body)).await?;
    match serde_json::from_value::<OauthIdentity>(answer.clone()) {
        Ok(own) if status.is_success() && !own.client_id.is_empty() => Ok(own),
        _ => Err(format!("registration was refused: {}", problem(status, &answer))),
    }
}

/// The error of an answer, as its server words it.
fn problem(status: StatusCode, answer: &Value) -> String {
    let word = |key: &str| answer[key].as_str().map(|text| text.chars().take(200).collect());
    let words: Vec<String> = ["error", "error_description"].into_iter().filter_map(word).collect();
    if words.is_empty() { format!("HTTP {status}") } else { words.join(": ") }
}

/// Gets tokens with a grant.
pub async fn grant(
    client: &Client,
    url: &Url,
    own: &OauthIdentity,
    form: &[(&str, &str)],
) -> Result<IssuedTokens, String> {
    let mut form = form.to_vec();
    form.push(("client_id", &own.client_id));
    form.extend(own.client_secret.as_deref().map(|secret| ("client_secret", secret)));
    let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
    let kind = "application/x-www-form-urlencoded";
    let request = client.post(url.clone()).header("content-type", kind).body(body);
    let (status, answer) = fetch(request).await?;
    let text = |key: &str| answer[key].as_str().filter(|text| text.len() <= LONGEST_TOKEN);
    let token = text("access_token").filter(|_| status.is_success());
    let Some(token) = token.filter(|token| token.bytes().all(|byte| byte.is_ascii_graphic()))
    else {
        return Err(format!("no token was issued: {}", problem(status, &answer)));
    };
    let kind = answer["token_type"].as_str().unwrap_or("bearer");
    if !kind.eq_ignore_ascii_case("bearer") {
        return Err("the issued token is no bearer token".into());
    }
    let expires_at = answer["expires_in"].as_f64().map(|seconds| now() + seconds.max(0.0) as u64);
    let refresh_token = text("refresh_token").map(str::to_owned);
    Ok(IssuedTokens { access_token: token.to_owned(), refresh_token, expires_at })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_challenges() {
        let url = Url::parse("https://a.example/x/mcp?q=1").expect("a URL");
        let known = well_known(&url, RESOURCE, true);
        assert_eq!(known.as_str(), format!("https://a.example{RESOURCE}/x/mcp"));
        let challenge = r#"Bearer error="x", resource_metadata="https://a.example/m", a="b""#;
        assert_eq!(named_metadata(challenge).expect("an address").path(), "/m");
        assert_eq!(named_metadata("Bearer"), None);
    }

    #[test]
    fn metadata_of_another_issuer_is_refused() {
        let issuer = Url::parse("https://id.example/").expect("a URL");
        let of = |issuer: &str, methods: Option<&str>| ServerMetadata {
            issuer: issuer.into(),
            authorization_endpoint: Endpoint("https://id.example/a".parse().expect("a URL")),
            token_endpoint: Endpoint("https://id.example/t".parse().expect("a URL")),
            registration_endpoint: None,
            code_challenge_methods_supported: methods.map(|one| vec![one.to_owned()]),
        };
        assert!(checked(of("https://id.example", Some("S256")), &issuer, Vec::new()).is_ok());
        assert!(checked(of("https://evil.example", None), &issuer, Vec::new()).is_err());
        assert!(checked(of("https://id.example", Some("plain")), &issuer, Vec::new()).is_err());
    }
}
