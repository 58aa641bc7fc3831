// Proves: each thread keeps its own alternate signal stack, and handlers run on it.
// How: threads set stacks of different sizes (one sets none); asked, each compares sigaltstack() with what it set
// and raises a signal whose handler records where its frame lies.
#include "workers.h"

static struct worker workers[4]; // the last one has no alternate stack
static char stacks[4][2][256 * 1024];
static uint64_t generation;
static __thread char *volatile frame;
enum { SET = 1, LOOK };

static size_t size_of(int index) { return 65536 + index * PAGE + generation % 7 * PAGE; }
static char *stack_of(int index) { return stacks[index][generation % 2]; }
static void handler(int signal) {
    (void)signal;
    frame = __builtin_frame_address(0);
}

static void answer(struct worker *self, int question) {
    int i = self->index;
    bool has = i != COUNT(workers) - 1;
    if (question == SET) {
        stack_t stack = {.ss_sp = stack_of(i), .ss_size = size_of(i), .ss_flags = has ? 0 : SS_DISABLE};
        NEED(!sigaltstack(&stack, NULL), "sigaltstack");
        return;
    }
    stack_t now;
    sigaltstack(NULL, &now);
    CHECK_EQ(now.ss_flags, has ? 0 : SS_DISABLE, "flags of thread %d's stack", i);
    if (has)
        CHECK(now.ss_sp == stack_of(i) && now.ss_size == size_of(i), "stack of thread %d, expected %p+%zu, got %p+%zu",
              i, (void *)stack_of(i), size_of(i), now.ss_sp, now.ss_size);
    frame = NULL;
    raise(SIGUSR1);
    bool on_it = frame >= stack_of(i) && frame < stack_of(i) + size_of(i);
    CHECK(frame, "handler in thread %d, expected to run, did not", i);
    CHECK_EQ(on_it, has, "handler of thread %d on its alternate stack", i);
}
static void ask_all(int question) {
    for (size_t i = 0; i < COUNT(workers); i++) worker_ask(&workers[i], question);
}
static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    NEED(!sigaction(SIGUSR1, &action, NULL), "sigaction");
    for (size_t i = 0; i < COUNT(workers); i++) worker_start(&workers[i], i, answer);
    ask_all(SET);
}
static void check(void) { ask_all(LOOK); }
static void step(void) {
    generation++;
    ask_all(SET);
}
static void digest(void) { digest_number(generation); }
PROGRAM(setup, check, step, digest)
