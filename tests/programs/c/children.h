// Child processes that wait for a question on a pipe and answer it on another, so that a program can look at
// state from a second process. A child whose parent has gone reads end-of-file and exits.
#pragma once
#include "program.h"

struct question {
    int what;
    int64_t with;
};
struct child {
    pid_t pid;
    int ask, hear; // write end of the questions, read end of the answers
};
typedef int64_t (*answerer)(struct question question, void *argument);

// Ends of pipes to other children: a new child closes them, or end-of-file would never come.
static int child_ends[256];
static int child_ends_count;

static void close_child_ends(void) {
    for (int i = 0; i < child_ends_count; i++) close(child_ends[i]);
    child_ends_count = 0;
}
static void forget_child_end(int fd) {
    for (int i = 0; i < child_ends_count; i++)
        if (child_ends[i] == fd) child_ends[i--] = child_ends[--child_ends_count];
}

// `begin` runs first in the child (may be NULL); then each question goes to `answer`.
unused static struct child child_start(answerer answer, void (*begin)(void *), void *argument) {
    int questions[2], answers[2];
    NEED(!pipe(questions) && !pipe(answers), "pipe");
    pid_t pid = fork();
    NEED(pid >= 0, "fork");
    if (pid == 0) {
        close_child_ends();
        close(questions[1]);
        close(answers[0]);
        failure[0] = 0;
        if (begin) begin(argument);
        struct question question;
        for (;;) {
            ssize_t n = read(questions[0], &question, sizeof question);
            if (n < 0 && errno == EINTR) continue;
            if (n != sizeof question) _exit(0);
            int64_t reply = answer(question, argument);
            if (failure[0]) dprintf(2, "child %d: %s\n", getpid(), failure); // the parent only sees the answer
            if (write(answers[1], &reply, sizeof reply) != sizeof reply) _exit(1);
        }
    }
    close(questions[0]);
    close(answers[1]);
    child_ends[child_ends_count++] = questions[1];
    child_ends[child_ends_count++] = answers[0];
    return (struct child){pid, questions[1], answers[0]};
}

// INT64_MIN, and a failure, when no answer comes.
unused static int64_t child_ask(struct child *child, int what, int64_t with) {
    struct question question = {what, with};
    int64_t reply;
    if (write(child->ask, &question, sizeof question) != sizeof question) {
        fail("question %d to child %d, expected to be written, got errno %d", what, child->pid, errno);
        return INT64_MIN;
    }
    ssize_t n = read_fully(child->hear, &reply, sizeof reply);
    if (n != sizeof reply) {
        fail("answer to question %d from child %d, expected 8 bytes, got %zd", what, child->pid, n);
        return INT64_MIN;
    }
    return reply;
}

// Waits, but not for ever; returns the status, or -1.
unused static int child_wait(pid_t pid) {
    int status = -1;
    pid_t got = 0;
    if (!WITHIN_PATIENCE((got = waitpid(pid, &status, WNOHANG)) != 0)) {
        fail("waitpid(%d), expected an end, got none in %d ms", pid, PATIENCE_MS);
        return -1;
    }
    CHECK(got == pid || pid < 0, "waitpid(%d), expected that pid, got %d, errno %d", pid, got, errno);
    return got > 0 ? status : -1;
}

unused static void child_forget(struct child *child) {
    forget_child_end(child->ask);
    forget_child_end(child->hear);
    close(child->ask);
    close(child->hear);
}
