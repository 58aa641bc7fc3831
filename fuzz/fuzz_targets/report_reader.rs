//! Any bytes, read as a report of an agent.
#![cfg_attr(fuzzing, no_main)]

stasis_fuzz::fuzz!(stasis_fuzz::report_reader);
