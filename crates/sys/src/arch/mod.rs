//! Processor-specific code: the in-target interpreter, signal frames, extended state.

mod interpreter;
mod sigframe;
mod xstate;

pub use interpreter::*;
pub use sigframe::*;
pub use xstate::*;
