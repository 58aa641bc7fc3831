//! Any bytes, read as a message of the DNS.
#![cfg_attr(fuzzing, no_main)]

stasis_fuzz::fuzz!(stasis_fuzz::dns_reader);
