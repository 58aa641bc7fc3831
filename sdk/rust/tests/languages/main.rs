//! The SDKs of all languages against a real service: each is built as a package, installed from
//! it, and does the same scenarios (sdk/scenarios).
//!
//!   wheel ─► Python ───────────────────────┐
//!   tarball ─► Node, Deno, Bun, a browser ──┼─► service ◄─► proxy that loses answers
//!   crate ─► Rust ──────────────────────────┘               and breaks streams
//!
//! Their requests are compared with the service's document: an operation without a call in an SDK
//! fails the test of its language.
//!
//! `STASIS_TEST_SDK` names the directory with the tools that dev/setup.sh prepares.

mod browser;
mod flaky;
mod packages;
mod relay;
mod samples;
mod server;
mod shell;

use browser::Origin;
use libtest_mimic::{Arguments, Failed, Trial};
use packages::{Javascript, Python, Rust, tool};
use relay::Relay;
use server::Server;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// The repository.
fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(2).expect("the SDK is in the repository").to_owned()
}

/// A place of this run's own for what it builds.
static WORK: LazyLock<tempfile::TempDir> =
    LazyLock::new(|| tempfile::tempdir().expect("a directory"));
static SERVER: LazyLock<Server> = LazyLock::new(|| Server::start(&PAGE.url));
static PAGE: LazyLock<Origin> = LazyLock::new(Origin::new);
static PYTHON: LazyLock<Python> = LazyLock::new(|| Python::install(WORK.path()));
static JAVASCRIPT: LazyLock<Javascript> = LazyLock::new(|| Javascript::install(WORK.path()));
static RUST: LazyLock<Rust> = LazyLock::new(|| Rust::install(WORK.path()));

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = vec![
        trial("generated_files_are_current", || run(generate().arg("--check"))),
        trial("python_is_typed_and_clean", packages::check_python),
        trial("python", || scenarios(&mut PYTHON.scenarios())),
        trial("python_in_a_notebook", || run(service(&mut PYTHON.script("notebook.py")))),
        trial("node", || scenarios(&mut JAVASCRIPT.node())),
        trial("deno", || scenarios(&mut JAVASCRIPT.deno("javascript.ts"))),
        trial("bun", || scenarios(&mut JAVASCRIPT.bun())),
        trial("browser", in_browser),
        trial("rust", || scenarios(&mut RUST.scenarios())),
        trial("samples::left_out_commands_are_there", || shell::check_lists(&samples::pages())),
    ];
    trials.extend(samples::pages().into_iter().map(|page| {
        let name = page.strip_prefix(root()).expect("ours").display().to_string();
        trial(&format!("samples::{name}"), move || samples::check(&page))
    }));
    let conclusion = libtest_mimic::run(&arguments, trials);
    // statics are not dropped, and the service is a process of its own
    SERVER.stop();
    let _ = std::fs::remove_dir_all(WORK.path());
    conclusion.exit();
}

fn trial(name: &str, test: impl FnOnce() -> Result<(), Failed> + Send + 'static) -> Trial {
    Trial::test(name, test)
}

fn generate() -> Command {
    let mut command = Command::new(tool("python/bin/python"));
    command.arg(root().join("sdk/generate"));
    command
}

/// Tells a program where the service is.
fn service(command: &mut Command) -> &mut Command {
    command.env("STASIS_URL", &SERVER.url).env("STASIS_TOKEN", &SERVER.token);
    command.env("STASIS_FLAKY_URL", &SERVER.flaky_url)
}

fn scenarios(command: &mut Command) -> Result<(), Failed> {
    all_scenarios(|url, names| output(service(command).env("STASIS_URL", url).args(names)))
}

/// A page has neither arguments nor an environment.
fn in_browser() -> Result<(), Failed> {
    all_scenarios(|url, names| {
        let env = serde_json::json!({
            "STASIS_URL": url, "STASIS_TOKEN": SERVER.token, "STASIS_FLAKY_URL": SERVER.flaky_url,
        });
        // as programs have them: what they are, then the rest
        let argv = [&["browser", "page"], names].concat();
        let given = serde_json::json!({ "argv": argv, "env": env });
        JAVASCRIPT.browser(&PAGE, &given)
    })
}

/// Runs all scenarios; each has to say that it held, and together they ask for all there is.
fn all_scenarios(run: impl FnOnce(&str, &[&str]) -> Result<String, Failed>) -> Result<(), Failed> {
    let names = std::fs::read_to_string(root().join("sdk/scenarios/names.txt"))?;
    let relay = Relay::start(SERVER.url.trim_start_matches("http://"));
    let said = run(&relay.url, &names.lines().collect::<Vec<_>>())?;
    let wanted: String = names.lines().map(|name| format!("ok {name}\n")).collect();
    match said == wanted {
        true => relay.check(),
        false => Err(format!("not all scenarios were done:\n{said}").into()),
    }
}

fn run(command: &mut Command) -> Result<(), Failed> {
    output(command).map(drop)
}

/// A program's standard output; a failure with all its output, if it fails.
fn output(command: &mut Command) -> Result<String, Failed> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    match output.status.success() {
        true => Ok(stdout),
        false => Err(format!("{command:?}: {}\n{stdout}\n{stderr}", output.status).into()),
    }
}

/// As `output`, for what has to work before anything can be tested.
fn must(command: &mut Command) -> String {
    output(command).unwrap_or_else(|failed| panic!("{}", failed.message().unwrap_or_default()))
}
