//! `stasis doctor`: checks the requirements of this host.

use crate::context::Context;
use crate::doctor::{Grade, HealthCheck, examine};
use crate::failure::{Exit, Result};
use crate::show;
use serde_json::json;
use std::process::ExitCode;

pub fn run(context: &Context) -> Result<ExitCode> {
    let checks = examine(&context.config);
    let usable = checks.iter().all(|check| check.grade != Grade::Missing);
    match context.json {
        true => show::json(&json!({ "usable": usable, "checks": checks })),
        false => print(&checks, usable),
    }
    Ok(if usable { ExitCode::SUCCESS } else { Exit::Failed.into() })
}

fn print(checks: &[HealthCheck], usable: bool) {
    let width = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    for check in checks {
        let mark = match check.grade {
            Grade::Good => "ok     ",
            Grade::Lacking => "lacking",
            Grade::Missing => "MISSING",
        };
        show::say(format!("{mark}  {:<width$}  {}", check.name, check.found).trim_end());
        if check.grade != Grade::Good {
            show::say(&format!("         {:<width$}  costs: {}", "", check.costs));
            show::say(&format!("         {:<width$}  fix:   {}", "", check.fix));
        }
    }
    let lacking = checks.iter().filter(|check| check.grade != Grade::Good).count();
    match usable {
        true if lacking == 0 => show::say("\nThis host can do everything."),
        true => show::say("\nThis host is usable."),
        false => show::say("\nThis host is not usable yet: see MISSING above."),
    }
}
