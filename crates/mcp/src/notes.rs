//! Subscriptions of clients of earlier revisions: resources they subscribed to, and tasks they
//! started. Kept as long as the session.

use crate::changes::{Changes, ResourceChange};
use crate::resources::machine_of;
use crate::server::Server;
use crate::tasks::{self, TaskId};
use axum::http::request::Parts;
use futures_util::{Stream, StreamExt, stream};
use parking_lot::{Mutex, MutexGuard};
use rmcp::RoleServer;
use rmcp::model::*;
use rmcp::service::RequestContext;
use serde_json::Value;
use stasis_mcpv8::V8Settings;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use tokio::sync::broadcast::error::RecvError;

/// Maximum resources and tasks of one session.
const MAX_NOTES: usize = 1000;

#[derive(Default)]
pub struct Notes(Mutex<Noted>);

#[derive(Default)]
struct Noted {
    uris: HashSet<String>,
    /// With the last reported status.
    tasks: HashMap<String, TaskStatus>,
    opened: Option<V8Settings>,
}

impl Notes {
    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.0.lock()
    }

    /// Keeps the settings from when the connection was opened.
    pub fn open_with(&self, settings: V8Settings) {
        self.noted().opened = Some(settings);
    }

    pub fn opened(&self) -> Option<V8Settings> {
        self.noted().opened.clone()
    }

    /// Whether there was space.
    pub fn subscribe(&self, uri: &str) -> bool {
        let mut noted = self.noted();
        let room = noted.uris.len() < MAX_NOTES;
        if room {
            noted.uris.insert(uri.to_owned());
        }
        room
    }

    pub fn unsubscribe(&self, uri: &str) {
        self.noted().uris.remove(uri);
    }

    /// A task past the bound is not reported; its status can still be queried.
    pub fn task(&self, id: &str, status: TaskStatus) {
        let mut noted = self.noted();
        if noted.tasks.len() < MAX_NOTES {
            noted.tasks.insert(id.to_owned(), status);
        }
    }

    fn uris(&self, machine: Option<&str>) -> Vec<String> {
        let wanted = |uri: &&String| machine.is_none_or(|name| machine_of(uri) == Some(name));
        self.noted().uris.iter().filter(wanted).cloned().collect()
    }

    fn tasks(&self, machine: Option<&str>) -> Vec<TaskId> {
        let all: Vec<_> = self.noted().tasks.keys().filter_map(|id| TaskId::parse(id)).collect();
        let wanted = |id: &TaskId| machine.is_none_or(|name| id.machine == name);
        all.into_iter().filter(wanted).collect()
    }

    /// Whether a task's status changed. A finished one is removed.
    fn is_news(&self, id: &str, status: TaskStatus) -> bool {
        let mut noted = self.noted();
        let before = noted.tasks.get(id).copied();
        if status.is_terminal() {
            noted.tasks.remove(id);
        } else {
            noted.tasks.insert(id.to_owned(), status);
        }
        before.is_some_and(|before| before != status)
    }
}

/// The subscriptions of all sessions of one account, by session.
#[derive(Default)]
pub struct Notebook(Mutex<HashMap<String, Arc<Notes>>>);

impl Notebook {
    fn all(&self) -> MutexGuard<'_, HashMap<String, Arc<Notes>>> {
        self.0.lock()
    }

    pub fn open(&self, session: &str) -> Arc<Notes> {
        self.all().entry(session.to_owned()).or_default().clone()
    }

    pub fn close(&self, session: &str) {
        self.all().remove(session);
    }

    /// Those of a request's session.
    pub fn of(&self, context: &RequestContext<RoleServer>) -> Option<Arc<Notes>> {
        let parts = context.extensions.get::<Parts>()?;
        let session = parts.headers.get("mcp-session-id")?.to_str().ok()?;
        self.all().get(session).cloned()
    }
}

/// Notifications for one session, as long as it reads them.
pub fn news(server: Server, notes: Arc<Notes>) -> impl Stream<Item = ServerNotification> + Send {
    let changes: &Arc<Changes> = &server.changes;
    let start = (changes.listen(), server, notes);
    let batches = stream::unfold(start, async |(mut changes, server, notes)| {
        let change = match changes.recv().await {
            Ok(ResourceChange::Anything) => None,
            Ok(change) => Some(change),
            Err(RecvError::Lagged(_)) => None,
            Err(RecvError::Closed) => return None,
        };
        let batch = batch(change, &server, &notes).await;
        Some((stream::iter(batch), (changes, server, notes)))
    });
    batches.flatten()
}

/// The notifications for a change; all of them, if the change is unknown.
async fn batch(
    change: Option<ResourceChange>,
    server: &Server,
    notes: &Arc<Notes>,
) -> Vec<ServerNotification> {
    let own = |account: &String| *account == server.account.name;
    let machine = match &change {
        Some(ResourceChange::Tools) => return vec![tools_changed()],
        Some(ResourceChange::Prompts) => return vec![prompts_changed()],
        Some(ResourceChange::List(account)) if own(account) => return vec![list_changed()],
        Some(ResourceChange::Machine { account, name }) if own(account) => Some(name.as_str()),
        None => None,
        Some(_) => return Vec::new(),
    };
    let mut all: Vec<_> = notes.uris(machine).into_iter().map(updated).collect();
    let ids = notes.tasks(machine);
    if !ids.is_empty() {
        all.extend(statuses(ids, server, notes).await);
    }
    all.extend(change.is_none().then(list_changed));
    all
}

async fn statuses(
    ids: Vec<TaskId>,
    server: &Server,
    notes: &Arc<Notes>,
) -> Vec<ServerNotification> {
    let (server, notes) = (server.clone(), notes.clone());
    let look = move || {
        let one = |id: &TaskId| {
            let machine = server.machine(&id.machine)?;
            Some(tasks::task(id, &machine.instruction(id.seq).ok()?))
        };
        let tasks = ids.iter().filter_map(one);
        let new = tasks.filter(|task| notes.is_news(&task.task_id, task.status));
        new.map(|task| status(&task)).collect()
    };
    stasis_machine::block(look).await.unwrap_or_default()
}

fn status(task: &Task) -> ServerNotification {
    let params: Value = crate::legacy::task(task);
    CustomNotification::new("notifications/tasks/status", Some(params)).into()
}

fn updated(uri: String) -> ServerNotification {
    let about = ResourceUpdatedNotificationParam::new(uri);
    ServerNotification::ResourceUpdatedNotification(ResourceUpdatedNotification::new(about))
}

fn list_changed() -> ServerNotification {
    ServerNotification::ResourceListChangedNotification(Default::default())
}

fn tools_changed() -> ServerNotification {
    ServerNotification::ToolListChangedNotification(Default::default())
}

fn prompts_changed() -> ServerNotification {
    ServerNotification::PromptListChangedNotification(Default::default())
}
