/* Paths and their groups. */
#include "program/gateway/authorize.h"

#include "core/base/hex.h"

enum { MOST_PATH_BYTES = 4096 }; /* what is longer is in no group */

#define GRPC "/inference.GRPCInferenceService/"

/* The first row whose text the path begins with, or ends with. */
static const struct rule {
    const char *text;
    bool is_end;
    enum keys_group group;
} RULES[] = {
    {"/v2/health/", false, KEYS_HEALTH},
    {"/health", false, KEYS_HEALTH},
    {"/ping", false, KEYS_HEALTH},
    {"/grpc.health.v1.Health/", false, KEYS_HEALTH},
    {GRPC "ServerLive", false, KEYS_HEALTH},
    {GRPC "ServerReady", false, KEYS_HEALTH},
    {GRPC "ModelReady", false, KEYS_HEALTH},
    {GRPC "ModelInfer", false, KEYS_INFER},
    {GRPC "ModelStreamInfer", false, KEYS_INFER},
    {GRPC "ServerMetadata", false, KEYS_METADATA},
    {GRPC "ModelMetadata", false, KEYS_METADATA},
    {GRPC "ModelConfig", false, KEYS_METADATA},
    {GRPC "ModelStatistics", false, KEYS_METADATA},
    {GRPC "RepositoryIndex", false, KEYS_METADATA},
    {GRPC, false, KEYS_CONTROL}, /* loads, shared memory, traces, logs */
    {"/grpc.reflection.", false, KEYS_METADATA},
    {"/v2/repository/index", false, KEYS_METADATA},
    {"/v2/repository/", false, KEYS_CONTROL},
    {"/v2/systemsharedmemory", false, KEYS_CONTROL},
    {"/v2/cudasharedmemory", false, KEYS_CONTROL},
    {"/v2/trace/", false, KEYS_CONTROL},
    {"/v2/logging", false, KEYS_CONTROL},
    {"/infer", true, KEYS_INFER},
    {"/generate", true, KEYS_INFER},
    {"/generate_stream", true, KEYS_INFER},
    {"/trace/setting", true, KEYS_CONTROL},
    {"/ready", true, KEYS_HEALTH},
};

/* Decodes escapes and merges slashes, as a server may. Returns: false: too long. */
static bool normalize(struct str path, char out[MOST_PATH_BYTES], struct str *normal) {
    size_t n = 0;
    for (size_t i = 0; i < path.len; i++) {
        unsigned char byte = (unsigned char)path.ptr[i];
        int high = byte == '%' && path.len - i > 2 ? hex_value(path.ptr[i + 1]) : -1;
        int low = high >= 0 ? hex_value(path.ptr[i + 2]) : -1;
        if (low >= 0) {
            byte = (unsigned char)(high << 4 | low);
            i += 2;
        }
        if (byte == '/' && n > 0 && out[n - 1] == '/') {
            continue;
        }
        if (n == MOST_PATH_BYTES) {
            return false;
        }
        out[n++] = (char)byte;
    }
    *normal = str_make(out, n);
    return true;
}

static bool has_dot_segment(struct str path) {
    while (path.ptr) {
        struct str segment = str_cut(&path, '/');
        if (str_is(segment, ".") || str_is(segment, "..")) {
            return true;
        }
    }
    return false;
}

enum keys_group authorize_group_of(struct str method, struct str given) {
    char buffer[MOST_PATH_BYTES];
    struct str path;
    if (!normalize(given, buffer, &path) || has_dot_segment(path)) {
        return KEYS_NO_GROUP;
    }
    for (size_t i = 0; i < sizeof(RULES) / sizeof(RULES[0]); i++) {
        struct str text = str_of(RULES[i].text);
        if (RULES[i].is_end ? str_ends_with(path, text) : str_starts_with(path, text)) {
            return RULES[i].group;
        }
    }
    bool reads = str_is(method, "GET") || str_is(method, "HEAD") || str_is(method, "OPTIONS");
    return reads ? KEYS_METADATA : KEYS_INFER;
}

void authorize_reply(const struct keys *keys, struct http_exchange *exchange) {
    static const size_t PREFIX = sizeof(AUTHORIZE_PREFIX) - 1;
    struct str path = str_make(exchange->head.path.ptr + PREFIX, exchange->head.path.len - PREFIX);
    char challenge[KEYS_CHALLENGE_BYTES];
    struct error err;
    if (keys_authorize_http(keys, authorize_group_of(exchange->head.method, path), &exchange->head,
                            challenge, &err) == ST_OK) {
        http_reply(exchange, &(struct http_reply){.status = 200});
        return;
    }
    struct http_field field = {STR("WWW-Authenticate"), str_of(challenge)};
    http_reply_error(exchange, &err, &field, 1);
}
