// A library of its own for `library.c`: small, private, and replaceable without harm to anything else.
int own_answer(int question) { return question * 2 + 1; }
