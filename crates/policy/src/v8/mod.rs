//! mcp-v8's policies: its categories, entry points, input documents and hooks.
//!
//! ```text
//!   {"fetch": {"mode": "all", "policies": [{"modules": [{name, text}], "rule": "data…"}]}}
//!   {"fetch": {"policies": [{"remote": "https://opa…"}], "pre": [{"script": text}], "post": […]}}
//! ```
//!
//! A machine that is held to them may do what the category of an action allows. A category that is
//! absent allows imports and calls of tools, and denies requests: there is no `fetch` without its
//! policy. The floor and private addresses are as for every policy. A policy that fails denies.

mod category;
mod chain;
mod headers;
mod input;
mod passes;
mod source;
#[cfg(test)]
mod tests;
mod walk;

pub use headers::{AddedHeader, HeaderScope};
pub use source::{ScriptAnswer, ScriptStep, V8Outside, V8Script};
pub use walk::{V8Refused, V8Step, V8Walk};

use crate::decide::{Access, Denial, Identity};
use crate::document::PolicyFault;
use crate::reach::Protocol;
use crate::rego::LONGEST;
use category::{CATEGORIES, Category};
use chain::V8Chain;
use input::SentRequest;
use passes::Passes;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The longest configuration with the text of its files.
pub const LONGEST_CONFIG: usize = 4 * LONGEST;

/// Chains of policies by category.
#[derive(Clone)]
pub struct V8Policies {
    /// The text it was read from; equal texts decide alike.
    text: String,
    chains: BTreeMap<&'static str, Arc<V8Chain>>,
    outside: Arc<dyn V8Outside>,
    passes: Arc<Passes>,
    /// What is added to requests after hooks, and before policies.
    headers: Arc<[HeaderScope]>,
}

impl fmt::Debug for V8Policies {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("V8Policies").field("chains", &self.chains).finish_non_exhaustive()
    }
}

impl PartialEq for V8Policies {
    fn eq(&self, other: &V8Policies) -> bool {
        self.text == other.text && self.headers == other.headers
    }
}

impl Eq for V8Policies {}

/// All categories.
pub fn categories() -> impl Iterator<Item = &'static str> {
    CATEGORIES.iter().map(|known| known.name)
}

impl V8Policies {
    /// Reads the configuration, with the text of its files in it.
    pub fn read(config: &Value, outside: Arc<dyn V8Outside>) -> Result<V8Policies, PolicyFault> {
        let all = config.as_object().ok_or_else(|| fault("policies", "it is no object"))?;
        let mut chains = BTreeMap::new();
        for (name, chain) in all {
            let Some(category) = Category::named(name) else {
                let known: Vec<_> = categories().collect();
                let said = format!("there is no such category; {} are", known.join(", "));
                return Err(fault(name, &said));
            };
            chains.insert(category.name, Arc::new(V8Chain::read(category, chain)?));
        }
        let (text, passes, headers) = (config.to_string(), Arc::default(), Arc::default());
        Ok(V8Policies { text, chains, outside, passes, headers })
    }

    /// With headers that are added to requests.
    pub fn with_headers(self, scopes: Vec<HeaderScope>) -> Result<V8Policies, PolicyFault> {
        headers::check(&scopes)?;
        Ok(V8Policies { headers: scopes.into(), ..self })
    }

    /// The headers that are added to a request, in which `has` finds a header.
    pub fn added_headers(
        &self,
        host: &str,
        method: &str,
        has: impl Fn(&str) -> bool,
    ) -> Vec<AddedHeader> {
        headers::added(&self.headers, (host, method), has)
    }

    /// The configured categories.
    pub fn configured(&self) -> impl Iterator<Item = &'static str> {
        self.chains.keys().copied()
    }

    /// Whether requests have to be read: their policies see methods and paths.
    pub fn reads_requests(&self) -> bool {
        ["fetch", "websocket", "http2"].iter().any(|name| self.chains.contains_key(name))
    }

    /// Whether an answer of a category may take long: it comes from a server or a hook.
    pub fn waits(&self, category: &str) -> bool {
        self.chains.get(category).is_some_and(|chain| chain.waits())
    }

    /// Takes an operation of a machine through the hooks and policies of its category. None, if
    /// the category is not configured.
    pub fn walk(&self, category: &str, machine: &str, input: Value) -> Option<V8Walk> {
        let chain = self.chains.get(category)?.clone();
        let (outside, passes) = (self.outside.clone(), self.passes.clone());
        Some(V8Walk::new(chain, outside, (passes, self.headers.clone()), machine, input))
    }

    /// Why an access is denied, if it is; with the category that decided.
    pub fn judge(&self, who: &Identity, access: &Access<'_>) -> (&'static str, Result<(), Denial>) {
        let absent = |allowed: bool| if allowed { Ok(()) } else { Err(Denial::NotAllowed) };
        match *access {
            Access::Connect { protocol: Protocol::Udp, .. } => ("fetch", absent(false)),
            // what it is for is judged request by request
            Access::Resolve { .. } | Access::Connect { .. } => {
                ("fetch", absent(self.reads_requests()))
            }
            Access::Request { name, address, what, .. } => {
                self.request(who, &SentRequest { name, address, what })
            }
            Access::Import { source, specifier } => {
                ("modules", self.gate("modules", who, input::import(source, specifier), true))
            }
            Access::Tool { server, tool, arguments } => {
                let input = json!({ "operation": "mcp_call_tool", "server": server, "tool": tool,
                    "arguments": arguments });
                // hooks come before, where they can change the call
                ("mcp_tools", self.policies("mcp_tools", &input, true))
            }
            Access::Create { .. } => ("machines", Ok(())),
            // those of its own functions are decided where code asks for them
            Access::File(_) => ("filesystem", Ok(())),
            Access::Command(_) => ("subprocess", Ok(())),
            Access::Secret { .. } => ("fetch", Err(Denial::NotAllowed)),
        }
    }

    fn request(
        &self,
        who: &Identity,
        sent: &SentRequest<'_>,
    ) -> (&'static str, Result<(), Denial>) {
        if sent.is_websocket() {
            return ("websocket", self.gate("websocket", who, self.seen(sent.websocket()), false));
        }
        if sent.what.http2 && self.chains.contains_key("http2") {
            let [connect, request] = sent.http2();
            let judged = self.gate("http2", who, connect, false);
            let request = self.seen(request);
            return ("http2", judged.and_then(|()| self.gate("http2", who, request, false)));
        }
        let input = sent.fetch();
        let hooks = self.chains.get("fetch").is_some_and(|chain| chain.has_hooks());
        if hooks && !self.passes.take(&who.machine, &input) {
            return ("fetch", Err(Denial::AroundHooks));
        }
        ("fetch", self.policies("fetch", &self.seen(input), false))
    }

    /// The input with the marks of added headers.
    fn seen(&self, input: Value) -> Value {
        headers::marked(&self.headers, input)
    }

    /// The answer of policies alone.
    fn policies(&self, category: &str, input: &Value, default: bool) -> Result<(), Denial> {
        match self.chains.get(category) {
            Some(chain) => chain.judge(self.outside.as_ref(), input),
            None if default => Ok(()),
            None => Err(Denial::NotAllowed),
        }
    }

    /// The answer of hooks and policies that only gate.
    pub fn gate(
        &self,
        category: &'static str,
        who: &Identity,
        input: Value,
        default: bool,
    ) -> Result<(), Denial> {
        let has_hooks = self.chains.get(category).is_some_and(|chain| chain.has_hooks());
        if !has_hooks {
            return self.policies(category, &input, default);
        }
        let Some(mut walk) = self.walk(category, &who.machine, input) else { return Ok(()) };
        walk.begin().map(drop).map_err(|refused| Denial::Hook(refused.0))
    }

    /// The message to code when a policy of a category denies.
    pub fn denial(&self, category: &str, input: &Value) -> String {
        Category::named(category).map_or_else(String::new, |known| known.denial(input))
    }

    /// The text for an import that is denied.
    pub fn import_denial(source: crate::modules::ImportSource, specifier: &str) -> String {
        let input = input::import(source, specifier);
        Category::named("modules").map_or_else(String::new, |known| known.denial(&input))
    }
}

fn fault(category: &str, said: &str) -> PolicyFault {
    let category: String = category.chars().take(80).collect();
    PolicyFault(format!("policies of {category}: {said}"))
}
