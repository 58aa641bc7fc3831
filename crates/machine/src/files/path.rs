//! Paths as clients write them.

use super::FileError;

/// Relative paths start here: the home of a machine's user.
const HOME: &str = "/home/user";
const LONGEST: usize = 4095;

/// An absolute path without `.`, `..` and empty parts.
pub fn absolute(given: &str) -> Result<String, FileError> {
    if given.len() > LONGEST {
        return Err(FileError::BadName("it is too long"));
    }
    if given.contains('\0') {
        return Err(FileError::BadName("it has a NUL byte"));
    }
    let whole = match given.starts_with('/') {
        true => given.to_owned(),
        false => format!("{HOME}/{given}"),
    };
    let parts: Vec<&str> =
        whole.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    // links make `..` ambiguous; the caller can write the path it means
    if parts.contains(&"..") {
        return Err(FileError::BadName("it has a `..`"));
    }
    Ok(format!("/{}", parts.join("/")))
}

/// The parent directory of a path, and its name there.
pub fn split(path: &str) -> Result<(&str, &str), FileError> {
    match path.rsplit_once('/') {
        Some((_, "")) | None => Err(FileError::BadName("it is the root")),
        Some(("", name)) => Ok(("/", name)),
        Some((dir, name)) => Ok((dir, name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_made_plain() {
        for (given, plain) in [
            ("a", "/home/user/a"),
            ("", "/home/user"),
            (".", "/home/user"),
            ("/", "/"),
            ("//tmp/./x/", "/tmp/x"),
        ] {
            assert_eq!(absolute(given).expect(given), plain);
        }
        let long = "x".repeat(5000);
        for bad in ["..", "a/../b", "/..", "a\0", &long] {
            assert!(matches!(absolute(bad), Err(FileError::BadName(_))), "{bad}");
        }
        assert_eq!(split("/a").expect("two"), ("/", "a"));
        assert_eq!(split("/a/b").expect("two"), ("/a", "b"));
        assert!(split("/").is_err());
    }
}
