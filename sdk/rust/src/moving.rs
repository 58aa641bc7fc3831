//! Machines out of a service and into one, as one stream of bytes each.

use crate::transport::Call;
use crate::types::Made;
use crate::{Client, Machine, Result, Streamed};
use futures_util::stream::{self, Stream, StreamExt, TryStreamExt};

impl Machine {
    /// It as one file, piece by piece: its state now, or with `history` all its checkpoints and its
    /// log too. It is made while it is read, so a connection that breaks is an error.
    pub fn export(&self, history: bool) -> Streamed<Vec<u8>> {
        let (machine, transport) = (self.clone(), self.transport().clone());
        let opened = async move {
            let call = Call::get(machine.path("/export")?).query("history", history).patient();
            transport.stream(&call).await
        };
        stream::once(opened).try_flatten().boxed()
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
        let mut call = Call::post("/v1/import").patient();
        if let Some(name) = name {
            call = call.query("name", name);
        }
        let made: Made = self.transport().upload(&call, pieces).await?;
        Ok(self.machine(made.machine_name))
    }
}
