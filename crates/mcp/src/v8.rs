//! Offers mcp-v8's tools and texts (`stasis_mcpv8`): fair queue, waiting, cancellation, and results
//! in the form of mcp-v8's server.

use crate::answer::failure;
use crate::call::CallContext;
use crate::error::Result;
use crate::server::Server;
use crate::table::{ToolEntry, ToolReply};
use crate::v8_tasks;
use axum::http::request::Parts;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rmcp::ErrorData;
use rmcp::model::{
    CallToolResult, ContentBlock, CustomRequest, JsonObject, Resource, ResourceContents,
    ServerCapabilities, Tool,
};
use serde_json::{Value, json};
use stasis_mcpv8::{
    ArtifactPayload, RESOURCES, SkillFile, V8Answer, V8Call, V8Mode, V8Result, V8Settings, V8Setup,
    V8Skill, V8Stub, V8Tool,
};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// The tool whose calls can be tasks.
pub const RUN_JS: &str = "run_js";
/// Time before a call continues as a task.
const PATIENCE: Duration = Duration::from_secs(1);
const SKILLS: &str = "io.modelcontextprotocol/skills";
/// Cache time of skills for clients: a setup never changes.
const FRESH_MS: u64 = 300_000;

pub static STATELESS: LazyLock<Vec<ToolEntry>> = LazyLock::new(|| entries(V8Mode::Stateless));
pub static HEAPS: LazyLock<Vec<ToolEntry>> = LazyLock::new(|| entries(V8Mode::Heap));
pub static FILES: LazyLock<Vec<ToolEntry>> = LazyLock::new(|| entries(V8Mode::Files));
pub static HEAPS_AND_FILES: LazyLock<Vec<ToolEntry>> =
    LazyLock::new(|| entries(V8Mode::HeapAndFiles));

fn entries(mode: V8Mode) -> Vec<ToolEntry> {
    let all = stasis_mcpv8::tools().into_iter().filter(|tool| tool.is_callable(mode));
    all.map(|tool| entry(Arc::new(tool), mode)).collect()
}

/// Whether a callable tool is listed.
pub fn is_shown(name: &str, mode: V8Mode) -> bool {
    stasis_mcpv8::tools().iter().any(|tool| tool.name == name && tool.is_shown(mode))
}

fn entry(tool: Arc<V8Tool>, mode: V8Mode) -> ToolEntry {
    let shown = Tool::new(tool.name, tool.about(mode), tool.schema(mode));
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
    let (id, waits) = match answer {
        V8Answer::Over(result) => return Ok(rendered(result).into()),
        V8Answer::Started(id) => (id, false),
        V8Answer::Wait(id) => (id, true),
    };
    let knows_tasks = call.as_task || call.knows_tasks();
    if !waits && !knows_tasks {
        return Ok(rendered(stasis_mcpv8::started(&id)).into());
    }
    let patience = if call.as_task { Duration::ZERO } else { PATIENCE };
    let is_over = ended(&call, &own, &id, knows_tasks.then_some(patience)).await;
    match is_over {
        Ok(true) if !call.as_task => {
            let result = call.block(move |_| Ok(v8_tasks::result(&own, &id))).await;
            Ok(result.unwrap_or_else(|error| failure(&error)).into())
        }
        Ok(_) => v8_tasks::open(&call, id).await,
        Err(error) => Ok(failure(&error).into()),
    }
}

/// Waits until an execution has finished: briefly if the caller cancels, and at most for its time
/// limit, if it has one. Whether it has finished.
async fn ended(
    call: &CallContext,
    own: &V8Call,
    id: &str,
    patience: Option<Duration>,
) -> Result<bool> {
    let Some(open) = own.v8.open_execution(&own.account, id) else { return Ok(true) };
    let lasts = async {
        match patience {
            Some(patience) => tokio::time::sleep(patience).await,
            None => std::future::pending().await,
        }
    };
    let gave_up = tokio::select! {
        () = open.over() => return Ok(true),
        () = lasts => return Ok(false),
        () = call.context.ct.cancelled() => true,
    };
    if gave_up {
        let (v8, account, id) = (own.v8.clone(), own.account.clone(), id.to_owned());
        // an execution that finished meanwhile cannot be cancelled
        let _ = call.block(move |_| Ok(v8.cancel(&account, &id))).await?;
        open.over().await;
    }
    Ok(true)
}

/// Settings from when the connection was opened, and those of the request. Without a session name,
/// the connection is the session.
pub fn settings(call: &CallContext, mode: V8Mode) -> V8Settings {
    let parts = call.context.extensions.get::<Parts>();
    let now = parts.map(|parts| V8Settings::of(&parts.headers)).unwrap_or_default();
    let is_opened = call.opened.is_some();
    let opened = call.opened.clone().unwrap_or_default();
    let connection = parts.and_then(|parts| parts.headers.get("mcp-session-id"));
    let connection = connection.and_then(|id| id.to_str().ok()).map(str::to_owned);
    V8Settings {
        session: opened.session.or(now.session).or(connection),
        seconds: now.seconds.or(opened.seconds),
        memory_mb: now.memory_mb.or(opened.memory_mb),
        mode,
        setup: now.setup.or(opened.setup),
        mcp_headers: if is_opened { opened.mcp_headers } else { now.mcp_headers },
    }
}

pub fn rendered(result: V8Result) -> CallToolResult {
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

/// A tool with the texts of a setup.
pub fn described(setup: &V8Setup, mut tool: Tool) -> Tool {
    if let Some(words) = setup.run_js_description.as_ref().filter(|_| tool.name == RUN_JS) {
        tool.description = Some(words.clone().into());
    }
    tool
}

/// The stubs of a setup, as tools. Waits for its upstream servers, which list theirs.
pub async fn stubs(server: &Server) -> Vec<Tool> {
    let Some(setup) = server.setup.clone() else { return Vec::new() };
    let (v8, account) = (server.v8.clone(), server.account.name.clone());
    let stubs = stasis_machine::block(move || v8.stubs(&account, &setup)).await;
    let tool = |stub: V8Stub| Tool::new(stub.name, stub.about, stub.schema);
    stubs.unwrap_or_default().into_iter().map(tool).collect()
}

/// The answer of a stub: how to do it from code.
pub fn stub(server: &Server, name: &str, given: Option<&JsonObject>) -> Option<CallToolResult> {
    let none = JsonObject::new();
    let found = server.v8.stub(server.setup.as_deref()?, name, given.unwrap_or(&none))?;
    Some(CallToolResult::success(vec![ContentBlock::text(found)]))
}

/// The capabilities of a server, with skills if a setup has any.
pub fn with_skills(mut all: ServerCapabilities, setup: Option<&V8Setup>) -> ServerCapabilities {
    if setup.is_some_and(|setup| !setup.skills.is_empty()) {
        let extensions = all.extensions.get_or_insert_default();
        extensions.insert(SKILLS.to_owned(), JsonObject::new());
    }
    all
}

/// Answers a request about skills; nothing, if it is another one, or there are none.
pub fn skills_answer(
    setup: Option<&V8Setup>,
    request: &CustomRequest,
) -> Option<std::result::Result<Value, ErrorData>> {
    let skills = setup.map(|setup| &setup.skills).filter(|skills| !skills.is_empty())?;
    let complete = |mut value: Value| {
        value["resultType"] = "complete".into();
        value["ttlMs"] = FRESH_MS.into();
        value["cacheScope"] = "private".into();
        value
    };
    match request.method.as_str() {
        "skills/list" => {
            let all: Vec<Value> = skills.iter().map(V8Skill::entry).collect();
            Some(Ok(complete(json!({ "skills": all }))))
        }
        "skills/get" => {
            let uri = request.params.as_ref().and_then(|params| params["uri"].as_str());
            let found = skills.iter().find(|skill| uri == Some(&*skill.uri()));
            let unknown = || {
                let uri = crate::text::first_line(uri.unwrap_or_default(), 200);
                ErrorData::invalid_params(format!("there is no skill `{uri}`"), None)
            };
            let entry = found.map(|skill| complete(json!({ "skill": skill.entry() })));
            Some(entry.ok_or_else(unknown))
        }
        _ => None,
    }
}

pub fn resources(setup: Option<&V8Setup>) -> Vec<Resource> {
    let one =
        |own: stasis_mcpv8::V8Resource| Resource::new(own.uri, own.name).with_mime_type(own.mime);
    let skills = setup.into_iter().flat_map(|setup| &setup.skills);
    RESOURCES.into_iter().map(one).chain(skills.flat_map(skill_resources)).collect()
}

fn skill_resources(skill: &V8Skill) -> Vec<Resource> {
    let (name, about) = skill.words();
    let one = |(uri, mime, file): (String, &'static str, &SkillFile)| {
        let is_first = uri == skill.uri();
        let shown = if is_first { name.to_owned() } else { format!("{name}/{}", file.path) };
        let own = Resource::new(uri, shown).with_mime_type(mime).with_size(file.size);
        if is_first { own.with_description(about) } else { own }
    };
    skill.resources().map(one).collect()
}

pub fn read(
    call: &CallContext,
    setup: Option<&V8Setup>,
    uri: &str,
    mode: V8Mode,
) -> std::result::Result<ResourceContents, ErrorData> {
    let missing = || {
        let shown = crate::text::first_line(uri, 200);
        ErrorData::resource_not_found(format!("Unknown resource URI: {shown}"), None)
    };
    let mut files = setup.into_iter().flat_map(|setup| &setup.skills).flat_map(V8Skill::resources);
    if let Some((_, mime, file)) = files.find(|(own, ..)| own == uri) {
        let bytes = call.v8.setup_file(&call.account, &file.file);
        let bytes = bytes.map_err(|error| ErrorData::internal_error(error.message, None))?;
        return Ok(match String::from_utf8(bytes) {
            Ok(text) => ResourceContents::text(text, uri).with_mime_type(mime),
            Err(odd) => {
                let encoded = BASE64_STANDARD.encode(odd.as_bytes());
                ResourceContents::blob(encoded, uri).with_mime_type(mime)
            }
        });
    }
    let (mime, text) = stasis_mcpv8::read_resource(uri, mode).ok_or_else(missing)?;
    Ok(ResourceContents::text(text, uri).with_mime_type(mime))
}
