// Proves: inotify watches survive: their numbers (with a gap), masks and targets.
// How: a check changes the watched things and compares the events; afterwards nothing is queued.
// Events that nobody has read yet at the capture are inotify_pending's business.
#include "inotify_common.h"

static uint64_t steps;

static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    watch();
}
static void check(void) {
    expect_no_event();
    write_file("watched/new", "x");
    expect_event(directory_watch, IN_CREATE, "new"); // and no IN_MODIFY: it is not in the mask
    unlink("watched/new");
    expect_event(directory_watch, IN_DELETE, "new");
    write_file("gap/new", "x"); // no longer watched
    write_file("single", "again");
    expect_event(file_watch, IN_MODIFY, "");
    chmod("single", 0640);
    expect_event(file_watch, IN_ATTRIB, "");
    expect_no_event();
    CHECK_EQ(inotify_add_watch(watcher, "single", IN_MODIFY | IN_ATTRIB), file_watch, "watch of the same file again");
    CHECK_EQ(fcntl(watcher, F_GETFD), FD_CLOEXEC, "close-on-exec");
}
static void step(void) { // watch something more, which must take a number of its own
    steps++;
    char name[30];
    snprintf(name, sizeof name, "more-%d", (int)steps);
    write_file(name, "x");
    int more = inotify_add_watch(watcher, name, IN_MODIFY);
    CHECK(more > file_watch, "number of a new watch, expected above %d, got %d", file_watch, more);
    write_file(name, "y");
    expect_event(more, IN_MODIFY, "");
}
static void digest(void) { digest_number(steps); }
PROGRAM(setup, check, step, digest)
