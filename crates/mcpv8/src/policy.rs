//! The policies of setups, and decisions that are theirs.
//!
//!   setup with policies ─► Policy, in force under the name of its content ─► machines of its runs
//!
//! A machine made for such a run is held to the policy for as long as it lives. After a restart the
//! policy is in force again with the next run; until then its machines reach nothing.

use crate::V8;
use crate::error::{Error, Result};
use crate::outside::HookHost;
use crate::run_file::CATEGORY;
use crate::setup::V8Setup;
use serde_json::{Value, json};
use stasis_api::{Name, Network};
use stasis_machine::Machine;
use stasis_policy::decide::{Denial, Identity};
use stasis_policy::document::Policy;
use stasis_policy::v8::{LONGEST_CONFIG, V8Policies};
use std::sync::Arc;

/// Policies of setups that are in force at once; the oldest go first.
const MOST: usize = 256;
/// The account that runs the service.
pub(crate) const FIRST: &str = "root";

/// The policy of a setup is named by its content, and by the headers that come with it.
fn name_of(policies: &Value, headers: Option<&str>) -> Result<Name> {
    let text = policies.to_string() + headers.unwrap_or_default();
    let hash = blake3::hash(text.as_bytes()).to_hex();
    let name = format!("mcp-v8-{}", &hash.as_str()[..32]);
    name.parse().map_err(|_| Error::new(500, "a policy has no name"))
}

impl V8Setup {
    /// The network of machines that run code with this setup, if it has policies.
    pub(crate) fn network(&self) -> Result<Option<Network>> {
        let headers = self.private_headers.as_deref();
        let name = self.policies.as_ref().map(|own| name_of(own, headers));
        Ok(name.transpose()?.map(Network::Policy))
    }

    /// Whether `run_js` may have a file, perhaps after a question to a policy.
    pub(crate) fn runs_files(&self) -> bool {
        let has_category = self.policies.as_ref().is_some_and(|own| own.get(CATEGORY).is_some());
        self.allow_run_js_file || has_category
    }

    /// The categories of its policies.
    pub(crate) fn categories(&self) -> Option<Vec<String>> {
        let own = self.policies.as_ref()?.as_object()?;
        Some(own.keys().cloned().collect())
    }
}

impl V8 {
    /// Checks the policies of a setup. Rego runs in the service, and the service asks servers, so
    /// only accounts that may set policies give them: here, the account that runs the service.
    pub(crate) fn check_policies(&self, account: &str, policies: &Value) -> Result<V8Policies> {
        if account != FIRST {
            let said = "policies need the account that runs the service; ask for a policy instead";
            return Err(Error::new(403, said));
        }
        if policies.to_string().len() > LONGEST_CONFIG {
            return Err(Error::invalid(format!("policies have at most {LONGEST_CONFIG} bytes")));
        }
        let outside = Arc::new(HookHost(Arc::downgrade(&self.host)));
        V8Policies::read(policies, outside).map_err(|fault| Error::invalid(fault.to_string()))
    }

    /// Whether the policies of a setup allow an operation on labels; without a setup, all are.
    pub(crate) fn permit_labels(
        &self,
        account: &str,
        setup: Option<&str>,
        (op, label, ca_id): (&str, Option<&str>, Option<&str>),
    ) -> Result<()> {
        let Some(setup) = setup else { return Ok(()) };
        let Some(Network::Policy(name)) = self.network_of(account, setup)? else { return Ok(()) };
        let policy = self.host.policy_in_force(&name);
        let Some(v8) = policy.as_ref().and_then(|policy| policy.v8()) else {
            return Err(Error::new(500, "the policies of this setup are not in force"));
        };
        let input = json!({ "op": op, "label": label, "ca_id": ca_id });
        let who = Identity { account: account.to_owned(), ..Identity::default() };
        let judged = v8.gate("fs_snapshot", &who, input.clone(), true);
        judged.map_err(|denial| match denial {
            Denial::Hook(said) => Error::new(403, said),
            _ => Error::new(403, v8.denial("fs_snapshot", &input)),
        })
    }

    /// Puts the policies of a setup in force; the network of its machines.
    pub(crate) fn network_of(&self, account: &str, setup: &str) -> Result<Option<Network>> {
        let setup = self.setup(account, setup)?;
        let Some(Network::Policy(name)) = setup.network()? else { return Ok(None) };
        let mut lent = self.shared.policies.lock();
        if let (Some(policies), false) = (&setup.policies, self.host.has_policy(&name)) {
            let mut policies = self.check_policies(account, policies)?;
            if let Some(headers) = &setup.private_headers {
                let rules = self.header_rules(account, headers)?;
                policies = self.with_headers(policies, &rules)?;
                self.host.lend_headers(name.as_str(), &rules)?;
            }
            self.host.lend_policy(Policy::of_v8(name.clone(), policies));
            lent.push_back(name.clone());
        }
        while lent.len() > MOST {
            if let Some(oldest) = lent.pop_front() {
                self.host.end_lent_policy(&oldest);
            }
        }
        Ok(Some(Network::Policy(name)))
    }

    /// A heap's machine can be used under the policy that it was made with, and under no other.
    pub(crate) fn has_network(&self, machine: &Machine, wanted: Option<&Network>) -> Result<()> {
        match wanted {
            Some(wanted) if machine.describe().network != *wanted => Err(Error::new(
                409,
                "this heap was made without these policies; start a session of its own for them",
            )),
            _ => Ok(()),
        }
    }
}
