// Proves: threads blocked in system calls neither notice nor lose anything: a sleep lasts its time, a timeout is a
// timeout, a wake-up arrives, and nobody sees an EINTR that no signal handler caused.
// How: two groups of threads. "Short" ones repeat a call that ends by itself after SHORT_MS and verify how it ended.
// "Long" ones wait for an hour or for ever; a check wakes each, verifies what it was told, and lets it block again.
// Calls that the kernel itself fails with EINTR after any stop are in blocked_calls_eintr.
#include "program.h"
#include <linux/futex.h>
#include <semaphore.h>
#include <sys/select.h>

#define SHORT_MS 200
#define LONG_S 3600
#define SHORT 6
#define LONG 8
static _Atomic uint64_t short_rounds[SHORT], long_rounds[LONG], long_blocking[LONG];
static uint64_t steps;

static void expect_end(const char *call, int64_t started_ms, int got, int error, int expected, int expected_error) {
    int64_t took = monotonic_ms() - started_ms;
    CHECK(got == expected && (got >= 0 || error == expected_error),
          "%s, expected %d errno %d, got %d errno %d after %d ms", call, expected, expected_error, got, error,
          (int)took);
    // One millisecond of grace for rounding. No upper bound but against hangs: the machine may be busy.
    CHECK(took >= SHORT_MS - 1 && took < SHORT_MS + 60000, "%s, expected to last %d ms, got %d", call, SHORT_MS,
          (int)took);
}
static void *short_call(void *which_) {
    long which = (long)which_;
    struct timespec time = {0, SHORT_MS * 1000000L}, at;
    int word = 0;
    sem_t never;
    sem_init(&never, 0, 0);
    for (;; atomic_fetch_add(&short_rounds[which], 1)) {
        int64_t start = monotonic_ms();
        switch (which) {
        case 0: {
            int got = nanosleep(&time, NULL);
            expect_end("nanosleep", start, got, errno, 0, 0);
            break;
        }
        case 1: {
            int64_t end = now_ns(CLOCK_MONOTONIC) + SHORT_MS * 1000000LL;
            at = (struct timespec){end / 1000000000, end % 1000000000};
            int got = clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
            expect_end("clock_nanosleep", start, got, got, 0, 0);
            break;
        }
        case 2: {
            int got = poll(NULL, 0, SHORT_MS);
            expect_end("poll", start, got, errno, 0, 0);
            break;
        }
        case 3: {
            struct timeval timeout = {0, SHORT_MS * 1000};
            int got = select(0, NULL, NULL, NULL, &timeout);
            expect_end("select", start, got, errno, 0, 0);
            break;
        }
        case 4: {
            int got = syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &time, NULL, 0);
            expect_end("futex wait", start, got, errno, -1, ETIMEDOUT);
            break;
        }
        case 5: { // the wall clock may jump, so only how it ends is certain, not when
            clock_gettime(CLOCK_REALTIME, &at);
            at.tv_nsec += SHORT_MS * 1000000L;
            if (at.tv_nsec >= 1000000000) at.tv_nsec -= 1000000000, at.tv_sec++;
            int got = sem_timedwait(&never, &at), error = errno;
            CHECK(got == -1 && error == ETIMEDOUT, "sem_timedwait, expected ETIMEDOUT, got %d errno %d", got, error);
            break;
        }
        }
    }
    return NULL;
}

static int pipes[LONG][2];
static int futex_word, other_futex_word; // who waits for one must not be woken in place of who waits for the other
static sem_t posted;
static pthread_t long_threads[LONG];
static const char *const long_names[LONG] = {"poll",          "select",    "read", "futex wait", "futex wait until",
                                             "sem_timedwait", "nanosleep", "pause"};

static void nothing(int signal) { (void)signal; }
static bool ended_well(long which) { // blocks, and says whether the call returned what its wake-up should give
    struct pollfd p = {.fd = pipes[which][0], .events = POLLIN};
    struct timespec hour = {LONG_S, 0}, left = {-1, 0}, at;
    struct timeval timeout = {LONG_S, 0};
    fd_set set;
    char byte = 0;
    switch (which) {
    case 0: return poll(&p, 1, LONG_S * 1000) == 1 && p.revents == POLLIN && read(p.fd, &byte, 1) == 1;
    case 1:
        FD_ZERO(&set);
        FD_SET(p.fd, &set);
        return select(p.fd + 1, &set, NULL, NULL, &timeout) == 1 && FD_ISSET(p.fd, &set) && read(p.fd, &byte, 1) == 1;
    case 2: return read(p.fd, &byte, 1) == 1 && byte == 'x';
    case 3: return syscall(SYS_futex, &futex_word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0) == 0;
    case 4:
        clock_gettime(CLOCK_MONOTONIC, &at);
        at.tv_sec += LONG_S;
        return syscall(SYS_futex, &other_futex_word, FUTEX_WAIT_BITSET_PRIVATE, 0, &at, NULL, 2) == 0;
    case 5:
        clock_gettime(CLOCK_REALTIME, &at);
        at.tv_sec += 100L * 365 * 86400; // a wall clock that jumps must not end it
        return sem_timedwait(&posted, &at) == 0;
    case 6: // in its first moment the hour is still left, and the slack that the kernel gives every timer
        return nanosleep(&hour, &left) == -1 && errno == EINTR && left.tv_sec >= 0 && left.tv_sec <= LONG_S;
    case 7: return pause() == -1 && errno == EINTR;
    }
    return false;
}
static void *long_call(void *which_) {
    long which = (long)which_;
    for (;;) {
        atomic_fetch_add(&long_blocking[which], 1);
        errno = 0;
        bool well = ended_well(which);
        CHECK(well, "long %s, expected to be woken properly, got another end, errno %d", long_names[which], errno);
        if (!well) return NULL;
        atomic_fetch_add(&long_rounds[which], 1);
    }
}
static void wake(long which) {
    if (which <= 2) CHECK_EQ(write(pipes[which][1], "x", 1), 1, "write to wake %s", long_names[which]);
    if (which == 3)
        CHECK(WITHIN_PATIENCE(syscall(SYS_futex, &futex_word, FUTEX_WAKE_BITSET_PRIVATE, 1, NULL, NULL, 1) == 1),
              "futex wake");
    if (which == 4)
        CHECK(WITHIN_PATIENCE(syscall(SYS_futex, &other_futex_word, FUTEX_WAKE_BITSET_PRIVATE, 1, NULL, NULL, 2) == 1),
              "futex wake until");
    if (which == 5) sem_post(&posted);
    // A signal can come too early, between the announcement and the call, and then wakes nobody: so again until it
    // does.
    uint64_t before = long_blocking[which];
    if (which >= 6)
        WITHIN_PATIENCE((pthread_kill(long_threads[which], SIGUSR1), sleep_ms(2), long_blocking[which] > before));
}
static void wake_all(void) {
    for (long i = 0; i < LONG; i++)
        // A second signal may still be on its way to who was woken by one.
        CHECK(WITHIN_PATIENCE(long_rounds[i] + 1 == long_blocking[i]), "long %s, expected to block again",
              long_names[i]);
    for (long i = 0; i < LONG; i++) {
        uint64_t before = long_blocking[i];
        wake(i);
        CHECK(WITHIN_PATIENCE(long_blocking[i] > before), "long %s, expected to wake, got stuck", long_names[i]);
    }
    sleep_ms(20); // until they are really blocked again
}
static void check(void) {
    uint64_t before[SHORT];
    for (long i = 0; i < SHORT; i++) before[i] = short_rounds[i];
    wake_all();
    for (long i = 0; i < SHORT; i++)
        CHECK(WITHIN_PATIENCE(short_rounds[i] > before[i]), "short call %ld, expected to end, got stuck", i);
}
static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    struct sigaction action = {.sa_handler = nothing};
    sigaction(SIGUSR1, &action, NULL);
    for (int i = 0; i < LONG; i++) NEED(!pipe(pipes[i]), "pipe");
    sem_init(&posted, 0, 0);
    pthread_t thread;
    for (long i = 0; i < SHORT; i++) NEED(!pthread_create(&thread, NULL, short_call, (void *)i), "thread");
    for (long i = 0; i < LONG; i++) NEED(!pthread_create(&long_threads[i], NULL, long_call, (void *)i), "thread");
    for (long i = 0; i < LONG; i++) NEED(WITHIN_PATIENCE(long_blocking[i] == 1), "begin");
    sleep_ms(30); // until they are really blocked
}
static void step(void) {
    steps++;
    wake_all();
}
static void digest(void) { digest_number(steps); }
PROGRAM(setup, check, step, digest)
