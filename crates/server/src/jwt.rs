//! JSON web tokens of an external issuer, besides our own tokens.
//!
//!   token ──► key of the set (`keys.rs`) ──► signature, issuer, audience, time ──► account, scopes
//!
//! Only public-key signatures are supported. A token without an expiry, of another issuer or for
//! another audience is refused.

use crate::auth::{Caller, ROOT, Scope, refused, unknown};
use crate::error::Error;
use crate::failure::HttpFailure;
use crate::keys::{TokenKeys, fitting_key, is_address};
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Validation, decode, decode_header};
use serde::Deserialize;
use std::sync::Arc;

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
    keys: Arc<TokenKeys>,
}

/// The claims of a token.
#[derive(Deserialize)]
struct Claims {
    #[serde(default)]
    sub: Option<String>,
    /// The account whose machines it can access; otherwise `sub`.
    #[serde(default)]
    account: Option<String>,
    /// Words separated by spaces, or a list.
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
    /// Reads the key set, if it is a file; one at an address is read soon after.
    pub async fn open(options: JwtOptions) -> Result<Arc<Jwt>, Error> {
        let keys = match TokenKeys::open(&options.jwks).await {
            Ok(keys) => keys,
            Err(why) if is_address(&options.jwks) => {
                tracing::warn!(why, "cannot read the key set; retrying");
                TokenKeys::empty(&options.jwks)
            }
            Err(what) => return Err(Error::Jwks { place: options.jwks, what }),
        };
        Ok(Arc::new(Jwt { options, keys }))
    }

    /// The issuer of tokens.
    pub fn issuer(&self) -> &str {
        &self.options.issuer
    }

    /// Reads the key set periodically.
    pub async fn keep_reading(self: Arc<Jwt>) {
        self.keys.clone().keep_reading().await;
    }

    /// The caller that a token identifies, or the reason of a refusal. Details are given only for a
    /// token with a valid signature.
    pub fn caller(&self, token: &str) -> Result<Caller, HttpFailure> {
        let header = decode_header(token).map_err(|_| unknown())?;
        let key = self.keys.key(header.kid.as_deref()).ok_or_else(|| {
            refused("token.unknown", "the token is signed with an unknown key")
                .hint("check that jwt.jwks has the keys of the token's issuer")
        })?;
        let mut validation = Validation::new(header.alg);
        validation.set_issuer(&[&self.options.issuer]);
        validation.set_audience(&[&self.options.audience]);
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        validation.validate_nbf = true;
        let key = fitting_key(&key, header.alg).ok_or_else(signature)?;
        let claims = decode::<Claims>(token, &key, &validation).map_err(|error| why(&error))?;
        as_caller(claims.claims).ok_or_else(|| {
            refused("token.account", "the token names no valid account").hint(
                "`sub` or `account` must have 1 to 128 printable characters and must not be `root`",
            )
        })
    }
}

fn signature() -> HttpFailure {
    refused("token.signature", "the token's signature is wrong")
        .hint("get a new one from the issuer; it may have been truncated or changed")
}

/// Why a web token is refused.
fn why(error: &jsonwebtoken::errors::Error) -> HttpFailure {
    let again = "get a new one from the issuer";
    match error.kind() {
        ErrorKind::ExpiredSignature => refused("token.expired", "the token is expired").hint(again),
        ErrorKind::ImmatureSignature => refused("token.early", "the token is not valid yet")
            .hint("wait, or check the clocks of both hosts"),
        ErrorKind::InvalidIssuer => refused("token.issuer", "the token has another issuer")
            .hint("jwt.issuer names the accepted issuer"),
        ErrorKind::InvalidAudience => refused("token.audience", "the token is for another service")
            .hint("jwt.audience names the accepted audience"),
        ErrorKind::MissingRequiredClaim(claim) => {
            refused("token.claim", &format!("the token has no `{claim}`")).hint(again)
        }
        _ => signature(),
    }
}

fn as_caller(claims: Claims) -> Option<Caller> {
    let account = claims.account.or(claims.sub)?;
    let plain = |byte: u8| byte.is_ascii_graphic();
    let good = (1..=LONGEST_ACCOUNT).contains(&account.len()) && account.bytes().all(plain);
    // the service's own account is not available to web tokens
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
