// Proves: a TCP connection between two processes of the tree either goes on or ends at once for both; nobody hangs.
// How: parent and child share a connection over loopback, with bytes on their way. A check asks for one answer:
// everything arrives, in both directions; or both ends learn of an end (ECONNRESET, EPIPE, end-of-file) in time. If it
// ended, a new connection through the same listener takes its place, which must work. `connection` prints `connection
// kept N ended M`, for a harness that promises more than the above.
#include "children.h"
#include <arpa/inet.h>
#include <sys/socket.h>

#define BYTES 4000
enum { SEND = 1, RECEIVE, CONNECT, ENDED };
static int listener, end = -1; // the parent's end in the parent, the child's in the child
static struct sockaddr_in address = {.sin_family = AF_INET};
static struct child child;
static uint64_t generation, kept, ended;

static uint64_t seed_of(int from) { return generation * 1000 + from * 100000; }
static int64_t send_pattern(uint64_t seed) {
    char block[BYTES];
    fill(block, BYTES, seed);
    return send(end, block, BYTES, MSG_DONTWAIT | MSG_NOSIGNAL);
}
// -1: all there. -2: the connection has ended. -3: nothing happened in time. Otherwise the offset of a wrong byte.
static int64_t receive_pattern(uint64_t seed) {
    char block[BYTES];
    errno = 0;
    ssize_t n = read_fully(end, block, BYTES);
    if (n == BYTES) return differs(block, BYTES, seed);
    return errno == ETIMEDOUT ? -3 : -2;
}
static int64_t has_ended(void) { // 0 when the other side's end is noticed
    char byte;
    if (!readable_within(end, PATIENCE_MS)) return -3;
    ssize_t n = recv(end, &byte, 1, MSG_DONTWAIT);
    return n == 0 || (n < 0 && (errno == ECONNRESET || errno == EPIPE || errno == ENOTCONN || errno == ECONNABORTED))
               ? 0
               : -4;
}
static int64_t answer(struct question q, void *unused_) {
    (void)unused_;
    if (q.what == SEND) return send_pattern(q.with);
    if (q.what == RECEIVE) return receive_pattern(q.with);
    if (q.what == ENDED) return has_ended();
    if (end >= 0) close(end);
    end = socket(AF_INET, SOCK_STREAM, 0);
    return connect(end, (void *)&address, sizeof address) ? -errno : 0;
}
static void connect_both(void) {
    CHECK_EQ(child_ask(&child, CONNECT, 0), 0, "connect by the child");
    if (end >= 0) close(end);
    end = readable_within(listener, PATIENCE_MS) ? accept(listener, NULL, NULL) : -1;
    CHECK(end >= 0, "accept, expected a connection, got errno %d", errno);
}
static void send_both(void) {
    CHECK_EQ(send_pattern(seed_of(0)), BYTES, "send by the parent");
    CHECK_EQ(child_ask(&child, SEND, seed_of(1)), BYTES, "send by the child");
}
static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    NEED((listener = socket(AF_INET, SOCK_STREAM, 0)) >= 0, "socket");
    NEED(!bind(listener, (void *)&address, length) && !listen(listener, 5) &&
             !getsockname(listener, (void *)&address, &length),
         "listen");
    child = child_start(answer, NULL, NULL);
    connect_both();
    send_both();
}
static void receive_both(void) {
    int64_t here = receive_pattern(seed_of(1)), there = child_ask(&child, RECEIVE, seed_of(0));
    if (here == -1 && there == -1) {
        kept++;
        return;
    }
    CHECK(here < 0 && there < 0,
          "data, expected right or none, got wrong bytes (parent %" PRId64 ", child %" PRId64 ")", here, there);
    CHECK(here != -3 && there != -3,
          "end of the connection, expected at once, got a hang (parent %" PRId64 ", child %" PRId64 ")", here, there);
    CHECK_EQ(has_ended(), 0, "parent's end of an ended connection");
    CHECK_EQ(child_ask(&child, ENDED, 0), 0, "child's end of an ended connection");
    ended++;
    connect_both();
}
static void check(void) { receive_both(), send_both(); }
static void step(void) {
    receive_both();
    generation++;
    send_both();
}
static void digest(void) { digest_number(generation); }
static bool command(const char *line) {
    if (strcmp(line, "connection")) return false;
    printf("connection kept %" PRIu64 " ended %" PRIu64 "\n", kept, ended);
    return true;
}
PROGRAM(setup, check, step, digest, command)
