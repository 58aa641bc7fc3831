// Threads that wait for a question and answer it, so that a program can look at state that belongs to one thread.
// They wait on a condition variable, which leaves errno, signal masks and stacks exactly as the program set them.
#pragma once
#include "program.h"

struct worker {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int index;
    int question; // 0: nothing asked
    void (*answer)(struct worker *self, int question);
    pid_t tid;
};

static void *worker_run(void *argument) {
    struct worker *self = argument;
    self->tid = syscall(SYS_gettid);
    for (;;) {
        pthread_mutex_lock(&self->lock);
        while (!self->question) pthread_cond_wait(&self->changed, &self->lock);
        pthread_mutex_unlock(&self->lock);
        self->answer(self, self->question);
        pthread_mutex_lock(&self->lock);
        self->question = 0;
        pthread_cond_broadcast(&self->changed);
        pthread_mutex_unlock(&self->lock);
    }
    return NULL;
}

// Asks, and waits for the answer to be finished.
unused static void worker_ask(struct worker *worker, int question) {
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += PATIENCE_MS / 1000;
    pthread_mutex_lock(&worker->lock);
    worker->question = question;
    pthread_cond_broadcast(&worker->changed);
    while (worker->question)
        if (pthread_cond_clockwait(&worker->changed, &worker->lock, CLOCK_MONOTONIC, &end) == ETIMEDOUT) {
            fail("thread %d, expected an answer, got none in %d ms", worker->index, PATIENCE_MS);
            break;
        }
    pthread_mutex_unlock(&worker->lock);
}

unused static void worker_start(struct worker *worker, int index, void (*answer)(struct worker *, int)) {
    *worker = (struct worker){.index = index, .answer = answer};
    pthread_mutex_init(&worker->lock, NULL);
    pthread_cond_init(&worker->changed, NULL);
    NEED(!pthread_create(&worker->thread, NULL, worker_run, worker), "pthread_create");
    while (!*(volatile pid_t *)&worker->tid) sleep_ms(1);
}
