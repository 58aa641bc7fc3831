//! Types of policies.
//!
//! Written by `python3 sdk/generate`; change the document instead.

use super::{Name, PolicyVerdict};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What a machine's policies answer to a request, and which rule decides.
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

/// A request, and the answer that is expected. It has either `fetch` or `import`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PolicyCase {
    pub expect: PolicyVerdict,
    /// A URL: `http:`, `https:`, `tcp://host:port` or `udp://host:port`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetch: Option<String>,
    /// A module: `npm:`, `jsr:` or `https:`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub import: Option<String>,
}

/// A policy: what it does not allow is denied. The order of rules does not matter: `deny`
/// beats `ask`, and `ask` beats `allow`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PolicyDocument {
    /// What the policy is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Modules that the service fetches for imports, such as `npm:lodash` or `jsr:@std/*`, or the
    /// beginning of an `https:` address and `*`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modules: Option<PolicyRules>,
    /// Hosts that machines connect to, such as `api.example.com`, `*.example.com:443,8443`,
    /// `10.1.0.0/16:5432` or `time.example.com:123/udp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<PolicyRules>,
    /// Requests and the expected answers, for `stasis policy test`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub test: Vec<PolicyCase>,
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
    /// Refused until a person allows it. The service has no way to answer yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ask: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
}
