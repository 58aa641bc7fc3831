//! `stasis serve`: machines as a service, or as the private keeper of a data directory.

use crate::bench::setup;
use crate::context::Context;
use crate::failure::{Failure, Result};
use stasis_machine::{Host, Settings};
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    /// Where to listen, such as 127.0.0.1:8700
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Only on the data directory's own socket, for this user
    #[arg(long, conflicts_with = "listen")]
    private: bool,
    /// End when nobody used it for this long, in seconds, or `none`
    #[arg(long, value_name = "SECONDS")]
    linger: Option<String>,
}

pub fn run(args: Args, context: &Context) -> Result<ExitCode> {
    let settings = Settings::new(context.config.data_dir(), setup::spawner()?);
    let host = Host::open(settings)?;
    drop((host, args.listen, args.linger, args.private));
    Err(Failure::new("unsupported", "this build has no service"))
}
