//! The shared libraries a program needs: the names in its ELF header, found like the loader does.
//! Nothing is executed. Missing ones are skipped: the program may never load them.

use goblin::elf::Elf;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const USUAL: [&str; 5] = ["/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib"];
const LARGEST: u64 = 512 << 20;

/// One file's requirements on the loader.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Needs {
    pub loader: Option<PathBuf>,
    pub libraries: Vec<String>,
    pub search: Vec<PathBuf>,
}

/// Reads the needs of a file; a file that is no ELF has none.
pub fn needs(path: &Path) -> Needs {
    let is_elf = fs::metadata(path).is_ok_and(|about| about.is_file() && about.len() < LARGEST);
    let bytes = if is_elf { fs::read(path).unwrap_or_default() } else { Vec::new() };
    if !bytes.starts_with(b"\x7fELF") {
        return Needs::default();
    }
    let Ok(elf) = Elf::parse(&bytes) else { return Needs::default() };
    let origin = path.parent().unwrap_or(Path::new("/")).to_string_lossy().into_owned();
    let expand = |place: &str| {
        PathBuf::from(place.replace("$ORIGIN", &origin).replace("${ORIGIN}", &origin))
    };
    Needs {
        loader: elf.interpreter.map(PathBuf::from),
        libraries: elf.libraries.iter().map(|name| (*name).to_owned()).collect(),
        search: (elf.runpaths.iter().chain(&elf.rpaths))
            .flat_map(|places| places.split(':'))
            .map(expand)
            .collect(),
    }
}

/// The loader's search paths.
pub struct Finder {
    cache: HashMap<String, PathBuf>,
}

impl Finder {
    /// Reads the loader's own cache.
    pub fn of_host() -> Finder {
        let program = ["/sbin/ldconfig", "/usr/sbin/ldconfig"].into_iter().find(is_file);
        let output = program.and_then(|program| Command::new(program).arg("-p").output().ok());
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        Finder { cache: parse_cache(&text.unwrap_or_default()) }
    }

    pub fn find(&self, name: &str, search: &[PathBuf]) -> Option<PathBuf> {
        let own = search.iter().map(|place| place.join(name)).find(|path| path.is_file());
        let usual = || USUAL.iter().map(|place| Path::new(place).join(name)).find(|p| p.is_file());
        own.or_else(|| self.cache.get(name).cloned()).or_else(usual)
    }
}

fn is_file(path: &&str) -> bool {
    Path::new(path).is_file()
}

/// `libz.so.1 (libc6,x86-64) => /lib/libz.so.1`; the first of a name counts, as for the loader.
fn parse_cache(text: &str) -> HashMap<String, PathBuf> {
    let mut cache = HashMap::new();
    for line in text.lines() {
        let Some((left, path)) = line.trim().split_once(" => ") else { continue };
        let Some((name, kind)) = left.split_once(" (") else { continue };
        if kind.contains("x86-64") && !kind.contains("hwcap") {
            cache.entry(name.to_owned()).or_insert_with(|| PathBuf::from(path));
        }
    }
    cache
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_gives_the_plain_64_bit_library() {
        let text = "3 libs found in cache\n\
            \tlibz.so.1 (libc6,x86-64, hwcap: \"x86-64-v3\") => /v3/libz.so.1\n\
            \tlibz.so.1 (libc6) => /lib32/libz.so.1\n\
            \tlibz.so.1 (libc6,x86-64) => /lib/libz.so.1\n\
            \tlibz.so.1 (libc6,x86-64) => /old/libz.so.1\n";
        let cache = parse_cache(text);
        assert_eq!(cache["libz.so.1"], Path::new("/lib/libz.so.1"));
        assert_eq!(cache.len(), 1);
    }

    #[test]
    fn this_program_needs_a_loader_and_the_c_library() {
        let needs = needs(&std::env::current_exe().unwrap());
        assert!(needs.loader.is_some());
        assert!(needs.libraries.iter().any(|name| name.starts_with("libc")));
    }

    #[test]
    fn a_file_that_is_no_program_needs_nothing() {
        assert_eq!(needs(Path::new("/etc/passwd")), Needs::default());
    }
}
