// Hostile acts drawn from a seed, a few kinds of them in any order: schedule SEED TARGET.
//
//   harness                     program
//      | <--- names of acts ----- |   a calm first process, which answers lines and keeps workers going
//      | ------- any line ------> |
//      | <-- fine, or escaped --- |   workers do at any moment what makes a capture or restore stumble
//
// TARGET is a file of the host, which links lead to. `escaped` means that a worker made a call that no machine may
// make; nothing else here may fail, however the acts end. crates/engine/tests/escape/schedules.rs draws the seeds.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/rseq.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

enum { WORKERS = 4, ACTS_BEFORE_REST = 8, THREADS = 200, STORM = 24, DEPTH = 400, WIDTH = 300 };
#define RESERVED 0x6f0000000000ul // crates/spawner/src/layout.rs
#define RESERVED_SIZE 0x20000000ul
#define PAGE 4096ul

static const char *target, *self = "/bin/schedule";
static volatile int *escaped; // shared with all workers, and after it the first process's threads
static uint64_t chosen;       // acts of this schedule, a bit each

// ---- chance ----
static __thread uint64_t state;
static uint64_t draw(void) {
    uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}
static unsigned below(unsigned most) { return draw() % most; }
static void rest(unsigned most_us) {
    struct timespec time = {0, (below(most_us) + 1) * 1000};
    nanosleep(&time, NULL);
}
static void end_children(void) {
    while (waitpid(-1, NULL, WNOHANG | __WALL) > 0) {}
}
// A call of which every machine is told that it does not exist.
static void try_to_escape(void) {
    char parameters[120] = {0};
    if (syscall(SYS_io_uring_setup, 1, parameters) >= 0 || errno != ENOSYS) *escaped = 1;
}

static pid_t somebody(void) { // near a parent; not the calm one
    pid_t whom = getppid() + (int)below(60);
    return whom <= 1 || whom == escaped[1] || whom == escaped[2] ? getpid() : whom;
}

// ---- processes ----
static void leaf(void) {
    rest(20000);
    if (below(3) == 0) execl(self, self, "leaf", NULL);
    _exit(0);
}
static void fork_storm(void) {
    for (unsigned i = below(STORM); i > 0; i--)
        if (fork() == 0) {
            if (below(3) == 0 && fork() == 0) leaf(); // an orphan soon
            leaf();
        }
    rest(10000);
    end_children();
}
static void siblings(void) { // children of our parent, who did not ask for them
    for (unsigned i = below(4); i > 0; i--)
        if (syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0) == 0) leaf();
}
static void reap_others(void) {
    prctl(PR_SET_CHILD_SUBREAPER, below(2), 0, 0, 0);
    if (fork() == 0) {
        if (fork() == 0) leaf();
        _exit(0);
    }
}
static void held_vfork(void) {
    pid_t child = vfork();
    if (child == 0) {
        struct timespec time = {0, 30000000};
        nanosleep(&time, NULL);
        _exit(0);
    }
    end_children();
}
static void become_anew(void) {
    char seed[32], own[32];
    snprintf(seed, sizeof seed, "%lu", draw());
    snprintf(own, sizeof own, "%lu", chosen);
    execl(self, self, "worker", seed, own, target, NULL);
}
static void vanish(void) { _exit(0); }
static void toggle_dumpable(void) { prctl(PR_SET_DUMPABLE, below(2), 0, 0, 0); }
static void new_group(void) { below(2) ? setsid() : setpgid(0, 0); }

// ---- threads, signals, timers ----
static void *thread(void *seed) {
    state = (uintptr_t)seed;
    for (unsigned i = below(50); i > 0; i--) below(2) ? sched_yield() : rest(2000);
    return NULL;
}
static void many_threads(void) {
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 32 * 1024);
    pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
    pthread_t made;
    for (unsigned i = below(THREADS); i > 0; i--)
        if (pthread_create(&made, &small, thread, (void *)(uintptr_t)draw())) break;
}
static void ignore(int signal) {}
static void handle_all(void) {
    struct sigaction action = {.sa_handler = ignore, .sa_flags = below(2) ? SA_RESTART : SA_NODEFER};
    const int signals[] = {SIGTRAP, SIGALRM, SIGVTALRM, SIGUSR1, SIGSYS, SIGCONT, SIGCHLD, SIGTSTP};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) sigaction(signals[i], &action, NULL);
}
static void interval_timers(void) {
    struct itimerval often = {{0, 300 + below(2000)}, {0, 300 + below(2000)}}, never = {0};
    int which = below(2) ? ITIMER_REAL : ITIMER_VIRTUAL;
    setitimer(which, &often, NULL);
    rest(30000);
    if (below(2)) setitimer(which, &never, NULL);
}
static void traps_by_timer(void) {
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGTRAP};
    struct itimerspec often = {{0, 700000}, {0, 700000}};
    timer_t timer;
    if (timer_create(CLOCK_MONOTONIC, &event, &timer)) return;
    timer_settime(timer, 0, &often, NULL);
    rest(30000);
    if (below(2)) timer_delete(timer);
}
static void signal_somebody(void) {
    const int signals[] = {SIGTRAP, SIGSTOP, SIGCONT, SIGUSR1, SIGKILL, SIGSEGV, SIGTSTP};
    pid_t whom = somebody();
    kill(whom, signals[below(7)]);
    kill(whom, SIGCONT);
}
static void trap_oneself(void) { __asm__ volatile("int3"); }
static void queue_traps(void) {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    raise(SIGTRAP);
    rest(5000);
    sigprocmask(SIG_UNBLOCK, &all, NULL);
}

// ---- memory ----
static char *somewhere(void) { // in or beside the pages that the engine left
    const unsigned long places[] = {RESERVED, RESERVED + 0x10000, RESERVED + 0x1000000, RESERVED - PAGE};
    return (char *)(places[below(4)] + below(4) * PAGE);
}
static void clear(char *at) { // soon, mostly: a capture is refused as long as something is there
    rest(3000);
    if (below(20)) munmap(at, 4 * PAGE);
}
static void map_there(void) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | (below(2) ? MAP_FIXED : MAP_FIXED_NOREPLACE);
    char *at = mmap(somewhere(), (1 + below(3)) * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (at != MAP_FAILED) clear(at);
}
static void unmap_there(void) { munmap(somewhere(), (1 + below(4)) * PAGE); }
static void protect_there(void) { mprotect(somewhere(), PAGE, below(8)); }
static void move_there(void) {
    char *at = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *there = somewhere();
    if (below(2) && mremap(at, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, there) != MAP_FAILED)
        clear(there);
    else
        mremap(there, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, at);
}
static void seal_there(void) { syscall(462 /* mseal */, somewhere(), PAGE, 0); }
static void write_memory(void) { // of oneself, of a relative, of whoever lives there
    char path[64], bytes[64];
    memset(bytes, below(2) ? 0xcc : 0x90, sizeof bytes);
    if (below(2))
        strcpy(path, "/proc/self/mem");
    else
        snprintf(path, sizeof path, "/proc/%d/mem", somebody());
    int fd = open(path, O_RDWR);
    if (fd < 0) return;
    for (int i = 0; i < 20; i++) {
        pwrite(fd, bytes, sizeof bytes, (off_t)(uintptr_t)somewhere());
        rest(500);
    }
    close(fd);
}
static void churn(void) {
    char *all = mmap(NULL, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) return;
    for (int i = 0; i < 200; i++) {
        char *page = all + below(64) * PAGE;
        switch (below(5)) {
        case 0: munmap(page, PAGE); break;
        case 1: mprotect(page, PAGE, below(4)); break;
        case 2: madvise(page, PAGE, below(2) ? MADV_DONTNEED : MADV_DONTFORK); break;
        case 3: mmap(page, PAGE, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); break;
        case 4: mremap(page, PAGE, 2 * PAGE, MREMAP_MAYMOVE); break;
        }
    }
    munmap(all, 64 * PAGE);
}
// The kernel goes to `abort` when it finds the thread in the range, which is where the engine's pages are.
static void restartable(void) {
    static struct __attribute__((aligned(32))) {
        uint32_t version, flags;
        uint64_t start, length, abort;
    } section;
    extern const char abort_at[];
    __asm__ volatile goto("jmp %l[over]\n"
                          ".long 0x53053053\n" // what glibc registers
                          ".globl abort_at\n"
                          "abort_at: jmp %l[aborted]\n"
                          :
                          :
                          : "memory"
                          : over, aborted);
over:
    section.start = RESERVED, section.length = RESERVED_SIZE, section.abort = (uintptr_t)abort_at;
    struct rseq *own = (struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset);
    for (int i = 0; i < 20; i++) {
        own->rseq_cs = (uintptr_t)&section;
        rest(2000);
    }
    return;
aborted: // wherever the stack is now
    try_to_escape();
    for (;;) pause();
}
static void narrow(void) { // and go on under it
    const unsigned answers[] = {SECCOMP_RET_ERRNO | EPERM, SECCOMP_RET_TRAP, SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_TRACE,
                                SECCOMP_RET_USER_NOTIF};
    const unsigned calls[] = {SYS_mmap, SYS_munmap, SYS_clone, SYS_prctl, SYS_rt_sigaction, SYS_brk, SYS_futex};
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[below(7)], 0, 1),
        BPF_STMT(BPF_RET | BPF_K, answers[below(5)]),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog header = {4, program};
    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, below(2) ? SECCOMP_FILTER_FLAG_NEW_LISTENER : 0, &header);
}

// ---- files, in a directory that all workers share ----
static void name_of(char *name, size_t size) { snprintf(name, size, "/tmp/s/%u", below(12)); }
static void swap(void) {
    char name[64], other[64];
    for (int i = 0; i < 60; i++) {
        name_of(name, sizeof name), name_of(other, sizeof other);
        switch (below(9)) {
        case 0: unlink(name), symlink(target, name); break;
        case 1: unlink(name), mkfifo(name, 0666); break;
        case 2: unlink(name), mkdir(name, 0777); break;
        case 3: unlink(name), symlink("/proc/self/mem", name); break;
        case 4: unlink(name), link(other, name); break;
        case 5: unlink(name), symlink("../../../../../../../../etc", name); break;
        case 6: syscall(SYS_renameat2, AT_FDCWD, name, AT_FDCWD, other, 2 /* exchange */); break;
        case 7: rename(name, other), rmdir(name); break;
        default: close(open(name, O_CREAT | O_RDWR | O_NONBLOCK | O_NOFOLLOW, 0666));
        }
    }
}
static void deep(void) {
    int here = open("/tmp/s", O_DIRECTORY | O_PATH);
    for (int i = 0; here >= 0 && i < DEPTH; i++) {
        mkdirat(here, "d", 0777);
        int next = openat(here, "d", O_DIRECTORY | O_PATH | O_NOFOLLOW);
        close(here), here = next;
    }
    close(here);
}
static void wide(void) {
    char name[80];
    unsigned base = below(4);
    for (int i = 0; i < WIDTH; i++) {
        snprintf(name, sizeof name, "/tmp/s/w%u-%d", base, i);
        i % 2 ? close(open(name, O_CREAT | O_RDWR, 0666)) : (void)unlink(name);
    }
}
static void sparse(void) {
    int fd = open("/tmp/s/sparse", O_CREAT | O_RDWR, 0666);
    ftruncate(fd, below(2) ? 1ll << 30 : 4096);
    pwrite(fd, "x", 1, (off_t)below(1 << 20) << 10);
    close(fd);
}
static void attributes(void) {
    static char value[3000];
    char name[64], key[64];
    name_of(name, sizeof name);
    for (int i = 0; i < 8; i++) {
        snprintf(key, sizeof key, "user.%u", below(100));
        lsetxattr(name, key, value, below(sizeof value), 0);
    }
}
static void deleted(void) {
    int fd = open("/tmp/s/gone", O_CREAT | O_RDWR, 0666);
    unlink("/tmp/s/gone");
    for (int i = 0; i < 20; i++) write(fd, target, strlen(target));
    rest(10000);
    if (below(2)) close(fd);
}
static void odd_names(void) {
    char name[] = "/tmp/s/odd-?-\n (deleted)";
    name[11] = 128 + below(100);
    close(open(name, O_CREAT | O_RDWR, 0666));
    rest(5000);
    unlink(name);
}
static void pipes(void) {
    int ends[2];
    if (pipe2(ends, O_NONBLOCK)) return;
    static char block[8192];
    while (write(ends[1], block, 1 + below(sizeof block)) > 0) {}
    rest(5000);
    if (below(2)) close(ends[0]);
    close(ends[1]);
}

#define ACT(name) {#name, name}
static const struct {
    const char *name;
    void (*run)(void);
} acts[] = {
    ACT(fork_storm), ACT(siblings), ACT(reap_others), ACT(held_vfork), ACT(become_anew), ACT(vanish),
    ACT(toggle_dumpable), ACT(new_group), ACT(many_threads), ACT(handle_all), ACT(interval_timers),
    ACT(traps_by_timer), ACT(signal_somebody), ACT(queue_traps), ACT(trap_oneself), ACT(map_there),
    ACT(unmap_there), ACT(protect_there), ACT(move_there), ACT(seal_there), ACT(write_memory), ACT(churn),
    ACT(restartable), ACT(narrow), ACT(swap), ACT(deep), ACT(wide), ACT(sparse), ACT(attributes), ACT(deleted),
    ACT(odd_names), ACT(pipes),
};
enum { ACTS = sizeof acts / sizeof *acts };

// With all of them at once, a capture would meet the same refusal again and again.
static uint64_t choose(void) {
    uint64_t some = 0;
    for (unsigned count = 2 + below(7); count > 0; count--) some |= 1ul << below(ACTS);
    return some;
}
static void work(uint64_t seed) {
    state = seed;
    if (below(4)) handle_all();
    for (;;) {
        for (int i = 0; i < ACTS_BEFORE_REST; i++) {
            unsigned next = below(ACTS);
            if (chosen >> next & 1) acts[next].run();
            try_to_escape();
        }
        end_children();
        rest(20000);
    }
}
static pid_t start_worker(void) {
    uint64_t seed = draw();
    pid_t worker = fork();
    if (worker == 0) {
        // the C library complains there about calls that a filter refuses; it is no answer
        dup2(open("/dev/null", O_WRONLY), 2);
        work(seed);
    }
    return worker;
}
// Workers come and go; a few are always there. Other children end here too: if each of them were followed by a worker,
// whose siblings were followed by others, the machine would soon be past its memory limit and ended for that.
static _Noreturn void *keep_working(void *seed) {
    state = (uintptr_t)seed;
    escaped[2] = syscall(SYS_gettid);
    pid_t workers[WORKERS] = {0}, ended = -1;
    for (;;) {
        for (int i = 0; i < WORKERS; i++)
            if (workers[i] <= 0 || workers[i] == ended) workers[i] = start_worker();
        ended = waitpid(-1, NULL, __WALL);
        rest(3000);
    }
}

int main(int argc, char **argv) {
    if (argc < 3) _exit(0); // a leaf
    const char *path = "/tmp/escaped";
    int fd = open(path, O_CREAT | O_RDWR, 0600);
    if (ftruncate(fd, 4096)) return 1;
    escaped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    target = argv[argc - 1];
    if (argc == 5) {
        chosen = strtoull(argv[3], NULL, 10);
        work(strtoull(argv[2], NULL, 10));
    }
    mkdir("/tmp/s", 0777);
    escaped[1] = getpid();
    state = strtoull(argv[1], NULL, 10);
    chosen = choose();
    pthread_t worker;
    pthread_create(&worker, NULL, keep_working, (void *)(uintptr_t)draw());
    for (int i = 0; i < ACTS; i++)
        if (chosen >> i & 1) printf("%s ", acts[i].name);
    printf("\n");
    fflush(stdout);
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        puts(*escaped ? "escaped" : "fine");
        fflush(stdout);
    }
    return 0;
}
