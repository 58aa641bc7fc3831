//! Offers forkd's tools (`stasis_forkd::tools`): fair queue, cancellation, and results in the form
//! of forkd's server.

use crate::answer::failure;
use crate::call::CallContext;
use crate::error::Result;
use crate::table::{Effect, ToolDescription, ToolEntry, parse};
use crate::text::{MAX_TEXT, cut};
use rmcp::model::{CallToolResult, ContentBlock, JsonObject};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use stasis_api::Instruction;
use stasis_forkd::{
    Forkd, ForkdCaller, Look, Started, ToolEffect, ToolLook, ToolTable, ToolText, ToolWork,
};
use std::sync::{Arc, LazyLock};
use std::time::Instant;

pub static TOOLS: LazyLock<Vec<ToolEntry>> = LazyLock::new(|| {
    let mut all = Entries(Vec::new());
    stasis_forkd::tools(&mut all);
    all.0
});

struct Entries(Vec<ToolEntry>);

impl ToolTable for Entries {
    fn does<I, O>(&mut self, text: ToolText, work: ToolWork<I, O>)
    where
        I: DeserializeOwned + JsonSchema + Send + 'static,
        O: Serialize + JsonSchema + Send + 'static,
    {
        let run = move |call: CallContext, arguments: JsonObject| async move {
            let job =
                move |call: &CallContext| Ok(work(&call.forkd, &caller(call), parse(arguments)?)?);
            Ok(said(call.block(job).await).into())
        };
        self.0.push(ToolEntry::free(face(text).tool::<I, O>(false), run));
    }

    fn runs<I, O>(
        &mut self,
        text: ToolText,
        start: ToolWork<I, Started>,
        end: fn(&Forkd, Instruction) -> stasis_forkd::Result<O>,
    ) where
        I: DeserializeOwned + JsonSchema + Send + 'static,
        O: Serialize + JsonSchema + Send + 'static,
    {
        let run = move |call: CallContext, arguments: JsonObject| async move {
            let begin =
                move |call: &CallContext| Ok(start(&call.forkd, &caller(call), parse(arguments)?)?);
            let ended = call.run_to_end(begin).await;
            Ok(said(ended.and_then(|ended| Ok(end(&call.forkd, ended)?))).into())
        };
        self.0.push(ToolEntry::free(face(text).tool::<I, O>(true), run));
    }

    fn looks<I, O>(&mut self, text: ToolText, look: ToolLook<I, O>)
    where
        I: DeserializeOwned + JsonSchema + Send + Sync + 'static,
        O: Serialize + JsonSchema + Send + 'static,
    {
        let run = move |call: CallContext, arguments: JsonObject| async move {
            Ok(said(look_again(&call, arguments, look).await).into())
        };
        self.0.push(ToolEntry::free(face(text).tool::<I, O>(false), run));
    }
}

async fn look_again<I, O>(
    call: &CallContext,
    arguments: JsonObject,
    look: ToolLook<I, O>,
) -> Result<O>
where
    I: DeserializeOwned + Send + Sync + 'static,
    O: Send + 'static,
{
    let (input, since) = (Arc::new(parse::<I>(arguments)?), Instant::now());
    loop {
        let input = input.clone();
        let job = move |call: &CallContext| Ok(look(&call.forkd, &caller(call), &input, since)?);
        match call.block(job).await? {
            Look::Over(answer) => return Ok(answer),
            Look::Again(answer, _) if call.context.ct.is_cancelled() => return Ok(answer),
            Look::Again(_, pause) => tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = call.context.ct.cancelled() => {}
            },
        }
    }
}

fn caller(call: &CallContext) -> ForkdCaller {
    ForkdCaller { account: call.account.clone(), may_build: call.may_build }
}

fn face(text: ToolText) -> ToolDescription {
    let effect = match text.effect {
        ToolEffect::Reads => Effect::Reads,
        ToolEffect::Adds => Effect::Adds,
        ToolEffect::Sets => Effect::Sets,
        ToolEffect::Destroys => Effect::Destroys,
    };
    ToolDescription { name: text.name, title: text.title, about: text.about, effect }
}

/// A result in the form of forkd's server: JSON as text, one text per list item.
fn said<T: Serialize>(done: Result<T>) -> CallToolResult {
    let data = match done {
        Ok(data) => serde_json::to_value(data).unwrap_or_default(),
        Err(error) => return failure(&error),
    };
    let text = |value: &Value| {
        let text = serde_json::to_string_pretty(value).unwrap_or_default();
        ContentBlock::text(cut(&text, MAX_TEXT, "the structured result"))
    };
    let content = match data["result"].as_array() {
        Some(list) => list.iter().map(text).collect(),
        None => vec![text(&data)],
    };
    let mut result = CallToolResult::success(content);
    result.structured_content = Some(data);
    result
}
