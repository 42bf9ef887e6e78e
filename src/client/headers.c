/* Header fields of the caller: checked, copied, merged, printed. */
#include "client/headers.h"

#include <string.h>

#include "client/sized_struct.h"
#include "codec/http1/head_check.h"

/* ---- checks ---------------------------------------------------------------------------------- */

/* Fields that frame the message, describe the connection, or change the form of the answer. */
static bool is_reserved(struct str name) {
    static const struct str names[] = {
        {"Connection", 10},
        {"Content-Encoding", 16},
        {"Content-Length", 14},
        {"Content-Type", 12},
        {"Accept-Encoding", 15},
        {"Expect", 6},
        {"Host", 4},
        {"Inference-Header-Content-Length", 31},
        {"Keep-Alive", 10},
        {"Proxy-Connection", 16},
        {"TE", 2},
        {"Trailer", 7},
        {"Transfer-Encoding", 17},
        {"Upgrade", 7},
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        if (str_eq_nocase(names[i], name)) {
            return true;
        }
    }
    return false;
}

static enum status check_name(struct str name, bool is_grpc, size_t index, struct error *err) {
    if (!http1_is_token(name)) {
        return error_set(err, ST_BAD_FIELD, "header %zu: its name is not one of HTTP", index);
    }
    bool of_grpc = is_grpc && name.len >= 5 && str_eq_nocase(str_make(name.ptr, 5), STR("grpc-"));
    if (of_grpc || is_reserved(name)) {
        return error_set(err, ST_BAD_FIELD, "header %zu: %.*s is set by the library", index,
                         STR_ARG(name));
    }
    return ST_OK;
}

/* RFC 9110, 5.5: no control characters but tabs, no spaces around it; gRPC over HTTP2,
 * "ASCII-Value": no tabs and no bytes from 0x80 on. */
static bool is_value(struct str value, bool is_grpc) {
    for (size_t i = 0; i < value.len; i++) {
        unsigned char c = (unsigned char)value.ptr[i];
        if ((c < ' ' && (c != '\t' || is_grpc)) || c == 0x7f || (c > 0x7f && is_grpc)) {
            return false;
        }
    }
    return str_trim(value).len == value.len;
}

/* RFC 6750, 2.1: b64token. */
static bool is_token(struct str token) {
    bool valid = token.len > 0;
    for (size_t i = 0; i < token.len; i++) {
        char c = token.ptr[i];
        bool alphanumeric =
            (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        valid = valid && (alphanumeric || (c != '\0' && strchr("-._~+/=", c)));
    }
    return valid;
}

/* Is it VERSION-TRACE-PARENT-FLAGS in lower-case hexadecimal digits, neither id all zeros? */
static bool is_traceparent(struct str text) {
    static const char form[] = "xx-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx-xxxxxxxxxxxxxxxx-xx";
    enum { TRACE_AT = 3, TRACE_DIGITS = 32, PARENT_AT = 36, PARENT_DIGITS = 16 };
    if (text.len != sizeof(form) - 1) {
        return false;
    }
    for (size_t i = 0; i < text.len; i++) {
        char c = text.ptr[i];
        bool is_digit = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
        if (form[i] == 'x' ? !is_digit : c != form[i]) {
            return false;
        }
    }
    static const char zeros[] = "00000000000000000000000000000000";
    return memcmp(text.ptr, "ff", 2) != 0 &&
           memcmp(text.ptr + TRACE_AT, zeros, TRACE_DIGITS) != 0 &&
           memcmp(text.ptr + PARENT_AT, zeros, PARENT_DIGITS) != 0;
}

/* ---- importing ------------------------------------------------------------------------------- */

/* Returns: a copy; in lower case for gRPC. ptr NULL: no memory. */
static struct str copy_name(struct arena *arena, struct str name, bool is_grpc) {
    char *copy = is_grpc ? arena_alloc(arena, name.len) : NULL;
    for (size_t i = 0; copy && i < name.len; i++) {
        bool is_upper = name.ptr[i] >= 'A' && name.ptr[i] <= 'Z';
        copy[i] = (char)(is_upper ? name.ptr[i] - 'A' + 'a' : name.ptr[i]);
    }
    return is_grpc ? str_make(copy, name.len) : arena_dup(arena, name);
}

static enum status import_header(struct arena *arena, const struct client_headers_source *source,
                                 size_t index, struct client_header *out, struct error *err) {
    sluice_header given;
    enum status status =
        sized_array_read(&given, sizeof(given), source->items, index, "sluice_header", err);
    if (status != ST_OK) {
        return status;
    }
    if (!given.name || !given.value) {
        return error_set(err, ST_BAD_FIELD, "header %zu lacks its name or value", index);
    }
    struct str value =
        given.value_bytes > 0 ? str_make(given.value, given.value_bytes) : str_of(given.value);
    status = check_name(str_of(given.name), source->is_grpc, index, err);
    if (status != ST_OK) {
        return status;
    }
    struct str name = copy_name(arena, str_of(given.name), source->is_grpc);
    bool is_binary = source->is_grpc && name.ptr && str_ends_with(name, STR("-bin"));
    if (!is_binary && !is_value(value, source->is_grpc)) {
        return error_set(err, ST_BAD_FIELD,
                         "header %zu: the value of %s has a control character, or a space at "
                         "its start or end%s",
                         index, given.name, source->is_grpc ? ", or is not ASCII" : "");
    }
    *out = (struct client_header){name, arena_dup(arena, value)};
    return out->name.ptr && out->value.ptr ? ST_OK : error_no_memory(err, "a header");
}

static enum status add_token(struct arena *arena, const struct client_headers_source *source,
                             struct client_headers have, struct client_header *out,
                             struct error *err) {
    const char *token = source->bearer_token;
    if (!is_token(str_of(token))) {
        return error_set(err, ST_BAD_FIELD,
                         "bearer_token: expected letters, digits and -._~+/= (RFC 6750)");
    }
    if (client_headers_have(have, STR("Authorization"))) {
        return error_set(err, ST_BAD_FIELD,
                         "bearer_token and a header Authorization are given: "
                         "one of them is enough");
    }
    *out = (struct client_header){source->is_grpc ? STR("authorization") : STR("Authorization"),
                                  arena_printf(arena, "Bearer %s", token)};
    return out->value.ptr ? ST_OK : error_no_memory(err, "a header");
}

static enum status add_traceparent(struct arena *arena, const char *text, struct client_header *out,
                                   struct error *err) {
    if (!is_traceparent(str_of(text))) {
        return error_set(err, ST_BAD_FIELD,
                         "traceparent: expected VERSION-TRACE-PARENT-FLAGS, as in "
                         "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    }
    *out = (struct client_header){STR("traceparent"), arena_dup(arena, str_of(text))};
    return out->value.ptr ? ST_OK : error_no_memory(err, "a header");
}

enum status client_headers_import(struct arena *arena, const struct client_headers_source *source,
                                  struct client_headers *out, struct error *err) {
    size_t n = 0;
    *out = (struct client_headers){0};
    if (source->n == 0 && !source->bearer_token && !source->traceparent) {
        return ST_OK;
    }
    struct client_header *items = arena_calloc(arena, source->n + 2, sizeof(*items));
    if (!items) {
        return error_no_memory(err, "headers");
    }
    enum status status = ST_OK;
    for (; n < source->n && status == ST_OK; n++) {
        status = import_header(arena, source, n, &items[n], err);
    }
    if (status == ST_OK && source->bearer_token) {
        status = add_token(arena, source, (struct client_headers){items, n}, &items[n], err);
        n++;
    }
    if (status == ST_OK && source->traceparent) {
        status = add_traceparent(arena, source->traceparent, &items[n], err);
        n++;
    }
    *out = (struct client_headers){items, n};
    return status;
}

/* ---- using ----------------------------------------------------------------------------------- */

bool client_headers_have(struct client_headers headers, struct str name) {
    for (size_t i = 0; i < headers.n; i++) {
        if (str_eq_nocase(headers.items[i].name, name)) {
            return true;
        }
    }
    return false;
}

static enum status merge(struct arena *arena, struct client_headers of_client,
                         struct client_headers of_call, struct client_headers *out,
                         struct error *err) {
    size_t n = 0;
    if (of_client.n == 0 || of_call.n == 0) {
        *out = of_call.n > 0 ? of_call : of_client;
        return ST_OK;
    }
    struct client_header *items = arena_calloc(arena, of_client.n + of_call.n, sizeof(*items));
    if (!items) {
        return error_no_memory(err, "headers");
    }
    for (size_t i = 0; i < of_client.n; i++) {
        if (!client_headers_have(of_call, of_client.items[i].name)) {
            items[n++] = of_client.items[i];
        }
    }
    memcpy(items + n, of_call.items, of_call.n * sizeof(*items));
    *out = (struct client_headers){items, n + of_call.n};
    return ST_OK;
}

enum status client_headers_merge(struct arena *arena, struct client_headers of_client,
                                 struct client_headers of_call, bool is_grpc,
                                 struct client_headers *out, struct error *err) {
    enum status status = merge(arena, of_client, of_call, out, err);
    if (status == ST_OK && is_grpc && out->n > CLIENT_MAX_METADATA) {
        return error_set(err, ST_BAD_FIELD, "gRPC: expected at most %d headers, got %zu",
                         (int)CLIENT_MAX_METADATA, out->n);
    }
    return status;
}

void client_headers_print(struct buf *out, struct client_headers headers) {
    for (size_t i = 0; i < headers.n; i++) {
        buf_add_str(out, headers.items[i].name);
        buf_add_str(out, STR(": "));
        buf_add_str(out, headers.items[i].value);
        buf_add_str(out, STR("\r\n"));
    }
}
