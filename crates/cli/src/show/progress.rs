//! Progress: a bar on a terminal, otherwise a line per step. Always on standard error.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

pub struct BuildProgress {
    bar: Option<ProgressBar>,
    step: String,
}

impl BuildProgress {
    /// The name of the work, such as `template python`.
    pub fn new(what: &str) -> BuildProgress {
        if !std::io::stderr().is_terminal() {
            eprintln!("{what}: started");
            return BuildProgress { bar: None, step: String::new() };
        }
        let bar = ProgressBar::no_length();
        bar.set_prefix(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(120));
        let progress = BuildProgress { bar: Some(bar), step: String::new() };
        progress.style(false);
        progress
    }

    /// `done` of `total` of a step.
    pub fn step(&mut self, step: &str, done: u64, total: Option<u64>) {
        let step = super::one_line(step, 60);
        let new = step != self.step;
        match &self.bar {
            Some(bar) => {
                if new {
                    bar.set_message(step.clone());
                }
                bar.set_length(total.unwrap_or(0));
                bar.set_position(done);
                self.style(total.is_some_and(|total| total > 0));
            }
            None if new => eprintln!("  {step}"),
            None => {}
        }
        self.step = step;
    }

    /// A message in between.
    pub fn say(&self, line: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{} · {}", self.step, super::one_line(line, 60)));
        }
    }

    /// The end, successful or not.
    pub fn end(self, word: &str) {
        match self.bar {
            Some(bar) => {
                let prefix = bar.prefix();
                bar.finish_and_clear();
                eprintln!("{prefix}: {word}");
            }
            None => eprintln!("  {word}"),
        }
    }

    fn style(&self, counted: bool) {
        let template = match counted {
            true => "{spinner} {prefix} [{elapsed}] {bar:30} {pos}/{len} {msg}",
            false => "{spinner} {prefix} [{elapsed}] {msg}",
        };
        if let (Some(bar), Ok(style)) = (&self.bar, ProgressStyle::with_template(template)) {
            bar.set_style(style);
        }
    }
}
