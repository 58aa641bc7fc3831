//! The server for the protocol's library: the handler of each request.

use crate::call::CallContext;
use crate::call_limiter::CallLimiter;
use crate::changes::{Changes, EarlyReceiver};
use crate::error::{Error, Result};
use crate::http::McpCaller;
use crate::notes::{Notebook, Notes};
use crate::sets::ToolSet;
use crate::table::ToolEntry;
use crate::tool_texts::ToolTexts;
use crate::{
    complete, confirm, fixtures, forevervm, guide, legacy, listen, resources, tasks, v8, v8_tasks,
};
use rmcp::model::*;
use rmcp::service::{RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use stasis_forkd::Forkd;
use stasis_machine::{Host, Machine};
use stasis_mcpv8::{V8, V8Setup};
use std::sync::Arc;

/// The view of one account.
#[derive(Clone)]
pub struct Server {
    pub host: Arc<Host>,
    pub forkd: Forkd,
    pub v8: V8,
    pub account: McpCaller,
    pub tools: ToolSet,
    pub changes: Arc<Changes>,
    pub words: Arc<ToolTexts>,
    /// The setup of the front process.
    pub setup: Option<Arc<V8Setup>>,
    pub limiter: CallLimiter,
    /// Subscriptions of this account's sessions.
    pub notebook: Arc<Notebook>,
    /// The same for the only client, if it has no named session.
    pub notes: Option<Arc<Notes>>,
    pub early: EarlyReceiver,
}

impl Server {
    /// The same for one more client, or one request without a session.
    pub fn for_client(&self) -> Server {
        Server { early: EarlyReceiver::default(), ..self.clone() }
    }

    /// A machine of the account's.
    pub fn machine(&self, name: &str) -> Option<Arc<Machine>> {
        self.host.machine_of(&self.account.name, name).ok()
    }

    /// The subscriptions of the requesting client.
    pub fn notes(&self, context: &RequestContext<RoleServer>) -> Option<Arc<Notes>> {
        self.notes.clone().or_else(|| self.notebook.of(context))
    }

    /// A tool as clients see it.
    pub fn shown(&self, entry: &ToolEntry) -> Tool {
        let shown = match self.tools {
            ToolSet::Stasis => self.words.apply(self.tools, &entry.short()),
            _ => self.words.apply(self.tools, &entry.tool),
        };
        match &self.setup {
            Some(setup) => v8::described(setup, shown),
            None => shown,
        }
    }

    /// All listed tools: the set, and the stubs of a setup.
    pub async fn shown_tools(&self) -> Vec<Tool> {
        let stubs = v8::stubs(self).await;
        self.tools.entries().map(|entry| self.shown(entry)).chain(stubs).collect()
    }

    fn instructions(&self) -> &str {
        let own = self.setup.as_ref().and_then(|setup| setup.instructions.as_deref());
        own.or(self.words.instructions(self.tools)).unwrap_or(self.tools.instructions())
    }

    pub fn call(&self, context: RequestContext<RoleServer>) -> CallContext {
        CallContext {
            host: self.host.clone(),
            forkd: self.forkd.clone(),
            v8: self.v8.clone(),
            opened: self.notes(&context).and_then(|notes| notes.opened()),
            account: self.account.name.clone(),
            may_build: self.account.may_build,
            may_approve: self.account.may_approve,
            name: String::new(),
            tools: self.tools,
            changes: self.changes.clone(),
            limiter: self.limiter.clone(),
            context,
            inputs: InputResponses::new(),
            state: None,
            as_task: false,
        }
    }

    /// An unknown tool. Clients of other servers expect a result that reports it.
    fn unknown(&self, name: &str) -> std::result::Result<CallToolResponse, ErrorData> {
        let shown: String = name.chars().take(80).collect();
        let words = format!("Unknown tool: {shown}");
        match self.tools.is_foreign() {
            true => Ok(CallToolResult::error(vec![ContentBlock::text(words)]).into()),
            false => Err(ErrorData::invalid_params(words, None)),
        }
    }
}

/// An error of a request that is not a tool's.
fn in_protocol(error: &Error) -> ErrorData {
    use stasis_api::Problem;
    let data = serde_json::to_value(error.body()).ok();
    match error {
        Error::Machine(error) if error.problem() == Problem::NotFound => {
            ErrorData::resource_not_found(error.to_string(), data)
        }
        Error::Invalid(words) => ErrorData::resource_not_found(words.clone(), data),
        error => ErrorData::internal_error(error.to_string(), data),
    }
}

/// A task with its result, of any tool set.
fn detailed(call: &CallContext, id: &str) -> std::result::Result<DetailedTask, ErrorData> {
    match call.tools.v8_mode() {
        Some(mode) => v8_tasks::detailed(call, mode, id),
        None => tasks::detailed(call, id),
    }
}

fn answer<T>(result: Result<T>) -> std::result::Result<T, ErrorData> {
    result.map_err(|error| in_protocol(&error))
}

/// The error, with its resource.
fn about(mut error: ErrorData, uri: &str) -> ErrorData {
    let mut data = error.data.take().unwrap_or_else(|| serde_json::json!({}));
    data["uri"] = crate::text::cut(uri, 1000, "the request").into();
    ErrorData { data: Some(data), ..error }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let abilities = v8::with_skills(self.tools.abilities(), self.setup.as_deref());
        let config = ServerConfig::new(abilities);
        let config = config.with_instructions(self.instructions());
        config.with_server_info(self.tools.implementation())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> std::result::Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.shown_tools().await))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.tools.find(name).map(|entry| self.shown(entry))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> std::result::Result<CallToolResponse, ErrorData> {
        let Some(entry) = self.tools.find(&request.name) else {
            let stub = v8::stub(self, &request.name, request.arguments.as_ref());
            return stub.map_or_else(|| self.unknown(&request.name), |answer| Ok(answer.into()));
        };
        let arguments = request.arguments.unwrap_or_default();
        if self.tools == ToolSet::ForeverVm {
            forevervm::check(&request.name, &arguments)?;
        }
        let mut call = self.call(context);
        call.name = request.name.into_owned();
        call.inputs = request.input_responses.unwrap_or_default();
        call.state = request.request_state;
        if let Some(question) = entry.question
            && let Some(instead) = confirm::ask(&call, question(&arguments)).await?
        {
            return instead;
        }
        (entry.run)(call, arguments).await
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> std::result::Result<ListResourcesResult, ErrorData> {
        if self.tools.is_foreign() {
            return Ok(ListResourcesResult::default());
        }
        if self.tools.v8_mode().is_some() {
            let all = v8::resources(self.setup.as_deref());
            return Ok(ListResourcesResult::with_all_items(all));
        }
        let cursor = request.and_then(|request| request.cursor);
        let first = cursor.is_none();
        let list = move |call: &CallContext| resources::list(call, cursor.as_deref());
        let mut listed = answer(self.call(context).block(list).await)?;
        if self.tools.is_test() && first {
            listed.resources.extend(fixtures::resources());
        }
        Ok(listed)
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> std::result::Result<ListResourceTemplatesResult, ErrorData> {
        let all = match self.tools {
            ToolSet::Stasis | ToolSet::All => resources::templates(),
            ToolSet::Conformance => [resources::templates(), fixtures::templates()].concat(),
            _ => Vec::new(),
        };
        Ok(ListResourceTemplatesResult::with_all_items(all))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> std::result::Result<ReadResourceResponse, ErrorData> {
        if let Some(found) = self.tools.is_test().then(|| fixtures::read(&request.uri)).flatten() {
            return Ok(ReadResourceResult::new(vec![found]).into());
        }
        if let Some(mode) = self.tools.v8_mode() {
            let (setup, uri) = (self.setup.clone(), request.uri);
            let read = move |call: &CallContext| Ok(v8::read(call, setup.as_deref(), &uri, mode));
            let contents = answer(self.call(context).block(read).await)??;
            return Ok(ReadResourceResult::new(vec![contents]).into());
        }
        let uri = request.uri.clone();
        let read = move |call: &CallContext| resources::read(call, &uri);
        let contents = answer(self.call(context).block(read).await);
        let contents = contents.map_err(|error| about(error, &request.uri))?;
        Ok(ReadResourceResult::new(vec![contents]).into())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> std::result::Result<ListPromptsResult, ErrorData> {
        let all = match self.tools {
            ToolSet::Stasis | ToolSet::All => guide::prompts(),
            ToolSet::Conformance => [guide::prompts(), fixtures::prompts()].concat(),
            _ => Vec::new(),
        };
        Ok(ListPromptsResult::with_all_items(all))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> std::result::Result<GetPromptResponse, ErrorData> {
        if let Some(found) = self.tools.is_test().then(|| fixtures::prompt(&request)).flatten() {
            return found;
        }
        guide::prompt(&request).map(Into::into)
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> std::result::Result<CompleteResult, ErrorData> {
        let names = move |call: &CallContext| Ok(complete::complete(call, &request));
        answer(self.call(context).block(names).await)
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> std::result::Result<GetTaskResult, ErrorData> {
        if self.tools.is_test() && fixtures::has_task(&request.task_id) {
            return fixtures::TASKS.get_task(&request.task_id).map(GetTaskResult::new);
        }
        let find = move |call: &CallContext| Ok(detailed(call, &request.task_id));
        answer(self.call(context).block(find).await)?.map(GetTaskResult::new)
    }

    /// Instructions request nothing while they run: there is nothing to answer.
    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> std::result::Result<(), ErrorData> {
        if self.tools.is_test() && fixtures::has_task(&request.task_id) {
            return fixtures::TASKS.update_task(&request.task_id, request.input_responses);
        }
        let find = move |call: &CallContext| Ok(detailed(call, &request.task_id));
        answer(self.call(context).block(find).await)?.map(drop)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> std::result::Result<(), ErrorData> {
        if self.tools.is_test() && fixtures::has_task(&request.task_id) {
            return fixtures::TASKS.cancel_task(&request.task_id);
        }
        match self.tools.v8_mode() {
            Some(_) => v8_tasks::cancel(&self.call(context), &request.task_id).await,
            None => tasks::cancel(&self.call(context), &request.task_id).await,
        }
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        self.early.listen(&self.changes);
        (!self.tools.is_foreign()).then(|| requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> std::result::Result<(), ErrorData> {
        let news = self.early.take().unwrap_or_else(|| self.changes.listen());
        listen::listen(news, &self.account.name, &context).await;
        Ok(())
    }

    #[expect(deprecated)]
    async fn set_level(
        &self,
        _: SetLevelRequestParams,
        _: RequestContext<RoleServer>,
    ) -> std::result::Result<(), ErrorData> {
        match self.tools.is_test() {
            true => Ok(()),
            false => Err(ErrorData::method_not_found::<SetLevelRequestMethod>()),
        }
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> std::result::Result<(), ErrorData> {
        let known = resources::machine_of(&request.uri).is_some() || self.tools.is_test();
        let notes = self.notes(&context);
        if known && notes.is_some_and(|notes| notes.subscribe(&request.uri)) {
            return Ok(());
        }
        let words = format!("cannot subscribe to `{}`", crate::text::first_line(&request.uri, 200));
        Err(ErrorData::resource_not_found(words, None))
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> std::result::Result<(), ErrorData> {
        if let Some(notes) = self.notes(&context) {
            notes.unsubscribe(&request.uri);
        }
        Ok(())
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> std::result::Result<CustomResult, ErrorData> {
        if let Some(skills) = v8::skills_answer(self.setup.as_deref(), &request) {
            return skills.map(CustomResult::new);
        }
        let answered = legacy::answer(self, &request, context).await;
        let unknown = || ErrorData::new(ErrorCode::METHOD_NOT_FOUND, request.method.clone(), None);
        answered.unwrap_or_else(|| Err(unknown())).map(CustomResult::new)
    }
}
