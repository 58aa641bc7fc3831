//! JavaScript: its agent, its words, and values and steps as its text.

use crate::environment::{HostTool, ToolCheck};
use crate::notation::{Notation, quoted};
use crate::{LONGEST_NAME, Language, NO_INSTALLER, PREPARE, Runtime, Syntax, Unwritable};
use serde_json::Value;
use stasis_protocol::{PreparedCode, PreparedModule, TextForm};
use std::path::Path;

pub struct JavaScript;

pub const NAME: &str = "javascript";

macro_rules! file {
    ($path:literal) => {
        ($path, include_str!(concat!("../javascript/", $path)))
    };
}

const FILES: &[(&str, &str)] = &[
    file!("main.cjs"),
    file!("realm/carry.js"),
    file!("realm/complete.js"),
    file!("realm/errors.js"),
    file!("realm/imports.js"),
    file!("realm/inspector.js"),
    file!("realm/places.js"),
    file!("realm/serve.js"),
    file!("realm/session.js"),
    file!("realm/shell.js"),
    file!("realm/show.js"),
    file!("realm/surroundings.js"),
    file!("realm/tools.js"),
    file!("realm/variables.js"),
    file!("realm/wake.js"),
];

/// The agent's native library (`native.c`), compiled by `build.rs`.
const NATIVE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/stasis.node"));

/// One background thread, where 0 means one for each processor of the host; no check that a
/// terminated callback would fail; no protection keys for code, which an image cannot hold; support
/// for `import()` in instructions.
const FLAGS: [&str; 4] = [
    "--v8-pool-size=1",
    "--no-force-async-hooks-checks",
    "--no-memory-protection-keys",
    "--expose-internals",
];

/// Content types of plain modules.
const SCRIPTS: [&str; 5] = [
    "application/javascript",
    "text/javascript",
    "application/x-javascript",
    "application/ecmascript",
    "text/ecmascript",
];

const SYNTAX: Syntax = Syntax {
    reserved: &[
        "await",
        "break",
        "case",
        "catch",
        "class",
        "const",
        "continue",
        "debugger",
        "default",
        "delete",
        "do",
        "else",
        "enum",
        "export",
        "extends",
        "false",
        "finally",
        "for",
        "function",
        "if",
        "import",
        "in",
        "instanceof",
        "let",
        "new",
        "null",
        "return",
        "static",
        "super",
        "switch",
        "this",
        "throw",
        "true",
        "try",
        "typeof",
        "undefined",
        "var",
        "void",
        "while",
        "with",
        "yield",
    ],
    soft: &["async", "of"],
    name_signs: "_$",
    comment: "//",
    quotes: &['\'', '"', '`'],
    long_strings: false,
    prefixes: "",
};

/// Values of several kinds, an error, and output.
const REHEARSAL: [&str; 7] = [
    "1 + 1",
    "'text'",
    "({ a: [1, 'b', null], c: new Map([[1, 2]]) })",
    "[1, 2, 3].map((n) => n * n)",
    "await Promise.resolve(1)",
    "console.log('%s', 1)",
    "throw new Error('rehearsed')",
];

const NOTATION: Notation =
    Notation { null: "null", yes: "true", no: "false", braces: ["({", "})"], key };

/// The error that ends an interrupted instruction.
const INTERRUPT: &str = "Interrupted";

/// The form of a module from its content type, and its name's ending; `None` if it is no module.
pub fn module_form(kind: &str, ending: &str) -> Option<TextForm> {
    match (kind, ending) {
        (kind, _) if kind.ends_with("typescript") => Some(TextForm::Typed),
        (kind, "ts" | "mts") if kind != "text/html" => Some(TextForm::Typed),
        (kind, _) if SCRIPTS.contains(&kind) => Some(TextForm::Script),
        (kind, _) if kind == "application/json" || kind.ends_with("+json") => Some(TextForm::Json),
        ("" | "text/plain" | "application/octet-stream", "js" | "mjs") => Some(TextForm::Script),
        ("" | "text/plain" | "application/octet-stream", "json") => Some(TextForm::Json),
        _ => None,
    }
}

impl Language for JavaScript {
    fn name(&self) -> &'static str {
        NAME
    }

    fn aliases(&self) -> &'static [&'static str] {
        &["typescript"]
    }

    fn title(&self) -> &'static str {
        "JavaScript"
    }

    fn runtime(&self) -> Runtime {
        Runtime::Node { native: NATIVE }
    }

    fn host_tools(&self) -> &'static [HostTool] {
        &[HostTool {
            name: PREPARE,
            required: false,
            costs: "instructions have no TypeScript and no import statements",
            fix: "put it beside stasis: cargo build --release --bin stasis-prepare",
            found: ToolCheck::Beside(PREPARE),
        }]
    }

    fn recipe(&self) -> &'static str {
        include_str!("../../../templates/javascript/recipe.toml")
    }

    fn files(&self) -> &'static [(&'static str, &'static str)] {
        FILES
    }

    fn endings(&self) -> &'static [&'static str] {
        &["js", "mjs", "cjs", "ts", "mts", "cts"]
    }

    fn arguments(&self, words: &Value) -> String {
        format!("process.argv = [process.execPath, ...{words}]; undefined")
    }

    fn argv(&self, interpreter: &str, dir: &str) -> Vec<String> {
        let flags = FLAGS.map(str::to_owned);
        let program = [interpreter.to_owned()];
        program.into_iter().chain(flags).chain([format!("{dir}/main.cjs")]).collect()
    }

    fn syntax(&self) -> &'static Syntax {
        &SYNTAX
    }

    fn literal(&self, value: &Value) -> Result<String, Unwritable> {
        NOTATION.literal(value)
    }

    fn assignment(&self, name: &str, expression: &str) -> String {
        format!("{name} = {expression};\n")
    }

    fn aside(&self, code: &str) -> String {
        format!("await (async () => {{\n{code}\n}})(); undefined")
    }

    fn comment(&self, text: &str) -> String {
        format!("// {}", text.replace(['\n', '\r', '\u{2028}', '\u{2029}'], " "))
    }

    fn number(&self, shown: &str) -> Option<f64> {
        // `3`, `-2.5e3`, `12n`, `true`, `Infinity`
        match shown.trim() {
            "true" => Some(1.0),
            "false" => Some(0.0),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            text if text.ends_with(|c: char| c.is_ascii_digit()) => text.parse().ok(),
            text => text
                .strip_suffix('n')
                .and_then(|whole| whole.parse::<i128>().ok())
                .map(|n| n as f64),
        }
    }

    fn nothing(&self) -> &'static str {
        "undefined"
    }

    fn shell(&self, command: &str) -> String {
        format!("await __stasis__.shell({})", quoted(command))
    }

    fn installer(&self) -> &'static str {
        "npm"
    }

    fn install(&self, packages: &[String]) -> String {
        let words: Vec<String> = packages.iter().map(|package| format!("'{package}'")).collect();
        let install = format!("npm install --fetch-retries 1 -- {}", words.join(" "));
        let why = "this machine has no npm: create one from a template that has it";
        format!(
            "await (async () => {{\n  \
               if (await __stasis__.shell('command -v npm > /dev/null') !== 0)\n    \
                 throw Object.assign(new Error({}), {{ name: {} }});\n  \
               return __stasis__.shell({});\n\
             }})()",
            quoted(why),
            quoted(NO_INSTALLER),
            quoted(&install),
        )
    }

    fn is_package(&self, package: &str) -> bool {
        let known = |c: char| c.is_ascii_alphanumeric() || "@/._-^~<>=*+".contains(c);
        let named = package.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '@');
        // `name/name` would be a GitHub repository
        let scoped = package.matches('/').count() == usize::from(package.starts_with('@'));
        named && scoped && package.len() <= LONGEST_NAME && package.chars().all(known)
    }

    fn command(&self, about: &str, _spec: &Value) -> String {
        let what = "commands of this kind need a machine of the default language";
        format!("{}\nthrow new Error({})", self.comment(about), quoted(what))
    }

    fn before_eval(&self, _code: &str) -> Option<&'static str> {
        None
    }

    fn rehearsal(&self) -> &'static [&'static str] {
        &REHEARSAL
    }

    fn interrupts(&self) -> [&'static str; 2] {
        [INTERRUPT, "TimeoutError"]
    }

    fn prepare(&self, programs: &Path, code: &str) -> Option<PreparedCode> {
        crate::prepare::prepare(programs, code)
    }

    fn prepare_file(&self, programs: &Path, text: &str) -> Option<PreparedModule> {
        crate::prepare::prepare_file(programs, text)
    }
}

/// The name of a field. `__proto__` in plain quotes would set the object's prototype.
fn key(name: &str) -> String {
    match name {
        "__proto__" => format!("[{}]", quoted(name)),
        _ => quoted(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn json_becomes_javascript() {
        let value = json!({"a": [1, -2.5, true, null], "__proto__": {"b": "x\n"}});
        let text = JavaScript.literal(&value).expect("a value");
        assert_eq!(text, "({[\"__proto__\"]: ({\"b\": \"x\\n\"}), \"a\": [1, -2.5, true, null]})");
        assert_eq!(JavaScript.assignment("v", "1"), "v = 1;\n");
        let mut deep = json!(1);
        for _ in 0..100 {
            deep = json!([deep]);
        }
        assert!(JavaScript.literal(&deep).is_err());
    }

    #[test]
    fn what_is_no_variable() {
        for name in ["", "1a", "a.b", "a b", "x=1", "class", "ä", "a\n", "let", "a-b"] {
            assert!(!JavaScript.is_identifier(name), "{name:?}");
        }
        assert!(JavaScript.is_identifier("$x_1") && JavaScript.is_identifier("_"));
    }

    #[test]
    fn values_are_read_as_numbers() {
        let number = |shown| JavaScript.number(shown);
        assert_eq!(
            (number("-3"), number("2.5e3"), number("-0")),
            (Some(-3.0), Some(2500.0), Some(0.0))
        );
        assert_eq!((number("12n"), number("true")), (Some(12.0), Some(1.0)));
        assert_eq!(number("Infinity"), Some(f64::INFINITY));
        for text in ["NaN", "'1'", "[ 1 ]", "", "n", "nan", "inf"] {
            assert_eq!(number(text), None, "{text:?}");
        }
    }

    #[test]
    fn commands_and_packages_are_text() {
        assert_eq!(JavaScript.shell("echo \"$x\""), r#"await __stasis__.shell("echo \"$x\"")"#);
        let install = JavaScript.install(&["a@1".into(), "@s/b".into()]);
        let command =
            r#"return __stasis__.shell("npm install --fetch-retries 1 -- 'a@1' '@s/b'");"#;
        assert!(install.contains(command), "{install}");
        assert!(JavaScript.is_package("@scope/name@^1.2") && !JavaScript.is_package("-g"));
        assert!(!JavaScript.is_package("a;b") && !JavaScript.is_package("a b"));
        assert!(!JavaScript.is_package("user/repository") && !JavaScript.is_package("@x"));
        assert!(JavaScript.comment("a\nb").starts_with("// a b"));
    }

    #[test]
    fn every_file_of_the_agent_is_carried() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("javascript");
        let mut found = vec!["main.cjs".to_owned()];
        for entry in std::fs::read_dir(root.join("realm")).expect("the directory is there") {
            let name = entry.expect("an entry").file_name().into_string().expect("a name");
            found.push(format!("realm/{name}"));
        }
        found.sort();
        assert_eq!(found, FILES.iter().map(|(path, _)| (*path).to_owned()).collect::<Vec<_>>());
        assert!(NATIVE.starts_with(b"\x7fELF"));
    }
}
