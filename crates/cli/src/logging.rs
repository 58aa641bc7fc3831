//! The log of a service, on standard error: as text or as lines of JSON, by level and by target.

use crate::config::Config;
use crate::failure::{CliFailure, Result};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

pub const FORMATS: [&str; 2] = ["text", "json"];

/// Whether the log is for programs.
pub fn is_json(config: &Config) -> bool {
    config.text("log_format").as_deref() == Some("json")
}

/// Starts the log; `usual` is the default level.
pub fn start(config: &Config, usual: LevelFilter) -> Result<()> {
    let filter = match config.text("log") {
        Some(text) => filter(&text)?,
        None => Targets::new().with_default(usual),
    };
    let lines = fmt::layer().with_writer(std::io::stderr);
    let lines = match is_json(config) {
        true => lines.json().flatten_event(true).boxed(),
        false => lines.boxed(),
    };
    tracing_subscriber::registry().with(lines.with_filter(filter)).init();
    Ok(())
}

/// `level` for all, `target=level` for one crate or module; separated by commas.
fn filter(text: &str) -> Result<Targets> {
    let mut filter = Targets::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (target, level) = part.split_once('=').map_or((None, part), |(a, b)| (Some(a), b));
        let level: LevelFilter = level.trim().parse().map_err(|_| wrong(part))?;
        filter = match target.map(str::trim) {
            None => filter.with_default(level),
            Some("") => return Err(wrong(part)),
            Some(target) => filter.with_target(target, level),
        };
    }
    Ok(filter)
}

fn wrong(part: &str) -> CliFailure {
    CliFailure::usage(format!("--log: {part:?} is not a level or target=level")).hint(
        "levels are off, error, warn, info, debug and trace; for example \
         `info,stasis_machine=debug`",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn levels_for_all_and_for_targets() {
        let own =
            filter("warn, stasis_machine=debug,stasis_server::middleware=off").expect("a filter");
        assert!(own.would_enable("hyper", &Level::WARN));
        assert!(!own.would_enable("stasis_server::serve", &Level::INFO));
        assert!(own.would_enable("stasis_machine::life", &Level::DEBUG));
        assert!(!own.would_enable("stasis_server::middleware", &Level::ERROR));
    }

    #[test]
    fn what_is_neither_a_level_nor_a_target_is_named() {
        for bad in ["debgu", "stasis_machine", "stasis_machine=loud", "=debug"] {
            let failure = filter(bad).expect_err("a mistake");
            assert!(failure.message.contains(bad), "{}", failure.message);
        }
    }
}
