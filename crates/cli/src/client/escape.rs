//! Escaping of text in an address.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// All characters except RFC 3986's unreserved ones.
const PART: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
const PATH: &AsciiSet = &PART.remove(b'/');

/// As one segment of a path, or as a value in a query.
pub fn part(text: &str) -> String {
    utf8_percent_encode(text, PART).to_string()
}

/// The same for a path, whose slashes stay.
pub fn path(text: &str) -> String {
    utf8_percent_encode(text, PATH).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_one_part_of_a_path() {
        assert_eq!(part("py-3.12_a~"), "py-3.12_a~");
        assert_eq!(part("a/b?c ä"), "a%2Fb%3Fc%20%C3%A4");
        assert_eq!(part("a=b c&d"), "a%3Db%20c%26d");
    }

    #[test]
    fn slashes_of_paths_stay() {
        assert_eq!(path("/a b/ü&c"), "/a%20b/%C3%BC%26c");
    }
}
