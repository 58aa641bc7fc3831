//! Modules of web servers, fetched in a machine's name.
//!
//!   https://a/b.js ──► is the address one that machines may reach? ──► GET ──► redirect? ─┐
//!         ▲                                                                               │
//!         └──────────────── the same question again, at most five times ──────────────────┘
//!
//! Names are resolved here, and only checked addresses are connected to: a name cannot change its
//! meaning between check and use. No proxy is used, because a proxy would resolve the name itself.
//! The first content of an address is pinned.

use super::cache::ModuleCache;
use super::{FetchedImport, PinnedModule, read, said};
use crate::error::{Error, Result};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Client, Response, Url, redirect};
use serde::{Deserialize, Serialize};
use stasis_egress::Refusal;
use stasis_protocol::{BlobRef, FetchAnswer, TextForm};
use std::net::{SocketAddr, SocketAddrV4};
use std::time::Duration;
use url::Host;

/// Bytes of a module.
const LARGEST: u64 = 16 << 20;
const REDIRECTS: usize = 5;
const SILENCE: Duration = Duration::from_secs(20);

/// Why an address is not connected to.
type Judge = fn(SocketAddrV4) -> Option<Refusal>;

pub struct Web {
    refusal: Judge,
}

/// The response of an address.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct WebPin {
    /// Its final address.
    url: String,
    form: TextForm,
    blob: BlobRef,
}

impl Web {
    pub fn new(refusal: Judge) -> Web {
        Web { refusal }
    }

    pub async fn import(&self, cache: &ModuleCache, url: Url) -> Result<FetchedImport> {
        let name = url.to_string();
        let known: Option<WebPin> = cache.pin(&name);
        if let Some(known) = known.clone().filter(|known| cache.has(&known.blob)) {
            return Ok(found(known));
        }
        let (url, answer) = self.get(url).await?;
        let form = form(&url, answer.headers().get("content-type"))?;
        let bytes = read(answer, LARGEST).await?;
        if std::str::from_utf8(&bytes).is_err() {
            return Err(Error::Module(format!("{url} is not text")));
        }
        let blob = cache.add(&bytes)?;
        let pinned = cache.keep_pin(&name, WebPin { url: url.into(), form, blob: blob.clone() })?;
        match pinned.blob == blob || cache.has(&pinned.blob) {
            true => Ok(found(pinned)),
            false => Err(Error::Module(format!(
                "{name} has changed: its hash differs from the pinned one"
            ))),
        }
    }

    /// The answer, and the address that gave it.
    async fn get(&self, mut url: Url) -> Result<(Url, Response)> {
        let client = Client::builder()
            .no_proxy()
            .redirect(redirect::Policy::none())
            .https_only(true)
            .dns_resolver(Resolver(self.refusal))
            .read_timeout(SILENCE)
            .pool_max_idle_per_host(0)
            .user_agent("stasis")
            .build()
            .map_err(said)?;
        for _ in 0..=REDIRECTS {
            self.check(&url)?;
            let answer = client.get(url.clone()).send().await.map_err(said)?;
            if !answer.status().is_redirection() {
                let status = answer.status();
                return match status.is_success() {
                    true => Ok((url, answer)),
                    false => Err(Error::Module(format!("{url} answers {status}"))),
                };
            }
            let to = answer.headers().get("location").and_then(|to| to.to_str().ok());
            let nowhere = || Error::Module(format!("{url} redirects to nowhere"));
            url = to.and_then(|to| url.join(to).ok()).ok_or_else(nowhere)?;
        }
        Err(Error::Module(format!("{url} is more than {REDIRECTS} redirects away")))
    }

    /// Checks that no resolver makes: the scheme, and numeric addresses.
    fn check(&self, url: &Url) -> Result<()> {
        let refused = |why: String| Error::Module(format!("{url} is not fetched: {why}"));
        let port = url.port_or_known_default().unwrap_or(0);
        match url.host() {
            _ if url.scheme() != "https" => Err(refused("only https: addresses are".into())),
            _ if !url.username().is_empty() || url.password().is_some() => {
                Err(refused("it has a password".into()))
            }
            Some(Host::Ipv4(ip)) => match (self.refusal)(SocketAddrV4::new(ip, port)) {
                Some(why) => Err(refused(why.to_string())),
                None => Ok(()),
            },
            Some(Host::Ipv6(_)) => Err(refused("it is an IPv6 address".into())),
            Some(Host::Domain(_)) if port != 0 => Ok(()),
            _ => Err(refused("it names no host".into())),
        }
    }
}

fn found(pin: WebPin) -> FetchedImport {
    // kept by us: digits, or no import
    let digest = hex::decode(&pin.blob.hash).unwrap_or_default();
    let integrity = format!("sha256-{}", BASE64_STANDARD.encode(digest));
    let WebPin { url, form, blob } = pin;
    FetchedImport {
        modules: vec![PinnedModule { name: url.clone(), integrity }],
        blobs: vec![blob.hash.clone()],
        answer: FetchAnswer::Text { url, form, blob },
    }
}

/// The form of a module, by its content type and else by its name.
fn form(url: &Url, kind: Option<&reqwest::header::HeaderValue>) -> Result<TextForm> {
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let ending = url.path().rsplit('/').next().and_then(|name| name.rsplit_once('.'));
    let ending = ending.map(|(_, ending)| ending).unwrap_or_default();
    stasis_agent::module_form(&kind, ending)
        .ok_or_else(|| Error::Module(format!("{url} has the type {kind:?}, which is not a module")))
}

/// Resolves names, and leaves out the addresses that are refused.
#[derive(Clone, Copy)]
struct Resolver(Judge);

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let Resolver(refusal) = *self;
        Box::pin(async move {
            let mut why = None;
            // the port is the client's to fill in, and no port of an allowed address is refused
            let all = tokio::net::lookup_host((name.as_str(), 443)).await?;
            let passed: Vec<SocketAddr> = all
                .filter(|address| match address {
                    SocketAddr::V4(address) => {
                        why = refusal(*address).or(why);
                        refusal(*address).is_none()
                    }
                    SocketAddr::V6(_) => false,
                })
                .map(|address| SocketAddr::new(address.ip(), 0))
                .collect();
            if passed.is_empty() {
                let why = why.map_or_else(|| "no IPv4 address".to_owned(), |why| why.to_string());
                return Err(format!("{} is not fetched: {why}", name.as_str()).into());
            }
            Ok(Box::new(passed.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn web() -> Web {
        Web::new(stasis_egress::refusal)
    }

    fn url(text: &str) -> Url {
        Url::parse(text).expect("an address")
    }

    #[test]
    fn addresses_of_the_host_are_not_fetched() {
        for (address, why) in [
            ("https://127.0.0.1/a.js", "the host's loopback"),
            ("https://2130706433/a.js", "the host's loopback"),
            ("https://0x7f.1/a.js", "the host's loopback"),
            ("https://169.254.169.254/latest", "a link-local address"),
            ("https://100.100.100.200/", "a metadata service"),
            ("https://[::1]/a.js", "an IPv6 address"),
            ("https://[::ffff:127.0.0.1]/a.js", "an IPv6 address"),
            ("http://198.51.100.7/a.js", "only https:"),
            ("https://u@198.51.100.7/a.js", "a password"),
        ] {
            let error = web().check(&url(address)).expect_err(address).to_string();
            assert!(error.contains(why), "{address}: {error}");
        }
        assert!(web().check(&url("https://198.51.100.7/a.js")).is_ok());
    }

    #[test]
    fn a_name_that_means_the_host_is_not_fetched() {
        let dir = tempfile::tempdir().expect("a directory");
        let cache = ModuleCache::new(dir.path().to_owned());
        let import = web();
        let import = import.import(&cache, url("https://localhost/a.js"));
        let error = super::super::in_time(import).expect_err("loopback").to_string();
        assert!(error.contains("the host's loopback"), "{error}");
    }

    #[test]
    fn forms_of_modules() {
        let of = |address: &str, kind: &'static str| {
            let kind = reqwest::header::HeaderValue::from_static(kind);
            form(&url(address), Some(&kind)).ok()
        };
        let (script, typed, json) = (TextForm::Script, TextForm::Typed, TextForm::Json);
        assert_eq!(of("https://a/b", "text/javascript; charset=utf-8"), Some(script));
        assert_eq!(of("https://a/b.ts", "video/mp2t"), Some(typed));
        assert_eq!(of("https://a/b", "application/typescript"), Some(typed));
        assert_eq!(of("https://a/b.js", "text/plain"), Some(script));
        assert_eq!(of("https://a/b", "application/json"), Some(json));
        assert_eq!(of("https://a/b.js", "text/html"), None);
        assert_eq!(of("https://a/b", "text/plain"), None);
    }
}
