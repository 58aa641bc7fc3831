//! All changes as they happen.

use crate::listen::Listening;
use crate::transport::Call;
use crate::types::Event;
use crate::{Client, Machine, Streamed};
use futures_util::stream::{self, StreamExt};

/// A filter for events. The default is all new ones.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Only events of this machine.
    pub machine: Option<String>,
    /// Only events of machines with this tag, written `key=value`.
    pub tag: Option<String>,
    /// Only kinds with this prefix, such as `machine.`
    pub kind: Option<String>,
    /// Only events after this one; new ones, if absent.
    pub after: Option<u64>,
}

impl Wanted {
    fn call(self) -> Call {
        let after = self.after.map(|number| number.to_string());
        let asked =
            [("machine", self.machine), ("tag", self.tag), ("kind", self.kind), ("after", after)];
        let given = asked.into_iter().filter_map(|(name, value)| Some((name, value?)));
        given.fold(Call::get("/v1/events"), |call, (name, value)| call.query(name, value))
    }
}

impl Client {
    /// All changes, without an end. After a broken connection no event is lost or repeated; events
    /// that are no longer available are reported as one event of kind `EventsMissed`.
    pub fn events(&self, wanted: Wanted) -> Streamed<Event> {
        let listening = Listening::new(self.transport().clone(), wanted.call());
        let next = |mut listening: Listening<Event>| async move {
            let event = listening.next().await?;
            Ok(Some((event, listening)))
        };
        stream::try_unfold(listening, next).boxed()
    }
}

impl Machine {
    /// Changes of this machine, as in [`Client::events`].
    pub fn events(&self, wanted: Wanted) -> Streamed<Event> {
        let machine = Some(self.name().to_owned());
        self.client().events(Wanted { machine, ..wanted })
    }
}
