// Proves: a thread's robust list survives, so that a mutex whose owner dies after the restore is handed on, not lost.
// How: a thread takes robust mutexes and sleeps. Asked, it ends without unlocking them; the next taker must be told
// EOWNERDEAD, and a thread already blocked on one must be woken. Then a new owner takes over. The check also
// asks the kernel for the list's address.
#include "program.h"

static pthread_mutex_t mutexes[3];
static uint64_t guarded[3], deaths;
static _Atomic int die, owned;
static pthread_t owner;
static pid_t owner_tid;
static void *list_at_start;

static void *robust_list(pid_t tid) {
    void *head = NULL;
    size_t length = 0;
    CHECK_EQ(syscall(SYS_get_robust_list, tid, &head, &length), 0, "get_robust_list");
    return head;
}
static void *own(void *unused_) {
    (void)unused_;
    owner_tid = syscall(SYS_gettid);
    for (size_t i = 0; i < COUNT(mutexes); i++) {
        int error = pthread_mutex_lock(&mutexes[i]);
        CHECK_EQ(error, 0, "lock of a consistent mutex %zu", i);
        guarded[i] = mix(deaths * 10 + i);
    }
    list_at_start = robust_list(0);
    atomic_store(&owned, 1);
    while (!atomic_load(&die)) sleep_ms(5);
    return NULL; // with all three still locked
}
static void new_owner(void) {
    atomic_store(&die, 0), atomic_store(&owned, 0);
    NEED(!pthread_create(&owner, NULL, own, NULL), "pthread_create");
    while (!atomic_load(&owned)) sleep_ms(1);
}
static int take(int i) {
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += PATIENCE_MS / 1000;
    return pthread_mutex_clocklock(&mutexes[i], CLOCK_MONOTONIC, &end);
}
static void *blocked(void *result) { // waits in the kernel for mutex 0 while its owner dies
    *(int *)result = take(0);
    return NULL;
}
static void check(void) {
    CHECK(robust_list(owner_tid) == list_at_start, "robust list, expected %p, got %p", list_at_start,
          robust_list(owner_tid));
    CHECK(robust_list(0) != NULL, "robust list of the main thread, expected one, got none");
    for (size_t i = 0; i < COUNT(mutexes); i++) {
        CHECK_EQ(pthread_mutex_trylock(&mutexes[i]), EBUSY, "trylock while owned %zu", i);
        CHECK_EQ(guarded[i], mix(deaths * 10 + i), "guarded word %zu", i);
    }
    pthread_t waiter;
    int told = -1;
    NEED(!pthread_create(&waiter, NULL, blocked, &told), "pthread_create");
    sleep_ms(10);
    atomic_store(&die, 1);
    pthread_join(owner, NULL);
    pthread_join(waiter, NULL);
    CHECK_EQ(told, EOWNERDEAD, "the waiter when the owner dies");
    // The waiter has died with mutex 0 in turn, so every mutex says the same here.
    for (size_t i = 0; i < COUNT(mutexes); i++) {
        CHECK_EQ(take(i), EOWNERDEAD, "lock of mutex %zu after its owner's death", i);
        CHECK_EQ(pthread_mutex_consistent(&mutexes[i]), 0, "pthread_mutex_consistent %zu", i);
        CHECK_EQ(pthread_mutex_unlock(&mutexes[i]), 0, "unlock %zu", i);
    }
    new_owner();
}
static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    pthread_mutexattr_t robust;
    pthread_mutexattr_init(&robust);
    pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST);
    for (size_t i = 0; i < COUNT(mutexes); i++) NEED(!pthread_mutex_init(&mutexes[i], &robust), "pthread_mutex_init");
    new_owner();
}
static void step(void) { // one death by itself
    atomic_store(&die, 1);
    pthread_join(owner, NULL);
    for (size_t i = 0; i < COUNT(mutexes); i++)
        if (take(i) == EOWNERDEAD)
            pthread_mutex_consistent(&mutexes[i]), pthread_mutex_unlock(&mutexes[i]);
        else
            fail("step, expected EOWNERDEAD from mutex %zu", i);
    deaths++;
    new_owner();
}
static void digest(void) { digest_bytes(guarded, sizeof guarded); }
PROGRAM(setup, check, step, digest)
