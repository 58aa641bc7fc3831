// Proves: flock, POSIX record locks and open-file-description locks are held again, by the same owner, on the same
// range. How: a child process (which holds nothing) tries to take each and must be refused; F_GETLK must name this
// process; ranges that are free must be free.
#include "children.h"
#include <sys/file.h>

enum { FLOCK_EXCLUSIVE, FLOCK_SHARED, POSIX, OFD, FILES };
enum { TRY_FLOCK = 1, TRY_POSIX, OWNER, TYPE };
static const char *const names[FILES] = {"flock-exclusive", "flock-shared", "posix", "ofd"};
static int fds[FILES];
static struct child child;
static uint64_t steps;
static long range_start(void) {
    return 1000 + 100 * steps;
} // 50 bytes write-locked from here, and 50 read-locked at 50000

// In the child. A lock it gets is given back at once, by closing.
static int64_t answer(struct question q, void *unused_) {
    (void)unused_;
    int file = q.with >> 32, result = 0;
    long start = q.with & 0x7fffffff;
    static int own[FILES];
    if (!own[0])
        for (int i = 0; i < FILES; i++) own[i] = open(names[i], O_RDWR);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = start, .l_len = 10};
    if (q.what == TRY_FLOCK) {
        result = flock(own[file], (start ? LOCK_SH : LOCK_EX) | LOCK_NB) ? errno : 0;
        flock(own[file], LOCK_UN);
    } else if (q.what == TRY_POSIX) {
        result = fcntl(own[file], F_SETLK, &lock) ? errno : 0;
        lock.l_type = F_UNLCK;
        fcntl(own[file], F_SETLK, &lock);
    } else {
        fcntl(own[file], F_GETLK, &lock);
        result = q.what == OWNER ? lock.l_pid : lock.l_type;
    }
    return result;
}
static int64_t ask(int what, int file, long start) { return child_ask(&child, what, (int64_t)file << 32 | start); }

// An inherited descriptor would own the flocks too.
static void close_inherited(void *unused_) {
    (void)unused_;
    for (int i = 0; i < FILES; i++) close(fds[i]);
}

static void lock_ranges(int command, int fd, short type_a, short type_b) {
    struct flock lock = {.l_type = type_a, .l_whence = SEEK_SET, .l_start = range_start(), .l_len = 50};
    NEED(!fcntl(fd, command, &lock), "lock");
    lock = (struct flock){.l_type = type_b, .l_whence = SEEK_SET, .l_start = 50000, .l_len = 50};
    NEED(!fcntl(fd, command, &lock), "lock");
}
static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    for (int i = 0; i < FILES; i++) NEED((fds[i] = open(names[i], O_CREAT | O_RDWR, 0600)) >= 0, "open");
    child = child_start(answer, close_inherited, NULL);
    CHECK_EQ(ask(TRY_FLOCK, 0, 0), 0, "flock before it is taken");
    NEED(!flock(fds[FLOCK_EXCLUSIVE], LOCK_EX) && !flock(fds[FLOCK_SHARED], LOCK_SH), "flock");
    lock_ranges(F_SETLK, fds[POSIX], F_WRLCK, F_RDLCK);
    lock_ranges(F_OFD_SETLK, fds[OFD], F_WRLCK, F_RDLCK);
}
static void check(void) {
    CHECK_EQ(ask(TRY_FLOCK, FLOCK_EXCLUSIVE, 0), EWOULDBLOCK, "exclusive flock against exclusive");
    CHECK_EQ(ask(TRY_FLOCK, FLOCK_EXCLUSIVE, 1), EWOULDBLOCK, "shared flock against exclusive");
    CHECK_EQ(ask(TRY_FLOCK, FLOCK_SHARED, 0), EWOULDBLOCK, "exclusive flock against shared");
    CHECK_EQ(ask(TRY_FLOCK, FLOCK_SHARED, 1), 0, "shared flock against shared");
    for (int file = POSIX; file <= OFD; file++) {
        CHECK_EQ(ask(TRY_POSIX, file, range_start()), EAGAIN, "%s, start of the range", names[file]);
        CHECK_EQ(ask(TRY_POSIX, file, range_start() + 49), EAGAIN, "%s, end of the range", names[file]);
        CHECK_EQ(ask(TRY_POSIX, file, range_start() - 10), 0, "%s, before the range", names[file]);
        CHECK_EQ(ask(TRY_POSIX, file, range_start() + 50), 0, "%s, after the range", names[file]);
        CHECK_EQ(ask(TYPE, file, range_start()), F_WRLCK, "%s, type of the first range", names[file]);
        CHECK_EQ(ask(TYPE, file, 50000), F_RDLCK, "%s, type of the second range", names[file]);
    }
    CHECK_EQ(ask(OWNER, POSIX, range_start()), getpid(), "owner of the POSIX lock");
    CHECK_EQ(ask(OWNER, OFD, range_start()), -1, "owner of the open-file-description lock");
}
static void step(void) { // release, move, take again
    lock_ranges(F_SETLK, fds[POSIX], F_UNLCK, F_UNLCK);
    lock_ranges(F_OFD_SETLK, fds[OFD], F_UNLCK, F_UNLCK);
    steps++;
    lock_ranges(F_SETLK, fds[POSIX], F_WRLCK, F_RDLCK);
    lock_ranges(F_OFD_SETLK, fds[OFD], F_WRLCK, F_RDLCK);
}
static void digest(void) { digest_number(steps); }
PROGRAM(setup, check, step, digest)
