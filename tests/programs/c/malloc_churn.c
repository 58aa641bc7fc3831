// Proves: an allocator's state survives, whatever tricks it plays with memory; made to run under LD_PRELOAD of jemalloc
// too (args: jemalloc). How: threads malloc, calloc (zeros checked), realloc (contents checked), align and free without
// pause, each block filled from a seed kept aside; a step stops them at a set count and starts another stretch; a check
// stops them and verifies all.
#include "program.h"
#include <malloc.h>

#define THREADS 4
#define BLOCKS 400
struct block {
    unsigned char *at;
    size_t bytes;
    uint64_t seed;
};
struct worker {
    struct block blocks[BLOCKS];
    uint64_t random, done;
    pthread_t thread;
};
static struct worker workers[THREADS];
static uint64_t steps;
// Each thread does a set number of operations for each step, then small ones for ever that leave the blocks as they
// are.
#define OPERATIONS 4000
static _Atomic uint64_t target = OPERATIONS;
static _Atomic int resting; // how many threads have reached the target

static uint64_t next(struct worker *w, uint64_t below) { return mix(w->random++) % below; }
static size_t some_size(struct worker *w) { return next(w, 60) == 0 ? 1 + next(w, 2 << 20) : 1 + next(w, 3000); }
// Big blocks are checked by their ends, or everything would take minutes.
static void write_block(struct block *b) {
    size_t edge = b->bytes < 8192 ? b->bytes : 4096;
    fill(b->at, edge, b->seed);
    if (edge < b->bytes) fill(b->at + b->bytes - 4096, 4096, b->seed + 1);
}
static void verify(struct block *b, const char *when) {
    size_t edge = b->bytes < 8192 ? b->bytes : 4096;
    CHECK_EQ(differs(b->at, edge, b->seed), -1, "block of %zu %s, offset", b->bytes, when);
    if (edge < b->bytes)
        CHECK_EQ(differs(b->at + b->bytes - 4096, 4096, b->seed + 1), -1, "end of a block of %zu %s, offset", b->bytes,
                 when);
}
static void operate(struct worker *w) {
    struct block *b = &w->blocks[next(w, BLOCKS)];
    uint64_t what = next(w, 10);
    if (b->at && what < 3) { // realloc keeps what fits
        verify(b, "before realloc");
        size_t bytes = some_size(w), kept = bytes < b->bytes ? bytes : b->bytes;
        if (kept > 4096) kept = 4096;
        unsigned char *at = realloc(b->at, bytes);
        CHECK(at, "realloc, expected memory, got none");
        if (b->bytes < 8192 || kept <= 4096) CHECK_EQ(differs(at, kept, b->seed), -1, "realloc to %zu, offset", bytes);
        b->at = at, b->bytes = bytes;
    } else {
        if (b->at) verify(b, "before free");
        free(b->at);
        b->at = NULL;
        if (what == 9) return; // leave it empty for now
        b->bytes = some_size(w);
        if (what < 6) {
            b->at = calloc(1, b->bytes);
            CHECK(b->at && all_zero(b->at, b->bytes), "calloc of %zu, expected zeros, got something", b->bytes);
        } else if (what == 6)
            CHECK(!posix_memalign((void **)&b->at, 4096, b->bytes) && (uintptr_t)b->at % 4096 == 0,
                  "posix_memalign of %zu", b->bytes);
        else
            b->at = malloc(b->bytes);
    }
    b->seed = 1 + next(w, 1ull << 40);
    write_block(b);
}
static void *churn(void *argument) {
    struct worker *w = argument;
    uint64_t idle = 0;
    for (;;) {
        while (w->done < atomic_load(&target)) {
            operate(w);
            if (++w->done == atomic_load(&target)) atomic_fetch_add(&resting, 1);
        }
        size_t bytes = 1 + mix(++idle) % 5000; // goes on using the allocator, on memory of its own
        unsigned char *at = idle % 2 ? calloc(1, bytes) : malloc(bytes);
        CHECK(at && (!(idle % 2) || all_zero(at, bytes)), "idle calloc of %zu, expected zeros, got something", bytes);
        memset(at, 0xa5, bytes);
        free(at);
        if (idle % 50 == 0) sleep_ms(1);
        if (idle % 5000 == 0) malloc_trim(0);
    }
    return NULL;
}
static void await_rest(void) {
    CHECK(({
              bool rests = false;
              for (int i = 0; i < 20 && !rests; i++) rests = WITHIN_PATIENCE(resting == THREADS);
              rests;
          }),
          "threads, expected to reach the target, got stuck");
}
// Only jemalloc has it: a preload that ld.so did not find would leave another allocator to be tested.
extern int mallctl(const char *, void *, size_t *, void *, size_t) __attribute__((weak));
static void setup(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "jemalloc")) NEED(mallctl, "jemalloc is not loaded");
    for (int i = 0; i < THREADS; i++) {
        workers[i].random = mix(i);
        NEED(!pthread_create(&workers[i].thread, NULL, churn, &workers[i]), "thread");
    }
}
static void check(void) {
    await_rest();
    for (int i = 0; i < THREADS; i++)
        for (int n = 0; n < BLOCKS; n++)
            if (workers[i].blocks[n].at) verify(&workers[i].blocks[n], "at rest");
}
static void step(void) { // returns at once: the churn goes on while the next command, or a capture, comes
    await_rest();
    steps++;
    atomic_store(&resting, 0);
    atomic_fetch_add(&target, OPERATIONS);
}
static void digest(void) {
    await_rest();
    for (int i = 0; i < THREADS; i++)
        for (int n = 0; n < BLOCKS; n++)
            if (workers[i].blocks[n].at)
                digest_number(workers[i].blocks[n].bytes), digest_bytes(workers[i].blocks[n].at, 1);
}
PROGRAM(setup, check, step, digest, NULL)
