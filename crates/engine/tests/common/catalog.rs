//! The programs of `tests/programs/programs.toml`, and how each is started.

use super::{Failure, Places, Result};
use serde::Deserialize;
use stasis_engine::LaunchSpec;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    C,
    Python,
    Js,
    Deno,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Spec {
    pub name: String,
    pub file: PathBuf,
    pub kind: Kind,
    #[serde(default)]
    pub args: Vec<String>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Its fate differs from event to event, as for programs in C.
    #[serde(default)]
    pub every_event: bool,
    /// The engine is right to refuse it.
    #[serde(default)]
    pub refused: bool,
}

#[derive(Deserialize)]
struct Catalog {
    program: Vec<Spec>,
}

impl Spec {
    pub fn all() -> Result<Vec<Spec>> {
        let path = Places::get()?.sources.join("programs.toml");
        let text = std::fs::read_to_string(&path).map_err(Failure::setup)?;
        let catalog: Catalog = toml::from_str(&text).map_err(Failure::setup)?;
        Ok(catalog.program)
    }

    pub fn named(name: &str) -> Result<Spec> {
        let found = Spec::all()?.into_iter().find(|spec| spec.name == name);
        found.ok_or_else(|| Failure::Setup(format!("no program {name} in programs.toml")))
    }

    /// The same program with other arguments.
    pub fn with_args(mut self, args: &[&str]) -> Spec {
        self.args = args.iter().map(|arg| arg.to_string()).collect();
        self
    }

    pub fn launch_spec(&self) -> Result<LaunchSpec> {
        let places = Places::get()?;
        let mut argv = self.command(places);
        let program = Path::new(&argv[0]);
        // only its name: a link may lead to a place that exists inside alone
        if places.inside(program).symlink_metadata().is_err() {
            let (path, root) = (program.display(), places.root.display());
            return Err(Failure::Setup(format!("no {path} in the root file system {root}")));
        }
        argv.extend(self.args.iter().cloned());
        let fixed =
            ["PATH=/usr/bin:/bin", "HOME=/tmp", "LANG=C.UTF-8", "PYTHONDONTWRITEBYTECODE=1"];
        let own = self.env.iter().map(|(name, value)| format!("{name}={value}"));
        let env = fixed.iter().map(|line| line.to_string()).chain(own).collect();
        Ok(LaunchSpec {
            path: argv[0].clone(),
            argv,
            env,
            cwd: "/tmp".into(),
            ..LaunchSpec::default()
        })
    }

    fn command(&self, places: &Places) -> Vec<String> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let script = text(&places.sources.join(&self.file));
        match self.kind {
            Kind::C => vec![text(&places.built.join(&self.name))],
            Kind::Python => vec![text(&places.python), script],
            Kind::Js => vec![text(&places.node), script],
            Kind::Deno => {
                let options = ["run", "--allow-all", "--quiet"].map(str::to_owned);
                [text(&places.deno)].into_iter().chain(options).chain([script]).collect()
            }
        }
    }
}
