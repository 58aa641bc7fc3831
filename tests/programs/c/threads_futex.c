// Proves: threads blocked in every pthread lock go on waiting, and are woken exactly once when it is their turn.
// How: three threads wait for a mutex the main thread holds, two for a condition with a far timeout, two for a
// semaphore, one for a write lock, three (with the main thread: four) at a barrier; another waits in short timed waits
// all the time. A round lets all of them through once and counts them; then they are blocked again.
#include "program.h"
#include <semaphore.h>

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER, lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t barrier;
static sem_t semaphore;
static uint64_t rounds, cond_round; // guarded by lock
static _Atomic uint64_t passed[5], timeouts; // mutex, condition, semaphore, rwlock, barrier
static _Atomic uint64_t turn; // a thread blocks again only when the next round is prepared
static const int threads_of[5] = {3, 2, 2, 1, 3};

static void wait_for_turn(uint64_t mine) {
    while (atomic_load(&turn) < mine) sleep_ms(1);
}

static void *wait_on(void *kind_) {
    long kind = (long)kind_;
    for (uint64_t mine = 1;; mine++) {
        wait_for_turn(mine);
        if (kind == 0) {
            pthread_mutex_lock(&held);
            pthread_mutex_unlock(&held);
        }
        if (kind == 1) {
            struct timespec far;
            clock_gettime(CLOCK_MONOTONIC, &far);
            far.tv_sec += 3600;
            pthread_mutex_lock(&lock);
            while (cond_round < mine) {
                int error = pthread_cond_timedwait(&condition, &lock, &far);
                CHECK_EQ(error, 0, "pthread_cond_timedwait an hour ahead");
                if (error) break;
            }
            pthread_mutex_unlock(&lock);
        }
        if (kind == 2)
            while (sem_wait(&semaphore)) CHECK(0, "sem_wait, expected 0, got errno %d", errno);
        if (kind == 3) {
            pthread_rwlock_wrlock(&rwlock);
            pthread_rwlock_unlock(&rwlock);
        }
        if (kind == 4) pthread_barrier_wait(&barrier);
        atomic_fetch_add(&passed[kind], 1);
    }
    return NULL;
}
static void *time_out(void *unused_) {
    (void)unused_;
    pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&own);
    for (;;) {
        struct timespec soon;
        clock_gettime(CLOCK_MONOTONIC, &soon);
        soon.tv_nsec += 20000000;
        if (soon.tv_nsec >= 1000000000) soon.tv_nsec -= 1000000000, soon.tv_sec++;
        pthread_cond_t never;
        pthread_cond_init(&never, NULL);
        int error = pthread_cond_clockwait(&never, &own, CLOCK_MONOTONIC, &soon);
        CHECK_EQ(error, ETIMEDOUT, "timed wait nobody signals");
        atomic_fetch_add(&timeouts, 1);
    }
    return NULL;
}

static void block_all(void) { // the caller holds `held` and a read lock from here on
    pthread_mutex_lock(&held);
    pthread_rwlock_rdlock(&rwlock);
    atomic_fetch_add(&turn, 1);
    sleep_ms(20); // long enough, usually, for everyone to be really asleep in the kernel
}
static void release_all(void) {
    rounds++;
    for (int kind = 0; kind < 4; kind++) // the barrier's three wait for the main thread too
        CHECK_EQ(passed[kind], (rounds - 1) * threads_of[kind], "threads of kind %d let through too early", kind);
    pthread_mutex_unlock(&held);
    pthread_rwlock_unlock(&rwlock);
    pthread_mutex_lock(&lock);
    cond_round = rounds;
    pthread_cond_broadcast(&condition);
    pthread_mutex_unlock(&lock);
    sem_post(&semaphore);
    sem_post(&semaphore);
    pthread_barrier_wait(&barrier);
    for (int kind = 0; kind < 5; kind++)
        CHECK(WITHIN_PATIENCE(passed[kind] == rounds * threads_of[kind]),
              "threads of kind %d through, expected %" PRIu64 ", got %" PRIu64, kind, rounds * threads_of[kind],
              (uint64_t)passed[kind]);
    int value = -1;
    sem_getvalue(&semaphore, &value);
    CHECK_EQ(value, 0, "semaphore afterwards");
    uint64_t before = timeouts;
    CHECK(WITHIN_PATIENCE(timeouts > before), "timed waits, expected to go on, got stuck at %" PRIu64, before);
}
static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&condition, &monotonic);
    sem_init(&semaphore, 0, 0);
    pthread_barrier_init(&barrier, NULL, 4);
    pthread_t thread;
    for (long kind = 0; kind < 5; kind++)
        for (int i = 0; i < threads_of[kind]; i++)
            NEED(!pthread_create(&thread, NULL, wait_on, (void *)kind), "thread");
    NEED(!pthread_create(&thread, NULL, time_out, NULL), "thread");
    block_all();
}
static uint64_t steps;
static void check(void) {
    release_all();
    block_all();
}
static void step(void) {
    steps++;
    release_all();
    block_all();
}
static void digest(void) { digest_number(steps); }
PROGRAM(setup, check, step, digest)
