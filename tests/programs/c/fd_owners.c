// Proves: who is told of a descriptor's input survives: F_SETOWN of a process and of a group, F_SETSIG, O_ASYNC.
// How: a check asks for each setting, then writes to an asynchronous pipe and waits for the signal.
#include "children.h"

enum { OWN, CHILD, GROUP, PIPES };
static int pipes[PIPES][2];
static struct child child;
static uint64_t steps;
static volatile sig_atomic_t told, told_of;

static int64_t answer(struct question q, void *unused_) { return (void)unused_, q.with; }
static void on_signal(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    told++, told_of = info->si_fd;
}
static int signal_number(void) { return SIGRTMIN + 3 + steps % 2; }
static void own(int i, int type, pid_t pid) {
    struct f_owner_ex owner = {type, pid};
    NEED(!fcntl(pipes[i][0], F_SETOWN_EX, &owner), "F_SETOWN_EX");
}
static void expect(int i, int type, pid_t pid) {
    struct f_owner_ex owner = {-1, -1};
    CHECK_EQ(fcntl(pipes[i][0], F_GETOWN_EX, &owner), 0, "F_GETOWN_EX %d", i);
    CHECK_EQ(owner.type, type, "kind of owner %d", i);
    CHECK_EQ(owner.pid, pid, "owner %d", i);
}
static void apply(void) {
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(signal_number(), &action, NULL);
    NEED(!fcntl(pipes[OWN][0], F_SETSIG, signal_number()), "F_SETSIG");
}
static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    for (int i = 0; i < PIPES; i++) NEED(!pipe2(pipes[i], O_NONBLOCK), "pipe2");
    child = child_start(answer, NULL, NULL);
    own(OWN, F_OWNER_PID, getpid()), own(CHILD, F_OWNER_PID, child.pid), own(GROUP, F_OWNER_PGRP, getpgrp());
    apply();
    NEED(!fcntl(pipes[OWN][0], F_SETFL, O_NONBLOCK | O_ASYNC), "O_ASYNC");
}
static void check(void) {
    expect(OWN, F_OWNER_PID, getpid()), expect(CHILD, F_OWNER_PID, child.pid), expect(GROUP, F_OWNER_PGRP, getpgrp());
    CHECK_EQ(fcntl(pipes[OWN][0], F_GETSIG), signal_number(), "signal");
    CHECK_EQ(fcntl(pipes[OWN][0], F_GETFL) & O_ASYNC, O_ASYNC, "O_ASYNC");
    int before = told;
    char byte;
    CHECK_EQ(write(pipes[OWN][1], "x", 1), 1, "write");
    CHECK(WITHIN_PATIENCE(told == before + 1), "signals, expected %d, got %d", before + 1, (int)told);
    CHECK_EQ(told_of, pipes[OWN][0], "descriptor of the signal");
    CHECK_EQ(read(pipes[OWN][0], &byte, 1), 1, "read");
}
static void step(void) {
    steps++;
    apply();
}
static void digest(void) { digest_number(steps); }
PROGRAM(setup, check, step, digest)
