/* Node-API, as far as it is used. It is a stable ABI: Node's headers are not needed to compile. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

typedef struct napi_env__ *napi_env;
typedef struct napi_value__ *napi_value;
typedef struct napi_info__ *napi_info;
typedef struct napi_tsfn__ *napi_tsfn;
typedef struct napi_ref__ *napi_ref;
typedef napi_value (*napi_callback)(napi_env, napi_info);
typedef void (*napi_deliver)(napi_env, napi_value, void *, void *);

int napi_get_cb_info(napi_env, napi_info, size_t *, napi_value *, napi_value *, void **);
int napi_get_undefined(napi_env, napi_value *);
int napi_get_boolean(napi_env, bool, napi_value *);
int napi_get_value_int32(napi_env, napi_value, int32_t *);
int napi_get_value_double(napi_env, napi_value, double *);
int napi_get_value_string_utf8(napi_env, napi_value, char *, size_t, size_t *);
int napi_create_string_utf8(napi_env, const char *, size_t, napi_value *);
int napi_create_function(napi_env, const char *, size_t, napi_callback, void *, napi_value *);
int napi_set_named_property(napi_env, napi_value, const char *, napi_value);
int napi_call_function(napi_env, napi_value, napi_value, size_t, const napi_value *, napi_value *);
int napi_create_reference(napi_env, napi_value, uint32_t, napi_ref *);
int napi_delete_reference(napi_env, napi_ref);
int napi_get_reference_value(napi_env, napi_ref, napi_value *);
int napi_get_element(napi_env, napi_value, uint32_t, napi_value *);
int napi_typeof(napi_env, napi_value, int *);
int napi_get_and_clear_last_exception(napi_env, napi_value *);
int napi_is_exception_pending(napi_env, bool *);
int napi_throw(napi_env, napi_value);
int napi_throw_error(napi_env, const char *, const char *);
int napi_create_threadsafe_function(napi_env, napi_value, napi_value, napi_value, size_t, size_t,
                                    void *, void *, void *, napi_deliver, napi_tsfn *);
int napi_call_threadsafe_function(napi_tsfn, void *, int);

static napi_value undefined(napi_env env) {
    napi_value value = NULL;
    napi_get_undefined(env, &value);
    return value;
}

static napi_value boolean(napi_env env, bool is) {
    napi_value value = NULL;
    napi_get_boolean(env, is, &value);
    return value;
}

static napi_value argument(napi_env env, napi_info info, size_t at) {
    napi_value all[2] = {0};
    size_t count = 2;
    napi_get_cb_info(env, info, &count, all, NULL, NULL);
    return all[at];
}

static char *text_of(napi_env env, napi_value value, size_t *len) {
    if (napi_get_value_string_utf8(env, value, NULL, 0, len)) return NULL;
    char *text = malloc(*len + 1);
    if (text) napi_get_value_string_utf8(env, value, text, *len + 1, len);
    return text;
}
