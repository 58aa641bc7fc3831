// Proves: large memory that a program maps after it was restored is saved exactly, however it is used: written in
// part or whole, moved, given back, and replaced by other memory at the same address.
// How: each step does one of these to a block; a shadow remembers the generation of every page, and a check verifies all
// of them. A page of generation 0 must be zero.
#include "program.h"

#define WORDS (PAGE / 8)
#define MOST (28 << 10) // pages
static uint64_t *block, pages, steps;
static uint32_t generation[MOST];

static void write_page(uint64_t page) {
    uint64_t *at = block + page * WORDS;
    generation[page] = steps;
    for (uint64_t i = 0; i < WORDS; i += 16) at[i] = mix(page * 1000003 + steps * 7919 + i);
}
static void write_some(void) {
    for (uint64_t n = 0; n < 16; n++) write_page(mix(steps * 16 + n) % pages);
}
static void write_all(void) {
    for (uint64_t page = 0; page < pages; page++) write_page(page);
}
static void *map(void *at, uint64_t count, int flags) {
    void *mapped = mmap(at, count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    NEED(mapped != MAP_FAILED, "mmap of %" PRIu64 " pages", count);
    return mapped;
}
static void make(void) {
    if (block) munmap(block, pages * PAGE);
    memset(generation, 0, sizeof generation);
    pages = 24 << 10;
    block = map(NULL, pages, 0);
    if (steps % 2) madvise(block, pages * PAGE, MADV_HUGEPAGE);
    write_all();
}
static void move(void) { // and grow by pages that are zero
    void *to = map(NULL, MOST, 0);
    void *at = mremap(block, pages * PAGE, MOST * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to);
    NEED(at == to, "mremap, errno %d", errno);
    block = at, pages = MOST;
}
static void give_back(void) {
    uint64_t half = pages / 2;
    NEED(!madvise(block + half * WORDS, (pages - half) * PAGE, MADV_DONTNEED), "MADV_DONTNEED");
    for (uint64_t page = half; page < pages; page++) generation[page] = 0;
}
static void replace(void) { // the first quarter, by new memory of which every second page is written
    map(block, pages / 4, MAP_FIXED);
    for (uint64_t page = 0; page < pages / 4; page++) {
        generation[page] = 0;
        if (page % 2) write_page(page);
    }
}
static void setup(int argc, char **argv) { (void)argc, (void)argv; }
static void step(void) {
    static void (*const acts[])(void) = {make, write_some, write_some, write_all, write_some, write_some,
                                         write_some, move, write_some, give_back, replace, write_some, write_all};
    uint64_t act = steps++ % (sizeof acts / sizeof *acts);
    acts[act]();
}
static void check(void) {
    for (uint64_t page = 0; page < pages; page++) {
        uint64_t *at = block + page * WORDS, made = generation[page];
        for (uint64_t i = 0; i < WORDS; i++) {
            uint64_t expected = i % 16 || !made ? 0 : mix(page * 1000003 + made * 7919 + i);
            if (at[i] == expected) continue;
            fail("step %" PRIu64 ", page %" PRIu64 " word %" PRIu64 ", expected %" PRIx64 ", got %" PRIx64, steps, page,
                 i, expected, at[i]);
            return;
        }
    }
}
static void digest(void) {
    for (uint64_t page = 0; page < pages; page++) digest_number(block[page * WORDS]);
}
PROGRAM(setup, check, step, digest)
