//! The Python agent, carried in the binary: its files, and the command line that starts it.
//!
//! The host writes `FILES` below a directory of the machine and runs `argv` there, with nothing as
//! standard input, pipes as standard output and error, and the control socket as descriptor 3. The
//! agent answers on the socket as `stasis-protocol` says, and exits when the socket is closed.

#![forbid(unsafe_code)]

macro_rules! file {
    ($path:literal) => {
        ($path, include_str!(concat!("../python/", $path)))
    };
}

/// Paths below the agent's directory, and what the files hold.
pub const FILES: &[(&str, &str)] = &[
    file!("__main__.py"),
    file!("stasis.py"),
    file!("stasis_agent/__init__.py"),
    file!("stasis_agent/aio.py"),
    file!("stasis_agent/carry.py"),
    file!("stasis_agent/channel.py"),
    file!("stasis_agent/compact.py"),
    file!("stasis_agent/complete.py"),
    file!("stasis_agent/display.py"),
    file!("stasis_agent/errors.py"),
    file!("stasis_agent/figures.py"),
    file!("stasis_agent/gate.py"),
    file!("stasis_agent/magics.py"),
    file!("stasis_agent/own.py"),
    file!("stasis_agent/parts.py"),
    file!("stasis_agent/run.py"),
    file!("stasis_agent/serve.py"),
    file!("stasis_agent/shell.py"),
    file!("stasis_agent/stdin.py"),
    file!("stasis_agent/streams.py"),
    file!("stasis_agent/timing.py"),
    file!("stasis_agent/touched.py"),
    file!("stasis_agent/transform.py"),
    file!("stasis_agent/variables.py"),
    file!("stasis_agent/wake.py"),
];

/// The command line that starts the agent from its directory with a Python interpreter.
pub fn argv(python: &str, dir: &str) -> Vec<String> {
    vec![python.to_owned(), dir.to_owned()]
}
