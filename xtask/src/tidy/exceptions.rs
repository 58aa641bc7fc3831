//! Items longer than the rules allow, by name. This list only shrinks.

use super::sizes::Exception;

/// Path, function (empty: the file), lines it may have.
pub const LONG: &[Exception] = &[];
