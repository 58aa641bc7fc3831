//! The environment for Python and what is installed in it.
//!
//!   the base's interpreter ──venv──► /opt/venv ──uv (else pip)──► packages ──► lock
//!
//! Everything runs in a jail as the user who owns the environment: an interpreter from an image is
//! not trusted, and a package's own code, where the recipe allows it to run, neither. Downloads
//! stay in the cache, so that a build that was stopped goes on from there.

use crate::error::{Error, ErrorContext, Result};
use crate::index::{self, PipSettings};
use crate::inside::{FilledRoot, InterpreterKit, USER};
use crate::jailed::{self, ProgramOutput};
use crate::progress::Progress;
use crate::recipe::{Base, Recipe};
use crate::uv;
use serde::Deserialize;
use stasis_sys::jail::Jail;
use stasis_sys::trees;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The virtual environment. It is the user's own, so a plain `pip install` works.
const VENV: &str = "/opt/venv";

pub const KIT: InterpreterKit = InterpreterKit {
    dirs: &[VENV],
    bin: "/opt/venv/bin",
    env: &[
        ("VIRTUAL_ENV", VENV),
        // downloads would otherwise be kept with every machine, for ever
        ("PIP_NO_CACHE_DIR", "1"),
        ("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
        ("PIP_NO_INPUT", "1"),
        ("PIP_PROGRESS_BAR", "off"),
    ],
};

const QUESTION: &str = r#"
import importlib.util, json, platform, sysconfig
print(json.dumps({
    "site": sysconfig.get_path("purelib"),
    "version": platform.python_version(),
    "ensurepip": importlib.util.find_spec("ensurepip") is not None,
}))
"#;

const LISTING: &str = r#"
import importlib.metadata, sys
found = importlib.metadata.distributions(path=sys.argv[1:])
print(*sorted({f"{one.metadata['Name'].lower()}=={one.version}" for one in found}), sep="\n")
"#;

/// What the environment's interpreter says of itself. An image may lie: only shown and checked.
#[derive(Debug, Clone, Deserialize)]
struct InterpreterInfo {
    site: PathBuf,
    version: String,
    ensurepip: bool,
}

/// A root whose environment is being filled.
pub struct Installer<'a> {
    pub recipe: &'a Recipe,
    pub root: &'a Path,
    pub cache: &'a Path,
    pub env: &'a BTreeMap<String, String>,
    pub progress: &'a dyn Progress,
}

impl Installer<'_> {
    fn jail(&self) -> Result<Jail> {
        jailed::jail(self.root).doing(|| "a jail".to_owned())
    }

    fn run(
        &self,
        jail: Jail,
        words: &[&str],
        env: &BTreeMap<String, String>,
    ) -> Result<ProgramOutput> {
        jailed::run(jail, words, env, self.progress).doing(|| format!("running {}", words[0]))
    }

    /// Runs the environment's interpreter without a network.
    fn python(&self, words: &[&str]) -> Result<ProgramOutput> {
        let program = format!("{VENV}/bin/python");
        let words: Vec<&str> =
            std::iter::once(program.as_str()).chain(words.iter().copied()).collect();
        self.run(self.jail()?, &words, self.env)
    }

    /// Makes the environment and fills it. `settle` gives everything the same time, which compiled
    /// files remember.
    pub fn fill(&self, python: &Path, settle: &dyn Fn() -> Result<()>) -> Result<FilledRoot> {
        let site = self.make(python)?;
        let lock = self.install(&site)?;
        self.prepare()?;
        settle()?;
        self.compile(&site)?;
        let interpreter = PathBuf::from(format!("{VENV}/bin/python"));
        Ok(FilledRoot { interpreter, version: site.version, site: site.site, lock })
    }

    /// Makes the environment.
    fn make(&self, python: &Path) -> Result<InterpreterInfo> {
        let program = python.to_string_lossy();
        let mut words = vec![program.as_ref(), "-I", "-m", "venv", "--without-pip"];
        // an image's own packages are what it was chosen for
        if self.recipe.base != Base::Host {
            words.push("--system-site-packages");
        }
        words.push(VENV);
        let said = self.run(self.jail()?, &words, self.env)?;
        if !said.ok {
            let what = format!("{program} cannot make an environment: {}", said.talk);
            let hint = "the interpreter needs its modules venv and json";
            return Err(Error::Base { base: self.recipe.base.kind(), what, hint });
        }
        let said = self.python(&["-I", "-c", QUESTION])?;
        let site: Option<InterpreterInfo> = serde_json::from_str(&said.answer).ok();
        let fits = |site: &InterpreterInfo| site.site.starts_with(VENV) && site.version.len() < 40;
        site.filter(fits)
            .ok_or_else(|| Error::Packages(format!("the environment does not work: {}", said.talk)))
    }

    /// Installs pip and the recipe's packages; what is there then.
    fn install(&self, site: &InterpreterInfo) -> Result<Vec<String>> {
        self.progress.step("packages", 0, None);
        let alone = self.recipe.packages.is_empty() && site.ensurepip;
        if !alone {
            let host = crate::host::probe(None).ok().map(|python| python.executable);
            let settings = index::of_host(host.as_deref());
            let uv = uv::find(self.cache, host.as_deref(), self.progress);
            match uv.filter(|_| self.can_run_uv()) {
                Some(uv) => self.with_uv(&uv, &settings)?,
                None => self.with_pip(&settings)?,
            }
        } else {
            self.bootstrap()?;
        }
        self.lock(site)
    }

    /// uv is built for the GNU C library.
    fn can_run_uv(&self) -> bool {
        crate::tree::RootTree::open(self.root)
            .is_ok_and(|tree| tree.is_program(Path::new("/lib64/ld-linux-x86-64.so.2")))
    }

    fn bootstrap(&self) -> Result<()> {
        let said = self.python(&["-m", "ensurepip", "--default-pip"])?;
        require(&said, "ensurepip")
    }

    fn with_uv(&self, uv: &Path, settings: &PipSettings) -> Result<()> {
        let python = format!("{VENV}/bin/python");
        let mut words = vec!["/run/uv", "pip", "install", "--python", &python, "--no-config"];
        words.extend(["--link-mode", "copy", "--no-progress"]);
        if !self.recipe.source_builds {
            words.push("--no-build");
        }
        words.extend(["--", "pip"]);
        words.extend(self.recipe.packages.iter().map(String::as_str));
        let uv = uv.to_string_lossy();
        let (mut env, jail) = self.outgoing(settings)?;
        env.insert("UV_CACHE_DIR".to_owned(), "/run/cache".to_owned());
        let jail = jail.show(&uv, "uv").doing(|| uv.to_string())?;
        require(&self.run(jail, &words, &env)?, "uv")
    }

    fn with_pip(&self, settings: &PipSettings) -> Result<()> {
        self.bootstrap()?;
        let python = format!("{VENV}/bin/python");
        let mut words = vec![python.as_str(), "-m", "pip", "install", "--no-compile"];
        if !self.recipe.source_builds {
            words.extend(["--only-binary", ":all:"]);
        }
        words.push("--");
        words.extend(self.recipe.packages.iter().map(String::as_str));
        if self.recipe.packages.is_empty() {
            return Ok(());
        }
        let (mut env, jail) = self.outgoing(settings)?;
        env.remove("PIP_NO_CACHE_DIR");
        env.insert("PIP_CACHE_DIR".to_owned(), "/run/cache".to_owned());
        require(&self.run(jail, &words, &env)?, "pip")
    }

    /// Variables and a jail for an installer: with the network, the index and the cache.
    pub fn outgoing(&self, settings: &PipSettings) -> Result<(BTreeMap<String, String>, Jail)> {
        let cache = self.downloads();
        let shared = || format!("{}", cache.display());
        let jail = make_shared(&cache)
            .and_then(|()| self.jail_with_cache(&cache))
            .and_then(|jail| index::variables(settings, jail))
            .doing(shared)?;
        let (own, jail) = jail;
        let mut env = self.env.clone();
        env.extend(own);
        Ok((env, jail))
    }

    fn jail_with_cache(&self, cache: &Path) -> io::Result<Jail> {
        jailed::jail(self.root)?.with_network().share(&cache.to_string_lossy(), "cache")
    }

    /// Where downloads are kept. Code that is not trusted could change them, so where such code
    /// runs, the cache is its own.
    fn downloads(&self) -> PathBuf {
        match self.is_trusted() {
            true => self.cache.join("packages"),
            false => self.cache.join(format!("packages-{}", &self.recipe.root_digest()[..16])),
        }
    }

    fn is_trusted(&self) -> bool {
        !matches!(self.recipe.base, Base::Oci(_)) && !self.recipe.source_builds
    }

    /// Downloads of a build that succeeded have done their work: what they became is in the root.
    pub fn forget(&self) {
        let _ = trees::remove(&self.downloads());
    }

    /// What is installed in the environment, as `name==version`.
    fn lock(&self, site: &InterpreterInfo) -> Result<Vec<String>> {
        let said = self.python(&["-I", "-c", LISTING, &site.site.to_string_lossy()])?;
        require(&said, "listing what is installed")?;
        Ok(said.answer.lines().map(str::to_owned).filter(|line| !line.is_empty()).collect())
    }

    /// Runs the recipe's own code.
    fn prepare(&self) -> Result<()> {
        if self.recipe.prepare.is_empty() {
            return Ok(());
        }
        self.progress.step("prepare", 0, None);
        let said = self.python(&["-c", &self.recipe.prepare])?;
        if said.ok { Ok(()) } else { Err(Error::Prepare(said.talk)) }
    }

    /// Compiles what is installed, so that no machine has to.
    fn compile(&self, site: &InterpreterInfo) -> Result<()> {
        self.progress.step("compile", 0, None);
        let path = site.site.to_string_lossy();
        // tests are hardly ever imported, and files that are no Python of this version (templates,
        // examples of bad syntax) do not compile
        self.python(&["-m", "compileall", "-qq", "-j", "0", "-x", "/tests?/", &path])?;
        // pip compiled itself, tests and all, when it was put there: with times of then
        let pip = site.site.join("pip").to_string_lossy().into_owned();
        self.python(&["-m", "compileall", "-qq", "-f", "-j", "0", &pip]).map(drop)
    }
}

fn require(said: &ProgramOutput, who: &str) -> Result<()> {
    if said.ok { Ok(()) } else { Err(Error::Packages(format!("{who}: {}", said.talk))) }
}

fn make_shared(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    std::os::unix::fs::chown(dir, Some(USER), Some(USER))
}
