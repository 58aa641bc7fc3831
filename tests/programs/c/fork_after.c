// Proves: after a restore a process can do what it could before: fork, vfork and exec, spawn, start threads, popen.
// How: a check does each and verifies results; memory from before must be seen by the children.
#include "program.h"
#include <spawn.h>

extern char **environ;
static char *block;
static uint64_t generation;
#define BYTES (100 * PAGE)

static int status_of(pid_t pid) {
    int status = -1;
    CHECK_EQ(waitpid(pid, &status, 0), pid, "waitpid");
    return status;
}
static void *thread(void *argument) {
    static __thread uint64_t own = 5;
    char *memory = malloc(100000);
    fill(memory, 100000, own);
    long at = differs(memory, 100000, own) + differs(block, BYTES, generation) + 2;
    free(memory);
    return (void *)(at + (long)argument);
}
static void check(void) {
    pid_t pid = fork();
    if (pid == 0) { // and a grandchild
        pid_t inner = fork();
        if (inner == 0) _exit(differs(block, BYTES, generation) == -1 ? 21 : 1);
        int status;
        _exit(waitpid(inner, &status, 0) == inner && WEXITSTATUS(status) == 21 ? 42 : 1);
    }
    CHECK_EQ(WEXITSTATUS(status_of(pid)), 42, "fork, code of the child");
    char *const arguments[] = {"true", NULL};
    pid = vfork();
    if (pid == 0) {
        execv("/bin/true", arguments);
        _exit(1);
    }
    CHECK_EQ(status_of(pid), 0, "vfork and exec of /bin/true");
    CHECK_EQ(posix_spawn(&pid, "/bin/true", NULL, NULL, arguments, environ), 0, "posix_spawn");
    CHECK_EQ(status_of(pid), 0, "status of the one spawned");
    pthread_t threads[4];
    for (long i = 0; i < 4; i++) CHECK_EQ(pthread_create(&threads[i], NULL, thread, (void *)i), 0, "pthread_create");
    for (long i = 0; i < 4; i++) {
        void *result = NULL;
        CHECK_EQ(pthread_join(threads[i], &result), 0, "pthread_join");
        CHECK_EQ(result, i, "result of thread %ld", i);
    }
    char line[100] = "";
    FILE *output = popen("echo hello from $$; exit 3", "r");
    CHECK(output && fgets(line, sizeof line, output) && !strncmp(line, "hello from ", 11),
          "popen, expected its greeting, got %s", line);
    if (output) CHECK_EQ(WEXITSTATUS(pclose(output)), 3, "pclose");
    CHECK_EQ(WEXITSTATUS(system("exit 7")), 7, "system");
    CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD, "children left, expected none, got errno %d", errno);
    CHECK_EQ(differs(block, BYTES, generation), -1, "own memory afterwards, offset");
}
static void step(void) {
    generation++;
    fill(block, BYTES, generation);
}
static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    NEED((block = malloc(BYTES)), "malloc");
    fill(block, BYTES, generation);
}
static void digest(void) { digest_bytes(block, BYTES); }
PROGRAM(setup, check, step, digest)
