// Proves: System V shared memory, semaphores and message queues survive with ids, keys, contents and attachments.
// How: each is made twice, once private and once by key; contents are compared, messages taken in order and sent again.
#include "program.h"
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>

#define BYTES (10 * PAGE)
struct message {
    long type;
    uint64_t words[20];
};
static int memory[2], semaphores[2], queues[2];
static char *attached[2];
static key_t key;
static uint64_t generation;

static uint64_t seed_of(int i) { return generation * 10000 + i * 1000000; }
static void send_all(int i) {
    for (int n = 0; n < 3; n++) {
        struct message message = {.type = n + 1};
        fill(message.words, sizeof message.words, seed_of(i) + 100 * n);
        NEED(!msgsnd(queues[i], &message, sizeof message.words - n * 8, IPC_NOWAIT), "msgsnd");
    }
}
static void take_all(int i) {
    struct message message;
    static const long order[] = {2, 0, 0}; // the second by type, then whatever is first
    static const long types[] = {2, 1, 3};
    for (int n = 0; n < 3; n++) {
        ssize_t length = msgrcv(queues[i], &message, sizeof message.words, order[n], IPC_NOWAIT);
        CHECK_EQ(length, sizeof message.words - (types[n] - 1) * 8, "length of message %ld", types[n]);
        CHECK_EQ(message.type, types[n], "type of message");
        if (length > 0)
            CHECK_EQ(differs(message.words, length, seed_of(i) + 100 * (types[n] - 1)), -1, "contents of message %ld",
                     types[n]);
    }
}
static void set_all(void) {
    for (int i = 0; i < 2; i++) {
        fill(attached[i], BYTES, seed_of(i));
        for (int n = 0; n < 3; n++) NEED(!semctl(semaphores[i], n, SETVAL, (int)(generation + 10 * n + i)), "semctl");
        send_all(i);
    }
}
static void remove_all(void) {
    for (int i = 0; i < 2; i++)
        shmctl(memory[i], IPC_RMID, NULL), semctl(semaphores[i], 0, IPC_RMID), msgctl(queues[i], IPC_RMID, NULL);
}
static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    key = 0x57a50000 | (getpid() & 0xffff);
    for (int i = 0; i < 2; i++) {
        key_t k = i ? key : IPC_PRIVATE;
        memory[i] = shmget(k, BYTES, IPC_CREAT | IPC_EXCL | 0600);
        if (memory[i] < 0 && errno == ENOSYS) skip("no System V IPC here");
        NEED(memory[i] >= 0, "shmget");
        NEED((semaphores[i] = semget(k, 3, IPC_CREAT | IPC_EXCL | 0600)) >= 0, "semget");
        NEED((queues[i] = msgget(k, IPC_CREAT | IPC_EXCL | 0600)) >= 0, "msgget");
        NEED((attached[i] = shmat(memory[i], NULL, 0)) != (void *)-1, "shmat");
    }
    atexit(remove_all); // outside a machine these would outlive the program
    set_all();
}
static void check(void) {
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(differs(attached[i], BYTES, seed_of(i)), -1, "shared memory %d, offset", i);
        struct shmid_ds info = {0};
        CHECK_EQ(shmctl(memory[i], IPC_STAT, &info), 0, "IPC_STAT of shared memory %d", i);
        CHECK_EQ(info.shm_segsz, BYTES, "size of shared memory %d", i);
        CHECK_EQ(info.shm_nattch, 1, "attachments of shared memory %d", i);
        char *again = shmat(memory[i], NULL, 0);
        CHECK(again != (void *)-1 && !memcmp(again, attached[i], BYTES),
              "shared memory %d attached again, expected the same bytes", i);
        if (again != (void *)-1) {
            again[5] ^= 1;
            CHECK(attached[i][5] == again[5], "write to one attachment, expected in the other");
            again[5] ^= 1;
            shmdt(again);
        }
        for (int n = 0; n < 3; n++)
            CHECK_EQ(semctl(semaphores[i], n, GETVAL), (int)(generation + 10 * n + i), "semaphore %d of set %d", n, i);
        take_all(i);
        send_all(i);
    }
    CHECK_EQ(shmget(key, 0, 0), memory[1], "shared memory by key");
    CHECK_EQ(semget(key, 0, 0), semaphores[1], "semaphores by key");
    CHECK_EQ(msgget(key, 0), queues[1], "queue by key");
    struct sembuf up_and_down[] = {{1, 1, 0}, {1, -1, IPC_NOWAIT | SEM_UNDO}, {1, 1, SEM_UNDO}, {1, -1, IPC_NOWAIT}};
    for (int n = 0; n < 4; n++) CHECK_EQ(semop(semaphores[0], &up_and_down[n], 1), 0, "semop");
}
static void step(void) {
    for (int i = 0; i < 2; i++) take_all(i);
    generation++;
    set_all();
}
static void digest(void) { digest_bytes(attached[0], BYTES), digest_bytes(attached[1], BYTES); }
PROGRAM(setup, check, step, digest)
