//! Sessions of clients of earlier revisions: the library's, with our subscriptions and a
//! notification stream.

use crate::legacy;
use crate::notes::news;
use crate::server::Server;
use axum::http::request::Parts;
use futures_util::{Stream, StreamExt, stream};
use rmcp::model::{ClientJsonRpcMessage, GetExtensions, JsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::WorkerTransport;
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionManager, LocalSessionManagerError, LocalSessionWorker,
};
use rmcp::transport::streamable_http_server::session::{
    ServerSseMessage, SessionId, SessionManager,
};
use stasis_mcpv8::V8Settings;
use tokio::sync::mpsc;

/// Queued messages for a client.
const BACKLOG: usize = 16;

type Result<T> = std::result::Result<T, LocalSessionManagerError>;

pub struct Sessions {
    inner: LocalSessionManager,
    server: Server,
}

impl Sessions {
    pub fn new(inner: LocalSessionManager, server: Server) -> Sessions {
        Sessions { inner, server }
    }

    pub async fn count(&self) -> usize {
        self.inner.sessions.read().await.len()
    }

    /// A session's own stream, with notifications of the host.
    fn with_news(
        &self,
        id: &SessionId,
        own: impl Stream<Item = ServerSseMessage> + Send + 'static,
    ) -> impl Stream<Item = ServerSseMessage> + Send + Sync + 'static {
        let news = news(self.server.clone(), self.server.notebook.open(id));
        let news =
            news.map(|one| ServerSseMessage::from_message(JsonRpcMessage::notification(one)));
        let (sender, mut receiver) = mpsc::channel(BACKLOG);
        tokio::spawn(async move {
            let (mut own, mut news) = (Box::pin(own), Box::pin(news));
            loop {
                let next = tokio::select! {
                    next = own.next() => next,
                    next = news.next() => next,
                    () = sender.closed() => None,
                };
                let Some(next) = next else { return };
                if sender.send(next).await.is_err() {
                    return;
                }
            }
        });
        stream::poll_fn(move |context| receiver.poll_recv(context))
    }
}

impl SessionManager for Sessions {
    type Error = LocalSessionManagerError;
    type Transport = WorkerTransport<LocalSessionWorker>;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport)> {
        let (id, transport) = self.inner.create_session().await?;
        self.server.notebook.open(&id);
        Ok((id, transport))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage> {
        if let JsonRpcMessage::Request(own) = &message
            && let Some(parts) = own.request.extensions().get::<Parts>()
        {
            self.server.notebook.open(id).open_with(V8Settings::of(&parts.headers));
        }
        let answer = self.inner.initialize_session(id, message).await?;
        Ok(legacy::with_tasks(answer))
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool> {
        self.inner.has_session(id).await
    }

    async fn close_session(&self, id: &SessionId) -> Result<()> {
        self.server.notebook.close(id);
        self.inner.close_session(id).await
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static> {
        self.inner.create_stream(id, message).await
    }

    async fn accept_message(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Result<()> {
        self.inner.accept_message(id, message).await
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static> {
        Ok(self.with_news(id, self.inner.create_standalone_stream(id).await?))
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static> {
        self.inner.resume(id, last_event_id).await
    }
}
