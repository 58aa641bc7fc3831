//! Completions: names of machines in resource addresses.

use crate::call::CallContext;
use rmcp::model::{CompleteRequestParams, CompleteResult, CompletionInfo, Reference};

pub fn complete(call: &CallContext, request: &CompleteRequestParams) -> CompleteResult {
    let of_machines = matches!(&request.r#ref, Reference::Resource(own)
        if own.uri.starts_with("stasis://machine/"));
    if !of_machines || request.argument.name != "name" {
        return CompleteResult::default();
    }
    let names = call.machines().map(|machine| machine.name().to_string());
    let mut names: Vec<_> =
        names.filter(|name| name.starts_with(&request.argument.value)).collect();
    names.sort();
    let total = names.len();
    names.truncate(CompletionInfo::MAX_VALUES);
    let more = total > names.len();
    let info = CompletionInfo::with_pagination(names, Some(total as u32), more);
    info.map(CompleteResult::new).unwrap_or_default()
}
