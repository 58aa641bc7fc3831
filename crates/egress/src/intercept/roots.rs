//! The authorities that this host trusts: servers outside are checked against them, and machines
//! trust them too.

use super::authority::pem;
use std::io;
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// The authorities that a host trusts, read once.
pub struct TrustedRoots {
    /// How servers outside are connected to.
    pub config: Arc<ClientConfig>,
    /// All certificates as text.
    pub bundle: String,
}

impl std::fmt::Debug for TrustedRoots {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "TrustedRoots({} bytes)", self.bundle.len())
    }
}

impl TrustedRoots {
    /// Those of the host, or those in a file instead.
    pub fn read(file: Option<&Path>) -> io::Result<TrustedRoots> {
        let certificates: Vec<CertificateDer<'static>> = match file {
            Some(path) => CertificateDer::pem_file_iter(path)
                .and_then(|all| all.collect())
                .map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?,
            None => rustls_native_certs::load_native_certs().certs,
        };
        let mut roots = RootCertStore::empty();
        let (kept, _) = roots.add_parsable_certificates(certificates.iter().cloned());
        if kept == 0 {
            tracing::warn!("this host trusts no authority: HTTPS that rules are about fails");
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_safe_default_protocol_versions().map_err(io::Error::other)?;
        let config = builder.with_root_certificates(roots).with_no_client_auth();
        let bundle = certificates.iter().map(pem).collect();
        Ok(TrustedRoots { config: Arc::new(config), bundle })
    }
}
