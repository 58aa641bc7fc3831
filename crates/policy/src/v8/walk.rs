//! One operation on its way through the layers of its category.
//!
//! ```text
//!   input ─► hook ─► script: handle(input, next) ─► policies ─► execute (the caller does)
//!                        ▲  │ next(input)                            │
//!   output ◄─ post ◄─────┘◄─┴──────────────────── output ◄───────────┘
//! ```
//!
//! The walk is a value: it is given back where the caller has to execute the operation, and goes on
//! with its output. A script may call `next` again, so an operation may be executed again. Hooks
//! that fail, time out or answer something else than they may deny.

use super::category::{Category, HookReach};
use super::chain::{V8Chain, V8Executor, V8Layer};
use super::headers::{HeaderScope, marked};
use super::passes::Passes;
use super::source::{ScriptAnswer, ScriptStep, V8Outside, V8Script, V8Source};
use crate::decide::Denial;
use serde_json::{Value, json};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Layers, and calls of `next`, of one operation.
const MOST_STEPS: usize = 1000;
const LONGEST_REASON: usize = 500;

static CALLS: AtomicU64 = AtomicU64::new(1);

/// Why code does not get what it asked for, as it is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct V8Refused(pub String);

impl fmt::Display for V8Refused {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// The next step of the caller.
#[derive(Debug, Clone, PartialEq)]
pub enum V8Step {
    /// The caller executes the operation with this input. Its output is its own affair, if it is
    /// the last step; otherwise `V8Walk::executed` takes it.
    Execute { input: Value, last: bool },
    /// The output as the code gets it.
    Done(Value),
}

pub struct V8Walk {
    pub(super) chain: Arc<V8Chain>,
    pub(super) outside: Arc<dyn V8Outside>,
    pub(super) passes: Arc<Passes>,
    headers: Arc<[HeaderScope]>,
    pub(super) machine: String,
    asked: Value,
    frames: Vec<Frame>,
    /// The input that reached the end.
    effective: Option<Value>,
    /// A gate was passed twice.
    spoiled: bool,
    steps: usize,
}

/// A script that waits for its `next`.
struct Frame {
    at: usize,
    call: u64,
    script: Arc<V8Script>,
}

enum Turn {
    Down(usize, Value),
    Up(Value),
    Fail(String),
    Stop(V8Step),
}

impl V8Walk {
    pub(super) fn new(
        chain: Arc<V8Chain>,
        outside: Arc<dyn V8Outside>,
        (passes, headers): (Arc<Passes>, Arc<[HeaderScope]>),
        machine: &str,
        asked: Value,
    ) -> V8Walk {
        let machine = machine.to_owned();
        let (frames, effective, spoiled, steps) = (Vec::new(), None, false, 0);
        V8Walk {
            chain,
            outside,
            passes,
            headers,
            machine,
            asked,
            frames,
            effective,
            spoiled,
            steps,
        }
    }

    pub fn category(&self) -> &'static str {
        self.chain.category.name
    }

    /// The operation in words, for reports.
    pub fn about(&self) -> String {
        let text = |name: &str| self.asked[name].as_str().unwrap_or_default();
        let words = ["operation", "method", "url", "path", "command", "server", "tool"].map(text);
        let words: Vec<_> = words.into_iter().filter(|word| !word.is_empty()).collect();
        // a query may have more in it than a report is to show
        let shown = words.join(" ");
        shown.split_once('?').map_or(shown.clone(), |(shown, _)| shown.to_owned())
    }

    /// Goes to the operation, or to a refusal.
    pub fn begin(&mut self) -> Result<V8Step, V8Refused> {
        self.go(Turn::Down(0, self.asked.clone()))
    }

    /// Goes on with the output of the operation, or with the reason why it failed.
    pub fn executed(&mut self, output: Result<Value, String>) -> Result<V8Step, V8Refused> {
        self.go(output.map_or_else(Turn::Fail, Turn::Up))
    }

    fn go(&mut self, mut turn: Turn) -> Result<V8Step, V8Refused> {
        loop {
            self.steps += 1;
            if self.steps > MOST_STEPS {
                return Err(V8Refused(format!("its hooks take more than {MOST_STEPS} steps")));
            }
            turn = match turn {
                Turn::Stop(step) => return Ok(step),
                Turn::Down(at, input) => self.down(at, input).unwrap_or_else(Turn::Fail),
                Turn::Up(output) => self.up(output).unwrap_or_else(Turn::Fail),
                Turn::Fail(said) => match self.frames.last() {
                    Some(_) if self.spoiled => return Err(V8Refused(said)),
                    None => return Err(V8Refused(said)),
                    Some(_) => self.resume(Err(&said)).unwrap_or_else(Turn::Fail),
                },
            };
        }
    }

    fn down(&mut self, at: usize, input: Value) -> Result<Turn, String> {
        let input = self.chain.category.normal(&self.asked, input)?;
        let chain = self.chain.clone();
        Ok(match chain.layers.get(at) {
            None => return self.end(input),
            Some(V8Layer::Inject) => Turn::Down(at + 1, input),
            Some(V8Layer::Policies) => {
                let judged = match chain.category.name {
                    "fetch" => {
                        let seen = marked(&self.headers, input.clone());
                        chain.judge(self.outside.as_ref(), &seen)
                    }
                    _ => chain.judge(self.outside.as_ref(), &input),
                };
                judged.map_err(|denial| denied(chain.category, &input, &denial))?;
                Turn::Down(at + 1, input)
            }
            Some(V8Layer::Hook(hook)) => {
                let arguments = [input.clone()];
                let answer = self.hook("pre", hook, &input, &arguments)?;
                Turn::Down(at + 1, answer.unwrap_or(input))
            }
            Some(V8Layer::Script(script)) => {
                let call = CALLS.fetch_add(1, Ordering::Relaxed);
                self.frames.push(Frame { at, call, script: script.clone() });
                let step = ScriptStep::Enter { call, input: &input };
                let answer = self.outside.script(script, step);
                self.heard(answer)?
            }
        })
    }

    /// The end of the layers.
    fn end(&mut self, input: Value) -> Result<Turn, String> {
        let before = self.effective.replace(input.clone());
        if self.chain.category.reach != HookReach::Full {
            return match before {
                Some(_) => {
                    self.spoiled = true;
                    Err("a hook calls `next` twice, and the operation has no output".into())
                }
                None => Ok(Turn::Up(Value::Null)),
            };
        }
        match &self.chain.executor {
            V8Executor::Script(script) => {
                let arguments = [input];
                let answer = self.outside.script(script, ScriptStep::Call(&arguments));
                match answer.map_err(|said| failed(&script.name, &said))? {
                    ScriptAnswer::Returned(Some(output)) if output.is_object() => {
                        Ok(Turn::Up(output))
                    }
                    _ => Err(failed(&script.name, "it returned no object")),
                }
            }
            V8Executor::Real => {
                let chain = &self.chain;
                if chain.category.name == "fetch" && chain.has_hooks() {
                    self.passes.put(&self.machine, &input);
                }
                let last = self.frames.is_empty() && chain.post.is_empty();
                Ok(Turn::Stop(V8Step::Execute { input, last }))
            }
        }
    }

    fn up(&mut self, output: Value) -> Result<Turn, String> {
        if !self.frames.is_empty() {
            return self.resume(Ok(&output));
        }
        let Some(effective) = self.effective.clone() else {
            return match self.chain.category.reach {
                HookReach::Full => Ok(Turn::Stop(V8Step::Done(output))),
                _ => Err("a hook does not call `next`, and the operation has no output".into()),
            };
        };
        if self.chain.category.reach != HookReach::Full {
            return Ok(Turn::Stop(V8Step::Execute { input: effective, last: true }));
        }
        let chain = self.chain.clone();
        let mut output = output;
        for hook in &chain.post {
            let both = json!({ "input": effective, "output": output });
            let arguments = [effective.clone(), output.clone()];
            if let Some(other) = self.hook("post", hook, &both, &arguments)? {
                output = other;
            }
        }
        Ok(Turn::Stop(V8Step::Done(output)))
    }

    /// Answers the innermost `next`.
    fn resume(&mut self, next: Result<&Value, &str>) -> Result<Turn, String> {
        let Some(Frame { call, script, .. }) = self.frames.last() else {
            return Err("no hook waits".into());
        };
        let answer = self.outside.script(script, ScriptStep::Resume { call: *call, next });
        self.heard(answer)
    }

    /// Takes the answer of the innermost script.
    fn heard(&mut self, answer: Result<ScriptAnswer, String>) -> Result<Turn, String> {
        let Some(frame) = self.frames.last() else { return Err("no hook waits".into()) };
        if let Ok(ScriptAnswer::Next(input)) = answer {
            return Ok(Turn::Down(frame.at + 1, input));
        }
        let name = frame.script.name.clone();
        self.frames.pop();
        let value = match answer {
            Ok(ScriptAnswer::Returned(value)) => value,
            Ok(ScriptAnswer::Next(_)) => None,
            Err(said) => return Err(failed(&name, &said)),
        };
        match (self.chain.category.reach, value) {
            (HookReach::Full, Some(value)) => Ok(Turn::Up(value)),
            (HookReach::Full, None) => Err(failed(&name, "it returned nothing")),
            (_, None) => Ok(Turn::Up(Value::Null)),
            (_, Some(_)) => Err(failed(&name, "it returned an output, and there is none")),
        }
    }

    /// The object that a hook puts in place of its own, if it does.
    fn hook(
        &self,
        stage: &str,
        hook: &V8Source,
        input: &Value,
        arguments: &[Value],
    ) -> Result<Option<Value>, String> {
        let name = self.chain.category.name;
        let answer = hook.answer(self.outside.as_ref(), input, arguments);
        let answer = answer.map_err(|said| {
            let said = cut(&said);
            format!("{name} denied by {stage} hook (it failed: {said})")
        })?;
        let odd = || format!("{name} denied by {stage} hook (it answers something else)");
        let fields = match answer {
            None | Some(Value::Bool(true)) => return Ok(None),
            Some(Value::Bool(false)) => return Err(format!("{name} denied by {stage} hook")),
            Some(Value::Object(fields)) => fields,
            Some(_) => return Err(odd()),
        };
        match fields.get("allow") {
            None | Some(Value::Bool(true)) => {}
            Some(Value::Bool(false)) => {
                let reason = fields.get("reason").and_then(Value::as_str).map(cut);
                let reason = reason.map(|said| format!(" ({said})")).unwrap_or_default();
                return Err(format!("{name} denied by {stage} hook{reason}"));
            }
            Some(_) => return Err(odd()),
        }
        let replaced = if stage == "pre" { "input" } else { "output" };
        match fields.get(replaced) {
            None | Some(Value::Null) => Ok(None),
            Some(value @ Value::Object(_)) => Ok(Some(value.clone())),
            Some(_) => Err(odd()),
        }
    }
}

fn cut(said: &str) -> String {
    said.chars().filter(|c| !c.is_control()).take(LONGEST_REASON).collect()
}

fn failed(name: &str, said: &str) -> String {
    format!("hook {name}: {}", cut(said))
}

/// The message to code when policies deny.
pub(super) fn denied(category: &Category, input: &Value, denial: &Denial) -> String {
    match denial {
        Denial::Denied => category.denial(input),
        other => format!("{} ({other})", category.denial(input)),
    }
}
