//! Any bytes, read as the requests of a connection.
#![cfg_attr(fuzzing, no_main)]

stasis_fuzz::fuzz!(stasis_fuzz::head_reader);
