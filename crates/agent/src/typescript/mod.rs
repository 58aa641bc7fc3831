//! TypeScript, and `import` and `export` at the top level, as a script for V8's prompt.
//!
//!   text ─► plain JavaScript? ─► nothing to do, but for imports and exports
//!        └► TypeScript?       ─► types are taken out, enums and the like become values
//!        └► neither           ─► what is wrong, and where
//!
//! Lines stay, and columns stay or are mapped (`edits.rs`). Names are not resolved and types not
//! checked. The text is hostile: the parser recurses and backtracks, so this runs in a separate
//! process (`stasis-prepare`) with bounded time, memory and stack.

mod classes;
mod edits;
mod modules;
mod strip;
mod values;

use edits::{Edits, position};
use oxc_allocator::Allocator;
use oxc_ast::ast::Program;
use oxc_parser::Parser;
use oxc_span::SourceType;
use stasis_protocol::{PreparedCode, PreparedModule};
use strip::Strip;

/// The JavaScript for a text; `None` if the text is plain JavaScript and stays as it is.
pub fn prepare(source: &str) -> Option<PreparedCode> {
    let allocator = Allocator::default();
    let parse = |kind| Parser::new(&allocator, source, kind).parse();
    let plain = parse(SourceType::mjs());
    if !plain.diagnostics.has_errors() {
        return rewrite(source, &plain.program);
    }
    let typed = parse(SourceType::ts());
    match typed.diagnostics.errors().next() {
        None => rewrite(source, &typed.program),
        Some(error) => {
            let offset = error.labels.first().map_or(0, |label| label.offset());
            Some(refused(source, error.message.to_string(), offset as usize))
        }
    }
}

/// Turns a TypeScript file into JavaScript that still imports and exports.
pub fn prepare_file(source: &str) -> PreparedModule {
    let allocator = Allocator::default();
    let typed = Parser::new(&allocator, source, SourceType::ts()).parse();
    let is_module = typed.program.body.iter().any(|one| one.is_module_declaration());
    let code = match typed.diagnostics.errors().next() {
        Some(error) => {
            let offset = error.labels.first().map_or(0, |label| label.offset());
            refused(source, error.message.to_string(), offset as usize)
        }
        None => {
            let strip = Strip { keeps_modules: true, ..Strip::new(Edits::new(source)) };
            let unchanged = || PreparedCode::Code { code: source.into(), places: Vec::new() };
            finish(source, strip, &typed.program).unwrap_or_else(unchanged)
        }
    };
    PreparedModule { code, is_module }
}

fn rewrite(source: &str, program: &Program) -> Option<PreparedCode> {
    finish(source, Strip::new(Edits::new(source)), program)
}

fn finish(source: &str, mut strip: Strip, program: &Program) -> Option<PreparedCode> {
    strip.program(program);
    match strip.unsupported {
        Some((message, offset)) => Some(refused(source, message, offset as usize)),
        None if strip.edits.is_empty() => None,
        None => {
            let (code, places) = strip.edits.finish();
            Some(PreparedCode::Code { code, places })
        }
    }
}

fn refused(source: &str, message: String, offset: usize) -> PreparedCode {
    let (line, column) = position(source, offset);
    PreparedCode::Refused { message, line, column }
}
