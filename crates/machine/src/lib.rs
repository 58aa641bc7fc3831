//! machine.

#![forbid(unsafe_code)]
