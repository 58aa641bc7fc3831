//! From a recipe to a finished root.
//!
//!   recipe ──► key ──► there already? ──► done
//!                 └──► lock ──► lay out the base ──► furnish ──► fill: packages, prepare, compile
//!                                                           rename, describe ◄── sync ◄── seal
//!
//! The directory is built under a temporary name and renamed when it is complete and on disk; the
//! description follows. A killed build leaves a temporary directory, which the next build removes;
//! its downloads stay in the cache. A lock on a file serialises builds.

use crate::error::{Error, ErrorContext, Result};
use crate::inside::{self, BaseLayout, FilledRoot, InterpreterKit};
use crate::packages::Installer;
use crate::progress::Progress;
use crate::recipe::{Base, ImageSource, Recipe};
use crate::root::{self, FORMAT, Root};
use crate::seal::{self, Sealed};
use crate::tree::RootTree;
use crate::{build_lock, debian, host, node, oci};
use stasis_agent::Runtime;
use stasis_agent::environment::Environment;
use stasis_sys::trees;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Prefix of unfinished directories.
const UNFINISHED: &str = ".new-";
const GONE: &str = ".gone-";

/// A checked base, ready to be written.
enum Found {
    Host(&'static Environment, Box<host::HostInterpreter>),
    Debian(&'static Environment),
    Oci(&'static Environment, oci::OciImage),
    /// The host's userland, with Node and the library for it.
    Node(&'static [u8]),
}

impl Found {
    fn kit(&self) -> &'static InterpreterKit {
        match self {
            Found::Node(_) => &node::KIT,
            Found::Host(about, _) | Found::Debian(about) | Found::Oci(about, _) => &about.kit,
        }
    }
}

/// Builds the root of a recipe, or finds an existing one.
pub fn build_root(
    recipe: &Recipe,
    roots: &Path,
    cache: &Path,
    progress: &dyn Progress,
) -> Result<Root> {
    recipe.check()?;
    let (found, identity) = look(recipe, cache)?;
    let name = name(recipe, &identity);
    let own = || root::inspect(roots, &name).ok().filter(|root| !root.imported);
    if let Some(root) = own() {
        return Ok(root);
    }
    must_be_root()?;
    for dir in [roots, cache] {
        fs::create_dir_all(dir).doing(|| format!("{}", dir.display()))?;
    }
    let _turn = build_lock::take(roots, progress)?;
    // another process may have built it while this one waited
    if let Some(root) = own() {
        return Ok(root);
    }
    clear(roots, &name)?;
    let work = unfinished(roots, &name);
    let built = build(recipe, &found, &name, &work, cache, progress);
    let finished = built.and_then(|root| match root::inspect(roots, &name) {
        Ok(imported) => confirm(roots, &imported, root),
        Err(_) => publish(roots, &work, root),
    });
    // it has its final name by now: nothing to remove
    let _ = trees::remove(&work);
    finished
}

/// The directory of a root being built.
pub(crate) fn unfinished(roots: &Path, name: &str) -> PathBuf {
    roots.join(format!("{UNFINISHED}{name}"))
}

/// A root that came with a machine is ours once we have made the same.
fn confirm(roots: &Path, imported: &Root, built: Root) -> Result<Root> {
    if imported.digest != built.digest {
        let what = format!("an imported machine has other files under the name {}", imported.name);
        let hint = "remove the machines of the template `imported-...`, and the template";
        return Err(Error::Base { base: built.recipe.base.kind(), what, hint });
    }
    root::write(roots, &built)?;
    Ok(built)
}

fn look(recipe: &Recipe, cache: &Path) -> Result<(Found, String)> {
    let about = match recipe.language()?.runtime() {
        Runtime::Environment(about) => about,
        Runtime::Node { native } => return Ok((Found::Node(native), node::identity(native))),
    };
    match &recipe.base {
        Base::Host => {
            let found = host::probe(about, recipe.interpreter.as_deref())?;
            let identity = found.identity().doing(|| format!("{}", found.executable.display()))?;
            Ok((Found::Host(about, Box::new(found)), identity))
        }
        Base::Debian { .. } => Ok((Found::Debian(about), String::new())),
        Base::Oci(source) => {
            let image = oci::OciImage::find(source, cache)?;
            // a reference identifies its image: asking a registry would take time
            let asked = matches!(source, ImageSource::Reference(_));
            let identity = if asked { String::new() } else { image.identity()? };
            Ok((Found::Oci(about, image), identity))
        }
    }
}

/// Content-derived: the same recipe on the same base gives the same name.
fn name(recipe: &Recipe, identity: &str) -> String {
    let text = format!("{FORMAT}\n{}\n{identity}\n", recipe.root_digest());
    let hash = blake3::hash(text.as_bytes()).to_hex();
    format!("{}-{}", recipe.base.kind(), &hash[..20])
}

pub(crate) fn must_be_root() -> Result<()> {
    let own = fs::metadata("/proc/self").doing(|| "/proc/self".to_owned())?;
    if own.uid() == 0 { Ok(()) } else { Err(Error::Privilege) }
}

/// Removes the remains of killed builds and removals. The caller holds the lock.
pub(crate) fn clear(roots: &Path, name: &str) -> Result<()> {
    let doing = || format!("{}", roots.display());
    let whole = root::inspect(roots, name).is_ok();
    for entry in fs::read_dir(roots).doing(doing)? {
        let entry = entry.doing(doing)?;
        let file = entry.file_name().to_string_lossy().into_owned();
        // a directory without its description was not finished either
        if file.starts_with(UNFINISHED) || file.starts_with(GONE) || (file == name && !whole) {
            trees::remove(&entry.path()).doing(|| format!("removing {file}"))?;
        }
    }
    Ok(())
}

fn build(
    recipe: &Recipe,
    found: &Found,
    name: &str,
    work: &Path,
    cache: &Path,
    progress: &dyn Progress,
) -> Result<Root> {
    fs::create_dir(work).doing(|| format!("{}", work.display()))?;
    let laid = lay(recipe, found, work, cache, progress)?;
    let kit = found.kit();
    inside::furnish(work, kit)?;
    let env = inside::environment(&laid.env, kit, &recipe.env);
    let build = kit.build.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    // variables of the recipe replace those of the build
    let env_now = build.chain(env.clone()).collect();
    let installer = Installer { recipe, root: work, cache, env: &env_now, progress };
    let settle = || settle(work, kit);
    let filled = match found {
        Found::Node(native) => node::fill(&installer, native)?,
        Found::Host(about, _) | Found::Debian(about) | Found::Oci(about, _) => {
            installer.fill(about, &laid.interpreter, &settle)?
        }
    };
    progress.step("seal", 0, None);
    settle()?;
    let sealed = seal::disarm(work).and_then(|()| seal::digest(work));
    let sealed = sealed.doing(|| "reading the root".to_owned())?;
    installer.forget();
    Ok(describe(recipe, name, Whole { laid, filled, env, sealed }))
}

/// Lays the base out.
fn lay(
    recipe: &Recipe,
    found: &Found,
    work: &Path,
    cache: &Path,
    progress: &dyn Progress,
) -> Result<BaseLayout> {
    progress.step("base", 0, None);
    match found {
        Found::Host(about, found) => host::lay(about, found, work, progress),
        Found::Debian(about) => debian::lay(recipe, about, work, cache, progress),
        Found::Oci(about, image) => image.lay(about, recipe.interpreter.as_deref(), work, progress),
        Found::Node(_) => node::lay(work, cache, progress),
    }
}

fn settle(work: &Path, kit: &InterpreterKit) -> Result<()> {
    // an image's links may place these elsewhere in the root
    let tree = RootTree::open(work).doing(|| format!("{}", work.display()))?;
    for dir in kit.dirs.iter().chain([&inside::HOME]) {
        let settled = tree.real(Path::new(dir)).and_then(|path| seal::settle(&path));
        settled.doing(|| (*dir).to_owned())?;
    }
    Ok(())
}

/// The description at the end.
struct Whole {
    laid: BaseLayout,
    filled: FilledRoot,
    env: BTreeMap<String, String>,
    sealed: Sealed,
}

fn describe(recipe: &Recipe, name: &str, whole: Whole) -> Root {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Root {
        format: FORMAT,
        name: name.to_owned(),
        recipe: recipe.clone(),
        base: whole.laid.base,
        interpreter: whole.filled.interpreter,
        version: whole.filled.version,
        site: whole.filled.site,
        uid: inside::USER,
        home: PathBuf::from(inside::HOME),
        env: whole.env,
        image_user: whole.laid.user,
        lock: whole.filled.lock,
        digest: whole.sealed.digest,
        files: whole.sealed.files,
        bytes: whole.sealed.bytes,
        built_at: now.map_or(0, |time| time.as_secs()),
        imported: false,
    }
}

/// Renames the directory once it is on disk, then writes the description.
pub(crate) fn publish(roots: &Path, work: &Path, root: Root) -> Result<Root> {
    let doing = || format!("finishing {}", root.name);
    seal::sync(work).doing(doing)?;
    fs::rename(work, root.path(roots)).doing(doing)?;
    root::write(roots, &root)?;
    Ok(root)
}
