// Proves: each thread's restartable-sequence area stays registered with the kernel, and the kernel keeps it up to date.
// How: glibc registers it; registering the same area again must give EBUSY, and after moving a thread to each
// allowed processor the area must name that processor.
#include "workers.h"
#include <sched.h>
#if __has_include(<sys/rseq.h>)
#include <sys/rseq.h>

static struct worker worker;
static uint64_t steps;

static struct rseq *area(void) { return (struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset); }

static void look(const char *who) {
    unsigned size = __rseq_size < 32 ? 32 : __rseq_size; // what glibc passes: at least the original 32 bytes
    int again = syscall(SYS_rseq, area(), size, 0, RSEQ_SIG);
    int error = errno;
    CHECK(again == -1 && error == EBUSY, "%s registering twice, expected EBUSY, got %d errno %d", who, again, error);
    cpu_set_t allowed, one;
    NEED(!sched_getaffinity(0, sizeof allowed, &allowed), "sched_getaffinity");
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &allowed)) continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        CHECK_EQ(sched_setaffinity(0, sizeof one, &one), 0, "%s sched_setaffinity to %d", who, cpu);
        volatile struct rseq *now = area();
        CHECK_EQ(now->cpu_id, cpu, "%s cpu_id", who);
        CHECK_EQ(now->cpu_id_start, cpu, "%s cpu_id_start", who);
        CHECK_EQ(now->rseq_cs, 0, "%s rseq_cs", who);
        CHECK_EQ(sched_getcpu(), cpu, "%s sched_getcpu", who);
    }
    sched_setaffinity(0, sizeof allowed, &allowed);
}
static void answer(struct worker *self, int question) {
    (void)self, (void)question;
    look("second thread's");
}
static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    if (__rseq_size == 0) skip("glibc has not registered rseq here");
    worker_start(&worker, 1, answer);
}
static void check(void) {
    look("main thread's");
    worker_ask(&worker, 1);
}
static void step(void) { steps++; }
#else
static uint64_t steps;
static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    skip("no sys/rseq.h");
}
static void check(void) {}
static void step(void) {}
#endif
static void digest(void) { digest_number(steps); }
PROGRAM(setup, check, step, digest)
