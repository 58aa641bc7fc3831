//! Any bytes, read as a cold pack.
#![cfg_attr(fuzzing, no_main)]

stasis_fuzz::fuzz!(stasis_fuzz::cold_pack_reader);
