//! The scenarios of all SDKs, with the Rust SDK. Its arguments are the names of the scenarios.

mod branches;
mod local;
mod service;

use stasis_sdk::types::{
    BranchRequest, Durability, FileChange, Filter, NewMachine, Status, Update,
};
use stasis_sdk::{
    Client, Error, Exec, Kind, Machine, Result, Retry, StreamExt, Streamed, StreamedResult,
};
use std::collections::BTreeMap;
use std::time::Duration;

const HTML: &str = "class Bold:\n    def _repr_html_(self): return '<b>x</b>'\n";
const LONG: &str = "for n in range(6000): print(' ' * 1000 + 'line', n)";
/// Goes on when there is a file `go`.
const GATED: &str = "import os, time\nprint(0)\nwhile not os.path.exists('go'): time.sleep(0.01)\n";
const SPIN: &str = "x = 7\nprint('on')\nwhile True: pass";

#[tokio::main]
async fn main() -> Result<()> {
    let client = Client::from_env()?;
    for name in std::env::args().skip(1) {
        scenario(&client, &name).await?;
        println!("ok {name}");
    }
    Ok(())
}

async fn scenario(client: &Client, name: &str) -> Result<()> {
    match name {
        "who" => who(client).await,
        "discovery" => local::discovery(),
        "machines" => machines(client).await,
        "pages" => pages(client).await,
        "state" => state(client).await,
        "output" => output(client).await,
        "rich results" => rich_results(client).await,
        "failures" => failures(client).await,
        "timeouts" => timeouts(client).await,
        "interrupt" => interrupt(client).await,
        "cancel" => cancel(client).await,
        "waiting" => waiting(client).await,
        "stopped waiting" => stopped_waiting(client).await,
        "idempotency" => idempotency(client).await,
        "lost answers" => lost_answers(client).await,
        "broken streams" => broken_streams(client).await,
        "history" => history(client).await,
        "branches" => branches::branches(client).await,
        "the past" => the_past(client).await,
        "compare and adopt" => branches::compare_and_adopt(client).await,
        "promote" => branches::promote(client).await,
        "vary" => branches::vary(client).await,
        "explore" => branches::explore(client).await,
        "attempts" => branches::attempts(client).await,
        "variables" => variables(client).await,
        "files" => files(client).await,
        "directories" => local::directories(client).await,
        "watching" => watching(client).await,
        "artifacts" => artifacts(client).await,
        "transcript" => transcript(client).await,
        "refusals" => service::refusals(client).await,
        "events" => service::events(client).await,
        "moving" => service::moving(client).await,
        "templates" => service::templates(client).await,
        "tokens" => service::tokens(client).await,
        "approvals" => service::approvals(client).await,
        "store" => service::store(client).await,
        "forevervm" => forevervm(client).await,
        other => panic!("no scenario {other}"),
    }
}

async fn fresh(client: &Client) -> Result<Machine> {
    client.create_machine(NewMachine::default()).await
}

fn tags(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
}

async fn value(machine: &Machine, code: &str) -> Result<String> {
    Ok(machine.run(code).await?.check()?.value().unwrap_or_default().to_owned())
}

async fn all<T>(mut items: Streamed<T>) -> Result<Vec<T>> {
    let mut found = Vec::new();
    while let Some(item) = items.next().await {
        found.push(item?);
    }
    Ok(found)
}

async fn first<T>(mut items: Streamed<T>) -> Result<T> {
    items.next().await.expect("something comes")
}

fn refused<T>(result: Result<T>, kind: Kind) -> Error {
    let error = result.err().expect("a refusal");
    assert_eq!(error.kind(), Some(kind), "{error}");
    error
}

async fn who(client: &Client) -> Result<()> {
    assert_eq!(client.whoami().await?.account, "root");
    assert!(client.health().await?.templates_ready);
    Ok(())
}

async fn listed(client: &Client, tags: &BTreeMap<String, String>) -> Result<Vec<String>> {
    let filter = Filter { tags: tags.clone(), ..Filter::default() };
    Ok(all(client.list_machines(filter)).await?.into_iter().map(|info| info.name).collect())
}

async fn machines(client: &Client) -> Result<()> {
    let one = fresh(client).await?;
    let suite = tags(&[("suite", one.name())]);
    one.update(&Update { tags: Some(suite.clone()), ..Update::default() }).await?;
    let (name, both) =
        (format!("rs-{}", &one.name()[..8]), tags(&[("suite", one.name()), ("n", "2")]));
    let new = NewMachine { name: Some(name.clone()), tags: both.clone(), ..Default::default() };
    let two = client.create_machine(NewMachine { memory_mb: Some(512), ..new }).await?;
    assert_eq!(listed(client, &suite).await?, [name.as_str(), one.name()]);
    assert_eq!(listed(client, &both).await?, [name.as_str()]);
    let info = client.get_machine(&name).await?.info().await?;
    assert_eq!(info.limits.memory_mb, Some(512));
    one.run("x = 1").await?;
    assert!(!one.swap().await?.running);
    assert!(one.wake().await?.running);
    assert_eq!(value(&one, "x").await?, "1");
    one.remove().await?;
    two.remove().await?;
    assert!(listed(client, &suite).await?.is_empty());
    Ok(())
}

async fn pages(client: &Client) -> Result<()> {
    let machine = fresh(client).await?;
    let tags = tags(&[("page", machine.name())]);
    let request = BranchRequest { count: Some(3), tags: tags.clone(), ..Default::default() };
    machine.branches(request).await?;
    let filter = Filter { tags, limit: Some(2), ..Filter::default() };
    let found = all(client.list_machines(filter)).await?;
    assert_eq!(found.len(), 3);
    for info in found {
        client.machine(info.name).remove().await?;
    }
    machine.remove().await
}

async fn state(client: &Client) -> Result<()> {
    let machine = fresh(client).await?;
    let nothing = machine.run("x = 41").await?;
    assert!(nothing.is_ok() && nothing.value().is_none());
    assert_eq!(nothing.address(), format!("{}@0", machine.name()));
    assert_eq!(value(&machine, "x + 1").await?, "42");
    assert_eq!(value(&machine, "'text'").await?, "'text'");
    machine.remove().await
}

async fn output(client: &Client) -> Result<()> {
    let code = "import sys\nfor i in range(3): print('line', i, 'é漢🦀')\n\
                print('bad', file=sys.stderr)\nprint()";
    let machine = fresh(client).await?;
    let mut seen = Vec::new();
    let result = machine.run(code).on_output(|chunk| seen.push(chunk.clone())).await?;
    assert_eq!(seen.iter().map(|chunk| chunk.seq).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    let lines: String = (0..3).map(|i| format!("line {i} é漢🦀\n")).collect();
    assert_eq!(result.stdout(), lines + "\n");
    assert_eq!((result.stderr().as_str(), &result.output), ("bad\n", &seen));
    let slow = machine.exec(format!("{GATED}for i in range(1, 4): print(i)")).await?;
    assert_eq!(first(slow.output()).await?.data, "0");
    assert_eq!(slow.info().await?.status, Status::Running);
    machine.files().write("go", "").await?;
    let lines: Vec<String> =
        all(slow.output()).await?.into_iter().map(|chunk| chunk.data).collect();
    assert_eq!(lines, ["0", "1", "2", "3"]);
    machine.remove().await
}

async fn rich_results(client: &Client) -> Result<()> {
    let machine = fresh(client).await?;
    let result = machine.run(format!("{HTML}print('a')\ndisplay(Bold())\nBold()")).await?;
    assert_eq!(result.data().expect("data")["text/html"], "<b>x</b>");
    assert_eq!(result.shown()[0].data["text/html"], "<b>x</b>");
    assert_eq!(result.shown()[0].after, 1);
    let plot = "import matplotlib.pyplot as plt\n_ = plt.plot([1, 2]); plt.show()";
    assert!(machine.run(plot).await?.png().expect("a picture").starts_with("iVBORw0KGgo"));
    machine.remove().await
}

async fn failures(client: &Client) -> Result<()> {
    let machine = fresh(client).await?;
    machine.run("x = 7").await?;
    let result = machine.run("1 / 0").await?;
    assert!(!result.is_ok() && result.value().is_none());
    let Err(Error::Instruction(failure)) = result.check() else { panic!("it is no success") };
    assert_eq!(failure.name, "ZeroDivisionError");
    assert!(failure.traceback.contains("division by zero"));
    assert_eq!(value(&machine, "x").await?, "7");
    machine.remove().await
}

async fn timeouts(client: &Client) -> Result<()> {
    let machine = fresh(client).await?;
    machine.run("x = 7").await?;
    let short = Exec::new("while True: pass").timeout(Duration::from_millis(300));
    let result = machine.run(short).await?;
    assert_eq!(result.status(), Status::Interrupted);
    assert_eq!(result.error().expect("an error").name, "TimeoutError");
    assert_eq!(machine.run(Exec::new("x").no_timeout()).await?.value(), Some("7"));
    machine.remove().await
}

async fn interrupt(client: &Client) -> Result<()> {
    let machine = fresh(client).await?;
    assert!(!machine.interrupt().await?);
    let instruction = machine.exec(SPIN).await?;
    first(instruction.output()).await?;
    assert!(machine.interrupt().await?);
    assert_eq!(instruction.result().await?.status(), Status::Interrupted);
    machine.exec("while True: pass").await?;
    let replaced = machine.exec(Exec::new("x").interrupt()).await?;
    assert!(replaced.interrupted());
    assert_eq!(replaced.result().await?.value(), Some("7"));
    machine.remove().await
}

async fn cancel(client: &Client) -> Result<()> {
    let machine = fresh(client).await?;
    let (runs, waits) = (machine.exec(SPIN).await?, machine.exec("x = 1").await?);
    first(runs.output()).await?;
    assert!(waits.cancel().await?);
    assert_eq!(waits.result().await?.status(), Status::Cancelled);
    assert!(!runs.cancel().await?);
    runs.stop().await?;
    assert_eq!(runs.result().await?.status(), Status::Interrupted);
    machine.remove().await
}

async fn waiting(client: &Client) -> Result<()> {
    let machine = fresh(client).await?;
    let instruction = machine.exec(format!("{GATED}5")).await?;
    let error = instruction.wait(Duration::from_millis(300)).await.expect_err("too early");
    assert!(error.code() == "client.wait_timeout" && error.hint().is_some());
    machine.files().write("go", "").await?;
    assert_eq!(instruction.result().await?.value(), Some("5"));
    machine.remove().await
}

async fn stopped_waiting(client: &Client) -> Result<()> {
    let machine = fresh(client).await?;
    let (tell, told) = tokio::sync::oneshot::channel::<()>();
    let mut tell = Some(tell);
    let on_output = move |_: &_| drop(tell.take());
    let run = machine.run(SPIN).on_output(on_output).until(async { drop(told.await) });
    assert_eq!(run.await.expect_err("stopped").code(), "client.stopped");
    let end = machine.instruction(0).result().await?;
    assert_eq!(end.status(), Status::Interrupted);
    assert_eq!(value(&machine, "x").await?, "7");
    machine.remove().await
}

async fn idempotency(client: &Client) -> Result<()> {
    let machine = fresh(client).await?;
    machine.run("x = 0").await?;
    let exec = Exec::new("x += 1").idempotency_key(machine.name());
    let one = machine.exec(exec.clone()).await?;
    let again = machine.exec(exec).await?;
    assert_eq!(one.seq(), again.seq());
    assert_eq!(value(&machine, "x").await?, "1");
    machine.remove().await
}

/// The same service, on a way that loses answers and breaks streams.
fn flaky() -> Result<Client> {
    let given = |name| std::env::var(name).expect("the suite says where the services are");
    Client::new(given("STASIS_FLAKY_URL"), given("STASIS_TOKEN"))
}

async fn lost_answers(client: &Client) -> Result<()> {
    let machine = fresh(&flaky()?).await?;
    machine.run("x = 0").await?;
    for _ in 0..4 {
        machine.run("x += 1").await?;
    }
    assert_eq!(value(&machine, "x").await?, "4");
    let machine = client.get_machine(machine.name()).await?;
    assert_eq!(machine.info().await?.instructions, 6);
    let retry = Retry { attempts: 2, ..Retry::default() };
    let dead = Client::builder().base_url("http://127.0.0.1:1").retry(retry).build()?;
    assert_eq!(dead.whoami().await.expect_err("nobody").code(), "service.unreachable");
    machine.remove().await
}

async fn broken_streams(client: &Client) -> Result<()> {
    let machine = fresh(&flaky()?).await?;
    let result = machine.run("for i in range(200): print(i, 'x' * 60)\n'over'").await?;
    let wanted: Vec<String> = (0..200).map(|i| format!("{i} {}", "x".repeat(60))).collect();
    assert!(result.output.iter().map(|chunk| &chunk.data).eq(&wanted));
    assert_eq!(result.value(), Some("'over'"));
    client.machine(machine.name()).remove().await
}

async fn history(client: &Client) -> Result<()> {
    let new = NewMachine { durability: Some(Durability::Local), ..NewMachine::default() };
    let machine = client.create_machine(new).await?;
    for i in 0..3 {
        machine.run(format!("x = {i}")).await?;
    }
    let seqs = async || -> Result<Vec<u64>> {
        Ok(machine.history().await?.iter().map(|point| point.seq).collect())
    };
    let mut patience = 6000;
    while seqs().await? != [0, 1, 2] {
        patience -= 1;
        assert!(patience > 0, "the history never was complete");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    machine.undo().await?;
    machine.redo().await?;
    machine.undo().await?;
    assert_eq!(value(&machine, "x").await?, "1");
    machine.rollback(Some(0)).await?;
    assert_eq!(value(&machine, "x").await?, "0");
    assert_eq!(machine.instruction(2).info().await?.rolled_back, Some(true));
    machine.rollback(None).await?;
    assert_eq!(machine.run("x").await?.error().expect("an error").name, "NameError");
    machine.remove().await
}

async fn the_past(client: &Client) -> Result<()> {
    let new = NewMachine { durability: Some(Durability::Local), ..NewMachine::default() };
    let machine = client.create_machine(new).await?;
    machine.run("x = 1; open('note', 'w').write('one')").await?;
    machine.run("x = 2; open('note', 'w').write('two')").await?;
    let labelled = machine.label(0, Some("first")).await?;
    assert_eq!(labelled[0].label.as_deref(), Some("first"));
    let past = machine.at(0);
    let before = past.variables().await?;
    assert!(before.iter().any(|one| one.name == "x" && one.repr == "1"));
    let home = value(&machine, "import os; os.getcwd()").await?.replace('\'', "");
    assert_eq!(all(past.read(&format!("{home}/note"))).await?.concat(), b"one");
    assert!(past.files(&home).await?.iter().any(|view| view.path.ends_with("note")));
    assert_eq!(machine.lineage().await?.tree.machine, machine.name());
    let families = client.lineage().await?;
    assert!(families.iter().any(|family| family.machine == machine.name()));
    assert!(machine.disk().await?.checkpoints >= 2);
    let changed = machine.history_with_files().await?.remove(1).files.expect("files");
    assert!(changed.names.iter().any(|name| name.ends_with("note")), "{changed:?}");
    assert!(machine.history().await?[1].files.is_none());
    machine.remove().await
}

async fn variables(client: &Client) -> Result<()> {
    let machine = fresh(client).await?;
    machine.run("numbers = [1, 2, 3]").await?;
    let all = machine.variables().await?;
    let found = all.iter().find(|one| one.name == "numbers").expect("a variable");
    assert_eq!((found.kind.as_str(), found.repr.as_str()), ("list", "[1, 2, 3]"));
    assert_eq!(machine.complete("numb", None).await?.names, ["numbers"]);
    machine.remove().await
}

async fn files(client: &Client) -> Result<()> {
    let machine = fresh(client).await?;
    let files = machine.files();
    let info = files.write_as("data/a.txt", "é\n", Some("600"), None).await?;
    assert_eq!(info.mode, "600");
    assert_eq!(value(&machine, "open('data/a.txt').read()").await?, "'é\\n'");
    assert_eq!(files.read_text("data/a.txt").await?, "é\n");
    assert_eq!(all(files.stream("data/a.txt", 2..3)).await?.concat(), b"\n");
    machine.run("open('data/b.bin', 'wb').write(bytes(range(256)) * 40)").await?;
    let large: Vec<u8> = (0..=255).cycle().take(256 * 40).collect();
    let far = flaky()?.machine(machine.name()).files();
    assert_eq!(far.read("data/b.bin").await?, large);
    let no_text = files.read_text("data/b.bin").await.expect_err("bytes");
    assert_eq!(no_text.code(), "client.file");
    assert_eq!(files.write("data/c.bin", large).await?.size, 256 * 40);
    let found = all(files.list("data")).await?;
    let names = found.iter().filter_map(|info| info.path.rsplit('/').next());
    assert!(names.eq(["a.txt", "b.bin", "c.bin"]), "{found:?}");
    files.remove("data/a.txt").await?;
    refused(files.stat("data/a.txt").await, Kind::NotFound);
    assert!(files.remove("data").await.expect_err("it is not empty").kind().is_some());
    files.remove_all("data").await?;
    refused(files.read("../secret").await, Kind::Invalid);
    machine.remove().await
}

async fn watching(client: &Client) -> Result<()> {
    let machine = fresh(client).await?;
    machine.files().write("seen/a", "1").await?;
    let mut changes = machine.files().watch("seen");
    assert_eq!(changes.next().await.expect("an event")?.kind, FileChange::Watching);
    machine.files().write("seen/b", "2").await?;
    while changes.next().await.expect("an event")?.name.as_deref() != Some("b") {}
    let mut below = machine.files().watch_all("seen");
    assert_eq!(below.next().await.expect("an event")?.kind, FileChange::Watching);
    machine.files().write("seen/deep/down/c", "3").await?;
    while below.next().await.expect("an event")?.name.as_deref() != Some("deep/down/c") {}
    machine.remove().await
}

async fn artifacts(client: &Client) -> Result<()> {
    let machine = fresh(client).await?;
    let result = machine.run(Exec::new(LONG).no_timeout()).await?;
    let artifact = &result.instruction.outcome.expect("an outcome").artifacts[0];
    assert_eq!(
        (artifact.name.as_str(), &machine.artifacts().await?[0].id),
        ("output", &artifact.id)
    );
    assert_eq!(all(machine.artifact(&artifact.id, 1000..1006)).await?.concat(), b"line 0");
    let whole = all(machine.artifact(&artifact.id, 0..u64::MAX)).await?.concat();
    assert!(whole.ends_with(b"line 5999\n"));
    machine.remove().await
}

async fn transcript(client: &Client) -> Result<()> {
    let machine = fresh(client).await?;
    for i in 0..3 {
        machine.run(i.to_string()).await?;
    }
    let listed = all(machine.instructions(0)).await?;
    let codes: Vec<(u64, &str)> = listed.iter().map(|one| (one.seq, &*one.code)).collect();
    assert_eq!(codes, [(0, "0"), (1, "1"), (2, "2")]);
    assert!(listed.iter().all(|one| one.status == Status::Done));
    assert_eq!(all(machine.instructions(1)).await?, listed[1..]);
    machine.remove().await
}

async fn forevervm(client: &Client) -> Result<()> {
    let instruction = client.exec("print(123) or 567", None).await?;
    let name = instruction.machine();
    assert_eq!(client.exec_result(name, 0).await?.value.as_deref(), Some("567"));
    let told = all(client.exec_result_stream(name, 0)).await?;
    let [StreamedResult::Output(line), StreamedResult::Result(end)] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!((line.data.as_str(), end.value.as_deref()), ("123", Some("567")));
    let repl = client.repl(None).await?;
    let asked = repl.exec("for i in range(2): print(i)\n'done'").await?;
    let lines = all(asked.output()).await?;
    assert!(lines.iter().map(|chunk| chunk.data.as_str()).eq(["0", "1"]));
    assert_eq!(asked.result().await?.value(), Some("'done'"));
    let again = client.repl(Some(repl.machine_name())).await?.exec("i").await?;
    assert_eq!(again.result().await?.value(), Some("1"));
    repl.machine().remove().await?;
    client.machine(name).remove().await
}
