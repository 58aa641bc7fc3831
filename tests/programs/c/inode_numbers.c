// Proves: a file that is open for writing keeps its inode number, through any number of copies, whatever its name is by
// then, and has one name; its mode, times, holes and the directories on the way to it are as they were.
// How: what sqlite does to find out whether its database was moved: the number of the open file is remembered, and
// compared with that of the descriptor, of the name and of the listing. One file is renamed at each step, one is written
// by a descriptor that is open every other step only, so that its number is one it got in between.
#include "program.h"
#include <dirent.h>

enum { PLAIN, SPARSE, RENAMED, REOPENED, FILES };
static const char *const first_names[FILES] = {"outer/inner/plain", "sparse", "outer/renamed", "outer/reopened"};
static const char *const other_name = "outer/inner/moved";
static const char *names[FILES];
static int fds[FILES];
static struct stat known[FILES];
static uint64_t steps;
#define HOLE (8 << 20)

static void remember(int i) { NEED(!fstat(fds[i], &known[i]), "fstat %s", names[i]); }
static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    umask(0);
    NEED(!mkdir("outer", 0751) && !mkdir("outer/inner", 0715), "mkdir");
    for (int i = 0; i < FILES; i++) {
        names[i] = first_names[i];
        NEED((fds[i] = open(names[i], O_CREAT | O_EXCL | O_RDWR, 0604 | i << 3)) >= 0, "%s", names[i]);
        NEED(write(fds[i], "begin", 5) == 5, "write");
    }
    NEED(pwrite(fds[SPARSE], "end", 3, HOLE) == 3, "write");
    for (int i = 0; i < FILES; i++) remember(i);
}
static ino_t listed(const char *path) {
    char directory[100];
    const char *last = strrchr(path, '/');
    snprintf(directory, sizeof directory, "%.*s", last ? (int)(last - path) : 1, last ? path : ".");
    DIR *listing = opendir(directory);
    ino_t found = 0;
    for (struct dirent *entry; listing && (entry = readdir(listing));)
        if (!strcmp(entry->d_name, last ? last + 1 : path)) found = entry->d_ino;
    if (listing) closedir(listing);
    return found;
}
static void check_number(int i) {
    struct stat by_fd, by_name;
    CHECK(!fstat(fds[i], &by_fd) && !stat(names[i], &by_name), "%s, expected it to be there, got errno %d", names[i], errno);
    CHECK_EQ(by_fd.st_ino, known[i].st_ino, "number of the descriptor of %s", names[i]);
    CHECK_EQ(by_name.st_ino, known[i].st_ino, "number of %s", names[i]);
    CHECK_EQ(listed(names[i]), known[i].st_ino, "number of %s in the listing", names[i]);
    CHECK_EQ(by_fd.st_nlink, 1, "names of %s", names[i]);
    CHECK_EQ(by_fd.st_mode, known[i].st_mode, "mode of %s", names[i]);
    CHECK_EQ(by_fd.st_size, known[i].st_size, "size of %s", names[i]);
    CHECK_EQ(by_fd.st_mtim.tv_sec, known[i].st_mtim.tv_sec, "time of %s", names[i]);
    CHECK_EQ(by_fd.st_mtim.tv_nsec, known[i].st_mtim.tv_nsec, "nanoseconds of %s", names[i]);
}
static void check(void) {
    struct stat directory;
    for (int i = 0; i < FILES; i++)
        if (fds[i] >= 0) check_number(i);
    CHECK(!stat("outer", &directory) && (directory.st_mode & 07777) == 0751, "mode of outer, got %o", directory.st_mode);
    CHECK(!stat("outer/inner", &directory) && (directory.st_mode & 07777) == 0715, "mode of inner, got %o",
          directory.st_mode);
    struct stat sparse;
    CHECK(!fstat(fds[SPARSE], &sparse) && sparse.st_blocks < HOLE / 512 / 2, "sparse, expected a hole, got %ld blocks",
          (long)sparse.st_blocks);
}
static void step(void) {
    steps++;
    for (int i = 0; i < FILES; i++) {
        if (fds[i] < 0) continue;
        CHECK_EQ(pwrite(fds[i], &steps, sizeof steps, 5), sizeof steps, "write to %s", names[i]);
        struct stat now;
        CHECK(!fstat(fds[i], &now), "fstat %s", names[i]);
        known[i].st_size = now.st_size, known[i].st_mtim = now.st_mtim;
    }
    const char *next = names[RENAMED] == other_name ? first_names[RENAMED] : other_name;
    CHECK(!rename(names[RENAMED], next), "rename to %s, got errno %d", next, errno);
    names[RENAMED] = next;
    if (fds[REOPENED] >= 0) {
        close(fds[REOPENED]);
        fds[REOPENED] = -1;
    } else {
        CHECK((fds[REOPENED] = open(names[REOPENED], O_RDWR)) >= 0, "open again, got errno %d", errno);
        remember(REOPENED);
    }
}
static void digest(void) {
    for (int i = 0; i < FILES; i++) {
        char content[16] = "";
        int fd = open(names[i], O_RDONLY);
        CHECK(read(fd, content, sizeof content) >= 5 && !close(fd), "read %s", names[i]);
        digest_bytes(content, sizeof content);
    }
}
PROGRAM(setup, check, step, digest)
