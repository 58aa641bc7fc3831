//! Policies as people write them, and how a request is explained.

use crate::Name;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// A policy: what it does not allow is denied. The order of rules does not matter: `deny` beats
/// `ask`, and `ask` beats `allow`. A machine is held to every policy that applies to it, and gets
/// what all of them allow.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyDocument {
    /// The purpose of the policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Hosts that machines connect to, such as `api.example.com`, `*.example.com:443,8443`,
    /// `10.1.0.0/16:5432` or `time.example.com:123/udp`.
    #[serde(default, skip_serializing_if = "PolicyRules::is_empty")]
    #[serde(deserialize_with = "crate::object::required")]
    pub network: PolicyRules,
    /// Requests of HTTP, such as `GET,HEAD api.example.com/v1/*` or `POST *.example.com:8443`. A
    /// host with such a rule is connected to; each request is judged by its method and path.
    #[serde(default, skip_serializing_if = "PolicyRules::is_empty")]
    #[serde(deserialize_with = "crate::object::required")]
    pub http: PolicyRules,
    /// Secrets that requests of machines carry, such as `GITHUB@api.github.com`, or `GITHUB` for
    /// every host that the secret is bound to.
    #[serde(default, skip_serializing_if = "PolicyRules::is_empty")]
    #[serde(deserialize_with = "crate::object::required")]
    pub secrets: PolicyRules,
    /// Tools that code calls, such as `github.create_issue`, `github.list_*` or
    /// `github.create_issue repo=acme/*`.
    #[serde(default, skip_serializing_if = "PolicyRules::is_empty")]
    #[serde(deserialize_with = "crate::object::required")]
    pub tools: PolicyRules,
    /// Modules that the service fetches for imports, such as `npm:lodash` or `jsr:@std/*`, or the
    /// beginning of an `https:` address and `*`.
    #[serde(default, skip_serializing_if = "PolicyRules::is_empty")]
    #[serde(deserialize_with = "crate::object::required")]
    pub modules: PolicyRules,
    /// Templates that machines are created from, such as `python` or `team-*`. Without this section
    /// the policy does not restrict them; with it, and without rules, it allows none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::object::optional")]
    pub machines: Option<PolicyRules>,
    /// Files that clients read and write through the service, such as `/home/user/*` or
    /// `read /etc/hosts`. Without this section the policy does not restrict them. Code in a machine
    /// opens its files itself, which no such rule prevents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::object::optional")]
    pub files: Option<PolicyRules>,
    /// Commands that clients have the service start, such as `git log *`, or `pip install pandas`
    /// for an installation of packages. Without this section the policy does not restrict them.
    /// Code in a machine starts programs itself, which no such rule prevents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::object::optional")]
    pub commands: Option<PolicyRules>,
    /// How much each machine sends and receives.
    #[serde(default, skip_serializing_if = "TrafficLimits::is_empty")]
    #[serde(deserialize_with = "crate::object::required")]
    pub traffic: TrafficLimits,
    /// What a machine and all its branches may use up together.
    #[serde(default, skip_serializing_if = "BudgetLimits::is_empty")]
    #[serde(deserialize_with = "crate::object::required")]
    pub budget: BudgetLimits,
    /// What all machines of an account that are held to the policy may use up together.
    #[serde(default, skip_serializing_if = "BudgetLimits::is_empty")]
    #[serde(deserialize_with = "crate::object::required")]
    pub account_budget: BudgetLimits,
    /// Rego, for what the other rules cannot say: package `stasis` with rules `allow`, `ask` and
    /// `deny`. They count as rules of this policy. `input` has `subject`, `action` and `object`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rego: Option<String>,
    /// Accounts whose machines are all held to this policy, beside their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accounts: Vec<String>,
    /// Templates whose machines are all held to this policy, beside their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub templates: Vec<String>,
    /// Requests and the expected answers, for `stasis policy test`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "crate::object::list")]
    pub test: Vec<PolicyCase>,
}

/// Rules of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyRules {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// A call of a tool waits until a person allows it. Everything else is refused, with the reason
    /// that a person has to allow it: the policy has to be changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ask: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
}

impl PolicyRules {
    pub fn is_empty(&self) -> bool {
        self.allow.is_empty() && self.ask.is_empty() && self.deny.is_empty()
    }
}

/// Limits of one machine's traffic. A machine that is held to several policies has the lowest of
/// each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TrafficLimits {
    /// TCP connections at once; never more than 256.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<u32>,
    /// KiB per second, in both directions together. A faster machine is slowed down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kib_per_s: Option<u64>,
    /// MiB in both directions together, of a machine and all its branches, since the service
    /// started. After that connections are reset, and new ones refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_mib: Option<u64>,
}

impl TrafficLimits {
    pub fn is_empty(&self) -> bool {
        *self == TrafficLimits::default()
    }
}

/// Amounts that are used up, since a policy with this budget applies. Machines that are held to
/// several policies have the lowest of each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BudgetLimits {
    /// Instructions that were accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<u64>,
    /// Processor time. The running instruction is interrupted, and its state kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_seconds: Option<u64>,
    /// Calls of tools that policies allow or ask about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<u64>,
    /// Branches that were made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branches: Option<u64>,
    /// MiB in both directions together, counted from the start of the service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic_mib: Option<u64>,
}

impl BudgetLimits {
    pub fn is_empty(&self) -> bool {
        *self == BudgetLimits::default()
    }
}

/// A request, and the answer that is expected. It has one of `fetch`, `import`, `secret`,
/// `tool`, `create`, `file` and `command`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyCase {
    /// A URL: `http:`, `https:`, `tcp://host:port` or `udp://host:port`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^(https?|tcp|udp)://")]
    pub fetch: Option<String>,
    /// The method of `fetch`; `GET`, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// A module: `npm:`, `jsr:` or `https:`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^(npm|jsr|https):")]
    pub import: Option<String>,
    /// A secret and the host that gets it: `NAME@HOST`, or `NAME@HOST:PORT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// A tool: `SERVER.TOOL`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The arguments of `tool`, as the text of a JSON object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
    /// A template that a machine is created from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub create: Option<String>,
    /// A file that a client uses: `read PATH`, or `write PATH`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// A command of the shell that a client starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    pub expect: PolicyVerdict,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PolicyVerdict {
    Allow,
    /// A person has to decide. Until then it is refused.
    Ask,
    #[default]
    Deny,
}

impl PolicyVerdict {
    pub fn word(self) -> &'static str {
        match self {
            PolicyVerdict::Allow => "allow",
            PolicyVerdict::Ask => "ask",
            PolicyVerdict::Deny => "deny",
        }
    }
}

/// A named policy of the service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Policy)]
pub struct PolicyInfo {
    pub name: Name,
    #[schema(value_type = String, format = DateTime)]
    pub changed_at: Timestamp,
    pub document: PolicyDocument,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyList {
    pub policies: Vec<PolicyInfo>,
}

/// A request to explain. It has one of `fetch`, `import`, `secret`, `tool`, `create`, `file` and
/// `command`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct ExplainQuery {
    /// A URL: `http:`, `https:`, `tcp://host:port` or `udp://host:port`.
    #[serde(default)]
    #[param(pattern = "^(https?|tcp|udp)://")]
    pub fetch: Option<String>,
    /// The method of `fetch`; `GET`, if absent.
    #[serde(default)]
    pub method: Option<String>,
    /// A module: `npm:`, `jsr:` or `https:`.
    #[serde(default)]
    #[param(pattern = "^(npm|jsr|https):")]
    pub import: Option<String>,
    /// A secret and the host that gets it: `NAME@HOST`, or `NAME@HOST:PORT`.
    #[serde(default)]
    pub secret: Option<String>,
    /// A tool: `SERVER.TOOL`.
    #[serde(default)]
    pub tool: Option<String>,
    /// The arguments of `tool`, as the text of a JSON object.
    #[serde(default)]
    pub arguments: Option<String>,
    /// A template that a machine is created from.
    #[serde(default)]
    pub create: Option<String>,
    /// A file that a client uses: `read PATH`, or `write PATH`.
    #[serde(default)]
    pub file: Option<String>,
    /// A command of the shell that a client starts.
    #[serde(default)]
    pub command: Option<String>,
}

/// The answer of a machine's policies to a request, and the deciding rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Explanation {
    pub verdict: PolicyVerdict,
    /// Why.
    pub reason: String,
    /// The policy that decides; absent, if no policy does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// The rule that decides, such as `network.allow "*.example.com"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}

/// A refused connection, name, import, file or command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RefusedAccess {
    /// The requested access, such as `tcp api.example.com:443 (203.0.113.7)`.
    pub access: String,
    pub verdict: PolicyVerdict,
    pub reason: String,
    /// The policy that decided; absent, if the service's own rules did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Further refusals of the machine that were not reported because there were too many.
    #[serde(default)]
    pub unreported: u64,
}
