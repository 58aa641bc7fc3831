// Proves: memory shared between processes is still shared, and holds what it held: anonymous, POSIX (shm_open), and a
// file mapped by both; while private memory stays private.
// How: parent and child each write their halves and look at the other's, before and after; the file is also read by
// name.
#include "children.h"
#include <limits.h>

#define BYTES (16 * PAGE)
enum { ANONYMOUS, POSIX, FILE_BACKED, PARTS };
enum { WRITE = 1, LOOK, PRIVATE };
static char *shared[PARTS], *private;
static struct child child;
static uint64_t generation;
static const char *const names[PARTS] = {"anonymous", "posix", "file"};

static uint64_t seed_of(int part, int writer) { return part * 1000000 + writer * 100000 + generation * 3000; }
static void write_half(int writer) {
    for (int i = 0; i < PARTS; i++)
        if (shared[i]) fill(shared[i] + writer * BYTES / 2, BYTES / 2, seed_of(i, writer));
}
static void look_half(int writer) {
    for (int i = 0; i < PARTS; i++)
        if (shared[i])
            CHECK_EQ(differs(shared[i] + writer * BYTES / 2, BYTES / 2, seed_of(i, writer)), -1,
                     "%s, half of %d, offset", names[i], writer);
}
static int64_t answer(struct question q, void *unused_) {
    (void)unused_;
    generation = q.with;
    if (q.what == WRITE) {
        write_half(1);
        fill(private, PAGE, generation + 5);
    }
    if (q.what == LOOK) look_half(0), look_half(1);
    return failure[0] ? -1 : q.what == PRIVATE ? differs(private, PAGE, generation + 5) : 0;
}
static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    char name[40];
    snprintf(name, sizeof name, "/program-%d", getpid());
    shared[ANONYMOUS] = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int fd = shm_open(name, O_CREAT | O_RDWR, 0600); // some machines have no /dev/shm: then without
    if (fd >= 0) {
        NEED(!ftruncate(fd, BYTES), "ftruncate");
        shared[POSIX] = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        close(fd), shm_unlink(name);
    }
    NEED((fd = open("mapped", O_CREAT | O_RDWR, 0600)) >= 0 && !ftruncate(fd, BYTES), "open");
    shared[FILE_BACKED] = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    private = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < PARTS; i++) NEED(shared[i] != MAP_FAILED, "mmap %s", names[i]);
    fill(private, PAGE, 4711);
    child = child_start(answer, NULL, NULL);
    write_half(0);
    CHECK_EQ(child_ask(&child, WRITE, generation), 0, "first write by the child");
}
static void check(void) {
    look_half(0), look_half(1);
    CHECK_EQ(child_ask(&child, LOOK, generation), 0, "what the child sees");
    CHECK_EQ(child_ask(&child, PRIVATE, generation), -1, "private memory of the child, offset");
    CHECK_EQ(differs(private, PAGE, 4711), -1, "private memory of the parent, offset");
    for (int i = 0; i < PARTS; i++)
        if (shared[i]) memset(shared[i], 0, BYTES);
    CHECK_EQ(child_ask(&child, WRITE, generation), 0, "write by the child");
    look_half(1); // written after the restore by one, seen by the other
    write_half(0);
    CHECK_EQ(child_ask(&child, LOOK, generation), 0, "what the child sees of a later write");
    char block[BYTES];
    int fd = open("mapped", O_RDONLY);
    CHECK(fd >= 0 && read(fd, block, BYTES) == (ssize_t)BYTES && !memcmp(block, shared[FILE_BACKED], BYTES),
          "file by name, expected the mapped bytes");
    close(fd);
}
static void step(void) {
    generation++;
    write_half(0);
    child_ask(&child, WRITE, generation);
}
static void digest(void) { digest_bytes(shared[ANONYMOUS], BYTES), digest_bytes(shared[FILE_BACKED], BYTES); }
PROGRAM(setup, check, step, digest)
