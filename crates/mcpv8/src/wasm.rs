//! WebAssembly modules of a front process.
//!
//! A module is validated here before a machine sees it, and its declarations must fit its limit:
//! each memory and each table, its own or imported, at its initial size. Later growth is bounded by
//! the machine's memory.

use crate::error::{Error, Result};
use crate::executions::shown;
use serde::{Deserialize, Serialize};
use wasmparser::{ExternalKind, MemoryType, Parser, Payload, TableType, TypeRef, Validator};

/// The default limit of a module.
pub const DEFAULT_MEMORY: u64 = 16 << 20;
/// Maximum modules of one setup.
pub(crate) const MOST_MODULES: usize = 64;
const LONGEST_NAME: usize = 64;
const PAGE: u64 = 64 << 10;
/// Bytes of a table entry.
const TABLE_ENTRY: u64 = 8;
/// Maximum listed exports and imports.
const MOST_LISTED: usize = 200;
/// Reserved names in a machine.
const TAKEN: [&str; 10] = [
    "artifact",
    "child_process",
    "console",
    "fs",
    "global",
    "globalThis",
    "mcp",
    "process",
    "require",
    "self",
];

/// A module as a run needs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunModule {
    pub name: String,
    /// The hash of its bytes.
    pub file: String,
    pub size: u64,
}

/// A module of a setup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WasmModule {
    pub name: String,
    /// The hash of its bytes, which were sent before.
    pub file: String,
    pub max_memory_bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Determined here, whatever a client sends.
    #[serde(default)]
    pub size: u64,
    #[serde(default)]
    pub exports: Vec<String>,
    #[serde(default)]
    pub imports: Vec<String>,
}

impl WasmModule {
    /// The same with the data in its bytes.
    pub(crate) fn checked(self, bytes: &[u8]) -> Result<WasmModule> {
        check_name(&self.name)?;
        if self.max_memory_bytes == 0 {
            return Err(self.wrong("its memory limit is 0"));
        }
        let shape = shape(bytes, self.max_memory_bytes).map_err(|what| self.wrong(&what))?;
        let WasmShape { exports, imports } = shape;
        Ok(WasmModule { size: bytes.len() as u64, exports, imports, ..self })
    }

    fn wrong(&self, what: &str) -> Error {
        Error::invalid(format!("WebAssembly module '{}': {what}", shown(&self.name)))
    }

    pub(crate) fn of_run(&self) -> RunModule {
        RunModule { name: self.name.clone(), file: self.file.clone(), size: self.size }
    }

    /// The module's description, for its stub.
    pub(crate) fn about(&self) -> String {
        let name = &self.name;
        let exports = self.exports.join(", ");
        let own = self.description.as_ref().map(|text| format!("{text} ")).unwrap_or_default();
        let use_it = match self.imports.is_empty() {
            true => format!("Its exports are at the global `{name}`: {exports}."),
            false => format!(
                "It needs imports ({}): new WebAssembly.Instance(__wasm_{name}, imports) makes \
                 one. It exports {exports}.",
                self.imports.join(", ")
            ),
        };
        format!("{own}{use_it} The compiled module is `__wasm_{name}`.")
    }

    /// Code that uses it.
    pub(crate) fn example(&self) -> String {
        let name = &self.name;
        match self.imports.is_empty() {
            true => format!("console.log(Object.keys({name}));"),
            false => format!(
                "const imports = {{}};\nconst {{ exports }} = new \
                 WebAssembly.Instance(__wasm_{name}, imports);"
            ),
        }
    }
}

fn check_name(name: &str) -> Result<()> {
    let is_letter = |c: char| c.is_ascii_alphabetic() || c == '_' || c == '$';
    let is_part = |c: char| is_letter(c) || c.is_ascii_digit();
    let is_name = name.starts_with(is_letter) && name.chars().all(is_part);
    match is_name && name.len() <= LONGEST_NAME && !TAKEN.contains(&name) {
        true => Ok(()),
        false => Err(Error::invalid(format!(
            "'{}' is not a valid name for a WebAssembly module: a name has up to {LONGEST_NAME} \
             letters, digits, _ or $, does not begin with a digit, and is not a reserved global",
            shown(name)
        ))),
    }
}

/// A module's exports and imports.
#[derive(Debug, Default, PartialEq, Eq)]
struct WasmShape {
    exports: Vec<String>,
    imports: Vec<String>,
}

/// Validates a module; the error names the fault.
fn shape(bytes: &[u8], most: u64) -> std::result::Result<WasmShape, String> {
    let odd = |error: wasmparser::BinaryReaderError| format!("it is not valid: {error}");
    Validator::new().validate_all(bytes).map_err(odd)?;
    let mut shape = WasmShape::default();
    for payload in Parser::new(0).parse_all(bytes) {
        match payload.map_err(odd)? {
            Payload::MemorySection(all) => {
                for memory in all {
                    check_memory(&memory.map_err(odd)?, most)?;
                }
            }
            Payload::TableSection(all) => {
                for table in all {
                    check_table(&table.map_err(odd)?.ty, most)?;
                }
            }
            Payload::ImportSection(all) => {
                for import in all.into_imports() {
                    let import = import.map_err(odd)?;
                    match &import.ty {
                        TypeRef::Memory(memory) => check_memory(memory, most)?,
                        TypeRef::Table(table) => check_table(table, most)?,
                        _ => {}
                    }
                    shape.imports.push(format!("{}.{}", shown(import.module), shown(import.name)));
                }
            }
            Payload::ExportSection(all) => {
                for export in all {
                    let export = export.map_err(odd)?;
                    let call = if export.kind == ExternalKind::Func { "()" } else { "" };
                    shape.exports.push(format!("{}{call}", shown(export.name)));
                }
            }
            _ => {}
        }
    }
    shape.exports.truncate(MOST_LISTED);
    shape.imports.truncate(MOST_LISTED);
    Ok(shape)
}

fn check_memory(memory: &MemoryType, most: u64) -> std::result::Result<(), String> {
    let page = memory.page_size_log2.map_or(PAGE, |log2| 1 << log2.min(63));
    within("a memory", memory.initial.saturating_mul(page), most)
}

fn check_table(table: &TableType, most: u64) -> std::result::Result<(), String> {
    within("a table", table.initial.saturating_mul(TABLE_ENTRY), most)
}

fn within(what: &str, bytes: u64, most: u64) -> std::result::Result<(), String> {
    match bytes <= most {
        true => Ok(()),
        false => Err(format!(
            "it declares {what} of {bytes} bytes, and its limit is {most}; raise the limit with \
             NAME=PATH:LIMIT or --wasm-default-max-memory"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// (module (memory (export "m") N))
    fn with_memory(pages: u8) -> Vec<u8> {
        let head = b"\0asm\x01\0\0\0\x05\x03\x01\0".iter().chain([&pages]);
        head.chain(b"\x07\x05\x01\x01m\x02\0").copied().collect()
    }

    #[test]
    fn what_is_declared_must_fit() {
        let fits = shape(&with_memory(2), 2 * PAGE).expect("two pages");
        assert_eq!(fits, WasmShape { exports: vec!["m".into()], imports: Vec::new() });
        let large = shape(&with_memory(3), 2 * PAGE).expect_err("three pages");
        assert!(large.contains("a memory of 196608 bytes"), "{large}");
        // (module (table 9 funcref))
        let table = b"\0asm\x01\0\0\0\x04\x04\x01\x70\0\x09";
        assert!(shape(table, 72).is_ok());
        assert!(shape(table, 71).expect_err("nine entries").contains("a table of 72 bytes"));
        // (module (import "e" "m" (memory 3)))
        let imported = b"\0asm\x01\0\0\0\x02\x08\x01\x01e\x01m\x02\0\x03";
        assert_eq!(shape(imported, 3 * PAGE).expect("a module").imports, ["e.m"]);
        assert!(shape(imported, PAGE).is_err());
    }

    #[test]
    fn what_is_no_module() {
        let odd: [&[u8]; 4] = [b"", b"\0asm", b"\0asm\x01\0\0\0\x05\xff", b"(module)"];
        for bytes in odd {
            assert!(shape(bytes, PAGE).expect_err("no module").starts_with("it is not valid"));
        }
        for name in ["", "1a", "a-b", "fs", "globalThis", &"a".repeat(65)] {
            assert!(check_name(name).is_err(), "{name}");
        }
        assert!(check_name("sqlite3_$").is_ok());
    }
}
