// Proves: the three interval timers survive with the time they had left and their intervals, and go off.
// How: far-off timers are compared with the monotonic clock; after an odd number of steps the real timer ticks
// every 20 ms instead and a check waits for ticks. VIRTUAL and PROF count processor time, of which little is used.
#include "program.h"
#include <sys/time.h>

static const int which[] = {ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF};
static const char *const names[] = {"real", "virtual", "prof"};
static struct itimerval set[3];
static int64_t before_set_ms, set_at_ms; // they were set in between
static volatile sig_atomic_t ticks;
static uint64_t steps;

static void tick(int signal) {
    (void)signal;
    ticks++;
}
static void arm(void) {
    for (int i = 0; i < 3; i++)
        set[i] =
            (struct itimerval){.it_value = {1000 + 100 * i + steps, 250000}, .it_interval = {500 + i + steps, 125000}};
    if (steps % 2) set[0] = (struct itimerval){{0, 20000}, {0, 20000}};
    before_set_ms = monotonic_ms();
    for (int i = 0; i < 3; i++) NEED(!setitimer(which[i], &set[i], NULL), "setitimer");
    set_at_ms = monotonic_ms();
}
static int64_t ms(struct timeval t) { return t.tv_sec * 1000 + t.tv_usec / 1000; }

static void check(void) {
    for (int i = 0; i < 3; i++) {
        struct itimerval now;
        int64_t least = monotonic_ms() - set_at_ms;
        getitimer(which[i], &now);
        int64_t most = monotonic_ms() - before_set_ms;
        CHECK_EQ(ms(now.it_interval), ms(set[i].it_interval), "interval of %s", names[i]);
        bool ticking = i == 0 && steps % 2;
        // The kernel rounds a little up; processor time may have been used, but never more than passed.
        int64_t value = ms(set[i].it_value), left = ms(now.it_value);
        int64_t from = value - most - 2000, to = value - (i == 0 ? least : 0) + SLOW_MS;
        CHECK(ticking || (left >= from && left <= to),
              "time left of %s, expected %" PRId64 " to %" PRId64 " ms, got %" PRId64, names[i], from, to, left);
    }
    if (steps % 2) {
        int before = ticks;
        CHECK(WITHIN_PATIENCE(ticks >= before + 3), "ticks, expected to go on, got stuck at %d", before);
    }
}
static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    arm(); // SIGVTALRM and SIGPROF keep their default: if one came, the program would die
}
static void step(void) {
    steps++;
    arm();
}
static void digest(void) {
    for (int i = 0; i < 3; i++) digest_number(ms(set[i].it_value));
}
PROGRAM(setup, check, step, digest)
