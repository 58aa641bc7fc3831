// Proves: POSIX timers keep their ids (with a gap in the numbering), clocks, signals, values, intervals, and go on.
// How: far-off timers on several clocks are compared with the monotonic clock; a ticking one has its signal blocked,
// so that it is nearly always pending with an overrun; one is aimed at a thread; one must still go off when moved
// close.
#include "program.h"

enum { FAR_MONOTONIC, FAR_REALTIME, CPU, TICKING, TO_THREAD, TIMERS };
static const clockid_t clocks[] = {CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_PROCESS_CPUTIME_ID, CLOCK_MONOTONIC,
                                   CLOCK_BOOTTIME};
static timer_t timers[TIMERS];
static struct itimerspec set[TIMERS];
static int64_t before_set_ms, set_at_ms; // they were set in between
static uint64_t steps;
static pid_t thread_tid;
static _Atomic int thread_ticks, thread_value;

static int signal_of(int i) { return SIGRTMIN + 3 + i; }
static int value_of(int i) { return 9000 + i; }
static int64_t ms(struct timespec t) { return t.tv_sec * 1000 + t.tv_nsec / 1000000; }

static void *take_ticks(void *unused_) { // the only one who may take TO_THREAD's signal
    (void)unused_;
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, signal_of(TO_THREAD));
    atomic_store((_Atomic pid_t *)&thread_tid, syscall(SYS_gettid));
    for (;;) {
        siginfo_t info;
        if (sigwaitinfo(&signals, &info) != signal_of(TO_THREAD)) continue;
        thread_value = info.si_value.sival_int;
        atomic_fetch_add(&thread_ticks, 1);
    }
    return NULL;
}
static void arm(void) {
    before_set_ms = monotonic_ms();
    for (int i = 0; i < TIMERS; i++) {
        set[i] =
            (struct itimerspec){.it_value = {2000 + 10 * i + steps, 500000000}, .it_interval = {i + steps, 250000000}};
        if (i == TICKING || i == TO_THREAD)
            set[i] = (struct itimerspec){.it_value = {0, 1}, .it_interval = {0, 10000000 + i * 1000000}};
        NEED(!timer_settime(timers[i], 0, &set[i], NULL), "timer_settime");
    }
    set_at_ms = monotonic_ms();
}
static void check(void) {
    for (int i = 0; i < TIMERS; i++) {
        struct itimerspec now;
        int64_t least = monotonic_ms() - set_at_ms;
        CHECK_EQ(timer_gettime(timers[i], &now), 0, "timer_gettime of timer %d", i);
        int64_t most = monotonic_ms() - before_set_ms;
        CHECK_EQ(ms(now.it_interval), ms(set[i].it_interval), "interval of timer %d", i);
        CHECK(timer_getoverrun(timers[i]) >= 0, "timer_getoverrun of timer %d, expected no error, got errno %d", i,
              errno);
        if (i == TICKING || i == TO_THREAD) continue;
        // The other threads use processor time too. A restore sets clocks before timers, and may be slow.
        int64_t value = ms(set[i].it_value), left = ms(now.it_value);
        int64_t from = value - (i == CPU ? 3 * most : most) - 2000, to = value - (i == CPU ? 0 : least) + SLOW_MS;
        CHECK(left >= from && left <= to, "time left of timer %d, expected %" PRId64 " to %" PRId64 " ms, got %" PRId64,
              i, from, to, left);
    }
    for (int round = 0; round < 3; round++) {
        sigset_t one;
        sigemptyset(&one);
        sigaddset(&one, signal_of(TICKING));
        siginfo_t info = {0};
        int got = sigtimedwait(&one, &info, &(struct timespec){PATIENCE_MS / 1000, 0});
        CHECK_EQ(got, signal_of(TICKING), "signal of the ticking timer");
        CHECK_EQ(info.si_code, SI_TIMER, "code of its signal");
        CHECK_EQ(info.si_value.sival_int, value_of(TICKING), "value of its signal");
        CHECK(info.si_overrun >= 0, "overrun, expected none or more, got %d", info.si_overrun);
    }
    int before = thread_ticks;
    CHECK(WITHIN_PATIENCE(thread_ticks >= before + 3), "ticks to a thread, expected to go on, got stuck at %d", before);
    CHECK_EQ(thread_value, value_of(TO_THREAD), "value of the tick to a thread");
    timer_t another; // ids must be free to be given out, and none given twice
    CHECK_EQ(timer_create(CLOCK_MONOTONIC, &(struct sigevent){.sigev_notify = SIGEV_NONE}, &another), 0,
             "timer_create");
    for (int i = 0; i < TIMERS; i++)
        CHECK(another != timers[i], "new timer's id, expected a new one, got that of timer %d", i);
    CHECK_EQ(timer_delete(another), 0, "timer_delete");
}
static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    sigset_t signals;
    sigemptyset(&signals);
    for (int i = 0; i < TIMERS; i++) sigaddset(&signals, signal_of(i));
    pthread_sigmask(SIG_BLOCK, &signals, NULL); // before the thread starts: it inherits this
    pthread_t thread;
    NEED(!pthread_create(&thread, NULL, take_ticks, NULL), "thread");
    while (!atomic_load((_Atomic pid_t *)&thread_tid)) sleep_ms(1);
    for (int i = 0; i < TIMERS; i++) {
        struct sigevent event = {
            .sigev_notify = SIGEV_SIGNAL, .sigev_signo = signal_of(i), .sigev_value.sival_int = value_of(i)};
        if (i == CPU) event.sigev_notify = SIGEV_NONE;
        if (i == TO_THREAD) event.sigev_notify = SIGEV_THREAD_ID, event._sigev_un._tid = thread_tid;
        timer_t gap; // made and deleted again, so that the ids are not 0, 1, 2, ...
        NEED(!timer_create(CLOCK_MONOTONIC, &(struct sigevent){.sigev_notify = SIGEV_NONE}, &gap), "timer_create");
        NEED(!timer_create(clocks[i], &event, &timers[i]), "timer_create %d", i);
        timer_delete(gap);
    }
    arm();
}
static void step(void) {
    steps++;
    arm();
}
static void digest(void) {
    for (int i = 0; i < TIMERS; i++) digest_number(ms(set[i].it_value));
}
PROGRAM(setup, check, step, digest)
