// Counts aloud, from its first thread, for ever: a copy of it that runs would say a number again.
#include "../c/program.h"

static int number_text(char *text, unsigned long number) {
    return snprintf(text, 30, "%lu\n", number);
}
int main(void) {
    char text[30];
    if (write(1, "ready\n", 6) != 6) return 1;
    for (unsigned long number = 1;; number++) {
        int length = number_text(text, number);
        if (write(2, text, length) != length) return 1;
        usleep(200);
    }
}
