// Proves: signal descriptors keep their masks, and signals pending behind them can be read with all their details.
// How: signals are blocked, sent with values and left; a check reads them through the descriptor, compares, sends
// again.
#include "program.h"
#include <sys/signalfd.h>

static int narrow, wide;
static uint64_t generation;

static sigset_t set_of(int first, int second) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, first), sigaddset(&set, second);
    return set;
}
static int value(int n) { return mix(generation * 10 + n) & 0x7fffffff; }
static void send_all(void) {
    for (int n = 0; n < 3; n++) sigqueue(getpid(), SIGRTMIN + 1, (union sigval){.sival_int = value(n)});
    kill(getpid(), SIGUSR1);
}
static void take(int fd, int signal, int code, int with) {
    struct signalfd_siginfo info = {0};
    ssize_t n = read(fd, &info, sizeof info);
    CHECK(n == sizeof info, "read, expected signal %d, got %zd errno %d", signal, n, errno);
    CHECK_EQ(info.ssi_signo, signal, "signal");
    CHECK_EQ(info.ssi_code, code, "code of %d", signal);
    CHECK_EQ(info.ssi_pid, getpid(), "sender of %d", signal);
    if (code == SI_QUEUE) CHECK_EQ(info.ssi_int, with, "value of %d", signal);
}
static void take_all(void) {
    struct signalfd_siginfo info;
    CHECK(readable_within(wide, 0), "wide descriptor, expected readable");
    take(wide, SIGUSR1, SI_USER, 0);
    CHECK(readable_within(narrow, 0), "narrow descriptor, expected readable");
    for (int n = 0; n < 3; n++) take(n % 2 ? wide : narrow, SIGRTMIN + 1, SI_QUEUE, value(n));
    CHECK(read(wide, &info, sizeof info) == -1 && errno == EAGAIN, "nothing left, expected EAGAIN, got %d", errno);
}
static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    sigset_t both = set_of(SIGUSR1, SIGRTMIN + 1), one = set_of(SIGRTMIN + 1, SIGUSR2), all = both;
    sigaddset(&all, SIGUSR2);
    sigprocmask(SIG_BLOCK, &all, NULL);
    NEED((wide = signalfd(-1, &both, SFD_NONBLOCK | SFD_CLOEXEC)) >= 0, "signalfd");
    NEED((narrow = signalfd(-1, &one, SFD_NONBLOCK)) >= 0, "signalfd");
    send_all();
}
static void check(void) {
    take_all();
    raise(SIGUSR2); // only in the narrow one's mask
    struct signalfd_siginfo info;
    CHECK(read(wide, &info, sizeof info) == -1 && errno == EAGAIN,
          "SIGUSR2 through the wide one, expected EAGAIN, got %d", errno);
    take(narrow, SIGUSR2, SI_TKILL, 0);
    CHECK_EQ(fcntl(wide, F_GETFD), FD_CLOEXEC, "close-on-exec");
    send_all();
}
static void step(void) {
    take_all();
    generation++;
    send_all();
}
static void digest(void) { digest_number(generation); }
PROGRAM(setup, check, step, digest)
