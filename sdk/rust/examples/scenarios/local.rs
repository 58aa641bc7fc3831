//! Files of this computer: into a machine and out of it, one by one and by the directory.

use crate::{fresh, value};
use stasis_sdk::{Client, Error, Result};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory of this run's own.
pub struct Here(pub PathBuf);

impl Here {
    pub fn new(what: &str) -> Here {
        let name = format!("stasis-scenario-{}-{what}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir).expect("a directory");
        Here(dir)
    }

    pub fn size(&self, name: &str) -> u64 {
        std::fs::metadata(self.0.join(name)).expect("a file").len()
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("a list").flatten();
    let mut names: Vec<_> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The environment is read once, so a program of its own finds the token.
pub fn discovery() -> Result<()> {
    let here = Here::new("discovery");
    let [url, token] = ["STASIS_URL", "STASIS_TOKEN"].map(|name| std::env::var(name).expect(name));
    let finds = |url: &str, data: &Path| {
        let mut own = Command::new(std::env::current_exe().expect("a program"));
        own.arg("who").env("STASIS_TOKEN", "").env("STASIS_URL", url);
        own.env("STASIS_DATA_DIR", data).env("XDG_CONFIG_HOME", &here.0);
        own.output().expect("it runs").status.success()
    };
    assert!(!finds(&url, &here.0));
    std::fs::write(here.0.join("token"), format!("{token}\n")).expect("a file");
    assert!(finds(&url, &here.0));
    std::fs::create_dir(here.0.join("stasis")).expect("a directory");
    let login = here.0.join("stasis/login.toml");
    std::fs::write(&login, format!("url = \"{url}\"\ntoken = \"{token}\"\n")).expect("a file");
    std::fs::set_permissions(&login, PermissionsExt::from_mode(0o600)).expect("its mode");
    assert!(finds("", Path::new("/nothing")));
    std::fs::remove_file(login).expect("it was there");
    assert!(!finds("", Path::new("/nothing")));
    let config = |url: &str| {
        let text = format!("url = \"{url}\"\ntoken = '{token}' # mine\n[limits]\npids = 9\n");
        std::fs::write(here.0.join("stasis/config.toml"), text).expect("a file");
    };
    config(&url);
    assert!(finds("", Path::new("/nothing")));
    config("https://other");
    assert!(!finds(&url, Path::new("/nothing")), "the token of another service");
    Ok(())
}

pub async fn directories(client: &Client) -> Result<()> {
    let (here, machine) = (Here::new("directories"), fresh(client).await?);
    let (dir, files) = (&here.0, machine.files());
    std::fs::create_dir_all(dir.join("in/sub")).expect("a directory");
    let large: Vec<u8> = (0..=255).cycle().take(3_000_000).collect();
    std::fs::write(dir.join("in/large.bin"), &large).expect("a file");
    std::fs::write(dir.join("in/sub/small"), "é").expect("a file");
    assert_eq!(files.upload(dir.join("in/large.bin"), "one.bin").await?.size, 3_000_000);
    assert_eq!(files.upload_dir(dir.join("in"), "tree").await?, 2);
    let look = "open('tree/sub/small').read(), open('tree/large.bin', 'rb').read() == \
                open('one.bin', 'rb').read() == bytes(range(256)) * 11718 + bytes(range(192))";
    assert_eq!(value(&machine, look).await?, "('é', True)");
    machine.run("import os; os.symlink('/etc/passwd', 'tree/link')").await?;
    files.download("one.bin", dir.join("one.bin")).await?;
    assert!(std::fs::read(dir.join("one.bin")).expect("a file") == large);
    // links stay where they are, and nothing is there under another name
    assert_eq!(files.download_dir("tree", dir.join("out")).await?, 2);
    assert_eq!(names(&dir.join("out")), ["large.bin", "sub"]);
    assert_eq!(std::fs::read(dir.join("out/sub/small")).expect("a file"), "é".as_bytes());
    assert!(files.download("none", dir.join("none")).await.is_err());
    assert_eq!(names(dir), ["in", "one.bin", "out"]);
    let missing = files.upload(dir.join("none"), "none").await.expect_err("it is not there");
    assert!(matches!(missing, Error::Local { .. }) && missing.code() == "client.file");
    machine.remove().await
}
