//! Instructions: run, look, cancel, and their results.

use crate::app::{App, Asker};
use crate::extract::{At, Input, Large, Params, Target};
use crate::failure::{Failure, Result};
use crate::follow::Follower;
use crate::streams::patient;
use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use stasis_api::{
    Accepted, Cancelled, Exec, ExecRequest, ExecResult, Instruction, InstructionList, Outputs,
    Range, ResultBody,
};
use stasis_machine::{Cause, Machine, Progress};
use std::sync::Arc;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Instructions on one page, and bytes after which it ends sooner.
const PAGE: u64 = 1000;
const PAGE_BYTES: usize = 32 << 20;
/// How many are read at a time: few, until it is known that they are short.
const FEW: u64 = 4;
const MANY: u64 = 250;
const SHORT: usize = 64 << 10;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(exec, list))
        .routes(routes!(get))
        .routes(routes!(wait))
        .routes(routes!(output))
        .routes(routes!(result))
        .routes(routes!(cancel))
}

/// Run code. The answer comes as soon as the instruction is accepted.
#[utoipa::path(post, path = "/v1/machine/{name}/exec", tag = "instructions",
    params(("name" = String, Path), ("idempotency-key" = Option<String>, Header)),
    request_body = ExecRequest, responses((status = 200, body = Accepted)))]
async fn exec(
    State(app): State<App>,
    Target(machine): Target,
    headers: HeaderMap,
    Input(request): Large<ExecRequest>,
) -> Result<Json<Accepted>> {
    let mut exec = request.exec()?;
    if let Some(key) = headers.get("idempotency-key") {
        let key = key.to_str().map_err(|_| Failure::invalid("idempotency-key is not text"))?;
        exec.idempotency_key = Some(key.to_owned());
    }
    let interrupted = exec.interrupt && machine.pending() > 0;
    let instruction_seq = submit(&app, &machine, exec, Asker::current().cause)?;
    Ok(Json(Accepted { instruction_seq, machine: machine.name(), interrupted }))
}

/// Gives an instruction to a machine; its number.
pub fn submit(app: &App, machine: &Arc<Machine>, exec: Exec, cause: Option<Cause>) -> Result<u64> {
    let seq = Cause::of(cause, || machine.submit(exec))?;
    app.metrics.instructions.inc();
    Ok(seq)
}

/// List instructions, oldest first. A page ends sooner when its results are large.
#[utoipa::path(get, path = "/v1/machine/{name}/exec", tag = "instructions",
    params(("name" = String, Path), Range), responses((status = 200, body = InstructionList)))]
async fn list(
    State(app): State<App>,
    Target(machine): Target,
    Params(range): Params<Range>,
) -> Result<Json<InstructionList>> {
    let from = range.from.min(u32::MAX.into());
    let limit = range.limit.unwrap_or(PAGE).clamp(1, PAGE);
    let instructions = app.block(move |_| page(&machine, from, limit)).await?;
    Ok(Json(InstructionList { instructions }))
}

/// As many as were asked for, as long as they are not too large together.
fn page(machine: &Machine, from: u64, limit: u64) -> stasis_machine::Result<Vec<Instruction>> {
    let (mut all, mut bytes, mut step) = (Vec::new(), 0, FEW);
    while (all.len() as u64) < limit && bytes < PAGE_BYTES {
        let next = all.last().map_or(from, |last: &Instruction| last.seq + 1);
        let some = machine.instructions(next, step.min(limit - all.len() as u64))?;
        if some.is_empty() {
            break;
        }
        let size = |one| serde_json::to_string(one).map_or(0, |text: String| text.len());
        let own: usize = some.iter().map(size).sum();
        step = if own < SHORT { MANY } else { FEW };
        bytes += own;
        all.extend(some);
    }
    Ok(all)
}

/// Look at an instruction as it is now.
#[utoipa::path(get, path = "/v1/machine/{name}/exec/{seq}", tag = "instructions",
    params(("name" = String, Path), ("seq" = u64, Path)),
    responses((status = 200, body = Instruction)))]
async fn get(at: At) -> Result<Json<Instruction>> {
    Ok(Json(at.machine.instruction(at.seq)?))
}

/// Wait for an instruction's end, and get all that is known of it.
#[utoipa::path(get, path = "/v1/machine/{name}/exec/{seq}/wait", tag = "instructions",
    params(("name" = String, Path), ("seq" = u64, Path)),
    responses((status = 200, body = Instruction)))]
async fn wait(State(app): State<App>, at: At) -> Result<Response> {
    let follower = Follower::of_end(app.clone(), at.machine, at.seq);
    patient(app, follower, serde_json::to_string).await
}

/// Output from a number on, as much as there is now.
#[utoipa::path(get, path = "/v1/machine/{name}/exec/{seq}/output", tag = "instructions",
    params(("name" = String, Path), ("seq" = u64, Path), Range),
    responses((status = 200, body = Outputs)))]
async fn output(at: At, Params(range): Params<Range>) -> Result<Json<Outputs>> {
    let from = range.from.min(u32::MAX.into());
    Ok(Json(match at.machine.follow(at.seq, from)? {
        Progress::Chunks(chunks) => {
            let chunks: Vec<_> = match range.limit {
                Some(limit) => chunks.into_iter().take(limit as usize).collect(),
                None => chunks,
            };
            let end = chunks.last().map_or(from, |chunk| chunk.seq + 1);
            let over = matches!(at.machine.follow(at.seq, end)?, Progress::Over(_));
            Outputs { chunks, over }
        }
        Progress::Over(_) => Outputs { chunks: Vec::new(), over: true },
        Progress::Wait(_) => Outputs { chunks: Vec::new(), over: false },
    }))
}

/// Wait for an instruction's end, and get its result in foreverVM's form.
#[utoipa::path(get, path = "/v1/machine/{name}/exec/{seq}/result", tag = "instructions",
    params(("name" = String, Path), ("seq" = u64, Path)),
    responses((status = 200, body = ResultBody)))]
async fn result(State(app): State<App>, at: At) -> Result<Response> {
    let follower = Follower::of_end(app.clone(), at.machine, at.seq);
    patient(app, follower, |instruction| {
        let (seq, result) = (instruction.seq, ExecResult::from(instruction));
        let body = ResultBody { instruction_id: seq, instruction_seq: seq, result };
        serde_json::to_string(&body)
    })
    .await
}

/// Take an instruction out of the queue before it runs.
#[utoipa::path(post, path = "/v1/machine/{name}/exec/{seq}/cancel", tag = "instructions",
    params(("name" = String, Path), ("seq" = u64, Path)),
    responses((status = 200, body = Cancelled)))]
async fn cancel(at: At) -> Result<Json<Cancelled>> {
    at.machine.instruction(at.seq)?;
    Ok(Json(Cancelled { cancelled: at.machine.cancel(at.seq)? }))
}
