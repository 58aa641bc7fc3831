//! `stasis config`: shows the settings and their sources.

use crate::config::{Setting, SettingValue};
use crate::context::Context;
use crate::failure::Result;
use crate::show::{self, Table};
use serde_json::json;
use std::process::ExitCode;

pub fn run(context: &Context) -> Result<ExitCode> {
    let config = &context.config;
    if context.json {
        let settings: serde_json::Map<_, _> = config
            .settings
            .iter()
            .map(|setting| (setting.key.name.to_owned(), one(setting)))
            .collect();
        show::json(&json!({ "file": config.file, "settings": settings }));
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(["KEY", "VALUE", "FROM", "IS"]);
    for setting in &config.settings {
        let from = format!("{} {}", setting.source.kind(), setting.source.what());
        table.row([
            setting.key.name.to_owned(),
            shown(setting).map_or_else(|| "-".to_owned(), |value| value.to_string()),
            from,
            setting.key.about.to_owned(),
        ]);
    }
    table.print();
    Ok(ExitCode::SUCCESS)
}

fn one(setting: &Setting) -> serde_json::Value {
    json!({
        "value": shown(setting).map(|value| value.json()),
        "source": setting.source.kind(),
        "from": setting.source.what(),
        "about": setting.key.about,
    })
}

/// The value; for a secret, only whether it is set.
fn shown(setting: &Setting) -> Option<SettingValue> {
    let value = setting.value.clone()?;
    Some(if setting.key.secret { SettingValue::Text("(set)".into()) } else { value })
}
