//! The context of every command: configuration, output format, and the client.

use crate::client::Client;
use crate::config::{Config, Flags, Login};
use crate::failure::Result;
use std::path::PathBuf;

#[derive(clap::Args, Default)]
pub struct Global {
    /// Directory that holds the machines [default: $XDG_DATA_HOME/stasis]
    #[arg(long, global = true, value_name = "DIR", help_heading = "Global options")]
    pub data_dir: Option<String>,
    /// Use the service at this address instead of the local machines
    #[arg(long, global = true, value_name = "URL", help_heading = "Global options")]
    pub url: Option<String>,
    /// Token for the service; prefer STASIS_TOKEN, which other users cannot see
    #[arg(long, global = true, value_name = "TOKEN", help_heading = "Global options")]
    pub token: Option<String>,
    /// Configuration file [default: $XDG_CONFIG_HOME/stasis/config.toml]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Global options")]
    pub config: Option<PathBuf>,
    /// Print JSON instead of text
    #[arg(long, global = true, help_heading = "Global options")]
    pub json: bool,
}

pub struct Context {
    pub config: Config,
    pub json: bool,
}

impl Context {
    /// The given or stored values; those of `login`, where `signed_in` requests it.
    pub fn new(global: Global, signed_in: bool) -> Result<Context> {
        let Global { data_dir, url, token, config, json } = global;
        let given = [("data_dir", data_dir), ("url", url), ("token", token)];
        let flags: Flags =
            given.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
        let file = config.map(|path| std::path::absolute(&path).unwrap_or(path));
        let mut config = Config::load(&flags, file)?;
        if let Some(login) = signed_in.then(Login::read).transpose()?.flatten() {
            config.sign_in(&login);
        }
        Ok(Context { config, json })
    }

    /// A client of the service; starts the daemon of the data directory if none runs.
    pub fn client(&self) -> Result<Client> {
        Client::open(&self.config)
    }
}
