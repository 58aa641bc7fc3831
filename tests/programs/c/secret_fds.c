// Proves: what cannot be saved is refused with a reason, not saved wrongly.
// How: it holds descriptors whose state the kernel shows to nobody: an io_uring and, where allowed, a memfd_secret and
// a userfaultfd. With argv[1] one of `io_uring`, `memfd_secret`, `userfaultfd` it holds only that.
#include "program.h"
#include <linux/io_uring.h>

static const char *const names[] = {"io_uring", "memfd_secret", "userfaultfd"};
static int fds[3] = {-1, -1, -1};
static uint64_t steps;

static int open_one(int i) {
    struct io_uring_params parameters = {0};
    if (i == 0) return syscall(SYS_io_uring_setup, 8, &parameters);
    if (i == 1) return syscall(447 /* memfd_secret */, 0);
    return syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | 1 /* user mode only */);
}
static void setup(int argc, char **argv) {
    int held = 0;
    for (int i = 0; i < 3; i++)
        if (argc < 2 || !strcmp(argv[1], names[i])) held += (fds[i] = open_one(i)) >= 0;
    if (!held) skip("none of these descriptors is allowed here: %s", strerror(errno));
}
static void check(void) {
    for (int i = 0; i < 3; i++)
        if (fds[i] >= 0) CHECK(fcntl(fds[i], F_GETFD) >= 0, "%s, expected open, got errno %d", names[i], errno);
}
static void step(void) { steps++; }
static void digest(void) { digest_number(steps); }
PROGRAM(setup, check, step, digest)
