// Proves: socket pairs survive with the data queued in both directions, message boundaries, half-closed ends and
// options. How: stream, datagram and sequenced-packet pairs hold unread data; a check receives it, compares, and sends
// it again; another pair leads to a child, and one has been shut down on one side with data still in it.
#include "children.h"
#include <sys/socket.h>
#include <sys/un.h>

enum { STREAM, DATAGRAM, SEQPACKET, HALF_CLOSED, PEER_GONE, PAIRS };
static const int types[PAIRS] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET, SOCK_STREAM, SOCK_STREAM};
static int pairs[PAIRS][2], with_child[2];
static struct child child;
static uint64_t generation;
enum { SEND = 1, RECEIVE };

static uint64_t seed_of(int i, int from, int n) { return generation * 5000 + i * 1000000 + from * 100000 + n * 700; }
static size_t length_of(int n) { return 500 + 100 * n; }
static void send_from(int i, int from) {
    char block[1000];
    for (int n = 0; n < 4; n++) {
        fill(block, length_of(n), seed_of(i, from, n));
        ssize_t sent = send(pairs[i][from], block, length_of(n), MSG_DONTWAIT);
        CHECK_EQ(sent, length_of(n), "send in pair %d", i);
    }
}
static void receive_at(int i, int at) {
    char block[1000];
    for (int n = 0; n < 4; n++) {
        bool boundaries = types[i] != SOCK_STREAM; // then ask for more than the message holds
        ssize_t got = boundaries ? recv(pairs[i][at], block, sizeof block, MSG_DONTWAIT)
                                 : read_fully(pairs[i][at], block, length_of(n));
        CHECK_EQ(got, length_of(n), "message %d at end %d of pair %d", n, at, i);
        CHECK_EQ(differs(block, length_of(n), seed_of(i, !at, n)), -1, "its contents, offset");
    }
}
static int64_t answer(struct question q, void *unused_) {
    (void)unused_;
    char block[1000];
    if (q.what == SEND) {
        fill(block, 1000, q.with);
        return send(with_child[1], block, 1000, MSG_DONTWAIT);
    }
    return read_fully(with_child[1], block, 1000) == 1000 ? differs(block, 1000, q.with) : -2;
}
static void make_half_closed(void) { // data, then the end of one direction; the other stays open
    if (pairs[HALF_CLOSED][0]) close(pairs[HALF_CLOSED][0]), close(pairs[HALF_CLOSED][1]);
    NEED(!socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[HALF_CLOSED]), "socketpair");
    send_from(HALF_CLOSED, 0);
    NEED(!shutdown(pairs[HALF_CLOSED][0], SHUT_WR), "shutdown");
    if (pairs[PEER_GONE][0]) close(pairs[PEER_GONE][0]); // data, then the whole peer goes
    NEED(!socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[PEER_GONE]), "socketpair");
    send_from(PEER_GONE, 1);
    close(pairs[PEER_GONE][1]);
}
static void send_all(void) {
    for (int i = STREAM; i <= SEQPACKET; i++) send_from(i, 0), send_from(i, 1);
    make_half_closed();
    char block[1000];
    fill(block, 1000, seed_of(10, 0, 0));
    CHECK_EQ(send(with_child[0], block, 1000, MSG_DONTWAIT), 1000, "send to the child");
    CHECK_EQ(child_ask(&child, SEND, seed_of(10, 1, 0)), 1000, "send by the child");
}
static void receive_all(void) {
    char block[1000];
    for (int i = STREAM; i <= SEQPACKET; i++) {
        receive_at(i, 0), receive_at(i, 1);
        CHECK(recv(pairs[i][0], block, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN,
              "pair %d drained, expected EAGAIN, got %d", i, errno);
    }
    receive_at(HALF_CLOSED, 1);
    CHECK_EQ(read_fully(pairs[HALF_CLOSED][1], block, 1), 0, "end-of-file after the shutdown");
    CHECK_EQ(send(pairs[HALF_CLOSED][1], "b", 1, MSG_DONTWAIT), 1, "send against the shut direction");
    CHECK_EQ(read_fully(pairs[HALF_CLOSED][0], block, 1), 1, "receive in the open direction");
    CHECK(send(pairs[HALF_CLOSED][0], "x", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE,
          "send after shutdown, expected EPIPE, got %d", errno);
    receive_at(PEER_GONE, 0);
    CHECK_EQ(read_fully(pairs[PEER_GONE][0], block, 1), 0, "end-of-file after the peer went");
    CHECK(send(pairs[PEER_GONE][0], "x", 1, MSG_NOSIGNAL) == -1 && errno == EPIPE,
          "send to nobody, expected EPIPE, got %d", errno);
    CHECK_EQ(child_ask(&child, RECEIVE, seed_of(10, 0, 0)), -1, "what the child received, offset");
    CHECK_EQ(read_fully(with_child[0], block, 1000), 1000, "bytes from the child");
    CHECK_EQ(differs(block, 1000, seed_of(10, 1, 0)), -1, "contents from the child, offset");
}
static int send_buffer;
static int option(int name) {
    int value = -1;
    socklen_t length = sizeof value;
    getsockopt(pairs[STREAM][0], SOL_SOCKET, name, &value, &length);
    return value;
}
static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    for (int i = STREAM; i <= SEQPACKET; i++)
        NEED(!socketpair(AF_UNIX, types[i] | (i == SEQPACKET ? SOCK_NONBLOCK : 0), 0, pairs[i]), "socketpair");
    NEED(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, with_child), "socketpair");
    int on = 1, size = 100000;
    struct timeval timeout = {7, 0};
    setsockopt(pairs[STREAM][0], SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
    setsockopt(pairs[STREAM][0], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    setsockopt(pairs[STREAM][0], SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    send_buffer = option(SO_SNDBUF);
    child = child_start(answer, NULL, NULL);
    close(with_child[1]);
    send_all();
}
static void check(void) {
    for (int i = STREAM; i <= SEQPACKET; i++) {
        int type = -1;
        socklen_t length = sizeof type;
        getsockopt(pairs[i][1], SOL_SOCKET, SO_TYPE, &type, &length);
        CHECK_EQ(type, types[i], "type of pair %d", i);
        CHECK_EQ(fcntl(pairs[i][0], F_GETFL) & O_NONBLOCK, i == SEQPACKET ? O_NONBLOCK : 0,
                 "nonblocking flag of pair %d", i);
    }
    CHECK_EQ(option(SO_PASSCRED), 1, "SO_PASSCRED");
    CHECK_EQ(option(SO_SNDBUF), send_buffer, "SO_SNDBUF");
    CHECK_EQ(option(SO_RCVTIMEO), 7, "SO_RCVTIMEO seconds");
    struct ucred peer = {0};
    socklen_t length = sizeof peer;
    getsockopt(pairs[STREAM][0], SOL_SOCKET, SO_PEERCRED, &peer, &length);
    CHECK_EQ(peer.pid, getpid(), "SO_PEERCRED pid");
    receive_all(), send_all();
}
static void step(void) {
    receive_all();
    generation++;
    send_all();
}
static void digest(void) { digest_number(generation); }
PROGRAM(setup, check, step, digest)
