//! Failures, and their consequences.
//!
//!   points   the engine fails at each named step: the source runs on, nothing is left behind
//!   kill     the engine dies at each named step: no process is left, the last image comes back
//!   disk     no space: a clear error, the source runs on, and later there is an image
//!   damage   torn and altered files, other libraries: refused by name, never restored
//!   lies     manifests with valid checksums that are not true: refused before anything acts
//!   numbers  inodes whose numbers open files have: the engine dies, layers go, they are missing
//!   upkeep   the store is collected and rewritten while machines live, and while the engine dies
//!   endings  trees that do not end when they are killed
//!   hostile  programs that do what they can against being captured (tests/programs/hostile)
//!
//! Every test runs in a process of its own (`own`), which can be told from its neighbours and is
//! ended when it hangs.

mod bench;
mod damage;
mod disk;
mod endings;
mod hostile;
mod kill;
mod lies;
mod numbers;
mod own;
mod points;
mod root;
mod upkeep;
