// Proves: after a restore a process can do what it could before: fork, vfork and exec, spawn, start threads, popen.
// How: a check does each and verifies results; memory from before must be seen by the children, of which there are many
// at once that write to their own copies.
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
static void crowd(void) {
    enum { MANY = 80, OWN = 4 * PAGE };
    int gate[2];
    pid_t pids[MANY];
    CHECK_EQ(pipe(gate), 0, "pipe");
    for (int i = 0; i < MANY; i++) {
        pids[i] = fork();
        if (pids[i] > 0) continue;
        char none;
        close(gate[1]);
        bool seen = read(gate[0], &none, 1) == 0 && differs(block, OWN, generation) == -1;
        fill(block, OWN, generation + 1000 + i);
        _exit(seen && differs(block, OWN, generation + 1000 + i) == -1 ? 9 : 1);
    }
    close(gate[0]), close(gate[1]);
    for (int i = 0; i < MANY; i++) CHECK_EQ(WEXITSTATUS(status_of(pids[i])), 9, "one of many, code of child %d", i);
}
static void check(void) {
    crowd();
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
