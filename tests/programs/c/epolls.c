// Proves: epoll sets survive: members, events, data words, edge triggering, one-shot state, nesting.
// How: each member is a pipe or eventfd whose readiness is known; a check compares what epoll_wait says, makes
// the others ready in turn, and puts everything back. In a third set an edge and a shot wait to be taken. Events that
// were taken must not come again, and none may be lost.
#include "program.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>

enum { LEVEL, QUIET, EDGE, FIRED, INNER_MEMBER, MEMBERS };
static int outer, inner, members[MEMBERS];
static int waiting, edge_due, shot_due, edge_quiet; // a set, and its members
static uint64_t steps;
#define INNER_DATA 0xabcdef0123456789

static uint64_t data_of(int i) { return mix(i + steps * 100); }
static void add(int epoll, int fd, uint32_t events, uint64_t data, int operation) {
    struct epoll_event event = {.events = events, .data.u64 = data};
    NEED(!epoll_ctl(epoll, operation, fd, &event), "epoll_ctl");
}
static const uint32_t events_of[MEMBERS] = {EPOLLIN, EPOLLIN, EPOLLIN | EPOLLET, EPOLLIN | EPOLLONESHOT, EPOLLIN};
static void put(int i) {
    uint64_t one = 1;
    NEED(write(members[i], &one, 8) == 8, "write");
}
static void take(int i) {
    uint64_t value;
    CHECK_EQ(read(members[i], &value, 8), 8, "read of member %d", i);
}

// Which of the members the set reports now, as a bit mask; the inner set is bit 31.
static unsigned reported(int timeout) {
    struct epoll_event events[16];
    int n = epoll_wait(outer, events, 16, timeout);
    CHECK(n >= 0, "epoll_wait, expected events, got errno %d", errno);
    unsigned mask = 0;
    for (int i = 0; i < n; i++) {
        unsigned bit = 0;
        for (int m = 0; m < INNER_MEMBER; m++)
            if (events[i].data.u64 == data_of(m)) bit = 1u << m;
        if (events[i].data.u64 == INNER_DATA) bit = 1u << 31;
        CHECK(bit, "data word, expected a known one, got %" PRIx64, (uint64_t)events[i].data.u64);
        CHECK_EQ(events[i].events, EPOLLIN, "events reported");
        mask |= bit;
    }
    return mask;
}
// LEVEL and FIRED hold a value; FIRED has been reported once and is disabled; EDGE was reported and not read.
static void settle(void) {
    put(LEVEL), put(FIRED), put(EDGE);
    reported(0);
}
static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    NEED((outer = epoll_create1(EPOLL_CLOEXEC)) >= 0 && (inner = epoll_create1(0)) >= 0, "epoll_create1");
    for (int i = 0; i < MEMBERS; i++) {
        NEED((members[i] = eventfd(0, EFD_NONBLOCK)) >= 0, "eventfd");
        add(i == INNER_MEMBER ? inner : outer, members[i], events_of[i], data_of(i), EPOLL_CTL_ADD);
    }
    add(outer, inner, EPOLLIN, INNER_DATA, EPOLL_CTL_ADD);
    settle();
    NEED((waiting = epoll_create1(0)) >= 0, "epoll_create1");
    NEED((edge_due = eventfd(1, EFD_NONBLOCK)) >= 0 && (shot_due = eventfd(1, EFD_NONBLOCK)) >= 0, "eventfd");
    NEED((edge_quiet = eventfd(0, EFD_NONBLOCK)) >= 0, "eventfd");
    add(waiting, edge_due, EPOLLIN | EPOLLET, 1, EPOLL_CTL_ADD);
    add(waiting, shot_due, EPOLLIN | EPOLLONESHOT, 2, EPOLL_CTL_ADD);
    add(waiting, edge_quiet, EPOLLIN | EPOLLET, 4, EPOLL_CTL_ADD);
}
// Takes what waits, sees that it does not come again, and lets it wait once more.
static void check_waiting(void) {
    struct epoll_event events[8];
    uint64_t mask = 0;
    int n = epoll_wait(waiting, events, 8, 0);
    for (int i = 0; i < n; i++) mask |= events[i].data.u64;
    CHECK_EQ(mask, 3, "events that waited (bits)");
    CHECK_EQ(epoll_wait(waiting, events, 8, 0), 0, "events taken before");
    uint64_t one = 1;
    NEED(write(edge_quiet, &one, 8) == 8, "write");
    CHECK(epoll_wait(waiting, events, 8, PATIENCE_MS) == 1 && events[0].data.u64 == 4, "edge that comes, expected it");
    CHECK_EQ(read(edge_quiet, &one, 8), 8, "read of the quiet edge");
    add(waiting, edge_due, EPOLLIN | EPOLLET, 1, EPOLL_CTL_MOD);
    add(waiting, shot_due, EPOLLIN | EPOLLONESHOT, 2, EPOLL_CTL_MOD);
}
static void check(void) {
    check_waiting();
    CHECK_EQ(reported(0), 1u << LEVEL, "members reported at rest (bits)");
    put(QUIET);
    CHECK_EQ(reported(0), 1u << LEVEL | 1u << QUIET, "members reported with QUIET ready");
    take(QUIET);
    put(EDGE); // a new edge while unread data is there
    CHECK(reported(PATIENCE_MS) & 1u << EDGE, "new edge, expected to be reported, was not");
    CHECK(!(reported(0) & 1u << EDGE), "same edge, expected once, got twice");
    put(INNER_MEMBER);
    CHECK(reported(PATIENCE_MS) & 1u << 31, "nested set, expected to be reported, was not");
    struct epoll_event event;
    CHECK(epoll_wait(inner, &event, 1, 0) == 1 && event.data.u64 == data_of(INNER_MEMBER),
          "member of the nested set, expected its data");
    take(INNER_MEMBER);
    add(outer, members[FIRED], events_of[FIRED], data_of(FIRED), EPOLL_CTL_MOD); // armed again
    CHECK(reported(PATIENCE_MS) & 1u << FIRED, "one-shot armed again, expected to be reported, was not");
    CHECK(!(reported(0) & 1u << FIRED), "one-shot, expected once, got twice");
    for (int i = 0; i < MEMBERS; i++) {
        event = (struct epoll_event){.events = EPOLLIN};
        CHECK(epoll_ctl(i == INNER_MEMBER ? inner : outer, EPOLL_CTL_ADD, members[i], &event) == -1 && errno == EEXIST,
              "member %d added again, expected EEXIST, got %d", i, errno);
    }
    CHECK_EQ(fcntl(outer, F_GETFD), FD_CLOEXEC, "close-on-exec");
}
static void step(void) { // other data words, and a member leaves and comes back
    steps++;
    struct epoll_event event;
    CHECK_EQ(epoll_ctl(outer, EPOLL_CTL_DEL, members[QUIET], &event), 0, "EPOLL_CTL_DEL");
    for (int i = 0; i < MEMBERS; i++)
        add(i == INNER_MEMBER ? inner : outer, members[i], events_of[i], data_of(i),
            i == QUIET ? EPOLL_CTL_ADD : EPOLL_CTL_MOD);
    reported(0); // the one-shot fires and is spent, the edge is seen
}
static void digest(void) {
    digest_number(steps);
    for (int i = 0; i < MEMBERS; i++) digest_number(data_of(i));
}
PROGRAM(setup, check, step, digest)
