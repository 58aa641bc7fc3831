//! Branches over HTTP: created at once; results come together or as each branch finishes.

use crate::app::App;
use crate::extract::{Input, LargeBody, MachinePath};
use crate::failure::{HttpFailure, Result};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use stasis_api::{BranchEnd, BranchLine, BranchRequest, Branches, Name, Problem};
use stasis_machine::{Branch, BranchPlan, BranchResult, MAX_BRANCHES, Machine};
use std::convert::Infallible;
use std::sync::{Arc, mpsc};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

const LINES: &str = "application/x-ndjson";

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(branch))
}

/// Create machines that start from this one's state, and run code in each. With `stream`, the
/// answer is lines of JSON (`BranchLine`).
#[utoipa::path(post, path = "/v1/machine/{name}/branch", tag = "history",
    params(("name" = String, Path)), request_body = Option<BranchRequest>,
    responses((status = 200,
        content((Branches = "application/json"), (BranchLine = "application/x-ndjson")))))]
async fn branch(
    State(app): State<App>,
    MachinePath(machine): MachinePath,
    Input(request): LargeBody<BranchRequest>,
) -> Result<Response> {
    let stream = request.stream;
    let varied = varied(request)?;
    let (made, told) = app.block(move |host| host.branch_varied(&machine, varied)).await?;
    if stream {
        return Ok(lines(made, told));
    }
    let all = stasis_machine::block(move || {
        let mut ends: Vec<BranchEnd> = told.into_iter().map(end).collect();
        ends.sort_by_key(|end| end.index);
        let machines = made.iter().map(|machine| machine.describe()).collect();
        Branches { machines, ends }
    });
    let broke = |_| HttpFailure::internal("service.broken", "a handler failed");
    Ok(Json(all.await.map_err(broke)?).into_response())
}

fn varied(request: BranchRequest) -> Result<BranchPlan> {
    let timeout = stasis_api::timeout(request.timeout_seconds)?;
    let branch = Branch {
        seq: request.seq.map(u64::from),
        names: names(&request)?,
        tags: request.tags,
        reseed: request.reseed,
        network: request.network,
    };
    Ok(BranchPlan { branch, vary: request.vary, timeout })
}

/// An optional name for each requested branch.
fn names(request: &BranchRequest) -> Result<Vec<Option<Name>>> {
    let least = request.names.len().max(request.vary.len()).max(1);
    let count = request.count.map_or(least, |count| count as usize);
    if count < request.names.len() {
        let said = format!("{count} branches cannot have {} names", request.names.len());
        let failure = HttpFailure::about(Problem::Unprocessable, "branch.names", said);
        return Err(failure.hint("raise `count`, or send fewer `names`"));
    }
    let mut names: Vec<_> = request.names.iter().cloned().map(Some).collect();
    // one more than allowed is enough for a refusal
    names.resize(count.min(MAX_BRANCHES + 1), None);
    Ok(names)
}

fn end(ended: BranchResult) -> BranchEnd {
    let (index, machine) = (ended.index as u64, ended.machine.name());
    let blank = BranchEnd { index, machine, instruction: None, output: Vec::new(), error: None };
    match ended.instruction {
        Err(error) => BranchEnd { error: Some(HttpFailure::from(error).body()), ..blank },
        Ok(instruction) => {
            let output = ended.machine.outputs(instruction.seq, 0).unwrap_or_default();
            BranchEnd { instruction: Some(instruction), output, ..blank }
        }
    }
}

/// The branches, then each end as it arrives.
fn lines(made: Vec<Arc<Machine>>, told: mpsc::Receiver<BranchResult>) -> Response {
    let (tell, lines) = tokio::sync::mpsc::channel::<BranchLine>(64);
    tokio::spawn(stasis_machine::block(move || {
        let machines = made.iter().map(|machine| machine.describe()).collect();
        // ends when the client disconnects; the branches continue
        let all = std::iter::once(BranchLine::Branches { machines })
            .chain(told.into_iter().map(|ended| BranchLine::End(Box::new(end(ended)))))
            .chain(std::iter::once(BranchLine::Over));
        all.map(|line| tell.blocking_send(line)).all(|sent| sent.is_ok());
    }));
    let body = stream::unfold(lines, |mut lines| async {
        let line = lines.recv().await?;
        let text = serde_json::to_string(&line).unwrap_or_default() + "\n";
        Some((Ok::<_, Infallible>(text), lines))
    });
    ([(header::CONTENT_TYPE, LINES)], Body::from_stream(body)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(names: &[&str], count: Option<u32>) -> Option<usize> {
        let names = names.iter().map(|name| name.parse().expect("a name")).collect();
        let request = BranchRequest { names, count, ..Default::default() };
        super::names(&request).ok().map(|names| names.len())
    }

    #[test]
    fn how_many_branches() {
        assert_eq!(asked(&[], None), Some(1));
        assert_eq!(asked(&["a", "b"], None), Some(2));
        assert_eq!(asked(&["a"], Some(5)), Some(5));
        assert_eq!(asked(&["a", "b"], Some(1)), None);
        assert_eq!(asked(&[], Some(u32::MAX)), Some(MAX_BRANCHES + 1));
    }
}
