//! Scenarios of branches: made, compared, adopted from, promoted, explored.

use super::{all, fresh, tags, value};
use stasis_sdk::types::{AdoptRequest, BranchRequest, Change, ExploreRequest, NewMachine, Vary};
use stasis_sdk::{AttemptOptions, Client, Machine, Result};

pub async fn branches(client: &Client) -> Result<()> {
    let new = NewMachine { tags: tags(&[("a", "1")]), ..NewMachine::default() };
    let machine = client.create_machine(new).await?;
    machine.run("x = 7").await?;
    let request = BranchRequest { tags: tags(&[("b", "2")]), ..BranchRequest::default() };
    let one = machine.branches(request).await?.remove(0);
    let info = one.info().await?;
    assert_eq!(info.tags, tags(&[("a", "1"), ("b", "2")]));
    assert_eq!(info.parent.expect("a parent").machine, machine.name());
    let names = ["a", "b"].map(|end| format!("{}-{end}", machine.name())).to_vec();
    let several =
        machine.branches(BranchRequest { names: names.clone(), ..Default::default() }).await?;
    assert!(several.iter().map(Machine::name).eq(&names));
    one.run("x = 8").await?;
    machine.run("x += 2").await?;
    let early = machine.branches(BranchRequest { seq: Some(0), ..Default::default() }).await?;
    let mut values = Vec::new();
    for machine in [&machine, &one, &several[0], &several[1], &early[0]] {
        values.push(value(machine, "x").await?);
        machine.remove().await?;
    }
    assert_eq!(values, ["9", "8", "7", "7", "7"]);
    Ok(())
}

pub async fn compare_and_adopt(client: &Client) -> Result<()> {
    let machine = fresh(client).await?;
    machine.run("x = 1").await?;
    let branch = machine.branch().await?;
    branch.run("y = 5").await?;
    let found = client.compare(machine.name(), branch.name()).await?.variables;
    assert!(found.len() == 1 && found[0].name == "y" && found[0].change == Change::Added);
    let variables = vec!["y".to_owned()];
    let from = branch.name().to_owned();
    let request = AdoptRequest { from, variables: variables.clone(), ..AdoptRequest::default() };
    assert_eq!(machine.adopt(&request).await?.variables, variables);
    assert_eq!(value(&machine, "x + y").await?, "6");
    branch.remove().await?;
    machine.remove().await
}

pub async fn promote(client: &Client) -> Result<()> {
    let machine = fresh(client).await?;
    machine.run("x = 1").await?;
    let branch = machine.branch().await?;
    branch.run("x = 2").await?;
    let (promoted, former) = branch.promote(None).await?;
    assert_eq!((promoted.name(), former.name()), (machine.name(), branch.name()));
    assert_eq!(value(&machine, "x").await?, "2");
    assert_eq!(value(&former, "x").await?, "1");
    former.remove().await?;
    machine.remove().await
}

pub async fn vary(client: &Client) -> Result<()> {
    let machine = fresh(client).await?;
    machine.run("x = 1").await?;
    let set = Vary { variables: [("x".to_owned(), 10.into())].into(), ..Vary::from("x") };
    let vary = vec![Vary::from("x += 1; x"), set, Vary::from("1 / 0")];
    let request = BranchRequest { vary, ..BranchRequest::default() };
    let mut ends = all(machine.vary(request).await?).await?;
    ends.sort_by_key(|end| end.index);
    let outcomes = ends.iter().filter_map(|end| end.instruction.as_ref()?.outcome.as_ref());
    let outcomes: Vec<_> = outcomes.collect();
    let values: Vec<_> = outcomes.iter().map(|outcome| outcome.value.as_deref()).collect();
    assert_eq!(values, [Some("2"), Some("10"), None]);
    assert_eq!(outcomes[2].error.as_ref().expect("an error").name, "ZeroDivisionError");
    for end in &ends {
        client.machine(&end.machine).remove().await?;
    }
    machine.remove().await
}

pub async fn explore(client: &Client) -> Result<()> {
    let machine = fresh(client).await?;
    machine.run("x = 1").await?;
    let candidates = ["x = 3", "x = 7", "1 / 0"].map(Vary::from).to_vec();
    let request = ExploreRequest { candidates, score: "x".into(), ..ExploreRequest::default() };
    let found = machine.explore(&request).await?;
    assert_eq!(found.best.expect("a winner").name, machine.name());
    assert_eq!(value(&machine, "x").await?, "7");
    let scores: Vec<_> = found.candidates.iter().map(|one| one.score).collect();
    assert_eq!(scores, [Some(3.0), Some(7.0), None]);
    assert!(found.former.is_none());
    machine.remove().await
}

pub async fn attempts(client: &Client) -> Result<()> {
    let machine = fresh(client).await?;
    machine.run("x = 1").await?;
    let (_, former) = machine.attempt(async |branch| branch.run("x = 2").await).await?;
    assert_eq!(value(&machine, "x").await?, "2");
    assert!(former.is_none());
    let keep = AttemptOptions { keep: true, ..AttemptOptions::default() };
    let (_, former) = machine.attempt_with(keep, async |branch| branch.run("x = 5").await).await?;
    let former = former.expect("the machine as it was");
    assert_eq!((value(&former, "x").await?, value(&machine, "x").await?), ("2".into(), "5".into()));
    machine.run("x = 2").await?;
    former.remove().await?;
    let failed = machine.attempt(async |branch| {
        branch.run("x = 3").await?;
        branch.run("1 / 0").await?.check()
    });
    assert_eq!(failed.await.expect_err("it fails").code(), "instruction.failed");
    assert_eq!(value(&machine, "x").await?, "2");
    assert!(machine.lineage().await?.children.is_empty());
    machine.remove().await
}
