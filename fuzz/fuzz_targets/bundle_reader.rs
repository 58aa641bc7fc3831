//! Any bytes, read as the beginning of a file with a machine.
#![cfg_attr(fuzzing, no_main)]

stasis_fuzz::fuzz!(stasis_fuzz::bundle_reader);
