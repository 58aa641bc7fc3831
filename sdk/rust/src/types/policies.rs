//! Types of policies.
//!
//! Written by `python3 sdk/generate`; change the document instead.

use super::{Name, PolicyVerdict};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Amounts that are used up, since a policy with this budget applies. Machines that are held
/// to several policies have the lowest of each.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BudgetLimits {
    /// Branches that were made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branches: Option<u64>,
    /// Processor time. The running instruction is interrupted, and its state kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_seconds: Option<u64>,
    /// Instructions that were accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<u64>,
    /// Calls of tools that policies allow or ask about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<u64>,
    /// MiB in both directions together, counted from the start of the service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic_mib: Option<u64>,
}

/// The answer of a machine's policies to a request, and the deciding rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// The policy that decides; absent, if no policy does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Why.
    pub reason: String,
    /// The rule that decides, such as `network.allow "*.example.com"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    pub verdict: PolicyVerdict,
}

/// A named policy of the service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    pub changed_at: Timestamp,
    pub document: PolicyDocument,
    pub name: Name,
}

/// A request, and the answer that is expected. It has one of `fetch`, `import`, `secret`,
/// `tool`, `create`, `file` and `command`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PolicyCase {
    /// The arguments of `tool`, as the text of a JSON object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
    /// A command of the shell that a client starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// A template that a machine is created from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub create: Option<String>,
    pub expect: PolicyVerdict,
    /// A URL: `http:`, `https:`, `tcp://host:port` or `udp://host:port`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetch: Option<String>,
    /// A file that a client uses: `read PATH`, or `write PATH`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// A module: `npm:`, `jsr:` or `https:`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub import: Option<String>,
    /// The method of `fetch`; `GET`, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// A secret and the host that gets it: `NAME@HOST`, or `NAME@HOST:PORT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// A tool: `SERVER.TOOL`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
}

/// A policy: what it does not allow is denied. The order of rules does not matter: `deny`
/// beats `ask`, and `ask` beats `allow`. A machine is held to every policy that applies to
/// it, and gets what all of them allow.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PolicyDocument {
    /// What all machines of an account that are held to the policy may use up together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account_budget: Option<BudgetLimits>,
    /// Accounts whose machines are all held to this policy, beside their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accounts: Vec<String>,
    /// What a machine and all its branches may use up together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetLimits>,
    /// Commands that clients have the service start, such as `git log *`, or `pip install pandas`
    /// for an installation of packages. Without this section the policy does not restrict them.
    /// Code in a machine starts programs itself, which no such rule prevents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commands: Option<PolicyRules>,
    /// The purpose of the policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Files that clients read and write through the service, such as `/home/user/*` or `read
    /// /etc/hosts`. Without this section the policy does not restrict them. Code in a machine
    /// opens its files itself, which no such rule prevents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<PolicyRules>,
    /// Requests of HTTP, such as `GET,HEAD api.example.com/v1/*` or `POST *.example.com:8443`. A
    /// host with such a rule is connected to; each request is judged by its method and path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<PolicyRules>,
    /// Templates that machines are created from, such as `python` or `team-*`. Without this
    /// section the policy does not restrict them; with it, and without rules, it allows none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machines: Option<PolicyRules>,
    /// Modules that the service fetches for imports, such as `npm:lodash` or `jsr:@std/*`, or the
    /// beginning of an `https:` address and `*`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modules: Option<PolicyRules>,
    /// Hosts that machines connect to, such as `api.example.com`, `*.example.com:443,8443`,
    /// `10.1.0.0/16:5432` or `time.example.com:123/udp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<PolicyRules>,
    /// Rego, for what the other rules cannot say: package `stasis` with rules `allow`, `ask` and
    /// `deny`. They count as rules of this policy. `input` has `subject`, `action` and `object`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rego: Option<String>,
    /// Secrets that requests of machines carry, such as `GITHUB@api.github.com`, or `GITHUB` for
    /// every host that the secret is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets: Option<PolicyRules>,
    /// Templates whose machines are all held to this policy, beside their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub templates: Vec<String>,
    /// Requests and the expected answers, for `stasis policy test`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub test: Vec<PolicyCase>,
    /// Tools that code calls, such as `github.create_issue`, `github.list_*` or
    /// `github.create_issue repo=acme/*`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<PolicyRules>,
    /// How much each machine sends and receives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<TrafficLimits>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PolicyList {
    pub policies: Vec<Policy>,
}

/// Rules of one kind.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PolicyRules {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// A call of a tool waits until a person allows it. Everything else is refused, with the
    /// reason that a person has to allow it: the policy has to be changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ask: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
}

/// Limits of one machine's traffic. A machine that is held to several policies has the lowest
/// of each.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TrafficLimits {
    /// TCP connections at once; never more than 256.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<u64>,
    /// KiB per second, in both directions together. A faster machine is slowed down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kib_per_s: Option<u64>,
    /// MiB in both directions together, of a machine and all its branches, since the service
    /// started. After that connections are reset, and new ones refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_mib: Option<u64>,
}
