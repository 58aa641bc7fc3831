// Proves: which descriptors are the same open file survives: duplicates, copies across fork, and one passed as
// SCM_RIGHTS. How: offsets and status flags belong to the open file, close-on-exec to the descriptor; a change through
// one must be seen through exactly the others that share it, in both processes, and not through a file opened
// separately by the same name.
#include "children.h"
#include <sys/socket.h>

enum { ORIGINAL, DUPLICATE, SEPARATE, PASSED };
enum { TELL = 1, SEEK, FLAGS, RECEIVE };
static int original, duplicate, separate, passed, channel[2];
static int received = -1; // in the child
static struct child child;
static uint64_t steps;
static off_t base(void) { return 100 + 10 * steps; }

static int which(int64_t n) {
    return n == ORIGINAL ? original : n == DUPLICATE ? duplicate : n == SEPARATE ? separate : received;
}
static int64_t answer(struct question q, void *unused_) {
    (void)unused_;
    int fd = which(q.with >> 32);
    if (q.what == TELL) return lseek(fd, 0, SEEK_CUR);
    if (q.what == SEEK) return lseek(fd, q.with & 0xffffffff, SEEK_SET);
    if (q.what == FLAGS) return fcntl(fd, F_GETFL) & O_NONBLOCK;
    char byte, control[CMSG_SPACE(sizeof(int))];
    struct iovec data = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    if (recvmsg(channel[1], &message, 0) != 1) return -1;
    memcpy(&received, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof received);
    return received;
}
static int64_t ask(int what, int64_t fd, int64_t with) { return child_ask(&child, what, fd << 32 | with); }
static void pass(int fd) {
    char byte = 'p', control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec data = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS, header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    NEED(sendmsg(channel[0], &message, 0) == 1, "sendmsg");
}
static void place(void) {
    lseek(original, base(), SEEK_SET), lseek(separate, base() + 1, SEEK_SET), lseek(passed, base() + 2, SEEK_SET);
}
static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    int fd = open("file", O_CREAT | O_RDWR, 0600);
    NEED(fd >= 0 && !ftruncate(fd, 100000) && !close(fd), "file");
    NEED((original = open("file", O_RDWR)) >= 0 && (separate = open("file", O_RDWR)) >= 0, "open");
    NEED((duplicate = fcntl(original, F_DUPFD_CLOEXEC, 50)) >= 50, "dup");
    NEED(!socketpair(AF_UNIX, SOCK_STREAM, 0, channel), "socketpair");
    child = child_start(answer, NULL, NULL);
    NEED((passed = open("file", O_RDWR)) >= 0, "open"); // after the fork: it reaches the child only as a message
    pass(passed);
    NEED(ask(RECEIVE, 0, 0) >= 0, "receiving");
    place();
}
static void check(void) {
    CHECK_EQ(lseek(original, 0, SEEK_CUR), base(), "original");
    CHECK_EQ(lseek(duplicate, 0, SEEK_CUR), base(), "duplicate");
    CHECK_EQ(lseek(separate, 0, SEEK_CUR), base() + 1, "separate");
    CHECK_EQ(lseek(passed, 0, SEEK_CUR), base() + 2, "passed");
    CHECK_EQ(ask(TELL, DUPLICATE, 0), base(), "duplicate in the child");
    CHECK_EQ(ask(TELL, SEPARATE, 0), base() + 1, "separate in the child");
    CHECK_EQ(ask(TELL, PASSED, 0), base() + 2, "passed in the child");
    CHECK_EQ(ask(SEEK, ORIGINAL, 7000), 7000, "seek by the child");
    CHECK_EQ(lseek(duplicate, 0, SEEK_CUR), 7000, "duplicate after the child's seek");
    CHECK_EQ(lseek(separate, 0, SEEK_CUR), base() + 1, "separate after the child's seek");
    CHECK_EQ(ask(SEEK, PASSED, 8000), 8000, "seek of the passed one by the child");
    CHECK_EQ(lseek(passed, 0, SEEK_CUR), 8000, "passed after the child's seek");
    fcntl(passed, F_SETFL, fcntl(passed, F_GETFL) | O_NONBLOCK);
    CHECK_EQ(ask(FLAGS, PASSED, 0), O_NONBLOCK, "status flag of the passed one in the child");
    CHECK_EQ(ask(FLAGS, ORIGINAL, 0), 0, "status flag of another in the child");
    fcntl(passed, F_SETFL, fcntl(passed, F_GETFL) & ~O_NONBLOCK);
    CHECK_EQ(fcntl(duplicate, F_GETFD), FD_CLOEXEC, "close-on-exec of the duplicate");
    CHECK_EQ(fcntl(original, F_GETFD), 0, "close-on-exec of the original");
    place();
}
static void step(void) {
    steps++;
    place();
}
static void digest(void) { digest_number(steps); }
PROGRAM(setup, check, step, digest)
