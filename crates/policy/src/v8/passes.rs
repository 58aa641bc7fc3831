//! Requests that hooks of `fetch` have let through and that have not left their machine yet.
//!
//! Where requests leave a machine, no hook can change them. So under hooks a request leaves only
//! if `fetch` asked for it, and each asking is good for one request, for a short time.

use parking_lot::Mutex;
use serde_json::Value;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use url::Url;

const LIFETIME: Duration = Duration::from_secs(60);
const MOST: usize = 4096;
/// Of the same request.
const MOST_ALIKE: usize = 64;

type Request = (String, String, String);

#[derive(Debug, Default)]
pub(super) struct Passes(Mutex<HashMap<Request, Vec<Instant>>>);

fn key(machine: &str, input: &Value) -> Option<Request> {
    let mut url = Url::parse(input["url"].as_str()?).ok()?;
    url.set_fragment(None);
    let method = input["method"].as_str()?.to_ascii_uppercase();
    Some((machine.to_owned(), method, url.into()))
}

impl Passes {
    pub fn put(&self, machine: &str, input: &Value) {
        let Some(key) = key(machine, input) else { return };
        let (mut all, now) = (self.0.lock(), Instant::now());
        if all.len() >= MOST {
            all.retain(|_, given| given.iter().any(|at| now.duration_since(*at) < LIFETIME));
        }
        if all.len() < MOST {
            let given = all.entry(key).or_default();
            given.retain(|at| now.duration_since(*at) < LIFETIME);
            given.truncate(MOST_ALIKE - 1);
            given.push(now);
        }
    }

    /// Takes one for a request, if there is one.
    pub fn take(&self, machine: &str, input: &Value) -> bool {
        let Some(key) = key(machine, input) else { return false };
        let (mut all, now) = (self.0.lock(), Instant::now());
        let Some(given) = all.get_mut(&key) else { return false };
        given.retain(|at| now.duration_since(*at) < LIFETIME);
        let found = given.pop().is_some();
        if given.is_empty() {
            all.remove(&key);
        }
        found
    }
}
