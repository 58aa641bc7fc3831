// Calls into a library of its own, which the test takes away or replaces between capture and restore.
#include "../c/program.h"

int own_answer(int question);
static int asked;

static void setup(int argc, char **argv) { (void)argc, (void)argv; }
static void check(void) { CHECK_EQ(own_answer(asked), asked * 2 + 1, "answer of the library"); }
static void step(void) { asked++; }
static void digest(void) { digest_number(asked); }
PROGRAM(setup, check, step, digest)
