//! Drives the published `forevervm-sdk` through every call it has, against a service of ours.
//!
//!   forevervm-driver BASE_URL TOKEN INSTRUCTIONS
//!
//! On one thread: the client loses an acknowledgement that comes before it expects one, which only
//! happens between threads. Anything unexpected is a panic, which fails the test.

#![forbid(unsafe_code)]

use forevervm_sdk::api::api_types::{ExecResult, ExecResultType, Instruction};
use forevervm_sdk::api::http_api::{CreateMachineRequest, ListMachinesRequest};
use forevervm_sdk::api::id_types::{InstructionSeq, MachineName};
use forevervm_sdk::api::protocol::{MessageFromServer, StandardOutput, StandardOutputStream};
use forevervm_sdk::api::token::ApiToken;
use forevervm_sdk::client::ForeverVMClient;
use forevervm_sdk::client::error::ClientError;
use forevervm_sdk::client::repl::ReplConnection;
use futures_util::StreamExt;
use std::collections::HashMap;
use url::Url;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut args = std::env::args().skip(1);
    let base: Url = args.next().expect("an address").parse().expect("an address");
    let token = args.next().expect("a token");
    let count = args.next().and_then(|count| count.parse().ok()).expect("a number");
    let client = ForeverVMClient::new(base.clone(), ApiToken::new(token).expect("a token"));
    assert_eq!(*client.server_url(), base);
    assert_eq!(client.whoami().await.expect("whoami").account, "root");
    machines(&client).await;
    exec_and_result(&client).await;
    timeouts(&client).await;
    streams(&client).await;
    repl(&client).await;
    many_instructions(&client, count).await;
    many_lines(&client).await;
    failures(&client, base).await;
}

async fn make(client: &ForeverVMClient) -> MachineName {
    let made = client.create_machine(CreateMachineRequest::default()).await;
    made.expect("a machine").machine_name
}

fn tags(pairs: &[(&str, &str)]) -> HashMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

async fn machines(client: &ForeverVMClient) {
    let first = make(client).await;
    let own = tags(&[("client", "rust"), ("for", &first.0)]);
    let request = CreateMachineRequest { tags: own.clone(), memory_mb: Some(512) };
    let second = client.create_machine(request).await.expect("a machine").machine_name;
    let all = client.list_machines(ListMachinesRequest::default()).await.expect("a list").machines;
    let at = |name: &MachineName| all.iter().position(|one| one.name == *name).expect("listed");
    assert!(at(&second) < at(&first), "newest first");
    assert!(all[at(&first)].tags.is_empty() && all[at(&first)].expires_at.is_none());
    let request = ListMachinesRequest { tags: tags(&[("for", &first.0)]) };
    let some = client.list_machines(request).await.expect("a list").machines;
    assert_eq!(some.len(), 1);
    assert_eq!((&some[0].name, &some[0].tags), (&second, &own));
    assert!(!some[0].has_pending_instruction);
    let request = ListMachinesRequest { tags: tags(&[("for", "nobody")]) };
    assert!(client.list_machines(request).await.expect("a list").machines.is_empty());
}

async fn run(client: &ForeverVMClient, name: &MachineName, code: Instruction) -> ExecResultType {
    let accepted = client.exec_instruction(name, code).await.expect("accepted");
    assert_eq!(accepted.machine.as_ref(), Some(name));
    assert!(!accepted.interrupted);
    let seq = accepted.instruction_seq.expect("a number");
    let result = client.exec_result(name, seq).await.expect("a result");
    assert_eq!(result.instruction_id, seq);
    result.result.result
}

fn value(text: &str) -> ExecResultType {
    ExecResultType::Value { value: Some(text.to_owned()), data: None }
}

fn error(result: ExecResultType) -> String {
    match result {
        ExecResultType::Error { error } => error,
        other => panic!("{other:?}"),
    }
}

async fn exec_and_result(client: &ForeverVMClient) {
    let name = make(client).await;
    let first = client.exec_instruction(&name, Instruction::new("print(123) or 567")).await;
    let seq = first.expect("accepted").instruction_seq;
    assert_eq!(seq, Some(InstructionSeq(0)));
    let result = client.exec_result(&name, InstructionSeq(0)).await.expect("a result");
    assert_eq!(result.result.result, value("567"));
    let nothing = ExecResultType::Value { value: None, data: None };
    assert_eq!(run(client, &name, Instruction::new("x = 'kept'")).await, nothing);
    assert_eq!(run(client, &name, Instruction::new("x")).await, value("'kept'"));
    let failed = error(run(client, &name, Instruction::new("1 / 0")).await);
    assert!(failed.contains("ZeroDivisionError") && failed.contains("division by zero"));
}

async fn timeouts(client: &ForeverVMClient) {
    let name = make(client).await;
    run(client, &name, Instruction::new("from time import sleep")).await;
    let late = Instruction { code: "sleep(60)".into(), timeout_seconds: 1 };
    assert!(error(run(client, &name, late).await).contains("Timed out"));
    assert_eq!(run(client, &name, Instruction::new("sleep(0.01) or 1")).await, value("1"));
}

async fn streams(client: &ForeverVMClient) {
    let name = make(client).await;
    let code = "for i in range(10): print(i, 'é€😀')\n'done'";
    let accepted = client.exec_instruction(&name, Instruction::new(code)).await.expect("accepted");
    let seq = accepted.instruction_seq.expect("a number");
    // while it runs and after it ended
    for _ in 0..2 {
        let mut stream = client.exec_result_stream(&name, seq).await.expect("a stream");
        let mut chunks = Vec::new();
        let result = loop {
            match stream.next().await.expect("a line").expect("a message") {
                MessageFromServer::Output { chunk, instruction_id } => {
                    assert_eq!(instruction_id, seq);
                    chunks.push(chunk);
                }
                MessageFromServer::Result(result) => break result,
                other => panic!("{other:?}"),
            }
        };
        assert!(stream.next().await.is_none(), "the result is the last");
        assert_eq!(chunks, lines(10, |line| format!("{line} é€😀")));
        assert_eq!((result.instruction_id, result.result.result), (seq, value("'done'")));
    }
}

fn lines(count: i64, text: impl Fn(i64) -> String) -> Vec<StandardOutput> {
    let one = |seq: i64| {
        let stream = StandardOutputStream::Stdout;
        StandardOutput { stream, data: text(seq), seq: seq.into() }
    };
    (0..count).map(one).collect()
}

async fn told(repl: &mut ReplConnection, code: &str) -> (Vec<StandardOutput>, ExecResult) {
    let mut running = repl.exec(code).await.expect("accepted");
    let mut chunks = Vec::new();
    while let Some(chunk) = running.next().await {
        chunks.push(chunk);
    }
    (chunks, running.result().await.expect("a result"))
}

async fn repl(client: &ForeverVMClient) {
    let name = make(client).await;
    let mut repl = client.repl(&name).await.expect("a repl");
    assert_eq!(repl.machine_name, name);
    let (chunks, result) = told(&mut repl, "for i in range(5): print(i)\n'kept'").await;
    assert_eq!(chunks, lines(5, |line| line.to_string()));
    assert_eq!(result.result, value("'kept'"));
    let (chunks, _) = told(&mut repl, "import sys; print('no', file=sys.stderr)").await;
    assert_eq!(
        (chunks[0].stream.clone(), chunks[0].data.as_str()),
        (StandardOutputStream::Stderr, "no")
    );
    let failed = error(told(&mut repl, "1 / 0").await.1.result);
    assert!(failed.contains("ZeroDivisionError") && failed.contains("division by zero"));
    let late = Instruction { code: "import time; time.sleep(60)".into(), timeout_seconds: 1 };
    let late = repl.exec_instruction(late).await.expect("accepted").result().await;
    assert!(error(late.expect("a result").result).contains("Timed out"));
    told(&mut repl, "x = 'state'").await;
    drop(repl);
    let mut again = client.repl(&name).await.expect("a repl");
    assert_eq!(told(&mut again, "x").await.1.result, value("'state'"));
    let mut fresh = client.repl(&"new".to_owned().into()).await.expect("a repl");
    assert_ne!(fresh.machine_name.0, "new");
    assert_eq!(told(&mut fresh, "1 + 1").await.1.result, value("2"));
}

async fn many_instructions(client: &ForeverVMClient, count: u32) {
    let name = make(client).await;
    let mut repl = client.repl(&name).await.expect("a repl");
    for number in 0..count {
        let (chunks, result) = told(&mut repl, &format!("print({number}); {number}")).await;
        assert_eq!(chunks, lines(1, |_| number.to_string()), "{number}");
        assert_eq!(result.result, value(&number.to_string()));
    }
}

/// The client keeps fifty lines that were not read and drops the rest.
async fn many_lines(client: &ForeverVMClient) {
    let mut repl = client.repl(&make(client).await).await.expect("a repl");
    let (chunks, result) = told(&mut repl, "for i in range(2000): print(i)\n'all'").await;
    assert_eq!(chunks, lines(2000, |line| line.to_string()));
    assert_eq!(result.result, value("'all'"));
}

async fn failures(client: &ForeverVMClient, base: Url) {
    let nobody = MachineName("no-such-machine".into());
    let code = |error: ClientError| match error {
        ClientError::ApiError(error) => {
            assert!(error.id.is_some_and(|id| !id.is_empty()), "a request's id");
            error.code
        }
        other => panic!("{other:?}"),
    };
    let asked = client.exec_instruction(&nobody, Instruction::new("1")).await;
    assert_eq!(code(asked.expect_err("no machine")), "machine.not_found");
    let asked = client.exec_result_stream(&nobody, InstructionSeq(0)).await;
    assert_eq!(code(asked.err().expect("no machine")), "machine.not_found");
    let name = make(client).await;
    let asked = client.exec_result(&name, InstructionSeq(7)).await;
    assert_eq!(code(asked.expect_err("no instruction")), "instruction.not_found");
    let refused = client.repl(&nobody).await.err().expect("no machine");
    assert!(refused.to_string().contains("404"), "{refused}");
    let other = ForeverVMClient::new(base, ApiToken::new("a.b".into()).expect("a token"));
    assert_eq!(code(other.whoami().await.err().expect("no token")), "token.unknown");
    let refused = other.repl(&name).await.err().expect("no token");
    assert!(refused.to_string().contains("401"), "{refused}");
}
