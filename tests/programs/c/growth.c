// Proves: a changing set of mappings survives exactly: which there are, their protections, and every byte.
// How: each step maps, unmaps, grows, cuts, protects and writes some of up to 100 slots, as a repeatable random number
// says; a shadow remembers the seed of every page, and a check verifies all of them. Never-written pages must be zero.
#include "program.h"

#define SLOTS 100
#define MOST_PAGES 64
struct slot {
    char *at;
    int pages, protection;
    uint64_t seed[MOST_PAGES];
}; // seed 0: never written
static struct slot slots[SLOTS];
static uint64_t random_state = 12345, steps;

static uint64_t next(uint64_t below) { return mix(random_state++) % below; }
static void map(struct slot *slot) {
    slot->pages = 1 + next(MOST_PAGES / 2), slot->protection = PROT_READ | PROT_WRITE;
    slot->at = mmap(NULL, slot->pages * PAGE, slot->protection,
                    MAP_PRIVATE | MAP_ANONYMOUS | (next(2) ? MAP_NORESERVE : 0), -1, 0);
    CHECK(slot->at != MAP_FAILED, "mmap, errno %d", errno);
    memset(slot->seed, 0, sizeof slot->seed);
}
static void change(struct slot *slot) {
    if (!slot->at) {
        map(slot);
        return;
    }
    int page = next(slot->pages);
    switch (next(8)) {
    case 0:
        CHECK_EQ(munmap(slot->at, slot->pages * PAGE), 0, "munmap");
        slot->at = NULL;
        break;
    case 1: { // grow, perhaps elsewhere
        int pages = slot->pages + next(MOST_PAGES - slot->pages + 1);
        char *at = mremap(slot->at, slot->pages * PAGE, pages * PAGE, MREMAP_MAYMOVE);
        CHECK(at != MAP_FAILED, "mremap, errno %d", errno);
        if (at != MAP_FAILED) slot->at = at, slot->pages = pages;
        break;
    }
    case 2: // cut off the end
        if (page == 0) break;
        CHECK_EQ(munmap(slot->at + page * PAGE, (slot->pages - page) * PAGE), 0, "munmap of the end");
        for (int n = page; n < slot->pages; n++) slot->seed[n] = 0;
        slot->pages = page;
        break;
    case 3: // drop the contents of some
        CHECK_EQ(madvise(slot->at + page * PAGE, (slot->pages - page) * PAGE, MADV_DONTNEED), 0, "MADV_DONTNEED");
        for (int n = page; n < slot->pages; n++) slot->seed[n] = 0;
        break;
    case 4: // other protection
        slot->protection = slot->protection & PROT_WRITE ? PROT_READ : PROT_READ | PROT_WRITE;
        CHECK_EQ(mprotect(slot->at, slot->pages * PAGE, slot->protection), 0, "mprotect");
        break;
    default:
        if (!(slot->protection & PROT_WRITE)) break;
        for (int n = page; n < slot->pages && n < page + 4; n++) {
            slot->seed[n] = 1 + next(1ull << 40);
            fill(slot->at + n * PAGE, PAGE, slot->seed[n]);
        }
    }
}
static void churn(int times) {
    for (int i = 0; i < times; i++) change(&slots[next(SLOTS)]);
}
static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    churn(1500);
}
static void check(void) {
    for (int i = 0; i < SLOTS; i++)
        for (int n = 0; slots[i].at && n < slots[i].pages; n++) {
            char *page = slots[i].at + n * PAGE;
            if (!slots[i].seed[n])
                CHECK(all_zero(page, PAGE), "slot %d page %d, expected zeros, got something", i, n);
            else
                CHECK_EQ(differs(page, PAGE, slots[i].seed[n]), -1, "slot %d page %d, offset", i, n);
        }
}
static void step(void) {
    steps++;
    churn(100);
}
static void digest(void) {
    for (int i = 0; i < SLOTS; i++)
        for (int n = 0; slots[i].at && n < slots[i].pages; n++)
            digest_number(slots[i].seed[n]), digest_bytes(slots[i].at + n * PAGE, 64);
}
PROGRAM(setup, check, step, digest)
