/* Questions of the agent to the host, which the main thread waits for. Part of native.c. */

/* How long the host may take to answer a question, and how often the turn is looked at meanwhile. */
enum { ANSWER_MS = 120000, SLICE_MS = 20 };

/* Whether the turn is over, so that a thread that waits in it must return. */
static bool is_due(void) {
    pthread_mutex_lock(&lock);
    bool due = !atomic_load(&turn) || must_end(atomic_load(&turn));
    pthread_mutex_unlock(&lock);
    return due;
}

/* ask(text, forever): sends a report, none if it is empty, and waits for the line that answers it;
 * without a limit, if a second argument is given. Undefined if there is no turn, if it is
 * interrupted, or if the host does not answer. The thread leaves the socket alone during a turn. */
static napi_value ask(napi_env env, napi_info info) {
    static struct line line;
    napi_value answer = NULL;
    size_t len = 0;
    if (is_due()) return undefined(env);
    char *text = text_of(env, argument(env, info, 0), &len);
    if (!text) return undefined(env);
    if (len) {
        text[len] = '\n';
        write_all(control, text, len + 1);
    }
    free(text);
    int32_t patience = ANSWER_MS;
    napi_get_value_int32(env, argument(env, info, 1), &patience);
    for (int slices = 0; patience < 0 || slices < patience / SLICE_MS; slices++) {
        struct pollfd one = {control, POLLIN, 0};
        if (is_due()) return undefined(env);
        if (poll(&one, 1, SLICE_MS) <= 0 || !take(&line)) continue;
        int status = napi_create_string_utf8(env, line.text, line.len - 1, &answer);
        free(line.text);
        line = (struct line){0};
        return status ? undefined(env) : answer;
    }
    return undefined(env);
}
