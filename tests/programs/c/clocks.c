// Proves: the monotonic clock goes on from where it was, neither back nor ahead of real time; the wall clock is right.
// How: a thread reads the clocks all the time and flags any step back; a check also compares how far the monotonic
// and the wall clock have moved: the monotonic one may have moved less (suspended), never more.
// `time` prints `time MONOTONIC_NS REALTIME_NS BOOTTIME_NS`, for the harness to compare with its own clocks.
#include "program.h"

static int64_t start_monotonic, start_wall;
static _Atomic uint64_t readings;
static uint64_t steps;

static void *watch(void *unused_) {
    (void)unused_;
    static const clockid_t clocks[] = {CLOCK_MONOTONIC, CLOCK_BOOTTIME, CLOCK_MONOTONIC_RAW, CLOCK_MONOTONIC_COARSE};
    int64_t last[COUNT(clocks)] = {0};
    struct timespec now;
    for (;;) {
        for (size_t i = 0; i < COUNT(clocks); i++) {
            // Alternately through the vdso and through the kernel: after a restore they must still agree.
            if (readings % 2)
                syscall(SYS_clock_gettime, clocks[i], &now);
            else
                clock_gettime(clocks[i], &now);
            int64_t ns = now.tv_sec * 1000000000LL + now.tv_nsec;
            CHECK(ns >= last[i], "clock %d, expected never to go back, went back by %" PRId64 " ns", clocks[i],
                  last[i] - ns);
            last[i] = ns;
        }
        atomic_fetch_add(&readings, 1);
        if (readings % 64 == 0) sleep_ms(1);
    }
    return NULL;
}
static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    // In this order, and the other way round in a check: however slow, the wall clock has moved more.
    start_wall = now_ns(CLOCK_REALTIME), start_monotonic = now_ns(CLOCK_MONOTONIC);
    pthread_t thread;
    NEED(!pthread_create(&thread, NULL, watch, NULL), "thread");
}
static void check(void) {
    int64_t monotonic = now_ns(CLOCK_MONOTONIC) - start_monotonic;
    int64_t wall = now_ns(CLOCK_REALTIME) - start_wall;
    CHECK(monotonic >= 0, "monotonic time since the start, expected 0 or more, got %" PRId64 " ns", monotonic);
    // Two seconds of grace: the wall clock may be set right at any time.
    CHECK(monotonic <= wall + 2000000000,
          "monotonic time since the start, expected at most the wall clock's %" PRId64 " ns, got %" PRId64, wall,
          monotonic);
    int64_t year = now_ns(CLOCK_REALTIME) / 1000000000 / 31556952 + 1970;
    CHECK(year >= 2024 && year < 2100, "year, expected a sane one, got %" PRId64, year);
    uint64_t before = readings;
    CHECK(WITHIN_PATIENCE(readings > before), "reader, expected to go on, got stuck");
}
static void step(void) { steps++; }
static void digest(void) { digest_number(steps); }
static bool command(const char *line) {
    if (strcmp(line, "time")) return false;
    printf("time %" PRId64 " %" PRId64 " %" PRId64 "\n", now_ns(CLOCK_MONOTONIC), now_ns(CLOCK_REALTIME),
           now_ns(CLOCK_BOOTTIME));
    return true;
}
PROGRAM(setup, check, step, digest, command)
