//! Templates: list, inspect, build, remove.

use crate::app::App;
use crate::auth::{Caller, Scope};
use crate::extract::{Input, PathParams, SmallBody};
use crate::failure::{HttpFailure, Result};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use stasis_api::{BuildLine, BuildTemplate, Problem, Removed, TemplateInfo, TemplateList};
use stasis_template::{Progress, Recipe};
use std::convert::Infallible;
use tokio::sync::mpsc;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Queued lines of progress for a slow reader; others are dropped.
const LINES: usize = 256;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(get, remove)).routes(routes!(build))
}

/// Whether a caller may see templates: it must be able to create machines from them, or to build
/// them.
fn may_look(caller: &Caller) -> Result<()> {
    if caller.may(Scope::Templates) {
        return Ok(());
    }
    caller.need(Scope::Machines)
}

/// A template as a caller may see it. The environment and the code of a recipe require the scope
/// `templates`.
fn shown(caller: &Caller, template: TemplateInfo) -> TemplateInfo {
    if caller.may(Scope::Templates) {
        return template;
    }
    let recipe = Recipe::parse(&template.recipe).map(|recipe| recipe.public().print());
    TemplateInfo { recipe: recipe.unwrap_or_default(), ..template }
}

/// List templates, newest first. Without the scope `templates`, recipes are shown without their
/// environment and code.
#[utoipa::path(get, path = "/v1/template", tag = "templates",
    responses((status = 200, body = TemplateList)))]
async fn list(State(app): State<App>, caller: Caller) -> Result<Json<TemplateList>> {
    may_look(&caller)?;
    let all = app.block(|host| host.templates()).await?;
    let templates = all.into_iter().map(|template| shown(&caller, template)).collect();
    Ok(Json(TemplateList { templates }))
}

/// Show a template, by name or digest. Without the scope `templates`, its recipe is shown without
/// its environment and code.
#[utoipa::path(get, path = "/v1/template/{name}", tag = "templates",
    params(("name" = String, Path)), responses((status = 200, body = TemplateInfo)))]
async fn get(
    State(app): State<App>,
    caller: Caller,
    segments: PathParams,
) -> Result<Json<TemplateInfo>> {
    may_look(&caller)?;
    let name = segments.get("name").to_owned();
    let found = app.block(move |host| host.template(Some(&name))).await?.template;
    Ok(Json(shown(&caller, found)))
}

/// Remove a template that no machine uses.
#[utoipa::path(delete, path = "/v1/template/{name}", tag = "templates",
    params(("name" = String, Path)), responses((status = 200, body = Removed)))]
async fn remove(
    State(app): State<App>,
    caller: Caller,
    segments: PathParams,
) -> Result<Json<Removed>> {
    caller.need(Scope::Templates)?;
    app.remove_named(segments.get("name"), |host, name| host.remove_template(name)).await
}

/// Build a template from a recipe. The answer is lines of JSON that report progress; the last line
/// has the template or the error.
#[utoipa::path(post, path = "/v1/template/build", tag = "templates",
    request_body = BuildTemplate,
    responses((status = 200, body = BuildLine, content_type = "application/x-ndjson")))]
async fn build(
    State(app): State<App>,
    caller: Caller,
    Input(request): SmallBody<BuildTemplate>,
) -> Result<Response> {
    caller.need(Scope::Templates)?;
    let recipe = Recipe::parse(&request.recipe).map_err(|error| {
        HttpFailure::about(Problem::Unprocessable, error.code(), error.to_string())
            .hint(error.hint())
    })?;
    let (say, said) = mpsc::channel(LINES);
    tokio::spawn(async move {
        let teller = Teller(say.clone());
        let built = app.block(move |host| host.build_template(&recipe, &teller)).await;
        let last = match built {
            Ok(template) => BuildLine::Template { template: Box::new(template) },
            Err(failure) => BuildLine::Error { error: failure.body() },
        };
        // a disconnected client gets nothing; the template is built anyway
        let _ = say.send(last).await;
    });
    let lines = stream::unfold(said, |mut said| async {
        let line = serde_json::to_string(&said.recv().await?).unwrap_or_default() + "\n";
        Some((Ok::<_, Infallible>(line), said))
    });
    let kind = [(header::CONTENT_TYPE, "application/x-ndjson")];
    Ok((kind, Body::from_stream(lines)).into_response())
}

struct Teller(mpsc::Sender<BuildLine>);

impl Progress for Teller {
    fn step(&self, name: &str, done: u64, total: Option<u64>) {
        let _ = self.0.try_send(BuildLine::Step { step: name.to_owned(), done, total });
    }

    fn say(&self, line: &str) {
        let _ = self.0.try_send(BuildLine::Say { say: line.to_owned() });
    }
}
