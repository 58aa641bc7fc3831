//! What machines do. One program, because each links everything below them; those whose faults
//! hit every machine of a process are programs of their own.

mod adopt;
mod bad_javascript;
mod branches;
mod budgets;
mod calls;
mod imports;
mod javascript;
mod life;
mod life_events;
mod npm;
mod parity;
mod past;
mod rules;
mod storms;
mod tools;
mod transcript;
mod travel;
mod typescript;
mod upkeep;
mod upstream;
