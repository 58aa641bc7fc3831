// Proves: a tree of processes survives as a tree: pids, parents, pipes, memory that diverged after fork, waiting,
// end-of-file and kill.
// How: 2 children, 4 grandchildren, 4 great-grandchildren, each with a block of memory inherited from its parent and
// then partly overwritten with its own pattern; a question travels down the tree and the hashes come back. A check also
// kills a child it keeps for that, waits for it, reads end-of-file, and starts another.
#include "children.h"

#define BYTES (64 * PAGE)
static char *block; // diverges: page i was last written by depth i % 4
static uint64_t path = 1, steps; // which node this is: 1, then 10.., 100..
static int depth;
static pid_t parent;
static struct child kids[2], victim;
static int kid_count;
enum { HASH = 1, STEP, PARENT_KNOWN, IDLE };

static uint64_t seed_of(uint64_t node, int page, uint64_t at_step) { return node * 1000003 + page * 101 + at_step; }
static void write_own_pages(void) {
    for (int page = depth; page < 64; page += 4) fill(block + page * PAGE, PAGE, seed_of(path, page, steps));
}
static void check_block(void) { // own pages are this step's; an ancestor's are as they were at the fork
    for (int page = 0; page < 64; page++) {
        int writer = page % 4;
        if (writer > depth) {
            CHECK(all_zero(block + page * PAGE, PAGE), "page %d of node %d, expected zeros", page, (int)path);
            continue;
        }
        uint64_t node = path;
        for (int i = depth; i > writer; i--) node /= 10;
        long at = differs(block + page * PAGE, PAGE, seed_of(node, page, writer == depth ? steps : 0));
        CHECK(at < 0, "page %d of node %d, expected its pattern, differs at %ld", page, (int)path, at);
    }
}
static int64_t own_hash(void) {
    check_block();
    CHECK_EQ(getppid(), parent, "parent of node %d", (int)path);
    uint64_t sum = hash(block, BYTES, path);
    for (int i = 0; i < kid_count; i++) sum = mix(sum + (uint64_t)child_ask(&kids[i], HASH, 0));
    return failure[0] ? -1 : (int64_t)(sum >> 1);
}
static int64_t answer(struct question q, void *unused_) {
    (void)unused_;
    if (q.what == HASH) return own_hash();
    if (q.what == STEP) {
        steps++;
        write_own_pages();
        for (int i = 0; i < kid_count; i++) child_ask(&kids[i], STEP, 0);
    }
    return 0;
}
static void grow(void *unused_);
static void begin_leafless(void *unused_) {
    (void)unused_;
    kid_count = 0;
}
static void start_kids(int count) {
    uint64_t own = path;
    for (int i = 0; i < count; i++) {
        path = own * 10 + i + 1; // as the child inherits it
        kids[i] = child_start(answer, grow, NULL);
        path = own;
        kid_count = i + 1;
    }
}
static pid_t parent_of_next; // set before each fork by whoever forks
static void grow(void *unused_) {
    (void)unused_;
    depth++, kid_count = 0, parent = parent_of_next;
    write_own_pages();
    parent_of_next = getpid();
    if (depth == 1) start_kids(2);
    if (depth == 2) start_kids(1);
}
static void start_victim(void) {
    victim = child_start(answer, begin_leafless, NULL);
    child_ask(&victim, IDLE, 0);
}

static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    block = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NEED(block != MAP_FAILED, "mmap");
    write_own_pages();
    parent_of_next = getpid();
    parent = getppid();
    start_kids(2);
    start_victim();
}
static int64_t last;
static void check(void) {
    parent = getppid(); // the outermost parent is outside the tree and may change
    last = own_hash();
    CHECK(last != -1, "tree, expected every node in order, got a node that is not");
    CHECK_EQ(child_ask(&victim, IDLE, 0), 0, "victim alive");
    CHECK_EQ(kill(victim.pid, SIGKILL), 0, "kill");
    int status = child_wait(victim.pid);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "victim's status, expected SIGKILL, got %x", status);
    char byte;
    CHECK_EQ(read_fully(victim.hear, &byte, 1), 0, "end-of-file after the victim's end");
    CHECK(write(victim.ask, "x", 1) == -1 && errno == EPIPE, "write to the dead, expected EPIPE, got %d", errno);
    child_forget(&victim);
    start_victim();
}
static void step(void) { answer((struct question){STEP, 0}, NULL); }
static void digest(void) { digest_number(own_hash()); }
PROGRAM(setup, check, step, digest)
