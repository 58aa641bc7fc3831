//! Secrets of accounts: sealed at rest, bound to hosts, and known to code as placeholders.
//!
//!   value ─► MasterKey::seal ─► records            the key is outside of the data directory
//!                                  │
//!   machine: STASIS_SECRET_X=stasis-placeholder-… ─► egress ─► SecretBook: bound to this host?
//!                                                                  │ yes: opened for this request
//!                                                                  └ no: the placeholder stays
//!
//! Values are opened for one use and wiped afterwards; no type here shows one when it is printed.
//! A sealed value that was changed, or that belongs to another account, name or key, does not open.

#![forbid(unsafe_code)]

mod binding;
mod book;
mod error;
mod header_rule;
mod key;
mod key_file;
mod lent;
mod placeholder;
mod substitute;
mod value;

pub use binding::HostBinding;
pub use book::{GrantedSecret, SecretBook, StoredSecret};
pub use error::SecretError;
pub use header_rule::{HeaderAuth, HeaderRule};
pub use key::{MasterKey, SealedText};
pub use key_file::KeySource;
pub use placeholder::{PLACEHOLDER, Placeholder, variable};
pub use substitute::{SubstitutionPlan, Substitutions};
pub use value::{ClientCredentials, SecretContent, SecretText};

/// Checks the name of a secret: letters, digits and `_`, beginning with a letter, at most 64. It
/// becomes the end of a variable's name.
pub fn check_name(name: &str) -> Result<(), SecretError> {
    let letters = name.starts_with(|c: char| c.is_ascii_alphabetic());
    let rest = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if letters && rest && name.len() <= 64 { Ok(()) } else { Err(SecretError::Name(name.into())) }
}
