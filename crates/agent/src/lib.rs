//! The languages of machines, and the agents that run them: all that is known of a language is in
//! its entry here.
//!
//!   machine, mcp, cli, forkd ──► Language (the table) ──► python.rs ──► python/ (the agent)
//!                                                    └──► javascript.rs ──► javascript/
//!
//! An agent is built into the binary. The host writes `files` below a directory of the machine and
//! runs `argv` there, with an empty standard input, pipes as standard output and error, and the
//! control socket as descriptor 3. The agent answers on the socket as `stasis-protocol` defines,
//! and exits when the socket is closed. `cargo xtask tidy` keeps other crates from naming a
//! language.

#![forbid(unsafe_code)]

pub mod environment;
mod javascript;
mod notation;
mod prepare;
mod python;
pub mod typescript;

pub use javascript::module_form;
pub use prepare::{FILE, LARGEST, PREPARE};

use environment::{Environment, HostTool};
use serde_json::Value;
use stasis_protocol::{Done, PreparedCode, PreparedModule};
use std::fmt;
use std::path::Path;

/// Every language machines speak; the first is the default.
pub const LANGUAGES: &[&dyn Language] = &[&python::Python, &javascript::JavaScript];

/// The name of the error that ends an installation of packages on a machine without an installer.
pub const NO_INSTALLER: &str = "packages.no_installer";

/// The key of a recipe that names the interpreter of an environment.
pub const INTERPRETER_KEY: &str = python::NAME;

/// The package that draws Vega charts, in the language whose machines make them.
pub const VEGA_PACKAGE: &str = "vl-convert-python";

/// Names of variables and packages have at most this many bytes.
const LONGEST_NAME: usize = 200;

/// Everything the host knows about a language.
pub trait Language: Sync {
    /// Its name in recipes, records and requests.
    fn name(&self) -> &'static str;

    /// Other names people give it.
    fn aliases(&self) -> &'static [&'static str] {
        &[]
    }

    /// Its name for people.
    fn title(&self) -> &'static str;

    /// The interpreter that runs it.
    fn runtime(&self) -> Runtime;

    /// Programs that a host needs for it.
    fn host_tools(&self) -> &'static [HostTool];

    /// The recipe of the template that has its name.
    fn recipe(&self) -> &'static str;

    /// The agent's files: paths below its directory, and contents.
    fn files(&self) -> &'static [(&'static str, &'static str)];

    /// Endings of files with code of it.
    fn endings(&self) -> &'static [&'static str];

    /// Code that gives a script its arguments: a list in JSON, with the script's name first.
    fn arguments(&self, words: &Value) -> String;

    /// The command line that starts the agent from its directory with an interpreter.
    fn argv(&self, interpreter: &str, dir: &str) -> Vec<String>;

    /// Colours of code while it is typed.
    fn syntax(&self) -> &'static Syntax;

    /// Whether a name can be that of a variable.
    fn is_identifier(&self, name: &str) -> bool {
        let syntax = self.syntax();
        let first = |c: char| c.is_ascii_alphabetic() || syntax.name_signs.contains(c);
        let plain = |c: char| c.is_ascii_digit() || first(c);
        name.starts_with(first)
            && name.len() <= LONGEST_NAME
            && name.chars().all(plain)
            && !syntax.reserved.contains(&name)
    }

    /// A value that came as JSON, as an expression.
    fn literal(&self, value: &Value) -> Result<String, Unwritable>;

    /// A statement that binds a name to an expression.
    fn assignment(&self, name: &str, expression: &str) -> String;

    /// Code that leaves no trace among the session's variables.
    fn aside(&self, code: &str) -> String;

    /// A comment in one line.
    fn comment(&self, text: &str) -> String;

    /// A number out of a value as the agent shows it.
    fn number(&self, shown: &str) -> Option<f64>;

    /// The text that an expression without a value shows.
    fn nothing(&self) -> &'static str;

    /// Code that runs a command of the shell; its value is the exit code.
    fn shell(&self, command: &str) -> String;

    /// The program that installs packages.
    fn installer(&self) -> &'static str;

    /// Code that installs packages whose names `is_package` accepts; its value is the exit code.
    fn install(&self, packages: &[String]) -> String;

    /// Whether this is the name of a package, and nothing that the installer or a shell would take
    /// for something else.
    fn is_package(&self, package: &str) -> bool;

    /// The program that runs commands for forkd's clients, as code; `spec` is JSON.
    fn command(&self, about: &str, spec: &Value) -> String;

    /// Code to run before an `eval` of forkd's clients, which have some names without an import.
    fn before_eval(&self, code: &str) -> Option<&'static str>;

    /// Instructions without effects, run a few times before a template is captured: machines then
    /// have in their memory what the interpreter prepares at the first use of each of its parts.
    fn rehearsal(&self) -> &'static [&'static str] {
        &[]
    }

    /// Names of the errors that end an interrupted instruction: by a request, by its timeout.
    fn interrupts(&self) -> [&'static str; 2];

    /// Prepares code that the agent could not parse: other code to run, or an error; `None` if the
    /// agent's own error will do. `programs` is where the programs of this build are.
    fn prepare(&self, _programs: &Path, _code: &str) -> Option<PreparedCode> {
        None
    }

    /// The code to run in place of an imported file in a typed form of the language; `None` if
    /// there is no such form.
    fn prepare_file(&self, _programs: &Path, _text: &str) -> Option<PreparedModule> {
        None
    }
}

impl fmt::Debug for dyn Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The interpreter of a language, which a template's root file system has to hold.
#[derive(Debug, Clone, Copy)]
pub enum Runtime {
    /// The base's, with an environment that packages are installed into.
    Environment(&'static Environment),
    /// Node, and a library that the agent loads from the directory `lib` beside that of Node.
    Node { native: &'static [u8] },
}

impl Runtime {
    pub fn environment(&self) -> Option<&'static Environment> {
        match self {
            Runtime::Environment(environment) => Some(environment),
            Runtime::Node { .. } => None,
        }
    }
}

/// A value that cannot be written in a language, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unwritable(pub String);

impl fmt::Display for Unwritable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Words and signs of a language, for colours and names.
#[derive(Debug)]
pub struct Syntax {
    /// Words that cannot be names.
    pub reserved: &'static [&'static str],
    /// Words that are keywords in some places and names in others.
    pub soft: &'static [&'static str],
    /// Signs that names may have beside letters and digits.
    pub name_signs: &'static str,
    /// The sign that begins a comment up to the end of the line.
    pub comment: &'static str,
    /// The quotes of strings.
    pub quotes: &'static [char],
    /// Whether a quote three times begins a string of several lines.
    pub long_strings: bool,
    /// Letters allowed as a string's prefix.
    pub prefixes: &'static str,
}

impl Syntax {
    pub fn is_keyword(&self, word: &str) -> bool {
        self.reserved.contains(&word) || self.soft.contains(&word)
    }
}

/// The language of a file, by its ending.
pub fn language_of_file(path: &Path) -> Option<&'static dyn Language> {
    let ending = path.extension()?.to_str()?;
    LANGUAGES.iter().copied().find(|one| one.endings().contains(&ending))
}

/// The language of that name.
pub fn language(name: &str) -> Option<&'static dyn Language> {
    let fits = |one: &&dyn Language| one.name() == name || one.aliases().contains(&name);
    LANGUAGES.iter().copied().find(fits)
}

/// The name of the default language, and of the default template.
pub const DEFAULT_NAME: &str = python::NAME;

/// The language of machines whose template names none.
pub fn default() -> &'static dyn Language {
    LANGUAGES[0]
}

/// Whether an interrupt ended an instruction.
pub fn was_interrupted(language: &dyn Language, done: &Done) -> bool {
    match done.how {
        Some(how) => how == stasis_protocol::InstructionEnd::Interrupted,
        // older agents do not report it: the name of the error decides
        None => {
            let [interrupt, _] = language.interrupts();
            done.error.as_ref().is_some_and(|error| error.name == interrupt)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stasis_protocol::{ExceptionInfo, InstructionEnd};

    #[test]
    fn names_are_unique_and_found() {
        for (at, one) in LANGUAGES.iter().enumerate() {
            assert_eq!(language(one.name()).map(|one| one.name()), Some(one.name()));
            for name in one.aliases().iter().chain([&one.name()]) {
                assert_eq!(language(name).map(|found| found.name()), Some(one.name()));
                assert!(LANGUAGES[..at].iter().all(|other| other.name() != *name));
            }
            assert!(!one.files().is_empty() && !one.syntax().reserved.is_empty());
            // the host reads an agent's files back in order
            assert!(one.files().is_sorted_by_key(|(path, _)| path), "{}", one.name());
        }
        assert!(language("cobol").is_none());
    }

    /// An agent's report of how an instruction ended is used; for an older agent its error decides.
    #[test]
    fn the_agent_says_how_it_ended() {
        let failed = |name: &str, how: Option<InstructionEnd>| {
            let error = Some(ExceptionInfo { name: name.into(), ..ExceptionInfo::default() });
            was_interrupted(default(), &Done { error, how, ..Done::default() })
        };
        let [name, _] = default().interrupts();
        assert!(failed(name, None) && !failed("ValueError", None));
        assert!(
            !failed(name, Some(InstructionEnd::Failed))
                && failed("Mine", Some(InstructionEnd::Interrupted))
        );
        assert!(!failed(name, Some(InstructionEnd::Unknown)));
    }
}
