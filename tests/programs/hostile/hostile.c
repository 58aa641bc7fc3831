// One hostile act per run: hostile ACT. What a program can do to make a capture hang, lie or break out.
// Each sets something up that a capture stumbles over if it trusts its target; `check` sees that it is still so.
// Commands named like acts do the same later, in a process that has been restored.
#include "../c/program.h"
#include <dirent.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <setjmp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>

#define RESERVED ((char *)0x6f0000000000) // crates/spawner/src/layout.rs

static int in = 0, out = 1;
static pid_t self;

static bool mapping(const char *name, char **start, char **end) {
    char line[500];
    bool found = false;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (!found && fgets(line, sizeof line, maps)) {
        if (!strstr(line, name)) continue;
        unsigned long from, to;
        found = sscanf(line, "%lx-%lx", &from, &to) == 2;
        *start = (char *)from, *end = (char *)to;
    }
    fclose(maps);
    return found;
}
static void start_thread(void *(*body)(void *), void *argument) {
    pthread_t thread;
    NEED(!pthread_create(&thread, NULL, body, argument), "thread");
}
static void nothing(void) {}
static volatile bool arrived; // the other thread is where it should be, or about to enter its last call
static void await_arrival(void) { NEED(WITHIN_PATIENCE(arrived), "the other thread"); }

// ---- the kernel's own pages ----
static void vdso_gone(void) {
    char *start, *end;
    const char *const names[] = {"[vdso]", "[vvar_vclock]", "[vvar]"};
    for (int i = 0; i < 3; i++)
        if (mapping(names[i], &start, &end)) NEED(!munmap(start, end - start), "munmap %s", names[i]);
}
static void vdso_is_gone(void) {
    char *start, *end;
    CHECK(!mapping("[vdso]", &start, &end), "vdso, expected none, got one at %p", start);
}
static char *vdso, *vdso_end;
static void vdso_overwritten(void) {
    NEED(mapping("[vdso]", &vdso, &vdso_end), "vdso");
    NEED(!mprotect(vdso, vdso_end - vdso, PROT_READ | PROT_WRITE | PROT_EXEC), "mprotect the vdso");
    memset(vdso, 0xcc, vdso_end - vdso);
}
static void vdso_is_overwritten(void) { CHECK_EQ((unsigned char)vdso[100], 0xcc, "own byte in the vdso"); }

// ---- stack pointers that are none ----
static volatile uint64_t turns;
static char *page_of_zeros;
static void *spin_with(void *stack) { // never comes back
    asm volatile("mov %0, %%rsp\n1: lock incq (%1)\n jmp 1b" : : "r"(stack), "r"(&turns) : "memory");
    return NULL;
}
static void turns_go_on(void) {
    uint64_t before = turns;
    CHECK(WITHIN_PATIENCE(turns != before), "spinning thread, expected it to run, got none of it");
}
static void stack_garbage(void) { start_thread(spin_with, (void *)0xdead000000001234); }
static void stack_null(void) { start_thread(spin_with, NULL); }
static void stack_read_only(void) {
    page_of_zeros = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NEED(page_of_zeros != MAP_FAILED, "mmap");
    start_thread(spin_with, page_of_zeros + 64);
}
static void stack_read_only_holds(void) {
    turns_go_on();
    CHECK(all_zero(page_of_zeros, PAGE), "read-only page, expected zeros");
}

// ---- the first thread itself, with no usable stack; the conversation is another thread's ----
static void converse(void);
static void *converse_elsewhere(void *unused_) {
    (void)unused_;
    converse();
    exit(0);
}
static void leader_stack(void) {
    start_thread(converse_elsewhere, NULL);
    spin_with((void *)0xdead000000001234);
}
static void leader_stack_read_only(void) {
    page_of_zeros = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    start_thread(converse_elsewhere, NULL);
    spin_with(page_of_zeros + 64);
}
static bool leader_has_ended(void) {
    char text[500] = "";
    FILE *file = fopen("/proc/self/stat", "r");
    if (file) fread(text, 1, sizeof text - 1, file), fclose(file);
    char *state = strrchr(text, ')');
    return state && state[2] == 'Z';
}
static void *converse_alone(void *unused_) {
    NEED(WITHIN_PATIENCE(leader_has_ended()), "the first thread's end");
    return converse_elsewhere(unused_);
}
static void leader_gone(void) {
    start_thread(converse_alone, NULL);
    syscall(SYS_exit, 0);
}

// ---- where the engine keeps its own pages ----
static void map_at(char *at, size_t bytes, int protection) {
    char *got = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    NEED(got == at, "mmap at %p", at);
    memset(got, 0x5a, bytes);
    NEED(!mprotect(got, bytes, protection), "mprotect");
}
static void reserved_code(void) { map_at(RESERVED, PAGE, PROT_READ | PROT_EXEC); }
static void reserved_middle(void) { map_at(RESERVED + 0x5000000, 4 * PAGE, PROT_READ | PROT_WRITE); }
static void reserved_across(void) { map_at(RESERVED - PAGE, 2 * PAGE, PROT_READ | PROT_WRITE); }
static void reserved_beyond(void) { map_at(RESERVED + 0x20000000 - PAGE, 2 * PAGE, PROT_READ | PROT_WRITE); }
static void reserved_around(void) {
    char *at = RESERVED - PAGE;
    size_t bytes = 0x20000000 + 2 * PAGE;
    NEED(mmap(at, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == at, "mmap");
}
static void code_gone(void) { munmap(RESERVED, PAGE); }
static void code_no_exec(void) { mprotect(RESERVED, PAGE, PROT_READ); }
static void code_lies(void) { // the bytes are there, but what follows them is not ours
    mprotect(RESERVED, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC);
    for (char *at = RESERVED; at < RESERVED + PAGE; at++)
        if (at[0] == 0x0f && at[1] == 0x05) memset(at + 2, 0xcc, 16), at += 17;
    mprotect(RESERVED, PAGE, PROT_READ | PROT_EXEC);
}

// ---- much of everything ----
#define MAPPINGS 2000
static char *field;
static void many_mappings(void) {
    field = mmap(NULL, MAPPINGS * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NEED(field != MAP_FAILED, "mmap");
    for (int i = 0; i < MAPPINGS; i++) *(uint64_t *)(field + i * PAGE) = mix(i);
    for (int i = 0; i < MAPPINGS; i += 2) NEED(!mprotect(field + i * PAGE, PAGE, PROT_READ), "mprotect");
}
static void many_mappings_hold(void) {
    for (int i = 0; i < MAPPINGS; i++) CHECK_EQ(*(uint64_t *)(field + i * PAGE), mix(i), "page %d", i);
    for (int i = 1; i < MAPPINGS; i += 2) field[i * PAGE + 100]++;
}
#define WRITERS 16
static struct { volatile uint64_t first; char apart[16 * PAGE]; volatile uint64_t second; } pairs[WRITERS];
static void *write_pairs(void *pair) {
    for (;;) { // second never runs ahead of first, nor more than one behind
        pairs[(intptr_t)pair].first++;
        asm volatile("mfence" ::: "memory");
        pairs[(intptr_t)pair].second++;
        asm volatile("mfence" ::: "memory");
    }
    return NULL;
}
static void many_writers(void) {
    for (intptr_t i = 0; i < WRITERS; i++) start_thread(write_pairs, (void *)i);
}
static void many_writers_hold(void) {
    for (int i = 0; i < WRITERS; i++) {
        uint64_t first = pairs[i].first;
        asm volatile("mfence" ::: "memory");
        uint64_t second = pairs[i].second;
        CHECK(second + 1 >= first, "pair %d, expected one instant, got %" PRIu64 " and %" PRIu64, i, first, second);
    }
}

// ---- descriptors ----
static void no_stdio(void) {
    in = dup2(0, 50), out = dup2(1, 51);
    close(0), close(1), close(2);
}
static void stdio_is_gone(void) { CHECK(fcntl(0, F_GETFD) == -1 && fcntl(2, F_GETFD) == -1, "stdio, expected closed"); }
static void *own_files(void *unused_) {
    (void)unused_;
    NEED(!unshare(CLONE_FILES), "unshare");
    for (arrived = true;;) pause();
}
static void thread_with_own_files(void) {
    start_thread(own_files, NULL);
    await_arrival();
}

// ---- calls that an observer makes are deadly ----
static void seccomp(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_read, 8, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 7, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fstat, 6, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_newfstatat, 5, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpid, 4, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_restart_syscall, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    NEED(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges");
    NEED(!syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program), "seccomp");
}

// ---- processes that come and go ----
static pid_t storm;
static void fork_storm(void) {
    if ((storm = fork())) return;
    for (unsigned i = 0;; i++) {
        pid_t child = fork();
        if (!child) {
            if (i % 3 == 0 && fork()) _exit(0); // an orphan for init
            if (i % 5 == 0) usleep(300);
            _exit(i);
        }
        if (i % 2) waitpid(child, NULL, 0);
        while (waitpid(-1, NULL, WNOHANG) > 0) {}
    }
}
static void storm_goes_on(void) { CHECK_EQ(kill(storm, 0), 0, "storm"); }
static void *clone_storm_thread(void *unused_) { return unused_; }
static void *thread_storm_loop(void *unused_) {
    (void)unused_;
    for (;;) {
        pthread_t thread;
        if (!pthread_create(&thread, NULL, clone_storm_thread, NULL)) pthread_join(thread, NULL);
        turns++;
    }
}
static void thread_storm(void) {
    for (int i = 0; i < 3; i++) start_thread(thread_storm_loop, NULL);
}
static void *kill_others(void *unused_) {
    (void)unused_;
    for (;;) {
        DIR *proc = opendir("/proc");
        for (struct dirent *entry; (entry = readdir(proc));) {
            int pid = atoi(entry->d_name);
            if (pid > 1 && pid != self) kill(pid, SIGKILL);
        }
        closedir(proc);
    }
}
static void twin_killer(void) { start_thread(kill_others, NULL); }
static void *vfork_for_ever(void *unused_) {
    (void)unused_;
    if (!vfork())
        for (arrived = true;;) syscall(SYS_pause);
    return NULL;
}
static void vfork_waits(void) {
    start_thread(vfork_for_ever, NULL);
    await_arrival();
}
static char clone_stack[65536];
static int count_turns(void *unused_) {
    (void)unused_;
    for (;;) usleep(100), turns++;
}
static void shared_memory_process(void) {
    NEED(clone(count_turns, clone_stack + sizeof clone_stack, CLONE_VM | SIGCHLD, NULL) > 0, "clone");
}
static pid_t traced;
static void tracer(void) {
    if (!(traced = fork())) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        raise(SIGSTOP);
        for (;;) pause();
    }
    waitpid(traced, NULL, 0);
}
static void tracer_holds(void) { CHECK_EQ(ptrace(PTRACE_CONT, traced, 0, 0) + 2 > 0, 1, "traced child"); }
static void stopped_child(void) {
    if (!(storm = fork())) for (;;) pause();
    kill(storm, SIGSTOP);
    waitpid(storm, NULL, WUNTRACED);
}
static void child_is_stopped(void) {
    char path[50], text[500] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", storm);
    FILE *file = fopen(path, "r");
    CHECK(file && fgets(text, sizeof text, file), "stat of the child");
    if (file) fclose(file);
    char *state = strrchr(text, ')');
    CHECK(state && state[2] == 'T', "state of the child, expected T, got %c", state ? state[2] : '?');
}

// ---- signals ----
static volatile sig_atomic_t traps, faults;
static void on_trap(int unused_) { (void)unused_, traps++; }
static void sigtrap_handler(void) { signal(SIGTRAP, on_trap); }
static void trap_is_handled(void) {
    int before = traps;
    raise(SIGTRAP);
    CHECK_EQ(traps, before + 1, "traps handled");
}
static void sigtrap_pending(void) {
    sigset_t set;
    sigemptyset(&set), sigaddset(&set, SIGTRAP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    raise(SIGTRAP);
}
static void trap_is_pending(void) {
    sigset_t set;
    sigpending(&set);
    CHECK_EQ(sigismember(&set, SIGTRAP), 1, "SIGTRAP pending");
}
static sigjmp_buf rescue;
static void on_fault(int unused_) { (void)unused_, faults++, siglongjmp(rescue, 1); }
static void fault_handler(void) { signal(SIGSEGV, on_fault); }
static void fault_is_handled(void) {
    int before = faults;
    if (!sigsetjmp(rescue, 1)) *(volatile int *)8 = 1;
    CHECK_EQ(faults, before + 1, "faults handled");
}

// ---- names ----
static void bad_name(void) {
    NEED(close(open("/tmp/\xff\xfe", O_CREAT | O_WRONLY, 0600)) == 0, "a file");
    NEED(!mkdir("/tmp/\xfd", 0700) && !symlink("\xff\xfe", "/tmp/\xfd/\xfc"), "a link");
    NEED(!link("/tmp/\xff\xfe", "/tmp/\xfd/\xfb"), "a second name");
}
static void bad_name_is_there(void) {
    char text[8] = "";
    struct stat one, other;
    CHECK_EQ(stat("/tmp/\xff\xfe", &one), 0, "file with an odd name");
    CHECK_EQ(stat("/tmp/\xfd/\xfb", &other), 0, "its second name");
    CHECK(one.st_nlink == 2 && one.st_ino == other.st_ino, "two names, expected one file");
    CHECK(readlink("/tmp/\xfd/\xfc", text, 7) == 2 && !strcmp(text, "\xff\xfe"), "odd link, got %s", text);
}
static char *named;
static void map_named(const char *name) {
    int fd = open(name, O_CREAT | O_RDWR | O_TRUNC, 0600);
    NEED(fd >= 0 && write(fd, "content", 7) == 7, "%s", name);
    named = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
    NEED(named != MAP_FAILED, "mmap");
    close(fd);
}
static void map_newline(void) { map_named("/tmp/a\nb"); }
static void map_not_deleted(void) { map_named("/tmp/a (deleted)"); }
static void map_bytes(void) { map_named("/tmp/\xff"); }
static void named_holds(void) { CHECK(!memcmp(named, "content", 7), "mapped file, expected its content"); }
static int named_fd;
static void open_bytes(void) {
    NEED((named_fd = open("/tmp/\xfe", O_CREAT | O_RDWR, 0600)) >= 0 && write(named_fd, "content", 7) == 7, "open");
}
static void open_bytes_hold(void) {
    char text[8] = "";
    CHECK(pread(named_fd, text, 7, 0) == 7 && !strcmp(text, "content"), "open file, expected its content");
}
static void evil_links(void) { // what a capture that follows links would read, or write
    NEED(!symlink("/", "/tmp/outside") && !symlink("../../../../../../etc", "/tmp/up"), "symlink");
    NEED(!symlink("/proc/self/root", "/tmp/magic") && !mkfifo("/tmp/fifo", 0600), "symlink");
}
static void evil_links_hold(void) {
    char text[50] = "";
    CHECK(readlink("/tmp/up", text, 49) > 0 && !strcmp(text, "../../../../../../etc"), "link, got %s", text);
}

// ---- walls entered by hand ----
static void own_mounts(void) { NEED(!unshare(CLONE_NEWNS), "unshare"); }
static void own_network(void) { NEED(!unshare(CLONE_NEWNET), "unshare"); }
static void own_users(void) { NEED(!unshare(CLONE_NEWUSER), "unshare"); }
static void *thread_network(void *unused_) {
    (void)unused_;
    NEED(!unshare(CLONE_NEWNET), "unshare");
    for (arrived = true;;) pause();
}
static void thread_with_own_network(void) {
    start_thread(thread_network, NULL);
    await_arrival();
}
static void own_root(void) { NEED(!mkdir("/tmp/jail", 0700) && !chroot("/tmp/jail") && !chdir("/"), "chroot"); }
static void root_is_own(void) { CHECK(access("/bin", F_OK) == -1, "root, expected the jail"); }
static void no_forks(void) {
    struct rlimit none = {0, 0};
    NEED(!setrlimit(RLIMIT_NPROC, &none) && !setresuid(1000, 1000, 1000), "limits");
}

static const struct act {
    const char *name;
    void (*set_up)(void), (*holds)(void);
} acts[] = {
    {"nothing", nothing, nothing},
    {"vdso_gone", vdso_gone, vdso_is_gone},
    {"vdso_overwritten", vdso_overwritten, vdso_is_overwritten},
    {"stack_garbage", stack_garbage, turns_go_on},
    {"stack_null", stack_null, turns_go_on},
    {"stack_read_only", stack_read_only, stack_read_only_holds},
    {"leader_stack", leader_stack, turns_go_on},
    {"leader_stack_read_only", leader_stack_read_only, stack_read_only_holds},
    {"leader_gone", leader_gone, nothing},
    {"reserved_code", reserved_code, nothing},
    {"reserved_middle", reserved_middle, nothing},
    {"reserved_across", reserved_across, nothing},
    {"reserved_beyond", reserved_beyond, nothing},
    {"reserved_around", reserved_around, nothing},
    {"code_gone", code_gone, nothing},
    {"code_no_exec", code_no_exec, nothing},
    {"code_lies", code_lies, nothing},
    {"many_mappings", many_mappings, many_mappings_hold},
    {"many_writers", many_writers, many_writers_hold},
    {"no_stdio", no_stdio, stdio_is_gone},
    {"thread_with_own_files", thread_with_own_files, nothing},
    {"seccomp", seccomp, nothing},
    {"fork_storm", fork_storm, storm_goes_on},
    {"thread_storm", thread_storm, turns_go_on},
    {"twin_killer", twin_killer, nothing},
    {"vfork_waits", vfork_waits, nothing},
    {"shared_memory_process", shared_memory_process, turns_go_on},
    {"tracer", tracer, tracer_holds},
    {"stopped_child", stopped_child, child_is_stopped},
    {"sigtrap_handler", sigtrap_handler, trap_is_handled},
    {"sigtrap_pending", sigtrap_pending, trap_is_pending},
    {"fault_handler", fault_handler, fault_is_handled},
    {"bad_name", bad_name, bad_name_is_there},
    {"map_newline", map_newline, named_holds},
    {"map_not_deleted", map_not_deleted, named_holds},
    {"map_bytes", map_bytes, named_holds},
    {"open_bytes", open_bytes, open_bytes_hold},
    {"evil_links", evil_links, evil_links_hold},
    {"own_mounts", own_mounts, nothing},
    {"own_network", own_network, nothing},
    {"own_users", own_users, nothing},
    {"thread_with_own_network", thread_with_own_network, nothing},
    {"own_root", own_root, root_is_own},
    {"no_forks", no_forks, nothing},
};
static const struct act *find(const char *name) {
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++)
        if (!strcmp(acts[i].name, name)) return &acts[i];
    return NULL;
}

static const struct act *act;
static void say(const char *text) {
    if (write(out, text, strlen(text)) < 0) _exit(1);
}
static void obey(const char *line) {
    const struct act *later = find(line);
    if (!strcmp(line, "check")) {
        act->holds();
        CHECK_EQ(getpid(), self, "own pid");
        say(failure[0] ? "fail " : "ok"), say(failure), say("\n");
    } else if (later) {
        later->set_up();
        say("done\n");
    } else {
        say("unknown\n");
    }
}
static void converse(void) {
    char line[100], byte;
    size_t length = 0;
    say("ready\n");
    for (;;) {
        ssize_t n = read(in, &byte, 1);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) _exit(0);
        if (byte != '\n') {
            if (length + 1 < sizeof line) line[length++] = byte;
            continue;
        }
        line[length] = 0, length = 0;
        if (!strcmp(line, "quit")) _exit(0);
        obey(line);
    }
}
int main(int argc, char **argv) {
    NEED(argc == 2 && (act = find(argv[1])), "usage: hostile ACT");
    self = getpid();
    act->set_up();
    converse();
}
