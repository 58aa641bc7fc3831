//! JSON web tokens of an external issuer, besides our own tokens.
//!
//!   token ──► key of the set, by its id ──► signature, issuer, audience, time ──► account, scopes
//!
//! The key set is a file or an address. It is read at start, again every few minutes, and when a
//! token names an unknown key (at most once in ten seconds). Only public-key signatures are
//! supported. A token without an expiry, of another issuer or for another audience is refused.

use crate::auth::{Caller, ROOT, Scope, refused, unknown};
use crate::error::Error;
use crate::failure::HttpFailure;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::jwk::{AlgorithmParameters, Jwk, JwkSet};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use parking_lot::RwLock;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// How often the key set is read, and how often at most.
const OFTEN: Duration = Duration::from_secs(300);
const SELDOM: Duration = Duration::from_secs(10);
const IN_TIME: Duration = Duration::from_secs(10);
/// The longest key set.
const LONGEST: usize = 1 << 20;
const LONGEST_ACCOUNT: usize = 128;

#[derive(Debug, Clone)]
pub struct JwtOptions {
    /// A file, or an address that begins with http:// or https://.
    pub jwks: String,
    pub issuer: String,
    pub audience: String,
}

pub struct Jwt {
    options: JwtOptions,
    keys: RwLock<JwkSet>,
    unknown: Notify,
}

/// What a token says.
#[derive(Deserialize)]
struct Claims {
    #[serde(default)]
    sub: Option<String>,
    /// Whose machines it reaches; `sub` otherwise.
    #[serde(default)]
    account: Option<String>,
    /// Words with blanks between, or a list.
    #[serde(default, alias = "scopes", alias = "scp")]
    scope: Option<Scopes>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Scopes {
    Text(String),
    List(Vec<String>),
}

impl Jwt {
    /// With the key set read, if it is a file; one at an address is read soon after.
    pub async fn open(options: JwtOptions) -> Result<Arc<Jwt>, Error> {
        let read = read(&options.jwks).await;
        let keys = match read {
            Ok(keys) => keys,
            Err(why) if is_address(&options.jwks) => {
                tracing::warn!(why, "the key set was not read; it is tried again");
                JwkSet { keys: Vec::new() }
            }
            Err(what) => return Err(Error::Jwks { place: options.jwks, what }),
        };
        Ok(Arc::new(Jwt { options, keys: RwLock::new(keys), unknown: Notify::new() }))
    }

    /// Who gives tokens out.
    pub fn issuer(&self) -> &str {
        &self.options.issuer
    }

    /// Reads the key set again and again.
    pub async fn keep_reading(self: Arc<Jwt>) {
        loop {
            let _ = tokio::time::timeout(OFTEN, self.unknown.notified()).await;
            match read(&self.options.jwks).await {
                Ok(keys) => *self.keys.write() = keys,
                Err(why) => tracing::warn!(why, "the key set was not read; the old one stays"),
            }
            tokio::time::sleep(SELDOM).await;
        }
    }

    /// Who a token stands for, or why it is refused. Only a token with a good signature is told
    /// more than that.
    pub fn caller(&self, token: &str) -> Result<Caller, HttpFailure> {
        let header = decode_header(token).map_err(|_| unknown())?;
        let key = self.key(header.kid.as_deref()).ok_or_else(|| {
            refused("token.unknown", "the token is signed with a key that is not known here")
                .hint("is it of the issuer that jwt.jwks has the keys of?")
        })?;
        let mut validation = Validation::new(header.alg);
        validation.set_issuer(&[&self.options.issuer]);
        validation.set_audience(&[&self.options.audience]);
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        validation.validate_nbf = true;
        let fits = algorithms(&key).contains(&header.alg);
        let key = DecodingKey::from_jwk(&key).ok().filter(|_| fits).ok_or_else(signature)?;
        let claims = decode::<Claims>(token, &key, &validation).map_err(|error| why(&error))?;
        as_caller(claims.claims).ok_or_else(|| {
            refused("token.account", "the token names no account that may be used here")
                .hint("`sub` or `account` has 1 to 128 printable characters and is not `root`")
        })
    }

    fn key(&self, id: Option<&str>) -> Option<Jwk> {
        let keys = self.keys.read();
        let found = match (id, keys.keys.as_slice()) {
            (Some(id), _) => keys.find(id).cloned(),
            // a set of one key needs no names
            (None, [one]) => Some(one.clone()),
            (None, _) => None,
        };
        if found.is_none() {
            self.unknown.notify_one();
        }
        found
    }
}

fn signature() -> HttpFailure {
    refused("token.signature", "the token's signature is wrong")
        .hint("get a new one from the issuer; it may have been cut or changed on its way")
}

/// Why a web token is refused.
fn why(error: &jsonwebtoken::errors::Error) -> HttpFailure {
    let again = "get a new one from the issuer";
    match error.kind() {
        ErrorKind::ExpiredSignature => refused("token.expired", "the token is expired").hint(again),
        ErrorKind::ImmatureSignature => refused("token.early", "the token is not valid yet")
            .hint("wait, or check the clocks of both hosts"),
        ErrorKind::InvalidIssuer => refused("token.issuer", "the token is of another issuer")
            .hint("jwt.issuer says which one is taken"),
        ErrorKind::InvalidAudience => refused("token.audience", "the token is for another service")
            .hint("jwt.audience says for whom it must be"),
        ErrorKind::MissingRequiredClaim(claim) => {
            refused("token.claim", &format!("the token has no `{claim}`")).hint(again)
        }
        _ => signature(),
    }
}

/// Signatures a key may have made. Secrets shared with the issuer are not known here.
fn algorithms(key: &Jwk) -> &'static [Algorithm] {
    use Algorithm::{ES256, ES384, EdDSA, PS256, PS384, PS512, RS256, RS384, RS512};
    match key.algorithm {
        AlgorithmParameters::RSA(_) => &[RS256, RS384, RS512, PS256, PS384, PS512],
        AlgorithmParameters::EllipticCurve(_) => &[ES256, ES384],
        AlgorithmParameters::OctetKeyPair(_) => &[EdDSA],
        _ => &[],
    }
}

fn as_caller(claims: Claims) -> Option<Caller> {
    let account = claims.account.or(claims.sub)?;
    let plain = |byte: u8| byte.is_ascii_graphic();
    let good = (1..=LONGEST_ACCOUNT).contains(&account.len()) && account.bytes().all(plain);
    // the account that runs the service is nobody else's
    if !good || account == ROOT {
        return None;
    }
    let words = match claims.scope {
        None => Vec::new(),
        Some(Scopes::Text(text)) => text.split_whitespace().map(str::to_owned).collect(),
        Some(Scopes::List(list)) => list,
    };
    let own = |word: &String| word.strip_prefix("stasis:").unwrap_or(word).to_owned();
    let scopes: Vec<String> = words.iter().map(own).filter(|word| Scope::is_word(word)).collect();
    Some(Caller { account, scopes: scopes.into(), token: Some("jwt".into()) })
}

fn is_address(place: &str) -> bool {
    place.starts_with("http://") || place.starts_with("https://")
}

async fn read(place: &str) -> Result<JwkSet, String> {
    let own = place.to_owned();
    // the service's threads open no such file and connect to nobody
    let text = stasis_machine::block(move || match is_address(&own) {
        true => fetch(&own),
        false => std::fs::read(&own).map_err(|error| error.to_string()),
    });
    let text = text.await.map_err(|error| error.to_string())??;
    serde_json::from_slice(&text).map_err(|error| format!("it is no key set: {error}"))
}

fn fetch(place: &str) -> Result<Vec<u8>, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(download(place))
}

async fn download(place: &str) -> Result<Vec<u8>, String> {
    let client = reqwest::Client::builder().timeout(IN_TIME).build();
    let client = client.map_err(|error| error.to_string())?;
    let answer = client.get(place).send().await.and_then(|answer| answer.error_for_status());
    let mut answer = answer.map_err(|error| error.to_string())?;
    let mut text = Vec::new();
    while let Some(part) = answer.chunk().await.map_err(|error| error.to_string())? {
        text.extend_from_slice(&part);
        if text.len() > LONGEST {
            return Err("it is too long".into());
        }
    }
    Ok(text)
}
