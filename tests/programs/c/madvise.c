// Proves: restored memory is real anonymous memory, not something that looks like it until it is prodded.
// How: regions with content from before the capture; a check does to each what an allocator might (drop pages, free
// lazily, grow, move, cut, protect, fork) and compares with what anonymous memory must do; then it fills them again.
#include "program.h"

#define PAGES 32
enum { DROP, FREE, REMAP, CUT, GUARDED, NO_FORK, WIPE, LOCKED, HIDDEN, READ_ONLY, REGIONS };
static const char *const names[REGIONS] = {"dontneed", "free",       "mremap", "cut",   "prot_none",
                                           "dontfork", "wipeonfork", "mlock",  "guard", "read_only"};
static char *regions[REGIONS], *huge, *stack, *heap;
#define HUGE_BYTES (6UL << 20)
#define STACK_TOP ((char *)0x200000000000)
#define HEAP_BYTES (8 * PAGE)
static uint64_t generation, stack_pages = 1;
static bool has_guards;
static int probe[2];
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif

static uint64_t seed_of(int i) { return i * 1000000 + generation * 100000; }
static char *page(int i, int n) { return regions[i] + n * PAGE; }
static void refill(int i) { fill(regions[i], PAGES * PAGE, seed_of(i)); }
static char *map(size_t bytes) {
    char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NEED(at != MAP_FAILED, "mmap");
    return at;
}
static void expect(int i, int first, int count, const char *when) {
    for (int n = first; n < first + count; n++)
        CHECK_EQ(differs(page(i, n), PAGE, seed_of(i) + n * PAGE / 8), -1, "%s %s, page %d, offset", names[i], when, n);
}
static void expect_zero(const char *at, int count, const char *what) {
    for (int n = 0; n < count; n++)
        CHECK(all_zero(at + n * PAGE, PAGE), "%s, page %d, expected zeros, got something", what, n);
}
// Whether the kernel can read the page: a system call says EFAULT where an access would be a SIGSEGV.
static bool readable(const void *at) {
    char byte;
    bool ok = write(probe[1], at, 1) == 1;
    return ok && read(probe[0], &byte, 1) == 1;
}
// Whether the flags the kernel shows for the mapping at an address include this two-letter one.
static bool has_flag(const char *at, const char *flag) {
    FILE *smaps = fopen("/proc/self/smaps", "r");
    char line[600];
    bool inside = false, found = false;
    while (smaps && fgets(line, sizeof line, smaps)) {
        unsigned long from, to;
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2) inside = (unsigned long)at >= from && (unsigned long)at < to;
        if (inside && !strncmp(line, "VmFlags:", 8)) {
            found = strstr(line, flag);
            break;
        }
    }
    if (smaps) fclose(smaps);
    return found;
}
static void check_drop(void) {
    expect(DROP, 0, PAGES, "before");
    CHECK_EQ(madvise(page(DROP, 4), 8 * PAGE, MADV_DONTNEED), 0, "MADV_DONTNEED");
    expect_zero(page(DROP, 4), 8, "pages dropped");
    expect(DROP, 0, 4, "below"), expect(DROP, 12, PAGES - 12, "above");
    expect(FREE, 0, PAGES, "before");
    CHECK_EQ(madvise(page(FREE, 2), 10 * PAGE, MADV_FREE), 0, "MADV_FREE");
    for (int n = 2; n < 12; n++)
        CHECK(all_zero(page(FREE, n), PAGE) || differs(page(FREE, n), PAGE, seed_of(FREE) + n * PAGE / 8) < 0,
              "page %d freed, expected old bytes or zeros", n);
    fill(page(FREE, 3), PAGE, 99); // a write ends the freedom
    CHECK_EQ(differs(page(FREE, 3), PAGE, 99), -1, "write after MADV_FREE, offset");
    refill(DROP), refill(FREE);
}
static void check_remap(void) {
    expect(REMAP, 0, PAGES, "before");
    char *at = mremap(regions[REMAP], PAGES * PAGE, 4 * PAGES * PAGE, MREMAP_MAYMOVE);
    CHECK(at != MAP_FAILED, "mremap to grow, expected an address, got errno %d", errno);
    if (at == MAP_FAILED) return;
    regions[REMAP] = at;
    expect(REMAP, 0, PAGES, "after growing");
    expect_zero(page(REMAP, PAGES), 3 * PAGES, "part grown");
    char *to = map(4 * PAGES * PAGE);
    at = mremap(at, 4 * PAGES * PAGE, 4 * PAGES * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to);
    CHECK(at == to, "mremap to move, expected %p, got %p", (void *)to, (void *)at);
    regions[REMAP] = to;
    expect(REMAP, 0, PAGES, "after moving");
    CHECK(mremap(to, 4 * PAGES * PAGE, PAGES * PAGE, 0) == to, "mremap to shrink, errno %d", errno);
    expect(CUT, 0, PAGES, "before");
    CHECK_EQ(munmap(page(CUT, 10), 5 * PAGE), 0, "munmap of the middle");
    CHECK(!readable(page(CUT, 12)), "hole, expected unreadable");
    expect(CUT, 0, 10, "below the hole"), expect(CUT, 15, PAGES - 15, "above the hole");
    CHECK(mmap(page(CUT, 10), 5 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
               0) == page(CUT, 10),
          "mmap of the hole, errno %d", errno);
    expect_zero(page(CUT, 10), 5, "hole mapped again");
    refill(CUT);
}
static void check_protection(void) {
    CHECK(!readable(page(GUARDED, 5)), "PROT_NONE page, expected unreadable");
    CHECK_EQ(mprotect(page(GUARDED, 4), 8 * PAGE, PROT_READ), 0, "mprotect to read");
    expect(GUARDED, 0, PAGES, "behind PROT_NONE");
    CHECK_EQ(mprotect(page(GUARDED, 4), 8 * PAGE, PROT_NONE), 0, "mprotect to none");
    expect(READ_ONLY, 0, PAGES, "read-only");
    CHECK(!has_flag(regions[READ_ONLY], " wr"), "read-only region, expected not writable");
    if (has_guards) {
        CHECK(!readable(page(HIDDEN, 8)) && readable(page(HIDDEN, 7)),
              "guard region, expected unreadable page 8 and readable page 7");
        expect(HIDDEN, 0, 8, "below the guards"), expect(HIDDEN, 12, PAGES - 12, "above the guards");
    }
    CHECK(has_flag(regions[LOCKED], " lo"), "locked region, expected the flag lo");
    expect(LOCKED, 0, PAGES, "locked");
    CHECK_EQ(differs(huge, HUGE_BYTES, seed_of(50)), -1, "huge page region, offset");
    CHECK(has_flag(huge, " hg"), "huge page region, expected the flag hg");
    CHECK(has_flag(regions[DROP], " dd"), "MADV_DONTDUMP region, expected the flag dd");
}
static void check_growth(void) {
    CHECK_EQ(differs(heap, HEAP_BYTES, seed_of(51)), -1, "memory below the break, offset");
    char *end = sbrk(0);
    CHECK(sbrk(6 * PAGE) == end, "sbrk to grow, errno %d", errno);
    expect_zero(end, 6, "part grown by sbrk");
    memset(end, 0xee, 6 * PAGE);
    sbrk(-6 * (long)PAGE), sbrk(6 * PAGE);
    char *whole = (char *)(((uintptr_t)end + PAGE - 1) & -PAGE);
    expect_zero(whole, 5, "part shrunk and grown by sbrk");
    memset(end, 0, 6 * PAGE);
    sbrk(-6 * (long)PAGE);
    for (uint64_t n = 1; n <= stack_pages; n++)
        CHECK_EQ(differs(STACK_TOP - n * PAGE, PAGE, seed_of(52) + n * 1000), -1, "MAP_GROWSDOWN page %d, offset",
                 (int)n);
    expect_zero(STACK_TOP - (stack_pages + 1) * PAGE, 1, "MAP_GROWSDOWN, one page further down");
    stack_pages += 1;
    fill(STACK_TOP - stack_pages * PAGE, PAGE, seed_of(52) + stack_pages * 1000);
}
static void check_fork(void) {
    expect(NO_FORK, 0, PAGES, "in the parent"), expect(WIPE, 0, PAGES, "in the parent");
    pid_t pid = fork();
    if (pid == 0) {
        int wrong = readable(regions[NO_FORK]) ? 1 : 0;
        if (!all_zero(regions[WIPE], PAGES * PAGE)) wrong |= 2;
        if (differs(regions[LOCKED], PAGES * PAGE, seed_of(LOCKED)) >= 0) wrong |= 4;
        _exit(wrong);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    CHECK_EQ(status, 0,
             "in a forked child (1: DONTFORK region there, 2: WIPEONFORK not zero, 4: other bytes wrong; times 256)");
}
static void check(void) { check_drop(), check_remap(), check_protection(), check_growth(), check_fork(); }
static void fill_all(void) {
    mprotect(page(GUARDED, 4), 8 * PAGE, PROT_READ | PROT_WRITE),
        mprotect(regions[READ_ONLY], PAGES * PAGE, PROT_READ | PROT_WRITE);
    for (int i = 0; i < REGIONS; i++) {
        if (i != HIDDEN || !has_guards) {
            refill(i);
            continue;
        }
        for (int n = 0; n < PAGES; n++)
            if (n < 8 || n >= 12) fill(page(i, n), PAGE, seed_of(i) + n * PAGE / 8);
    }
    mprotect(page(GUARDED, 4), 8 * PAGE, PROT_NONE), mprotect(regions[READ_ONLY], PAGES * PAGE, PROT_READ);
    fill(huge, HUGE_BYTES, seed_of(50)), fill(heap, HEAP_BYTES, seed_of(51));
    for (uint64_t n = 1; n <= stack_pages; n++) fill(STACK_TOP - n * PAGE, PAGE, seed_of(52) + n * 1000);
}
static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    NEED(!pipe2(probe, O_NONBLOCK), "pipe");
    for (int i = 0; i < REGIONS; i++) {
        char *wide = map((PAGES + 2) * PAGE); // with unmapped pages around, so that no two regions become one mapping
        munmap(wide, PAGE), munmap(wide + (PAGES + 1) * PAGE, PAGE);
        regions[i] = wide + PAGE;
    }
    huge = (char *)(((uintptr_t)map(HUGE_BYTES + (2 << 20)) + (2 << 20) - 1) & -(2UL << 20));
    NEED((stack = mmap(STACK_TOP - PAGE, PAGE, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN | MAP_FIXED_NOREPLACE, -1, 0)) != MAP_FAILED,
         "growsdown");
    NEED((heap = sbrk(HEAP_BYTES)) != (void *)-1, "sbrk");
    madvise(huge, HUGE_BYTES, MADV_HUGEPAGE), madvise(regions[DROP], PAGES * PAGE, MADV_DONTDUMP);
    NEED(!madvise(regions[NO_FORK], PAGES * PAGE, MADV_DONTFORK) &&
             !madvise(regions[WIPE], PAGES * PAGE, MADV_WIPEONFORK),
         "madvise");
    NEED(!mlock(regions[LOCKED], PAGES * PAGE), "mlock");
    has_guards = !madvise(page(HIDDEN, 8), 4 * PAGE, MADV_GUARD_INSTALL); // Linux 6.13 and later
    fill_all();
}
static void step(void) {
    generation++;
    fill_all();
}
static void digest(void) {
    for (int i = 0; i < REGIONS; i++)
        if (i != GUARDED && i != HIDDEN) digest_bytes(regions[i], PAGES * PAGE);
}
PROGRAM(setup, check, step, digest)
