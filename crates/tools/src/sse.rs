//! The older transport, HTTP+SSE: a stream of events, whose first one names the address that
//! messages are posted to.

use crate::http::{BoundedHttp, Events};
use futures_util::StreamExt;
use rmcp::RoleClient;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use std::io;
use url::Url;

pub struct OlderHttp {
    client: BoundedHttp,
    endpoint: Url,
    events: Events,
}

impl OlderHttp {
    /// Opens the stream and waits for the address.
    pub async fn open(client: BoundedHttp, url: &str) -> io::Result<OlderHttp> {
        let base = Url::parse(url).map_err(io::Error::other)?;
        let mut events = client.open_events(url).await?;
        while let Some(event) = events.next().await {
            let event = event.map_err(io::Error::other)?;
            if event.event.as_deref() != Some("endpoint") {
                continue;
            }
            let named = base.join(event.data.as_deref().unwrap_or_default().trim());
            let endpoint = named.map_err(io::Error::other)?;
            // the headers of the server are for this server
            if endpoint.origin() != base.origin() {
                let said = "the server names an address of another server for messages";
                return Err(io::Error::other(said));
            }
            return Ok(OlderHttp { client, endpoint, events });
        }
        Err(io::Error::other("the stream ended before it named an address for messages"))
    }
}

impl Transport<RoleClient> for OlderHttp {
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let (client, endpoint) = (self.client.clone(), self.endpoint.clone());
        async move { client.post_older(endpoint, &item).await }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            let event = self.events.next().await?.ok()?;
            let is_message = event.event.as_deref().is_none_or(|kind| kind == "message");
            let data = event.data.filter(|_| is_message);
            // a message that cannot be read is not an answer to anything
            if let Some(message) = data.and_then(|data| serde_json::from_str(&data).ok()) {
                return Some(message);
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.events = futures_util::stream::empty().boxed();
        Ok(())
    }
}
