//! Policies as people write them, and how a request is explained.

use crate::Name;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// A policy: what it does not allow is denied. The order of rules does not matter: `deny` beats
/// `ask`, and `ask` beats `allow`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyDocument {
    /// What the policy is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Hosts that machines connect to, such as `api.example.com`, `*.example.com:443,8443`,
    /// `10.1.0.0/16:5432` or `time.example.com:123/udp`.
    #[serde(default, skip_serializing_if = "PolicyRules::is_empty")]
    #[serde(deserialize_with = "crate::object::required")]
    pub network: PolicyRules,
    /// Modules that the service fetches for imports, such as `npm:lodash` or `jsr:@std/*`, or the
    /// beginning of an `https:` address and `*`.
    #[serde(default, skip_serializing_if = "PolicyRules::is_empty")]
    #[serde(deserialize_with = "crate::object::required")]
    pub modules: PolicyRules,
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
    /// Refused until a person allows it. The service has no way to answer yet.
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

/// A request, and the answer that is expected. It has either `fetch` or `import`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyCase {
    /// A URL: `http:`, `https:`, `tcp://host:port` or `udp://host:port`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^(https?|tcp|udp)://")]
    pub fetch: Option<String>,
    /// A module: `npm:`, `jsr:` or `https:`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^(npm|jsr|https):")]
    pub import: Option<String>,
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

/// A request to explain. It has either `fetch` or `import`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct ExplainQuery {
    /// A URL: `http:`, `https:`, `tcp://host:port` or `udp://host:port`.
    #[serde(default)]
    #[param(pattern = "^(https?|tcp|udp)://")]
    pub fetch: Option<String>,
    /// A module: `npm:`, `jsr:` or `https:`.
    #[serde(default)]
    #[param(pattern = "^(npm|jsr|https):")]
    pub import: Option<String>,
}

/// What a machine's policies answer to a request, and which rule decides.
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

/// A refused connection, name or import.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RefusedAccess {
    /// What the machine asked for, such as `tcp api.example.com:443 (203.0.113.7)`.
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
