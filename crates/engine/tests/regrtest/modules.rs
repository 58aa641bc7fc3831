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
    let pause = if seconds < 4 { 100 } else { 1000 };
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
    module("test_os", 3), module("test_eintr", 12),
    // files, memory, sockets
    module("test_io", 12), module("test_fileio", 1), module("test_tempfile", 1),
    module("test_mmap", 1), module("test_socket", 30), module("test_socketserver", 2),
    module("test_select", 2), module("test_selectors", 15), module("test_epoll", 1),
    module("test_poll", 2), module("test_sqlite3", 1),
    // asyncio
    module("test_asyncio.test_base_events", 3), module("test_asyncio.test_buffered_proto", 2),
    module("test_asyncio.test_context", 2), module("test_asyncio.test_events", 20),
    module("test_asyncio.test_futures", 2), module("test_asyncio.test_futures2", 1),
    module("test_asyncio.test_locks", 2), module("test_asyncio.test_pep492", 1),
    module("test_asyncio.test_protocols", 1), module("test_asyncio.test_queues", 2),
    module("test_asyncio.test_runners", 2), module("test_asyncio.test_selector_events", 2),
    module("test_asyncio.test_server", 2), module("test_asyncio.test_sock_lowlevel", 10),
    module("test_asyncio.test_sslproto", 10), module("test_asyncio.test_streams", 4),
    module("test_asyncio.test_subprocess", 10), module("test_asyncio.test_taskgroups", 2),
    module("test_asyncio.test_tasks", 8), module("test_asyncio.test_threads", 1),
    module("test_asyncio.test_timeouts", 2), module("test_asyncio.test_transports", 1),
    module("test_asyncio.test_unix_events", 3),
];

/// The whole list, or what is short.
pub fn chosen(whole: bool) -> Vec<Module> {
    ALL.iter().copied().filter(|module| whole || module.seconds <= 1).collect()
}
