//! Any bytes, read as the first bytes of a connection.
#![cfg_attr(fuzzing, no_main)]

stasis_fuzz::fuzz!(stasis_fuzz::hello_reader);
