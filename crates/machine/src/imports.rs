//! Fetches for instructions: the modules they import, and typed files.
//!
//!   agent ── Fetch ──► driver ── policy? ──► a thread of its own ──► module store, parser
//!         ◄─ Fetched ──       ◄─ wake-up ──
//!
//! The machine's code can send any request, so an instruction has one request under way at a time,
//! and a bounded number of them. It gets bytes only of modules that an answer to the same
//! instruction named. A fetch that is still under way when its instruction ends is dropped when it
//! arrives. The instruction's timeout keeps running, and an interrupt ends the wait.

use crate::driver::Driver;
use crate::error::Result as HostResult;
use crate::host::HostInner;
use crate::machine::Machine;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use stasis_api::{ImportedModule, RefusedAccess};
use stasis_policy::decide::Access;
use stasis_policy::modules::ImportSource;
use stasis_policy::v8::V8Policies;
use stasis_protocol::{FetchAnswer, FetchRequest, Order, PreparedCode, PreparedModule};
use stasis_template::PinnedModule;
use std::collections::HashSet;
use std::sync::Arc;

/// Maximum requests of one instruction: pieces of 1 MiB, modules and files.
const MOST: u32 = 4000;
/// Maximum characters of a refused name in its event.
const LONGEST_TOLD: usize = 200;
/// Maximum modules named in one receipt.
const MOST_NAMED: usize = 1000;

/// Fetches of the running instruction.
#[derive(Debug, Default)]
pub(crate) struct InstructionImports {
    asked: u32,
    /// Whether a refusal was reported; one instruction reports one.
    told_refusal: bool,
    /// The unanswered request.
    waits_for: Option<u64>,
    /// Hashes of the blobs named in answers.
    granted: HashSet<String>,
    pub modules: Vec<ImportedModule>,
}

/// The answer to a request, from the thread that fetched it.
#[derive(Debug)]
pub(crate) struct FetchResult {
    id: u64,
    answer: FetchAnswer,
    granted: Vec<String>,
    modules: Vec<PinnedModule>,
}

impl FetchResult {
    fn new(id: u64, answer: FetchAnswer) -> FetchResult {
        FetchResult { id, answer, granted: Vec::new(), modules: Vec::new() }
    }
}

fn refused(message: impl ToString) -> FetchAnswer {
    FetchAnswer::Refused { message: message.to_string() }
}

impl Driver {
    /// Accepts a request. A second one while the first is under way does not come from the agent,
    /// which waits, and gets no answer.
    pub(crate) fn fetch(&mut self, seq: u64, id: u64, what: FetchRequest) {
        if self.imports.waits_for.is_some() {
            return;
        }
        (self.imports.waits_for, self.imports.asked) = (Some(id), self.imports.asked + 1);
        if let Err(message) = self.may_fetch(&what) {
            return self.machine.take_fetched(seq, FetchResult::new(id, refused(message)));
        }
        let (machine, host) = (self.machine.clone(), self.host.clone());
        let fetch = move || {
            let result = fetched(&host, &machine, id, what);
            machine.take_fetched(seq, result);
        };
        if let Err(message) = self.machine.helpers.spawn("stasis-fetch", fetch) {
            self.machine.take_fetched(seq, FetchResult::new(id, refused(message)));
        }
    }

    fn may_fetch(&mut self, what: &FetchRequest) -> Result<(), String> {
        if self.imports.asked > MOST {
            return Err(format!("an instruction has at most {MOST} requests to the host"));
        }
        match what {
            FetchRequest::Module { specifier } => {
                let source = ImportSource::of(specifier);
                let source = source.ok_or_else(|| "the host fetches no such name".to_owned())?;
                self.may_import(source, specifier)
            }
            FetchRequest::Piece { hash, .. } if !self.imports.granted.contains(hash) => {
                Err("no module of this instruction has these bytes".into())
            }
            FetchRequest::Piece { .. } | FetchRequest::Source { .. } => Ok(()),
        }
    }

    fn may_import(&mut self, source: ImportSource, specifier: &str) -> Result<(), String> {
        let decision = self.machine.decide(&Access::Import { source, specifier });
        if decision.is_allowed() {
            return Ok(());
        }
        let explained = decision.explain();
        let Some(policy) = explained.policy else { return Err(explained.reason) };
        let said = match self.machine.v8_policies() {
            // in mcp-v8's words
            Some((name, _)) if name == policy => V8Policies::import_denial(source, specifier),
            _ => format!("policy `{policy}` refuses the import: {}", explained.reason),
        };
        if !std::mem::replace(&mut self.imports.told_refusal, true) {
            let access = specifier.chars().take(LONGEST_TOLD).collect::<String>();
            self.machine.tell_refused(RefusedAccess {
                access: format!("import {access}"),
                verdict: explained.verdict,
                reason: explained.reason,
                policy: Some(policy),
                rule: explained.rule,
                unreported: 0,
            });
        }
        Err(said)
    }

    /// Delivers an available answer to the code.
    pub(crate) fn pass_fetched(&mut self, seq: u64) -> HostResult<()> {
        let come = self.machine.work().feed.as_mut().and_then(|feed| feed.fetched.take());
        let Some(FetchResult { id, answer, granted, modules }) = come else { return Ok(()) };
        let imports = &mut self.imports;
        if imports.waits_for != Some(id) {
            return Ok(());
        }
        imports.waits_for = None;
        imports.granted.extend(granted);
        for PinnedModule { name, integrity } in modules {
            let one = ImportedModule { name, integrity };
            if imports.modules.len() < MOST_NAMED && !imports.modules.contains(&one) {
                imports.modules.push(one);
            }
        }
        match &mut self.live {
            Some(live) => live.line.send(&Order::Fetched { seq, id, answer }),
            None => Ok(()),
        }
    }
}

impl Machine {
    /// Stores an answer for the driver, if the instruction is still running.
    fn take_fetched(&self, seq: u64, result: FetchResult) {
        let mut work = self.work();
        if let Some(feed) = work.feed.as_mut().filter(|feed| feed.seq == seq) {
            feed.fetched = Some(result);
            work.wake_driver();
        }
    }
}

/// Fetches a module or file, fairly between accounts.
fn fetched(
    host: &Arc<HostInner>,
    machine: &Arc<Machine>,
    id: u64,
    what: FetchRequest,
) -> FetchResult {
    let account = machine.account();
    match what {
        FetchRequest::Module { specifier } => {
            let _turn = host.turns.fetches.take(&account);
            match host.modules.import(&specifier) {
                Ok(found) => FetchResult {
                    id,
                    answer: found.answer,
                    granted: found.blobs,
                    modules: found.modules,
                },
                Err(error) => FetchResult::new(id, refused(error)),
            }
        }
        FetchRequest::Piece { hash, offset } => {
            let piece = host.modules.piece(&hash, offset);
            let piece = piece.map(|bytes| BASE64_STANDARD.encode(bytes));
            let answer = piece.map(|bytes| FetchAnswer::Piece { bytes }).unwrap_or_else(refused);
            FetchResult::new(id, answer)
        }
        FetchRequest::Source { text } => {
            let _turn = host.turns.parsers.take(&account);
            let programs = host.settings.spawner.parent();
            let made = programs.and_then(|dir| machine.language().prepare_file(dir, &text));
            let unreadable = || PreparedModule {
                code: PreparedCode::Refused {
                    message: "the types of the file could not be removed".into(),
                    line: 1,
                    column: 1,
                },
                is_module: false,
            };
            FetchResult::new(id, FetchAnswer::Source(made.unwrap_or_else(unreadable)))
        }
    }
}
