//! The rules of one machine, for the threads that carry its traffic: asks the policies, and reports
//! refusals.
//!
//! A machine can be refused as often as it likes, so only so many refusals are reported: the same
//! one once a minute, and 30 in a burst. The next report says how many were left out.

use crate::book::PolicyBook;
use crate::guard::is_own;
use crate::intercept::InterceptedMachine;
use crate::traffic::TrafficMeter;
use crate::unguarded::{self, EgressGuard};
use parking_lot::Mutex;
use stasis_api::{Name, Network, PolicyVerdict, RefusedAccess};
use stasis_policy::decide::{Access, Decision, Denial, Identity, Subject, decide};
use stasis_policy::document::{Policy, needs_interception};
use stasis_policy::http::HttpRequest;
use stasis_policy::modules::ImportRule;
use stasis_policy::pattern::is_private;
use stasis_policy::reach::{self, Protocol};
use std::collections::HashMap;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the same refusal is not reported again.
const AGAIN: Duration = Duration::from_secs(60);
/// Reports at once, and how long it takes until there is one more.
const BURST: usize = 30;
const ONE_MORE: Duration = Duration::from_secs(2);
/// The longest path in a report.
const LONGEST_PATH: usize = 200;

/// Hears of refusals; it must not wait for anything.
pub type RefusalSink = Box<dyn Fn(RefusedAccess) + Send + Sync>;

/// The rules of one machine.
pub struct EgressRules {
    pub who: Identity,
    pub network: Network,
    pub book: Arc<PolicyBook>,
    pub refused: RefusalSink,
    /// How its requests are read, where a rule needs that.
    pub intercept: Arc<InterceptedMachine>,
    /// Bytes that its line of machines has sent and received.
    pub meter: Arc<TrafficMeter>,
}

pub struct MachineRules {
    rules: EgressRules,
    reports: Mutex<RefusalReports>,
}

impl MachineRules {
    pub fn new(rules: EgressRules) -> MachineRules {
        MachineRules { rules, reports: Mutex::default() }
    }

    /// Whether names matter: the machine is held to a policy.
    pub fn is_named(&self) -> bool {
        self.rules.book.is_named(&self.rules.who, &self.rules.network)
    }

    /// Whether a test removed a guard from this machine.
    pub fn is_removed(&self, guard: EgressGuard) -> bool {
        unguarded::is_removed(&self.rules.who.machine, guard)
    }

    /// Changes with every policy and every secret.
    pub fn version(&self) -> u64 {
        let secrets = self.rules.intercept.shared.secrets.version();
        self.rules.book.version().wrapping_add(secrets)
    }

    pub fn intercept(&self) -> &Arc<InterceptedMachine> {
        &self.rules.intercept
    }

    pub fn levels(&self) -> Vec<Arc<Policy>> {
        self.rules.book.levels(&self.rules.who, &self.rules.network)
    }

    fn decide_at(&self, levels: &[Arc<Policy>], access: &Access<'_>) -> Decision {
        let EgressRules { who, network, .. } = &self.rules;
        let subject = Subject { who, network, levels, imports: ImportRule::Network };
        unguarded::judged(&who.machine, access, decide(&subject, access))
    }

    pub fn decide(&self, access: &Access<'_>) -> Decision {
        self.decide_at(&self.levels(), access)
    }

    /// Whether requests on a connection have to be read: a rule is about them, or about a secret
    /// that is bound to the host.
    pub fn needs_interception(&self, name: Option<&str>, to: SocketAddrV4) -> bool {
        let levels = self.levels();
        if levels.is_empty() {
            return false;
        }
        let address = to.ip().to_string();
        let host = name.unwrap_or(&address);
        let granted = |secret: &str| {
            let access = Access::Secret { secret, host, port: to.port() };
            self.decide_at(&levels, &access).is_allowed()
        };
        needs_interception(&levels, name, to)
            || self.rules.intercept.has_secret_for(host, to.port(), granted)
    }

    /// Whether the answer to a request may take its time.
    pub fn waits(&self) -> bool {
        self.levels().iter().any(|level| level.waits_for_requests())
    }

    /// Whether a request is allowed; if not, why, which is reported too.
    pub fn request(
        &self,
        name: Option<&str>,
        to: SocketAddrV4,
        what: HttpRequest<'_>,
    ) -> Result<(), String> {
        let own = is_own(*to.ip());
        let decision = self.decide(&Access::Request { name, address: to, own, what });
        if decision.is_allowed() {
            return Ok(());
        }
        let method = what.method;
        // a query may have more in it than a report is to show
        let path = what.path.split_once('?').map_or(what.path, |(path, _)| path);
        self.report(&request(name, to, method, path), &decision);
        let explained = decision.explain();
        let policy = explained.policy.map(|policy| format!(" (policy {policy})"));
        Err(format!("{method} {path}: {}{}", explained.reason, policy.unwrap_or_default()))
    }

    /// Whether a secret may be part of a request to a host.
    pub fn secret(&self, secret: &str, host: &str, port: u16) -> bool {
        let decision = self.decide(&Access::Secret { secret, host, port });
        if !decision.is_allowed() {
            self.report(&format!("secret {secret} for {host}:{port}"), &decision);
        }
        decision.is_allowed()
    }

    /// Whether the service may ask a server for tokens in the name of this machine's account.
    pub fn may_ask_for_tokens(&self, name: Option<&str>, to: SocketAddrV4) -> Result<(), String> {
        let own = is_own(*to.ip());
        if let Some(refusal) = reach::floor(to, own) {
            return Err(format!("the server is {refusal}"));
        }
        let access = Access::Connect { name, address: to, protocol: Protocol::Tcp, own };
        match is_private(*to.ip()) && !self.decide(&access).is_allowed() {
            true => Err("the server has a private address, which no rule names".to_owned()),
            false => Ok(()),
        }
    }

    pub fn report(&self, access: &str, decision: &Decision) {
        let explained = decision.explain();
        let verdict = explained.verdict;
        self.tell(access, verdict, explained.reason, explained.policy, explained.rule);
    }

    /// Reports what was refused for another reason than a rule.
    pub fn report_plain(&self, access: &str, reason: &str) {
        self.tell(access, PolicyVerdict::Deny, reason.to_owned(), None, None);
    }

    /// Reports what a limit refused, with the policy that sets it, if one does.
    pub fn report_limit(
        &self,
        access: &str,
        reason: String,
        policy: Option<&Name>,
        rule: Option<String>,
    ) {
        let policy = policy.map(Name::to_string);
        self.tell(access, PolicyVerdict::Deny, reason, policy, rule);
    }

    fn tell(
        &self,
        access: &str,
        verdict: PolicyVerdict,
        reason: String,
        policy: Option<String>,
        rule: Option<String>,
    ) {
        tracing::debug!(access, reason, "a machine was refused");
        let same = format!("{access}: {reason}");
        let Some(unreported) = self.reports.lock().take(&same, Instant::now()) else { return };
        let access = access.to_owned();
        let refused = RefusedAccess { access, verdict, reason, policy, rule, unreported };
        (self.rules.refused)(refused);
    }
}

/// A request as reports show it.
pub fn request(name: Option<&str>, to: SocketAddrV4, method: &str, path: &str) -> String {
    let path: String = path.chars().take(LONGEST_PATH).collect();
    match name {
        Some(name) => format!("{method} {name}:{}{path}", to.port()),
        None => format!("{method} {to}{path}"),
    }
}

/// Why requests that have to be read are not.
pub fn unreadable() -> Decision {
    Decision::Deny(Denial::Unreadable, None)
}

/// Which refusals are reported.
#[derive(Debug, Default)]
struct RefusalReports {
    recent: HashMap<String, Instant>,
    unreported: u64,
}

impl RefusalReports {
    /// How many were left out before this one; none, if this one is left out too.
    fn take(&mut self, same: &str, now: Instant) -> Option<u64> {
        let since = |at: &Instant| now.saturating_duration_since(*at);
        self.recent.retain(|_, at| since(at) < AGAIN);
        let lately = self.recent.values().filter(|at| since(at) < ONE_MORE).count();
        let full = self.recent.len() >= BURST && lately > 0;
        let many = self.recent.len() >= BURST + (AGAIN.as_secs() / ONE_MORE.as_secs()) as usize;
        if self.recent.contains_key(same) || full || many {
            self.unreported += 1;
            return None;
        }
        self.recent.insert(same.to_owned(), now);
        Some(std::mem::take(&mut self.unreported))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_refusals_are_reported() {
        let (mut reports, now) = (RefusalReports::default(), Instant::now());
        assert_eq!(reports.take("a", now), Some(0));
        assert_eq!(reports.take("a", now), None);
        let told = (0..1000).filter(|n| reports.take(&format!("b{n}"), now).is_some()).count();
        assert_eq!(told, BURST - 1);
        let later = now + ONE_MORE;
        assert_eq!(reports.take("c", later), Some(1000 - (BURST as u64 - 1)));
        assert_eq!(reports.take("d", later), None, "one at a time");
        let flood = (0..100_000u32).filter(|n| {
            let at = now + Duration::from_millis(u64::from(*n));
            reports.take(&format!("e{n}"), at).is_some()
        });
        let told = flood.count();
        assert!((40..=110).contains(&told), "{told}");
        assert!(reports.recent.len() <= 60);
        assert_eq!(reports.take("a", now + Duration::from_secs(3600)).map(|n| n > 0), Some(true));
    }
}
