//! Confirmation by the user before something is destroyed, where the client supports it.
//!
//! Clients of revision 2026-07-28 get the question as an answer and call again with the reply;
//! earlier ones are asked while their call waits. If a client cannot ask, the call proceeds: the
//! tool is marked as destructive, and confirmation is the client's responsibility.

use crate::call::CallContext;
use crate::table::ToolReply;
use rmcp::ErrorData;
use rmcp::model::*;
use serde_json::json;
use std::time::Duration;

/// The key of the reply.
const KEY: &str = "confirm";
/// Maximum time for the user to reply.
pub const THOUGHT: Duration = Duration::from_secs(600);

/// The answer instead of the action; none, if the action may proceed.
pub async fn ask(
    call: &CallContext,
    question: String,
) -> std::result::Result<Option<ToolReply>, ErrorData> {
    if !can_ask(call) {
        return Ok(None);
    }
    let request = form(question)?;
    let said = match call.inputs.get(KEY) {
        Some(said) => serde_json::from_value::<ElicitResult>(said.clone()).ok(),
        None if call.is_stateless() => {
            let request = InputRequest::Elicitation(ElicitRequest::new(request));
            let requests = InputRequests::from([(KEY.to_owned(), request)]);
            return Ok(Some(Ok(InputRequiredResult::from_input_requests(requests).into())));
        }
        None => wait(call, request).await,
    };
    let refusal = || {
        let text = "The user did not agree: nothing was done.";
        CallToolResult::error(vec![ContentBlock::text(text)]).into()
    };
    Ok((!said.is_some_and(|said| is_yes(&said))).then(|| Ok(refusal())))
}

pub fn can_ask(call: &CallContext) -> bool {
    let can = call.context.client_capabilities().and_then(|can| can.elicitation);
    can.is_some_and(|modes| modes.form.is_some() || modes.url.is_none())
}

fn form(message: String) -> std::result::Result<ElicitRequestParams, ErrorData> {
    let schema = json!({
        "type": "object",
        "properties": { KEY: { "type": "boolean", "title": "Yes", "default": true } },
    });
    let schema = serde_json::from_value(schema);
    let requested_schema =
        schema.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    Ok(ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema })
}

async fn wait(call: &CallContext, request: ElicitRequestParams) -> Option<ElicitResult> {
    let asked = call.context.peer.create_elicitation_with_timeout(request, Some(THOUGHT));
    tokio::select! {
        said = asked => said.ok(),
        () = call.context.ct.cancelled() => None,
    }
}

/// An accepted form means yes, unless its box was cleared.
fn is_yes(said: &ElicitResult) -> bool {
    let cleared = said.content.as_ref().is_some_and(|content| content[KEY] == false);
    said.action == ElicitationAction::Accept && !cleared
}
