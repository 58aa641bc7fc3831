// Proves: inotify events that were queued but not read at the capture are still there, in order, once.
// How: files are made and removed in a watched directory and the events left; a check reads and compares them, and
// queues new.
#include "inotify_common.h"

static uint64_t generation;

static void name_of(int n, char name[40]) { snprintf(name, 40, "watched/%d-%d", (int)generation, n); }
static void queue_events(void) {
    char name[40];
    for (int n = 0; n < 3; n++) name_of(n, name), write_file(name, "x");
    name_of(1, name), unlink(name);
    write_file("single", "more");
}
static void read_events(void) {
    char name[40];
    for (int n = 0; n < 3; n++) name_of(n, name), expect_event(directory_watch, IN_CREATE, name + strlen("watched/"));
    name_of(1, name), expect_event(directory_watch, IN_DELETE, name + strlen("watched/"));
    expect_event(file_watch, IN_MODIFY, "");
    expect_no_event();
    for (int n = 0; n < 3; n += 2) name_of(n, name), unlink(name), expect_event(directory_watch, IN_DELETE, NULL);
}
static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    watch();
    queue_events();
}
static void check(void) {
    read_events();
    queue_events();
}
static void step(void) {
    read_events();
    generation++;
    queue_events();
}
static void digest(void) { digest_number(generation); }
PROGRAM(setup, check, step, digest)
