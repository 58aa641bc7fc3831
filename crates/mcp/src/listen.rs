//! Notification streams for clients of revision 2026-07-28: the changes that a filter selects,
//! until they disconnect.

use crate::changes::ResourceChange;
use crate::resources::machine_of;
use rmcp::service::SubscriptionContext;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

/// Reports changes until the client disconnects.
pub async fn listen(
    mut news: Receiver<ResourceChange>,
    account: &str,
    context: &SubscriptionContext,
) {
    loop {
        let change = tokio::select! {
            change = news.recv() => change,
            () = context.cancelled() => return,
        };
        let told = match change {
            // the missed changes are unknown: everything may have changed
            Ok(ResourceChange::Anything) | Err(RecvError::Lagged(_)) => tell_all(context).await,
            Ok(change) => tell(&change, account, context).await,
            Err(RecvError::Closed) => return,
        };
        if !told {
            return;
        }
    }
}

/// Whether the client still listens.
async fn tell(change: &ResourceChange, account: &str, context: &SubscriptionContext) -> bool {
    let (sink, wanted) = (context.sink(), context.accepted());
    let sent = match change {
        ResourceChange::List(whose)
            if whose == account && wanted.resources_list_changed == Some(true) =>
        {
            sink.notify_resource_list_changed().await
        }
        ResourceChange::Tools if wanted.tools_list_changed == Some(true) => {
            sink.notify_tool_list_changed().await
        }
        ResourceChange::Prompts if wanted.prompts_list_changed == Some(true) => {
            sink.notify_prompt_list_changed().await
        }
        ResourceChange::Machine { account: whose, name } if whose == account => {
            let about = |uri: &&String| machine_of(uri) == Some(name.as_str());
            let uris = wanted.resource_subscriptions.iter().flatten().filter(about);
            return tell_updates(context, uris).await;
        }
        _ => return true,
    };
    sent.is_ok()
}

async fn tell_updates<'a>(
    context: &SubscriptionContext,
    uris: impl Iterator<Item = &'a String>,
) -> bool {
    for uri in uris {
        if context.sink().notify_resource_updated(uri.clone()).await.is_err() {
            return false;
        }
    }
    true
}

async fn tell_all(context: &SubscriptionContext) -> bool {
    let wanted = context.accepted();
    let listed = wanted.resources_list_changed == Some(true);
    if listed && context.sink().notify_resource_list_changed().await.is_err() {
        return false;
    }
    tell_updates(context, wanted.resource_subscriptions.iter().flatten()).await
}
