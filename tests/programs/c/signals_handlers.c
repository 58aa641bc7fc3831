// Proves: signal dispositions survive whole (handler, flags, mask, restorer), and handlers run and return properly.
// How: signals get handlers with different flags; a check compares sigaction() with what was set, raises each
// signal, and looks at what the handler saw (siginfo, value, mask in force) and at what was left behind.
#include "program.h"

struct seen {
    int count, signal, code, value;
    bool nested_mask;
    pid_t sender;
};
static volatile struct seen seen[65];
static uint64_t generation;

static void record(int signal, siginfo_t *info, void *context) {
    (void)context;
    volatile struct seen *s = &seen[signal];
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    s->count++, s->signal = signal, s->nested_mask = sigismember(&mask, SIGTERM);
    if (info) s->code = info->si_code, s->value = info->si_value.sival_int, s->sender = info->si_pid;
}
static void record_plain(int signal) { record(signal, NULL, NULL); }

static const struct {
    int signal, flags;
    bool plain;
} table[] = {
    {SIGUSR1, SA_SIGINFO, false},
    {SIGUSR2, SA_SIGINFO | SA_RESTART, false},
    {SIGHUP, 0, true},
    {SIGWINCH, SA_SIGINFO | SA_NODEFER, false},
    {SIGURG, SA_RESETHAND, true},
    {SIGCHLD, SA_NOCLDSTOP | SA_NOCLDWAIT, true},
};
static bool masks_term(int i) { return (i + generation) % 2; }
static int realtime(void) { return SIGRTMIN + 5; }

static void install(int i) {
    struct sigaction action = {.sa_flags = table[i].flags};
    if (table[i].plain)
        action.sa_handler = record_plain;
    else
        action.sa_sigaction = record;
    sigemptyset(&action.sa_mask);
    if (masks_term(i)) sigaddset(&action.sa_mask, SIGTERM);
    NEED(!sigaction(table[i].signal, &action, NULL), "sigaction");
}
static void install_all(void) {
    for (size_t i = 0; i < COUNT(table); i++) install(i);
    struct sigaction action = {.sa_sigaction = record, .sa_flags = SA_SIGINFO};
    sigfillset(&action.sa_mask);
    NEED(!sigaction(realtime(), &action, NULL), "sigaction");
    signal(SIGINT, SIG_IGN);
    signal(SIGQUIT, SIG_DFL);
}
static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    install_all();
}

static void check(void) {
    struct sigaction now;
    for (size_t i = 0; i < COUNT(table); i++) {
        int signal = table[i].signal;
        sigaction(signal, NULL, &now);
        CHECK_EQ(now.sa_flags & ~0x04000000, table[i].flags, "flags of signal %d", signal);
        CHECK(table[i].plain ? now.sa_handler == record_plain : now.sa_sigaction == record, "handler of signal %d",
              signal);
        CHECK_EQ(sigismember(&now.sa_mask, SIGTERM), masks_term(i), "mask of signal %d", signal);
        CHECK_EQ(sigismember(&now.sa_mask, SIGALRM), 0, "mask of signal %d, SIGALRM", signal);
        int before = seen[signal].count;
        raise(signal);
        CHECK_EQ(seen[signal].count, before + 1, "runs of the handler of %d", signal);
        CHECK_EQ(seen[signal].nested_mask, masks_term(i), "mask while handling %d", signal);
        if (table[i].flags & SA_SIGINFO) {
            CHECK_EQ(seen[signal].code, SI_TKILL, "si_code of %d", signal);
            CHECK_EQ(seen[signal].sender, getpid(), "si_pid of %d", signal);
        }
        sigaction(signal, NULL, &now);
        CHECK_EQ(now.sa_handler == SIG_DFL, table[i].flags & SA_RESETHAND ? 1 : 0, "reset of %d", signal);
        install(i);
    }
    int before = seen[realtime()].count;
    sigqueue(getpid(), realtime(), (union sigval){.sival_int = 4711});
    CHECK_EQ(seen[realtime()].count, before + 1, "runs of the realtime handler");
    CHECK_EQ(seen[realtime()].value, 4711, "value queued");
    CHECK_EQ(seen[realtime()].code, SI_QUEUE, "code queued");
    sigaction(SIGINT, NULL, &now);
    CHECK(now.sa_handler == SIG_IGN, "SIGINT, expected ignored, got %p", (void *)now.sa_handler);
    sigaction(SIGPIPE, NULL, &now);
    CHECK(now.sa_handler == SIG_IGN, "SIGPIPE, expected ignored, got %p", (void *)now.sa_handler);
    sigaction(SIGQUIT, NULL, &now);
    CHECK(now.sa_handler == SIG_DFL, "SIGQUIT, expected default, got %p", (void *)now.sa_handler);
    raise(SIGINT); // ends the program if the disposition was lost
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    for (int signal = 1; signal < 32; signal++)
        CHECK_EQ(sigismember(&mask, signal), 0, "mask afterwards, signal %d", signal);
}
static void step(void) {
    generation++;
    install_all();
}
static void digest(void) { digest_number(generation); }
PROGRAM(setup, check, step, digest)
