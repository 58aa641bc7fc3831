// Proves: pipes survive with contents, capacity, flags and which ends are open, in one process and across two.
// How: pipes that are empty, part full, brim full, nonblocking, in packet mode, without writer or without reader; a
// check drains and compares each and fills it again. Two more run to a child and back, with bytes on their way in both.
#include "children.h"

enum { EMPTY, PARTLY, FULL, PACKETS, NO_WRITER, NO_READER, LARGE, PIPES };
static int pipes[PIPES][2], to_child[2], from_child[2];
static struct child child;
static uint64_t generation;
static size_t full_bytes;
enum { TAKE = 1, GIVE };
#define IN_FLIGHT 3000

static uint64_t seed_of(int i) { return generation * 100000 + i * 1000000; }
static size_t bytes_of(int i) {
    return i == EMPTY || i == NO_READER ? 0
           : i == FULL                  ? full_bytes
           : i == PACKETS               ? 300
           : i == LARGE                 ? 200000
                                        : 5000 + generation;
}
static void fill_pipe(int i) {
    static char block[1 << 20];
    size_t bytes = bytes_of(i);
    fill(block, bytes, seed_of(i));
    if (i == PACKETS) {
        for (int n = 0; n < 3; n++) NEED(write(pipes[i][1], block + n * 100, 100) == 100, "packet");
    } else if (i == NO_WRITER) { // filled by a writer that then goes; the old one is empty by now
        close(pipes[i][0]);
        NEED(!pipe(pipes[i]) && write(pipes[i][1], block, bytes) == (ssize_t)bytes && !close(pipes[i][1]), "pipe");
    } else if (bytes)
        NEED(write(pipes[i][1], block, bytes) == (ssize_t)bytes, "filling pipe %d", i);
}
static void drain_pipe(int i) {
    static char block[1 << 20];
    size_t bytes = bytes_of(i), got = 0;
    if (i == PACKETS)
        for (int n = 0; n < 3; n++) {
            // packets that ran together leave nothing to read
            CHECK(readable_within(pipes[i][0], PATIENCE_MS), "packet %d, expected 100 bytes, got none", n);
            if (failure[0]) return;
            CHECK_EQ(read(pipes[i][0], block + n * 100, 4096), 100, "length of packet %d", n);
            got += 100;
        }
    else if (bytes)
        got = read_fully(pipes[i][0], block, bytes);
    CHECK_EQ(got, bytes, "bytes in pipe %d", i);
    CHECK_EQ(differs(block, bytes, seed_of(i)), -1, "contents of pipe %d, offset", i);
}
static int64_t answer(struct question q, void *unused_) {
    (void)unused_;
    static char block[IN_FLIGHT];
    if (q.what == TAKE)
        return read_fully(to_child[0], block, IN_FLIGHT) == IN_FLIGHT ? differs(block, IN_FLIGHT, q.with) : -2;
    fill(block, IN_FLIGHT, q.with);
    return write(from_child[1], block, IN_FLIGHT);
}
static void send_on_its_way(void) {
    char block[IN_FLIGHT];
    fill(block, IN_FLIGHT, seed_of(20));
    CHECK_EQ(write(to_child[1], block, IN_FLIGHT), IN_FLIGHT, "write to the child");
    CHECK_EQ(child_ask(&child, GIVE, seed_of(21)), IN_FLIGHT, "write by the child");
}
static void receive(void) {
    char block[IN_FLIGHT];
    CHECK_EQ(child_ask(&child, TAKE, seed_of(20)), -1, "what the child received, offset");
    CHECK_EQ(read_fully(from_child[0], block, IN_FLIGHT), IN_FLIGHT, "bytes from the child");
    CHECK_EQ(differs(block, IN_FLIGHT, seed_of(21)), -1, "contents from the child, offset");
}
static void close_far_ends(void *unused_) {
    (void)unused_;
    close(to_child[1]), close(from_child[0]);
}
static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    NEED(!pipe(to_child) && !pipe(from_child), "pipe");
    child = child_start(answer, close_far_ends, NULL); // before the others, so that it holds none of their ends
    close(to_child[0]), close(from_child[1]);
    for (int i = 0; i < PIPES; i++)
        NEED(!pipe2(pipes[i], i == PACKETS ? O_DIRECT : i == FULL || i == EMPTY ? O_NONBLOCK | O_CLOEXEC : 0), "pipe2");
    NEED(fcntl(pipes[LARGE][1], F_SETPIPE_SZ, 262144) == 262144, "F_SETPIPE_SZ");
    close(pipes[NO_READER][0]), close(pipes[NO_WRITER][1]);
    full_bytes = fcntl(pipes[FULL][1], F_GETPIPE_SZ);
    for (int i = 0; i < PIPES; i++) fill_pipe(i);
    send_on_its_way();
}
static void check(void) {
    char byte;
    CHECK(write(pipes[FULL][1], "x", 1) == -1 && errno == EAGAIN, "write to a full pipe, expected EAGAIN, got %d",
          errno);
    CHECK(read(pipes[EMPTY][0], &byte, 1) == -1 && errno == EAGAIN, "read of an empty pipe, expected EAGAIN, got %d",
          errno);
    for (int i = 0; i < PIPES; i++) drain_pipe(i);
    CHECK_EQ(read_fully(pipes[NO_WRITER][0], &byte, 1), 0, "end-of-file without a writer");
    CHECK(write(pipes[NO_READER][1], "x", 1) == -1 && errno == EPIPE, "write without a reader, expected EPIPE, got %d",
          errno);
    CHECK_EQ(fcntl(pipes[LARGE][0], F_GETPIPE_SZ), 262144, "capacity set");
    CHECK_EQ(fcntl(pipes[FULL][0], F_GETPIPE_SZ), full_bytes, "capacity by default");
    for (int end = 0; end < 2; end++) {
        CHECK_EQ(fcntl(pipes[EMPTY][end], F_GETFL) & O_NONBLOCK, O_NONBLOCK, "nonblocking flag of end %d", end);
        CHECK_EQ(fcntl(pipes[LARGE][end], F_GETFL) & O_NONBLOCK, 0, "blocking flag of end %d", end);
        CHECK_EQ(fcntl(pipes[EMPTY][end], F_GETFD), FD_CLOEXEC, "close-on-exec of end %d", end);
        CHECK_EQ(fcntl(pipes[LARGE][end], F_GETFL) & O_ACCMODE, end ? O_WRONLY : O_RDONLY, "access mode of end %d",
                 end);
    }
    for (int i = 0; i < PIPES; i++) fill_pipe(i);
    receive(), send_on_its_way();
}
static void step(void) {
    for (int i = 0; i < PIPES; i++) drain_pipe(i);
    receive();
    generation++;
    for (int i = 0; i < PIPES; i++) fill_pipe(i);
    send_on_its_way();
}
static void digest(void) {
    digest_number(generation);
    for (int i = 0; i < PIPES; i++) digest_number(bytes_of(i));
}
PROGRAM(setup, check, step, digest)
