//! Tools of upstream servers, called from code: the official MCP package serves them, and servers
//! that mean harm. `STASIS_TEST_CLIENTS` is a Python with that package.

mod forged;

use stasis_api::{
    ApprovalAnswer, ApprovalChoice, ApprovalQuery, Exec, NewMachine, PolicyVerdict, Status,
    Timeout, ToolCallInfo, ToolCallState,
};
use stasis_machine::{Branch, Error, Host, Machine, Steps, ToolServer};
use stasis_policy::document;
use stasis_testbed::{TestHost, data_dir_of, error_name, lines, run, settings, until, value};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tools/server.py");
const HOSTILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tools/hostile.py");

fn python() -> String {
    let python = std::env::var_os("STASIS_TEST_CLIENTS").expect("`make setup` prepares it");
    PathBuf::from(python).to_string_lossy().into_owned()
}

/// The servers of a test, and where calls are noted.
struct ToolBed {
    bed: TestHost,
    _notes: TempDir,
    log: PathBuf,
    servers: Vec<ToolServer>,
}

impl ToolBed {
    fn new() -> ToolBed {
        ToolBed::with("{}")
    }

    /// With further servers.
    fn with(more: &str) -> ToolBed {
        ToolBed::of(stasis_machine::DEFAULT_TEMPLATE, more)
    }

    /// With a template for another language.
    fn of(template: &str, more: &str) -> ToolBed {
        let notes = TempDir::new().expect("a directory");
        let log = notes.path().join("calls");
        let own = serde_json::json!({
            "command": python(), "args": [SERVER], "env": {"STASIS_TOOL_LOG": log},
        });
        let mut all: serde_json::Value = serde_json::from_str(more).expect("JSON");
        all["issues"] = own;
        let text = serde_json::json!({ "mcpServers": all }).to_string();
        let servers = ToolServer::read(&text, |_| None).expect("servers");
        let dir = data_dir_of(template);
        let mut all = settings(dir.path());
        all.tools = servers.clone();
        let host = Arc::new(Host::open(all).expect("open a host"));
        let bed = TestHost { host, dir };
        ToolBed { bed, _notes: notes, log, servers }
    }

    fn policy(&self, text: &str) {
        let document = document::parse(text).expect("a policy");
        self.bed.host.set_policy("tools".parse().expect("a name"), document).expect("set");
    }

    fn machine(&self, template: Option<&str>, network: &str) -> Arc<Machine> {
        let network = Some(network.parse().expect("a network"));
        let template = template.map(str::to_owned);
        let new = NewMachine { network, template, ..NewMachine::default() };
        self.bed.host.create("test", new).expect("a machine")
    }

    fn held(&self) -> Arc<Machine> {
        self.machine(None, "policy:tools")
    }

    /// What the server was asked to do.
    fn calls(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Ends the host as it would be ended from outside, and opens it again.
    fn reopen(self) -> ToolBed {
        let ToolBed { bed: TestHost { host, dir }, _notes, log, servers } = self;
        drop(host);
        let mut all = settings(dir.path());
        all.tools = servers.clone();
        let host = Arc::new(Host::open(all).expect("open it again"));
        ToolBed { bed: TestHost { host, dir }, _notes, log, servers }
    }
}

fn error(machine: &Arc<Machine>, code: &str) -> String {
    let end = run(machine, code);
    let outcome = end.outcome.unwrap_or_default();
    outcome.error.unwrap_or_else(|| panic!("{code}: {:?}", outcome.value)).message
}

#[test]
fn tools_are_functions() {
    let bed = ToolBed::new();
    let machine = bed.machine(None, "none");
    run(&machine, "import stasis, inspect; issues = stasis.tools.issues");
    assert_eq!(
        value(&machine, "issues.create_issue(title='a', labels=['x'])"),
        "{'labels': ['x'], 'number': 7, 'title': 'a'}"
    );
    assert_eq!(value(&machine, "issues.create_issue('b')['title']"), "'b'");
    assert_eq!(value(&machine, "issues.echo('é' * 3)"), "'ééé'");
    assert_eq!(value(&machine, "issues.environment()[0]").trim_matches('\''), "HOME");
    let shown = value(&machine, "str(inspect.signature(issues.create_issue))");
    assert_eq!(shown, "'(title: str, *, draft: bool = False, labels: list = Ellipsis)'");
    let doc = value(&machine, "issues.create_issue.__doc__");
    assert!(doc.contains("Create an issue.") && doc.contains("title (string, required)"), "{doc}");
    assert_eq!(value(&machine, "issues.class_()"), "{'result': 1}");
    assert!(value(&machine, "dir(issues)").contains("'echo'"));
    assert_eq!(value(&machine, "list(stasis.tools)"), "['issues']");
    let end = run(&machine, "issues.picture()");
    let data = end.outcome.and_then(|outcome| outcome.data).expect("a picture");
    assert!(data.contains_key("image/png"), "{data:?}");
    assert!(error(&machine, "issues.fail()").contains("it is broken"));
    assert!(error(&machine, "issues.create_issue()").contains("needs: title"));
    assert!(error(&machine, "issues.echo(text='a', other=1)").contains("no argument 'other'"));
    assert!(error(&machine, "issues.nothing").contains("no tool 'nothing'"));
    assert!(error(&machine, "stasis.tools.other").contains("there are: issues"));
    assert_eq!(bed.calls(), ["create_issue a", "create_issue b"]);
}

#[test]
fn tools_in_javascript() {
    let bed = ToolBed::of("javascript", "{}");
    let machine = bed.machine(Some("javascript"), "none");
    assert_eq!(
        value(&machine, "await stasis.tools.issues.create_issue({title: 'a', labels: ['x']})"),
        "{ labels: [ 'x' ], number: 7, title: 'a' }"
    );
    assert_eq!(value(&machine, "await stasis.tools.issues.echo({text: 'é'})"), "'é'");
    assert_eq!(value(&machine, "mcp.servers"), "[ 'issues' ]");
    let listed = value(&machine, "mcp.listTools('issues').map((one) => one.name).join()");
    assert!(listed.contains("create_issue") && listed.contains("slow"), "{listed}");
    let called = "(await mcp.callTool('issues', 'echo', {text: 'b'})).content[0].text";
    assert_eq!(value(&machine, called), "'b'");
    let failed = "let said; try { await mcp.callTool('issues', 'fail') } catch (error) { \
                  said = [error.name, error.serverName, error.toolName, error.result.isError] }; \
                  said";
    assert_eq!(value(&machine, failed), "[ 'McpToolError', 'issues', 'fail', true ]");
    let end = run(&machine, "await stasis.tools.issues.picture()");
    let data = end.outcome.and_then(|outcome| outcome.data).expect("a picture");
    assert!(data.contains_key("image/png"), "{data:?}");
    assert!(error(&machine, "await stasis.tools.issues.nothing()").contains("no tool 'nothing'"));
    let large = "await stasis.tools.issues.echo({text: 'x'.repeat(100 << 20)})";
    assert!(error(&machine, large).contains("1 MiB"));
    bed.policy(ASKS);
    let machine = bed.machine(Some("javascript"), "policy:tools");
    let code = "const kept = 5; const gone = await stasis.tools.issues.delete_issue({number: 5}); \
                gone + kept";
    let (seq, call) = ask(&bed, &machine, code);
    bed.bed.host.swap(&machine).expect("swapped out");
    answer(&bed, call.id, ApprovalChoice::Allow).expect("answered");
    assert_eq!(result(&machine, seq), "'deleted 55'");
    assert_eq!(value(&machine, "kept"), "5");
}

#[test]
fn errors_and_threads() {
    let bed = ToolBed::new();
    let machine = bed.machine(None, "none");
    run(&machine, "import stasis; issues = stasis.tools.issues; issues.echo('a')");
    let code = "
import threading, os
said = []
def call():
    try: issues.echo('x')
    except stasis.ToolError as error: said.append(str(error))
one = threading.Thread(target=call); one.start(); one.join()
if not os.fork():
    call(); os._exit(0 if 'child process' in said[-1] else 1)
said.append(os.wait()[1])
said";
    let said = value(&machine, code);
    assert!(said.contains("main thread") && said.ends_with(", 0]"), "{said}");
    let nested = error(&machine, "a = []\nfor _ in range(100000): a = [a]\nissues.echo(a)");
    assert!(nested.contains("nested deeper"), "{nested}");
    let large = error(&machine, "issues.echo('x' * (100 << 20))");
    assert!(large.contains("1 MiB"), "{large}");
    assert!(error(&machine, "issues.echo(object())").contains("JSON cannot hold"));
    // the agent is still there, and its answers fit their questions
    assert_eq!(value(&machine, "[issues.echo(str(n)) for n in range(3)]"), "['0', '1', '2']");
    let exec =
        Exec { code: "issues.slow(5)".into(), timeout: Timeout::Seconds(1.0), ..Exec::default() };
    let end = stasis_testbed::exec(&machine, exec);
    assert_eq!(end.status, Status::Interrupted);
    assert_eq!(value(&machine, "issues.echo('after')"), "'after'");
}

#[test]
fn servers_come_back_and_change() {
    let bed = ToolBed::new();
    let machine = bed.machine(None, "none");
    run(&machine, "import stasis; issues = stasis.tools.issues");
    assert_eq!(value(&machine, "issues.grow()"), "'grown'");
    assert_eq!(value(&machine, "issues.grown()"), "42");
    let said = error(&machine, "issues.crash()");
    assert!(said.contains("ended while `crash` was under way"), "{said}");
    // once: what was sent is not sent again
    assert_eq!(bed.calls(), ["crash"]);
    assert_eq!(value(&machine, "issues.echo('again')"), "'again'");
    assert!(error(&machine, "issues.grown()").contains("no tool"));
    let calls = bed.bed.host.tool_calls(&machine).expect("a history");
    let found: Vec<_> = calls.iter().rev().map(|call| (&*call.tool, call.state)).collect();
    let (done, failed) = (ToolCallState::Completed, ToolCallState::Failed);
    assert_eq!(found[..3], [("grow", done), ("grown", done), ("crash", failed)]);
}

#[test]
fn hostile_servers_are_bounded() {
    let one =
        |how: &str| serde_json::json!({"command": python(), "args": [HOSTILE, how], "timeout": 5});
    let all: serde_json::Map<_, _> =
        ["names", "many", "schema", "pages", "huge", "deep", "wide", "endless", "silent"]
            .iter()
            .map(|how| ((*how).to_owned(), one(how)))
            .collect();
    let bed = ToolBed::with(&serde_json::Value::Object(all).to_string());
    let machine = bed.machine(None, "none");
    run(&machine, "import stasis; tools = stasis.tools");
    assert_eq!(
        value(&machine, "sorted(dir(tools.names))"),
        "['class_', 'class__', 'def_', 'n1st', 'ok']"
    );
    assert!(error(&machine, "tools.names.a_b").contains("several tools"));
    assert_eq!(value(&machine, "tools.names['a.b'].__name__"), "'a_b'");
    assert_eq!(value(&machine, "len(list(tools.many))"), "1000");
    assert_eq!(value(&machine, "tools.schema.odd.__name__"), "'odd'");
    assert_eq!(value(&machine, "list(tools.pages)"), "['go']");
    for how in ["huge", "deep", "wide", "endless"] {
        let said = error(&machine, &format!("tools.{how}.go()"));
        assert!(said.contains("under way"), "{how}: {said}");
    }
    assert!(error(&machine, "tools.silent.go()").contains("did not answer within 5 s"));
    assert_eq!(value(&machine, "tools.issues.echo('well')"), "'well'");
}

#[test]
fn a_policy_judges_arguments() {
    let bed = ToolBed::new();
    bed.policy("[tools]\nallow = ['issues.echo', 'issues.create_issue title=ok*']");
    let machine = bed.held();
    run(&machine, "import stasis; issues = stasis.tools.issues");
    assert_eq!(value(&machine, "issues.echo('a')"), "'a'");
    assert_eq!(value(&machine, "issues.create_issue('okay')['number']"), "7");
    let end = run(&machine, "issues.create_issue('bad')");
    assert_eq!(error_name(&end), "ToolDenied");
    let said = error(&machine, "issues.delete_issue(1)");
    assert!(said.contains("is not allowed") && said.contains("`tools`"), "{said}");
    bed.policy("[tools]\nallow = ['issues.*']\ndeny = ['issues.delete_issue']");
    assert_eq!(value(&machine, "issues.create_issue('bad')['number']"), "7");
    assert!(error(&machine, "issues.delete_issue(1)").contains("deny"));
    assert_eq!(bed.calls(), ["create_issue okay", "create_issue bad"]);
    let calls = bed.bed.host.tool_calls(&machine).expect("a history");
    let denied = calls.iter().filter(|call| call.state == ToolCallState::Denied).count();
    assert_eq!(denied, 3);
}

#[test]
fn calls_have_a_budget() {
    let bed = ToolBed::new();
    bed.policy("[tools]\nallow = ['issues.*']\n[budget]\ntool_calls = 2");
    let machine = bed.held();
    run(&machine, "import stasis; issues = stasis.tools.issues");
    (0..2).for_each(|_| assert_eq!(value(&machine, "issues.echo('a')"), "'a'"));
    let said = error(&machine, "issues.create_issue('c')");
    assert!(said.contains("budget.tool_calls"), "{said}");
    let branch = Branch { names: vec![None], ..Branch::default() };
    let branch = bed.bed.host.branch(&machine, branch).expect("a branch");
    assert!(error(&branch[0], "issues.create_issue('c')").contains("budget"));
    assert!(bed.calls().is_empty(), "no issue was made");
}

const ASKS: &str = "[tools]\nallow = ['issues.*']\nask = ['issues.delete_issue']";
const DELETE: &str = "
import stasis
kept = [1, 2, 3]
print('before')
try:
    said = stasis.tools.issues.delete_issue(5)
except stasis.ToolDenied as error:
    said = 'denied: %s' % error
print('after')
(said, sum(kept))";

fn waiting(bed: &ToolBed) -> Vec<ToolCallInfo> {
    bed.bed.host.approvals("test", &ApprovalQuery::default()).expect("a list")
}

fn ask(bed: &ToolBed, machine: &Arc<Machine>, code: &str) -> (u64, ToolCallInfo) {
    let seq = machine.submit(Exec { code: code.into(), ..Exec::default() }).expect("submit");
    let own = |bed: &ToolBed| waiting(bed).into_iter().find(|call| call.seq == seq);
    until("a call waits", || own(bed).is_some());
    (seq, own(bed).expect("it waits"))
}

fn answer(bed: &ToolBed, id: u64, answer: ApprovalChoice) -> Result<ToolCallInfo, Error> {
    let note = Some("says Ada".to_owned());
    bed.bed.host.answer("test", id, "ada".into(), ApprovalAnswer { answer, note })
}

fn result(machine: &Arc<Machine>, seq: u64) -> String {
    let end = machine.wait(seq).expect("an end");
    let outcome = end.outcome.unwrap_or_default();
    outcome.value.unwrap_or_else(|| panic!("{:?} {:?}", end.status, outcome.error))
}

#[test]
fn a_person_allows_or_denies() {
    let bed = ToolBed::new();
    bed.policy(ASKS);
    let machine = bed.held();
    let (seq, call) = ask(&bed, &machine, DELETE);
    assert_eq!((call.verdict, call.state), (PolicyVerdict::Ask, ToolCallState::Waiting));
    assert_eq!(call.arguments, "{\"number\":5}");
    assert_eq!(bed.calls(), Vec::<String>::new());
    // another account has no such call
    let host = &bed.bed.host;
    let other = host.answer("other", call.id, "eve".into(), ApprovalAnswer::default());
    assert!(matches!(other, Err(Error::NoApproval(_))), "{other:?}");
    answer(&bed, call.id, ApprovalChoice::Allow).expect("answered");
    assert_eq!(result(&machine, seq), "('deleted 5', 6)");
    let twice = answer(&bed, call.id, ApprovalChoice::Deny).expect_err("answered already");
    assert_eq!(twice.code(), "approval.over");
    assert_eq!(bed.calls(), ["delete_issue 5"]);
    let (seq, call) = ask(&bed, &machine, DELETE);
    answer(&bed, call.id, ApprovalChoice::Deny).expect("answered");
    let said = result(&machine, seq);
    assert!(said.contains("ada denied it: says Ada"), "{said}");
    // an interrupt ends the wait, and the call with it
    let (seq, call) = ask(&bed, &machine, DELETE);
    machine.interrupt().expect("interrupted");
    assert_eq!(machine.wait(seq).expect("an end").status, Status::Interrupted);
    assert_eq!(host.approval("test", call.id).expect("kept").state, ToolCallState::Cancelled);
    let late = answer(&bed, call.id, ApprovalChoice::Allow).expect_err("it is over");
    assert_eq!(late.code(), "approval.over");
    assert_eq!(bed.calls(), ["delete_issue 5"]);
    assert_eq!(value(&machine, "sum(kept)"), "6");
}

#[test]
fn going_back_repeats_no_call() {
    let bed = ToolBed::new();
    bed.policy(ASKS);
    let machine = bed.held();
    let host = bed.bed.host.clone();
    run(&machine, "import stasis; issues = stasis.tools.issues; made = 0");
    run(&machine, "made = issues.create_issue('once')['number']");
    let (seq, call) = ask(&bed, &machine, DELETE);
    answer(&bed, call.id, ApprovalChoice::Allow).expect("answered");
    assert_eq!(result(&machine, seq), "('deleted 5', 6)");
    let once = ["create_issue once", "delete_issue 5"];
    let two = Steps { n: 2, grouped: false };
    host.undo(&machine, two).expect("undone");
    host.redo(&machine, two).expect("redone");
    assert_eq!(value(&machine, "made, said"), "(7, 'deleted 5')");
    for seq in [0, 1] {
        let from = Branch { seq: Some(seq), names: vec![None], ..Branch::default() };
        let branch = host.branch(&machine, from).expect("a branch").remove(0);
        assert_eq!(value(&branch, "made"), if seq == 0 { "0" } else { "7" });
        assert_eq!(host.tool_calls(&branch).expect("a history"), [], "it made none");
    }
    host.undo(&machine, Steps { n: 3, grouped: false }).expect("undone, with the question");
    assert_eq!(value(&machine, "made"), "0");
    // answering again after all that sends nothing
    assert!(answer(&bed, call.id, ApprovalChoice::Allow).is_err());
    assert_eq!(bed.calls(), once);
    // the calls took effect outside: they stay in the machine's history
    let calls = host.tool_calls(&machine).expect("a history");
    let found: Vec<_> = calls.iter().rev().map(|call| (&*call.tool, call.verdict)).collect();
    let (allow, ask) = (PolicyVerdict::Allow, PolicyVerdict::Ask);
    assert_eq!(found, [("create_issue", allow), ("delete_issue", ask)]);
    assert_eq!(calls[0].answered_by.as_deref(), Some("ada"));
    drop((machine, host));
    assert_eq!(bed.reopen().calls(), once);
}

#[test]
fn an_approval_outlives_swap_and_restart() {
    let bed = ToolBed::new();
    bed.policy(ASKS);
    let machine = bed.held();
    run(&machine, "import stasis; early = 'early'");
    let (seq, call) = ask(&bed, &machine, DELETE);
    let queued = machine.submit(Exec { code: "early + said".into(), ..Exec::default() });
    let queued = queued.expect("queued");
    bed.bed.host.swap(&machine).expect("swapped out");
    let name = machine.name();
    // a branch of the state before the instruction has not made the call
    let from = Branch { seq: Some(0), names: vec![None], ..Branch::default() };
    let branch = bed.bed.host.branch(&machine, from).expect("a branch");
    assert_eq!(value(&branch[0], "early, 'kept' in dir()"), "('early', False)");
    drop((machine, branch));
    let bed = bed.reopen();
    let machine = bed.bed.host.machine(name.as_str()).expect("it is there");
    assert_eq!(machine.instruction(seq).expect("on record").status, Status::Running);
    assert_eq!(waiting(&bed).len(), 1);
    assert_eq!(bed.calls(), Vec::<String>::new());
    answer(&bed, call.id, ApprovalChoice::Allow).expect("answered");
    assert_eq!(result(&machine, seq), "('deleted 5', 6)");
    assert_eq!(lines(&machine, seq, None), ["before", "after"]);
    assert_eq!(result(&machine, queued), "'earlydeleted 5'");
    assert_eq!(bed.calls(), ["delete_issue 5"]);
    assert!(answer(&bed, call.id, ApprovalChoice::Allow).is_err());
    // nothing continues from the image again
    drop(machine);
    let bed = bed.reopen();
    let machine = bed.bed.host.machine(name.as_str()).expect("it is there");
    assert_eq!(value(&machine, "early + said"), "'earlydeleted 5'");
    assert_eq!(bed.calls(), ["delete_issue 5"]);
}

#[test]
fn an_answer_that_came_while_nothing_ran_is_delivered() {
    let bed = ToolBed::new();
    bed.policy(ASKS);
    let machine = bed.held();
    let (seq, call) = ask(&bed, &machine, DELETE);
    bed.bed.host.swap(&machine).expect("swapped out");
    let name = machine.name();
    drop(machine);
    let dir: &Path = bed.bed.dir.path();
    let records = dir.join("records.db");
    let ToolBed { bed: TestHost { host, dir }, _notes, log, servers } = bed;
    drop(host);
    // the service was killed right after the answer was recorded
    let connection = rusqlite::Connection::open(records).expect("the records");
    let sql = "UPDATE tool_calls SET state = 'running', answered_by = 'ada' WHERE id = ?1";
    connection.execute(sql, [call.id as i64]).expect("changed");
    drop(connection);
    let mut all = settings(dir.path());
    all.tools = servers.clone();
    let host = Arc::new(Host::open(all).expect("open it again"));
    let bed = ToolBed { bed: TestHost { host, dir }, _notes, log, servers };
    let machine = bed.bed.host.machine(name.as_str()).expect("it is there");
    let end = machine.wait(seq).expect("an end");
    let said = end.outcome.and_then(|outcome| outcome.error).expect("an error").message;
    assert!(said.contains("may have taken effect"), "{said}");
    // perhaps sent, and never again
    assert_eq!(bed.calls(), Vec::<String>::new());
    let call = bed.bed.host.approval("test", call.id).expect("kept");
    assert_eq!(call.state, ToolCallState::Unknown);
}

#[test]
fn a_call_expires() {
    let bed = ToolBed::new();
    bed.policy(ASKS);
    let machine = bed.held();
    let (seq, call) = ask(&bed, &machine, DELETE);
    bed.bed.host.swap(&machine).expect("swapped out");
    let name = machine.name();
    drop(machine);
    let ToolBed { bed: TestHost { host, dir }, _notes, log, servers } = bed;
    drop(host);
    let connection = rusqlite::Connection::open(dir.path().join("records.db")).expect("records");
    let sql = "UPDATE tool_calls SET expires_ms = 1 WHERE id = ?1";
    connection.execute(sql, [call.id as i64]).expect("changed");
    drop(connection);
    let mut all = settings(dir.path());
    all.tools = servers.clone();
    let host = Arc::new(Host::open(all).expect("open it again"));
    let bed = ToolBed { bed: TestHost { host, dir }, _notes, log, servers };
    let machine = bed.bed.host.machine(name.as_str()).expect("it is there");
    let said = result(&machine, seq);
    assert!(said.contains("it was not answered in time"), "{said}");
    let late = answer(&bed, call.id, ApprovalChoice::Allow).expect_err("it is over");
    assert_eq!(late.code(), "approval.over");
    assert_eq!(bed.calls(), Vec::<String>::new());
}
