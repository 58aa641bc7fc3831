// Measures: the pause a capture costs, as the program itself feels it.
// How: a thread reads the monotonic clock without rest and remembers the longest gap between two readings. `gap` prints
// `gap_us N`, the longest since the last `gap`, and starts anew. A check only verifies that the thread lives and time
// flows.
#include "program.h"

static _Atomic int64_t longest_ns;
static _Atomic uint64_t readings;
static uint64_t steps;

static void *spin(void *unused_) {
    (void)unused_;
    for (int64_t last = now_ns(CLOCK_MONOTONIC);; atomic_fetch_add_explicit(&readings, 1, memory_order_relaxed)) {
        int64_t now = now_ns(CLOCK_MONOTONIC), gap = now - last;
        CHECK(gap >= 0, "monotonic clock, expected never back, went back by %" PRId64 " ns", -gap);
        int64_t longest = longest_ns;
        while (gap > longest && !atomic_compare_exchange_weak(&longest_ns, &longest, gap)) {}
        last = now;
    }
    return NULL;
}
static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    pthread_t thread;
    NEED(!pthread_create(&thread, NULL, spin, NULL), "thread");
    while (!readings) sleep_ms(1);
    longest_ns = 0; // starting up does not count
}
static void check(void) {
    uint64_t before = readings;
    CHECK(WITHIN_PATIENCE(readings > before + 100), "spinning thread, expected to go on, got stuck");
}
static void step(void) { steps++; }
static void digest(void) { digest_number(steps); }
static bool command(const char *line) {
    if (strcmp(line, "gap")) return false;
    printf("gap_us %" PRId64 "\n", atomic_exchange(&longest_ns, 0) / 1000);
    return true;
}
PROGRAM(setup, check, step, digest, command)
