//! Scenarios of the service itself: what it refuses, tells, takes in, and looks after.

use super::{all, first, flaky, fresh, refused, tags, value};
use crate::local::{Here, names};
use stasis_sdk::types::{
    ApprovalAnswer, ApprovalChoice, NewMachine, NewToken, ToolCall, ToolCallState,
};
use stasis_sdk::{Client, Error, Export, Kind, Result, StreamExt, Wanted};

pub async fn refusals(client: &Client) -> Result<()> {
    let error = refused(client.get_machine("nobody").await, Kind::NotFound);
    let Error::Api(error) = error else { unreachable!("it has a kind") };
    assert_eq!((error.code.as_str(), error.status), ("machine.not_found", 404));
    assert!(error.hint.is_some() && error.request_id.is_some());
    let machine = fresh(client).await?;
    let named = |name: &str| NewMachine { name: Some(name.into()), ..NewMachine::default() };
    refused(client.create_machine(named(machine.name())).await, Kind::Conflict);
    refused(client.create_machine(named("no/name")).await, Kind::Invalid);
    refused(machine.instruction(7).result().await, Kind::NotFound);
    refused(client.get_machine("..").await, Kind::Invalid);
    let url = std::env::var("STASIS_URL").expect("an address");
    refused(Client::new(url, "a.b")?.whoami().await, Kind::Unauthorized);
    machine.remove().await
}

pub async fn events(client: &Client) -> Result<()> {
    let far = flaky()?;
    let new = NewMachine { tags: tags(&[("of", "events")]), ..NewMachine::default() };
    let machine = far.create_machine(new).await?;
    for i in 0..12 {
        machine.run(i.to_string()).await?;
    }
    // over a connection that breaks: each is reported, in order, and once
    let kind = Some("instruction.finished".to_owned());
    let wanted = Wanted { kind, after: Some(0), ..Wanted::default() };
    let found = all(machine.events(wanted.clone()).take(12).boxed()).await?;
    assert!(found.iter().filter_map(|event| event.seq).eq(0..12), "{found:?}");
    assert!(found.is_sorted_by(|one, next| one.id < next.id), "{found:?}");
    let machine = client.machine(machine.name());
    let again = Wanted { after: Some(found[0].id - 1), ..wanted };
    assert_eq!(first(machine.events(again)).await?, found[0]);
    let after = Some(found[3].id - 1);
    let tagged = Wanted { tag: Some("of=events".into()), after, ..Wanted::default() };
    assert!(first(client.events(tagged)).await?.id >= found[3].id);
    machine.remove().await
}

pub async fn moving(client: &Client) -> Result<()> {
    let machine = fresh(client).await?;
    machine.run("x = 7").await?;
    let here = Here::new("moving");
    let file = here.0.join("machine");
    let small = Export { history: true, without_root: true };
    machine.export_to(&file, small).await?;
    assert_eq!(names(&here.0), ["machine"]);
    refused(client.import_from(&file, None).await, Kind::Conflict);
    let name = format!("{}-copy", machine.name());
    let copy = client.import_from(&file, Some(&name)).await?;
    assert_eq!(copy.name(), name);
    assert_eq!(all(copy.instructions(0)).await?[0].code, "x = 7");
    assert_eq!(value(&copy, "x").await?, "7");
    copy.remove().await?;
    let whole = all(machine.export(Export::default())).await?;
    let len: usize = whole.iter().map(Vec::len).sum();
    assert!(here.size("machine") < len as u64, "its template's files are in it");
    let name = format!("{}-piped", machine.name());
    let pieces = futures_util::stream::iter(whole.into_iter().map(Ok));
    let piped = client.import_machine(pieces, Some(&name)).await?;
    assert_eq!(value(&piped, "x + 1").await?, "8");
    piped.remove().await?;
    let nobody = client.machine("nobody").export_to(here.0.join("none"), small).await;
    refused(nobody, Kind::NotFound);
    assert_eq!(names(&here.0), ["machine"]);
    let missing = client.import_from(here.0.join("none"), None).await.expect_err("no file");
    assert_eq!(missing.code(), "client.file");
    let nothing = futures_util::stream::iter([Ok(b"no machine".to_vec())]);
    assert!(client.import_machine(nothing, None).await.expect_err("refused").kind().is_some());
    machine.remove().await
}

pub async fn templates(client: &Client) -> Result<()> {
    let listed = client.list_templates().await?;
    assert_eq!(client.get_template(&listed[0].name).await?, listed[0]);
    refused(client.get_template("none").await, Kind::NotFound);
    refused(client.remove_template("none").await, Kind::NotFound);
    let built = client.build_template("no recipe", |_| ()).await;
    assert!(built.expect_err("no recipe").kind().is_some());
    Ok(())
}

pub async fn tokens(client: &Client) -> Result<()> {
    let scopes = Some(vec!["machines".to_owned()]);
    let new = NewToken { name: Some("suite".into()), scopes, ..NewToken::default() };
    let made = client.create_token(&new).await?;
    assert!(client.list_tokens().await?.iter().any(|token| token.id == made.id));
    let other = Client::new(std::env::var("STASIS_URL").expect("an address"), made.token)?;
    assert_eq!(other.whoami().await?.scopes, ["machines"]);
    refused(other.list_tokens().await, Kind::Forbidden);
    client.revoke_token(&made.id).await?;
    refused(other.whoami().await, Kind::Unauthorized);
    Ok(())
}

pub async fn approvals(client: &Client) -> Result<()> {
    client.list_approvals(true).await?;
    refused(client.get_approval(1_000_000_000).await, Kind::NotFound);
    let network = Some("policy:asks".to_owned());
    let machine = client.create_machine(NewMachine { network, ..NewMachine::default() }).await?;
    let code = "import stasis\nstasis.tools.issues.delete_issue(4)";
    let allowed = machine.exec(code).await?;
    let call = waiting(client, machine.name()).await?;
    assert_eq!((call.tool.as_str(), call.seq), ("delete_issue", allowed.seq()));
    assert_eq!(client.get_approval(call.id).await?.arguments, "{\"number\":4}");
    let scopes = Some(vec!["machines".to_owned()]);
    let made = client.create_token(&NewToken { scopes, ..NewToken::default() }).await?;
    let other = Client::new(std::env::var("STASIS_URL").expect("an address"), made.token)?;
    let answer = |answer, note: &str| ApprovalAnswer { answer, note: Some(note.to_owned()) };
    let (allow, deny) = (answer(ApprovalChoice::Allow, ""), answer(ApprovalChoice::Deny, "no way"));
    refused(other.answer_approval(call.id, &allow).await, Kind::Forbidden);
    client.revoke_token(&made.id).await?;
    client.answer_approval(call.id, &allow).await?;
    assert_eq!(allowed.result().await?.value(), Some("'deleted 4'"));
    refused(client.answer_approval(call.id, &deny).await, Kind::Conflict);
    let denied = machine.exec(code).await?;
    let call = waiting(client, machine.name()).await?;
    client.answer_approval(call.id, &deny).await?;
    let said = denied.result().await?.error().expect("an error").message.clone();
    assert!(said.contains("no way"), "{said}");
    let states: Vec<_> = machine.calls().await?.into_iter().map(|call| call.state).collect();
    assert_eq!(states, [ToolCallState::Denied, ToolCallState::Completed]);
    machine.remove().await
}

/// The call of a machine that waits for a person.
async fn waiting(client: &Client, machine: &str) -> Result<ToolCall> {
    loop {
        let all = client.list_approvals(false).await?;
        if let Some(found) = all.into_iter().find(|call| call.machine == machine) {
            return Ok(found);
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

pub async fn store(client: &Client) -> Result<()> {
    assert!(client.store_stats().await?.images > 0);
    client.store_gc().await?;
    client.store_check(false).await?;
    Ok(())
}
