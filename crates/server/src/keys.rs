//! A key set that signatures of web tokens are checked with.
//!
//! The key set is a file or an address. It is read at start, every few minutes, and when a token
//! names an unknown key: at most once in ten seconds, however many such tokens arrive.

use jsonwebtoken::jwk::{AlgorithmParameters, Jwk, JwkSet};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// Interval between reads of the key set, and the minimum interval.
const OFTEN: Duration = Duration::from_secs(300);
const SELDOM: Duration = Duration::from_secs(10);
const IN_TIME: Duration = Duration::from_secs(10);
/// Maximum size of a key set.
const LONGEST: usize = 1 << 20;

pub struct TokenKeys {
    place: String,
    keys: RwLock<JwkSet>,
    /// It was read just now, and will not be read again for a while.
    is_resting: AtomicBool,
    unknown: Notify,
    changed: Notify,
}

impl TokenKeys {
    /// The key set, or why it cannot be read.
    pub async fn open(place: &str) -> Result<Arc<TokenKeys>, String> {
        let keys = read(place).await?;
        let own = TokenKeys::empty(place);
        *own.keys.write() = keys;
        Ok(own)
    }

    pub(crate) fn empty(place: &str) -> Arc<TokenKeys> {
        Arc::new(TokenKeys {
            place: place.to_owned(),
            keys: RwLock::new(JwkSet { keys: Vec::new() }),
            is_resting: AtomicBool::new(false),
            unknown: Notify::new(),
            changed: Notify::new(),
        })
    }

    /// Reads the key set periodically.
    pub async fn keep_reading(self: Arc<TokenKeys>) {
        loop {
            let _ = tokio::time::timeout(OFTEN, self.unknown.notified()).await;
            match read(&self.place).await {
                Ok(keys) => *self.keys.write() = keys,
                Err(why) => tracing::warn!(why, "cannot read the key set; keeping the old one"),
            }
            self.is_resting.store(true, Ordering::SeqCst);
            self.changed.notify_waiters();
            tokio::time::sleep(SELDOM).await;
            self.is_resting.store(false, Ordering::SeqCst);
        }
    }

    /// The key with that id. If there is none, the set is read again soon.
    pub(crate) fn key(&self, id: Option<&str>) -> Option<Jwk> {
        let keys = self.keys.read();
        let found = match (id, keys.keys.as_slice()) {
            (Some(id), _) => keys.find(id).cloned(),
            // a set with one key needs no ids
            (None, [one]) => Some(one.clone()),
            (None, _) => None,
        };
        if found.is_none() {
            self.unknown.notify_one();
        }
        found
    }

    /// Whether a token is signed with a key of the set and has not expired. Issuer, audience and
    /// claims are not checked. Waits for a key that is new in the set.
    pub async fn admits(&self, token: &str) -> bool {
        let Ok(header) = decode_header(token) else { return false };
        let changed = self.changed.notified();
        let mut found = self.key(header.kid.as_deref());
        let comes = !self.is_resting.load(Ordering::SeqCst);
        if found.is_none() && comes && tokio::time::timeout(IN_TIME, changed).await.is_ok() {
            found = self.key(header.kid.as_deref());
        }
        let Some(key) = found.and_then(|key| fitting_key(&key, header.alg)) else { return false };
        let mut validation = Validation::new(header.alg);
        validation.validate_aud = false;
        validation.validate_nbf = true;
        validation.set_required_spec_claims::<&str>(&[]);
        decode::<serde_json::Value>(token, &key, &validation).is_ok()
    }
}

/// A key, if it fits a kind of signature.
pub(crate) fn fitting_key(key: &Jwk, algorithm: Algorithm) -> Option<DecodingKey> {
    let fits = algorithms(key).contains(&algorithm);
    DecodingKey::from_jwk(key).ok().filter(|_| fits)
}

/// Signature kinds of a key. Secrets shared with the issuer are not supported.
fn algorithms(key: &Jwk) -> &'static [Algorithm] {
    use Algorithm::{ES256, ES384, EdDSA, PS256, PS384, PS512, RS256, RS384, RS512};
    match key.algorithm {
        AlgorithmParameters::RSA(_) => &[RS256, RS384, RS512, PS256, PS384, PS512],
        AlgorithmParameters::EllipticCurve(_) => &[ES256, ES384],
        AlgorithmParameters::OctetKeyPair(_) => &[EdDSA],
        _ => &[],
    }
}

pub(crate) fn is_address(place: &str) -> bool {
    place.starts_with("http://") || place.starts_with("https://")
}

async fn read(place: &str) -> Result<JwkSet, String> {
    let own = place.to_owned();
    // the service's threads open no such file and make no connections
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
