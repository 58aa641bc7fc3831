//! A table of tools: name, arguments, results and action of each.

use crate::answer::{Answer, failure};
use crate::call::{CallContext, InstructionRequest};
use crate::error::{Error, Result};
use crate::output::RunOutput;
use rmcp::ErrorData;
use rmcp::model::{CallToolResponse, CallToolResult, JsonObject, Tool, ToolAnnotations};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::future::Future;
use std::pin::Pin;

/// The protocol's result of a call.
pub type ToolReply = std::result::Result<CallToolResponse, ErrorData>;
type Work = Pin<Box<dyn Future<Output = ToolReply> + Send>>;
type Run = Box<dyn Fn(CallContext, JsonObject) -> Work + Send + Sync>;
/// Converts the end of an instruction to the tool's result.
pub type Finish =
    Box<dyn Fn(Answer<RunOutput>) -> std::result::Result<CallToolResult, ErrorData> + Send + Sync>;

pub struct ToolEntry {
    pub tool: Tool,
    pub run: Run,
    /// For tools whose calls are instructions, which may continue as tasks.
    pub finish: Option<Finish>,
    /// The question to the user before the action, if the client can ask.
    pub question: Option<fn(&JsonObject) -> String>,
}

/// A tool's effect, shown to clients before they ask their user.
#[derive(Clone, Copy)]
pub enum Effect {
    /// Changes nothing.
    Reads,
    /// Adds something; existing data is kept.
    Adds,
    /// Changes settings; idempotent.
    Sets,
    /// May remove existing data.
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

/// The listing of a tool.
pub struct ToolDescription {
    pub name: &'static str,
    pub title: &'static str,
    pub about: &'static str,
    pub effect: Effect,
}

impl ToolDescription {
    pub fn tool<I: JsonSchema + 'static, O: JsonSchema + 'static>(&self, open_world: bool) -> Tool {
        let tool = Tool::new(self.name, self.about, JsonObject::new())
            .with_title(self.title)
            .with_annotations(self.effect.annotations(self.title, open_world));
        tool.with_input_schema::<I>().with_output_schema::<O>()
    }

    /// A tool that runs code: the code, and the meaning of its end.
    pub fn runs<I, O>(
        self,
        wanted: fn(I) -> Result<InstructionRequest>,
        finish: fn(Answer<RunOutput>) -> Answer<O>,
    ) -> ToolEntry
    where
        I: DeserializeOwned + JsonSchema + Send + 'static,
        O: Serialize + JsonSchema + Send + 'static,
    {
        let tool = self.tool::<I, O>(true);
        let name = self.name;
        let run = move |call: CallContext, arguments: JsonObject| -> Work {
            Box::pin(async move {
                let wanted = parse::<I>(arguments).and_then(wanted);
                match wanted {
                    Ok(wanted) => call.start(name, wanted).await,
                    Err(error) => Ok(failure(&error).into()),
                }
            })
        };
        let finish = move |ran| Ok(finish(ran).into_result());
        let (run, finish) = (Box::new(run), Some::<Finish>(Box::new(finish)));
        ToolEntry { tool, run, finish, question: None }
    }

    /// A tool that acts on the host, which may block.
    pub fn does<I, O>(self, work: fn(&CallContext, I) -> Result<Answer<O>>) -> ToolEntry
    where
        I: DeserializeOwned + JsonSchema + Send + 'static,
        O: Serialize + JsonSchema + Send + 'static,
    {
        let tool = self.tool::<I, O>(false);
        let run = move |call: CallContext, arguments: JsonObject| -> Work {
            Box::pin(async move {
                let job = move |call: &CallContext| {
                    let input = parse::<I>(arguments)?;
                    Ok(work(call, input)?.into_result())
                };
                Ok(call.block(job).await.unwrap_or_else(|error| failure(&error)).into())
            })
        };
        ToolEntry { tool, run: Box::new(run), finish: None, question: None }
    }
}

impl ToolEntry {
    /// A tool with a handler of its own.
    pub fn free<F>(
        tool: Tool,
        run: impl Fn(CallContext, JsonObject) -> F + Send + Sync + 'static,
    ) -> ToolEntry
    where
        F: Future<Output = ToolReply> + Send + 'static,
    {
        let run = move |call: CallContext, arguments: JsonObject| -> Work {
            Box::pin(run(call, arguments))
        };
        ToolEntry { tool, run: Box::new(run), finish: None, question: None }
    }

    /// The tool without its output schema, which few clients read and every agent pays for, and
    /// without the schema's dialect, which is the protocol's default.
    pub fn short(&self) -> Tool {
        let mut tool = self.tool.clone();
        tool.output_schema = None;
        let mut schema = (*tool.input_schema).clone();
        schema.remove("$schema");
        tool.input_schema = std::sync::Arc::new(schema);
        tool
    }

    /// The same tool, run only after the user's confirmation where the client can ask.
    pub fn asks(self, question: fn(&JsonObject) -> String) -> ToolEntry {
        ToolEntry { question: Some(question), ..self }
    }
}

pub fn parse<I: DeserializeOwned>(arguments: JsonObject) -> Result<I> {
    let parsed = serde_json::from_value(serde_json::Value::Object(arguments));
    parsed.map_err(|error| Error::Invalid(format!("Invalid arguments: {error}")))
}
