// Proves: pidfds survive: of a living child, of one that has ended and was not waited for, of one that is gone.
// How: a check polls each, signals the living one with signal 0, and compares the pids fdinfo gives.
#include "children.h"
#include <sys/pidfd.h>

enum { LIVING, ENDED, GONE, KINDS };
static int fds[KINDS], copy;
static pid_t pids[KINDS];
static struct child child;
static uint64_t steps;

static int64_t answer(struct question q, void *unused_) { return (void)unused_, q.with + 1; }
static pid_t pid_of(int fd) {
    char path[40], line[200];
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    FILE *file = fopen(path, "r");
    int pid = -2;
    while (file && fgets(line, sizeof line, file)) sscanf(line, "Pid: %d", &pid);
    if (file) fclose(file);
    return pid;
}
static void end_one(int i) {
    if ((pids[i] = fork()) == 0) _exit(7);
    NEED(pids[i] > 0 && (fds[i] = pidfd_open(pids[i], 0)) >= 0, "pidfd_open");
    NEED(readable_within(fds[i], PATIENCE_MS), "an end");
}
static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    child = child_start(answer, NULL, NULL);
    pids[LIVING] = child.pid;
    NEED((fds[LIVING] = pidfd_open(child.pid, PIDFD_NONBLOCK)) >= 0, "pidfd_open");
    NEED((copy = dup(fds[LIVING])) >= 0, "dup");
    end_one(ENDED), end_one(GONE);
    NEED(waitpid(pids[GONE], NULL, 0) == pids[GONE], "waitpid");
}
static void check(void) {
    CHECK(!readable_within(fds[LIVING], 0), "pidfd of the living, expected not readable");
    CHECK_EQ(pid_of(fds[LIVING]), pids[LIVING], "pid of the living");
    CHECK_EQ(pidfd_send_signal(fds[LIVING], 0, NULL, 0), 0, "signal to the living");
    CHECK_EQ(pidfd_send_signal(copy, 0, NULL, 0), 0, "signal through the copy");
    CHECK_EQ(fcntl(fds[LIVING], F_GETFL) & O_NONBLOCK, O_NONBLOCK, "nonblocking");
    CHECK_EQ(fcntl(fds[LIVING], F_GETFD), FD_CLOEXEC, "close-on-exec");
    CHECK_EQ(fcntl(copy, F_GETFD), 0, "close-on-exec of the copy");
    CHECK(readable_within(fds[ENDED], 0), "pidfd of the ended, expected readable");
    CHECK_EQ(pid_of(fds[ENDED]), pids[ENDED], "pid of the ended");
    siginfo_t info = {0};
    CHECK_EQ(waitid(P_PIDFD, fds[ENDED], &info, WEXITED | WNOWAIT), 0, "waitid");
    CHECK_EQ(info.si_status, 7, "status of the ended");
    CHECK_EQ(pid_of(fds[GONE]), -1, "pid of the gone");
    CHECK(pidfd_send_signal(fds[GONE], 0, NULL, 0) == -1 && errno == ESRCH, "signal to the gone, expected ESRCH, got %d",
          errno);
}
static void step(void) { // wait for the ended one and make another
    NEED(waitpid(pids[ENDED], NULL, 0) == pids[ENDED], "waitpid");
    close(fds[ENDED]);
    end_one(ENDED);
    steps++;
}
static void digest(void) { digest_number(steps); }
PROGRAM(setup, check, step, digest)
