// Proves: even calls that the kernel ends with EINTR after any stop (signal(7) lists them) do not notice a capture:
// whoever froze the thread has to send it back into the call. How: as blocked_calls, with epoll_wait, sigtimedwait,
// sigwaitinfo and recv under SO_RCVTIMEO. Merely attaching a debugger makes this one fail; an undisturbed run never
// sees EINTR.
#include "program.h"
#include <sys/epoll.h>
#include <sys/socket.h>

#define SHORT_MS 200
#define CALLS 3
static const char *const names[CALLS] = {"epoll_wait", "sigtimedwait", "recv"};
static _Atomic uint64_t short_rounds[CALLS], long_rounds[CALLS], long_blocking[CALLS];
static int short_epoll, long_epoll, short_pair[2], long_pair[2], pipe_ends[2];
static pthread_t long_threads[CALLS];
static uint64_t steps, wakes;

// One call that nobody wakes; true if it ended by its timeout.
static bool times_out(int which) {
    struct epoll_event event;
    sigset_t signals;
    char byte;
    if (which == 0) return epoll_wait(short_epoll, &event, 1, SHORT_MS) == 0;
    if (which == 2) return recv(short_pair[0], &byte, 1, 0) == -1 && errno == EAGAIN;
    sigemptyset(&signals), sigaddset(&signals, SIGUSR2);
    return sigtimedwait(&signals, NULL, &(struct timespec){0, SHORT_MS * 1000000L}) == -1 && errno == EAGAIN;
}
// One call that lasts until a check wakes it; true if it was told the right thing.
static bool is_woken(int which) {
    struct epoll_event event;
    sigset_t signals;
    char byte = 0;
    if (which == 0)
        return epoll_wait(long_epoll, &event, 1, -1) == 1 && event.data.u64 == 77 && read(pipe_ends[0], &byte, 1) == 1;
    if (which == 2) return recv(long_pair[0], &byte, 1, 0) == 1 && byte == 'x';
    sigemptyset(&signals), sigaddset(&signals, SIGUSR1);
    return sigwaitinfo(&signals, NULL) == SIGUSR1;
}
static void *short_call(void *which_) {
    long which = (long)which_;
    for (;; atomic_fetch_add(&short_rounds[which], 1)) {
        int64_t start = monotonic_ms();
        errno = 0;
        bool well = times_out(which);
        CHECK(well, "%s, expected its timeout, got another end, errno %d", names[which], errno);
        CHECK(monotonic_ms() - start >= SHORT_MS - 10, "%s, expected to last %d ms, got %d", names[which], SHORT_MS,
              (int)(monotonic_ms() - start));
    }
    return NULL;
}
static void *long_call(void *which_) {
    for (long which = (long)which_;; atomic_fetch_add(&long_rounds[which], 1)) {
        atomic_fetch_add(&long_blocking[which], 1);
        errno = 0;
        bool well = is_woken(which);
        CHECK(well, "long %s, expected to be woken properly, got another end, errno %d", names[which], errno);
    }
    return NULL;
}
static void set_timeout(int fd, struct timeval timeout) {
    NEED(!setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout), "SO_RCVTIMEO");
}
static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    sigset_t signals;
    sigemptyset(&signals), sigaddset(&signals, SIGUSR1), sigaddset(&signals, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &signals, NULL); // waited for, never handled
    short_epoll = epoll_create1(0), long_epoll = epoll_create1(0);
    NEED(!pipe(pipe_ends) && !socketpair(AF_UNIX, SOCK_STREAM, 0, short_pair) &&
             !socketpair(AF_UNIX, SOCK_STREAM, 0, long_pair),
         "pairs");
    set_timeout(short_pair[0], (struct timeval){0, SHORT_MS * 1000});
    set_timeout(long_pair[0], (struct timeval){3600, 0});
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 77};
    NEED(!epoll_ctl(long_epoll, EPOLL_CTL_ADD, pipe_ends[0], &event), "epoll_ctl");
    pthread_t thread;
    for (long i = 0; i < CALLS; i++) {
        NEED(!pthread_create(&thread, NULL, short_call, (void *)i), "thread");
        NEED(!pthread_create(&long_threads[i], NULL, long_call, (void *)i), "thread");
    }
    for (long i = 0; i < CALLS; i++) NEED(WITHIN_PATIENCE(long_blocking[i] == 1), "begin");
    sleep_ms(20); // until they are really blocked
}
static void wake_all(void) {
    for (long i = 0; i < CALLS; i++)
        CHECK_EQ(long_rounds[i] + 1, long_blocking[i], "long %s woken when nobody did", names[i]);
    CHECK_EQ(write(pipe_ends[1], "x", 1), 1, "write to wake epoll_wait");
    CHECK_EQ(pthread_kill(long_threads[1], SIGUSR1), 0, "signal to wake sigwaitinfo");
    CHECK_EQ(send(long_pair[1], "x", 1, 0), 1, "send to wake recv");
    wakes++;
    for (long i = 0; i < CALLS; i++)
        CHECK(WITHIN_PATIENCE(long_rounds[i] == wakes && long_blocking[i] == wakes + 1),
              "long %s, expected %d wakes, got %d", names[i], (int)wakes, (int)long_rounds[i]);
    sleep_ms(20); // until they are really blocked again
}
static void check(void) {
    uint64_t before[CALLS];
    for (long i = 0; i < CALLS; i++) before[i] = short_rounds[i];
    wake_all();
    for (long i = 0; i < CALLS; i++)
        CHECK(WITHIN_PATIENCE(short_rounds[i] > before[i]), "short %s, expected to end, got stuck", names[i]);
}
static void step(void) {
    steps++;
    wake_all();
}
static void digest(void) { digest_number(steps); }
PROGRAM(setup, check, step, digest)
