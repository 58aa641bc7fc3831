// Proves: listening unix sockets survive: their names, connections waiting to be accepted with data in them, and that
// new clients can connect by name afterwards.
// How: two listeners, one at a path and one abstract, have two clients each in the backlog; a check accepts them in
// order, talks both ways, and connects again. A bound datagram socket holds a datagram.
#include "program.h"
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { PATH, ABSTRACT, LISTENERS };
static int listeners[LISTENERS], clients[LISTENERS][2], datagrams;
static struct sockaddr_un addresses[LISTENERS + 1];
static socklen_t lengths[LISTENERS + 1];
static uint64_t generation;

static uint64_t word(int i, int n) { return mix(generation * 100 + i * 10 + n); }
static void connect_clients(int i) {
    for (int n = 0; n < 2; n++) {
        NEED((clients[i][n] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0)) >= 0, "socket");
        CHECK_EQ(connect(clients[i][n], (void *)&addresses[i], lengths[i]), 0, "connect to listener %d", i);
        uint64_t hello = word(i, n);
        CHECK_EQ(write(clients[i][n], &hello, 8), 8, "hello to listener %d", i);
    }
}
static void serve_clients(int i) {
    for (int n = 0; n < 2; n++) {
        CHECK(readable_within(listeners[i], PATIENCE_MS), "client %d of listener %d, expected one waiting, got none", n,
              i);
        int served = accept4(listeners[i], NULL, NULL, SOCK_NONBLOCK);
        uint64_t hello = 0, reply = ~word(i, n), heard = 0;
        CHECK(served >= 0 && read_fully(served, &hello, 8) == 8 && hello == word(i, n),
              "hello of client %d, expected its word, got %" PRIx64, n, hello);
        CHECK_EQ(write(served, &reply, 8), 8, "reply");
        CHECK(read_fully(clients[i][n], &heard, 8) == 8 && heard == reply,
              "reply to client %d, expected it, got %" PRIx64, n, heard);
        close(served);
        CHECK_EQ(read_fully(clients[i][n], &heard, 1), 0, "end-of-file at client %d", n);
        close(clients[i][n]);
    }
}
static void send_datagram(void) {
    int sender = socket(AF_UNIX, SOCK_DGRAM, 0);
    uint64_t text = word(7, 0);
    CHECK_EQ(sendto(sender, &text, 8, 0, (void *)&addresses[2], lengths[2]), 8, "sendto by name");
    close(sender);
}
static void take_datagram(void) {
    uint64_t text = 0;
    CHECK(recv(datagrams, &text, 8, MSG_DONTWAIT) == 8 && text == word(7, 0),
          "datagram, expected its word, got %" PRIx64, text);
}
static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    for (int i = 0; i <= LISTENERS; i++) {
        addresses[i].sun_family = AF_UNIX;
        int n = i == ABSTRACT ? snprintf(addresses[i].sun_path + 1, 60, "program-%d", getpid()) + 1
                              : snprintf(addresses[i].sun_path, 60, i ? "datagrams" : "listener") + 1;
        lengths[i] = offsetof(struct sockaddr_un, sun_path) + n;
        int fd = socket(AF_UNIX, i < LISTENERS ? SOCK_STREAM : SOCK_DGRAM, 0);
        NEED(fd >= 0 && !bind(fd, (void *)&addresses[i], lengths[i]), "bind");
        if (i == LISTENERS) {
            datagrams = fd;
            break;
        }
        NEED(!listen(fd, 5), "listen");
        listeners[i] = fd;
    }
    connect_clients(PATH), connect_clients(ABSTRACT);
    send_datagram();
}
static void check(void) {
    for (int i = 0; i < LISTENERS; i++) {
        struct sockaddr_un name = {0};
        socklen_t length = sizeof name;
        int accepting = 0;
        CHECK_EQ(getsockname(listeners[i], (void *)&name, &length), 0, "getsockname of %d", i);
        CHECK(length == lengths[i] && !memcmp(&name, &addresses[i], length),
              "name of %d, expected its own, got length %d", i, (int)length);
        length = sizeof accepting;
        getsockopt(listeners[i], SOL_SOCKET, SO_ACCEPTCONN, &accepting, &length);
        CHECK_EQ(accepting, 1, "SO_ACCEPTCONN of %d", i);
        serve_clients(i);
        CHECK(!readable_within(listeners[i], 0), "backlog of %d, expected empty", i);
        connect_clients(i);
    }
    take_datagram();
    send_datagram();
}
static void step(void) {
    serve_clients(PATH), serve_clients(ABSTRACT), take_datagram();
    generation++;
    connect_clients(PATH), connect_clients(ABSTRACT), send_datagram();
}
static void digest(void) { digest_number(generation); }
PROGRAM(setup, check, step, digest)
