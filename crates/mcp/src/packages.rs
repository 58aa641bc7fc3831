//! Packages, as code that installs them on a machine in its language.

use crate::error::{Error, Result};
use stasis_agent::Language;

/// Maximum packages of one call.
const MAX_PACKAGES: usize = 100;

/// Code that installs packages; its value is the exit code of the installer.
pub fn install(language: &dyn Language, packages: &[String]) -> Result<String> {
    if packages.is_empty() || packages.len() > MAX_PACKAGES {
        return Err(Error::Invalid(format!("one call installs 1 to {MAX_PACKAGES} packages")));
    }
    if let Some(odd) = packages.iter().find(|package| !language.is_package(package)) {
        let shown: String = odd.chars().take(80).collect();
        let said = format!("{shown:?} is not a package: write names such as `pandas==2.3`");
        return Err(Error::Invalid(said));
    }
    Ok(language.install(packages))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_package() {
        for language in stasis_agent::LANGUAGES {
            for package in ["", "-r x", "a'b", "a\nb", "{a}", "$(id)", "/etc", "a&b"] {
                assert!(install(*language, &[package.to_owned()]).is_err(), "{package:?}");
            }
            assert!(install(*language, &[]).is_err());
        }
        let packages = ["pandas[sql]>=2".into(), "six".into()];
        let code = install(stasis_agent::default(), &packages).expect("packages");
        assert_eq!(code, "!pip install --retries 1 'pandas[sql]>=2' 'six'\n_exit_code");
    }
}
