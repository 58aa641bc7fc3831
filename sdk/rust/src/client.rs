//! The client: a service, and everything on it outside of machines.

use crate::here::KnownService;
use crate::retry::unique;
use crate::transport::{Call, Transport, at, segment};
use crate::types::{
    ApprovalAnswer, ApprovalList, BuildLine, BuildTemplate, CheckStore, Chunk, CompareRequest,
    Comparison, ExecResult, Families, Filter, Health, MachineList, Made, MadeToken, NewMachine,
    NewToken, Relative, Removed, ResultBody, StoreChecked, StoreFreed, StoreStats, Template,
    TemplateList, Token, TokenList, ToolCall, Whoami,
};
use crate::{Error, Exec, Instruction, Kind, Machine, Repl, Result, Retry, Streamed};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use std::sync::Arc;
use std::time::Duration;

const DEFAULT_URL: &str = "http://127.0.0.1:7717";

/// A Stasis service. Clones share their connections.
#[derive(Debug, Clone)]
pub struct Client {
    transport: Arc<Transport>,
}

/// A line of output, or the result in foreverVM's form.
#[derive(Debug, Clone, PartialEq)]
pub enum StreamedResult {
    Output(Chunk),
    Result(Box<ExecResult>),
}

/// The settings of a client.
#[derive(Debug, Clone)]
pub struct Builder {
    base_url: String,
    token: Option<String>,
    timeout: Duration,
    retry: Retry,
}

impl Default for Builder {
    fn default() -> Builder {
        let timeout = Duration::from_secs(60);
        Builder { base_url: DEFAULT_URL.into(), token: None, timeout, retry: Retry::default() }
    }
}

impl Builder {
    pub fn base_url(mut self, url: impl Into<String>) -> Builder {
        self.base_url = url.into();
        self
    }

    pub fn token(mut self, token: impl Into<String>) -> Builder {
        self.token = Some(token.into());
        self
    }

    /// Maximum silence of a connection before it counts as dead; a minute by default.
    pub fn timeout(mut self, timeout: Duration) -> Builder {
        self.timeout = timeout;
        self
    }

    pub fn retry(mut self, retry: Retry) -> Builder {
        self.retry = retry;
        self
    }

    pub fn build(self) -> Result<Client> {
        let base = self.base_url.trim_end_matches('/').to_owned();
        if !base.starts_with("http://") && !base.starts_with("https://") {
            return Err(Error::Setup(format!("{base:?} is not an address of a service")));
        }
        let plain = || {
            reqwest::Client::builder()
                .user_agent(concat!("stasis-sdk-rust/", env!("CARGO_PKG_VERSION")))
                .connect_timeout(self.timeout.min(Duration::from_secs(10)))
                // shorter than a service keeps an idle connection
                .pool_idle_timeout(Duration::from_secs(10))
        };
        let broken = |error: reqwest::Error| Error::Setup(error.to_string());
        let http = plain().read_timeout(self.timeout).build().map_err(broken)?;
        let without_timeout = plain().build().map_err(broken)?;
        let (token, retry) = (self.token, self.retry);
        let transport = Transport { http, without_timeout, base, token, retry };
        Ok(Client { transport: Arc::new(transport) })
    }
}

impl Client {
    /// A service at an address, with a token.
    pub fn new(base_url: impl Into<String>, token: impl Into<String>) -> Result<Client> {
        Client::builder().base_url(base_url).token(token).build()
    }

    /// The service that `STASIS_URL` and `STASIS_TOKEN` name, or else the CLI's `config.toml`, or
    /// else the stored login, or else the service of this host.
    pub fn from_env() -> Result<Client> {
        let mut builder = Client::builder();
        let known = KnownService::find();
        let url = known.url().unwrap_or(builder.base_url);
        builder.base_url = url.trim_end_matches('/').to_owned();
        builder.token = known.token(&builder.base_url);
        builder.build()
    }

    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The account and scopes of the token.
    pub async fn whoami(&self) -> Result<Whoami> {
        self.transport.json(Call::get("/v1/whoami")).await
    }

    /// Whether the service is up. Needs no token.
    pub async fn health(&self) -> Result<Health> {
        self.transport.json(Call::get("/health")).await
    }

    /// Creates a machine.
    pub async fn create_machine(&self, mut new: NewMachine) -> Result<Machine> {
        let ours = new.name.is_none();
        let name = new.name.get_or_insert_with(unique).clone();
        let mut call = Call::post("/v1/machine/new").body(&new)?;
        // a unique name makes the call safe to repeat
        call.repeatable = ours;
        match self.transport.json::<Made>(call).await {
            Ok(_) => Ok(self.machine(name)),
            Err(error) if ours && error.kind() == Some(Kind::Conflict) => {
                self.get_machine(name).await
            }
            Err(error) => Err(error),
        }
    }

    /// A machine by name, without a request to the service.
    pub fn machine(&self, name: impl Into<String>) -> Machine {
        Machine::new(self.transport.clone(), name)
    }

    /// A machine by name, if it exists.
    pub async fn get_machine(&self, name: impl Into<String>) -> Result<Machine> {
        let machine = self.machine(name);
        machine.info().await?;
        Ok(machine)
    }

    /// Machines that match all filters, newest first. `limit` is the page size.
    pub fn list_machines(&self, filter: Filter) -> Streamed<crate::types::Machine> {
        let first = Some((self.clone(), filter));
        let pages = stream::try_unfold(first, |state| async move {
            let Some((client, mut filter)) = state else { return Ok(None) };
            let call = Call::post("/v1/machine/list").repeatable().body(&filter)?;
            let page: MachineList = client.transport.json(call).await?;
            filter.cursor = page.next;
            let more = filter.cursor.is_some().then_some((client, filter));
            Ok::<_, Error>(Some((stream::iter(page.machines.into_iter().map(Ok)), more)))
        });
        pages.try_flatten().boxed()
    }

    /// The differences between two machines, or checkpoints such as `work@3`.
    pub async fn compare(&self, left: &str, right: &str) -> Result<Comparison> {
        let asked = CompareRequest { left: left.to_owned(), right: right.to_owned() };
        let call = Call::post("/v1/compare").repeatable().without_timeout().body(&asked)?;
        self.transport.json(call).await
    }

    /// All machines as families, oldest first.
    pub async fn lineage(&self) -> Result<Vec<Relative>> {
        Ok(self.transport.json::<Families>(Call::get("/v1/lineage")).await?.families)
    }

    /// Submits code to a machine, or to a new one, and does not wait.
    pub async fn exec(
        &self,
        exec: impl Into<Exec>,
        machine_name: Option<&str>,
    ) -> Result<Instruction> {
        self.named(machine_name).await?.exec(exec).await
    }

    /// Waits for an instruction's end; its result in foreverVM's form.
    pub async fn exec_result(&self, machine_name: &str, seq: u64) -> Result<ExecResult> {
        self.machine(machine_name).instruction(seq).result().await?;
        let call = Call::get(at(machine_name, &format!("/exec/{seq}/result"))?);
        Ok(self.transport.json::<ResultBody>(call).await?.result)
    }

    /// Output as it arrives, and then the result in foreverVM's form.
    pub fn exec_result_stream(&self, machine_name: &str, seq: u64) -> Streamed<StreamedResult> {
        let (client, name) = (self.clone(), machine_name.to_owned());
        let result = async move {
            let result = client.exec_result(&name, seq).await?;
            Ok(StreamedResult::Result(Box::new(result)))
        };
        let output = self.machine(machine_name).instruction(seq).output();
        output.map_ok(StreamedResult::Output).chain(stream::once(result)).boxed()
    }

    /// A REPL on a machine; a new one if none is named.
    pub async fn repl(&self, machine_name: Option<&str>) -> Result<Repl> {
        Ok(Repl::new(self.named(machine_name).await?))
    }

    pub(crate) fn of(transport: Arc<Transport>) -> Client {
        Client { transport }
    }

    pub(crate) fn transport(&self) -> &Arc<Transport> {
        &self.transport
    }

    async fn named(&self, name: Option<&str>) -> Result<Machine> {
        match name {
            Some(name) => Ok(self.machine(name)),
            None => self.create_machine(NewMachine::default()).await,
        }
    }

    /// Templates, newest first.
    pub async fn list_templates(&self) -> Result<Vec<Template>> {
        let call = Call::get("/v1/template");
        Ok(self.transport.json::<TemplateList>(call).await?.templates)
    }

    /// A template by name or digest.
    pub async fn get_template(&self, name: &str) -> Result<Template> {
        self.transport.json(Call::get(format!("/v1/template/{}", segment(name)?))).await
    }

    /// Builds a template from a recipe in TOML; `say` is called with its progress.
    pub async fn build_template(
        &self,
        recipe: &str,
        mut say: impl FnMut(&BuildLine),
    ) -> Result<Template> {
        let asked = BuildTemplate { recipe: recipe.to_owned() };
        let call = Call::post("/v1/template/build").without_timeout().body(&asked)?;
        let mut lines = self.transport.lines::<BuildLine>(&call).await?;
        while let Some(line) = lines.try_next().await? {
            say(&line);
            match (line.template, line.error) {
                (Some(template), _) => return Ok(template),
                (None, Some(error)) => return Err(Error::of(500, error)),
                (None, None) => {}
            }
        }
        Err(Error::broken("the build has no end"))
    }

    /// Removes a template that no machine uses.
    pub async fn remove_template(&self, name: &str) -> Result<()> {
        let call = Call::delete(format!("/v1/template/{}", segment(name)?));
        self.transport.json::<Removed>(call).await.map(drop)
    }

    /// Creates a token. Its secret is shown only once.
    pub async fn create_token(&self, new: &NewToken) -> Result<MadeToken> {
        self.transport.json(Call::post("/v1/token").body(new)?).await
    }

    /// Tokens, oldest first, without their secrets.
    pub async fn list_tokens(&self) -> Result<Vec<Token>> {
        Ok(self.transport.json::<TokenList>(Call::get("/v1/token")).await?.tokens)
    }

    /// Revokes a token, effective with the next request.
    pub async fn revoke_token(&self, id: &str) -> Result<()> {
        let call = Call::delete(format!("/v1/token/{}", segment(id)?));
        self.transport.json::<Removed>(call).await.map(drop)
    }

    /// Calls of tools that wait for a person, newest first; with `all`, also those that are over.
    pub async fn list_approvals(&self, all: bool) -> Result<Vec<ToolCall>> {
        let call = Call::get("/v1/approvals").query("all", all);
        Ok(self.transport.json::<ApprovalList>(call).await?.approvals)
    }

    /// A call that a person was asked about, with all of its arguments.
    pub async fn get_approval(&self, id: u64) -> Result<ToolCall> {
        self.transport.json(Call::get(format!("/v1/approvals/{id}"))).await
    }

    /// Allows or denies a call that waits. A call is answered once. Requires the scope `approve`.
    pub async fn answer_approval(&self, id: u64, answer: &ApprovalAnswer) -> Result<ToolCall> {
        let call = Call::post(format!("/v1/approvals/{id}")).body(answer)?;
        self.transport.json(call).await
    }

    /// The size of the store.
    pub async fn store_stats(&self) -> Result<StoreStats> {
        self.transport.json(Call::get("/v1/store/stats")).await
    }

    /// Frees data that no machine, checkpoint or template needs.
    pub async fn store_gc(&self) -> Result<StoreFreed> {
        self.transport.json(Call::post("/v1/store/gc")).await
    }

    /// Verifies all data in use; with `repair`, replaces damaged pages by intact copies.
    pub async fn store_check(&self, repair: bool) -> Result<StoreChecked> {
        let asked = CheckStore { repair: Some(repair) };
        self.transport.json(Call::post("/v1/store/check").body(&asked)?).await
    }
}
