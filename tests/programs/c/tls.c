// Proves: thread-local storage and errno of several threads survive, each thread keeping its own.
// How: four threads give their thread-locals (initialised, zeroed, aligned, pthread_setspecific) and errno values
// of their own, then wait on a condition variable; asked, each looks at its own.
#include "workers.h"

static __thread uint64_t initialised = 0x1122334455667788;
static __thread uint64_t zeroed[16];
static __thread uint8_t aligned[64] __attribute__((aligned(64)));
static __thread void *own_address;
static pthread_key_t key;
static struct worker workers[4];
static uint64_t generation;

enum { PUT = 1, LOOK };
static uint64_t seed_of(int index) { return generation * 100 + index; }

static void put(int index) {
    initialised = mix(seed_of(index));
    fill(zeroed, sizeof zeroed, seed_of(index) + 1000);
    fill(aligned, sizeof aligned, seed_of(index) + 2000);
    pthread_setspecific(key, (void *)(seed_of(index) + 1));
    own_address = &initialised;
    errno = 1 + index + generation % 20;
}
static void look(int index) {
    int error = errno;
    CHECK_EQ(error, 1 + index + generation % 20, "errno of thread %d", index);
    CHECK_EQ(initialised, mix(seed_of(index)), "initialised of thread %d", index);
    CHECK_EQ(differs(zeroed, sizeof zeroed, seed_of(index) + 1000), -1, "zeroed of thread %d, offset", index);
    CHECK_EQ(differs(aligned, sizeof aligned, seed_of(index) + 2000), -1, "aligned of thread %d, offset", index);
    CHECK_EQ(pthread_getspecific(key), seed_of(index) + 1, "specific of thread %d", index);
    CHECK(own_address == &initialised, "address in thread %d, expected %p, got %p", index, own_address,
          (void *)&initialised);
    errno = error;
}
static void answer(struct worker *self, int question) {
    if (question == PUT)
        put(self->index);
    else
        look(self->index);
    CHECK_EQ(syscall(SYS_gettid), self->tid, "thread id of thread %d", self->index);
    CHECK(pthread_equal(pthread_self(), self->thread), "pthread_self of thread %d", self->index);
}
static void ask_all(int question) {
    for (size_t i = 0; i < COUNT(workers); i++) worker_ask(&workers[i], question);
}
static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    NEED(!pthread_key_create(&key, NULL), "pthread_key_create");
    for (size_t i = 0; i < COUNT(workers); i++) worker_start(&workers[i], i, answer);
    ask_all(PUT);
}
static void check(void) { ask_all(LOOK); }
static void step(void) {
    generation++;
    ask_all(PUT);
}
static void digest(void) { digest_number(generation); }
PROGRAM(setup, check, step, digest)
