//! The program with a real daemon and real machines.

use super::{Said, World};
use std::os::unix::net::UnixStream;
use std::process::Command;
use tempfile::TempDir;

/// A world whose data directory has the default template; its daemon ends with it.
pub struct Kept {
    pub world: World,
    pub data: TempDir,
}

impl Kept {
    pub fn new() -> Kept {
        Kept::on(stasis_testbed::data_dir())
    }

    /// The same with the template of a language.
    pub fn of(language: &str) -> Kept {
        Kept::on(stasis_testbed::data_dir_of(language))
    }

    fn on(data: TempDir) -> Kept {
        let mut world = World::new();
        world.set("STASIS_DATA_DIR", &data.path().to_string_lossy());
        // against hangs only
        world.set("STASIS_TIMEOUT_SECONDS", "300");
        Kept { world, data }
    }

    pub fn run(&self, args: &[&str]) -> Said {
        self.world.run(args)
    }

    /// Runs a command that must go well; what it prints.
    pub fn well(&self, args: &[&str]) -> String {
        let said = self.run(args);
        assert_eq!(said.code(), 0, "{args:?}: {}{}", said.stdout(), said.stderr());
        said.stdout()
    }

    pub fn pid(&self) -> Option<u64> {
        self.run(&["status", "--json"]).json()["pid"].as_u64()
    }

    /// Whether it accepts connections, checked briefly.
    pub fn is_kept(&self) -> bool {
        UnixStream::connect(self.data.path().join("stasis.sock")).is_ok()
    }

    pub fn kill(&self) {
        let pid = self.pid().expect("a daemon runs").to_string();
        assert!(Command::new("kill").args(["-9", &pid]).status().expect("kill").success());
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.run(&["stop"]);
    }
}
