//! The environment of an interpreter and what is installed in it.
//!
//!   the base's interpreter ──► environment ──installer──► packages ──► lock
//!
//! Everything runs in a jail as the user who owns the environment: an interpreter from an image is
//! not trusted, nor is a package's own code, where the recipe allows it to run. Downloads stay in
//! the cache, so that an interrupted build continues from there.

use crate::error::{Error, ErrorContext, Result};
use crate::index::HostIndex;
use crate::inside::{FilledRoot, USER};
use crate::jailed::{self, ProgramOutput};
use crate::progress::Progress;
use crate::recipe::{Base, Recipe};
use crate::tool;
use serde::Deserialize;
use stasis_agent::environment::{Environment, PackageInstaller};
use stasis_sys::jail::Jail;
use stasis_sys::trees;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The environment's interpreter describes itself here. An image may lie: these values are only
/// shown and checked.
#[derive(Debug, Clone, Deserialize)]
struct InterpreterInfo {
    site: PathBuf,
    version: String,
    /// Whether its installer comes with it.
    bootstraps: bool,
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
    fn ask(&self, about: &Environment, words: &[&str]) -> Result<ProgramOutput> {
        let words: Vec<&str> = [about.interpreter].iter().chain(words).copied().collect();
        self.run(self.jail()?, &words, self.env)
    }

    /// Makes the environment and fills it. `settle` gives everything the same time, which compiled
    /// files remember.
    pub fn fill(
        &self,
        about: &'static Environment,
        interpreter: &Path,
        settle: &dyn Fn() -> Result<()>,
    ) -> Result<FilledRoot> {
        let site = self.make(about, interpreter)?;
        let lock = self.install(about, &site)?;
        self.prepare(about)?;
        settle()?;
        self.compile(about, &site)?;
        let interpreter = PathBuf::from(about.interpreter);
        Ok(FilledRoot { interpreter, version: site.version, site: site.site, lock })
    }

    /// Makes the environment.
    fn make(&self, about: &Environment, interpreter: &Path) -> Result<InterpreterInfo> {
        let program = interpreter.to_string_lossy();
        let mut words = vec![program.as_ref()];
        words.extend(about.make);
        // an image's own packages are what it was chosen for
        if self.recipe.base != Base::Host {
            words.push(about.with_base);
        }
        words.push(about.dir);
        let said = self.run(self.jail()?, &words, self.env)?;
        if !said.ok {
            let what = format!("{program} cannot make an environment: {}", said.talk);
            let hint = about.make_hint;
            return Err(Error::Base { base: self.recipe.base.kind(), what, hint });
        }
        let said = self.ask(about, about.describe)?;
        let site: Option<InterpreterInfo> = serde_json::from_str(&said.answer).ok();
        let fits =
            |site: &InterpreterInfo| site.site.starts_with(about.dir) && site.version.len() < 40;
        site.filter(fits)
            .ok_or_else(|| Error::Packages(format!("the environment does not work: {}", said.talk)))
    }

    /// Installs the language's installer and the recipe's packages. Returns all installed packages.
    fn install(&self, about: &'static Environment, site: &InterpreterInfo) -> Result<Vec<String>> {
        self.progress.step("packages", 0, None);
        let alone = self.recipe.packages.is_empty() && site.bootstraps;
        if !alone {
            let host = crate::host::probe(about, None).ok().map(|found| found.executable);
            let index = HostIndex::ask(&about.index, host.as_deref());
            let tool =
                tool::find(&about.fast_installer, self.cache, host.as_deref(), self.progress);
            match tool.filter(|_| self.can_run_tool()) {
                Some(tool) => self.install_fast(about, &tool, &index)?,
                None => self.install_slowly(about, &index)?,
            }
        } else {
            self.bootstrap(about)?;
        }
        self.lock(about, site)
    }

    /// The tool is built for the GNU C library.
    fn can_run_tool(&self) -> bool {
        crate::tree::RootTree::open(self.root)
            .is_ok_and(|tree| tree.is_program(Path::new("/lib64/ld-linux-x86-64.so.2")))
    }

    fn bootstrap(&self, about: &Environment) -> Result<()> {
        require(&self.ask(about, about.bootstrap)?, about.installer.name)
    }

    fn install_fast(&self, about: &Environment, tool: &Path, index: &HostIndex) -> Result<()> {
        let installer = &about.fast_installer;
        let (file, inside) = (tool.to_string_lossy(), format!("/run/{}", installer.name));
        let (env, jail) = self.outgoing_for(installer, index)?;
        let jail = jail.show(&file, installer.name).doing(|| file.to_string())?;
        let words = self.words(&inside, installer);
        require(&self.run(jail, &words, &env)?, installer.name)
    }

    fn install_slowly(&self, about: &Environment, index: &HostIndex) -> Result<()> {
        self.bootstrap(about)?;
        if self.recipe.packages.is_empty() {
            return Ok(());
        }
        let installer = &about.installer;
        let (env, jail) = self.outgoing_for(installer, index)?;
        let words = self.words(about.interpreter, installer);
        require(&self.run(jail, &words, &env)?, installer.name)
    }

    fn words<'w>(&'w self, program: &'w str, installer: &PackageInstaller) -> Vec<&'w str> {
        let mut words = vec![program];
        words.extend(installer.words);
        if !self.recipe.source_builds {
            words.extend(installer.no_builds);
        }
        words.push("--");
        words.extend(installer.with);
        words.extend(self.recipe.packages.iter().map(String::as_str));
        words
    }

    fn outgoing_for(
        &self,
        installer: &PackageInstaller,
        index: &HostIndex,
    ) -> Result<(BTreeMap<String, String>, Jail)> {
        let (mut env, jail) = self.outgoing(index)?;
        env.insert(installer.cache.to_owned(), "/run/cache".to_owned());
        env.retain(|name, _| Some(name.as_str()) != installer.no_cache);
        Ok((env, jail))
    }

    /// Variables and a jail for an installer: with the network, the index and the cache.
    pub fn outgoing(&self, index: &HostIndex) -> Result<(BTreeMap<String, String>, Jail)> {
        let cache = self.downloads();
        let shared = || format!("{}", cache.display());
        let jail = make_shared(&cache)
            .and_then(|()| self.jail_with_cache(&cache))
            .and_then(|jail| index.variables(jail))
            .doing(shared)?;
        let (own, jail) = jail;
        let mut env = self.env.clone();
        env.extend(own);
        Ok((env, jail))
    }

    fn jail_with_cache(&self, cache: &Path) -> io::Result<Jail> {
        jailed::jail(self.root)?.with_network().share(&cache.to_string_lossy(), "cache")
    }

    /// The directory of downloads. Untrusted code could change them, so where such code runs, it
    /// has its own cache.
    fn downloads(&self) -> PathBuf {
        match self.is_trusted() {
            true => self.cache.join("packages"),
            false => self.cache.join(format!("packages-{}", &self.recipe.root_digest()[..16])),
        }
    }

    fn is_trusted(&self) -> bool {
        !matches!(self.recipe.base, Base::Oci(_)) && !self.recipe.source_builds
    }

    /// Removes the downloads of a successful build: their contents are in the root.
    pub fn forget(&self) {
        let _ = trees::remove(&self.downloads());
    }

    /// The packages installed in the environment, as `name==version`.
    fn lock(&self, about: &Environment, site: &InterpreterInfo) -> Result<Vec<String>> {
        let path = site.site.to_string_lossy();
        let words: Vec<&str> = about.list.iter().copied().chain([path.as_ref()]).collect();
        let said = self.ask(about, &words)?;
        require(&said, "listing installed packages")?;
        Ok(said.answer.lines().map(str::to_owned).filter(|line| !line.is_empty()).collect())
    }

    /// Runs the recipe's own code.
    fn prepare(&self, about: &Environment) -> Result<()> {
        if self.recipe.prepare.is_empty() {
            return Ok(());
        }
        self.progress.step("prepare", 0, None);
        let said = self.ask(about, &[about.code, &self.recipe.prepare])?;
        if said.ok { Ok(()) } else { Err(Error::Prepare(said.talk)) }
    }

    /// Compiles what is installed, so that no machine has to.
    fn compile(&self, about: &Environment, site: &InterpreterInfo) -> Result<()> {
        self.progress.step("compile", 0, None);
        let (again, part) = about.compile_again;
        let steps = [(about.compile, site.site.clone()), (again, site.site.join(part))];
        for (words, path) in steps {
            let path = path.to_string_lossy();
            let words: Vec<&str> = words.iter().copied().chain([path.as_ref()]).collect();
            self.ask(about, &words)?;
        }
        Ok(())
    }
}

fn require(said: &ProgramOutput, who: &str) -> Result<()> {
    if said.ok { Ok(()) } else { Err(Error::Packages(format!("{who}: {}", said.talk))) }
}

fn make_shared(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    std::os::unix::fs::chown(dir, Some(USER), Some(USER))
}
