// Proves: a large block survives page by page; and gives benchmarks a process of any size.
// How: argv[1] MiB (64 by default), each page with a pattern of its own; a check verifies every page, a step changes a
// few. argv[2], if `huge`, asks for huge pages.
#include "program.h"

static uint64_t *block, pages, steps;
#define WORDS (PAGE / 8)

// Two words in eight (every fourth) are enough to tell pages and their parts apart, and quick to write and to read.
static void write_page(uint64_t page, uint64_t generation) {
    uint64_t *at = block + page * WORDS;
    for (uint64_t i = 0; i < WORDS; i += 4) at[i] = mix(page * 1000003 + generation * 7919 + i);
}
static uint64_t generation_of(uint64_t page) { // the last step that changed this page: step s changes 16 scattered ones
    for (uint64_t s = steps; s > 0; s--)
        for (uint64_t n = 0; n < 16; n++)
            if (mix(s * 16 + n) % pages == page) return s;
    return 0;
}
static bool *changed; // pages any step has touched, so that most need no search
static void setup(int argc, char **argv) {
    pages = (argc > 1 ? strtoull(argv[1], NULL, 10) : 64) * 256;
    block = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NEED(block != MAP_FAILED && (changed = calloc(pages, 1)), "%" PRIu64 " pages", pages);
    if (argc > 2 && !strcmp(argv[2], "huge")) madvise(block, pages * PAGE, MADV_HUGEPAGE);
    for (uint64_t page = 0; page < pages; page++) write_page(page, 0);
}
static void check(void) {
    for (uint64_t page = 0; page < pages; page++) {
        uint64_t generation = changed[page] ? generation_of(page) : 0, *at = block + page * WORDS;
        for (uint64_t i = 0; i < WORDS; i++) {
            uint64_t expected = i % 4 ? 0 : mix(page * 1000003 + generation * 7919 + i);
            if (at[i] == expected) continue;
            fail("page %" PRIu64 " word %" PRIu64 ", expected %" PRIx64 ", got %" PRIx64, page, i, expected, at[i]);
            return;
        }
    }
}
static void step(void) {
    steps++;
    for (uint64_t n = 0; n < 16; n++) {
        uint64_t page = mix(steps * 16 + n) % pages;
        write_page(page, steps);
        changed[page] = true;
    }
}
static void digest(void) {
    for (uint64_t page = 0; page < pages; page++) digest_number(block[page * WORDS]);
}
PROGRAM(setup, check, step, digest)
