// Attacks on the engine while it captures. One order per line of standard input, one answer each.
//
//   harness                      program
//      | <-------- ready --------- |
//      | ---- attack argument ---> |   starts it, and goes on reading
//      | <------- started -------- |
//      |        captures ...       |
//      | -------- result --------> |
//      | <-------- NUMBER -------- |   how often the attack succeeded
//
// What an attack reaches is harmless: it opens what must not open, or makes a call that must be refused, and counts.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/rseq.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// Where the engine's interpreter is (crates/spawner/src/layout.rs).
#define CODE 0x6f0000000000ul

static struct {
    long successes, attempts;
    volatile long counted;
    pid_t own[64];
    int owns;
} *shared;

static int armed;
static pid_t attacker;

static void nap(long us) {
    struct timespec time = {0, us * 1000};
    nanosleep(&time, NULL);
}

// ---- processes that are never in a list when it is read ----
// A child is born beside its parent, to a process whose children were read already (CLONE_PARENT), or falls to it
// when its parent ends (subreaper). Each lives for a moment.
static void born_beside(void) {
    for (;;) {
        if (syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0) == 0) {
            for (int i = 0; i < 20; i++) shared->counted++, nap(1000);
            _exit(0);
        }
        nap(2000);
    }
}
static void chain_of_orphans(void) {
    for (;;) {
        if (fork() > 0) _exit(0);
        shared->counted++;
    }
}
static void start_orphans(const char *kind) {
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    signal(SIGCHLD, SIG_IGN); // nobody has to wait for them
    void (*storm)(void) = strcmp(kind, "chain") ? born_beside : chain_of_orphans;
    attacker = fork();
    if (attacker == 0) storm();
}

// ---- a restartable sequence that covers the engine's code ----
// The kernel sends a thread that it lets run inside the sequence to the abort handler. Here that is not the program's
// own code: it is where the engine makes calls, and the handler is what then runs in its name.
static struct rseq_cs over_code __attribute__((aligned(32)));
static volatile long handler_ran, rseq_field;

static volatile uint64_t *cs_field(void) {
    return (volatile uint64_t *)&((struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset))->rseq_cs;
}

// Makes calls that the filter refuses, counts those that succeed, arms itself again and stops as the engine's own
// code would.
extern char calling_handler[], spinning_handler[];
long refused_calls[2];
__asm__(".text\n"
        ".long 0x53053053\n"
        "calling_handler:\n"
        "lock incq handler_ran(%rip)\n"
        "mov $250, %eax\n" // keyctl(KEYCTL_GET_KEYRING_ID, session, 0)
        "xor %edi, %edi\n"
        "mov $-3, %rsi\n"
        "xor %edx, %edx\n"
        "syscall\n"
        "mov %rax, refused_calls(%rip)\n"
        "mov $447, %eax\n" // memfd_secret(0)
        "xor %edi, %edi\n"
        "syscall\n"
        "mov %rax, refused_calls+8(%rip)\n"
        "mov %rax, %rdi\n"
        "mov $3, %eax\n" // close
        "syscall\n"
        "mov rseq_field(%rip), %rax\n"
        "lea over_code(%rip), %rcx\n"
        "mov %rcx, (%rax)\n"
        "int3\n"
        "1: jmp 1b\n"
        ".long 0x53053053\n"
        "spinning_handler:\n"
        "lock incq handler_ran(%rip)\n"
        "2: jmp 2b\n");

static void arm_sequence(char *handler) {
    rseq_field = (long)cs_field();
    over_code.start_ip = CODE;
    over_code.post_commit_offset = 4096;
    over_code.abort_ip = (uint64_t)handler;
    armed = 1;
}
static void allow_everything_filter(void) {
    struct sock_filter allow = {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW};
    struct sock_fprog program = {1, &allow};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) exit(3);
}
static void start_rseq(const char *kind) {
    if (__rseq_size == 0) exit(4);
    if (strstr(kind, "filtered")) allow_everything_filter();
    arm_sequence(strstr(kind, "spin") ? spinning_handler : calling_handler);
}

// ---- calls at the moment at which the engine takes hold of a thread ----
static void *call_refused(void *unused) {
    (void)unused;
    for (;;) {
        shared->attempts++;
        if (syscall(SYS_keyctl, 0, -3, 0) >= 0 || errno != ENOSYS) shared->successes++;
    }
    return NULL;
}
static void start_window(const char *kind) {
    (void)kind;
    pthread_t thread;
    pthread_create(&thread, NULL, call_refused, NULL);
}

// ---- copies of processes that the engine makes ----
static int is_own(pid_t pid) {
    for (int i = 0; i < shared->owns; i++)
        if (shared->own[i] == pid) return 1;
    return 0;
}
static void open_memory_of_others(void) {
    for (;;) {
        DIR *proc = opendir("/proc");
        if (!proc) exit(5);
        for (struct dirent *entry; (entry = readdir(proc));) {
            pid_t pid = atoi(entry->d_name);
            if (pid <= 0 || is_own(pid)) continue;
            char path[64];
            snprintf(path, sizeof path, "/proc/%d/mem", pid);
            shared->successes++; // it should not even be seen
            int memory = open(path, O_RDWR);
            if (memory >= 0) shared->successes++, close(memory);
        }
        closedir(proc);
    }
}
static void start_writer(const char *kind) {
    (void)kind;
    shared->own[shared->owns++] = getpid();
    // something to copy, so that there is time
    size_t size = 32 << 20;
    char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t at = 0; at < size; at += 64) memory[at] = at >> 12 ^ at;
    pid_t child = fork();
    if (child == 0) {
        nap(10000);
        open_memory_of_others();
    }
    shared->own[shared->owns++] = child;
}

// ---- signals that look like the engine's own ----
static volatile long traps;
static stack_t other_stack;
static void on_trap(int signal) {
    (void)signal;
    traps++;
}
static void start_traps(const char *kind) {
    (void)kind;
    other_stack.ss_size = 64 << 10;
    other_stack.ss_sp = malloc(other_stack.ss_size);
    if (sigaltstack(&other_stack, NULL)) exit(6);
    prctl(PR_SET_PDEATHSIG, SIGUSR2);
    signal(SIGTRAP, on_trap);
}
// What the kernel knows of this process must be what it was told; 0 when it is.
static long wrong_state(void) {
    stack_t stack;
    int death = 0;
    sigaltstack(NULL, &stack);
    prctl(PR_GET_PDEATHSIG, &death);
    struct sigaction action;
    sigaction(SIGTRAP, NULL, &action);
    return (stack.ss_sp != other_stack.ss_sp) + (death != SIGUSR2) + (action.sa_handler != on_trap);
}

// ---- an honest sequence: whoever is stopped inside begins again ----
static volatile long begun_again;
static void *stay_inside(void *unused) {
    (void)unused;
    static struct rseq_cs inside __attribute__((aligned(32)));
    volatile uint64_t *field = cs_field();
    __asm__ volatile("lea 1f(%%rip), %%rax\n"
                     "mov %%rax, 8(%0)\n"
                     "lea 2f(%%rip), %%rcx\n"
                     "sub %%rax, %%rcx\n"
                     "mov %%rcx, 16(%0)\n"
                     "lea 3f(%%rip), %%rax\n"
                     "mov %%rax, 24(%0)\n"
                     "jmp 4f\n"
                     ".long 0x53053053\n"
                     "3: lock incq begun_again(%%rip)\n"
                     "4: mov %0, (%1)\n"
                     "1: pause\n"
                     "jmp 1b\n"
                     "2:\n"
                     :
                     : "r"(&inside), "r"(field)
                     : "rax", "rcx", "memory");
    return NULL;
}
static void start_sequence(const char *kind) {
    (void)kind;
    pthread_t thread;
    pthread_create(&thread, NULL, stay_inside, NULL);
}
static long does_not_begin_again(void) {
    long before = begun_again;
    for (int i = 0; i < 5000 && begun_again == before; i++) nap(1000);
    return begun_again == before;
}

// ---- memory that the kernel may take back ----
static char *droppable;
static void start_droppable(const char *kind) {
    (void)kind;
    droppable = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | 0x08, -1, 0);
    if (droppable == MAP_FAILED) {
        puts("skip");
        exit(0);
    }
    memset(droppable, 7, 8192);
}
// Either what was written is there or zeros are, and it can be written to: the kernel promises no more.
static long lost_droppable(void) {
    long wrong = 0;
    for (int page = 0; page < 2; page++) {
        char *at = droppable + page * 4096;
        for (int i = 0; i < 4096; i++) wrong += at[i] != at[0] || (at[0] != 0 && at[0] != 7);
    }
    memset(droppable, 7, 8192);
    return wrong;
}

// ---- processes that a filter of their own has just condemned ----
static void be_condemned(void) {
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog header = {4, program};
    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &header);
    for (;;) syscall(SYS_getppid);
}
static void start_condemned(const char *kind) {
    (void)kind;
    for (int i = 0; i < 4; i++) {
        if (fork()) continue;
        for (;;) {
            pid_t child = fork();
            if (child == 0) be_condemned();
            waitpid(child, NULL, 0);
        }
    }
}

// ---- orders ----
static const struct {
    const char *name;
    void (*start)(const char *);
} attacks[] = {
    {"orphans", start_orphans},   {"rseq", start_rseq},         {"window", start_window},
    {"writer", start_writer},     {"traps", start_traps},       {"sequence", start_sequence},
    {"droppable", start_droppable}, {"condemned", start_condemned},
};

static long result(void) {
    if (rseq_field) {
        for (int i = 0; i < 2; i++) shared->successes += handler_ran && refused_calls[i] != -ENOSYS;
        return shared->successes + handler_ran;
    }
    if (other_stack.ss_sp) return wrong_state();
    if (begun_again) return does_not_begin_again();
    if (droppable) return lost_droppable();
    return shared->successes;
}

static void obey(char *line) {
    char *argument = strchr(line, ' ');
    if (argument) *argument++ = 0;
    if (!strcmp(line, "result")) {
        printf("%ld\n", result());
        return;
    }
    if (!strcmp(line, "count")) {
        printf("%ld\n", traps);
        return;
    }
    for (size_t i = 0; i < sizeof attacks / sizeof *attacks; i++) {
        if (strcmp(line, attacks[i].name)) continue;
        attacks[i].start(argument ? argument : "");
        nap(50000);
        puts("started");
        return;
    }
    puts("unknown");
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    puts("ready");
    char line[256];
    size_t filled = 0;
    for (;;) {
        struct pollfd input = {0, POLLIN, 0};
        // set right before the call: it is there when the engine stops this thread in it
        if (armed) *cs_field() = (uint64_t)&over_code;
        if (syscall(SYS_poll, &input, 1, 2) <= 0) continue;
        ssize_t count = read(0, line + filled, sizeof line - 1 - filled);
        if (count == 0) return 0;
        if (count < 0) continue;
        filled += count;
        line[filled] = 0;
        char *end = strchr(line, '\n');
        if (!end) continue;
        *end = 0;
        filled = 0;
        obey(line);
    }
}
