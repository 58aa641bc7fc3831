//! From a recipe to a finished root.
//!
//!   recipe ──► key ──► there already? ──► done
//!                 └──► lock ──► lay out the base ──► furnish ──► fill: packages, prepare, compile
//!                                                           rename, describe ◄── sync ◄── seal
//!
//! The directory is built under a temporary name and renamed when it is whole and on disk; the
//! description follows. A build that is killed leaves a temporary directory, which the next build
//! removes; its downloads stay in the cache. Builds take turns by a lock on a file.

use crate::error::{Error, ErrorContext, Result};
use crate::inside::{self, BaseLayout, FilledRoot, InterpreterKit};
use crate::packages::{self, Installer};
use crate::progress::Progress;
use crate::recipe::{Base, ImageSource, Recipe};
use crate::root::{self, FORMAT, Root};
use crate::seal::{self, Sealed};
use crate::tree::RootTree;
use crate::{debian, host, node, oci, turn};
use stasis_agent::Runtime;
use stasis_sys::trees;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// How unfinished directories are called.
const UNFINISHED: &str = ".new-";
const GONE: &str = ".gone-";

/// A base that was looked at, ready to be laid out.
enum Found {
    Host(Box<host::PythonInstall>),
    Debian,
    Oci(oci::OciImage),
    /// The host's userland, with Node and the library for it.
    Node(&'static [u8]),
}

impl Found {
    fn kit(&self) -> &'static InterpreterKit {
        match self {
            Found::Node(_) => &node::KIT,
            _ => &packages::KIT,
        }
    }
}

/// Builds the root of a recipe, or finds the one that was built.
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
    let _turn = turn::take(roots, progress)?;
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
    // where it has its name by now there is nothing to remove
    let _ = trees::remove(&work);
    finished
}

/// Where a root is made.
pub(crate) fn unfinished(roots: &Path, name: &str) -> PathBuf {
    roots.join(format!("{UNFINISHED}{name}"))
}

/// A root that came with a machine is ours once we have made the same.
fn confirm(roots: &Path, imported: &Root, built: Root) -> Result<Root> {
    if imported.digest != built.digest {
        let what = format!(
            "a machine from elsewhere brought other files under the name {}",
            imported.name
        );
        let hint = "remove the machines of the template `imported-...`, and the template";
        return Err(Error::Base { base: built.recipe.base.kind(), what, hint });
    }
    root::write(roots, &built)?;
    Ok(built)
}

fn look(recipe: &Recipe, cache: &Path) -> Result<(Found, String)> {
    if let Some(Runtime::Node { native }) = recipe.runtime() {
        return Ok((Found::Node(native), node::identity(native)));
    }
    match &recipe.base {
        Base::Host => {
            let python = host::probe(recipe.python.as_deref())?;
            let identity =
                python.identity().doing(|| format!("{}", python.executable.display()))?;
            Ok((Found::Host(Box::new(python)), identity))
        }
        Base::Debian { .. } => Ok((Found::Debian, String::new())),
        Base::Oci(source) => {
            let image = oci::OciImage::find(source, cache)?;
            // a reference names its image itself: asking a registry would make it take time
            let asked = matches!(source, ImageSource::Reference(_));
            let identity = if asked { String::new() } else { image.identity()? };
            Ok((Found::Oci(image), identity))
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

/// Removes what builds and removals that were killed have left. The caller holds the lock.
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
    let installer = Installer { recipe, root: work, cache, env: &env, progress };
    let settle = || settle(work, kit);
    let filled = match found {
        Found::Node(native) => node::fill(&installer, native)?,
        _ => installer.fill(&laid.interpreter, &settle)?,
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
        Found::Host(python) => host::lay(python, work, progress),
        Found::Debian => debian::lay(recipe, work, cache, progress),
        Found::Oci(image) => image.lay(recipe.python.as_deref(), work, progress),
        Found::Node(_) => node::lay(work, cache, progress),
    }
}

fn settle(work: &Path, kit: &InterpreterKit) -> Result<()> {
    // an image's links may make these lie elsewhere in the root
    let tree = RootTree::open(work).doing(|| format!("{}", work.display()))?;
    for dir in kit.dirs.iter().chain([&inside::HOME]) {
        let settled = tree.real(Path::new(dir)).and_then(|path| seal::settle(&path));
        settled.doing(|| (*dir).to_owned())?;
    }
    Ok(())
}

/// All that is known at the end.
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

/// Gives the directory its name once it is on disk, then the description.
pub(crate) fn publish(roots: &Path, work: &Path, root: Root) -> Result<Root> {
    let doing = || format!("finishing {}", root.name);
    seal::sync(work).doing(doing)?;
    fs::rename(work, root.path(roots)).doing(doing)?;
    root::write(roots, &root)?;
    Ok(root)
}
