//! One run: from the request to the machine, and to its answer (`settle.rs`).
//!
//!   request ─► checked, recorded ─► queue ─► machine ─► end

use crate::documents::{EXECUTION, RUNNING, put};
use crate::error::{Error, Result};
use crate::executions::{ExecutionInfo, RunStep, RunningExecution, fresh_id};
use crate::heaps::{Heap, HeapTags, check_session, check_tags};
use crate::queue::{RunGroup, WaitingRun};
use crate::run_file::RunFile;
use crate::settings::McpHeaders;
use crate::template::FoundTemplate;
use crate::wasm::{RunModule, WasmModule};
use crate::{V8, V8Mode};
use serde::{Deserialize, Serialize};
use stasis_api::{
    Checkpoints, Durability, Exec, Instruction, Limits, Name, Network, NewMachine, Retention,
    Status, Timeout, Timestamp, Update,
};
use stasis_machine::{Branch, Machine};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock};

/// The program that runs code as a module.
const PROGRAM: &str = include_str!("run.js");
/// Its version. A state that has it from an earlier run needs only a call.
static PROGRAM_ID: LazyLock<String> =
    LazyLock::new(|| blake3::hash(PROGRAM.as_bytes()).to_hex()[..16].to_owned());
/// Code that leaves the program in a state, ready to run.
pub(crate) static REHEARSAL: LazyLock<String> =
    LazyLock::new(|| format!("await (\n{PROGRAM})(undefined, false, [], null);"));
/// The program in such a state.
const RESIDENT: &str = "globalThis[Symbol.for('mcp-v8')].run";
const DEFAULT_SECONDS: i64 = 30;
const MOST_SECONDS: i64 = 3600;
/// Code and its quoted form must fit into one instruction.
const LONGEST_CODE: usize = 8 << 20;
/// Memory Node needs beside the heap that a client requests, in MiB.
const NODE_MB: u64 = 128;
const MOST_MB: u64 = 1 << 20;
/// The tag of a machine: the execution it was made for.
pub(crate) const MADE_FOR: &str = "mcp-v8";
/// Maximum lifetime of a run's machine after the run, if the service is killed.
const LEFT_OVER: i64 = 2 * MOST_SECONDS;

/// A client's request to run code.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct V8RunRequest {
    pub code: Option<String>,
    pub file: Option<String>,
    /// The text of that file.
    pub opened: Option<RunFile>,
    pub heap: Option<String>,
    pub fs: Option<String>,
    pub session: Option<String>,
    pub heap_memory_max_mb: Option<u64>,
    pub execution_timeout_secs: Option<i64>,
    pub tags: Option<HeapTags>,
    /// Top-level names persist, and the last value is the result.
    pub repl: bool,
    pub mode: V8Mode,
    /// The setup whose modules it has.
    pub setup: Option<String>,
    /// Headers of the connection, for policies.
    pub mcp_headers: McpHeaders,
}

/// An accepted run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    pub code: String,
    pub repl: bool,
    pub mode: V8Mode,
    pub heap: Option<String>,
    /// The tree or the label its files start from.
    #[serde(default)]
    pub fs: Option<String>,
    pub session: Option<String>,
    pub memory_mb: Option<u64>,
    pub seconds: i64,
    pub tags: Option<HeapTags>,
    #[serde(default)]
    pub modules: Vec<RunModule>,
    /// The setup whose policies it is held to, and the network of its machine.
    #[serde(default)]
    pub policies: Option<(String, Network)>,
    /// The categories of these policies.
    #[serde(default)]
    pub categories: Option<Vec<String>>,
    /// The set of upstream servers whose tools its code calls.
    #[serde(default)]
    pub tools: Option<String>,
    /// Headers of its connection, for its policies.
    #[serde(default)]
    pub mcp_headers: McpHeaders,
    /// Runs that it shares a maximum with.
    #[serde(default)]
    pub group: Option<RunGroup>,
}

/// The record of an unfinished run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecordedRun {
    pub run: Run,
    pub place: Option<RecordedPlace>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecordedPlace {
    pub state: Heap,
    pub origin: RunOrigin,
}

/// The state of a run's machine before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum RunOrigin {
    /// None: it was created for this run.
    Made,
    /// In the state after this instruction.
    At(u64),
}

impl V8RunRequest {
    fn check(self) -> Result<Run> {
        let code = self.code.unwrap_or_default();
        if code.len() > LONGEST_CODE {
            return Err(Error::invalid(format!("code is at most {LONGEST_CODE} bytes")));
        }
        let seconds = self.execution_timeout_secs.unwrap_or(DEFAULT_SECONDS);
        if !(1..=MOST_SECONDS).contains(&seconds) {
            let said = format!("execution_timeout_secs is between 1 and {MOST_SECONDS}");
            return Err(Error::invalid(said));
        }
        if self.heap_memory_max_mb.is_some_and(|mb| mb > MOST_MB) {
            return Err(Error::invalid(format!("heap_memory_max_mb is at most {MOST_MB}")));
        }
        let heap = self.heap.filter(|heap| !heap.is_empty());
        let session = self.session.filter(|session| !session.is_empty());
        session.as_deref().map_or(Ok(()), check_session)?;
        self.tags.as_ref().map_or(Ok(()), check_tags)?;
        let fs = self.fs.filter(|fs| !fs.is_empty());
        let (repl, mode, tags) = (self.repl, self.mode, self.tags);
        let wrong = |what: &str| {
            let said = format!("`{what}` is not available in mode {}", mode.name());
            Err(Error::invalid(said))
        };
        if heap.is_some() && !mode.keeps_heap() {
            return wrong("heap");
        }
        if fs.is_some() && !mode.keeps_files() {
            return wrong("fs");
        }
        let memory_mb = self.heap_memory_max_mb.map(|mb| mb + NODE_MB);
        let session = session.filter(|_| mode.has_sessions());
        Ok(Run {
            code,
            repl,
            mode,
            heap,
            fs,
            session,
            memory_mb,
            seconds,
            tags,
            modules: Vec::new(),
            policies: None,
            categories: None,
            tools: None,
            mcp_headers: self.mcp_headers,
            group: None,
        })
    }
}

impl Run {
    /// `is_resident`: the machine's state has the program.
    fn exec(&self, is_resident: bool) -> Exec {
        let code = match self.repl {
            true => self.code.clone(),
            false => self.program(&self.code, is_resident),
        };
        let durability = self.mode.keeps_heap().then_some(Durability::Local);
        let timeout = Timeout::Seconds(self.seconds as f64);
        Exec { code, timeout, durability, ..Exec::default() }
    }

    /// Prepares the machine for code that the program does not run itself.
    fn prelude(&self, is_resident: bool) -> Option<Exec> {
        let timeout = Timeout::Seconds(self.seconds as f64);
        let code = || Exec { code: self.program("", is_resident), timeout, ..Exec::default() };
        (self.repl && self.needs_program()).then(code)
    }

    /// The program that the state after this run has, if it began with this one.
    pub(crate) fn program_after(&self, is_resident: bool) -> Option<String> {
        (self.uses_program() || is_resident).then(|| PROGRAM_ID.clone())
    }

    /// Whether the program runs the code, or before it.
    pub(crate) fn uses_program(&self) -> bool {
        !self.repl || self.needs_program()
    }

    /// Whether the program must run before code that it does not run itself.
    fn needs_program(&self) -> bool {
        !self.modules.is_empty() || self.categories.is_some()
    }

    fn program(&self, code: &str, is_resident: bool) -> String {
        let quoted = serde_json::to_string(code).unwrap_or_default();
        let modules = serde_json::to_string(&self.modules).unwrap_or_default();
        let files = self.mode.keeps_files();
        let policies = serde_json::to_string(&self.categories).unwrap_or_default();
        let arguments = format!("{quoted}, {files}, {modules}, {policies}");
        match is_resident {
            true => format!("await {RESIDENT}({arguments}); undefined"),
            false => format!("await (\n{PROGRAM})({arguments}); undefined"),
        }
    }

    fn new_machine(&self, id: &str, template: String) -> NewMachine {
        let keeps = self.mode.keeps_heap();
        let soon = Timestamp::now().as_second() + LEFT_OVER;
        NewMachine {
            name: Some(fresh_name()),
            tags: made_for(id),
            limits: Limits { memory_mb: self.memory_mb, ..Limits::default() },
            template: Some(template),
            network: self.policies.as_ref().map(|(_, network)| network.clone()),
            checkpoints: if keeps { Checkpoints::Exact } else { Checkpoints::Grouped },
            // a heap's key is valid as long as its machine exists
            retention: keeps.then(Retention::default),
            expires_at: if keeps { None } else { Timestamp::from_second(soon).ok() },
            ..NewMachine::default()
        }
    }
}

fn made_for(id: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(MADE_FOR.to_owned(), id.to_owned())])
}

fn fresh_name() -> Name {
    let text = format!("v8-{}", hex::encode(stasis_machine::random::<10>()));
    text.parse().expect("letters, digits and dashes are a name")
}

/// Ends a run, also if its thread panics.
pub(crate) struct Turn<'a> {
    v8: &'a V8,
    run: &'a WaitingRun,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // still here only if its thread panicked
        if let Some(own) = self.v8.running(&self.run.account, &self.run.id) {
            self.v8.give_up(&own, "an internal error ended the run");
        }
        self.v8.shared.queue.lock().ended(self.run);
        self.v8.start_waiting();
    }
}

impl V8 {
    /// Accepts a run; returns its execution's id.
    pub fn run(&self, account: &str, request: V8RunRequest) -> Result<String> {
        let setup = request.setup.clone();
        let mut run = self.with_text(account, request)?.check()?;
        if let Some(setup) = setup {
            let own = self.setup(account, &setup)?;
            run.modules = own.wasm.iter().map(WasmModule::of_run).collect();
            run.categories = own.categories();
            run.group = own.max_concurrent.map(|most| RunGroup { name: setup.clone(), most });
            run.policies = own.network()?.map(|network| (setup, network));
            run.tools = own.private;
        }
        if run.policies.is_none() {
            run.mcp_headers.clear();
        }
        if let Some(key) = &run.heap {
            let heap = self.heap(account, key)?;
            self.heap_machine(account, &heap)?;
        }
        if let Some(fs) = &run.fs {
            // a label need not exist: then the files start empty, and a push can create it
            self.named_tree(account, fs)?;
        }
        let id = fresh_id();
        let info = ExecutionInfo::started(&id);
        let recorded = RecordedRun { run: run.clone(), place: None };
        let changes = vec![put(EXECUTION, &id, &info)?, put(RUNNING, &id, &recorded)?];
        let key = (account.to_owned(), id.clone());
        let own = Arc::new(RunningExecution::new(account, run.clone(), info));
        // in memory before it is recorded: a run that is only recorded belongs to an earlier
        // process
        self.shared.running.lock().insert(key.clone(), own.clone());
        if let Err(error) = self.host.change_documents(account, changes) {
            self.shared.running.lock().remove(&key);
            return Err(error.into());
        }
        let waiting = own.waiting();
        let has_room = self.shared.queue.lock().push(waiting);
        if !has_room {
            let said = "too many runs of this account wait; try again when some have ended";
            self.settle(&own, None, Err(Error::new(429, said)));
            return Err(Error::new(429, said));
        }
        self.start_waiting();
        Ok(id)
    }

    /// Starts runs while there are free slots.
    pub(crate) fn start_waiting(&self) {
        loop {
            let Some(run) = self.shared.queue.lock().next() else { return };
            self.keep_watch();
            let v8 = self.clone();
            stasis_machine::hand_over(move || {
                let _turn = v8.turn(&run);
                if let Some(own) = v8.running(&run.account, &run.id) {
                    v8.carry_out(&own);
                }
            });
        }
    }

    pub(crate) fn turn<'a>(&'a self, run: &'a WaitingRun) -> Turn<'a> {
        Turn { v8: self, run }
    }

    fn carry_out(&self, own: &Arc<RunningExecution>) {
        own.now(RunStep::Finding);
        let (machine, origin) = match self.machine_for(own) {
            Ok(found) => found,
            Err(error) => return self.settle(own, None, Err(error)),
        };
        let end = self.run_on(own, &machine, origin);
        self.settle(own, Some((&machine, origin)), end);
        self.shared.queue.lock().free_machine(machine.number());
    }

    fn run_on(
        &self,
        own: &Arc<RunningExecution>,
        machine: &Arc<Machine>,
        origin: RunOrigin,
    ) -> Result<Instruction> {
        self.resize(machine, own.run.memory_mb)?;
        own.now(RunStep::LayingOut);
        self.files_before(own, machine)?;
        self.modules_before(own, machine)?;
        self.tools_before(&own.account, &own.run, machine)?;
        own.now(RunStep::Running);
        let is_resident = own.is_resident.load(Ordering::Relaxed);
        if let Some(prelude) = own.run.prelude(is_resident) {
            let ready = machine.wait(machine.submit(prelude)?)?;
            if ready.status != Status::Done {
                return Ok(ready);
            }
        }
        let seq = machine.submit(own.run.exec(is_resident))?;
        let state = Heap {
            machine: machine.name().to_string(),
            number: machine.number(),
            seq,
            tags: HeapTags::new(),
            program: None,
        };
        if own.run.mode.keeps_heap() {
            // a temporary machine does not outlive this process, so its run is not followed
            let place = Some(RecordedPlace { state, origin });
            let recorded = RecordedRun { run: own.run.clone(), place };
            let change = put(RUNNING, &own.info.execution_id, &recorded)?;
            self.host.change_documents(&own.account, vec![change])?;
        }
        own.placed(machine, seq);
        if own.is_cancelled.load(Ordering::SeqCst) {
            machine.stop(seq)?;
        }
        Ok(machine.wait(seq)?)
    }

    /// The heap a run starts from: the named one, or its session's.
    pub(crate) fn input(&self, own: &RunningExecution) -> Result<Option<String>> {
        match (&own.run.heap, &own.run.session) {
            (Some(heap), _) => Ok(Some(heap.clone())),
            (None, Some(session)) if own.run.mode.keeps_heap() => {
                Ok(self.session(&own.account, session)?.and_then(|own| own.heap))
            }
            _ => Ok(None),
        }
    }

    /// A machine in the run's first state, reserved for it.
    fn machine_for(&self, own: &RunningExecution) -> Result<(Arc<Machine>, RunOrigin)> {
        let network = match &own.run.policies {
            Some((setup, _)) => self.network_of(&own.account, setup)?,
            None => None,
        };
        let Some(key) = self.input(own)? else {
            let machine = self.made_for(own)?;
            self.shared.queue.lock().take_machine(machine.number());
            return Ok((machine, RunOrigin::Made));
        };
        let heap = self.heap(&own.account, &key)?;
        let is_resident = heap.program.as_ref() == Some(&*PROGRAM_ID);
        own.is_resident.store(is_resident, Ordering::Relaxed);
        let source = self.heap_machine(&own.account, &heap)?;
        self.has_network(&source, network.as_ref())?;
        let number = source.number();
        // the written files are part of the machine: it could not roll back without them
        if own.run.fs.is_none() && self.shared.queue.lock().take_machine(number) {
            if source.is_at(heap.seq) && source.pending() == 0 {
                return Ok((source, RunOrigin::At(heap.seq)));
            }
            self.shared.queue.lock().free_machine(number);
        }
        let branch = Branch {
            seq: Some(heap.seq),
            names: vec![Some(fresh_name())],
            tags: made_for(&own.info.execution_id),
            ..Branch::default()
        };
        let made = self.host.branch(&source, branch)?.pop();
        let machine = made.ok_or_else(|| Error::new(500, "the heap's state has no branch"))?;
        self.shared.queue.lock().take_machine(machine.number());
        Ok((machine, RunOrigin::Made))
    }

    fn made_for(&self, own: &RunningExecution) -> Result<Arc<Machine>> {
        let FoundTemplate { digest, has_program } = self.template_for_run(&own.run)?;
        own.is_resident.store(has_program, Ordering::Relaxed);
        let new = own.run.new_machine(&own.info.execution_id, digest);
        Ok(match own.run.mode.keeps_heap() {
            true => self.host.create(&own.account, new)?,
            false => self.host.create_temporary(&own.account, new)?,
        })
    }

    /// Sets a machine's memory, if the run requests another amount.
    fn resize(&self, machine: &Arc<Machine>, memory_mb: Option<u64>) -> Result<()> {
        if memory_mb.is_none() {
            return Ok(());
        }
        let now = machine.describe().limits;
        if memory_mb == now.memory_mb {
            return Ok(());
        }
        let limits = Some(Limits { memory_mb, ..now });
        Ok(self.host.update(machine, Update { limits, ..Update::default() })?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_run() {
        let status = |request: V8RunRequest| request.check().expect_err("refused").status;
        let run = V8RunRequest::default;
        let text = |text: &str| Some(text.to_owned());
        let long = Some(" ".repeat(LONGEST_CODE + 1));
        assert_eq!(status(V8RunRequest { code: long, ..run() }), 400);
        assert_eq!(status(V8RunRequest { execution_timeout_secs: Some(0), ..run() }), 400);
        assert_eq!(status(V8RunRequest { execution_timeout_secs: Some(3601), ..run() }), 400);
        assert_eq!(status(V8RunRequest { heap_memory_max_mb: Some(u64::MAX), ..run() }), 400);
        let heap = text(&"a".repeat(64));
        for mode in [V8Mode::Stateless, V8Mode::Files] {
            assert_eq!(status(V8RunRequest { heap: heap.clone(), mode, ..run() }), 400);
        }
        for mode in [V8Mode::Stateless, V8Mode::Heap] {
            assert_eq!(status(V8RunRequest { fs: text("main"), mode, ..run() }), 400);
        }
        assert!(V8RunRequest::default().check().is_ok_and(|run| run.code.is_empty()));
    }
}
