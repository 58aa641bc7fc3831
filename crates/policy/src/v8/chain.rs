//! A category's configuration: its policies, and the hooks around an operation.
//!
//! ```text
//!   pre, policies, post     pre hooks ─► policies ─► operation ─► post hooks
//!   stack                   layers, in their order ─► operation or a script in its place
//! ```

use super::category::{Category, HookReach};
use super::fault;
use super::source::{SourceRole, V8Outside, V8Script, V8Source};
use crate::decide::Denial;
use crate::document::PolicyFault;
use serde_json::Value;
use std::sync::Arc;

const MOST_POLICIES: usize = 16;
const MOST_HOOKS: usize = 16;

#[derive(Debug)]
pub(super) struct V8Chain {
    pub category: &'static Category,
    any: bool,
    policies: Vec<V8Source>,
    pub layers: Vec<V8Layer>,
    pub executor: V8Executor,
    pub post: Vec<V8Source>,
}

#[derive(Debug)]
pub(super) enum V8Layer {
    Hook(V8Source),
    /// A function that calls the layers below it.
    Script(Arc<V8Script>),
    Policies,
    /// Headers are added where requests leave the machine.
    Inject,
}

#[derive(Debug)]
pub(super) enum V8Executor {
    Real,
    Script(Arc<V8Script>),
}

impl V8Chain {
    pub fn read(category: &'static Category, config: &Value) -> Result<V8Chain, PolicyFault> {
        let wrong = |said: &str| fault(category.name, said);
        let known = ["mode", "policies", "pre", "post", "stack"];
        let fields = config.as_object().ok_or_else(|| wrong("it is no object"))?;
        if let Some(odd) = fields.keys().find(|key| !known.contains(&key.as_str())) {
            return Err(wrong(&format!("`{odd}` is not known")));
        }
        let any = match fields.get("mode").map(|mode| mode.as_str()) {
            None | Some(Some("all")) => false,
            Some(Some("any")) => true,
            _ => return Err(wrong("`mode` is all or any")),
        };
        let has = |name: &str| fields.contains_key(name);
        let sources = |name: &str, role: SourceRole, most: usize| {
            let Some(listed) = fields.get(name) else { return Ok(Vec::new()) };
            let listed = listed.as_array().filter(|list| list.len() <= most);
            let said = format!("`{name}` is a list of at most {most}");
            let listed = listed.ok_or_else(|| wrong(&said))?;
            listed.iter().map(|one| V8Source::read(category, role, one)).collect()
        };
        if !["policies", "pre", "post", "stack"].iter().any(|name| has(name)) {
            return Err(wrong("`policies` is a list"));
        }
        if has("post") && category.reach != HookReach::Full {
            return Err(wrong("it has no output for `post`"));
        }
        if has("stack") && (has("pre") || has("post")) {
            return Err(wrong("`stack` takes the place of `pre` and `post`"));
        }
        let policies = sources("policies", SourceRole::Policy, MOST_POLICIES)?;
        let post = sources("post", SourceRole::Post, MOST_HOOKS)?;
        let (layers, executor) = match fields.get("stack") {
            Some(stack) => read_stack(category, stack, !policies.is_empty())?,
            None => {
                let pre = sources("pre", SourceRole::Pre, MOST_HOOKS)?;
                let layers = pre.into_iter().map(V8Layer::Hook);
                (layers.chain([V8Layer::Policies]).collect(), V8Executor::Real)
            }
        };
        Ok(V8Chain { category, any, policies, layers, executor, post })
    }

    /// Whether there is more than policies.
    pub fn has_hooks(&self) -> bool {
        let plain = |layer: &V8Layer| matches!(layer, V8Layer::Policies | V8Layer::Inject);
        let real = matches!(self.executor, V8Executor::Real);
        !real || !self.post.is_empty() || !self.layers.iter().all(plain)
    }

    /// Whether an answer may have to come from elsewhere.
    pub fn waits(&self) -> bool {
        self.has_hooks() || self.policies.iter().any(|one| matches!(one, V8Source::Remote { .. }))
    }

    /// `all` ends with the first that does not allow, `any` with the first that does; Rego that
    /// fails ends both. An empty list allows.
    pub fn judge(&self, outside: &dyn V8Outside, input: &Value) -> Result<(), Denial> {
        for policy in &self.policies {
            let allowed = policy.allows(outside, input).map_err(Denial::RegoFailed)?;
            if allowed == self.any {
                return if allowed { Ok(()) } else { Err(Denial::Denied) };
            }
        }
        if self.any && !self.policies.is_empty() { Err(Denial::Denied) } else { Ok(()) }
    }
}

fn read_stack(
    category: &Category,
    stack: &Value,
    has_policies: bool,
) -> Result<(Vec<V8Layer>, V8Executor), PolicyFault> {
    let wrong = |said: &str| fault(category.name, said);
    let entries = stack.as_array().filter(|list| (1..=MOST_HOOKS).contains(&list.len()));
    let said = format!("`stack` is a list of 1 to {MOST_HOOKS} layers");
    let entries = entries.ok_or_else(|| wrong(&said))?;
    let Some((last, above)) = entries.split_last() else { return Err(wrong(&said)) };
    let executor = match (last.as_str(), last.get("execute")) {
        (Some("@execute"), _) => V8Executor::Real,
        (_, Some(own)) if category.reach == HookReach::Full => {
            match V8Source::read(category, SourceRole::Layer, own)? {
                V8Source::Script(script) => V8Executor::Script(script),
                _ => return Err(wrong("`execute` is a script")),
            }
        }
        (_, Some(_)) => return Err(wrong("it has no output that `execute` could make")),
        _ => return Err(wrong("a stack ends with \"@execute\" or an `execute`")),
    };
    let mut layers = Vec::new();
    for entry in above {
        layers.push(match entry.as_str() {
            Some("@policy") => V8Layer::Policies,
            Some("@inject") => V8Layer::Inject,
            Some(other) => {
                let shown: String = other.chars().take(80).collect();
                let said = format!("{shown:?} is no layer above the last: @inject and @policy are");
                return Err(wrong(&said));
            }
            None => match V8Source::read(category, SourceRole::Layer, entry)? {
                V8Source::Script(script) => V8Layer::Script(script),
                other => V8Layer::Hook(other),
            },
        });
    }
    if has_policies && !layers.iter().any(|layer| matches!(layer, V8Layer::Policies)) {
        layers.push(V8Layer::Policies);
    }
    let mut scripts: Vec<&str> = Vec::new();
    for layer in &layers {
        if let V8Layer::Script(script) = layer {
            if scripts.contains(&script.text.as_str()) {
                return Err(wrong("a script is in a stack once"));
            }
            scripts.push(&script.text);
        }
    }
    Ok((layers, executor))
}
