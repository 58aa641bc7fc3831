// Proves: a process stays in a working directory that was removed, and so does a descriptor of one.
// How: a check finds that the directory has no name, that nothing can be made in it, and that leaving it works.
#include "program.h"
#include <limits.h>

static int directory, place, home;
static uint64_t steps;

static void enter_and_remove(void) {
    char name[40];
    snprintf(name, sizeof name, "removed-%d", (int)steps);
    NEED(!fchdir(home) && !mkdir(name, 0755), "mkdir");
    close(directory), close(place);
    NEED((directory = open(name, O_RDONLY | O_DIRECTORY)) >= 0 && (place = open(name, O_PATH)) >= 0, "open");
    NEED(!chdir(name), "chdir");
    char path[80];
    snprintf(path, sizeof path, "../%s", name);
    NEED(!rmdir(path), "rmdir");
}
static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    directory = place = -1;
    NEED((home = open(".", O_RDONLY | O_DIRECTORY)) >= 0, "open");
    enter_and_remove();
}
static void check(void) {
    char path[PATH_MAX];
    CHECK(!getcwd(path, sizeof path) && errno == ENOENT, "getcwd, expected ENOENT, got %d", errno);
    int fd = open("file", O_CREAT | O_WRONLY, 0600);
    CHECK(fd == -1 && errno == ENOENT, "a file in it, expected ENOENT, got %d", errno);
    fd = openat(directory, "file", O_CREAT | O_WRONLY, 0600);
    CHECK(fd == -1 && errno == ENOENT, "a file through the descriptor, expected ENOENT, got %d", errno);
    struct stat by_fd = {0}, here = {0};
    CHECK(!fstat(place, &by_fd) && S_ISDIR(by_fd.st_mode), "O_PATH, expected a directory");
    CHECK(!stat(".", &here) && S_ISDIR(here.st_mode), "here, expected a directory");
    CHECK(fcntl(place, F_GETFL) & O_PATH, "O_PATH flag");
    CHECK_EQ(fchdir(home), 0, "leaving it");
    CHECK(getcwd(path, sizeof path), "getcwd outside, expected a name, got errno %d", errno);
    CHECK_EQ(fchdir(directory), 0, "coming back");
}
static void step(void) {
    steps++;
    enter_and_remove();
}
static void digest(void) { digest_number(steps); }
PROGRAM(setup, check, step, digest)
