// Proves: UDP sockets survive: bound address, connected peer, options, and that datagrams go both ways.
// How: a bound and a connected socket talk over loopback; a third is bound to the wildcard address with a chosen port.
// Nothing is left queued: a datagram may be lost by right, so no program could be blamed for missing it.
#include "program.h"
#include <arpa/inet.h>
#include <sys/socket.h>

static int bound, connected, wildcard;
static struct sockaddr_in bound_at = {.sin_family = AF_INET}, connected_at, wildcard_at = {.sin_family = AF_INET};
static uint64_t steps, sent;

static uint16_t port(int fd, int (*ask)(int, struct sockaddr *, socklen_t *)) {
    struct sockaddr_in name = {0};
    socklen_t length = sizeof name;
    return ask(fd, (void *)&name, &length) ? 0 : ntohs(name.sin_port);
}
static int get_name(int fd, struct sockaddr *a, socklen_t *l) { return getsockname(fd, a, l); }
static int get_peer(int fd, struct sockaddr *a, socklen_t *l) { return getpeername(fd, a, l); }

static void talk(void) {
    uint64_t word = mix(++sent), got = 0;
    struct sockaddr_in from = {0};
    socklen_t length = sizeof from;
    CHECK_EQ(send(connected, &word, 8, 0), 8, "send through the connected one");
    CHECK(readable_within(bound, PATIENCE_MS), "datagram at the bound one, expected, got none");
    CHECK(recvfrom(bound, &got, 8, MSG_DONTWAIT, (void *)&from, &length) == 8 && got == word,
          "datagram, expected its word, got %" PRIx64, got);
    CHECK_EQ(ntohs(from.sin_port), ntohs(connected_at.sin_port), "sender's port");
    word = ~word;
    CHECK_EQ(sendto(bound, &word, 8, 0, (void *)&from, length), 8, "reply");
    CHECK(readable_within(connected, PATIENCE_MS), "reply, expected, got none");
    CHECK(recv(connected, &got, 8, MSG_DONTWAIT) == 8 && got == word, "reply, expected its word, got %" PRIx64, got);
    struct sockaddr_in there = wildcard_at;
    there.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK_EQ(sendto(bound, &word, 8, 0, (void *)&there, sizeof there), 8, "send to the wildcard one");
    CHECK(readable_within(wildcard, PATIENCE_MS) && recv(wildcard, &got, 8, MSG_DONTWAIT) == 8 && got == word,
          "wildcard one, expected the word");
}
static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    socklen_t length = sizeof bound_at;
    bound_at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    bound = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0), connected = socket(AF_INET, SOCK_DGRAM, 0),
    wildcard = socket(AF_INET, SOCK_DGRAM, 0);
    NEED(!bind(bound, (void *)&bound_at, length) && !getsockname(bound, (void *)&bound_at, &length), "bind");
    NEED(!connect(connected, (void *)&bound_at, length) && !getsockname(connected, (void *)&connected_at, &length),
         "connect");
    NEED(!bind(wildcard, (void *)&wildcard_at, length) && !getsockname(wildcard, (void *)&wildcard_at, &length),
         "bind");
    int on = 1;
    setsockopt(bound, SOL_SOCKET, SO_BROADCAST, &on, sizeof on);
}
static void check(void) {
    CHECK_EQ(port(bound, get_name), ntohs(bound_at.sin_port), "port of the bound one");
    CHECK_EQ(port(wildcard, get_name), ntohs(wildcard_at.sin_port), "port of the wildcard one");
    CHECK_EQ(port(connected, get_name), ntohs(connected_at.sin_port), "port of the connected one");
    CHECK_EQ(port(connected, get_peer), ntohs(bound_at.sin_port), "peer of the connected one");
    CHECK_EQ(port(bound, get_peer), 0, "peer of the bound one");
    CHECK_EQ(fcntl(bound, F_GETFL) & O_NONBLOCK, O_NONBLOCK, "nonblocking flag");
    int value = 0;
    socklen_t length = sizeof value;
    getsockopt(bound, SOL_SOCKET, SO_BROADCAST, &value, &length);
    CHECK_EQ(value, 1, "SO_BROADCAST");
    char byte;
    CHECK(recv(bound, &byte, 1, 0) == -1 && errno == EAGAIN, "empty queue, expected EAGAIN, got %d", errno);
    talk();
}
static void step(void) {
    steps++;
    talk();
}
static void digest(void) { digest_number(steps); }
PROGRAM(setup, check, step, digest)
