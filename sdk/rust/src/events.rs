//! Everything that changes, as it is told.

use crate::listen::Listening;
use crate::transport::Call;
use crate::types::Event;
use crate::{Client, Machine, Streamed};
use futures_util::stream::{self, StreamExt};

/// Which events are wanted. The default is all from now on.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Only of this machine.
    pub machine: Option<String>,
    /// Only of machines with this tag, written `key=value`.
    pub tag: Option<String>,
    /// Only kinds that begin so, such as `machine.`
    pub kind: Option<String>,
    /// Those after this one; from now on, if absent.
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
    /// Everything that changes, without an end. None is lost or told twice when a connection
    /// breaks; what is too old to be known is told as one event of kind `EventsMissed`.
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
    /// What changes about it, as [`Client::events`] tells.
    pub fn events(&self, wanted: Wanted) -> Streamed<Event> {
        let machine = Some(self.name().to_owned());
        self.client().events(Wanted { machine, ..wanted })
    }
}
