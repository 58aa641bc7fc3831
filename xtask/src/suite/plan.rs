//! Which programs run, in which order, and what each is given; pure.

use serde_json::Value;
use std::path::PathBuf;

/// The slowest runs, slowest first. A slow run that starts last leaves the other lane idle.
const SLOWEST: [&str; 10] = [
    "engine::lifecycle",
    "sdk::languages",
    "server::service",
    "machine::machines",
    "cli::program",
    "engine::escape",
    "engine::regrtest",
    "engine::faults",
    "mcp::mcp",
    "machine::network",
];

/// Another run of a program.
struct Repeat {
    name: &'static str,
    note: &'static str,
    arguments: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
}

const AGAIN: [Repeat; 1] = [Repeat {
    name: "engine::lifecycle",
    note: "without newer kernel features",
    arguments: &["madvise"],
    environment: &[("STASIS_WITHOUT", "pagemap_scan,lowerdir_append")],
}];

/// A program that Cargo built to run tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestProgram {
    /// `engine::lifecycle`; the crate alone for its unit tests.
    pub name: String,
    pub executable: PathBuf,
    /// Cargo starts tests in the directory of their package.
    pub directory: PathBuf,
}

/// One start of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestRun {
    pub program: TestProgram,
    pub note: &'static str,
    pub arguments: &'static [&'static str],
    pub environment: &'static [(&'static str, &'static str)],
}

impl TestProgram {
    /// A program with tests, if a message of Cargo reports one.
    pub fn from_message(message: &Value) -> Option<TestProgram> {
        let is_test = message["profile"]["test"].as_bool()?;
        let executable = PathBuf::from(message["executable"].as_str()?);
        let directory = PathBuf::from(message["manifest_path"].as_str()?).parent()?.to_owned();
        let package = message["package_id"].as_str()?;
        let target = &message["target"];
        let name = match target["kind"][0].as_str()? {
            "test" => format!("{}::{}", crate_of(package), target["name"].as_str()?),
            "lib" => crate_of(package).to_owned(),
            kind => format!("{}::{kind} {}", crate_of(package), target["name"].as_str()?),
        };
        is_test.then_some(TestProgram { name, executable, directory })
    }
}

impl TestRun {
    pub fn name(&self) -> String {
        match self.note {
            "" => self.program.name.clone(),
            note => format!("{}, {note}", self.program.name),
        }
    }
}

/// `engine` of `path+file:///stasis/crates/engine#stasis-engine@0.1.0`, or of the form without a
/// name, which Cargo uses where the directory has the same one.
fn crate_of(package: &str) -> &str {
    let (path, version) = package.rsplit_once('#').unwrap_or((package, ""));
    let name = match version.split_once('@') {
        Some((name, _)) => name,
        None => path.rsplit('/').next().unwrap_or(path),
    };
    name.strip_prefix("stasis-").unwrap_or(name)
}

/// All runs, slowest first; the order of Cargo otherwise.
pub fn plan(programs: &[TestProgram]) -> Vec<TestRun> {
    let once = programs.iter().map(|program| TestRun {
        program: program.clone(),
        note: "",
        arguments: &[],
        environment: &[],
    });
    let again = AGAIN.iter().flat_map(|&Repeat { name, note, arguments, environment }| {
        let program = programs.iter().find(|program| program.name == name).cloned();
        program.map(|program| TestRun { program, note, arguments, environment })
    });
    let mut runs: Vec<_> = once.chain(again).collect();
    runs.sort_by_key(|run| {
        SLOWEST.iter().position(|name| *name == run.name()).unwrap_or(usize::MAX)
    });
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn program(name: &str) -> TestProgram {
        TestProgram { name: name.into(), executable: "/t".into(), directory: "/d".into() }
    }

    fn names(runs: &[TestRun]) -> Vec<String> {
        runs.iter().map(TestRun::name).collect()
    }

    #[test]
    fn slow_programs_start_first_and_none_is_left_out() {
        let all = ["api", "server::service", "engine::lifecycle", "bench"].map(program);
        let runs = plan(&all);
        let again = "engine::lifecycle, without newer kernel features";
        let wanted = ["engine::lifecycle", "server::service", "api", "bench", again];
        assert_eq!(names(&runs), wanted);
        assert_eq!(runs[4].arguments, ["madvise"]);
    }

    #[test]
    fn messages_of_cargo() {
        let message = |kind: &str, package: &str, test: bool| {
            json!({
                "reason": "compiler-artifact",
                "package_id": package,
                "manifest_path": "/s/crates/engine/Cargo.toml",
                "target": { "kind": [kind], "name": "lifecycle" },
                "profile": { "test": test },
                "executable": "/s/target/debug/deps/lifecycle-1",
            })
        };
        let own = "path+file:///s/crates/engine#stasis-engine@0.1.0";
        let name = |message: &Value| TestProgram::from_message(message).map(|found| found.name);
        assert_eq!(name(&message("test", own, true)).as_deref(), Some("engine::lifecycle"));
        assert_eq!(name(&message("lib", own, true)).as_deref(), Some("engine"));
        assert_eq!(name(&message("bin", own, true)).as_deref(), Some("engine::bin lifecycle"));
        assert_eq!(name(&message("bin", own, false)), None);
        let short = "path+file:///s/xtask#0.1.0";
        assert_eq!(name(&message("lib", short, true)).as_deref(), Some("xtask"));
        assert_eq!(name(&json!({ "reason": "build-finished", "success": true })), None);
    }
}
