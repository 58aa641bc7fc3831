//! Packages, as code that installs them on a machine in its language.

use crate::error::{Error, Result};
use stasis_agent::Language;
use stasis_machine::{CommandText, Machine};

/// Maximum packages of one call.
const MAX_PACKAGES: usize = 100;

/// Code that installs packages, if the machine's policies allow the command; its value is the exit
/// code of the installer.
pub fn install(machine: &Machine, packages: &[String]) -> Result<String> {
    let language = machine.language();
    let code = written(language, packages)?;
    let command = [language.installer(), "install"].map(str::to_owned);
    let command: Vec<String> = command.into_iter().chain(packages.iter().cloned()).collect();
    machine.may_start(CommandText::Words(&command))?;
    Ok(code)
}

fn written(language: &dyn Language, packages: &[String]) -> Result<String> {
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
                assert!(written(*language, &[package.to_owned()]).is_err(), "{package:?}");
            }
            assert!(written(*language, &[]).is_err());
        }
        let packages = ["pandas[sql]>=2".into(), "six".into()];
        let code = written(stasis_agent::default(), &packages).expect("packages");
        assert_eq!(code, "!pip install --retries 1 'pandas[sql]>=2' 'six'\n_exit_code");
    }
}
