//! Where the key comes from: the environment, a credential of systemd, or a file.
//!
//! Only a file that its owner alone can read is accepted. The default file is made when it is first
//! needed. A key never lies in the data directory, so a copy of that directory opens no secret.

use crate::error::SecretError;
use crate::key::MasterKey;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// The variable with the key.
const VARIABLE: &str = "STASIS_SECRET_KEY";
/// The credential's name, below the directory that systemd names.
const CREDENTIAL: &str = "stasis-secret-key";
const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";
const LONGEST: u64 = 200;

/// Where the key is looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// The environment, else a credential of systemd, else this file, which is made if it is
    /// missing.
    Default { file: Option<PathBuf> },
    /// This file, and nowhere else.
    File(PathBuf),
}

impl KeySource {
    /// The usual places of this process. The file is `stasis/secret.key` in the user's
    /// configuration.
    pub fn of_process() -> KeySource {
        let dir = |name: &str| std::env::var_os(name).map(PathBuf::from);
        let absolute = |path: &PathBuf| path.is_absolute();
        let config = dir("XDG_CONFIG_HOME").filter(absolute);
        let config = config.or_else(|| Some(dir("HOME").filter(absolute)?.join(".config")));
        KeySource::Default { file: config.map(|dir| dir.join("stasis/secret.key")) }
    }

    /// Finds the key; `data` is the directory in which it must not be.
    pub fn load(&self, data: &Path) -> Result<MasterKey, SecretError> {
        let text = std::env::var(VARIABLE).ok().map(Zeroizing::new);
        self.find(text, std::env::var_os(CREDENTIALS).map(PathBuf::from), data)
    }

    /// The key, with what the environment says of it.
    fn find(
        &self,
        text: Option<Zeroizing<String>>,
        credentials: Option<PathBuf>,
        data: &Path,
    ) -> Result<MasterKey, SecretError> {
        match self {
            KeySource::File(path) => read(path, data),
            KeySource::Default { file } => {
                if let Some(text) = text {
                    let wrong = || format!("{VARIABLE} is not 64 hexadecimal digits");
                    return MasterKey::parse(&text).ok_or_else(|| SecretError::NoKey(wrong()));
                }
                let credential = credentials.map(|dir| dir.join(CREDENTIAL));
                if let Some(path) = credential.filter(|path| path.exists()) {
                    return read(&path, data);
                }
                let file = file.as_ref().ok_or_else(|| {
                    SecretError::NoKey(format!(
                        "HOME is not set; set {VARIABLE} to 64 hexadecimal digits, or \
                         secret_key_file to a file with them"
                    ))
                })?;
                match file.symlink_metadata() {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => make(file, data),
                    _ => read(file, data),
                }
            }
        }
    }
}

fn fault(path: &Path, why: impl ToString) -> SecretError {
    SecretError::KeyFile { path: path.to_owned(), why: why.to_string() }
}

fn outside(path: &Path, data: &Path) -> Result<(), SecretError> {
    let dir = path.parent().unwrap_or(Path::new("/")).canonicalize();
    let (dir, data) = (dir.map_err(|error| fault(path, error))?, data.canonicalize());
    if data.is_ok_and(|data| dir.starts_with(data)) {
        return Err(fault(path, "the key of secrets must not be in the data directory"));
    }
    Ok(())
}

fn read(path: &Path, data: &Path) -> Result<MasterKey, SecretError> {
    outside(path, data)?;
    let file = File::open(path).map_err(|error| fault(path, error))?;
    let about = file.metadata().map_err(|error| fault(path, error))?;
    if !about.is_file() || about.mode() & 0o077 != 0 {
        return Err(fault(path, "not a file that only its owner can read; run chmod 600"));
    }
    let mut text = Zeroizing::new(String::new());
    file.take(LONGEST).read_to_string(&mut text).map_err(|error| fault(path, error))?;
    MasterKey::parse(&text).ok_or_else(|| fault(path, "not 64 hexadecimal digits"))
}

/// Makes the file; if another process just did, reads that one.
fn make(path: &Path, data: &Path) -> Result<MasterKey, SecretError> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(dir).map_err(|error| fault(path, error))?;
    outside(path, data)?;
    let key = MasterKey::random()?;
    let new = dir.join(format!(".secret.key.{}", std::process::id()));
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new);
    let written = made.and_then(|mut file| {
        file.write_all(key.text().as_bytes()).and_then(|()| file.write_all(b"\n"))?;
        file.sync_all()?;
        // a name that is there already stays as it is
        fs::hard_link(&new, path)
    });
    let _ = fs::remove_file(&new);
    match written {
        Ok(()) => Ok(key),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => read(path, data),
        Err(error) => Err(fault(path, error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_is_made_once_and_read_by_its_owner_only() {
        let dir = tempfile::tempdir().expect("a directory");
        let data = dir.path().join("data");
        fs::create_dir(&data).expect("made");
        let file = dir.path().join("config/stasis/secret.key");
        let source = KeySource::Default { file: Some(file.clone()) };
        let key = source.load(&data).expect("made");
        let again = source.load(&data).expect("read");
        assert_eq!(key.text(), again.text());
        assert_eq!(fs::metadata(&file).expect("a file").mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(file.parent().expect("a directory")).expect("read").count(), 1);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("changed");
        let said = source.load(&data).expect_err("others read it").to_string();
        assert!(said.contains("chmod 600"), "{said}");
    }

    #[test]
    fn the_variable_comes_first_then_the_credential_then_the_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let (data, own) = (dir.path().join("data"), dir.path().join("credentials"));
        [&data, &own].into_iter().for_each(|dir| fs::create_dir(dir).expect("made"));
        let source = KeySource::Default { file: Some(dir.path().join("secret.key")) };
        let file = source.find(None, Some(own.clone()), &data).expect("made").text();
        let credential = own.join(CREDENTIAL);
        fs::write(&credential, "a".repeat(64)).expect("written");
        fs::set_permissions(&credential, fs::Permissions::from_mode(0o400)).expect("changed");
        let find = |text: Option<&str>, dir: Option<&PathBuf>| {
            let text = text.map(|text| Zeroizing::new(text.to_owned()));
            source.find(text, dir.cloned(), &data).map(|key| key.text())
        };
        assert_eq!(*find(None, Some(&own)).expect("the credential"), "a".repeat(64));
        let variable = "b".repeat(64);
        assert_eq!(*find(Some(&variable), Some(&own)).expect("the variable"), variable);
        assert_eq!(find(None, None).expect("the file"), file);
        find(Some("short"), None).map(drop).expect_err("no key");
    }

    #[test]
    fn a_key_in_the_data_directory_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("secret.key");
        let source = KeySource::Default { file: Some(file.clone()) };
        source.load(dir.path()).expect_err("not there");
        assert!(!file.exists());
        let absent = KeySource::File(PathBuf::from("/nonexistent/key"));
        absent.load(dir.path()).expect_err("absent");
    }
}
