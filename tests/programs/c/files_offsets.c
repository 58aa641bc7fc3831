// Proves: open files survive with their contents, offsets, flags, and with the sharing of offsets between duplicates
// and between parent and child.
// How: files opened in several ways, one duplicated, one inherited by a child; a check reads on from where each
// stands, moves back, and moves an offset through one descriptor to see the other follow.
#include "children.h"

#define BYTES 20000
enum { READER, WRITER, APPENDER, SHARED, BOTH, FILES };
enum { TELL = 1, SEEK, READ_WORD };
static int fds[FILES], duplicate, dev_null, dev_zero;
static struct child child;
static off_t expected[FILES];
static uint64_t steps, appended;
static const char *const names[FILES] = {"reader", "writer", "appender", "shared", "both"};
static const int flags_of[FILES] = {O_RDONLY, O_WRONLY, O_WRONLY | O_APPEND, O_RDWR, O_RDWR | O_NONBLOCK};

static int64_t answer(struct question q, void *unused_) {
    (void)unused_;
    uint64_t word = 0;
    if (q.what == TELL) return lseek(fds[SHARED], 0, SEEK_CUR);
    if (q.what == SEEK) return lseek(fds[SHARED], q.with, SEEK_SET);
    return read(fds[SHARED], &word, 8) == 8 ? (int64_t)(word >> 1) : -1;
}
static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    char block[BYTES];
    for (int i = 0; i < FILES; i++) {
        int fd = open(names[i], O_CREAT | O_TRUNC | O_WRONLY, 0600);
        fill(block, BYTES, i * 100000);
        NEED(fd >= 0 && write(fd, block, BYTES) == BYTES && !close(fd), "%s", names[i]);
        NEED((fds[i] = open(names[i], flags_of[i])) >= 0, "%s", names[i]);
        expected[i] = i == APPENDER ? 0 : 1000 * (i + 1);
        lseek(fds[i], expected[i], SEEK_SET);
    }
    NEED((duplicate = dup2(fds[SHARED], 200)) == 200, "dup2"); // a high number, with a gap below
    fcntl(duplicate, F_SETFD, FD_CLOEXEC);
    dev_null = open("/dev/null", O_RDWR), dev_zero = open("/dev/zero", O_RDONLY);
    NEED(dev_null >= 0 && dev_zero >= 0, "/dev");
    child = child_start(answer, NULL, NULL);
}
static void expect_content(int i, off_t from, size_t bytes) {
    char block[BYTES], want[BYTES];
    fill(want, BYTES, i * 100000);
    ssize_t got = pread(fds[i], block, bytes, from);
    CHECK(got == (ssize_t)bytes && !memcmp(block, want + from, bytes), "%s at %ld, expected its pattern, got %zd bytes",
          names[i], (long)from, got);
}
static void check(void) {
    for (int i = 0; i < FILES; i++) {
        CHECK_EQ(lseek(fds[i], 0, SEEK_CUR), expected[i], "offset of %s", names[i]);
        CHECK_EQ(fcntl(fds[i], F_GETFL) & (O_ACCMODE | O_APPEND | O_NONBLOCK), flags_of[i], "flags of %s", names[i]);
        CHECK_EQ(fcntl(fds[i], F_GETFD), 0, "descriptor flags of %s", names[i]);
        struct stat by_fd, by_name;
        CHECK(!fstat(fds[i], &by_fd) && !stat(names[i], &by_name) && by_fd.st_ino == by_name.st_ino,
              "%s, expected the descriptor and the name to be one file, got inodes %ld and %ld", names[i],
              (long)by_fd.st_ino, (long)by_name.st_ino);
        CHECK_EQ(by_fd.st_size, BYTES + (i == APPENDER ? appended * 8 : 0), "size of %s", names[i]);
    }
    CHECK_EQ(fcntl(duplicate, F_GETFD), FD_CLOEXEC, "descriptor flags of the duplicate");
    char word[8], want[BYTES];
    fill(want, BYTES, READER * 100000);
    CHECK(read(fds[READER], word, 8) == 8 && !memcmp(word, want + expected[READER], 8),
          "read on, expected the pattern, got something else");
    lseek(fds[READER], -8, SEEK_CUR);
    expect_content(READER, 0, BYTES), expect_content(BOTH, 0, BYTES), expect_content(SHARED, 0, BYTES);
    for (off_t at = 4096; at < 4099; at++) { // one offset, three owners
        CHECK_EQ(lseek(duplicate, at, SEEK_SET), at, "seek through the duplicate");
        CHECK_EQ(lseek(fds[SHARED], 0, SEEK_CUR), at, "offset seen by the original");
        CHECK_EQ(child_ask(&child, TELL, 0), at, "offset seen by the child");
        child_ask(&child, SEEK, at + 100);
        CHECK_EQ(lseek(fds[SHARED], 0, SEEK_CUR), at + 100, "offset after the child moved it");
    }
    lseek(fds[SHARED], expected[SHARED], SEEK_SET);
    uint64_t pattern[BYTES / 8];
    fill(pattern, BYTES, SHARED * 100000);
    CHECK_EQ(child_ask(&child, READ_WORD, 0), (int64_t)(pattern[expected[SHARED] / 8] >> 1), "word read by the child");
    lseek(fds[SHARED], expected[SHARED], SEEK_SET);
    CHECK(write(dev_null, "x", 1) == 1 && read(dev_null, word, 8) == 0, "/dev/null");
    CHECK(read(dev_zero, word, 8) == 8 && all_zero(word, 8), "/dev/zero");
}
static void step(void) {
    steps++;
    for (int i = 0; i < FILES; i++)
        if (i != APPENDER) lseek(fds[i], expected[i] += 8 * (i + 1), SEEK_SET);
    uint64_t word = mix(++appended);
    lseek(fds[APPENDER], 0, SEEK_SET); // O_APPEND must ignore this
    CHECK_EQ(write(fds[APPENDER], &word, 8), 8, "append");
    expected[APPENDER] = BYTES + appended * 8;
    CHECK_EQ(lseek(fds[APPENDER], 0, SEEK_CUR), expected[APPENDER], "offset after appending");
}
static void digest(void) { digest_bytes(expected, sizeof expected); }
PROGRAM(setup, check, step, digest)
