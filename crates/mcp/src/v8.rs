//! How this server offers mcp-v8's tools and texts (`stasis_mcpv8`): turns, waiting, giving up, and
//! results in the form of mcp-v8's server.

use crate::answer::failure;
use crate::call::CallContext;
use crate::error::Result;
use crate::table::{ToolEntry, ToolReply};
use axum::http::request::Parts;
use rmcp::ErrorData;
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Resource, ResourceContents, Tool};
use stasis_mcpv8::{
    ArtifactPayload, RESOURCES, V8Answer, V8Call, V8Mode, V8Result, V8Settings, V8Tool,
};
use std::sync::{Arc, LazyLock};

pub static STATELESS: LazyLock<Vec<ToolEntry>> = LazyLock::new(|| entries(V8Mode::Stateless));
pub static HEAPS: LazyLock<Vec<ToolEntry>> = LazyLock::new(|| entries(V8Mode::Heap));
pub static FILES: LazyLock<Vec<ToolEntry>> = LazyLock::new(|| entries(V8Mode::Files));
pub static HEAPS_AND_FILES: LazyLock<Vec<ToolEntry>> =
    LazyLock::new(|| entries(V8Mode::HeapAndFiles));

fn entries(mode: V8Mode) -> Vec<ToolEntry> {
    let all = stasis_mcpv8::tools().into_iter().filter(|tool| tool.is_callable(mode));
    all.map(|tool| entry(Arc::new(tool), mode)).collect()
}

/// Whether a client sees a tool that it can call.
pub fn is_shown(name: &str, mode: V8Mode) -> bool {
    stasis_mcpv8::tools().iter().any(|tool| tool.name == name && tool.is_shown(mode))
}

fn entry(tool: Arc<V8Tool>, mode: V8Mode) -> ToolEntry {
    let shown = Tool::new(tool.name, tool.about, tool.schema(mode));
    ToolEntry::free(shown, move |call: CallContext, arguments: JsonObject| {
        let tool = tool.clone();
        async move { run(tool, mode, call, arguments).await }
    })
}

async fn run(
    tool: Arc<V8Tool>,
    mode: V8Mode,
    call: CallContext,
    arguments: JsonObject,
) -> ToolReply {
    let settings = settings(&call, mode);
    let own = V8Call { v8: call.v8.clone(), account: call.account.clone(), settings };
    let asked = own.clone();
    let answer = match call.block(move |_| Ok(tool.call(&asked, arguments))).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(words)) => return Err(ErrorData::invalid_params(words, None)),
        Err(error) => return Ok(failure(&error).into()),
    };
    let result = match answer {
        V8Answer::Over(result) => Ok(result),
        V8Answer::Wait(id) => ended(&call, own, id).await,
    };
    Ok(result.map_or_else(|error| failure(&error), rendered).into())
}

/// The result of an execution, when it is over: soon, if the caller gives up.
async fn ended(call: &CallContext, own: V8Call, id: String) -> Result<V8Result> {
    if let Some(open) = own.v8.open_execution(&own.account, &id) {
        let gave_up = tokio::select! {
            () = open.over() => false,
            () = call.context.ct.cancelled() => true,
        };
        if gave_up {
            let (v8, account, id) = (own.v8.clone(), own.account.clone(), id.clone());
            // one that is over meanwhile cannot be cancelled
            let _ = call.block(move |_| Ok(v8.cancel(&account, &id))).await?;
            open.over().await;
        }
    }
    call.block(move |_| Ok(stasis_mcpv8::finished(&own, &id))).await
}

/// Settings from when the connection was opened, and those of the request. A client that names no
/// session has that of its connection.
fn settings(call: &CallContext, mode: V8Mode) -> V8Settings {
    let parts = call.context.extensions.get::<Parts>();
    let now = parts.map(|parts| V8Settings::of(&parts.headers)).unwrap_or_default();
    let opened = call.opened.clone().unwrap_or_default();
    let connection = parts.and_then(|parts| parts.headers.get("mcp-session-id"));
    let connection = connection.and_then(|id| id.to_str().ok()).map(str::to_owned);
    V8Settings {
        session: opened.session.or(now.session).or(connection),
        seconds: now.seconds.or(opened.seconds),
        memory_mb: now.memory_mb.or(opened.memory_mb),
        mode,
    }
}

fn rendered(result: V8Result) -> CallToolResult {
    let mut content = vec![ContentBlock::text(result.text.to_string())];
    content.extend(result.blocks.into_iter().map(|(mime, payload)| match payload {
        ArtifactPayload::Image { base64 } => ContentBlock::image(base64, mime),
        ArtifactPayload::Audio { base64 } => ContentBlock::audio(base64, mime),
        ArtifactPayload::Text(text) | ArtifactPayload::Base64(text) => ContentBlock::text(text),
    }));
    match result.is_failed {
        true => CallToolResult::error(content),
        false => CallToolResult::success(content),
    }
}

pub fn resources() -> Vec<Resource> {
    let one =
        |own: stasis_mcpv8::V8Resource| Resource::new(own.uri, own.name).with_mime_type(own.mime);
    RESOURCES.map(one).to_vec()
}

pub fn read(uri: &str, mode: V8Mode) -> std::result::Result<ResourceContents, ErrorData> {
    let missing = || {
        let shown = crate::text::first_line(uri, 200);
        ErrorData::resource_not_found(format!("Unknown resource URI: {shown}"), None)
    };
    let (mime, text) = stasis_mcpv8::read_resource(uri, mode).ok_or_else(missing)?;
    Ok(ResourceContents::text(text, uri).with_mime_type(mime))
}
