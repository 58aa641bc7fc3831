// Proves: directory descriptors survive: openat and fchdir through them, and the position of a half-read listing.
// How: 40 files, of which some names were read with getdents; a check reads the rest and the two parts together must
// be every name exactly once; then it seeks back to where it was. Also an O_PATH descriptor.
#include "program.h"
#include <dirent.h>

#define NAMES 40
static int directory, listing, path_only;
static bool seen[NAMES];
static off_t position;
static uint64_t steps;

struct entry {
    uint64_t inode;
    int64_t next;
    unsigned short length;
    unsigned char type;
    char name[];
};

// Reads a few entries into `marks`; false at the end. A small buffer, so that one call reads only some.
static bool read_some(bool marks[NAMES]) {
    char buffer[128] __attribute__((aligned(8)));
    long n = syscall(SYS_getdents64, listing, buffer, sizeof buffer);
    CHECK(n >= 0, "getdents64, expected entries, got errno %d", errno);
    for (long at = 0; at < n;) {
        struct entry *entry = (struct entry *)(buffer + at);
        at += entry->length;
        int number;
        if (sscanf(entry->name, "file-%d", &number) != 1) continue;
        CHECK(!marks[number], "listing, expected each name once, got %s twice", entry->name);
        marks[number] = true;
    }
    return n > 0;
}
static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    NEED(!mkdir("listed", 0755) && !mkdir("listed/inner", 0755), "mkdir");
    NEED((directory = open("listed", O_RDONLY | O_DIRECTORY | O_CLOEXEC)) >= 0, "open");
    for (int i = 0; i < NAMES; i++) {
        char name[20];
        snprintf(name, sizeof name, "file-%d", i);
        int fd = openat(directory, name, O_CREAT | O_WRONLY, 0600);
        NEED(fd >= 0 && write(fd, &i, sizeof i) == sizeof i && !close(fd), "%s", name);
    }
    NEED((listing = open("listed", O_RDONLY | O_DIRECTORY)) >= 0, "open");
    NEED((path_only = open("listed/inner", O_PATH | O_DIRECTORY)) >= 0, "open");
    for (int i = 0; i < 3; i++) read_some(seen);
    position = lseek(listing, 0, SEEK_CUR);
}
static void check(void) {
    CHECK_EQ(lseek(listing, 0, SEEK_CUR), position, "position of the listing");
    bool now[NAMES];
    memcpy(now, seen, sizeof now);
    while (read_some(now)) {}
    for (int i = 0; i < NAMES; i++) CHECK(now[i], "listing, expected file-%d, got it in neither part", i);
    CHECK_EQ(lseek(listing, position, SEEK_SET), position, "seek back");
    int fd = openat(directory, "file-7", O_RDONLY), number = -1;
    CHECK(fd >= 0 && read(fd, &number, sizeof number) == sizeof number && number == 7,
          "openat, expected 7, got %d errno %d", number, errno);
    close(fd);
    int home = open(".", O_RDONLY | O_DIRECTORY);
    CHECK_EQ(fchdir(path_only), 0, "fchdir through O_PATH");
    CHECK_EQ(access("../file-1", F_OK), 0, "path relative to the O_PATH directory");
    CHECK_EQ(fchdir(home), 0, "fchdir back");
    close(home);
    CHECK_EQ(fcntl(path_only, F_GETFL) & O_PATH, O_PATH, "O_PATH flag");
    CHECK(read(path_only, &number, 1) == -1 && errno == EBADF, "read of an O_PATH descriptor, expected EBADF, got %d",
          errno);
    CHECK_EQ(fcntl(directory, F_GETFD), FD_CLOEXEC, "close-on-exec");
}
static void step(void) {
    steps++;
    read_some(seen);
    position = lseek(listing, 0, SEEK_CUR);
}
static void digest(void) { digest_number(steps); } // the order of a listing is the file system's own affair
PROGRAM(setup, check, step, digest)
