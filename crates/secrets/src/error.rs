//! Faults of a secret, or of the key that seals all secrets.

use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("{0:?} is no name of a secret: use letters, digits and _, at most 64, a letter first")]
    Name(String),
    #[error("{0:?} is no host of a secret: {1}; write api.example.com, *.example.com or HOST:PORT")]
    Host(String, String),
    #[error("a secret has 1 to 100 hosts")]
    HostCount,
    #[error("a secret's value has 1 to 16384 bytes of printable ASCII, without line breaks")]
    Value,
    #[error("client credentials: {0}")]
    Credentials(String),
    #[error("a header rule: {0}")]
    HeaderRule(String),
    #[error("no key for secrets: {0}")]
    NoKey(String),
    #[error("{path}: {why}")]
    KeyFile { path: PathBuf, why: String },
    #[error("secret `{0}` cannot be opened: it was sealed with another key, or changed on disk")]
    NotOpened(String),
    #[error("an account has at most {0} secrets; remove one first")]
    TooMany(usize),
    #[error("there is no secret `{0}`")]
    NotFound(String),
}
