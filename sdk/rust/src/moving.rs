//! Machines out of a service and into one, as one stream of bytes or one file each.

use crate::local::{failed, pieces, save};
use crate::transport::Call;
use crate::types::Made;
use crate::{Client, Machine, Result, Streamed};
use futures_util::stream::{self, Stream, StreamExt, TryStreamExt};
use std::path::Path;
use tokio::fs::File;

/// What goes along with an exported machine. The default is its state now, with all it needs on
/// another host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Export {
    /// All its checkpoints and its log too.
    pub history: bool,
    /// Not the files of its template: smaller, for a host that has them.
    pub without_root: bool,
}

impl Machine {
    /// It as one file, piece by piece. It is made while it is read, so a connection that breaks is
    /// an error.
    pub fn export(&self, what: Export) -> Streamed<Vec<u8>> {
        let (machine, transport) = (self.clone(), self.transport().clone());
        let opened = async move {
            let call = Call::get(machine.path("/export")?).without_timeout();
            let call = call.query("history", what.history).query("root", !what.without_root);
            transport.stream(&call).await
        };
        stream::once(opened).try_flatten().boxed()
    }

    /// Writes it to a file of this computer, which has its name only once it is whole.
    pub async fn export_to(&self, local: impl AsRef<Path>, what: Export) -> Result<()> {
        save(self.export(what), local.as_ref()).await
    }
}

impl Client {
    /// Takes a machine in that [`Machine::export`] gave, under a name of its own or the one it had.
    /// Only what a service of your own gave: such a file is memory, and runs.
    pub async fn import_machine(
        &self,
        pieces: impl Stream<Item = Result<Vec<u8>>> + Send + 'static,
        name: Option<&str>,
    ) -> Result<Machine> {
        let mut call = Call::post("/v1/import").without_timeout();
        if let Some(name) = name {
            call = call.query("name", name);
        }
        let made: Made = self.transport().upload(&call, pieces).await?;
        Ok(self.machine(made.machine_name))
    }

    /// As [`import_machine`](Client::import_machine), from a file of this computer that
    /// [`Machine::export_to`] or `stasis export` wrote.
    pub async fn import_from(
        &self,
        local: impl AsRef<Path>,
        name: Option<&str>,
    ) -> Result<Machine> {
        let local = local.as_ref();
        let file = File::open(local).await.map_err(failed("read", local))?;
        self.import_machine(pieces(file, local.to_owned()), name).await
    }
}
