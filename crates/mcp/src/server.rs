//! The server as the protocol's library wants it: what each request means.

use crate::call::Call;
use crate::error::{Error, Result};
use crate::table::Entry;
use crate::{forevervm, guide, resources, tools};
use rmcp::model::*;
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use stasis_machine::Host;
use std::sync::Arc;

/// Which tools a client sees.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum ToolSet {
    /// Ours.
    #[default]
    Stasis,
    /// The two of foreverVM's server.
    ForeverVm,
}

impl ToolSet {
    fn entries(self) -> &'static [Entry] {
        match self {
            ToolSet::Stasis => &tools::TOOLS,
            ToolSet::ForeverVm => &forevervm::TOOLS,
        }
    }

    fn find(self, name: &str) -> Option<&'static Entry> {
        self.entries().iter().find(|entry| entry.tool.name == name)
    }
}

/// What one account sees.
#[derive(Clone)]
pub struct Server {
    pub host: Arc<Host>,
    pub account: String,
    pub tools: ToolSet,
}

impl Server {
    fn call(&self, context: RequestContext<RoleServer>) -> Call {
        Call { host: self.host.clone(), account: self.account.clone(), context }
    }

    /// A tool nobody knows. foreverVM's clients expect a result that says so.
    fn unknown(&self, name: &str) -> std::result::Result<CallToolResponse, ErrorData> {
        let shown: String = name.chars().take(80).collect();
        let words = format!("Unknown tool: {shown}");
        match self.tools {
            ToolSet::Stasis => Err(ErrorData::invalid_params(words, None)),
            ToolSet::ForeverVm => Ok(CallToolResult::error(vec![ContentBlock::text(words)]).into()),
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

fn answer<T>(result: Result<T>) -> std::result::Result<T, ErrorData> {
    result.map_err(|error| in_protocol(&error))
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let abilities = ServerCapabilities::builder().enable_tools().enable_resources();
        let config = ServerConfig::new(abilities.enable_prompts().build());
        let version = env!("CARGO_PKG_VERSION");
        match self.tools {
            ToolSet::Stasis => config
                .with_server_info(Implementation::new("stasis", version).with_title("Stasis"))
                .with_instructions(guide::INSTRUCTIONS),
            ToolSet::ForeverVm => config
                .with_server_info(Implementation::new("forevervm", "1.0.0"))
                .with_instructions(guide::FOREVERVM_INSTRUCTIONS),
        }
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> std::result::Result<ListToolsResult, ErrorData> {
        let all = self.tools.entries().iter().map(|entry| entry.tool.clone());
        Ok(ListToolsResult::with_all_items(all.collect()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.tools.find(name).map(|entry| entry.tool.clone())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> std::result::Result<CallToolResponse, ErrorData> {
        let Some(entry) = self.tools.find(&request.name) else {
            return self.unknown(&request.name);
        };
        let arguments = request.arguments.unwrap_or_default();
        if self.tools == ToolSet::ForeverVm {
            forevervm::check(&request.name, &arguments)?;
        }
        Ok((entry.run)(self.call(context), arguments).await.into())
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> std::result::Result<ListResourcesResult, ErrorData> {
        if self.tools == ToolSet::ForeverVm {
            return Ok(ListResourcesResult::default());
        }
        let cursor = request.and_then(|request| request.cursor);
        let list = move |call: &Call| resources::list(call, cursor.as_deref());
        answer(self.call(context).block(list).await)
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> std::result::Result<ListResourceTemplatesResult, ErrorData> {
        let all = match self.tools {
            ToolSet::Stasis => resources::templates(),
            ToolSet::ForeverVm => Vec::new(),
        };
        Ok(ListResourceTemplatesResult::with_all_items(all))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> std::result::Result<ReadResourceResponse, ErrorData> {
        let read = move |call: &Call| resources::read(call, &request.uri);
        let contents = answer(self.call(context).block(read).await)?;
        Ok(ReadResourceResult::new(vec![contents]).into())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> std::result::Result<ListPromptsResult, ErrorData> {
        let all = match self.tools {
            ToolSet::Stasis => guide::prompts(),
            ToolSet::ForeverVm => Vec::new(),
        };
        Ok(ListPromptsResult::with_all_items(all))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> std::result::Result<GetPromptResponse, ErrorData> {
        guide::prompt(&request).map(Into::into)
    }
}
