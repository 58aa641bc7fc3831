//! `stasis machine watch`, and `--watch` of the commands that support it.

use crate::client::{Client, EventStream, escape};
use crate::context::Context;
use crate::failure::Result;
use crate::show;
use stasis_api::{Event, Name, Status};
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

#[derive(clap::Args)]
pub struct Args {
    /// Only this machine [default: all]
    machine: Option<Name>,
    /// Only kinds with this prefix, such as `instruction.`
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// Only machines with this tag
    #[arg(long, value_name = "KEY=VALUE")]
    tag: Option<String>,
    /// Start after this event [default: now]
    #[arg(long, value_name = "NUMBER")]
    after: Option<u64>,
    /// Stop after this many events
    #[arg(long, value_name = "N")]
    count: Option<u64>,
}

/// Delay to group simultaneous changes.
const TOGETHER: Duration = Duration::from_millis(100);
/// Maximum delay.
const MOST: usize = 100;

pub fn run(args: Args, context: &Context) -> Result<ExitCode> {
    let client = context.client()?;
    let wanted = [
        ("machine", args.machine.map(|name| name.to_string())),
        ("kind", args.kind),
        ("tag", args.tag),
    ];
    let given = wanted.into_iter().filter_map(|(name, value)| Some((name, value?)));
    let query: String =
        given.map(|(name, value)| format!("&{name}={}", escape::part(&value))).collect();
    let mut events = EventStream::new(&client, query, args.after);
    for _ in 0..args.count.unwrap_or(u64::MAX) {
        let event = client.block(events.next())?;
        match context.json {
            // one line each, so that programs can follow
            true => show::say(&serde_json::json!(event).to_string()),
            false => show::say(&line(&event)),
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn line(event: &Event) -> String {
    let at = event.at.strftime("%H:%M:%S");
    let seq = event.seq.map(|seq| format!("@{seq}")).unwrap_or_default();
    let machine = event.machine.as_ref().map(ToString::to_string).unwrap_or_default();
    let ended = event.status.filter(|status| *status != Status::Done);
    let ended = ended.map(|status| format!(" {}", status.word())).unwrap_or_default();
    let about = event.about.as_deref().map(|about| format!(" {about}")).unwrap_or_default();
    // what `stasis policy allow --from-event` takes
    let about = match event.refused {
        Some(_) => format!(" #{}{about}", event.id),
        None => about,
    };
    let text = format!("{at} {:<21} {machine}{seq}{ended}{about}", event.kind.word());
    show::one_line(text.trim_end(), 200)
}

/// Shows something, and again after every change that matches `query`. No change between two
/// refreshes is missed. Ctrl-C ends it with 130, like the signal.
pub fn again(client: &Client, query: String, look: impl Fn() -> Result<()>) -> Result<ExitCode> {
    let mut events = EventStream::new(client, query, None);
    client.block(events.begin())?;
    loop {
        let terminal = std::io::stdout().is_terminal();
        if terminal {
            show::say_on("\x1b[H\x1b[J");
        }
        look()?;
        if !terminal {
            show::say("");
        }
        // `say` notices a closed pipe
        let _ = std::io::stdout().flush();
        client.block(events.next())?;
        for _ in 0..MOST {
            let more = async { tokio::time::timeout(TOGETHER, events.next()).await };
            // quiet, or a failure that the next wait meets again
            if !matches!(client.block(more), Ok(Ok(_))) {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_a_line() {
        let event: Event = serde_json::from_value(serde_json::json!({
            "id": 7, "at": "2020-01-01T10:20:30Z", "kind": "instruction.finished",
            "machine": "work", "seq": 3, "status": "interrupted", "about": "a\nb",
        }))
        .expect("an event");
        assert_eq!(line(&event), "10:20:30 instruction.finished  work@3 interrupted a⏎ b");
    }
}
