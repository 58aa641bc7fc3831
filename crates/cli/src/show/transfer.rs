//! Progress of a file transfer: shown on a terminal when it takes longer than a second, and never
//! with `--json`.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// A transfer that ends sooner has no bar.
const PATIENCE: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(120);

/// A bar that is removed when dropped.
pub struct Transfer {
    bar: ProgressBar,
    /// Shows the bar after its delay, unless the channel closes first.
    shower: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Transfer {
    /// The name of the transfer, such as `export work`, and its size, if known; `quiet` for
    /// programs.
    pub fn new(what: &str, total: Option<u64>, quiet: bool) -> Transfer {
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden());
        bar.set_prefix(super::one_line(what, 60));
        let template = match total {
            Some(_) => concat!(
                "{spinner} {prefix} [{elapsed}] {bar:30} ",
                "{bytes}/{total_bytes}, {bytes_per_sec} {msg}"
            ),
            None => "{spinner} {prefix} [{elapsed}] {bytes}, {bytes_per_sec} {msg}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        let shown = !quiet && std::io::stderr().is_terminal();
        Transfer { shower: shown.then(|| show_later(bar.clone())), bar }
    }

    /// The current file.
    pub fn file(&self, name: &str) {
        self.bar.set_message(super::one_line(name, 60));
    }

    /// Adds bytes to the progress.
    pub fn add(&self, bytes: usize) {
        self.bar.inc(bytes as u64);
    }

    /// A handle that outlives a borrow, for the sender of a body.
    pub fn counter(&self) -> impl Fn(usize) + Send + Sync + 'static {
        let bar = self.bar.clone();
        move |bytes| bar.inc(bytes as u64)
    }
}

fn show_later(bar: ProgressBar) -> (Sender<()>, JoinHandle<()>) {
    let (over, is_over) = channel::<()>();
    let shower = std::thread::spawn(move || {
        if is_over.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            bar.set_draw_target(ProgressDrawTarget::stderr());
            bar.enable_steady_tick(TICK);
            bar.tick();
        }
    });
    (over, shower)
}

impl Drop for Transfer {
    fn drop(&mut self) {
        if let Some((over, shower)) = self.shower.take() {
            drop(over);
            // it has nothing to report
            let _ = shower.join();
        }
        self.bar.finish_and_clear();
    }
}
