//! Which modules of CPython's tests are run.

#[derive(Debug, Clone, Copy)]
pub struct Module {
    pub name: &'static str,
    /// About how long it takes undisturbed; those of up to a second are run every time.
    pub seconds: u64,
    /// Milliseconds between captures, at most.
    pub pause: u64,
}

const fn module(name: &'static str, seconds: u64) -> Module {
    let pause = if seconds < 2 { 100 } else { 1000 };
    Module { name, seconds, pause }
}

#[rustfmt::skip]
const ALL: &[Module] = &[
    // core types
    module("test_int", 1), module("test_float", 1), module("test_unicode", 1),
    module("test_bytes", 1), module("test_list", 1), module("test_dict", 1),
    module("test_set", 2), module("test_tuple", 1), module("test_generators", 1),
    module("test_coroutines", 1), module("test_weakref", 3), module("test_gc", 2),
    // threads, processes, signals, time
    module("test_thread", 1), module("test_threading", 12), module("test_threadedtempfile", 1),
    module("test_queue", 8), module("test_subprocess", 16), module("test_signal", 18),
    module("test_time", 3), module("test_timeit", 1), module("test_posix", 2),
    module("test_os", 3), module("test_concurrent_futures", 60),
    module("test_multiprocessing_fork", 60), module("test_eintr", 12),
    // files, memory, sockets
    module("test_io", 12), module("test_fileio", 1), module("test_tempfile", 1),
    module("test_mmap", 1), module("test_socket", 30), module("test_socketserver", 2),
    module("test_select", 2), module("test_selectors", 15), module("test_epoll", 1),
    module("test_poll", 2), module("test_ssl", 10), module("test_sqlite3", 1),
    module("test_asyncio", 60),
];

/// The whole list, or what is short.
pub fn chosen(whole: bool) -> Vec<Module> {
    ALL.iter().copied().filter(|module| whole || module.seconds <= 1).collect()
}
