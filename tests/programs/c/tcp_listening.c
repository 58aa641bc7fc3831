// Proves: a listening TCP socket survives with address, port, options and the ability to accept.
// How: it listens on 127.0.0.1; a check connects to it from a thread of its own process, sends, and has it echoed.
#include "program.h"
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

static int listener, listener6 = -1;
static struct sockaddr_in address = {.sin_family = AF_INET};
static struct sockaddr_in6 address6 = {.sin6_family = AF_INET6};
static uint64_t steps, echoed;

static void *serve_one(void *fd_) {
    int fd = (int)(long)fd_, served = readable_within(fd, PATIENCE_MS) ? accept(fd, NULL, NULL) : -1;
    char block[1000];
    ssize_t n = served < 0 ? -1 : read_fully(served, block, sizeof block);
    if (n > 0 && write(served, block, n) != n) fail("echo, expected %zd bytes written, got errno %d", n, errno);
    close(served);
    return NULL;
}
static void echo(int fd, const void *to, socklen_t length, int family) {
    pthread_t server;
    NEED(!pthread_create(&server, NULL, serve_one, (void *)(long)fd), "thread");
    int client = socket(family, SOCK_STREAM, 0);
    char block[1000] = "";
    CHECK_EQ(connect(client, to, length), 0, "connect");
    fill(block, sizeof block, ++echoed);
    CHECK_EQ(write(client, block, sizeof block), sizeof block, "send");
    memset(block, 0, sizeof block);
    CHECK_EQ(read_fully(client, block, sizeof block), sizeof block, "echoed bytes");
    CHECK_EQ(differs(block, sizeof block, echoed), -1, "echoed contents, offset");
    CHECK_EQ(read_fully(client, block, 1), 0, "end-of-file");
    close(client);
    pthread_join(server, NULL);
}
static int option(int level, int name) {
    int value = -1;
    socklen_t length = sizeof value;
    getsockopt(listener, level, name, &value, &length);
    return value;
}
static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    int on = 1;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    NEED((listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) >= 0, "socket");
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(listener, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(listener, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    socklen_t length = sizeof address;
    NEED(!bind(listener, (void *)&address, length) && !listen(listener, 17), "bind");
    NEED(!getsockname(listener, (void *)&address, &length), "getsockname");
    listener6 = socket(AF_INET6, SOCK_STREAM, 0); // where there is no IPv6: without
    address6.sin6_addr = in6addr_loopback;
    length = sizeof address6;
    if (listener6 >= 0 && (bind(listener6, (void *)&address6, length) || listen(listener6, 5)))
        close(listener6), listener6 = -1;
    if (listener6 >= 0) getsockname(listener6, (void *)&address6, &length);
}
static void check(void) {
    struct sockaddr_in now;
    socklen_t length = sizeof now;
    CHECK_EQ(getsockname(listener, (void *)&now, &length), 0, "getsockname");
    CHECK_EQ(ntohs(now.sin_port), ntohs(address.sin_port), "port");
    CHECK_EQ(option(SOL_SOCKET, SO_ACCEPTCONN), 1, "SO_ACCEPTCONN");
    CHECK_EQ(option(SOL_SOCKET, SO_REUSEADDR), 1, "SO_REUSEADDR");
    CHECK_EQ(option(SOL_SOCKET, SO_KEEPALIVE), 1, "SO_KEEPALIVE");
    CHECK_EQ(option(IPPROTO_TCP, TCP_NODELAY), 1, "TCP_NODELAY");
    CHECK_EQ(fcntl(listener, F_GETFL) & O_NONBLOCK, O_NONBLOCK, "nonblocking flag");
    CHECK_EQ(fcntl(listener, F_GETFD), FD_CLOEXEC, "close-on-exec");
    CHECK(accept(listener, NULL, NULL) == -1 && errno == EAGAIN, "accept with nobody there, expected EAGAIN, got %d",
          errno);
    echo(listener, &address, sizeof address, AF_INET);
    if (listener6 >= 0) echo(listener6, &address6, sizeof address6, AF_INET6);
}
static void step(void) {
    steps++;
    echo(listener, &address, sizeof address, AF_INET);
}
static void digest(void) { digest_number(steps); }
PROGRAM(setup, check, step, digest)
