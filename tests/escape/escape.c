// Programs that try to leave their machine, one attempt per line of standard input.
//
//   harness                    program
//      | <-------- ready ------- |
//      | -- attempt argument --> |   in a child of its own
//      | <------- answer ------- |   `ok`, the name of the error, `empty`, or `killed N`
//
// Every attempt is harmless where it succeeds: it asks for what must be refused and gives it back. What could use
// something up has a bound of its own. crates/engine/tests/escape says which answer is right, behind walls and without.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

// An attempt answers 0 for success, -1 with errno, or EMPTY.
enum { EMPTY = 1 };
typedef long (*attempt)(const char *argument);

// ---- keys ----
// The session keyring is inherited, whatever the namespace.
static long add_session_key(const char *name) { return syscall(SYS_add_key, "user", name, "secret", 6, -3) < 0 ? -1 : 0; }
static long find_session_key(const char *name) {
    char text[16];
    long key = syscall(SYS_keyctl, 10, -3, "user", name, 0); // KEYCTL_SEARCH
    if (key < 0) return -1;
    return syscall(SYS_keyctl, 11, key, text, sizeof text) < 0 ? -1 : 0; // KEYCTL_READ
}

static pid_t sleeping_child(void) {
    pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    return child;
}
static long end_child(pid_t child, long result) {
    int error = errno;
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    errno = error;
    return result;
}

// ---- mounts and namespaces ----
static long mount_tmpfs(const char *a) { return mount("none", "/tmp", "tmpfs", 0, "size=4k"); }
static long bind_proc(const char *a) { return mount("/proc", "/tmp", NULL, MS_BIND, NULL); }
static long unmount_proc(const char *a) { return umount2("/proc/sys", MNT_DETACH); }
static long new_mount_api(const char *a) { return syscall(SYS_fsopen, "tmpfs", 0) < 0 ? -1 : 0; }
static long change_root(const char *a) { return chroot("/tmp"); }
static long unshare_user(const char *a) { return unshare(CLONE_NEWUSER); }
static long unshare_net(const char *a) { return unshare(CLONE_NEWNET); }
static long clone_user(const char *a) {
    long child = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
    if (child == 0) _exit(0);
    if (child > 0) waitpid(child, NULL, 0);
    return child < 0 ? -1 : 0;
}
static long clone3_user(const char *a) {
    unsigned long long args[11] = {[0] = CLONE_NEWUSER, [4] = SIGCHLD};
    long child = syscall(SYS_clone3, args, sizeof args);
    if (child == 0) _exit(0);
    if (child > 0) waitpid(child, NULL, 0);
    return child < 0 ? -1 : 0;
}
static long join_namespace(const char *a) {
    int fd = open("/proc/self/ns/uts", O_RDONLY);
    return fd < 0 ? -1 : setns(fd, CLONE_NEWUTS);
}
static long set_hostname(const char *a) { return sethostname("stasis", 6); }

// ---- other processes ----
static long trace_child(const char *a) {
    pid_t child = sleeping_child();
    return end_child(child, ptrace(PTRACE_SEIZE, child, 0, 0));
}
static long read_child(const char *a) {
    pid_t child = sleeping_child();
    long word = 0;
    static long source = 7;
    struct iovec to = {&word, sizeof word}, from = {&source, sizeof source};
    return end_child(child, syscall(SYS_process_vm_readv, child, &to, 1, &from, 1, 0) < 0 ? -1 : 0);
}
static long take_descriptor(const char *a) {
    pid_t child = sleeping_child();
    int fd = syscall(SYS_pidfd_open, child, 0);
    return end_child(child, syscall(SYS_pidfd_getfd, fd, 0, 0) < 0 ? -1 : 0);
}
static long init_memory(const char *a) { return open("/proc/1/mem", O_RDWR) < 0 ? -1 : 0; }
static long init_shown(const char *a) { return access("/proc/1", F_OK); }
static long init_descriptors(const char *a) { return open("/proc/1/fd", O_RDONLY) < 0 ? -1 : 0; }
static long signal_init(const char *a) { return kill(1, 0); }
static long signal_pid(const char *pid) { return kill(atoi(pid), 0); }
static long memory_of_pid(const char *pid) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%s/mem", pid);
    return open(path, O_RDONLY) < 0 ? -1 : 0;
}
static long raise_priority(const char *a) { return setpriority(PRIO_PROCESS, 0, -5); }

// ---- files ----
static long open_path(const char *path) { return open(path, O_RDONLY) < 0 ? -1 : 0; }
static long open_by_link(const char *path) {
    unlink("/tmp/escape-link");
    if (symlink(path, "/tmp/escape-link")) return -1;
    int fd = open("/tmp/escape-link", O_RDONLY), error = errno;
    unlink("/tmp/escape-link");
    errno = error;
    return fd < 0 ? -1 : 0;
}
static long above_root(const char *path) {
    char above[4200];
    snprintf(above, sizeof above, "/../../../../../../../..%s", path);
    return open(above, O_RDONLY) < 0 ? -1 : 0;
}
static long device_node(const char *a) {
    unlink("/tmp/escape-node");
    long made = mknod("/tmp/escape-node", S_IFCHR | 0600, makedev(1, 3));
    if (made == 0) unlink("/tmp/escape-node");
    return made;
}
static long change_device(const char *a) { return mkdir("/dev/escape", 0700) ? -1 : rmdir("/dev/escape"); }
static long write_root_file(const char *path) { return open(path, O_WRONLY) < 0 ? -1 : 0; }
static long file_handle(const char *a) {
    union {
        struct file_handle handle;
        char room[256];
    } h = {.handle.handle_bytes = 128};
    int mount_id;
    return name_to_handle_at(AT_FDCWD, "/dev", &h.handle, &mount_id, 0);
}
static long read_some(const char *path) {
    char byte;
    int fd = open(path, O_RDONLY);
    if (fd < 0) return -1;
    long got = read(fd, &byte, 1);
    return got < 0 ? -1 : got == 0 ? EMPTY : 0;
}
static long setting(const char *path) {
    char value[64] = "";
    int fd = open(path, O_RDWR);
    if (fd < 0) return -1;
    long got = read(fd, value, sizeof value);
    return got < 0 ? -1 : pwrite(fd, value, got, 0) < 0 ? -1 : 0;
}

// ---- privileges ----
static long become_root(const char *a) { return setresuid(0, 0, 0); }
static long become_other(const char *a) { return setresuid(12345, 12345, 12345); }
static long new_privileges(const char *path) { // a program that is root's and set-user-id says who it became
    pid_t child = fork();
    if (child == 0) {
        execl(path, path, "whoami", NULL);
        _exit(101);
    }
    int status;
    waitpid(child, &status, 0);
    errno = EPERM;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
}

// ---- the kernel's further parts ----
static long key(const char *a) {
    long id = syscall(SYS_add_key, "user", "stasis-escape", "x", 1, -1 /* thread keyring */);
    return id < 0 ? -1 : 0;
}
static long uring(const char *a) {
    char parameters[120] = {0};
    return syscall(SYS_io_uring_setup, 1, parameters) < 0 ? -1 : 0;
}
static long bpf_map(const char *a) {
    unsigned attributes[32] = {2 /* array */, 4, 4, 1};
    return syscall(SYS_bpf, 0, attributes, sizeof attributes) < 0 ? -1 : 0;
}
static long perf(const char *a) {
    unsigned attributes[32] = {1 /* software */, sizeof attributes, 0 /* cpu clock */};
    attributes[10] = 0x20 | 0x40; // not the kernel, not the hypervisor
    return syscall(SYS_perf_event_open, attributes, 0, -1, -1, 0) < 0 ? -1 : 0;
}
static long page_faults(const char *a) { return syscall(SYS_userfaultfd, 1 /* user mode only */) < 0 ? -1 : 0; }
static long descriptor_table(const char *a) {
    char room[64];
    return syscall(SYS_modify_ldt, 0, room, sizeof room) < 0 ? -1 : 0;
}
static long old_quirks(const char *a) { return personality(READ_IMPLIES_EXEC) < 0 ? -1 : 0; }
static long kernel_log(const char *a) { return syscall(SYS_syslog, 10 /* size */, 0, 0) < 0 ? -1 : 0; }
static long own_landlock(const char *a) { return syscall(SYS_landlock_create_ruleset, 0, 0, 1) < 0 ? -1 : 0; }
static long old_calls(const char *a) {
    long result = 20; // getpid in the 32-bit numbering
    __asm__ volatile("int $0x80" : "+a"(result)::"r8", "r9", "r10", "r11", "memory");
    if (result > 0) return 0;
    errno = ENOSYS;
    return -1;
}

// ---- network ----
static long family(int domain, int type, int protocol) { return socket(domain, type, protocol) < 0 ? -1 : 0; }
static long raw_socket(const char *a) { return family(AF_INET, SOCK_RAW, IPPROTO_ICMP); }
static long packet_socket(const char *a) { return family(AF_PACKET, SOCK_DGRAM, 0); }
static long generic_netlink(const char *a) { return family(AF_NETLINK, SOCK_RAW, 16); }
static long vsock(const char *a) { return family(AF_VSOCK, SOCK_STREAM, 0); }
static long route_netlink(const char *a) { return family(AF_NETLINK, SOCK_RAW, 0); }
static long multipath(const char *a) { return family(AF_INET, SOCK_STREAM, 262); }
static long partial_checksums(const char *a) { return family(AF_INET, SOCK_DGRAM, IPPROTO_UDPLITE); }
static long socket_option(int level, int option, const void *value, socklen_t size) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    return setsockopt(fd, level, option, value, size);
}
static long upper_layer(const char *a) { // a kernel without the protocol, or a socket without a peer, was asked
    long set = socket_option(IPPROTO_TCP, TCP_ULP, "tls", 3);
    return set < 0 && (errno == ENOENT || errno == ENOTCONN) ? 0 : set;
}
static long socket_filter(const char *a) {
    struct sock_filter all = BPF_STMT(BPF_RET | BPF_K, 0xffff);
    struct sock_fprog program = {1, &all};
    return socket_option(SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}
static long packet_tables(const char *a) { // needs rights in the namespace, if it arrives
    long set = socket_option(IPPROTO_IP, 64 /* replace a table */, "", 0);
    return set < 0 && errno == EPERM ? 0 : set;
}
static long connect_port(const char *port) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in to = {AF_INET, htons(atoi(port)), {htonl(INADDR_LOOPBACK)}};
    return connect(fd, (struct sockaddr *)&to, sizeof to);
}
static long connect_abstract(const char *name) {
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un to = {AF_UNIX};
    strncpy(to.sun_path + 1, name, sizeof to.sun_path - 2);
    return connect(fd, (struct sockaddr *)&to, offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
}

// ---- arguments of calls that are allowed ----
static long file_size(const char *a) { // a request that is harmless, and in no list
    off_t size;
    int fd = open("/tmp", O_RDONLY);
    return ioctl(fd, 0x5460 /* FIOQSIZE */, &size);
}
static long line_discipline(const char *a) {
    int number = 0, fd = open("/dev/ptmx", O_RDWR | O_NOCTTY);
    return fd < 0 ? -1 : ioctl(fd, TIOCSETD, &number);
}
static long lease(const char *a) {
    int fd = open("/tmp/escape-lease", O_CREAT | O_RDONLY, 0600);
    long taken = fcntl(fd, F_SETLEASE, F_WRLCK);
    int error = errno;
    unlink("/tmp/escape-lease");
    errno = error;
    return taken;
}
static long hold_calls(const char *a) {
    struct sock_filter all = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {1, &all};
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program) < 0 ? -1 : 0;
}
static long divert_calls(const char *a) { // those made from nowhere
    return prctl(59 /* PR_SET_SYSCALL_USER_DISPATCH */, 1, 0x1000, 0x7fffffffe000, 0);
}
static long set_core_limit(const char *bytes) {
    struct rlimit limit = {atoi(bytes), atoi(bytes)}, before, after;
    if (getrlimit(RLIMIT_CORE, &before) || setrlimit(RLIMIT_CORE, &limit) || getrlimit(RLIMIT_CORE, &after)) return -1;
    errno = EPERM; // told that it was done
    return before.rlim_max == after.rlim_max ? -1 : 0;
}
static long crash(const char *a) {
    raise(SIGSEGV);
    return 0;
}

// ---- using things up ----
static long processes(const char *count) {
    int most = atoi(count), made = 0, error = 0;
    pid_t *all = calloc(most, sizeof *all);
    while (made < most) {
        pid_t child = sleeping_child();
        if (child < 0) {
            error = errno;
            break;
        }
        all[made++] = child;
    }
    for (int i = 0; i < made; i++) end_child(all[i], 0);
    errno = error;
    return made == most ? 0 : -1;
}
static long memory(const char *megabytes) {
    size_t size = (size_t)atoi(megabytes) << 20;
    char *all = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) return -1;
    for (size_t i = 0; i < size; i += 4096) all[i] = 1;
    return 0;
}
static long descriptors(const char *count) {
    for (int i = 0; i < atoi(count); i++)
        if (dup(0) < 0) return -1;
    return 0;
}
static long one_file(const char *megabytes) {
    static char block[1 << 20];
    signal(SIGXFSZ, SIG_IGN);
    int fd = open("/tmp/escape-large", O_CREAT | O_WRONLY | O_TRUNC, 0600);
    long result = fd < 0 ? -1 : 0;
    for (int i = 0; i < atoi(megabytes) && result == 0; i++) result = write(fd, block, sizeof block) < 0 ? -1 : 0;
    int error = errno;
    unlink("/tmp/escape-large");
    errno = error;
    return result;
}
static long many_files(const char *count) {
    char path[64];
    for (int i = 0; i < atoi(count); i++) {
        snprintf(path, sizeof path, "/tmp/escape-file-%d", i);
        int fd = open(path, O_CREAT | O_WRONLY, 0600);
        if (fd < 0) return -1;
        close(fd);
    }
    return 0;
}

// Files that no walk by name finds. Each takes so many megabytes and keeps them.
static int filled(const char *path, int megabytes) {
    static char block[1 << 20];
    memset(block, 1, sizeof block);
    int fd = open(path, O_CREAT | O_RDWR | O_TRUNC, 0600);
    for (int i = 0; i < megabytes && fd >= 0; i++)
        if (write(fd, block, sizeof block) < 0) return -1;
    return fd;
}
// Leaves a process that has what the caller has.
static long stay(void) {
    pid_t child = fork();
    while (child == 0) pause();
    return child < 0 ? -1 : 0;
}
static long kept_file(const char *megabytes) {
    char path[64];
    for (int i = 0; snprintf(path, sizeof path, "/tmp/escape-kept-%d", i), access(path, F_OK) == 0; i++);
    int fd = filled(path, atoi(megabytes));
    return fd < 0 ? -1 : close(fd);
}
static long unlinked_files(const char *megabytes) {
    for (int i = 0; i < atoi(megabytes); i++) // stays open
        if (filled("/tmp/escape-unlinked", 1) < 0 || unlink("/tmp/escape-unlinked") < 0) return -1;
    return stay();
}
// The same, handed from process to process: whoever was seen to have them is gone.
static long hopping_files(const char *megabytes) {
    for (int i = 0; i < atoi(megabytes); i++)
        if (filled("/tmp/escape-hopping", 1) < 0 || unlink("/tmp/escape-hopping") < 0) return -1;
    pid_t child = fork();
    if (child) return child < 0 ? -1 : 0;
    for (;;)
        if (fork() > 0) _exit(0);
}
// Files whose only descriptors wait in a socket's queue.
static long files_in_flight(const char *megabytes) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) < 0) return -1;
    for (int i = 0; i < atoi(megabytes); i++) {
        int fd = filled("/tmp/escape-flying", 1);
        if (fd < 0 || unlink("/tmp/escape-flying") < 0) return -1;
        char control[CMSG_SPACE(sizeof fd)] = {0};
        struct iovec byte = {"x", 1};
        struct msghdr message = {.msg_iov = &byte, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(rights), &fd, sizeof fd);
        if (sendmsg(ends[0], &message, 0) < 0 || close(fd) < 0) return -1;
    }
    return stay();
}
// Descriptors that take long to look at, in as many processes as it says.
static long many_descriptors(const char *processes) {
    for (int i = 0; i < atoi(processes); i++) {
        pid_t child = fork();
        if (child < 0) return -1;
        if (child) continue;
        for (int j = 0; j < 1000; j++) open("/dev/null", O_RDONLY);
        for (;;) pause();
    }
    return 0;
}
static long mapped_files(const char *megabytes) {
    for (int i = 0; i < atoi(megabytes); i++) {
        int fd = filled("/tmp/escape-mapped", 1);
        if (fd < 0 || mmap(NULL, 1 << 20, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED) return -1;
        if (unlink("/tmp/escape-mapped") < 0 || close(fd) < 0) return -1;
    }
    return stay();
}
static long deep_tree(const char *levels) {
    if (chdir("/tmp") < 0) return -1;
    for (int i = 0; i < atoi(levels); i++)
        if (mkdir("d", 0700) < 0 || chdir("d") < 0) return -1;
    return chdir("/tmp");
}
static long deep_file(const char *megabytes) {
    char name[251];
    memset(name, 'n', 250);
    name[250] = 0;
    if (chdir("/tmp") < 0) return -1;
    for (int i = 0; i < 20; i++)
        if ((mkdir(name, 0700) < 0 && errno != EEXIST) || chdir(name) < 0) return -1;
    for (int i = 0; i < atoi(megabytes); i++) {
        snprintf(name, sizeof name, "file-%d", i);
        int fd = filled(name, 1);
        if (fd < 0 || close(fd) < 0) return -1;
    }
    return chdir("/tmp");
}

#define ATTEMPT(name) {#name, name}
static const struct {
    const char *name;
    attempt run;
} attempts[] = {
    ATTEMPT(mount_tmpfs),      ATTEMPT(bind_proc),        ATTEMPT(unmount_proc),    ATTEMPT(new_mount_api),
    ATTEMPT(change_root),      ATTEMPT(unshare_user),     ATTEMPT(unshare_net),     ATTEMPT(clone_user),
    ATTEMPT(clone3_user),      ATTEMPT(join_namespace),   ATTEMPT(set_hostname),    ATTEMPT(trace_child),
    ATTEMPT(read_child),       ATTEMPT(take_descriptor),  ATTEMPT(init_memory),     ATTEMPT(init_shown),
    ATTEMPT(init_descriptors), ATTEMPT(signal_init),      ATTEMPT(signal_pid),      ATTEMPT(memory_of_pid),
    ATTEMPT(raise_priority),   ATTEMPT(open_path),        ATTEMPT(open_by_link),    ATTEMPT(above_root),
    ATTEMPT(device_node),      ATTEMPT(change_device),    ATTEMPT(write_root_file), ATTEMPT(file_handle),
    ATTEMPT(read_some),        ATTEMPT(setting),          ATTEMPT(become_root),     ATTEMPT(become_other),
    ATTEMPT(new_privileges),   ATTEMPT(key),              ATTEMPT(uring),           ATTEMPT(bpf_map),
    ATTEMPT(perf),             ATTEMPT(page_faults),      ATTEMPT(descriptor_table), ATTEMPT(old_quirks),
    ATTEMPT(kernel_log),       ATTEMPT(own_landlock),     ATTEMPT(old_calls),       ATTEMPT(raw_socket),
    ATTEMPT(packet_socket),    ATTEMPT(generic_netlink),  ATTEMPT(vsock),           ATTEMPT(route_netlink),
    ATTEMPT(connect_port),     ATTEMPT(connect_abstract), ATTEMPT(processes),       ATTEMPT(memory),
    ATTEMPT(descriptors),      ATTEMPT(one_file),         ATTEMPT(many_files),      ATTEMPT(multipath),
    ATTEMPT(partial_checksums), ATTEMPT(upper_layer),     ATTEMPT(socket_filter),   ATTEMPT(packet_tables),
    ATTEMPT(file_size),       ATTEMPT(line_discipline),  ATTEMPT(lease),           ATTEMPT(hold_calls),
    ATTEMPT(divert_calls),     ATTEMPT(set_core_limit),   ATTEMPT(crash),
    ATTEMPT(add_session_key),  ATTEMPT(find_session_key),
    ATTEMPT(kept_file),        ATTEMPT(unlinked_files),   ATTEMPT(mapped_files),    ATTEMPT(deep_file),
    ATTEMPT(deep_tree),        ATTEMPT(hopping_files),    ATTEMPT(many_descriptors), ATTEMPT(files_in_flight),
};

static void answer(const char *name, const char *argument) {
    for (size_t i = 0; i < sizeof attempts / sizeof attempts[0]; i++) {
        if (strcmp(attempts[i].name, name)) continue;
        long result = attempts[i].run(argument);
        const char *text = result == 0 ? "ok" : result == EMPTY ? "empty" : strerrorname_np(errno);
        printf("%s\n", text ? text : "an unknown error");
        return;
    }
    printf("no such attempt\n");
}

int main(int argc, char **argv) {
    if (argc > 1) return geteuid() == 0 ? 0 : 1; // started by `new_privileges`
    char line[4200];
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        char *argument = strchr(line, ' ');
        if (argument) *argument++ = 0;
        pid_t child = fork();
        if (child == 0) {
            answer(line, argument ? argument : "");
            fflush(stdout);
            _exit(0);
        }
        int status = 0;
        if (child < 0)
            printf("%s\n", strerrorname_np(errno));
        else if (waitpid(child, &status, 0) == child && WIFSIGNALED(status))
            printf("killed %d\n", WTERMSIG(status));
        fflush(stdout);
    }
    return 0;
}
