// Proves: pseudo-terminals survive: settings, window size, unread input and output, and the controlling terminal with
// its foreground group. How: one pair holds a typed line and printed text nobody has read; a child leads a session on
// the other, where ^C typed at the master must interrupt it and nothing may have hung up.
#include "children.h"
#include <sys/ioctl.h>
#include <termios.h>

static int master, slave, session_master, session_slave;
static struct termios settings;
static struct winsize size = {.ws_row = 33, .ws_col = 101};
static struct child child;
static uint64_t generation;
static volatile sig_atomic_t interrupts, hangups;
enum { INTERRUPTS = 1, HANGUPS, FOREGROUND, TTY_OPENS, READ_LINE };

static void on_signal(int signal) {
    if (signal == SIGINT)
        interrupts++;
    else
        hangups++;
}
static int64_t answer(struct question q, void *unused_) {
    (void)unused_;
    char line[100];
    switch (q.what) {
    case INTERRUPTS: return interrupts;
    case HANGUPS: return hangups;
    case FOREGROUND: return tcgetpgrp(session_slave);
    case TTY_OPENS: {
        int fd = open("/dev/tty", O_RDWR);
        close(fd);
        return fd >= 0 ? 0 : -errno;
    }
    case READ_LINE: return readable_within(session_slave, PATIENCE_MS) ? read(session_slave, line, sizeof line) : -1;
    }
    return -1;
}
static void lead_session(void *unused_) {
    (void)unused_;
    setsid();
    NEED(!ioctl(session_slave, TIOCSCTTY, 0), "TIOCSCTTY");
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGINT, &action, NULL), sigaction(SIGHUP, &action, NULL);
    close(session_master), close(master), close(slave);
}
static bool open_pty(int *m, int *s) {
    char name[64];
    *m = posix_openpt(O_RDWR | O_NOCTTY);
    if (*m < 0) return false;
    NEED(!grantpt(*m) && !unlockpt(*m) && !ptsname_r(*m, name, sizeof name), "pty");
    return (*s = open(name, O_RDWR | O_NOCTTY)) >= 0;
}
static int text(const char *who, char *buffer) { return sprintf(buffer, "%s %d\n", who, (int)generation); }
static void put(void) {
    char line[100];
    int n = text("typed", line);
    CHECK_EQ(write(master, line, n), n, "typing");
    n = text("printed", line);
    CHECK_EQ(write(slave, line, n), n, "printing");
}
static void take(void) {
    char line[100], got[200] = "";
    int n = text("typed", line);
    ssize_t length = readable_within(slave, 0) ? read(slave, got, sizeof got) : -1;
    CHECK(length == n && !memcmp(got, line, n), "typed line, expected %d bytes, got %zd: %.*s", n, length, (int)length,
          got);
    n = text("printed", line);
    length = read_fully(master, got, n);
    CHECK(length == n && !memcmp(got, line, n), "printed text, expected %d bytes, got %zd: %.*s", n, length,
          (int)length, got);
    CHECK(!readable_within(master, 0), "output, expected nothing more");
}
static void apply(void) { // unusual but simple: no echo, no output processing, line mode, other characters
    tcgetattr(slave, &settings);
    settings.c_lflag = ICANON | (generation % 2 ? IEXTEN : 0);
    settings.c_oflag = 0;
    settings.c_iflag = ICRNL;
    settings.c_cc[VEOF] = 5, settings.c_cc[VKILL] = 21 + generation % 3;
    NEED(!tcsetattr(slave, TCSANOW, &settings), "tcsetattr");
    size.ws_col = 101 + generation;
    NEED(!ioctl(master, TIOCSWINSZ, &size), "TIOCSWINSZ");
}
static void setup(int argc, char **argv) {
    (void)argc, (void)argv;
    if (!open_pty(&master, &slave)) skip("no pseudo-terminals here: %s", strerror(errno));
    NEED(open_pty(&session_master, &session_slave), "second pty");
    child = child_start(answer, lead_session, NULL);
    child_ask(&child, TTY_OPENS, 0);
    apply();
    put();
}
static void check(void) {
    struct termios now;
    CHECK_EQ(tcgetattr(slave, &now), 0, "tcgetattr");
    CHECK_EQ(now.c_lflag, settings.c_lflag, "local modes");
    CHECK_EQ(now.c_oflag, settings.c_oflag, "output modes");
    CHECK_EQ(now.c_iflag, settings.c_iflag, "input modes");
    CHECK(!memcmp(now.c_cc, settings.c_cc, NCCS), "control characters, expected the ones set");
    struct winsize window;
    CHECK_EQ(ioctl(slave, TIOCGWINSZ, &window), 0, "TIOCGWINSZ");
    CHECK_EQ(window.ws_col, size.ws_col, "columns");
    CHECK_EQ(window.ws_row, size.ws_row, "rows");
    char name[64], path[64] = "", link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", slave);
    CHECK(!ptsname_r(master, name, sizeof name) && readlink(link, path, sizeof path - 1) > 0 && !strcmp(name, path),
          "name of the slave, expected %s, got %s", name, path);
    take();
    put();
    CHECK_EQ(child_ask(&child, FOREGROUND, 0), child.pid, "foreground group of the session");
    CHECK_EQ(child_ask(&child, TTY_OPENS, 0), 0, "opening /dev/tty in the session");
    int64_t before = child_ask(&child, INTERRUPTS, 0);
    CHECK_EQ(write(session_master, "\003", 1), 1, "typing ^C");
    CHECK(WITHIN_PATIENCE(child_ask(&child, INTERRUPTS, 0) == before + 1), "interrupts, expected %" PRId64, before + 1);
    CHECK_EQ(write(session_master, "line\n", 5), 5, "typing a line");
    CHECK_EQ(child_ask(&child, READ_LINE, 0), 5, "line read by the session");
    CHECK_EQ(child_ask(&child, HANGUPS, 0), 0, "hang-ups");
    char echoed[200];
    while (readable_within(session_master, 0))
        if (read(session_master, echoed, sizeof echoed) <= 0) break; // ^C and the line, echoed
}
static void step(void) {
    take();
    generation++;
    apply();
    put();
}
static void digest(void) { digest_number(generation), digest_bytes(settings.c_cc, NCCS), digest_number(size.ws_col); }
PROGRAM(setup, check, step, digest)
