//! The source of a policy or a hook: Rego, a remote server, or a script.
//!
//! This crate does no I/O. The caller's `V8Outside` asks servers and runs scripts, and bounds both.
//! A source that fails allows nothing.

use super::category::Category;
use super::fault;
use crate::document::PolicyFault;
use crate::rego;
use regorus::{Engine, Value as RegoValue};
use serde_json::{Value, json};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

const MOST_MODULES: usize = 64;
const LONGEST_URL: usize = 2048;
const LONGEST_RULE: usize = 256;
/// How long a server may take, and a hook unless it says otherwise.
const TIMEOUT: Duration = Duration::from_secs(5);
const LAYER_TIMEOUT: Duration = Duration::from_secs(30);
const LONGEST_TIMEOUT: u64 = 300_000;
/// The longest input of Rego in a hook: outputs are larger than requests.
const LONGEST_HOOK_INPUT: usize = 1 << 20;

/// Servers and scripts.
pub trait V8Outside: Send + Sync {
    /// Sends JSON to a server by POST. The answer is JSON again, of a bounded size.
    fn post(&self, url: &str, body: &Value, timeout: Duration) -> Result<Value, String>;
    /// Runs a function of a script, isolated, until it returns or calls `next`.
    fn script(&self, script: &V8Script, step: ScriptStep<'_>) -> Result<ScriptAnswer, String>;
}

/// A script with a hook in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct V8Script {
    pub name: String,
    pub text: String,
    /// The function that is called.
    pub function: String,
    pub timeout: Duration,
    pub may_fetch: bool,
    pub has_files: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ScriptStep<'a> {
    /// The function is called with these arguments.
    Call(&'a [Value]),
    /// It is called with an input, and with `next`.
    Enter { call: u64, input: &'a Value },
    /// `next` of that call returns or throws this.
    Resume { call: u64, next: Result<&'a Value, &'a str> },
}

#[derive(Debug, Clone, PartialEq)]
pub enum ScriptAnswer {
    /// Nothing, if it returned nothing or null.
    Returned(Option<Value>),
    /// It called `next` with this input.
    Next(Value),
}

/// The place of a source in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SourceRole {
    Policy,
    Pre,
    Post,
    Layer,
}

impl SourceRole {
    /// The end of its rule, and of its path at a server.
    fn suffix(self) -> &'static str {
        match self {
            SourceRole::Policy => "allow",
            // Rego and servers in a stack are asked as before it
            SourceRole::Pre | SourceRole::Layer => "pre",
            SourceRole::Post => "post",
        }
    }

    fn function(self) -> &'static str {
        match self {
            SourceRole::Layer => "handle",
            other => other.suffix(),
        }
    }
}

#[derive(Clone)]
pub(super) enum V8Source {
    Rego { engine: Arc<Engine>, rule: String },
    Remote { url: String },
    Script(Arc<V8Script>),
}

impl fmt::Debug for V8Source {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            V8Source::Rego { rule, .. } => write!(out, "Rego {rule}"),
            V8Source::Remote { url } => write!(out, "server {url}"),
            V8Source::Script(script) => write!(out, "script {}", script.name),
        }
    }
}

impl V8Source {
    pub fn read(
        category: &Category,
        role: SourceRole,
        config: &Value,
    ) -> Result<V8Source, PolicyFault> {
        let wrong = |said: &str| fault(category.name, said);
        let text = |name: &str| match config.get(name) {
            None => Ok(None),
            Some(Value::String(text)) if text.len() <= LONGEST_RULE => Ok(Some(text.as_str())),
            Some(_) => Err(wrong(&format!("`{name}` is a text of at most {LONGEST_RULE} bytes"))),
        };
        if let Some(script) = config.get("script") {
            if role == SourceRole::Policy {
                return Err(wrong("a policy is Rego or a server; scripts are hooks"));
            }
            let function = text("rule")?.unwrap_or(role.function()).to_owned();
            let script = script.as_str().ok_or_else(|| wrong("`script` is its text"))?;
            return read_script(category, role, config, (script, function));
        }
        if let Some(url) = config.get("remote") {
            let url = url.as_str().filter(|url| url.len() <= LONGEST_URL);
            let url = url.and_then(|url| url::Url::parse(url).ok());
            let url = url.filter(|url| matches!(url.scheme(), "http" | "https"));
            let url = url.ok_or_else(|| wrong("`url` of a server is http:// or https://"))?;
            let usual = match role {
                SourceRole::Policy => category.path.to_owned(),
                other => format!("{}/{}", category.path, other.suffix()),
            };
            let path = text("policy_path")?.unwrap_or(&usual).trim_matches('/');
            let base = url.as_str().trim_end_matches('/');
            return Ok(V8Source::Remote { url: format!("{base}/v1/data/{path}") });
        }
        let usual = format!("{}.{}", category.package, role.suffix());
        let rule = text("rule")?.unwrap_or(&usual).to_owned();
        read_rego(category, config, rule)
    }

    /// Whether a policy allows an input. A server that fails does not; Rego that fails is an error.
    pub fn allows(&self, outside: &dyn V8Outside, input: &Value) -> Result<bool, String> {
        match self {
            V8Source::Rego { engine, rule } => {
                let values = rego::evaluate(engine, vec![rule.clone()], input);
                let values = values.map_err(|failure| failure.0)?;
                Ok(values == [RegoValue::from(true)])
            }
            V8Source::Remote { url } => {
                let answer = outside.post(url, &json!({ "input": input }), TIMEOUT);
                Ok(answer.is_ok_and(|answer| answer["result"]["allow"] == Value::Bool(true)))
            }
            V8Source::Script(_) => Ok(false),
        }
    }

    /// The answer of a hook; nothing, if it abstains.
    pub fn answer(
        &self,
        outside: &dyn V8Outside,
        input: &Value,
        arguments: &[Value],
    ) -> Result<Option<Value>, String> {
        let found = match self {
            V8Source::Rego { engine, rule } => {
                let bound = LONGEST_HOOK_INPUT;
                let values = rego::evaluate_within(engine, vec![rule.clone()], input, bound);
                let values = values.map_err(|failure| failure.0)?;
                match values.first() {
                    None | Some(RegoValue::Undefined) => None,
                    Some(value) => {
                        let text = value.to_json_str().map_err(|error| error.to_string())?;
                        Some(serde_json::from_str(&text).map_err(|error| error.to_string())?)
                    }
                }
            }
            V8Source::Remote { url } => {
                let mut answer = outside.post(url, &json!({ "input": input }), TIMEOUT)?;
                answer.get_mut("result").map(Value::take)
            }
            V8Source::Script(script) => {
                match outside.script(script, ScriptStep::Call(arguments))? {
                    ScriptAnswer::Returned(value) => value,
                    ScriptAnswer::Next(_) => return Err("it has no `next` here".into()),
                }
            }
        };
        Ok(found.filter(|value| !value.is_null()))
    }
}

fn read_script(
    category: &Category,
    role: SourceRole,
    config: &Value,
    (text, function): (&str, String),
) -> Result<V8Source, PolicyFault> {
    let wrong = |said: &str| fault(category.name, said);
    if text.len() > rego::LONGEST {
        return Err(wrong(&format!("a script has at most {} bytes", rego::LONGEST)));
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '$';
    if function.is_empty() || !function.chars().all(plain) {
        return Err(wrong("`rule` of a script is the name of a function"));
    }
    let timeout = match config.get("timeout_ms") {
        None if role == SourceRole::Layer => LAYER_TIMEOUT,
        None => TIMEOUT,
        Some(value) => {
            let given = value.as_u64().filter(|ms| (1..=LONGEST_TIMEOUT).contains(ms));
            let said = format!("`timeout_ms` is between 1 and {LONGEST_TIMEOUT}");
            Duration::from_millis(given.ok_or_else(|| wrong(&said))?)
        }
    };
    let (mut may_fetch, mut has_files) = (false, false);
    let listed = config.get("capabilities").map(|list| list.as_array().cloned());
    for capability in listed.unwrap_or(Some(Vec::new())).unwrap_or(vec![Value::Null]) {
        match capability.as_str() {
            Some("fetch") => may_fetch = true,
            Some("fs") => has_files = true,
            _ => return Err(wrong("`capabilities` is a list of \"fs\" and \"fetch\"")),
        }
    }
    let name = config.get("name").and_then(Value::as_str).unwrap_or("hook.js").to_owned();
    let text = text.to_owned();
    let script = V8Script { name, text, function, timeout, may_fetch, has_files };
    Ok(V8Source::Script(Arc::new(script)))
}

fn read_rego(category: &Category, config: &Value, rule: String) -> Result<V8Source, PolicyFault> {
    let wrong = |said: &str| fault(category.name, said);
    let modules = config.get("modules").and_then(|list| list.as_array());
    let modules = modules.ok_or_else(|| wrong("a policy has no modules"))?;
    let module = |module: &Value| {
        let field = |name: &str| module.get(name)?.as_str().map(str::to_owned);
        Some((field("name")?, field("text")?))
    };
    let modules: Option<Vec<(String, String)>> = modules.iter().map(module).collect();
    let modules = modules.ok_or_else(|| wrong("a module has a name and a text"))?;
    if modules.is_empty() || modules.len() > MOST_MODULES {
        return Err(wrong(&format!("a policy has 1 to {MOST_MODULES} modules")));
    }
    let texts: Vec<_> = modules.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let engine = rego::compiled(&texts).map_err(|failure| wrong(&failure.0))?;
    if !rego::has_rule(&engine, &rule) {
        return Err(wrong(&format!("its modules have no rule `{rule}`")));
    }
    Ok(V8Source::Rego { engine: Arc::new(engine), rule })
}
