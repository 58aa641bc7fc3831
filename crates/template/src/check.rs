//! Which values a recipe may have. Pure; the first that is wrong is named by its key.

use crate::recipe::{Base, ImageSource, Recipe, RecipeLimits};
use crate::size::Size;
use crate::{Error, Result};
use stasis_agent::{INTERPRETER_KEY, Language, Runtime};

const LONGEST_NAME: usize = 40;
const LONGEST_VALUE: usize = 1000;
const MOST: usize = 1000;
const LEAST_MEMORY: Size = Size(64 << 20);

pub fn recipe(recipe: &Recipe) -> Result<()> {
    name(&recipe.name)?;
    let language = recipe.language()?;
    base(&recipe.base)?;
    for_node(recipe, language)?;
    let fits = |text: &str| match language.runtime() {
        Runtime::Node { .. } => language.is_package(text),
        Runtime::Environment(_) => requirement(text),
    };
    each("packages", &recipe.packages, fits)?;
    each("apt", &recipe.apt, apt)?;
    let debian = matches!(recipe.base, Base::Debian { .. });
    require(debian || recipe.apt.is_empty(), "apt", "only the base `debian` supports these")?;
    require(recipe.env.len() <= MOST, "env", "too many")?;
    for (key, value) in &recipe.env {
        variable(key, value)?;
    }
    if let Some(named) = &recipe.interpreter {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
        let fits = !named.is_empty() && !named.starts_with('-') && named.chars().all(is_plain);
        require(fits, INTERPRETER_KEY, "a version such as 3.12, a name or a path")?;
    }
    limits(&recipe.limits)
}

/// Node's machines are made from the host's userland.
fn for_node(recipe: &Recipe, language: &dyn Language) -> Result<()> {
    if !matches!(language.runtime(), Runtime::Node { .. }) {
        return Ok(());
    }
    let said = |what: &str| format!("{what} for the language {} yet", recipe.language);
    require(recipe.base == Base::Host, "base", &said("only \"host\""))?;
    require(recipe.interpreter.is_none(), INTERPRETER_KEY, &said("none"))?;
    require(recipe.prepare.is_empty(), "prepare", &said("none"))
}

fn require(fits: bool, key: &str, what: &str) -> Result<()> {
    if fits { Ok(()) } else { Err(Error::key(key, what)) }
}

fn name(name: &str) -> Result<()> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let fits = (1..=LONGEST_NAME).contains(&name.len())
        && name.chars().all(is_plain)
        && !name.starts_with('-');
    require(fits, "name", "1 to 40 of a-z, 0-9 and -, not starting with -")
}

fn base(base: &Base) -> Result<()> {
    match base {
        Base::Host => Ok(()),
        Base::Debian { suite } => {
            let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            let fits = suite.starts_with(|c: char| c.is_ascii_lowercase());
            require(fits && suite.chars().all(is_plain), "base.suite", "such as trixie")
        }
        Base::Oci(ImageSource::Reference(reference)) => {
            let parsed = reference.parse::<oci_client::Reference>();
            parsed.map(drop).map_err(|error| Error::key("base.reference", error.to_string()))
        }
        Base::Oci(ImageSource::Layout(path) | ImageSource::Archive(path)) => {
            require(!path.as_os_str().is_empty(), "base", "the path is empty")
        }
    }
}

fn each(key: &str, values: &[String], fits: impl Fn(&str) -> bool) -> Result<()> {
    require(values.len() <= MOST, key, "too many")?;
    match values.iter().find(|value| !fits(value)) {
        Some(value) => Err(Error::key(key, format!("{value:?} is not a package"))),
        None => Ok(()),
    }
}

/// A requirement must not be read as an option by the installer.
fn requirement(text: &str) -> bool {
    text.len() <= LONGEST_VALUE
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && !text.contains(char::is_control)
}

/// A name of Debian's, perhaps with `=version`.
fn apt(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "+-.=:~".contains(c);
    text.len() <= LONGEST_VALUE
        && text.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && text.chars().all(is_plain)
}

fn variable(key: &str, value: &str) -> Result<()> {
    let starts = key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let fits = starts && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let what = "a variable has a name of letters, digits and _, and a value without NUL";
    require(fits && !value.contains('\0'), &format!("env.{key}"), what)
}

fn limits(limits: &RecipeLimits) -> Result<()> {
    let cpu = limits.cpu.is_none_or(|cpu| cpu.is_finite() && (0.01..=1024.0).contains(&cpu));
    require(cpu, "limits.cpu", "0.01 to 1024 processors")?;
    let memory = limits.memory.is_none_or(|memory| memory >= LEAST_MEMORY);
    require(memory, "limits.memory", "at least 64MiB")?;
    require(limits.pids.is_none_or(|pids| pids >= 4), "limits.pids", "at least 4")?;
    require(limits.disk.is_none_or(|disk| disk.0 > 0), "limits.disk", "more than nothing")
}
