//! Facts about an interpreter that a template takes from its base: names, questions and command
//! lines. The crate `template` runs the programs.

/// An interpreter of a base, and the environment that packages are installed into.
#[derive(Debug)]
pub struct Environment {
    /// The interpreter's name for people.
    pub title: &'static str,
    /// How its program is called; with a version behind it; where else a host may have it.
    pub program: &'static str,
    pub versioned: &'static str,
    pub elsewhere: &'static str,
    /// Names that lead to it in a root, beside its own.
    pub names: &'static [&'static str],
    /// The oldest version that will do, and what to do if the host or an image has none.
    pub oldest: (u32, u32),
    pub host_hint: &'static str,
    pub image_hint: &'static str,
    /// An image that has it.
    pub image: &'static str,
    /// Packages of Debian's that hold it.
    pub debian: &'static str,
    /// Arguments that make a host's interpreter say where its parts are, as JSON.
    pub locate: &'static [&'static str],
    /// Files of its library that stay out of roots.
    pub left_out: LeftOut,
    /// The environment's directory, the interpreter in it, and its surroundings.
    pub dir: &'static str,
    pub interpreter: &'static str,
    pub kit: InterpreterKit,
    /// Arguments that make the environment; one that lets it see the base's packages; a hint for
    /// an interpreter that cannot.
    pub make: &'static [&'static str],
    pub with_base: &'static str,
    pub make_hint: &'static str,
    /// Arguments that make the environment's interpreter say, as JSON, where packages are
    /// (`site`), its `version`, and whether it `bootstraps` its installer.
    pub describe: &'static [&'static str],
    /// Arguments that list the packages in the directory that follows, as `name==version`.
    pub list: &'static [&'static str],
    /// The argument before code to run.
    pub code: &'static str,
    /// Arguments that compile the directory that follows, and its part of this name: those that
    /// were compiled at another time than they are given.
    pub compile: &'static [&'static str],
    pub compile_again: (&'static [&'static str], &'static str),
    /// Arguments that install the installer that comes with the interpreter.
    pub bootstrap: &'static [&'static str],
    /// That installer; a faster one, which is a program of its own.
    pub installer: PackageInstaller,
    pub fast_installer: PackageInstaller,
    pub index: IndexSettings,
}

/// Names of files and directories, and how they begin or end.
#[derive(Debug)]
pub struct LeftOut {
    pub names: &'static [&'static str],
    pub starts: &'static [&'static str],
    pub ends: &'static [&'static str],
}

/// Paths and variables that an interpreter adds to a root.
#[derive(Debug, Clone, Copy)]
pub struct InterpreterKit {
    /// Directories that belong to the user.
    pub dirs: &'static [&'static str],
    /// Where its programs are; first on the path.
    pub bin: &'static str,
    pub env: &'static [(&'static str, &'static str)],
    /// Variables of programs that build a root: they write the same in every build.
    pub build: &'static [(&'static str, &'static str)],
}

/// A program that installs packages from an index.
#[derive(Debug)]
pub struct PackageInstaller {
    pub name: &'static str,
    /// Its command line, without its program.
    pub words: &'static [&'static str],
    /// Words that keep packages from being built, which would run their code.
    pub no_builds: &'static [&'static str],
    /// Packages to install with the others.
    pub with: &'static [&'static str],
    /// The variable for the directory that downloads are kept in, and one that would forbid it.
    pub cache: &'static str,
    pub no_cache: Option<&'static str>,
    /// Arguments with which the host's interpreter fetches it into the directory that follows, and
    /// the words behind that.
    pub fetch: [&'static [&'static str]; 2],
    pub fetch_env: &'static [(&'static str, &'static str)],
}

/// Where packages come from: the settings of the host's installer, as variables.
#[derive(Debug)]
pub struct IndexSettings {
    /// Arguments that make the host's interpreter list its installer's settings as
    /// `section.key='value'`, and the sections, those that weigh more later.
    pub list: &'static [&'static str],
    pub sections: &'static [&'static str],
    /// Variables that are passed on as they are.
    pub passed: &'static [&'static str],
    /// A setting, and the variables that say the same to both installers.
    pub translated: &'static [(&'static str, &'static [&'static str])],
    /// The setting for a file of certificates, and variables for it.
    pub certificate: (&'static str, &'static [&'static str]),
    /// The setting for directories of packages, and variables with what separates them there.
    pub links: (&'static str, &'static [(&'static str, &'static str)]),
}

impl Environment {
    /// The program that a recipe asks for: by version, name or path.
    pub fn program(&self, wanted: Option<&str>) -> String {
        match wanted {
            Some(version) if version.starts_with(|c: char| c.is_ascii_digit()) => {
                format!("{}{version}", self.versioned)
            }
            other => other.unwrap_or(self.program).to_owned(),
        }
    }
}

impl LeftOut {
    pub fn has(&self, name: &str) -> bool {
        self.names.contains(&name)
            || self.starts.iter().any(|start| name.starts_with(start))
            || self.ends.iter().any(|end| name.ends_with(end))
    }
}

/// A program that a host needs for a language, for `stasis doctor`.
#[derive(Debug)]
pub struct HostTool {
    pub name: &'static str,
    pub required: bool,
    /// The features that need it, and how to get it.
    pub costs: &'static str,
    pub fix: &'static str,
    pub found: ToolCheck,
}

/// How to find a program.
#[derive(Debug)]
pub enum ToolCheck {
    /// It prints a line for these arguments; the words for when it does not.
    Says {
        program: &'static str,
        args: &'static [&'static str],
        otherwise: &'static str,
    },
    OnPath(&'static str),
    /// It lies beside the program that looks.
    Beside(&'static str),
}
