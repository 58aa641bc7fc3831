//! The certificate authority of one line of machines: it signs what the machine is shown when its
//! TLS is read.
//!
//!   key of secrets ─ account, line ─► key of the authority ─► certificate, in the machine's files
//!                                              └─► certificates of hosts, for a month, in memory
//!
//! The key is derived, never written, and never leaves the service. A restart derives the same one,
//! so what a machine has trusted it goes on trusting; so do its branches.

use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, date_time_ymd,
};
use stasis_secrets::MasterKey;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio_rustls::rustls::crypto::aws_lc_rs::{default_provider, sign::any_ecdsa_type};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::server::{NoServerSessionStorage, ResolvesServerCert};
use tokio_rustls::rustls::sign::{CertifiedKey, SigningKey, SingleCertAndKey};
use tokio_rustls::rustls::{self, ServerConfig};

/// Certificates of hosts that are kept, and how long: they are valid for longer.
const MOST_LEAVES: usize = 256;
const KEPT: Duration = Duration::from_secs(24 * 3600);
const VALID: Duration = Duration::from_secs(30 * 24 * 3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

pub struct MachineAuthority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    /// The key of all hosts' certificates, new in each process.
    leaf_key: KeyPair,
    signing_key: Arc<dyn SigningKey>,
    leaves: Mutex<HashMap<String, (Arc<CertifiedKey>, Instant)>>,
}

impl std::fmt::Debug for MachineAuthority {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("MachineAuthority(…)")
    }
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    #[error("certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    #[error("no key can be derived")]
    Key,
}

impl MachineAuthority {
    pub fn of(key: &MasterKey, account: &str, lineage: i64) -> Result<Self, AuthorityError> {
        let own = authority_key(key, account, lineage)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        let name = format!("Stasis machine {lineage}");
        params.distinguished_name.push(DnType::CommonName, name);
        params.distinguished_name.push(DnType::OrganizationName, "Stasis");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        // fixed, so that a restart makes the same certificate but for its signature
        (params.not_before, params.not_after) =
            (date_time_ymd(2024, 1, 1), date_time_ymd(2049, 12, 31));
        params.serial_number = Some(lineage.unsigned_abs().max(1).into());
        let certificate = params.self_signed(&own)?.der().clone();
        let leaf_key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let der = PrivatePkcs8KeyDer::from(leaf_key.serialize_der());
        let signing_key = any_ecdsa_type(&PrivateKeyDer::from(der))?;
        let issuer = Issuer::new(params, own);
        let leaves = Mutex::default();
        Ok(MachineAuthority { issuer, certificate, leaf_key, signing_key, leaves })
    }

    /// The certificate that a machine trusts.
    pub fn pem(&self) -> String {
        pem(&self.certificate)
    }

    /// How the machine is answered that connects to a host: a name, or an address as text.
    pub fn server_config(
        &self,
        host: &str,
        alpn: Option<&[u8]>,
    ) -> Result<Arc<ServerConfig>, AuthorityError> {
        let leaf = self.leaf(host)?;
        let resolver: Arc<dyn ResolvesServerCert> = Arc::new(SingleCertAndKey::from(leaf));
        let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_safe_default_protocol_versions()?.with_no_client_auth();
        let mut config = builder.with_cert_resolver(resolver);
        config.alpn_protocols = alpn.map(<[u8]>::to_vec).into_iter().collect();
        // connections are not resumed: nothing is kept for them
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }

    fn leaf(&self, host: &str) -> Result<Arc<CertifiedKey>, AuthorityError> {
        let now = Instant::now();
        let mut leaves = self.leaves.lock();
        if let Some((leaf, made)) = leaves.get(host)
            && now.duration_since(*made) < KEPT
        {
            return Ok(leaf.clone());
        }
        leaves.retain(|_, (_, made)| now.duration_since(*made) < KEPT);
        if leaves.len() >= MOST_LEAVES {
            let oldest = leaves.iter().min_by_key(|(_, (_, made))| *made);
            let oldest = oldest.map(|(name, _)| name.clone());
            oldest.map(|name| leaves.remove(&name));
        }
        let certificate = self.sign(host)?;
        let leaf = Arc::new(CertifiedKey::new(vec![certificate], self.signing_key.clone()));
        leaves.insert(host.to_owned(), (leaf.clone(), now));
        Ok(leaf)
    }

    fn sign(&self, host: &str) -> Result<CertificateDer<'static>, AuthorityError> {
        let mut params = CertificateParams::new(vec![host.to_owned()])?;
        params.distinguished_name = DistinguishedName::new();
        // a common name has at most 64 characters; clients look at the alternative name
        params.distinguished_name.push(DnType::OrganizationName, "Stasis");
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let now = SystemTime::now();
        (params.not_before, params.not_after) = ((now - DAY).into(), (now + VALID).into());
        Ok(params.signed_by(&self.leaf_key, &self.issuer)?.der().clone())
    }
}

/// The key of an authority, as the numbers derived for it say.
fn authority_key(key: &MasterKey, account: &str, lineage: i64) -> Result<KeyPair, AuthorityError> {
    // one in four thousand million numbers is no key of the curve
    for attempt in ["1", "2", "3"] {
        let number = key.derive("authority", &[account, &lineage.to_string(), attempt]);
        if let Ok(pair) = key_pair(&number) {
            return Ok(pair);
        }
    }
    Err(AuthorityError::Key)
}

/// A key of P-256 from its secret number, in the form of RFC 5915.
fn key_pair(number: &[u8; 32]) -> Result<KeyPair, AuthorityError> {
    const HEAD: [u8; 7] = [0x30, 0x31, 2, 1, 1, 4, 32];
    const CURVE: [u8; 12] = [0xa0, 10, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
    let der = zeroize::Zeroizing::new([&HEAD[..], number, &CURVE].concat());
    let pair = EcdsaKeyPair::from_private_key_der(&ECDSA_P256_SHA256_ASN1_SIGNING, &der);
    let pkcs8 = pair.map_err(|_| AuthorityError::Key)?.to_pkcs8v1();
    let pkcs8 = pkcs8.map_err(|_| AuthorityError::Key)?;
    let der = PrivatePkcs8KeyDer::from(pkcs8.as_ref());
    Ok(KeyPair::from_pkcs8_der_and_sign_algo(&der, &PKCS_ECDSA_P256_SHA256)?)
}

/// A certificate as text.
pub fn pem(certificate: &CertificateDer<'_>) -> String {
    let text = STANDARD.encode(certificate);
    let lines: Vec<&str> =
        text.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_rustls::rustls::RootCertStore;
    use tokio_rustls::rustls::client::WebPkiServerVerifier;
    use tokio_rustls::rustls::client::danger::ServerCertVerifier;
    use tokio_rustls::rustls::pki_types::{ServerName, UnixTime};

    fn verifies(trusted: &MachineAuthority, signer: &MachineAuthority, host: &str) -> bool {
        let mut roots = RootCertStore::empty();
        roots.add(trusted.certificate.clone()).expect("a root");
        let provider = Arc::new(default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
        let verifier = verifier.build().expect("a verifier");
        let leaf = signer.leaf(host).expect("a certificate");
        let name = ServerName::try_from(host.to_owned()).expect("a name");
        verifier.verify_server_cert(&leaf.cert[0], &[], &name, &[], UnixTime::now()).is_ok()
    }

    #[test]
    fn a_restart_signs_with_the_same_key_and_another_line_does_not() {
        let (key, other) = (MasterKey::new([7; 32]), MasterKey::new([8; 32]));
        let first = MachineAuthority::of(&key, "a", 1).expect("an authority");
        let second = MachineAuthority::of(&key, "a", 1).expect("the same");
        for host in ["api.example", "x.api.example", "203.0.113.7"] {
            assert!(verifies(&first, &second, host), "{host}");
        }
        for other in [(&key, "a", 2), (&key, "b", 1), (&other, "a", 1)] {
            let other = MachineAuthority::of(other.0, other.1, other.2).expect("another");
            assert!(!verifies(&first, &other, "api.example"));
        }
        assert!(first.pem().starts_with("-----BEGIN CERTIFICATE-----\nMII"));
    }

    #[test]
    fn there_are_only_so_many_certificates() {
        let authority = MachineAuthority::of(&MasterKey::new([7; 32]), "a", 1).expect("one");
        for number in 0..MOST_LEAVES + 10 {
            authority.leaf(&format!("n{number}.example")).expect("a certificate");
        }
        assert_eq!(authority.leaves.lock().len(), MOST_LEAVES);
        let long = format!("{}.example", vec!["a".repeat(60); 4].join("."));
        authority.server_config(&long, Some(b"h2")).expect("a long name");
    }
}
