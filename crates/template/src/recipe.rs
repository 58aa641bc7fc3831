//! The recipe of a template, as a file.
//!
//!   text ──parse──► Recipe ──check──► Recipe ──digest──► the name of what it makes
//!
//! Unknown keys are refused. An error names the key and, where the text is at hand, the line.

use crate::error::{Error, ErrorContext, Result};
use crate::size::Size;
use serde::{Deserialize, Serialize};
use stasis_agent::Language;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const LONGEST: usize = 64 * 1024;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Recipe {
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The language of its machines.
    #[serde(default = "default_language", skip_serializing_if = "is_default_language")]
    pub language: String,
    /// The interpreter: a version (`3.12`), a name, or a path. By default the language's own.
    #[serde(default, rename = "python", skip_serializing_if = "Option::is_none")]
    pub interpreter: Option<String>,
    /// Requirements as the language's installer writes them; pin what should not move.
    #[serde(default)]
    pub packages: Vec<String>,
    /// Packages of the distribution, for the base `debian`.
    #[serde(default)]
    pub apt: Vec<String>,
    /// Allows packages without a wheel to be built, which runs their code.
    #[serde(default)]
    pub source_builds: bool,
    /// Code run once while the root is built, as the machine's user and without a network;
    /// the files it leaves in the home and in the environment belong to the root.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prepare: String,
    /// Code run before the template is captured. Every machine has the modules that it imports.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub warm_up: String,
    #[serde(default = "host")]
    pub base: Base,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    #[serde(default)]
    pub limits: RecipeLimits,
}

/// The base of the root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Base {
    /// The host's interpreter and a small set of its programs, copied.
    Host,
    /// A Debian suite, laid out by mmdebstrap.
    Debian {
        #[serde(default = "stable")]
        suite: String,
    },
    /// A container image.
    Oci(ImageSource),
}

/// The source of a container image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ImageSource {
    /// In a registry. Without a digest, the tag's image at build time.
    Reference(String),
    /// A directory in the OCI layout.
    Layout(PathBuf),
    /// A tar file of such a directory, or one that `docker save` wrote.
    Archive(PathBuf),
}

/// Limits of one machine, unless set when it is created.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecipeLimits {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Size>,
    /// Processors, such as 1.5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<Size>,
}

fn host() -> Base {
    Base::Host
}

fn default_language() -> String {
    stasis_agent::DEFAULT_NAME.to_owned()
}

// an omitted field names the same recipe as before there were languages
fn is_default_language(name: &String) -> bool {
    name == stasis_agent::DEFAULT_NAME
}

fn stable() -> String {
    "trixie".to_owned()
}

impl Base {
    pub fn kind(&self) -> &'static str {
        match self {
            Base::Host => "host",
            Base::Debian { .. } => "debian",
            Base::Oci(_) => "oci",
        }
    }
}

impl Recipe {
    /// The template every machine starts from unless another is named.
    pub fn default_template() -> Recipe {
        Recipe::parse(Recipe::sample()).expect("the recipes that are compiled in are tested")
    }

    /// The recipe of this name that is compiled in. The template of a language has its name.
    pub fn built_in(name: &str) -> Option<Recipe> {
        let parsed = |one: &&dyn Language| Recipe::parse(one.recipe()).ok();
        stasis_agent::LANGUAGES.iter().filter_map(parsed).find(|recipe| recipe.name == name)
    }

    /// The language of its machines.
    pub(crate) fn language(&self) -> Result<&'static dyn Language> {
        let known = || stasis_agent::LANGUAGES.iter().map(|one| one.name()).collect::<Vec<_>>();
        let own = stasis_agent::LANGUAGES.iter().copied().find(|one| one.name() == self.language);
        own.ok_or_else(|| Error::key("language", format!("one of {}", known().join(", "))))
    }

    /// A recipe to begin with, with comments.
    pub fn sample() -> &'static str {
        stasis_agent::default().recipe()
    }

    pub fn parse(text: &str) -> Result<Recipe> {
        if text.len() > LONGEST {
            return Err(Error::key("file", format!("longer than {LONGEST} bytes")));
        }
        let recipe: Recipe = toml::from_str(text).map_err(|error| not_toml(text, &error))?;
        recipe.check().map_err(|error| with_line(text, error))?;
        Ok(recipe)
    }

    /// Reads a file. Paths in it are meant from its own directory.
    pub fn read(path: &Path) -> Result<Recipe> {
        let text = fs::read_to_string(path).doing(|| format!("{}", path.display()))?;
        let mut recipe = Recipe::parse(&text)?;
        let dir = path.parent().unwrap_or(Path::new(""));
        if let Base::Oci(ImageSource::Layout(given) | ImageSource::Archive(given)) =
            &mut recipe.base
        {
            let from = dir.join(&*given);
            *given = std::path::absolute(&from).doing(|| format!("{}", from.display()))?;
        }
        Ok(recipe)
    }

    pub fn print(&self) -> String {
        toml::to_string_pretty(self).expect("a recipe has no value that TOML lacks")
    }

    /// The part visible to users who may not build templates: the packages, without the
    /// environment, the code, and paths of the host.
    pub fn public(&self) -> Recipe {
        let base = match &self.base {
            Base::Oci(ImageSource::Layout(_)) => Base::Oci(ImageSource::Layout(PathBuf::new())),
            Base::Oci(ImageSource::Archive(_)) => Base::Oci(ImageSource::Archive(PathBuf::new())),
            other => other.clone(),
        };
        let (prepare, warm_up, env) = (String::new(), String::new(), BTreeMap::new());
        Recipe { base, prepare, warm_up, env, ..self.clone() }
    }

    /// Names the whole recipe: its contents, and how its machines start.
    pub fn digest(&self) -> String {
        hash(self)
    }

    /// Names the part of the recipe that decides the contents of the root.
    pub(crate) fn root_digest(&self) -> String {
        let part = Recipe {
            name: String::new(),
            description: String::new(),
            warm_up: String::new(),
            limits: RecipeLimits::default(),
            ..self.clone()
        };
        hash(&part)
    }

    /// Checks every value; a recipe that was not parsed is checked when it is built.
    pub fn check(&self) -> Result<()> {
        crate::check::recipe(self)
    }
}

fn hash(recipe: &Recipe) -> String {
    let bytes = serde_json::to_vec(recipe).expect("a recipe has no value that JSON lacks");
    blake3::hash(&bytes).to_hex().to_string()
}

fn line_at(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
}

fn not_toml(text: &str, error: &toml::de::Error) -> Error {
    let said = error.message();
    if let Some(key) = quoted(said, "missing field ") {
        let what = "every recipe has one".to_owned();
        return Error::Recipe { key: key.to_owned(), line: None, what };
    }
    let line = error.span().map(|span| line_at(text, span.start));
    if let Some(key) = quoted(said, "unknown field ") {
        return Error::Recipe { key: key.to_owned(), line, what: unknown(key, said) };
    }
    let whole = line.and_then(|line| text.lines().nth(line - 1)).unwrap_or("file");
    let key = whole.split('=').next().unwrap_or(whole).trim().to_owned();
    let what = match key.as_str() {
        "base" => format!("{said}; {}", bases()),
        _ => said.to_owned(),
    };
    Error::Recipe { key, line, what }
}

fn bases() -> String {
    let oci = stasis_agent::default().runtime().environment().map_or("...", |about| about.image);
    format!(
        "write \"host\", {{ debian = {{ suite = \"trixie\" }} }}, or \
         {{ oci = {{ reference = \"{oci}\" }} }}"
    )
}

/// The text in backticks after some words.
fn quoted<'a>(said: &'a str, words: &str) -> Option<&'a str> {
    said.strip_prefix(words)?.strip_prefix('`')?.split('`').next()
}

/// The valid keys, the most similar one first.
fn unknown(key: &str, said: &str) -> String {
    let known: Vec<&str> = said.split('`').skip(3).step_by(2).collect();
    let alike = |name: &&str| strsim::jaro_winkler(key, name);
    let best = known.iter().copied().max_by(|a, b| alike(a).total_cmp(&alike(b)));
    let meant = best.filter(|name| alike(name) >= 0.75).map(|name| format!("; is it `{name}`?"));
    let all = known.join(", ");
    format!("there is no such key{} There are {all}", meant.unwrap_or_else(|| ".".into()))
}

/// Adds the line on which the key of an error is set.
fn with_line(text: &str, error: Error) -> Error {
    let Error::Recipe { key, line: None, what } = error else { return error };
    let last = key.rsplit('.').next().unwrap_or(&key).to_owned();
    let sets = |line: &str| {
        let line = line.trim_start_matches([' ', '[', '"']);
        line.strip_prefix(last.as_str())
            .is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
    };
    let line = text.lines().position(sets).map(|index| index + 1);
    Error::Recipe { key, line, what }
}
