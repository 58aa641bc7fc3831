// Proves: the working directory (nested), the umask and the resource limits survive.
// How: the program makes nested directories and stays in the deepest; a check compares getcwd, opens a relative
// path, makes a file and looks at its mode, and reads every limit again.
#include "program.h"
#include <limits.h>
#include <sys/resource.h>

static char cwd[PATH_MAX];
static struct rlimit limits[RLIM_NLIMITS];
static mode_t mask = 027;
static uint64_t steps;

static void remember(void) {
    for (int i = 0; i < RLIM_NLIMITS; i++) NEED(!getrlimit(i, &limits[i]), "getrlimit %d", i);
    NEED(getcwd(cwd, sizeof cwd), "getcwd");
}
static void lower(int which, rlim_t soft) {
    struct rlimit limit;
    getrlimit(which, &limit);
    if (soft <= limit.rlim_max) limit.rlim_cur = soft; // the hard limit stays: it cannot be raised again
    NEED(!setrlimit(which, &limit), "setrlimit %d", which);
}
static void change(void) {
    char name[40];
    snprintf(name, sizeof name, "deeper-%d", (int)steps);
    NEED(!mkdir(name, 0755) && !chdir(name), "mkdir");
    lower(RLIMIT_NOFILE, 512 + steps);
    lower(RLIMIT_CORE, steps * PAGE);
    lower(RLIMIT_STACK, 4 << 20 | steps * PAGE);
    lower(RLIMIT_FSIZE, (1 << 30) + steps);
    lower(RLIMIT_CPU, 1000000 + steps);
    mask = steps % 2 ? 077 : 027;
    umask(mask);
    int fd = open("marker", O_CREAT | O_WRONLY | O_TRUNC, 0644);
    NEED(fd >= 0 && write(fd, &steps, 8) == 8 && !close(fd), "marker");
    remember();
}
static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    NEED(!mkdir("nested", 0755) && !chdir("nested"), "mkdir");
    change();
}
static void check(void) {
    char now[PATH_MAX] = "";
    CHECK(getcwd(now, sizeof now) && !strcmp(now, cwd), "getcwd, expected %s, got %s", cwd, now);
    struct stat status;
    CHECK(!stat(now, &status), "stat of the working directory, expected it by path, got errno %d", errno);
    uint64_t marker = -1;
    int fd = open("marker", O_RDONLY);
    CHECK(fd >= 0 && read(fd, &marker, 8) == 8, "marker by relative path, expected it, got errno %d", errno);
    close(fd);
    CHECK_EQ(marker, steps, "marker");
    fd = open("made", O_CREAT | O_EXCL | O_WRONLY, 0666);
    CHECK(fd >= 0 && !fstat(fd, &status), "made, expected to create it, got errno %d", errno);
    CHECK_EQ(status.st_mode & 0777, 0666 & ~mask, "mode of a new file");
    close(fd), unlink("made");
    mode_t got = umask(mask);
    CHECK_EQ(got, mask, "umask");
    for (int i = 0; i < RLIM_NLIMITS; i++) {
        struct rlimit limit;
        getrlimit(i, &limit);
        CHECK_EQ(limit.rlim_cur, limits[i].rlim_cur, "soft limit %d", i);
        CHECK_EQ(limit.rlim_max, limits[i].rlim_max, "hard limit %d", i);
    }
}
static void step(void) {
    steps++;
    change();
}
static void digest(void) { digest_number(steps), digest_number(mask), digest_number(limits[RLIMIT_NOFILE].rlim_cur); }
PROGRAM(setup, check, step, digest)
