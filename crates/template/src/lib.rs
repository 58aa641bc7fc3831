//! template.

#![forbid(unsafe_code)]
