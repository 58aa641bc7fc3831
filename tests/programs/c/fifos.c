// Proves: named pipes survive with their unread contents, and descriptors stay connected to the name.
// How: one is open for both reading and writing here, one leads to a child; a check reads what is on its way, then
// opens the name afresh and writes: the old descriptor must receive it.
#include "children.h"

#define BYTES 2500
static int both, reader; // `reader` receives what the child wrote
static struct child child;
static int child_writer;
static uint64_t generation;
enum { WRITE = 1 };

static uint64_t seed_of(int i) { return generation * 10000 + i * 1000000; }
static int64_t answer(struct question q, void *unused_) {
    (void)unused_;
    char block[BYTES];
    fill(block, BYTES, q.with);
    return write(child_writer, block, BYTES);
}
static void open_writer(void *unused_) {
    (void)unused_;
    close(reader);
    NEED((child_writer = open("from-child", O_WRONLY)) >= 0, "open for writing");
}
static void put(void) {
    char block[BYTES];
    fill(block, BYTES, seed_of(1));
    CHECK_EQ(write(both, block, BYTES), BYTES, "write");
    CHECK_EQ(child_ask(&child, WRITE, seed_of(2)), BYTES, "write by the child");
}
static void take(void) {
    char block[BYTES];
    CHECK_EQ(read_fully(both, block, BYTES), BYTES, "bytes in the one of both ends");
    CHECK_EQ(differs(block, BYTES, seed_of(1)), -1, "its contents, offset");
    CHECK_EQ(read_fully(reader, block, BYTES), BYTES, "bytes from the child");
    CHECK_EQ(differs(block, BYTES, seed_of(2)), -1, "contents from the child, offset");
}
static void through_the_name(int old, const char *name) {
    int fresh = open(name, O_WRONLY | O_NONBLOCK);
    CHECK(fresh >= 0, "%s opened afresh, expected a reader to be there, got errno %d", name, errno);
    char byte = 0;
    CHECK_EQ(write(fresh, "n", 1), 1, "write through %s", name);
    CHECK(read_fully(old, &byte, 1) == 1 && byte == 'n', "%s, expected the old descriptor to receive it, got %d", name,
          byte);
    close(fresh);
}
static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    NEED(!mkfifo("both", 0600) && !mkfifo("from-child", 0600), "mkfifo");
    NEED((both = open("both", O_RDWR | O_NONBLOCK)) >= 0 && (reader = open("from-child", O_RDONLY | O_NONBLOCK)) >= 0,
         "open");
    child = child_start(answer, open_writer, NULL);
    put();
}
static void check(void) {
    CHECK_EQ(fcntl(both, F_GETFL) & (O_ACCMODE | O_NONBLOCK), O_RDWR | O_NONBLOCK, "flags");
    struct stat by_fd = {0}, by_name = {0};
    CHECK(!fstat(both, &by_fd) && !stat("both", &by_name) && by_fd.st_ino == by_name.st_ino,
          "fifo, expected descriptor and name to be one");
    take();
    through_the_name(both, "both"), through_the_name(reader, "from-child");
    char byte;
    CHECK(read(reader, &byte, 1) == -1 && errno == EAGAIN, "empty fifo with a writer, expected EAGAIN, got %d", errno);
    put();
}
static void step(void) {
    take();
    generation++;
    put();
}
static void digest(void) { digest_number(generation); }
PROGRAM(setup, check, step, digest)
