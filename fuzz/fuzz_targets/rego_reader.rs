//! Any bytes, read as Rego or as its input.
#![cfg_attr(fuzzing, no_main)]

stasis_fuzz::fuzz!(stasis_fuzz::rego_reader);
