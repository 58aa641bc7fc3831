// What the two inotify programs share: a directory and a file watched, with a gap in the numbers of the watches.
#pragma once
#include "program.h"
#include <sys/inotify.h>

static int watcher, directory_watch, file_watch;

static void write_file(const char *path, const char *text) {
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    NEED(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && !close(fd), "%s", path);
}
static void watch(void) {
    NEED(!mkdir("watched", 0755) && !mkdir("gap", 0755), "mkdir");
    write_file("single", "start");
    NEED((watcher = inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) >= 0, "inotify_init1");
    directory_watch = inotify_add_watch(watcher, "watched", IN_CREATE | IN_DELETE | IN_MOVED_TO);
    int gap = inotify_add_watch(watcher, "gap", IN_ALL_EVENTS);
    file_watch = inotify_add_watch(watcher, "single", IN_MODIFY | IN_ATTRIB);
    NEED(directory_watch > 0 && gap > 0 && file_watch > gap && !inotify_rm_watch(watcher, gap), "watches");
    char ignored[256];
    NEED(read(watcher, ignored, sizeof ignored) > 0, "IN_IGNORED"); // said of the removed watch
}
// Reads one event and compares; `name` may be NULL.
static void expect_event(int watch, uint32_t mask, const char *name) {
    char buffer[sizeof(struct inotify_event) + 256] __attribute__((aligned(8)));
    static char queue[65536] __attribute__((aligned(8))); // what one read gave and nobody has looked at yet
    static size_t start, end;
    if (start == end) {
        ssize_t n = readable_within(watcher, PATIENCE_MS) ? read(watcher, queue, sizeof queue) : -1;
        CHECK(n > 0, "event %x, expected it, got %zd errno %d", mask, n, errno);
        if (n <= 0) return;
        start = 0, end = n;
    }
    struct inotify_event *event = memcpy(buffer, queue + start, sizeof *event);
    memcpy(event->name, queue + start + sizeof *event, event->len);
    start += sizeof *event + event->len;
    CHECK_EQ(event->wd, watch, "watch of event %x", mask);
    CHECK_EQ(event->mask, mask, "mask of an event");
    CHECK(!name || !strcmp(name, event->len ? event->name : ""), "name of event %x, expected %s, got %s", mask, name,
          event->name);
}
static void expect_no_event(void) {
    char buffer[4096];
    CHECK(read(watcher, buffer, sizeof buffer) == -1 && errno == EAGAIN,
          "no more events, expected EAGAIN, got errno %d", errno);
}
