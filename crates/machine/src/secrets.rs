//! The secrets of accounts: recorded sealed, and in force for running machines at once.
//!
//!   set, remove ─► sealed ─► records ─► book ─► egress of every machine
//!
//! The key is read when the host is opened, by a thread that can. Without a key the host
//! works; calls that need a secret, and rules that read requests, are refused with the reason.

use crate::error::{Error, ErrorContext, Result};
use crate::host::{Host, HostInner};
use crate::machine::Machine;
use crate::network::memory_file;
use crate::settings::Settings;
use stasis_api::{MachineSecret, OauthClient, SecretInfo, SecretKind, SetSecret, Timestamp};
use stasis_egress::{Interception, TrustedRoots};
use stasis_policy::decide::{Access, Identity, Subject, decide};
use stasis_policy::document::grants_secret;
use stasis_policy::modules::ImportRule;
use stasis_records::{DocumentChange, MachineRecord, Records};
use stasis_secrets::{
    ClientCredentials, GrantedSecret, HeaderRule, SecretBook, SecretContent, SecretError,
    SecretText, StoredSecret, variable,
};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The kind of their documents in the records.
const KIND: &str = "secret";

type Loaded = (Arc<SecretBook>, Arc<Interception>, Arc<OwnedFd>);

/// Reads the key, what is recorded, and the authorities that the host trusts.
pub(crate) fn load(records: &Records, settings: &Settings) -> Result<Loaded> {
    let key = settings.secret_key.load(&settings.data_dir);
    if let Err(error) = &key {
        tracing::warn!(%error, "machines have no secrets");
    }
    let book = Arc::new(SecretBook::new(key));
    for (account, name) in records.documents_of_kind(KIND)? {
        let Some(text) = records.document(&account, KIND, &name)? else { continue };
        match serde_json::from_str::<StoredSecret>(&text) {
            Ok(secret) => book.put(&account, &name, secret),
            Err(error) => tracing::error!(account, name, %error, "a secret cannot be read"),
        }
    }
    let roots = TrustedRoots::read(settings.trusted_roots.as_deref());
    let roots = roots.doing(|| "read the authorities that the host trusts".into())?;
    let file = memory_file(roots.bundle.as_bytes()).doing(|| "write certificates".into())?;
    let resolv_conf = settings.resolv_conf.clone();
    let interception = Interception::new(roots, book.clone(), resolv_conf);
    Ok((book, Arc::new(interception), Arc::new(file)))
}

fn content(set: SetSecret) -> Result<SecretContent> {
    match (set.value, set.oauth) {
        (Some(value), None) => Ok(SecretContent::Value(SecretText::new(value)?)),
        (None, Some(client)) => {
            let OauthClient { token_url, client_id, client_secret, scope, refresh_buffer_secs } =
                client;
            Ok(SecretContent::OauthClient(ClientCredentials {
                token_url,
                client_id,
                client_secret: SecretText::new(client_secret)?,
                scope,
                refresh_buffer_secs: refresh_buffer_secs.unwrap_or(30),
            }))
        }
        _ => Err(Error::Invalid("a secret has either `value` or `oauth`".into())),
    }
}

fn info(name: &str, secret: &StoredSecret) -> SecretInfo {
    SecretInfo {
        name: name.to_owned(),
        kind: if secret.is_oauth { SecretKind::Oauth } else { SecretKind::Value },
        hosts: secret.hosts.iter().map(ToString::to_string).collect(),
        variable: variable(name),
        changed_at: Timestamp::from_millisecond(secret.changed_ms).unwrap_or_default(),
    }
}

impl Host {
    /// Adds a secret of an account, or replaces the one of that name.
    pub fn set_secret(&self, account: &str, name: &str, set: SetSecret) -> Result<SecretInfo> {
        let inner = self.inner();
        let (hosts, now) = (set.hosts.clone(), Timestamp::now().as_millisecond());
        let content = content(set)?;
        // records and book have the same order
        let _changing = inner.changing_secrets.lock();
        let secret = inner.secrets.seal(account, name, &hosts, &content, now)?;
        let value = serde_json::to_string(&secret)
            .map_err(|error| Error::Invalid(format!("the secret cannot be written: {error}")))?;
        let change = DocumentChange::Put { kind: KIND, key: name.to_owned(), value };
        inner.records.change_documents(account, vec![change])?;
        let set = info(name, &secret);
        inner.secrets.put(account, name, secret);
        Ok(set)
    }

    /// The secrets of an account, by name, without their values.
    pub fn secrets(&self, account: &str) -> Vec<SecretInfo> {
        let own = self.inner().secrets.of_account(account);
        own.iter().map(|(name, secret)| info(name, secret)).collect()
    }

    pub fn remove_secret(&self, account: &str, name: &str) -> Result<()> {
        let inner = self.inner();
        let _changing = inner.changing_secrets.lock();
        let found = inner.secrets.get(account, name);
        found.ok_or_else(|| SecretError::NotFound(name.to_owned()))?;
        let change = DocumentChange::Remove { kind: KIND, key: name.to_owned() };
        inner.records.change_documents(account, vec![change])?;
        inner.secrets.remove(account, name);
        Ok(())
    }

    /// Lends the values of headers to the machines under a policy, until the policy ends.
    pub fn lend_headers(&self, policy: &str, rules: &[HeaderRule]) -> Result<()> {
        Ok(self.inner().secrets.lend_headers(policy, rules)?)
    }

    /// The secrets that the policies of a machine grant, with their placeholders.
    pub fn machine_secrets(&self, machine: &Machine) -> Result<Vec<MachineSecret>> {
        let record = machine.record().clone();
        let inner = self.inner();
        inner.secrets.key()?;
        let granted = inner.granted_secrets(&record, &inner.identity(&record)?);
        let one = |granted: GrantedSecret| {
            let stored = inner.secrets.get(&record.made.account, &granted.name);
            let hosts = stored.map(|stored| info(&granted.name, &stored).hosts);
            MachineSecret {
                name: granted.name,
                variable: granted.variable,
                placeholder: granted.placeholder.to_string(),
                hosts: hosts.unwrap_or_default(),
            }
        };
        Ok(granted.into_iter().map(one).collect())
    }
}

impl HostInner {
    /// The secrets that a machine's code is told of: every policy that it is held to grants them
    /// for some host.
    pub(crate) fn granted_secrets(
        &self,
        record: &MachineRecord,
        who: &Identity,
    ) -> Vec<GrantedSecret> {
        let network = &record.made.network;
        let levels = self.policies.levels(who, network);
        if levels.is_empty() || network.is_none() {
            return Vec::new();
        }
        let subject = Subject { who, network, levels: &levels, imports: ImportRule::Network };
        let granted = |name: &str, secret: &StoredSecret| {
            let for_host = secret.hosts.iter().any(|binding| {
                let (host, port) = binding.example();
                let access = Access::Secret { secret: name, host: &host, port };
                decide(&subject, &access).is_allowed()
            });
            for_host || grants_secret(&levels, name)
        };
        self.secrets.granted(&record.made.account, record.lineage.0, granted)
    }
}
