// Proves: user, group, supplementary groups, capabilities and the flags around them survive, in every thread.
// How: everything the kernel says about them is recorded and compared. A step gives up one effective
// capability (where there is one) and sets no_new_privs, so that a restore must reproduce more than what it started
// with.
#include "workers.h"
#include <linux/capability.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>

struct credentials {
    uid_t uid[3], fsuid;
    gid_t gid[3], fsgid, groups[256];
    int group_count, no_new_privs, dumpable, keep, secure;
    struct __user_cap_data_struct capabilities[2];
    uint64_t bounding, ambient;
};
static struct credentials expected[2];
static struct worker worker;
static uint64_t steps;
enum { RECORD = 1, GIVE_UP, LOOK };

static void read_all(struct credentials *c) {
    memset(c, 0, sizeof *c);
    getresuid(&c->uid[0], &c->uid[1], &c->uid[2]);
    getresgid(&c->gid[0], &c->gid[1], &c->gid[2]);
    c->fsuid = setfsuid(-1), c->fsgid = setfsgid(-1); // invalid ids change nothing and tell
    c->group_count = getgroups(COUNT(c->groups), c->groups);
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    syscall(SYS_capget, &header, c->capabilities);
    for (int i = 0; i <= 63; i++) {
        if (prctl(PR_CAPBSET_READ, i) == 1) c->bounding |= 1ull << i;
        if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, i, 0, 0) == 1) c->ambient |= 1ull << i;
    }
    c->no_new_privs = prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0);
    c->dumpable = prctl(PR_GET_DUMPABLE), c->keep = prctl(PR_GET_KEEPCAPS), c->secure = prctl(PR_GET_SECUREBITS);
}
static void give_up_one(void) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    syscall(SYS_capget, &header, data);
    data[1].effective = 0;
    data[0].effective &= data[0].effective - 1; // the lowest, only as effective: permitted keeps it
    CHECK_EQ(syscall(SYS_capset, &header, data), 0, "capset");
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}
static void look(int index) {
    struct credentials now, *before = &expected[index];
    read_all(&now);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(now.uid[i], before->uid[i], "uid %d of thread %d", i, index);
        CHECK_EQ(now.gid[i], before->gid[i], "gid %d of thread %d", i, index);
    }
    CHECK_EQ(now.fsuid, before->fsuid, "fsuid of thread %d", index);
    CHECK_EQ(now.fsgid, before->fsgid, "fsgid of thread %d", index);
    CHECK_EQ(now.group_count, before->group_count, "number of groups of thread %d", index);
    CHECK(!memcmp(now.groups, before->groups, sizeof now.groups), "groups of thread %d, first expected %d, got %d",
          index, before->groups[0], now.groups[0]);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(now.capabilities[i].effective, before->capabilities[i].effective, "effective %d of thread %d", i,
                 index);
        CHECK_EQ(now.capabilities[i].permitted, before->capabilities[i].permitted, "permitted %d of thread %d", i,
                 index);
        CHECK_EQ(now.capabilities[i].inheritable, before->capabilities[i].inheritable, "inheritable %d of thread %d", i,
                 index);
    }
    CHECK_EQ(now.bounding, before->bounding, "bounding set of thread %d", index);
    CHECK_EQ(now.ambient, before->ambient, "ambient set of thread %d", index);
    CHECK_EQ(now.no_new_privs, before->no_new_privs, "no_new_privs of thread %d", index);
    CHECK_EQ(now.dumpable, before->dumpable, "dumpable");
    CHECK_EQ(now.keep, before->keep, "keepcaps of thread %d", index);
    CHECK_EQ(now.secure, before->secure, "securebits of thread %d", index);
}
static void answer(struct worker *self, int question) {
    if (question == GIVE_UP) give_up_one();
    if (question != LOOK)
        read_all(&expected[self->index]);
    else
        look(self->index);
}
static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    read_all(&expected[0]);
    worker_start(&worker, 1, answer);
    worker_ask(&worker, RECORD);
}
static void check(void) {
    look(0);
    worker_ask(&worker, LOOK);
}
static void step(void) { // the second thread gives up twice as many, so that threads differ
    steps++;
    give_up_one();
    read_all(&expected[0]);
    worker_ask(&worker, GIVE_UP), worker_ask(&worker, GIVE_UP);
}
static void digest(void) { digest_number(steps), digest_bytes(expected, sizeof expected); }
PROGRAM(setup, check, step, digest)
