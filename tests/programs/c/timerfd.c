// Proves: timer descriptors keep what is left, their intervals, and expirations nobody has read yet.
// How: a far relative and a far absolute timer are compared with the monotonic clock; one has expired exactly once,
// unread; one ticks every 10 ms with unread expirations piling up; one on the wall clock; one is disarmed.
#include "program.h"
#include <sys/timerfd.h>

enum { RELATIVE, ABSOLUTE, EXPIRED, TICKING, WALL, DISARMED, BLOCKING, TIMERS };
static int fds[TIMERS];
// They were set in between two readings of the clock: deadlines by the first, and by the second.
static int64_t earliest_ms[TIMERS], latest_ms[TIMERS], ticking_before_ms, ticking_since_ms;
static uint64_t steps;

static struct timespec of_ms(int64_t ms) { return (struct timespec){ms / 1000, ms % 1000 * 1000000}; }
static int64_t ms(struct timespec t) { return t.tv_sec * 1000 + t.tv_nsec / 1000000; }
static void set(int i, int flags, int64_t value_ms, int64_t interval_ms) {
    struct itimerspec spec = {.it_value = of_ms(value_ms), .it_interval = of_ms(interval_ms)};
    int64_t before = monotonic_ms();
    NEED(!timerfd_settime(fds[i], flags, &spec, NULL), "timerfd_settime %d", i);
    bool absolute = flags & TFD_TIMER_ABSTIME;
    earliest_ms[i] = absolute ? value_ms : before + value_ms;
    latest_ms[i] = absolute ? value_ms : monotonic_ms() + value_ms;
}
static int64_t interval_of(int i) { return i == RELATIVE ? 7000 + steps : i == TICKING ? 10 : 0; }

static void arm(void) {
    set(RELATIVE, 0, 3600000 + steps * 1000, interval_of(RELATIVE));
    set(ABSOLUTE, TFD_TIMER_ABSTIME, monotonic_ms() + 7200000, 0);
    set(WALL, 0, 5400000, 0); // relative on the wall clock: it too must not follow a jump
    set(DISARMED, 0, 0, 0);
    set(BLOCKING, 0, 3600000, 0);
    set(EXPIRED, 0, 1, 0);
    ticking_before_ms = monotonic_ms();
    set(TICKING, 0, 10, interval_of(TICKING));
    ticking_since_ms = monotonic_ms();
    sleep_ms(30);
}
static void check(void) {
    for (int i = 0; i < TIMERS; i++) {
        struct itimerspec now;
        int64_t before = monotonic_ms();
        CHECK_EQ(timerfd_gettime(fds[i], &now), 0, "timerfd_gettime %d", i);
        int64_t after = monotonic_ms();
        CHECK_EQ(ms(now.it_interval), interval_of(i), "interval of timer %d", i);
        if (i == TICKING) continue;
        bool runs = i != EXPIRED && i != DISARMED;
        int64_t from = runs ? earliest_ms[i] - after - 2000 : 0, to = runs ? latest_ms[i] - before + SLOW_MS : 0;
        int64_t left = ms(now.it_value);
        CHECK(left >= from && left <= to, "time left of timer %d, expected %" PRId64 " to %" PRId64 " ms, got %" PRId64,
              i, from, to, left);
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
    int64_t least = (monotonic_ms() - ticking_since_ms - SLOW_MS) / 10;
    CHECK_EQ(read(fds[TICKING], &count, 8), 8, "read of the ticking timer");
    int64_t most = (monotonic_ms() - ticking_before_ms) / 10;
    // As many as intervals have passed on the monotonic clock, give or take.
    CHECK((int64_t)count >= least && (int64_t)count <= most + 20,
          "expirations, expected %" PRId64 " to %" PRId64 ", got %" PRIu64, least, most, count);
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
