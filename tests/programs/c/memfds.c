// Proves: memory files survive: contents, size, name, seals, offset, sparse parts, and mappings that share them.
// How: one is written and read by descriptor, one is mapped shared twice and mapped privately, one is fully sealed.
#include "program.h"

#define BYTES (20 * PAGE)
enum { PLAIN, MAPPED, SEALED, SPARSE, FILES };
static int fds[FILES];
static char *shared, *second, *private;
static uint64_t generation;
static const char *const names[FILES] = {"plain file", "mapped", "sealed", "sparse"};
static uint64_t seed_of(int i) { return i * 1000000 + (i == SEALED ? 0 : generation * 20000); }

static void write_all(void) {
    static char block[BYTES];
    fill(block, BYTES, seed_of(PLAIN));
    NEED(pwrite(fds[PLAIN], block, BYTES, 0) == BYTES, "pwrite");
    lseek(fds[PLAIN], 1234 + generation, SEEK_SET);
    fill(shared, BYTES, seed_of(MAPPED)); // through the mapping, to be seen through the descriptor
    fill(private, PAGE, seed_of(MAPPED) + 77); // the first private page is a copy of its own
}
static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    static char block[BYTES];
    for (int i = 0; i < FILES; i++)
        NEED((fds[i] = memfd_create(names[i], MFD_CLOEXEC | (i == SEALED ? MFD_ALLOW_SEALING : 0))) >= 0,
             "memfd_create");
    NEED(!ftruncate(fds[MAPPED], BYTES), "ftruncate");
    shared = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fds[MAPPED], 0);
    second = mmap(NULL, 4 * PAGE, PROT_READ, MAP_SHARED, fds[MAPPED], 8 * PAGE);
    private = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE, fds[MAPPED], 0);
    NEED(shared != MAP_FAILED && second != MAP_FAILED && private != MAP_FAILED, "mmap");
    fill(block, BYTES, seed_of(SEALED));
    NEED(write(fds[SEALED], block, BYTES) == BYTES, "write");
    NEED(!fcntl(fds[SEALED], F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW), "F_ADD_SEALS");
    NEED(!ftruncate(fds[SPARSE], 64 << 20) && pwrite(fds[SPARSE], "far", 3, 50 << 20) == 3, "sparse");
    write_all();
}
static void expect(int i) {
    static char block[BYTES];
    CHECK_EQ(pread(fds[i], block, BYTES, 0), BYTES, "length of %s", names[i]);
    CHECK_EQ(differs(block, BYTES, seed_of(i)), -1, "contents of %s, offset", names[i]);
}
static void check(void) {
    expect(PLAIN), expect(MAPPED), expect(SEALED);
    CHECK_EQ(lseek(fds[PLAIN], 0, SEEK_CUR), 1234 + generation, "offset");
    CHECK_EQ(differs(shared, BYTES, seed_of(MAPPED)), -1, "shared mapping, offset");
    CHECK(!memcmp(second, shared + 8 * PAGE, 4 * PAGE), "second mapping, expected the same bytes");
    CHECK_EQ(differs(private, PAGE, seed_of(MAPPED) + 77), -1, "private copy, offset");
    CHECK(!memcmp(private + PAGE, shared + PAGE, BYTES - PAGE), "untouched private pages, expected the file's bytes");
    char saved = shared[9 * PAGE], byte;
    shared[9 * PAGE] = ~saved; // still one file: by mapping, other mapping and descriptor
    CHECK(second[PAGE] == (char)~saved, "write through one mapping, expected in the other");
    CHECK(pread(fds[MAPPED], &byte, 1, 9 * PAGE) == 1 && byte == (char)~saved,
          "write through the mapping, expected in the file");
    shared[9 * PAGE] = saved;
    CHECK_EQ(fcntl(fds[SEALED], F_GET_SEALS), F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW, "seals");
    CHECK_EQ(fcntl(fds[PLAIN], F_GET_SEALS), F_SEAL_SEAL, "seals of one made without");
    CHECK(pwrite(fds[SEALED], "x", 1, 0) == -1 && errno == EPERM, "write to the sealed one, expected EPERM, got %d",
          errno);
    CHECK(ftruncate(fds[SEALED], 1) == -1 && errno == EPERM, "truncation of the sealed one, expected EPERM, got %d",
          errno);
    struct stat status;
    fstat(fds[SPARSE], &status);
    CHECK_EQ(status.st_size, 64 << 20, "size of the sparse one");
    CHECK(status.st_blocks < 2048, "blocks of the sparse one, expected few, got %ld", (long)status.st_blocks);
    char text[4] = "";
    CHECK(pread(fds[SPARSE], text, 3, 50 << 20) == 3 && !strcmp(text, "far"), "text far in the sparse one, got %s",
          text);
    for (int i = 0; i < FILES; i++) {
        char path[40], target[100] = "", expected[100];
        snprintf(path, sizeof path, "/proc/self/fd/%d", fds[i]);
        snprintf(expected, sizeof expected, "/memfd:%s (deleted)", names[i]);
        if (readlink(path, target, sizeof target - 1) > 0)
            CHECK(!strcmp(target, expected), "name, expected %s, got %s", expected, target);
        CHECK_EQ(fcntl(fds[i], F_GETFD), FD_CLOEXEC, "close-on-exec of %s", names[i]);
    }
}
static void step(void) {
    generation++;
    write_all();
}
static void digest(void) { digest_bytes(shared, BYTES), digest_bytes(private, BYTES); }
PROGRAM(setup, check, step, digest)
