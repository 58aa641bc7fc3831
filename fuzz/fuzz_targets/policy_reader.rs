//! Any bytes, read as a policy.
#![cfg_attr(fuzzing, no_main)]

stasis_fuzz::fuzz!(stasis_fuzz::policy_reader);
