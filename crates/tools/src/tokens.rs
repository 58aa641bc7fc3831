//! The token of an upstream server: got with the first request, and renewed before its end.
//! Requests that need one at the same time wait for one exchange.

use crate::auth_config::{BrowserAuth, ClientAuth, ServerAuth};
use crate::http::plain_client;
use crate::oauth::{self, IssuedTokens, OauthIdentity};
use crate::token_cache::{KeptTokens, TokenFile};
use reqwest::Client;
use tokio::sync::Mutex;
use url::Url;

/// Seconds before its end at which a token is renewed.
const BUFFER: u64 = 30;

pub struct TokenSource {
    /// The server's name and address.
    name: String,
    url: String,
    auth: ServerAuth,
    client: Client,
    state: Mutex<TokenState>,
}

#[derive(Default)]
struct TokenState {
    held: Option<IssuedTokens>,
    /// A token that the server refused before its end.
    rejected: Option<String>,
}

impl TokenSource {
    pub fn new(name: &str, url: &str, auth: &ServerAuth) -> Result<TokenSource, String> {
        let (name, url, auth) = (name.to_owned(), url.to_owned(), auth.clone());
        Ok(TokenSource { name, url, auth, client: plain_client()?, state: Mutex::default() })
    }

    /// A token that the server should take.
    pub async fn token(&self) -> Result<String, String> {
        let mut state = self.state.lock().await;
        let rejected = state.rejected.clone();
        let good = |own: &&IssuedTokens| {
            own.is_fresh(BUFFER) && rejected.as_ref() != Some(&own.access_token)
        };
        if let Some(held) = state.held.as_ref().filter(good) {
            return Ok(held.access_token.clone());
        }
        let got = match &self.auth {
            ServerAuth::Client(own) => self.of_client(own).await?,
            ServerAuth::Browser(own) => self.of_person(own, state.rejected.as_deref()).await?,
        };
        let token = got.access_token.clone();
        *state = TokenState { held: Some(got), rejected: None };
        Ok(token)
    }

    /// The server did not take this one.
    pub async fn reject(&self, token: &str) {
        let mut state = self.state.lock().await;
        if state.held.as_ref().is_some_and(|held| held.access_token == token) {
            *state = TokenState { held: None, rejected: Some(token.to_owned()) };
        }
    }

    async fn of_client(&self, own: &ClientAuth) -> Result<IssuedTokens, String> {
        let url = Url::parse(&own.token_url).map_err(|error| error.to_string())?;
        let secret = Some(own.client_secret.clone());
        let client = OauthIdentity { client_id: own.client_id.clone(), client_secret: secret };
        let mut form = vec![("grant_type", "client_credentials"), ("resource", &*self.url)];
        form.extend(own.scope.as_deref().map(|scope| ("scope", scope)));
        oauth::grant(&self.client, &url, &client, &form).await
    }

    /// The token that a person allowed, renewed if need be.
    async fn of_person(
        &self,
        own: &BrowserAuth,
        rejected: Option<&str>,
    ) -> Result<IssuedTokens, String> {
        let cache = TokenFile::new(&self.url, own)?;
        let login = || format!("run `stasis tools login {}` on the host", self.name);
        let Some(kept) = cache.read()? else {
            return Err(format!("a person has to allow it first: {}", login()));
        };
        if kept.tokens.is_fresh(BUFFER) && rejected != Some(&kept.tokens.access_token) {
            return Ok(kept.tokens);
        }
        let Some(refresh) = &kept.tokens.refresh_token else {
            return Err(format!("the token ended and cannot be renewed: {}", login()));
        };
        let url = Url::parse(&kept.token_url).map_err(|error| error.to_string())?;
        let form = [
            ("grant_type", "refresh_token"),
            ("refresh_token", refresh.as_str()),
            ("resource", &*self.url),
        ];
        let got = oauth::grant(&self.client, &url, &kept.client, &form).await;
        let got = got.map_err(|why| format!("the token was not renewed ({why}): {}", login()))?;
        // a server that gives no new one leaves the old one valid
        let refresh_token = got.refresh_token.or(Some(refresh.clone()));
        let tokens = IssuedTokens { refresh_token, ..got };
        cache.write(&KeptTokens { tokens: tokens.clone(), ..kept })?;
        Ok(tokens)
    }
}
