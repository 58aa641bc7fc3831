//! Python: its agent, its words, and values and steps as its text.

mod environment;

use crate::environment::HostTool;
use crate::notation::{Notation, quoted};
use crate::{LONGEST_NAME, Language, Runtime, Syntax, Unwritable};
use serde_json::Value;

pub struct Python;

pub const NAME: &str = "python";

macro_rules! file {
    ($path:literal) => {
        ($path, include_str!(concat!("../python/", $path)))
    };
}

const FILES: &[(&str, &str)] = &[
    file!("__main__.py"),
    file!("stasis.py"),
    file!("stasis_agent/__init__.py"),
    file!("stasis_agent/aio.py"),
    file!("stasis_agent/carry.py"),
    file!("stasis_agent/channel.py"),
    file!("stasis_agent/charts.py"),
    file!("stasis_agent/compact.py"),
    file!("stasis_agent/complete.py"),
    file!("stasis_agent/display.py"),
    file!("stasis_agent/errors.py"),
    file!("stasis_agent/figures.py"),
    file!("stasis_agent/gate.py"),
    file!("stasis_agent/generators.py"),
    file!("stasis_agent/magics.py"),
    file!("stasis_agent/network.py"),
    file!("stasis_agent/own.py"),
    file!("stasis_agent/parts.py"),
    file!("stasis_agent/run.py"),
    file!("stasis_agent/serve.py"),
    file!("stasis_agent/shell.py"),
    file!("stasis_agent/stdin.py"),
    file!("stasis_agent/streams.py"),
    file!("stasis_agent/timing.py"),
    file!("stasis_agent/tools.py"),
    file!("stasis_agent/touched.py"),
    file!("stasis_agent/traces.py"),
    file!("stasis_agent/transform.py"),
    file!("stasis_agent/variables.py"),
    file!("stasis_agent/wake.py"),
];

/// The program that runs forkd's commands. It is sent as text, so any agent can run it.
const COMMAND: &str = include_str!("python/command.py");

/// Makes `numpy` and `np` available like builtins: a variable of that name is not changed.
const NUMPY: &str = "\
def _numpy():
    import builtins
    try:
        import numpy
    except ImportError:
        return
    builtins.numpy = builtins.np = numpy
_numpy()
del _numpy";

const SYNTAX: Syntax = Syntax {
    reserved: &[
        "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class",
        "continue", "def", "del", "elif", "else", "except", "finally", "for", "from", "global",
        "if", "import", "in", "is", "lambda", "nonlocal", "not", "or", "pass", "raise", "return",
        "try", "while", "with", "yield",
    ],
    soft: &["case", "match"],
    name_signs: "_",
    comment: "#",
    quotes: &['\'', '"'],
    long_strings: true,
    prefixes: "rRbBuUfFtT",
};

const NOTATION: Notation =
    Notation { null: "None", yes: "True", no: "False", braces: ["{", "}"], key: quoted };

/// The error that ends an interrupted instruction.
const INTERRUPT: &str = "KeyboardInterrupt";

impl Language for Python {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "Python"
    }

    fn runtime(&self) -> Runtime {
        Runtime::Environment(&environment::ENVIRONMENT)
    }

    fn host_tools(&self) -> &'static [HostTool] {
        environment::TOOLS
    }

    fn recipe(&self) -> &'static str {
        include_str!("../../../templates/python/recipe.toml")
    }

    fn files(&self) -> &'static [(&'static str, &'static str)] {
        FILES
    }

    fn endings(&self) -> &'static [&'static str] {
        &["py"]
    }

    fn arguments(&self, words: &Value) -> String {
        // a list of strings has the same notation in JSON
        format!("import sys; sys.argv = {words}")
    }

    fn argv(&self, interpreter: &str, dir: &str) -> Vec<String> {
        vec![interpreter.to_owned(), dir.to_owned()]
    }

    fn syntax(&self) -> &'static Syntax {
        &SYNTAX
    }

    fn literal(&self, value: &Value) -> Result<String, Unwritable> {
        NOTATION.literal(value)
    }

    fn assignment(&self, name: &str, expression: &str) -> String {
        format!("{name} = {expression}\n")
    }

    fn aside(&self, code: &str) -> String {
        let code = quoted(code);
        format!("exec(compile({code}, '<stasis>', 'exec'), {{'__name__': 'stasis_aside'}})")
    }

    fn comment(&self, text: &str) -> String {
        format!("# {}", text.replace(['\n', '\r'], " "))
    }

    fn number(&self, shown: &str) -> Option<f64> {
        // `3`, `-2.5e3`, `True`, `np.float64(0.5)`
        let call = shown.strip_suffix(')').and_then(|text| text.split_once('('));
        match call.map_or(shown, |(_, inner)| inner).trim() {
            "True" => Some(1.0),
            "False" => Some(0.0),
            text => text.parse().ok().filter(|number: &f64| !number.is_nan()),
        }
    }

    fn nothing(&self) -> &'static str {
        "None"
    }

    fn shell(&self, command: &str) -> String {
        let command = command.trim();
        let line = if is_plain(command) { command.to_owned() } else { one_word(command) };
        format!("!{line}\n_exit_code")
    }

    fn installer(&self) -> &'static str {
        "pip"
    }

    fn install(&self, packages: &[String]) -> String {
        let words: Vec<String> = packages.iter().map(|package| format!("'{package}'")).collect();
        format!("!pip install --retries 1 {}\n_exit_code", words.join(" "))
    }

    fn is_package(&self, package: &str) -> bool {
        let known = |c: char| c.is_ascii_alphanumeric() || "._-[],<>=!~*+ ;".contains(c);
        let named = package.starts_with(|c: char| c.is_ascii_alphanumeric());
        named && package.len() <= LONGEST_NAME && package.chars().all(known)
    }

    fn command(&self, about: &str, spec: &Value) -> String {
        let (about, program) = (self.comment(about), quoted(COMMAND));
        let spec = quoted(&spec.to_string());
        format!(
            "{about}\nexec(compile({program}, '<command>', 'exec'), \
             {{'__name__': 'command', 'spec': __import__('json').loads({spec})}})"
        )
    }

    fn before_eval(&self, code: &str) -> Option<&'static str> {
        let is_part = |c: char| c == '_' || c.is_alphanumeric();
        let mut words = code.split(|c: char| !is_part(c));
        words.any(|word| word == "np" || word == "numpy").then_some(NUMPY)
    }

    fn interrupts(&self) -> [&'static str; 2] {
        [INTERRUPT, "TimeoutError"]
    }
}

/// Whether a notebook line can contain the command unchanged: braces mean variables there.
fn is_plain(command: &str) -> bool {
    let odd = |c: char| c == '{' || c.is_control();
    !command.contains(odd) && !command.starts_with(['!', '%', '=']) && !command.ends_with('\\')
}

/// The command as one word of one line.
fn one_word(command: &str) -> String {
    let mut word = String::from("bash -c $'");
    for c in command.chars() {
        match c {
            '\\' | '\'' => word.extend(['\\', c]),
            '\n' => word.push_str("\\n"),
            '{' => word.push_str("\\x7b"),
            c if c.is_ascii_control() => word.push_str(&format!("\\x{:02x}", c as u32)),
            c if c.is_control() => word.push_str(&format!("\\u{:04x}", c as u32)),
            c => word.push(c),
        }
    }
    word + "'"
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn json_becomes_python() {
        let value = json!({"a": [1, -2.5, true, null], "é\n\"": {"b": "x"}});
        let text = Python.literal(&value).expect("a value");
        assert_eq!(text, "{\"a\": [1, -2.5, True, None], \"é\\n\\\"\": {\"b\": \"x\"}}");
        assert_eq!(Python.assignment("v", "1"), "v = 1\n");
    }

    #[test]
    fn what_is_no_variable() {
        for name in ["", "1a", "a.b", "a b", "x=1", "class", "ä", "a\n"] {
            assert!(!Python.is_identifier(name), "{name:?}");
        }
        let mut deep = json!(1);
        for _ in 0..100 {
            deep = json!([deep]);
        }
        assert!(Python.literal(&deep).is_err());
    }

    #[test]
    fn values_are_read_as_numbers() {
        let number = |shown| Python.number(shown);
        assert_eq!(number("np.float64(0.5)"), Some(0.5));
        assert_eq!(
            (number("-3"), number("True"), number("inf")),
            (Some(-3.0), Some(1.0), Some(f64::INFINITY))
        );
        for text in ["nan", "'1'", "[1]", "np.float64(nan)", ""] {
            assert_eq!(number(text), None, "{text:?}");
        }
    }

    #[test]
    fn plain_commands_stay_plain() {
        assert_eq!(Python.shell("ls -l | wc"), "!ls -l | wc\n_exit_code");
    }

    #[test]
    fn odd_commands_become_one_word() {
        let want = "!bash -c $'for x in \\x7b1..3}; do\\necho \\'$x\\' \\\\\\\\; done'\n_exit_code";
        assert_eq!(Python.shell("for x in {1..3}; do\necho '$x' \\\\; done"), want);
        assert_eq!(Python.shell("!ls"), "!bash -c $'!ls'\n_exit_code");
    }

    #[test]
    fn numpy_is_found_where_it_is_named() {
        let found = |code| Python.before_eval(code).is_some();
        assert!(found("np.arange(3)") && found("x = numpy.pi"));
        assert!(!found("inp + 1") && !found("np_ = 1") && !found(""));
    }

    #[test]
    fn the_log_says_what_ran_in_one_line() {
        let code = Python.command("$ echo a\nb", &json!({}));
        assert!(code.starts_with("# $ echo a b\nexec(compile("), "{code}");
    }
}
