// Proves: hundreds of descriptors of mixed kinds survive, each at its number with its own state.
// How: 500 of ten kinds; each carries something to recognise it by (offset, contents, counter, name), which a check
// verifies.
#include "program.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#define FDS 500
enum { FILE_KIND, PIPE_READ, PIPE_WRITE, EVENT, PAIR_A, PAIR_B, MEMFD, TIMER, DIRECTORY, NULL_KIND, KINDS };
static int fds[FDS];
static uint64_t values[FDS], steps; // what each is recognised by

static void put(int i) {
    uint64_t word = values[i] = mix(i + steps * 1000) >> 1;
    switch (i % KINDS) {
    case FILE_KIND: lseek(fds[i], values[i] % 100000, SEEK_SET); break;
    case PIPE_WRITE:
    case PAIR_A:
    case PAIR_B:
    case EVENT: NEED(write(fds[i], &word, 8) == 8, "write %d", i); break;
    case MEMFD: NEED(pwrite(fds[i], &word, 8, 4096) == 8, "pwrite %d", i); break;
    case TIMER:
        timerfd_settime(fds[i], 0,
                        &(struct itimerspec){.it_value = {100000, 0}, .it_interval = {values[i] % 1000000, 0}}, NULL);
        break;
    }
}
static void take(int i) { // verifies, and leaves pipes, pairs and counters empty
    uint64_t word = 0;
    struct itimerspec timer;
    struct stat status;
    switch (i % KINDS) {
    case FILE_KIND: CHECK_EQ(lseek(fds[i], 0, SEEK_CUR), values[i] % 100000, "offset of descriptor %d", fds[i]); break;
    case PIPE_READ:
        CHECK(read_fully(fds[i], &word, 8) == 8 && word == values[i + 1], "pipe %d, expected %" PRIx64 ", got %" PRIx64,
              fds[i], values[i + 1], word);
        break;
    case PIPE_WRITE: CHECK_EQ(fcntl(fds[i], F_GETFL) & O_ACCMODE, O_WRONLY, "mode of descriptor %d", fds[i]); break;
    case EVENT:
        CHECK(read(fds[i], &word, 8) == 8 && word == values[i], "event %d, expected %" PRIx64 ", got %" PRIx64, fds[i],
              values[i], word);
        break;
    case PAIR_A:
        CHECK(read_fully(fds[i], &word, 8) == 8 && word == values[i + 1], "pair %d, expected %" PRIx64 ", got %" PRIx64,
              fds[i], values[i + 1], word);
        break;
    case PAIR_B:
        CHECK(read_fully(fds[i], &word, 8) == 8 && word == values[i - 1], "pair %d, expected %" PRIx64 ", got %" PRIx64,
              fds[i], values[i - 1], word);
        break;
    case MEMFD:
        CHECK(pread(fds[i], &word, 8, 4096) == 8 && word == values[i], "memfd %d, expected %" PRIx64 ", got %" PRIx64,
              fds[i], values[i], word);
        break;
    case TIMER:
        timerfd_gettime(fds[i], &timer);
        CHECK_EQ(timer.it_interval.tv_sec, values[i] % 1000000, "interval of descriptor %d", fds[i]);
        break;
    case DIRECTORY:
        CHECK(!fstat(fds[i], &status) && S_ISDIR(status.st_mode), "descriptor %d, expected a directory", fds[i]);
        break;
    case NULL_KIND:
        CHECK(!fstat(fds[i], &status) && S_ISCHR(status.st_mode), "descriptor %d, expected a device", fds[i]);
        break;
    }
}
static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur < FDS + 20) skip("only %d descriptors allowed", (int)limit.rlim_cur);
    for (int i = 0; i < FDS; i += KINDS) {
        char name[30];
        snprintf(name, sizeof name, "file-%d", i);
        NEED((fds[i] = open(name, O_CREAT | O_RDWR, 0600)) >= 0 && !pipe(&fds[i + PIPE_READ]), "file");
        NEED((fds[i + EVENT] = eventfd(0, EFD_NONBLOCK)) >= 0 && !socketpair(AF_UNIX, SOCK_STREAM, 0, &fds[i + PAIR_A]),
             "pair");
        NEED((fds[i + MEMFD] = memfd_create(name, 0)) >= 0 &&
                 (fds[i + TIMER] = timerfd_create(CLOCK_MONOTONIC, 0)) >= 0,
             "memfd");
        NEED((fds[i + DIRECTORY] = open(".", O_RDONLY | O_DIRECTORY)) >= 0 &&
                 (fds[i + NULL_KIND] = open("/dev/null", O_WRONLY)) >= 0,
             "open");
        fcntl(fds[i + i / KINDS % KINDS], F_SETFD, FD_CLOEXEC); // here and there
    }
    for (int i = 0; i < FDS; i++) put(i);
}
static void check(void) {
    for (int i = 0; i < FDS; i++) take(i);
    for (int i = 0; i < FDS; i++)
        CHECK_EQ(fcntl(fds[i], F_GETFD), i % KINDS == i / KINDS % KINDS ? FD_CLOEXEC : 0, "descriptor flags of %d",
                 fds[i]);
    for (int i = 0; i < FDS; i++) put(i);
}
static void step(void) {
    for (int i = 0; i < FDS; i++) take(i);
    steps++;
    for (int i = 0; i < FDS; i++) put(i);
}
static void digest(void) { digest_bytes(values, sizeof values); }
PROGRAM(setup, check, step, digest)
