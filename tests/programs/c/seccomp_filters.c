// Proves: seccomp filters survive in every thread, in their order, and more can be put on top of them together.
// How: the first filter gives one call an error of its own, in all threads at once. Each step adds a filter for
// all threads that gives another call an error; the newest of several answers wins only where older ones let through.
#include "workers.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

enum { FIRST_ERROR = 201 };
static const int calls[] = {SYS_getppid, SYS_getsid, SYS_getpgid, SYS_sched_yield};
static struct worker worker;
static uint64_t steps;
enum { LOOK = 1 };

// `call` answers `error` from now on, in every thread; anything else is left to the filters below.
static void answer_with(int call, int error) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {COUNT(code), code};
    CHECK_EQ(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program), 0, "a filter for all");
}
static void look(int index) {
    for (size_t i = 0; i < COUNT(calls); i++) {
        errno = 0;
        long result = syscall(calls[i], 0);
        bool answered = i <= steps;
        CHECK_EQ(result < 0 ? errno : 0, answered ? FIRST_ERROR + (int)i : 0, "call %zu of thread %d", i, index);
    }
    CHECK_EQ(prctl(PR_GET_SECCOMP), SECCOMP_MODE_FILTER, "mode of thread %d", index);
}
static void answer(struct worker *self, int question) {
    (void)question;
    look(self->index);
}
static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    NEED(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges");
    worker_start(&worker, 1, answer);
    answer_with(calls[0], FIRST_ERROR);
}
static void check(void) {
    look(0);
    worker_ask(&worker, LOOK);
}
static void step(void) {
    steps++;
    if (steps < COUNT(calls)) answer_with(calls[steps], FIRST_ERROR + (int)steps);
    look(0);
}
static void digest(void) { digest_number(steps); }
PROGRAM(setup, check, step, digest)
