// The protocol every C program here speaks, and the few helpers they share.
//
//   harness            program
//      |                  | setup()
//      | <---- ready ---- |            (or `skip <why>`, and it exits 0)
//      | ---- check ----> | check()    -> `ok` or `fail <what, expected, got>`
//      | ---- step -----> | step()     -> `stepped`
//      | ---- digest ---> | digest()   -> 16 hex digits, equal in every run with the same commands
//      | ---- quit -----> | exits 0    (end of input does the same)
//
// A program is captured and restored at any moment after `ready`. It must therefore never put pids,
// addresses or times into its digest, and it must bound every wait: a lost wake-up is a `fail`, not a hang.
#pragma once
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_MS 60000 // the longest anything may take before it counts as lost
#define SLOW_MS 5000 // what a clock may be ahead of a timer after a restore on a busy machine
#define PAGE 4096UL
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define unused __attribute__((unused))

struct program {
    void (*setup)(int argc, char **argv);
    void (*check)(void);
    void (*step)(void);
    void (*digest)(void);
    bool (*command)(const char *line); // anything else; false when it does not know the line
};

// ---- failures: the first one is kept, from whichever thread it came ----

static char failure[600];
static pthread_mutex_t failure_lock = PTHREAD_MUTEX_INITIALIZER;

__attribute__((format(printf, 1, 2))) static void fail(const char *format, ...) {
    char text[sizeof failure];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    pthread_mutex_lock(&failure_lock);
    if (!failure[0]) memcpy(failure, text, sizeof text);
    pthread_mutex_unlock(&failure_lock);
}

// CHECK(condition, "what, expected, got", ...): errno is whatever the condition left.
#define CHECK(condition, ...)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) fail(__VA_ARGS__);                                                                           \
    } while (0)
// CHECK_EQ(got, expected, "what", ...): for integers.
#define CHECK_EQ(got, expected, ...)                                                                                   \
    do {                                                                                                               \
        long long got_ = (long long)(got), expected_ = (long long)(expected);                                          \
        int error_ = errno;                                                                                            \
        if (got_ != expected_) {                                                                                       \
            char what_[200];                                                                                           \
            snprintf(what_, sizeof what_, __VA_ARGS__);                                                                \
            fail("%s, expected %lld, got %lld (line %d, errno %d)", what_, expected_, got_, __LINE__, error_);         \
        }                                                                                                              \
    } while (0)
// NEED(condition, ...): set-up itself must work; if not, the program is no use.
#define NEED(condition, ...)                                                                                           \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            printf("fail setup line %d, %s: ", __LINE__, strerror(errno));                                             \
            printf(__VA_ARGS__);                                                                                       \
            printf("\n");                                                                                              \
            fflush(stdout);                                                                                            \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

__attribute__((format(printf, 1, 2))) unused static void skip(const char *format, ...) {
    va_list args;
    va_start(args, format);
    printf("skip ");
    vprintf(format, args);
    va_end(args);
    printf("\n");
    fflush(stdout);
    exit(0);
}

// ---- deterministic numbers and digests ----

// The 64-bit finaliser of splitmix64: a different, repeatable word for every input.
unused static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}
unused static void fill(void *memory, size_t bytes, uint64_t seed) {
    for (size_t i = 0; i < bytes; i++) ((unsigned char *)memory)[i] = mix(seed + i / 8) >> (i % 8 * 8);
}
// The offset of the first byte that differs from what fill() wrote, or -1.
unused static long differs(const void *memory, size_t bytes, uint64_t seed) {
    for (size_t i = 0; i < bytes; i++)
        if (((const unsigned char *)memory)[i] != (unsigned char)(mix(seed + i / 8) >> (i % 8 * 8))) return i;
    return -1;
}
unused static bool all_zero(const void *memory, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if (((const unsigned char *)memory)[i]) return false;
    return true;
}
static uint64_t digest_state;
unused static uint64_t hash(const void *memory, size_t bytes, uint64_t state) { // FNV-1a
    for (size_t i = 0; i < bytes; i++) state = (state ^ ((const unsigned char *)memory)[i]) * 0x100000001b3;
    return state;
}
unused static void digest_bytes(const void *memory, size_t bytes) { digest_state = hash(memory, bytes, digest_state); }
unused static void digest_number(uint64_t n) { digest_bytes(&n, sizeof n); }

// ---- time, and waits that end ----

unused static int64_t now_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}
unused static int64_t monotonic_ms(void) { return now_ns(CLOCK_MONOTONIC) / 1000000; }
unused static void sleep_ms(int ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
    while (nanosleep(&t, &t) && errno == EINTR) {}
}
// True as soon as the condition holds; false when it has not for PATIENCE_MS.
#define WITHIN_PATIENCE(condition)                                                                                     \
    ({                                                                                                                 \
        int64_t end_ = monotonic_ms() + PATIENCE_MS;                                                                   \
        bool held_;                                                                                                    \
        while (!(held_ = (condition)) && monotonic_ms() < end_) sleep_ms(1);                                           \
        held_;                                                                                                         \
    })
unused static bool readable_within(int fd, int ms) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int64_t end = monotonic_ms() + ms;
    int n;
    while ((n = poll(&p, 1, ms)) < 0 && errno == EINTR && monotonic_ms() < end) {}
    return n == 1;
}
// Reads exactly `bytes` unless the stream ends, fails or dries up first; returns how many came, or -1.
unused static ssize_t read_fully(int fd, void *buffer, size_t bytes) {
    size_t done = 0;
    while (done < bytes) {
        if (!readable_within(fd, PATIENCE_MS)) {
            errno = ETIMEDOUT;
            return done ? (ssize_t)done : -1;
        }
        ssize_t n = read(fd, (char *)buffer + done, bytes - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return done ? (ssize_t)done : -1;
        if (n == 0) break;
        done += n;
    }
    return done;
}

// ---- the conversation ----

// Unbuffered on purpose: nothing of the harness's may sit in a stdio buffer at the moment of a capture.
static bool read_line(char *line, size_t size) {
    size_t length = 0;
    for (;;) {
        ssize_t n = read(0, line + length, 1);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        if (line[length] == '\n') break;
        if (length + 2 < size) length++;
    }
    line[length] = 0;
    return true;
}

static int program_main(int argc, char **argv, struct program program) {
    char line[200];
    signal(SIGPIPE, SIG_IGN);
    program.setup(argc, argv);
    pid_t pid = getpid();
    printf("ready\n");
    fflush(stdout);
    while (read_line(line, sizeof line) && strcmp(line, "quit")) {
        if (!strcmp(line, "check")) {
            program.check();
            CHECK_EQ(getpid(), pid, "own pid");
            CHECK_EQ(syscall(SYS_gettid), pid, "main thread's id");
            // A failure is kept: what was wrong once is not made right by a later check.
            if (failure[0])
                printf("fail %s\n", failure);
            else
                printf("ok\n");
        } else if (!strcmp(line, "step")) {
            program.step();
            printf("stepped\n");
        } else if (!strcmp(line, "digest")) {
            digest_state = 0xcbf29ce484222325;
            program.digest();
            printf("%016" PRIx64 "\n", digest_state);
        } else if (!program.command || !program.command(line)) {
            printf("unknown %s\n", line);
        }
        fflush(stdout);
    }
    exit(0);
}
#define PROGRAM(...)                                                                                                   \
    int main(int argc, char **argv) { return program_main(argc, argv, (struct program){__VA_ARGS__}); }
