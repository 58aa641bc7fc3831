// Proves: process groups and sessions survive: membership, leaders, signals to a group, waiting for a group.
// How: child A leads a group with B in it; C leads a session, and its own child D shares it. Every one reports its
// ids; a signal to the group must reach A and B and nobody else; a member that ends is found by waitpid(-group).
#include "children.h"

enum { IDS_GROUP = 1, IDS_SESSION, SIGNALS, EXIT, GRANDCHILD, GRANDCHILD_PID };
static struct child a, b, c;
static pid_t a_group, own_group, own_session;
static volatile sig_atomic_t signals;
static struct child grandchild; // only in C
static uint64_t steps, sent;

static void count(int signal) {
    (void)signal;
    signals++;
}
static int64_t answer(struct question q, void *argument) {
    (void)argument;
    switch (q.what) {
    case IDS_GROUP: return getpgrp();
    case IDS_SESSION: return getsid(0);
    case SIGNALS: return signals;
    case EXIT: _exit(q.with);
    case GRANDCHILD: return child_ask(&grandchild, q.with, 0);
    case GRANDCHILD_PID: return grandchild.pid;
    }
    return -1;
}
static void begin(void *group) { // 0: lead one of its own; otherwise join
    signals = 0;
    setpgid(0, *(pid_t *)group);
}
static void begin_session(void *unused_) {
    (void)unused_;
    signals = 0;
    setsid();
    grandchild = child_start(answer, NULL, NULL);
}
static struct child member(pid_t group) {
    struct child child = child_start(answer, begin, &group);
    child_ask(&child, IDS_GROUP, 0); // answered: it has joined
    return child;
}
static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    own_group = getpgrp(), own_session = getsid(0);
    a = member(0);
    a_group = a.pid;
    b = member(a_group);
    c = child_start(answer, begin_session, NULL);
    child_ask(&c, GRANDCHILD, IDS_GROUP);
}
static void check(void) {
    // The ids of whoever is outside may differ after a restore, and then read 0; own ones may not.
    CHECK(getpgrp() == own_group || own_group != getpid(), "own group, expected %d, got %d", own_group, getpgrp());
    CHECK(getsid(0) == own_session || own_session != getpid(), "own session, expected %d, got %d", own_session,
          getsid(0));
    CHECK_EQ(child_ask(&a, IDS_GROUP, 0), a_group, "group of A");
    CHECK_EQ(child_ask(&b, IDS_GROUP, 0), a_group, "group of B");
    CHECK_EQ(getpgid(b.pid), a_group, "group of B seen from outside");
    CHECK_EQ(child_ask(&a, IDS_SESSION, 0), getsid(0), "session of A");
    CHECK_EQ(child_ask(&c, IDS_SESSION, 0), c.pid, "session of C");
    CHECK_EQ(child_ask(&c, IDS_GROUP, 0), c.pid, "group of C");
    CHECK_EQ(child_ask(&c, GRANDCHILD, IDS_SESSION), c.pid, "session of D");
    CHECK_EQ(child_ask(&c, GRANDCHILD, IDS_GROUP), c.pid, "group of D");
    CHECK_EQ(getsid(child_ask(&c, GRANDCHILD_PID, 0)), c.pid, "session of D seen from outside");
    int64_t b_before = child_ask(&b, SIGNALS, 0), c_before = child_ask(&c, SIGNALS, 0);
    CHECK_EQ(kill(-a_group, SIGUSR1), 0, "kill to a group");
    sent++;
    CHECK(WITHIN_PATIENCE(child_ask(&a, SIGNALS, 0) == (int64_t)sent), "signals to A, expected %" PRIu64, sent);
    CHECK(WITHIN_PATIENCE(child_ask(&b, SIGNALS, 0) == b_before + 1), "signals to B, expected one more than %" PRId64,
          b_before);
    CHECK_EQ(child_ask(&c, SIGNALS, 0), c_before, "signals to C");
    CHECK_EQ(signals, 0, "signals to the parent");
    int64_t d_before = child_ask(&c, GRANDCHILD, SIGNALS);
    kill(-c.pid, SIGUSR1);
    CHECK(WITHIN_PATIENCE(child_ask(&c, GRANDCHILD, SIGNALS) == d_before + 1),
          "signals to D, expected one more than %" PRId64, d_before);
}
static void step(void) { // B ends, is found by its group, and another takes its place
    steps++;
    struct question q = {EXIT, 40 + steps % 10};
    CHECK_EQ(write(b.ask, &q, sizeof q), sizeof q, "asking B to end");
    int status = child_wait(-a_group);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == q.with, "status of B, expected %d, got %x", (int)q.with, status);
    child_forget(&b);
    b = member(a_group);
}
static void digest(void) { digest_number(steps); }
PROGRAM(setup, check, step, digest)
