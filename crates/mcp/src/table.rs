//! A table of tools: what each is called, takes and gives, and what it does.

use crate::answer::{Answer, failure};
use crate::call::Call;
use crate::error::{Error, Result};
use rmcp::model::{CallToolResult, JsonObject, Tool, ToolAnnotations};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::future::Future;
use std::pin::Pin;

type Work = Pin<Box<dyn Future<Output = CallToolResult> + Send>>;
type Run = Box<dyn Fn(Call, JsonObject) -> Work + Send + Sync>;

pub struct Entry {
    pub tool: Tool,
    pub run: Run,
}

/// What a client may expect of a tool before it asks its user.
#[derive(Clone, Copy)]
pub enum Effect {
    /// Changes nothing.
    Reads,
    /// Adds something; nothing there before is lost.
    Adds,
    /// Changes what can be set again; twice is the same as once.
    Sets,
    /// May take away what was there.
    Destroys,
}

impl Effect {
    fn annotations(self, title: &str, open_world: bool) -> ToolAnnotations {
        let (reads, destroys, idempotent) = match self {
            Effect::Reads => (true, false, true),
            Effect::Adds => (false, false, false),
            Effect::Sets => (false, false, true),
            Effect::Destroys => (false, true, false),
        };
        let hints = ToolAnnotations::with_title(title).read_only(reads).destructive(destroys);
        hints.idempotent(idempotent).open_world(open_world)
    }
}

/// How a tool is shown.
pub struct Face {
    pub name: &'static str,
    pub title: &'static str,
    pub about: &'static str,
    pub effect: Effect,
}

impl Face {
    fn tool<I: JsonSchema + 'static, O: JsonSchema + 'static>(&self, open_world: bool) -> Tool {
        let tool = Tool::new(self.name, self.about, JsonObject::new())
            .with_title(self.title)
            .with_annotations(self.effect.annotations(self.title, open_world));
        tool.with_input_schema::<I>().with_output_schema::<O>()
    }

    /// A tool that runs code and follows it.
    pub fn runs<I, O, F>(self, run: fn(Call, I) -> F) -> Entry
    where
        I: DeserializeOwned + JsonSchema + Send + 'static,
        O: Serialize + JsonSchema + Send + 'static,
        F: Future<Output = Result<Answer<O>>> + Send + 'static,
    {
        let tool = self.tool::<I, O>(true);
        let run = move |call: Call, arguments: JsonObject| -> Work {
            Box::pin(async move {
                let answer = match parse::<I>(arguments) {
                    Ok(input) => run(call, input).await,
                    Err(error) => Err(error),
                };
                answer.map_or_else(|error| failure(&error), Answer::into_result)
            })
        };
        Entry { tool, run: Box::new(run) }
    }

    /// A tool that does something with the host, which may block.
    pub fn does<I, O>(self, work: fn(&Call, I) -> Result<Answer<O>>) -> Entry
    where
        I: DeserializeOwned + JsonSchema + Send + 'static,
        O: Serialize + JsonSchema + Send + 'static,
    {
        let tool = self.tool::<I, O>(false);
        let run = move |call: Call, arguments: JsonObject| -> Work {
            Box::pin(async move {
                let job = move |call: &Call| {
                    let input = parse::<I>(arguments)?;
                    Ok(work(call, input)?.into_result())
                };
                call.block(job).await.unwrap_or_else(|error| failure(&error))
            })
        };
        Entry { tool, run: Box::new(run) }
    }
}

fn parse<I: DeserializeOwned>(arguments: JsonObject) -> Result<I> {
    let parsed = serde_json::from_value(serde_json::Value::Object(arguments));
    parsed.map_err(|error| Error::Invalid(format!("Invalid arguments: {error}")))
}
