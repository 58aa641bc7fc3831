//! Range requests.

use crate::failure::{HttpFailure, Result};
use axum::http::{HeaderMap, header};
use stasis_api::Problem;

#[derive(Debug, PartialEq, Eq)]
pub struct ByteRange {
    pub start: u64,
    pub length: u64,
    pub whole: bool,
}

/// The one range of a request. Several ranges, and invalid ones, mean the whole file.
pub fn wanted(headers: &HeaderMap, size: u64) -> Result<ByteRange> {
    let text = headers.get(header::RANGE).and_then(|range| range.to_str().ok());
    let whole = ByteRange { start: 0, length: size, whole: true };
    let Some((first, last)) = text.and_then(parse) else { return Ok(whole) };
    let (start, end) = match (first, last) {
        (Some(first), last) => (first, last.map_or(size, |last| last.saturating_add(1).min(size))),
        (None, Some(count)) => (size.saturating_sub(count), size),
        (None, None) => return Ok(whole),
    };
    if start >= end {
        let said = format!("the file has {size} bytes, none of them in that range");
        let failure = HttpFailure::about(Problem::Range, "request.range", said);
        return Err(failure.hint(
            "a range must start before the end of the file, such as `bytes=0-99`; or leave it out",
        ));
    }
    Ok(ByteRange { start, length: end - start, whole: false })
}

/// `bytes=first-last`; each may be absent.
fn parse(text: &str) -> Option<(Option<u64>, Option<u64>)> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    let number = |text: &str| match text.trim() {
        "" => Some(None),
        text => text.parse().ok().map(Some),
    };
    let (first, last) = (number(first)?, number(last)?);
    match (first, last) {
        (Some(first), Some(last)) if last < first => None,
        range => Some(range),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, size: u64) -> Option<(u64, u64, bool)> {
        let mut headers = HeaderMap::new();
        headers.insert(header::RANGE, text.parse().expect("a header"));
        wanted(&headers, size).ok().map(|span| (span.start, span.length, span.whole))
    }

    #[test]
    fn one_range_is_understood() {
        assert_eq!(of("bytes=0-9", 100), Some((0, 10, false)));
        assert_eq!(of("bytes=90-", 100), Some((90, 10, false)));
        assert_eq!(of("bytes=90-1000", 100), Some((90, 10, false)));
        assert_eq!(of("bytes=-10", 100), Some((90, 10, false)));
        assert_eq!(of("bytes=-1000", 100), Some((0, 100, false)));
        for whole in ["bytes=0-1,3-4", "lines=1-2", "bytes=x-y", "bytes=5-1", "bytes=-", "-"] {
            assert_eq!(of(whole, 100), Some((0, 100, true)), "{whole}");
        }
        assert_eq!(of("bytes=100-", 100), None);
        assert_eq!(of("bytes=0-", 0), None);
        assert_eq!(of("bytes=18446744073709551615-", 100), None);
    }
}
