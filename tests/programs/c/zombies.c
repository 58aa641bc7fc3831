// Proves: children that have ended but were not waited for are still there, with their pids and statuses.
// How: children exit with codes or die of signals; a check looks with WNOWAIT, which leaves them; a
// step reaps one with waitpid and makes a new one. One zombie belongs to a child, not to the main process.
#include "children.h"

static struct {
    pid_t pid;
    int code, status;
} zombies[5];
static struct child middle;
static pid_t middle_zombie; // in the middle process
static uint64_t steps;
enum { LOOK = 1 };

static void make(int i) {
    int status = i < 3 ? 10 + i + steps % 50 : i == 3 ? SIGKILL : SIGTERM;
    pid_t pid = fork();
    NEED(pid >= 0, "fork");
    if (pid == 0) {
        if (i < 3) _exit(status);
        signal(SIGTERM, SIG_DFL);
        raise(status);
        _exit(99);
    }
    zombies[i].pid = pid, zombies[i].status = status, zombies[i].code = i < 3 ? CLD_EXITED : CLD_KILLED;
    siginfo_t info;
    NEED(!waitid(P_PID, pid, &info, WEXITED | WNOWAIT), "waitid");
}
static int64_t answer(struct question q, void *unused_) {
    (void)unused_, (void)q;
    siginfo_t info = {0};
    int got = waitid(P_PID, middle_zombie, &info, WEXITED | WNOWAIT | WNOHANG);
    return got == 0 && info.si_pid == middle_zombie ? info.si_status : -1;
}
static void begin(void *unused_) {
    (void)unused_;
    make(0);
    middle_zombie = zombies[0].pid;
}
static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    middle = child_start(answer, begin, NULL);
    CHECK_EQ(child_ask(&middle, LOOK, 0), 10, "zombie of the middle process");
    for (int i = 0; i < 5; i++) make(i);
}
static void check(void) {
    for (int i = 0; i < 5; i++) {
        siginfo_t info = {0};
        CHECK_EQ(waitid(P_PID, zombies[i].pid, &info, WEXITED | WNOWAIT | WNOHANG), 0, "waitid of zombie %d", i);
        CHECK_EQ(info.si_pid, zombies[i].pid, "pid of zombie %d", i);
        CHECK_EQ(info.si_code, zombies[i].code, "code of zombie %d", i);
        CHECK_EQ(info.si_status, zombies[i].status, "status of zombie %d", i);
        CHECK_EQ(kill(zombies[i].pid, 0), 0, "kill 0 to zombie %d", i);
    }
    CHECK_EQ(child_ask(&middle, LOOK, 0), 10, "zombie of the middle process");
    siginfo_t info = {0};
    CHECK_EQ(waitid(P_PID, middle.pid, &info, WEXITED | WNOHANG | WNOWAIT), 0, "waitid of a living child");
    CHECK_EQ(info.si_pid, 0, "a living child does not look dead");
}
static void step(void) {
    int i = steps++ % 5, status = child_wait(zombies[i].pid);
    if (zombies[i].code == CLD_EXITED)
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == zombies[i].status, "reaped %d, expected %d, got %x", i,
              zombies[i].status, status);
    else
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == zombies[i].status, "reaped %d, expected signal %d, got %x", i,
              zombies[i].status, status);
    CHECK(waitpid(zombies[i].pid, &status, WNOHANG) == -1 && errno == ECHILD, "second wait, expected ECHILD, got %d",
          errno);
    make(i);
}
static void digest(void) {
    for (int i = 0; i < 5; i++) digest_number(zombies[i].status), digest_number(zombies[i].code);
}
PROGRAM(setup, check, step, digest)
