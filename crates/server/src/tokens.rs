//! Tokens: list, create, revoke. A caller other than root manages only its own account, and cannot
//! grant scopes it does not have.

use crate::app::App;
use crate::auth::{Caller, ROOT, Scope};
use crate::extract::{Input, PathParams, SmallBody};
use crate::failure::{HttpFailure, Result};
use crate::keyring::mint;
use axum::Json;
use axum::extract::State;
use stasis_api::{MadeToken, NewToken, Problem, Removed, Token, TokenList};
use stasis_machine::TokenRecord;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

const LONGEST: usize = 64;
/// Tokens of one account.
const MOST: usize = 1000;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list, create)).routes(routes!(revoke))
}

fn view(record: TokenRecord) -> Token {
    let TokenRecord { id, name, account, scopes, created_at, .. } = record;
    Token { id, name, account, scopes, created_at }
}

fn reaches(caller: &Caller, account: &str) -> bool {
    caller.account == ROOT || caller.account == account
}

/// List tokens, oldest first.
#[utoipa::path(get, path = "/v1/token", tag = "tokens",
    responses((status = 200, body = TokenList)))]
async fn list(State(app): State<App>, caller: Caller) -> Result<Json<TokenList>> {
    caller.need(Scope::Tokens)?;
    let all = app.block(|host| host.tokens()).await?;
    let own = all.into_iter().filter(|record| reaches(&caller, &record.account));
    Ok(Json(TokenList { tokens: own.map(view).collect() }))
}

/// Create a token. Its secret is shown only once.
#[utoipa::path(post, path = "/v1/token", tag = "tokens", request_body = Option<NewToken>,
    responses((status = 200, body = MadeToken)))]
async fn create(
    State(app): State<App>,
    caller: Caller,
    Input(new): SmallBody<NewToken>,
) -> Result<Json<MadeToken>> {
    caller.need(Scope::Tokens)?;
    let account = new.account.unwrap_or_else(|| caller.account.clone());
    let mut scopes = new.scopes.unwrap_or_else(|| vec![Scope::Machines.word().to_owned()]);
    scopes.sort();
    scopes.dedup();
    check(&caller, &account, new.name.as_deref(), &scopes)?;
    let (token, record) = mint(&account, new.name, scopes);
    let kept = record.clone();
    let room = app.block(move |host| {
        let own = host.tokens()?.iter().filter(|one| one.account == kept.account).count();
        (own < MOST).then(|| host.set_token(&kept)).transpose()
    });
    if room.await?.is_none() {
        let said = format!("account `{account}` has {MOST} tokens, the maximum");
        let failure = HttpFailure::about(Problem::TooMany, "account.over_quota", said);
        return Err(failure.hint("revoke tokens you do not need"));
    }
    app.keyring.put(&record);
    Ok(Json(MadeToken { token, about: view(record) }))
}

fn check(caller: &Caller, account: &str, name: Option<&str>, scopes: &[String]) -> Result<()> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if account.is_empty() || account.len() > LONGEST || !account.chars().all(plain) {
        return Err(HttpFailure::invalid("an account has 1 to 64 letters, digits, `-` or `_`"));
    }
    if name.is_some_and(|name| name.len() > LONGEST) {
        return Err(HttpFailure::invalid("a token's name has at most 64 bytes"));
    }
    if let Some(word) = scopes.iter().find(|word| !Scope::is_word(word)) {
        let failure = HttpFailure::invalid(format!("unknown scope {word:?}"));
        return Err(HttpFailure {
            hint: format!("scopes are {}", Scope::all().join(", ")),
            ..failure
        });
    }
    let more = scopes.iter().any(|word| !caller.scopes.contains(word));
    if more || !reaches(caller, account) {
        let said = "a token cannot have scopes that the caller lacks";
        let failure = HttpFailure::about(Problem::Forbidden, "token.scope", said);
        return Err(failure.hint("leave out scopes and accounts that the caller does not have"));
    }
    Ok(())
}

/// Revoke a token, effective with the next request.
#[utoipa::path(delete, path = "/v1/token/{id}", tag = "tokens",
    params(("id" = String, Path)), responses((status = 200, body = Removed)))]
async fn revoke(
    State(app): State<App>,
    caller: Caller,
    segments: PathParams,
) -> Result<Json<Removed>> {
    caller.need(Scope::Tokens)?;
    let id = segments.get("id").to_owned();
    let all = app.block(|host| host.tokens()).await?;
    let own = all.iter().any(|record| record.id == id && reaches(&caller, &record.account));
    if !own {
        let said = format!("there is no token {id:?}");
        let failure = HttpFailure::about(Problem::NotFound, "token.not_found", said);
        return Err(failure.hint("`stasis token list` lists the tokens"));
    }
    let gone = id.clone();
    app.block(move |host| host.remove_token(&gone)).await?;
    app.keyring.drop(&id);
    Ok(Json(Removed { removed: id }))
}
