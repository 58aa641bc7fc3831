// Proves: files that are open (or mapped) but have no name any more survive with contents and offset.
// How: one is unlinked while open, one was replaced by another of the same name, one is only mapped (shared), one never
// had a name (O_TMPFILE, where the file system has it), one is in a directory that was removed as well.
#include "program.h"

#define BYTES 30000
enum { UNLINKED, REPLACED, MAPPED, NAMELESS, IN_REMOVED, FILES };
static int fds[FILES];
static char *mapped;
static uint64_t generation[FILES];
static off_t offset[FILES];

static uint64_t seed_of(int i) { return i * 1000000 + generation[i] * 5000; }
static void write_all(int i) {
    static char block[BYTES];
    fill(block, BYTES, seed_of(i));
    if (i == MAPPED && mapped)
        memcpy(mapped, block, BYTES);
    else
        NEED(pwrite(fds[i], block, BYTES, 0) == BYTES, "pwrite %d", i);
    offset[i] = 100 * (i + 1) + generation[i];
    if (fds[i] >= 0) lseek(fds[i], offset[i], SEEK_SET);
}
static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    NEED(!mkdir("removed", 0700), "mkdir");
    const char *names[] = {"unlinked", "replaced", "mapped", NULL, "removed/file"};
    for (int i = 0; i < FILES; i++) {
        if (i == NAMELESS) fds[i] = open(".", O_TMPFILE | O_RDWR, 0600);
        if (i != NAMELESS || fds[i] < 0) fds[i] = open(names[i] ? names[i] : "nameless", O_CREAT | O_RDWR, 0600);
        NEED(fds[i] >= 0, "open %d", i);
        write_all(i);
    }
    mapped = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fds[MAPPED], 0);
    NEED(mapped != MAP_FAILED, "mmap");
    close(fds[MAPPED]), fds[MAPPED] = -1;
    int other = open("other", O_CREAT | O_WRONLY, 0600);
    NEED(other >= 0 && write(other, "another", 7) == 7 && !close(other) && !rename("other", "replaced"), "rename");
    unlink("nameless");
    NEED(!unlink("unlinked") && !unlink("mapped") && !unlink("removed/file") && !rmdir("removed"), "unlink");
}
static void check(void) {
    static char block[BYTES + 1];
    for (int i = 0; i < FILES; i++) {
        if (i == MAPPED) {
            CHECK_EQ(differs(mapped, BYTES, seed_of(i)), -1, "mapped deleted file, offset");
            continue;
        }
        struct stat status;
        CHECK_EQ(fstat(fds[i], &status), 0, "fstat of %d", i);
        CHECK_EQ(status.st_nlink, 0, "links of %d", i);
        CHECK_EQ(status.st_size, BYTES, "size of %d", i);
        CHECK_EQ(lseek(fds[i], 0, SEEK_CUR), offset[i], "offset of %d", i);
        CHECK_EQ(pread(fds[i], block, BYTES + 1, 0), BYTES, "length read of %d", i);
        CHECK_EQ(differs(block, BYTES, seed_of(i)), -1, "contents of %d, offset", i);
    }
    CHECK(access("unlinked", F_OK) == -1 && errno == ENOENT, "name, expected to be gone, got errno %d", errno);
    CHECK(access("removed", F_OK) == -1 && errno == ENOENT, "directory, expected to be gone, got errno %d", errno);
    int fd = open("replaced", O_RDONLY);
    CHECK(read(fd, block, 100) == 7 && !memcmp(block, "another", 7),
          "the file that took the name, expected its own text");
    close(fd);
}
static void step(void) {
    for (int i = 0; i < FILES; i++) generation[i]++, write_all(i);
}
static void digest(void) {
    digest_bytes(generation, sizeof generation);
    digest_bytes(offset, sizeof offset);
}
PROGRAM(setup, check, step, digest)
