/* The parts of the JavaScript agent that need C: the control socket, interrupts, and writing to
 * the pipes in order.
 *
 *   thread   takes one order at a time from the socket ──► main loop: onOrder(text)
 *            SIGINT ──► main loop: onInterrupt()   if the loop does not come to it: terminate
 *   main     onOrder gives a message for the inspector, which is sent from here, so that no frame
 *            of the agent's is below user code ──► onSent(whether it was not interrupted)
 *            guard(f): user code runs; closed again afterwards, and free of any termination
 *
 * A turn is one order, from when it is taken until it is answered. A signal belongs to the turn in which it arrives: the
 * handler notes the turn, and a signal noted for another one does nothing. User code may be
 * terminated only while the gate is open. Nothing here calls code that a program could replace.
 *
 * V8's own functions are looked up by name; a Node without them is refused at load.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "napi.h"

enum { CONTROL = 3, HIGH = 500, PIECE = 1 << 16, STACK = 128 << 10 };
/* How long the loop may take to handle an interrupt before the running code is terminated. */
enum { GRACE_MS = 10 };
/* How long the host may take to read a pipe before the other one is written to. */
enum { READ_MS = 1000 };

static void *isolate;
static void (*terminate)(void *);
static void (*cancel)(void *);

static int control, copies[3], wake_read, wake_write;
static int last_stream;
static napi_tsfn on_order, on_interrupt;
/* The inspector's connection, its function for sending, and what is called afterwards. */
static napi_ref inspector, dispatch, on_sent;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* The turn under way, 0 for none, and whether the loop has come to its order. Before that it runs
 * what earlier ones left, or a signal for an earlier one is only now heard. */
static _Atomic uint64_t turn;
static _Atomic bool begun;
/* The turn a signal arrived in, and in its lowest bit whether that had begun. */
static _Atomic uint64_t signalled;
/* The turn to be interrupted. */
static uint64_t pending, turns;
static bool open_gate;
static _Atomic bool busy;

static void poke(char what) {
    int kept = errno;
    while (write(wake_write, &what, 1) < 0 && errno == EINTR) {}
    errno = kept;
}

static void on_signal(int number) {
    (void)number;
    atomic_store(&signalled, atomic_load(&turn) << 1 | atomic_load(&begun));
    poke('i');
}

static int copy_high(int fd) {
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, HIGH);
    return copy < 0 ? fcntl(fd, F_DUPFD_CLOEXEC, CONTROL + 1) : copy;
}

static bool is_same(int one, int other) {
    struct stat a, b;
    return !fstat(one, &a) && !fstat(other, &b) && a.st_ino == b.st_ino && a.st_dev == b.st_dev;
}

/* --- the thread ------------------------------------------------------------------------------ */

struct line {
    char *text;
    size_t len, room;
};

static void add(struct line *line, const char *data, size_t len) {
    if (line->len + len > line->room) {
        line->room = (line->len + len) * 2;
        line->text = realloc(line->text, line->room);
        if (!line->text) _exit(1);
    }
    memcpy(line->text + line->len, data, len);
    line->len += len;
}

/* Takes what there is of the next line. Bytes are looked at first: between the two the machine may
 * be captured and go on with another socket, and then what was begun is forgotten. */
static bool take(struct line *line) {
    static char seen[PIECE], taken[PIECE];
    ssize_t len = recv(control, seen, PIECE, MSG_PEEK | MSG_DONTWAIT);
    if (len < 0) return false;
    if (len == 0) _exit(0);
    char *end = memchr(seen, '\n', (size_t)len);
    size_t wanted = end ? (size_t)(end - seen) + 1 : (size_t)len;
    ssize_t got = recv(control, taken, wanted, MSG_DONTWAIT);
    if (got <= 0) return false;
    if (memcmp(seen, taken, (size_t)got) != 0) line->len = 0;
    add(line, taken, (size_t)got);
    return taken[got - 1] == '\n';
}

static bool must_end(uint64_t own) {
    return own && own == pending && own == atomic_load(&turn);
}

static void wait_a_moment(void) {
    struct pollfd grace = {wake_read, POLLIN, 0};
    poll(&grace, 1, GRACE_MS);
}

/* Asks the loop first. Only if it is busy, what it runs is terminated: a loop that waits would
 * otherwise terminate whatever it runs next. */
static void interrupt(uint64_t own) {
    pthread_mutex_lock(&lock);
    bool fits = own == atomic_load(&turn);
    if (fits) pending = own;
    pthread_mutex_unlock(&lock);
    if (!fits) return;
    napi_call_threadsafe_function(on_interrupt, NULL, 0);
    wait_a_moment();
    pthread_mutex_lock(&lock);
    if (must_end(own) && open_gate) terminate(isolate);
    pthread_mutex_unlock(&lock);
}

/* Terminates code that keeps the loop from reaching an order, so that the order is carried out. */
static void clear_way(uint64_t own) {
    wait_a_moment();
    pthread_mutex_lock(&lock);
    if (own == atomic_load(&turn) && !atomic_load(&begun)) terminate(isolate);
    pthread_mutex_unlock(&lock);
}

static void heard_signal(void) {
    uint64_t noted = atomic_load(&signalled);
    if (noted >> 1 == 0) return;
    if (noted & 1) interrupt(noted >> 1);
    else clear_way(noted >> 1);
}

static void hear_wake(void) {
    char what[64];
    ssize_t count = read(wake_read, what, sizeof what);
    if (count > 0 && memchr(what, 'i', (size_t)count)) heard_signal();
}

static void begin_turn(void) {
    pthread_mutex_lock(&lock);
    atomic_store(&busy, true);
    atomic_store(&begun, false);
    atomic_store(&turn, ++turns);
    pending = 0;
    open_gate = false;
    pthread_mutex_unlock(&lock);
}

static void look(struct line *line) {
    struct pollfd fds[2] = {{wake_read, POLLIN, 0}, {control, POLLIN, 0}};
    if (poll(fds, atomic_load(&busy) ? 1 : 2, -1) < 0) return;
    if (fds[0].revents) hear_wake();
    if (atomic_load(&busy) || !fds[1].revents || !take(line)) return;
    begin_turn();
    napi_call_threadsafe_function(on_order, line->text, 0);
    *line = (struct line){0};
}

static void *serve(void *unused) {
    struct line line = {0};
    while (true) look(&line);
    return unused;
}

/* --- on the main thread ---------------------------------------------------------------------- */

/* Closes the gate, and cancels a pending termination of finished code. */
static void close_gate(void) {
    pthread_mutex_lock(&lock);
    open_gate = false;
    pthread_mutex_unlock(&lock);
    cancel(isolate); /* also one that was requested and is not yet seen */
}

static void deliver_interrupt(napi_env env, napi_value function, void *unused, void *data) {
    (void)unused;
    (void)data;
    pthread_mutex_lock(&lock);
    bool is_due = must_end(atomic_load(&turn)) && open_gate;
    pthread_mutex_unlock(&lock);
    if (!env || !is_due) return;
    close_gate();
    napi_call_function(env, undefined(env), function, 0, NULL, NULL);
}

static void take_signal(void) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGINT, &action, NULL);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

/* heed(): takes SIGINT, also from a handler that user code installed. */
static napi_value heed(napi_env env, napi_info info) {
    (void)info;
    take_signal();
    return undefined(env);
}

/* The loop has come to the order. From now on the gate is closed, and both pipes are where they
 * belong. */
static void begin(void) {
    take_signal();
    for (int fd = 1; fd <= 2; fd++)
        if (!is_same(fd, copies[fd])) dup2(copies[fd], fd);
    pthread_mutex_lock(&lock);
    atomic_store(&begun, true);
    pthread_mutex_unlock(&lock);
    close_gate();
}

/* end(): the turn is over, and the next order may come. */
static napi_value finish(napi_env env, napi_info info) {
    (void)info;
    pthread_mutex_lock(&lock);
    atomic_store(&turn, 0);
    pending = 0;
    pthread_mutex_unlock(&lock);
    close_gate();
    atomic_store(&busy, false);
    poke('n');
    return undefined(env);
}

/* open(): lets what the loop runs be interrupted. False if the turn is interrupted already. */
static napi_value leave_open(napi_env env, napi_info info) {
    (void)info;
    pthread_mutex_lock(&lock);
    bool is_due = must_end(atomic_load(&turn));
    open_gate = !is_due;
    pthread_mutex_unlock(&lock);
    return boolean(env, !is_due);
}

static napi_value shut(napi_env env, napi_info info) {
    (void)info;
    close_gate();
    return undefined(env);
}

/* Calls a function with the gate open. False if it was interrupted. */
static bool guarded(napi_env env, napi_value self, napi_value function, size_t count,
                    napi_value *arguments, int *status) {
    pthread_mutex_lock(&lock);
    bool is_due = must_end(atomic_load(&turn));
    open_gate = !is_due;
    pthread_mutex_unlock(&lock);
    *status = 0;
    if (is_due) return false;
    *status = napi_call_function(env, self, function, count, arguments, NULL);
    pthread_mutex_lock(&lock);
    /* the inspector may have taken the termination back already */
    bool ended = must_end(atomic_load(&turn));
    pthread_mutex_unlock(&lock);
    close_gate();
    return !ended;
}

/* Takes the pending exception, if there is one, and clears it. */
static napi_value caught(napi_env env) {
    bool is_thrown = false;
    napi_value error = NULL;
    napi_is_exception_pending(env, &is_thrown);
    if (is_thrown) napi_get_and_clear_last_exception(env, &error);
    return error;
}

/* guard(f): calls f with the gate open. False if it was interrupted; what it throws is thrown. */
static napi_value guard(napi_env env, napi_info info) {
    int status = 0;
    bool ended = !guarded(env, undefined(env), argument(env, info, 0), 0, NULL, &status);
    napi_value error = caught(env);
    if (ended || !status) return boolean(env, !ended);
    if (error) napi_throw(env, error);
    else napi_throw_error(env, NULL, "the call failed");
    return NULL;
}

static napi_value kept(napi_env env, napi_ref reference) {
    napi_value value = NULL;
    napi_get_reference_value(env, reference, &value);
    return value;
}

/* Sends a message to the inspector, which may run user code. */
static void post(napi_env env, napi_value message) {
    int status = 0;
    bool whole = guarded(env, kept(env, inspector), kept(env, dispatch), 1, &message, &status);
    caught(env);
    napi_value answer = boolean(env, whole);
    napi_call_function(env, undefined(env), kept(env, on_sent), 1, &answer, NULL);
}

static void deliver_order(napi_env env, napi_value function, void *unused, void *data) {
    (void)unused;
    enum { STRING = 4 };
    napi_value text = NULL, message = NULL;
    int kind = 0;
    char *end = strchr(data, '\n');
    size_t len = end ? (size_t)(end - (char *)data) : 0;
    begin(); /* before any code of the agent's, which must not be terminated */
    if (env && !napi_create_string_utf8(env, data, len, &text) &&
        !napi_call_function(env, undefined(env), function, 1, &text, &message) &&
        !napi_typeof(env, message, &kind) && kind == STRING)
        post(env, message);
    free(data);
}

static void write_all(int fd, const char *data, size_t len) {
    while (len > 0) {
        ssize_t count = write(fd, data, len);
        if (count > 0) {
            data += count;
            len -= (size_t)count;
        } else if (errno == EAGAIN) {
            struct pollfd one = {fd, POLLOUT, 0};
            poll(&one, 1, -1);
        } else if (errno != EINTR) {
            return;
        }
    }
}

/* Waits until the host has read everything: first busily, then with naps, for a bounded time. */
static void wait_empty(int fd, unsigned long request) {
    int left = 0;
    struct timespec nap = {0, 500000};
    for (int naps = 0; naps < READ_MS * 2 + 100; naps++) {
        if (ioctl(fd, request, &left) || left == 0) return;
        if (naps > 100) nanosleep(&nap, NULL);
    }
}

/* send(text): one report, whole. */
static napi_value send_report(napi_env env, napi_info info) {
    size_t len = 0;
    char *text = text_of(env, argument(env, info, 0), &len);
    if (text) {
        text[len] = '\n';
        write_all(control, text, len + 1);
        free(text);
    }
    return undefined(env);
}

#include "ask.h"

/* write(stream, text): to a pipe, after the host has read what the other one holds. */
static napi_value write_stream(napi_env env, napi_info info) {
    int32_t stream = 1;
    size_t len = 0;
    napi_get_value_int32(env, argument(env, info, 0), &stream);
    char *text = text_of(env, argument(env, info, 1), &len);
    if (!text || stream < 1 || stream > 2) return undefined(env);
    if (last_stream && last_stream != stream) wait_empty(copies[last_stream], FIONREAD);
    last_stream = stream;
    write_all(copies[stream], text, len);
    free(text);
    return undefined(env);
}

/* settle(): lets the host read both pipes and the socket; whatever is written next is in order. */
static napi_value settle(napi_env env, napi_info info) {
    (void)info;
    wait_empty(copies[1], FIONREAD);
    wait_empty(copies[2], FIONREAD);
    wait_empty(control, TIOCOUTQ);
    last_stream = 0;
    return undefined(env);
}

/* stir(text): gives OpenSSL fresh entropy; says whether it could. */
static napi_value stir(napi_env env, napi_info info) {
    void (*more)(const void *, int, double) =
        (void (*)(const void *, int, double))dlsym(RTLD_DEFAULT, "RAND_add");
    size_t len = 0;
    char *text = more ? text_of(env, argument(env, info, 0), &len) : NULL;
    if (text) more(text, (int)len, (double)len / 2);
    free(text);
    return boolean(env, text != NULL);
}

static int keep(napi_env env, napi_value all, uint32_t at, napi_ref *reference) {
    napi_value one = NULL;
    return napi_get_element(env, all, at, &one) || napi_create_reference(env, one, 1, reference);
}

static int channel(napi_env env, napi_value all, uint32_t at, napi_deliver deliver,
                   napi_tsfn *made) {
    napi_value name = NULL, one = NULL;
    napi_create_string_utf8(env, "stasis", 6, &name);
    return napi_get_element(env, all, at, &one) ||
           napi_create_threadsafe_function(env, one, NULL, name, 0, 1, NULL, NULL, NULL, deliver,
                                           made);
}

/* attach([connection, dispatch]): where messages for the inspector go. */
static napi_value attach(napi_env env, napi_info info) {
    napi_value all = argument(env, info, 0);
    if (inspector) napi_delete_reference(env, inspector);
    if (dispatch) napi_delete_reference(env, dispatch);
    inspector = dispatch = NULL;
    if (keep(env, all, 0, &inspector) || keep(env, all, 1, &dispatch))
        napi_throw_error(env, NULL, "the inspector cannot be used");
    return undefined(env);
}

/* start([onOrder, onInterrupt, onSent]): takes the socket over and begins to read it. */
static napi_value start(napi_env env, napi_info info) {
    napi_value all = argument(env, info, 0);
    int fault = channel(env, all, 0, deliver_order, &on_order) ||
                channel(env, all, 1, deliver_interrupt, &on_interrupt) ||
                keep(env, all, 2, &on_sent);
    fcntl(CONTROL, F_SETFD, FD_CLOEXEC);
    control = copy_high(CONTROL);
    for (int fd = 1; fd <= 2; fd++) copies[fd] = copy_high(fd);
    int ends[2] = {-1, -1};
    fault |= pipe2(ends, O_CLOEXEC | O_NONBLOCK);
    wake_read = fcntl(ends[0], F_DUPFD_CLOEXEC, HIGH);
    wake_write = fcntl(ends[1], F_DUPFD_CLOEXEC, HIGH);
    close(ends[0]);
    close(ends[1]);
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t every, before;
    sigfillset(&every);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_BLOCK, &every, &before);
    fault |= pthread_create(&thread, &attributes, serve, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (fault || control < 0 || wake_write < 0)
        napi_throw_error(env, NULL, "the control socket cannot be used");
    return undefined(env);
}

static void *find(const char *name) { return dlsym(RTLD_DEFAULT, name); }

__attribute__((visibility("default"))) napi_value napi_register_module_v1(napi_env env,
                                                                          napi_value exports) {
    void *(*current)(void) = (void *(*)(void))find("_ZN2v87Isolate10GetCurrentEv");
    terminate = (void (*)(void *))find("_ZN2v87Isolate18TerminateExecutionEv");
    cancel = (void (*)(void *))find("_ZN2v87Isolate24CancelTerminateExecutionEv");
    if (!current || !terminate || !cancel) {
        napi_throw_error(env, NULL, "this Node lacks functions of V8 that interrupts need");
        return exports;
    }
    isolate = current();
    const struct {
        const char *name;
        napi_callback call;
    } functions[] = {
        {"start", start},      {"end", finish},
        {"open", leave_open},  {"shut", shut},         {"guard", guard},
        {"send", send_report}, {"write", write_stream}, {"settle", settle},
        {"stir", stir},        {"heed", heed},         {"attach", attach},
        {"ask", ask},
    };
    for (size_t at = 0; at < sizeof functions / sizeof *functions; at++) {
        napi_value function = NULL;
        napi_create_function(env, functions[at].name, strlen(functions[at].name),
                             functions[at].call, NULL, &function);
        napi_set_named_property(env, exports, functions[at].name, function);
    }
    return exports;
}

__attribute__((visibility("default"))) int32_t node_api_module_get_api_version_v1(void) {
    return 8;
}
