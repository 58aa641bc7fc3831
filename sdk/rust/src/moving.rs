//! Export and import of machines, as one stream of bytes or one file each.

use crate::local::{failed, pieces, save};
use crate::transport::Call;
use crate::types::Made;
use crate::{Client, Machine, Result, Streamed};
use futures_util::stream::{self, Stream, StreamExt, TryStreamExt};
use std::path::Path;
use tokio::fs::File;

/// The contents of an export. The default is the current state, with everything it needs on another
/// host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Export {
    /// Include all its checkpoints and its log.
    pub history: bool,
    /// Leave out the files of its template, for a host that has them.
    pub without_root: bool,
}

impl Machine {
    /// Exports it as one file, in pieces. It is generated while it is read, so a broken connection
    /// is an error.
    pub fn export(&self, what: Export) -> Streamed<Vec<u8>> {
        let (machine, transport) = (self.clone(), self.transport().clone());
        let opened = async move {
            let call = Call::get(machine.path("/export")?).without_timeout();
            let call = call.query("history", what.history).query("root", !what.without_root);
            transport.stream(&call).await
        };
        stream::once(opened).try_flatten().boxed()
    }

    /// Exports it to a local file, which gets its name when it is complete.
    pub async fn export_to(&self, local: impl AsRef<Path>, what: Export) -> Result<()> {
        save(self.export(what), local.as_ref()).await
    }
}

impl Client {
    /// Imports a machine from the output of [`Machine::export`], under a given name or its old one.
    /// Import only files of services you trust: the file is memory that will run.
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

    /// Like [`import_machine`](Client::import_machine), from a local file that
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
