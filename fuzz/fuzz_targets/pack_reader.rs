//! Any bytes, read as a pack.
#![cfg_attr(fuzzing, no_main)]

stasis_fuzz::fuzz!(stasis_fuzz::pack_reader);
