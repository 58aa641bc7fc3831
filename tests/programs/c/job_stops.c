// Proves: processes stopped by job control stay stopped: SIGCONT continues them where they were, a parent that was told
// is not told again, one that was not yet is told the right signal, and no SIGCHLD comes of its own.
// How: A was stopped by SIGSTOP and waited for, with a signal waiting; B, in a group of its own, by SIGTSTP and not
// waited for; C has three threads that count, under two filters, one of which refuses it to send signals. A check looks at all of them, continues each, asks it, and stops it again.
#include "children.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

enum { SIGNALS = 1, COUNTING, REFUSED };
enum { NO_KILL = 201, NO_PGID };
static struct child a, b, c;
static volatile sig_atomic_t signals, told;
static _Atomic uint64_t counts[2];
static uint64_t steps, sent;

static void count(int signal) { (void)signal, signals++; }
static void count_child(int signal) { (void)signal, told++; }
static void *counting(void *at) {
    for (;;) ++*(_Atomic uint64_t *)at, sleep_ms(1);
    return NULL;
}
// `call` answers `error` from now on, in every thread.
static void refuse(int call, int error) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {COUNT(code), code};
    NEED(!syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program), "a filter for all");
}
static bool is_refused(void) {
    bool kill_is = syscall(SYS_kill, getpid(), 0) == -1 && errno == NO_KILL;
    return kill_is && syscall(SYS_getpgid, 0) == -1 && errno == NO_PGID;
}
static int64_t answer(struct question q, void *argument) {
    (void)argument;
    if (q.what == SIGNALS) return signals;
    if (q.what == REFUSED) return is_refused();
    uint64_t before[2] = {counts[0], counts[1]};
    return WITHIN_PATIENCE(counts[0] > before[0] && counts[1] > before[1]);
}
static void begin(void *unused_) {
    (void)unused_;
    setpgid(0, 0); // SIGTSTP stops nobody whose group has no one in the session to continue it
}
static void begin_threads(void *unused_) {
    (void)unused_;
    pthread_t thread;
    for (int i = 0; i < 2; i++) NEED(!pthread_create(&thread, NULL, counting, &counts[i]), "thread");
    NEED(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges");
    refuse(SYS_kill, NO_KILL), refuse(SYS_getpgid, NO_PGID);
}
// What waitid says of a child, leaving it to be said again: the status, or 0 for nothing.
static int said(pid_t pid, int of) {
    siginfo_t info = {0};
    CHECK_EQ(waitid(P_PID, pid, &info, of | WNOHANG | WNOWAIT), 0, "waitid");
    return info.si_pid ? info.si_status : 0;
}
static void await_said(pid_t pid, int of, int signal) {
    CHECK(WITHIN_PATIENCE(said(pid, of) == signal), "child told of, expected %d, got %d", signal, said(pid, of));
}
static void take(pid_t pid, int of) {
    siginfo_t info = {0};
    CHECK_EQ(waitid(P_PID, pid, &info, of | WNOHANG), 0, "waitid");
    CHECK_EQ(info.si_pid, pid, "child that was told of");
}
static char state(pid_t pid) {
    char path[40], text[200] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (file) fread(text, 1, sizeof text - 1, file), fclose(file);
    char *end = strrchr(text, ')');
    return end ? end[2] : '?';
}
static void stop(struct child *child, int signal) {
    CHECK_EQ(kill(child->pid, signal), 0, "stopping");
    await_said(child->pid, WSTOPPED, signal);
}
static void go_on(struct child *child) {
    CHECK_EQ(kill(child->pid, SIGCONT), 0, "continuing");
    await_said(child->pid, WCONTINUED, SIGCONT);
    take(child->pid, WCONTINUED);
}
static void send_waiting(void) {
    CHECK_EQ(kill(a.pid, SIGUSR1), 0, "signal to a stopped child");
    sent++;
}
static void arrange(void) {
    stop(&a, SIGSTOP), take(a.pid, WSTOPPED), send_waiting();
    stop(&b, SIGTSTP);
    stop(&c, SIGSTOP), take(c.pid, WSTOPPED);
    sleep_ms(50); // the kernel shows a stop before it tells of it
    told = 0;
}
static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    a = child_start(answer, NULL, NULL);
    b = child_start(answer, begin, NULL);
    c = child_start(answer, begin_threads, NULL);
    action.sa_handler = count_child;
    sigaction(SIGCHLD, &action, NULL);
    child_ask(&b, SIGNALS, 0); // answered: it has a group of its own
    child_ask(&c, COUNTING, 0);
    arrange();
}
static void check(void) {
    struct child *all[] = {&a, &b, &c};
    for (int i = 0; i < 3; i++) CHECK_EQ(state(all[i]->pid), 'T', "state of child %d", i);
    CHECK_EQ(told, 0, "SIGCHLDs that nothing caused");
    CHECK_EQ(said(a.pid, WSTOPPED), 0, "what is said of A");
    CHECK_EQ(said(b.pid, WSTOPPED), SIGTSTP, "what is said of B");
    CHECK_EQ(said(c.pid, WSTOPPED), 0, "what is said of C");
    take(b.pid, WSTOPPED);
    struct question q = {SIGNALS, 0};
    CHECK_EQ(write(a.ask, &q, sizeof q), sizeof q, "asking A while it stands");
    CHECK(!readable_within(a.hear, 20), "A, expected to stand, got an answer");
    go_on(&a), go_on(&b), go_on(&c);
    int64_t reply = -1;
    CHECK_EQ(read_fully(a.hear, &reply, sizeof reply), sizeof reply, "answer of A");
    CHECK_EQ(reply, sent, "signals A took");
    CHECK_EQ(child_ask(&b, SIGNALS, 0), 0, "signals B took");
    CHECK_EQ(child_ask(&c, COUNTING, 0), 1, "threads of C count");
    CHECK_EQ(child_ask(&c, REFUSED, 0), 1, "filters of C");
    arrange();
}
static void step(void) {
    steps++;
    send_waiting(); // of the same kind: it waits once
    sent--;
}
static void digest(void) { digest_number(steps); }
PROGRAM(setup, check, step, digest)
