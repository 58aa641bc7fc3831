//! Instructions: run, inspect, cancel, answer, and their results.

use crate::app::{App, RequestOrigin};
use crate::extract::{Input, InstructionPath, LargeBody, MachinePath, Params, SmallBody};
use crate::failure::{HttpFailure, Result};
use crate::follow::Follower;
use crate::streams::keep_alive;
use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use stasis_api::{
    Accepted, Cancelled, Exec, ExecRequest, ExecResult, InputLine, InputTaken, Instruction,
    InstructionList, InstructionRange, Outputs, ResultBody,
};
use stasis_machine::{FollowUpdate, Machine, TraceContext};
use std::sync::Arc;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Maximum instructions on one page, and bytes after which it ends sooner.
const PAGE: u64 = 1000;
const PAGE_BYTES: usize = 32 << 20;
/// Instructions read at a time: few, until they are known to be short.
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
        .routes(routes!(give_input))
}

/// Run code. The answer comes as soon as the instruction is accepted.
#[utoipa::path(post, path = "/v1/machine/{name}/exec", tag = "instructions",
    params(("name" = String, Path), ("idempotency-key" = Option<String>, Header,
        pattern = "^[!-~]([\\t -~]{0,253}[!-~])?$")),
    request_body = ExecRequest, responses((status = 200, body = Accepted)))]
async fn exec(
    State(app): State<App>,
    MachinePath(machine): MachinePath,
    headers: HeaderMap,
    Input(request): LargeBody<ExecRequest>,
) -> Result<Json<Accepted>> {
    let mut exec = request.exec()?;
    if let Some(key) = headers.get("idempotency-key") {
        let key = key.to_str().map_err(|_| HttpFailure::invalid("idempotency-key is not text"))?;
        // the header takes precedence, but the body's key must be valid as well
        let own = exec.idempotency_key.replace(key.to_owned());
        if own.is_some_and(|own| !Exec::is_key(&own)) {
            return Err(HttpFailure::invalid("an idempotency key has 1 to 255 characters"));
        }
    }
    let interrupted = exec.interrupt && machine.pending() > 0;
    let instruction_seq = submit(&app, &machine, exec, RequestOrigin::current().cause).await?;
    Ok(Json(Accepted { instruction_seq, machine: machine.name(), interrupted }))
}

/// Submits an instruction to a machine; returns its number.
pub async fn submit(
    app: &App,
    machine: &Arc<Machine>,
    exec: Exec,
    cause: Option<TraceContext>,
) -> Result<u64> {
    let machine = machine.clone();
    app.on_record(move || TraceContext::of(cause, || machine.submit(exec))).await
}

/// List instructions, oldest first. A page ends sooner when its results are large.
#[utoipa::path(get, path = "/v1/machine/{name}/exec", tag = "instructions",
    params(("name" = String, Path), InstructionRange),
    responses((status = 200, body = InstructionList)))]
async fn list(
    State(app): State<App>,
    MachinePath(machine): MachinePath,
    Params(range): Params<InstructionRange>,
) -> Result<Json<InstructionList>> {
    let from = range.from.min(u32::MAX.into());
    let limit = range.limit.unwrap_or(PAGE).clamp(1, PAGE);
    let instructions = app.block(move |_| page(&machine, from, limit)).await?;
    Ok(Json(InstructionList { instructions }))
}

/// As many as requested, within a byte limit.
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

/// Describe an instruction as it is now.
#[utoipa::path(get, path = "/v1/machine/{name}/exec/{seq}", tag = "instructions",
    params(("name" = String, Path), ("seq" = u64, Path)),
    responses((status = 200, body = Instruction)))]
async fn get(State(app): State<App>, at: InstructionPath) -> Result<Json<Instruction>> {
    Ok(Json(app.on_record(move || at.machine.instruction(at.seq)).await?))
}

/// Wait for an instruction's end and describe it.
#[utoipa::path(get, path = "/v1/machine/{name}/exec/{seq}/wait", tag = "instructions",
    params(("name" = String, Path), ("seq" = u64, Path)),
    responses((status = 200, body = Instruction)))]
async fn wait(State(app): State<App>, at: InstructionPath) -> Result<Response> {
    let follower = Follower::of_end(app, at.machine, at.seq);
    keep_alive(follower, serde_json::to_string).await
}

/// Read the output so far, from a number on.
#[utoipa::path(get, path = "/v1/machine/{name}/exec/{seq}/output", tag = "instructions",
    params(("name" = String, Path), ("seq" = u64, Path), InstructionRange),
    responses((status = 200, body = Outputs)))]
async fn output(
    State(app): State<App>,
    at: InstructionPath,
    Params(range): Params<InstructionRange>,
) -> Result<Json<Outputs>> {
    Ok(Json(app.on_record(move || outputs(&at, &range)).await?))
}

fn outputs(at: &InstructionPath, range: &InstructionRange) -> stasis_machine::Result<Outputs> {
    let from = range.from.min(u32::MAX.into());
    Ok(match at.machine.follow(at.seq, from)? {
        FollowUpdate::Chunks(chunks) => {
            let chunks: Vec<_> = match range.limit {
                Some(limit) => chunks.into_iter().take(limit as usize).collect(),
                None => chunks,
            };
            let end = chunks.last().map_or(from, |chunk| chunk.seq + 1);
            let over = matches!(at.machine.follow(at.seq, end)?, FollowUpdate::Over(_));
            Outputs { chunks, over }
        }
        FollowUpdate::Over(_) => Outputs { chunks: Vec::new(), over: true },
        FollowUpdate::Wait(_) => Outputs { chunks: Vec::new(), over: false },
    })
}

/// Wait for an instruction's end and get its result in foreverVM's form.
#[utoipa::path(get, path = "/v1/machine/{name}/exec/{seq}/result", tag = "instructions",
    params(("name" = String, Path), ("seq" = u64, Path)),
    responses((status = 200, body = ResultBody)))]
async fn result(State(app): State<App>, at: InstructionPath) -> Result<Response> {
    let follower = Follower::of_end(app, at.machine, at.seq);
    keep_alive(follower, |instruction| {
        let (seq, result) = (instruction.seq, ExecResult::from(instruction));
        let body = ResultBody { instruction_id: seq, instruction_seq: seq, result };
        serde_json::to_string(&body)
    })
    .await
}

/// Cancel an instruction that has not started.
#[utoipa::path(post, path = "/v1/machine/{name}/exec/{seq}/cancel", tag = "instructions",
    params(("name" = String, Path), ("seq" = u64, Path)),
    responses((status = 200, body = Cancelled)))]
async fn cancel(State(app): State<App>, at: InstructionPath) -> Result<Json<Cancelled>> {
    let cancel = move || {
        at.machine.instruction(at.seq)?;
        at.machine.cancel(at.seq)
    };
    Ok(Json(Cancelled { cancelled: app.on_record(cancel).await? }))
}

/// Send a line of input to an instruction that waits for one; without a body, the end of input.
#[utoipa::path(post, path = "/v1/machine/{name}/exec/{seq}/input", tag = "instructions",
    params(("name" = String, Path), ("seq" = u64, Path)),
    request_body = Option<InputLine>, responses((status = 200, body = InputTaken)))]
async fn give_input(
    State(app): State<App>,
    at: InstructionPath,
    Input(given): SmallBody<InputLine>,
) -> Result<Json<InputTaken>> {
    let give = move || {
        at.machine.instruction(at.seq)?;
        at.machine.give_input(at.seq, given.line)
    };
    Ok(Json(InputTaken { taken: app.on_record(give).await? }))
}
