// Proves: timer descriptors keep what is left, their intervals, and expirations nobody has read yet.
// How: a far relative and a far absolute timer are compared with the monotonic clock; one has expired exactly once,
// unread; one ticks every 10 ms with unread expirations piling up; one on the wall clock; one is disarmed.
#include "program.h"
#include <sys/timerfd.h>

enum { RELATIVE, ABSOLUTE, EXPIRED, TICKING, WALL, DISARMED, BLOCKING, TIMERS };
static int fds[TIMERS];
static int64_t deadline_ms[TIMERS], ticking_since_ms;
static uint64_t steps;

static struct timespec of_ms(int64_t ms) { return (struct timespec){ms / 1000, ms % 1000 * 1000000}; }
static int64_t ms(struct timespec t) { return t.tv_sec * 1000 + t.tv_nsec / 1000000; }
static void set(int i, int flags, int64_t value_ms, int64_t interval_ms) {
    struct itimerspec spec = {.it_value = of_ms(value_ms), .it_interval = of_ms(interval_ms)};
    NEED(!timerfd_settime(fds[i], flags, &spec, NULL), "timerfd_settime %d", i);
    deadline_ms[i] = flags & TFD_TIMER_ABSTIME ? value_ms : monotonic_ms() + value_ms;
}
static int64_t interval_of(int i) { return i == RELATIVE ? 7000 + steps : i == TICKING ? 10 : 0; }

static void arm(void) {
    set(RELATIVE, 0, 3600000 + steps * 1000, interval_of(RELATIVE));
    set(ABSOLUTE, TFD_TIMER_ABSTIME, monotonic_ms() + 7200000, 0);
    set(WALL, 0, 5400000, 0); // relative on the wall clock: it too must not follow a jump
    set(DISARMED, 0, 0, 0);
    set(BLOCKING, 0, 3600000, 0);
    set(EXPIRED, 0, 1, 0);
    set(TICKING, 0, 10, interval_of(TICKING));
    ticking_since_ms = monotonic_ms();
    sleep_ms(30);
}
static void check(void) {
    for (int i = 0; i < TIMERS; i++) {
        struct itimerspec now;
        CHECK_EQ(timerfd_gettime(fds[i], &now), 0, "timerfd_gettime %d", i);
        CHECK_EQ(ms(now.it_interval), interval_of(i), "interval of timer %d", i);
        if (i == TICKING) continue;
        int64_t expected = i == EXPIRED || i == DISARMED ? 0 : deadline_ms[i] - monotonic_ms(), left = ms(now.it_value);
        CHECK(left >= expected - (expected ? 2000 : 0) && left <= expected + (expected ? 100 : 0),
              "time left of timer %d, expected about %" PRId64 " ms, got %" PRId64, i, expected, left);
    }
    CHECK_EQ(fcntl(fds[RELATIVE], F_GETFL) & O_NONBLOCK, O_NONBLOCK, "nonblocking flag");
    CHECK_EQ(fcntl(fds[BLOCKING], F_GETFL) & O_NONBLOCK, 0, "nonblocking flag of the blocking one");
    CHECK_EQ(fcntl(fds[RELATIVE], F_GETFD), FD_CLOEXEC, "close-on-exec flag");
    uint64_t count = 0;
    CHECK(read(fds[RELATIVE], &count, 8) == -1 && errno == EAGAIN, "read of a far timer, expected EAGAIN, got %d",
          errno);
    CHECK(read(fds[DISARMED], &count, 8) == -1 && errno == EAGAIN, "read of a disarmed timer, expected EAGAIN, got %d",
          errno);
    CHECK_EQ(read(fds[EXPIRED], &count, 8), 8, "read of the expired timer");
    CHECK_EQ(count, 1, "expirations of the expired timer");
    CHECK(read(fds[EXPIRED], &count, 8) == -1 && errno == EAGAIN, "second read, expected EAGAIN, got %d", errno);
    int64_t elapsed = monotonic_ms() - ticking_since_ms;
    CHECK_EQ(read(fds[TICKING], &count, 8), 8, "read of the ticking timer");
    // As many as intervals have passed on the monotonic clock, give or take.
    CHECK((int64_t)count >= elapsed / 10 - 20 && (int64_t)count <= elapsed / 10 + 20,
          "expirations, expected about %" PRId64 ", got %" PRIu64, elapsed / 10, count);
    CHECK(readable_within(fds[TICKING], PATIENCE_MS), "ticking timer, expected another tick, got none");
    arm();
}
static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    for (int i = 0; i < TIMERS; i++) {
        fds[i] = timerfd_create(i == WALL ? CLOCK_REALTIME : CLOCK_MONOTONIC,
                                TFD_CLOEXEC | (i == BLOCKING ? 0 : TFD_NONBLOCK));
        NEED(fds[i] >= 0, "timerfd_create");
    }
    arm();
}
static void step(void) {
    steps++;
    arm();
}
static void digest(void) {
    for (int i = 0; i < TIMERS; i++) digest_number(interval_of(i));
}
PROGRAM(setup, check, step, digest)
