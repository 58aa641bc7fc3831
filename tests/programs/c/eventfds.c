// Proves: event descriptors keep their counters, their kind (plain or semaphore), their flags and their sharing.
// How: counters of several sizes are read, compared and written back; a thread is blocked reading a zero one; a
// child shares one and both must see each other's additions.
#include "children.h"
#include <sys/eventfd.h>

enum { PLAIN, SEMAPHORE, HUGE, ZERO, SHARED, EVENTS };
static int fds[EVENTS], blocked_on;
static uint64_t counts[EVENTS] = {41, 3, 0xfffffffffffffff0, 0, 7}, steps;
static _Atomic uint64_t received;
static struct child child;
enum { ADD = 1, TAKE };

static int64_t answer(struct question q, void *unused_) {
    (void)unused_;
    uint64_t value = q.with;
    if (q.what == ADD) return write(fds[SHARED], &value, 8);
    return read(fds[SHARED], &value, 8) == 8 ? (int64_t)value : -errno;
}
static void *block(void *unused_) {
    (void)unused_;
    for (uint64_t value; read(blocked_on, &value, 8) == 8;) atomic_fetch_add(&received, value);
    fail("blocked read, expected 8 bytes, got errno %d", errno);
    return NULL;
}
static void put(int i) {
    if (counts[i]) NEED(write(fds[i], &counts[i], 8) == 8, "write %d", i);
}
static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    for (int i = 0; i < EVENTS; i++) {
        NEED((fds[i] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC | (i == SEMAPHORE ? EFD_SEMAPHORE : 0))) >= 0, "eventfd");
        put(i);
    }
    NEED((blocked_on = eventfd(0, 0)) >= 0, "eventfd");
    child = child_start(answer, NULL, NULL);
    pthread_t thread;
    NEED(!pthread_create(&thread, NULL, block, NULL), "thread");
    sleep_ms(5);
}
static void check(void) {
    uint64_t value = 0;
    for (int i = 0; i < EVENTS; i++) {
        if (i == SEMAPHORE) continue;
        ssize_t n = read(fds[i], &value, 8);
        if (counts[i])
            CHECK(n == 8 && value == counts[i], "counter %d, expected %" PRIu64 ", got %" PRIu64, i, counts[i], value);
        else
            CHECK(n == -1 && errno == EAGAIN, "counter %d, expected EAGAIN, got %zd", i, n);
        put(i);
        CHECK_EQ(fcntl(fds[i], F_GETFD), FD_CLOEXEC, "descriptor flags of %d", i);
    }
    for (uint64_t n = 0; n < counts[SEMAPHORE]; n++) // gives out ones
        CHECK(read(fds[SEMAPHORE], &value, 8) == 8 && value == 1, "semaphore, expected 1, got %" PRIu64, value);
    CHECK(read(fds[SEMAPHORE], &value, 8) == -1 && errno == EAGAIN, "semaphore taken out, expected EAGAIN, got %d",
          errno);
    put(SEMAPHORE);
    value = 100;
    CHECK(write(fds[HUGE], &value, 8) == -1 && errno == EAGAIN, "overflowing write, expected EAGAIN, got %d", errno);
    CHECK_EQ(child_ask(&child, ADD, 5), 8, "addition by the child");
    CHECK(read(fds[SHARED], &value, 8) == 8 && value == counts[SHARED] + 5,
          "shared counter, expected %" PRIu64 ", got %" PRIu64, counts[SHARED] + 5, value);
    put(SHARED);
    CHECK_EQ(child_ask(&child, TAKE, 0), counts[SHARED], "shared counter seen by the child");
    put(SHARED);
    uint64_t before = received;
    value = 9;
    CHECK_EQ(write(blocked_on, &value, 8), 8, "waking the blocked reader");
    CHECK(WITHIN_PATIENCE(received == before + 9), "blocked reader, expected %" PRIu64 ", got %" PRIu64, before + 9,
          (uint64_t)received);
}
static void step(void) {
    steps++;
    const uint64_t add[EVENTS] = {11, 1, 1, 0, 2};
    for (int i = 0; i < EVENTS; i++) {
        if (!add[i] || counts[i] >= 0xfffffffffffffffc) continue; // at its limit
        NEED(write(fds[i], &add[i], 8) == 8, "add");
        counts[i] += add[i];
    }
}
static void digest(void) { digest_bytes(counts, sizeof counts); }
PROGRAM(setup, check, step, digest)
