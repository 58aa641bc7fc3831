// Proves: the small attributes a process can give itself survive: thread names, nice value, scheduling policy,
// processor affinity, parent-death signal, timer slack, dumpable, subreaper, THP switch, command line, environment.
// How: each is set to something unusual and read back.
#include "workers.h"
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>

extern char **environ;
static struct worker worker;
static uint64_t steps;
static cpu_set_t affinity;
static int start_nice;
static char command_line[4096];
static ssize_t command_length;
enum { SET = 1, LOOK };

static ssize_t slurp(const char *path, char *buffer, size_t size) {
    int fd = open(path, O_RDONLY);
    ssize_t n = fd < 0 ? -1 : read(fd, buffer, size);
    close(fd);
    return n;
}
static void name_of(int index, char name[16]) { snprintf(name, 16, "thread %d.%d", index, (int)steps); }
static int nice_of(int index) { return start_nice + index + (steps < 5 ? steps : 5); }

static void set_thread(int index) {
    char name[16];
    name_of(index, name);
    prctl(PR_SET_NAME, name);
    NEED(!setpriority(PRIO_PROCESS, 0, nice_of(index)), "setpriority"); // of this thread only, on Linux
    prctl(PR_SET_TIMERSLACK, 60000UL + index * 100 + steps);
    struct sched_param none = {0};
    NEED(!sched_setscheduler(0, index ? SCHED_BATCH : SCHED_OTHER, &none), "sched_setscheduler");
}
static void look_thread(int index) {
    char name[16], now[16] = "";
    name_of(index, name);
    prctl(PR_GET_NAME, now);
    CHECK(!strcmp(now, name), "name of thread %d, expected %s, got %s", index, name, now);
    CHECK_EQ(getpriority(PRIO_PROCESS, 0), nice_of(index), "nice value of thread %d", index);
    CHECK_EQ(prctl(PR_GET_TIMERSLACK), 60000 + index * 100 + steps, "timer slack of thread %d", index);
    CHECK_EQ(sched_getscheduler(0), index ? SCHED_BATCH : SCHED_OTHER, "policy of thread %d", index);
    cpu_set_t mine;
    sched_getaffinity(0, sizeof mine, &mine);
    CHECK(CPU_EQUAL(&mine, &affinity), "affinity of thread %d, expected %d processors, got %d", index,
          CPU_COUNT(&affinity), CPU_COUNT(&mine));
}
static void answer(struct worker *self, int question) { (question == SET ? set_thread : look_thread)(self->index); }
static void set_all(void) {
    prctl(PR_SET_PDEATHSIG, steps % 2 ? SIGUSR1 : 0);
    prctl(PR_SET_CHILD_SUBREAPER, steps % 2 ? 0 : 1);
    prctl(PR_SET_THP_DISABLE, steps % 2, 0, 0, 0);
    setenv("PROGRAM_STEPS", steps % 2 ? "odd" : "even", 1);
    set_thread(0);
    worker_ask(&worker, SET);
}
static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    start_nice = getpriority(PRIO_PROCESS, 0);
    signal(SIGUSR1, SIG_IGN); // the parent may die: that is not what is tested
    NEED((command_length = slurp("/proc/self/cmdline", command_line, sizeof command_line)) > 0, "cmdline");
    sched_getaffinity(0, sizeof affinity, &affinity); // the first allowed processor only
    for (int i = 0, found = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &affinity) && found++) CPU_CLR(i, &affinity);
    NEED(!sched_setaffinity(0, sizeof affinity, &affinity), "affinity");
    worker_start(&worker, 1, answer);
    set_all();
}
static void check(void) {
    int value = -1;
    prctl(PR_GET_PDEATHSIG, &value);
    CHECK_EQ(value, steps % 2 ? SIGUSR1 : 0, "parent-death signal");
    prctl(PR_GET_CHILD_SUBREAPER, &value);
    CHECK_EQ(value, !(steps % 2), "child subreaper");
    CHECK_EQ(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0), steps % 2, "THP switch");
    CHECK(!strcmp(getenv("PROGRAM_STEPS"), steps % 2 ? "odd" : "even"), "environment variable, got %s",
          getenv("PROGRAM_STEPS"));
    char now[4096], link[4096] = "";
    ssize_t length = slurp("/proc/self/cmdline", now, sizeof now);
    CHECK(length == command_length && !memcmp(now, command_line, length), "command line, expected %s, got %s",
          command_line, now);
    CHECK(readlink("/proc/self/exe", link, sizeof link - 1) > 0, "/proc/self/exe, expected a link, got errno %d",
          errno);
    look_thread(0);
    worker_ask(&worker, LOOK);
}
static void step(void) {
    steps++;
    set_all();
}
static void digest(void) { digest_number(steps); }
PROGRAM(setup, check, step, digest)
