// Proves: per-thread signal masks and pending signals survive: process-directed and thread-directed, standard ones
// and realtime ones with their values, codes, senders, number and order.
// How: every thread blocks its own set, signals are sent and left pending; a check takes them one by one with
// sigtimedwait(), compares, and sends them again.
#include "workers.h"

static struct worker workers[3];
static uint64_t generation;
enum { BLOCK = 1, LOOK };

static int value(int sender, int n) { return mix(generation * 1000 + sender * 10 + n) & 0x7fffffff; }
static int own_signal(int index) { return SIGRTMIN + 10 + index; }

static sigset_t blocked_by(int index) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1), sigaddset(&set, SIGUSR2), sigaddset(&set, SIGRTMIN + 1), sigaddset(&set, SIGRTMIN + 2);
    sigaddset(&set, own_signal(index)), sigaddset(&set, SIGTERM);
    if (index % 2) sigaddset(&set, SIGHUP);
    return set;
}
static void expect_mask(int index) {
    sigset_t now, expected = blocked_by(index);
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    for (int signal = 1; signal <= SIGRTMAX; signal++)
        CHECK_EQ(sigismember(&now, signal), sigismember(&expected, signal), "mask of thread %d, signal %d", index,
                 signal);
}
static void expect(int index, int signal, int code, int with) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    siginfo_t info;
    struct timespec none = {0, 0};
    int got = syscall(SYS_rt_sigtimedwait, &set, &info, &none, 8); // glibc's own would turn SI_TKILL into SI_USER
    CHECK(got == signal, "pending signal %d in thread %d, expected it, got %d errno %d", signal, index, got, errno);
    if (got != signal) return;
    CHECK_EQ(info.si_code, code, "code of signal %d in thread %d", signal, index);
    CHECK_EQ(info.si_pid, getpid(), "sender of signal %d in thread %d", signal, index);
    CHECK_EQ(info.si_uid, getuid(), "uid of signal %d in thread %d", signal, index);
    if (code == SI_QUEUE) CHECK_EQ(info.si_value.sival_int, with, "value of signal %d in thread %d", signal, index);
}
static void expect_none(int index) {
    sigset_t pending;
    sigpending(&pending);
    for (int signal = 1; signal <= SIGRTMAX; signal++)
        CHECK_EQ(sigismember(&pending, signal), 0, "left pending in thread %d, signal %d", index, signal);
}
static void answer(struct worker *self, int question) {
    sigset_t set = blocked_by(self->index);
    if (question == BLOCK) {
        pthread_sigmask(SIG_SETMASK, &set, NULL);
        return;
    }
    expect_mask(self->index);
    for (int n = 0; n < 3; n++) expect(self->index, own_signal(self->index), SI_QUEUE, value(self->index, n));
    expect(self->index, SIGUSR2, SI_TKILL, 0);
    expect_none(self->index);
}
static void send_all(void) {
    kill(getpid(), SIGUSR1); // to the process: any thread may take them
    kill(getpid(), SIGTERM);
    for (int n = 0; n < 4; n++) sigqueue(getpid(), SIGRTMIN + 1, (union sigval){.sival_int = value(50, n)});
    sigqueue(getpid(), SIGRTMIN + 2, (union sigval){.sival_int = value(51, 0)});
    for (size_t i = 0; i < COUNT(workers); i++) { // to one thread: only it may
        for (int n = 0; n < 3; n++)
            pthread_sigqueue(workers[i].thread, own_signal(i), (union sigval){.sival_int = value(i, n)});
        pthread_kill(workers[i].thread, SIGUSR2);
    }
    pthread_sigqueue(pthread_self(), own_signal(9), (union sigval){.sival_int = value(9, 0)});
}
static void take_all(void) {
    expect_mask(9);
    expect(9, SIGUSR1, SI_USER, 0);
    expect(9, SIGTERM, SI_USER, 0);
    for (int n = 0; n < 4; n++) expect(9, SIGRTMIN + 1, SI_QUEUE, value(50, n));
    expect(9, SIGRTMIN + 2, SI_QUEUE, value(51, 0));
    expect(9, own_signal(9), SI_QUEUE, value(9, 0));
    expect_none(9);
    for (size_t i = 0; i < COUNT(workers); i++) worker_ask(&workers[i], LOOK);
}
static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    sigset_t set = blocked_by(9);
    pthread_sigmask(SIG_SETMASK, &set, NULL);
    for (size_t i = 0; i < COUNT(workers); i++) worker_start(&workers[i], i, answer), worker_ask(&workers[i], BLOCK);
    send_all();
}
static void check(void) {
    take_all();
    send_all();
}
static void step(void) {
    take_all();
    generation++;
    send_all();
}
static void digest(void) { digest_number(generation); }
PROGRAM(setup, check, step, digest)
