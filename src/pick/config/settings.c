/* How endpoints are checked, and the names and forms of the protocol. */
#include "codec/http1/cookie.h"
#include "pick/config/reader.h"

static const uint64_t NS_PER_MS = 1000000;
static const uint64_t NS_PER_S = 1000000000;
static const uint64_t NS_PER_HOUR = UINT64_C(3600000000000);

enum status pool_config_read_unsigned(const struct doc_node *node, int64_t min, int64_t max,
                                      uint64_t *out, struct error *err) {
    int64_t value = (int64_t)*out;
    enum status st = doc_read_i64(node, min, max, &value, err);
    *out = (uint64_t)value;
    return st;
}

/* A text that may be empty. */
static enum status read_text(struct pool_config_reader *reader, const struct doc_node *node,
                             struct str *out, struct error *err) {
    struct str text = {NULL, 0};
    enum status st = doc_read_str(node, &text, err);
    if (st != ST_OK || !node->val) {
        return st;
    }
    if (memchr(text.ptr, '\0', text.len)) {
        return doc_error(node, err, "a NUL character can't be in this text");
    }
    *out = pool_spec_dup_text(reader->spec, text);
    return out->ptr ? ST_OK : pool_config_no_memory(reader, err);
}

/* ---- health ---------------------------------------------------------------------------------- */

/* Exactly one of the three ways to check. */
static enum status read_kind(struct pool_config_reader *reader, const struct doc_node *node,
                             struct pool_health *out, struct error *err) {
    struct doc_node http = doc_get(node, "http"), grpc = doc_get(node, "grpc");
    struct doc_node tcp = doc_get(node, "tcp");
    bool by_tcp = false;
    enum status st = doc_read_bool(&tcp, &by_tcp, err);
    if (st == ST_OK) {
        st = pool_config_read_path(reader, &http, &out->path, err);
    }
    if (st == ST_OK) {
        st = read_text(reader, &grpc, &out->service, err);
    }
    if (st != ST_OK) {
        return st;
    }
    if ((http.val != NULL) + (grpc.val != NULL) + by_tcp != 1) {
        return doc_error(node, err,
                         "expected one of `http: /PATH`, `grpc: SERVICE` and `tcp: true`");
    }
    out->kind = http.val ? POOL_HEALTH_HTTP : grpc.val ? POOL_HEALTH_GRPC : POOL_HEALTH_TCP;
    return ST_OK;
}

static enum status read_thresholds(const struct doc_node *node, struct pool_health *out,
                                   struct error *err) {
    struct doc_node healthy = doc_get(node, "healthy"), unhealthy = doc_get(node, "unhealthy");
    uint64_t n_healthy = 1, n_unhealthy = 2;
    enum status st = pool_config_read_unsigned(&healthy, 1, 100, &n_healthy, err);
    if (st == ST_OK) {
        st = pool_config_read_unsigned(&unhealthy, 1, 100, &n_unhealthy, err);
    }
    out->n_healthy = (unsigned)n_healthy;
    out->n_unhealthy = (unsigned)n_unhealthy;
    return st;
}

static enum status read_health(struct pool_config_reader *reader, const struct doc_node *node,
                               struct error *err) {
    static const char *const names[] = {"http",    "grpc",    "tcp",       "port", "interval",
                                        "timeout", "healthy", "unhealthy", NULL};
    struct pool_health health = {.interval_ns = NS_PER_S, .timeout_ns = NS_PER_S};
    struct doc_node port = doc_get(node, "port"), interval = doc_get(node, "interval");
    struct doc_node timeout = doc_get(node, "timeout");
    if (!doc_is_present(node)) {
        return ST_OK;
    }
    enum status st = doc_expect_object(node, err);
    if (st == ST_OK) {
        st = doc_reject_unknown(node, names, err);
    }
    if (st == ST_OK) {
        st = read_kind(reader, node, &health, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_port(&port, &health.port, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_duration(&interval, 10 * NS_PER_MS, NS_PER_HOUR, &health.interval_ns,
                                       err);
    }
    if (st == ST_OK) {
        st = pool_config_read_duration(&timeout, NS_PER_MS, NS_PER_HOUR, &health.timeout_ns, err);
    }
    if (st == ST_OK) {
        st = read_thresholds(node, &health, err);
    }
    reader->spec->health = health;
    return st;
}

/* ---- the protocol ---------------------------------------------------------------------------- */

/* RFC 9110, 5.6.2, in lower case. */
static bool is_header(struct str name) {
    for (size_t i = 0; i < name.len; i++) {
        char c = name.ptr[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        if (!letter && (c == '\0' || !strchr("!#$%&'*+-.^_`|~", c))) {
            return false;
        }
    }
    return name.len > 0;
}

static enum status read_key(struct pool_config_reader *reader, const struct doc_node *node,
                            struct str *out, struct error *err) {
    return node->val ? pool_config_read_name(reader, node, out, err) : ST_OK;
}

enum status pool_config_read_header(struct pool_config_reader *reader, const struct doc_node *node,
                                    struct str *out, struct error *err) {
    struct str name = *out;
    enum status st = read_key(reader, node, &name, err);
    if (st == ST_OK && node->val && !is_header(name)) {
        st = doc_error(node, err, "expected the name of a header in lower case, got \"%.*s\"",
                       STR_ARG(name));
    }
    *out = name;
    return st;
}

static enum status read_headers(struct pool_config_reader *reader, const struct doc_node *node,
                                struct protocol_headers *out, struct error *err) {
    enum status st = ST_OK;
    if (!node->val) {
        return ST_OK;
    }
    size_t n = doc_is_present(node) ? doc_count(node) : 0;
    if (n > PROTOCOL_MAX_HEADERS) {
        return doc_error(node, err, "expected at most %d headers, got %zu", PROTOCOL_MAX_HEADERS,
                         n);
    }
    *out = (struct protocol_headers){.n = n};
    struct doc_node item = {0};
    for (size_t i = 0; i < n && st == ST_OK && doc_next(node, &item); i++) {
        st = pool_config_read_header(reader, &item, &out->names[i], err);
    }
    return st;
}

static enum status read_cookie(struct pool_config_reader *reader, const struct doc_node *node,
                               struct str *out, struct error *err) {
    struct str name = *out;
    enum status st = read_key(reader, node, &name, err);
    if (st == ST_OK && node->val && !cookie_is_name(name)) {
        st = doc_error(node, err, "expected the name of a cookie, got \"%.*s\"", STR_ARG(name));
    }
    *out = name;
    return st;
}

enum name_kind { NAME_COOKIE, NAME_KEY, NAME_HEADER, NAME_HEADERS };

static const struct {
    const char *field;
    enum name_kind kind;
    size_t at; /* in struct protocol */
} name_rows[] = {
#define NAME(field, kind, preset, help) {#field, NAME_##kind, offsetof(struct protocol, field)},
#include "pick/pool/endpoint/protocol.def"
#undef NAME
};

/* `out`: as its kind has it. */
static enum status read_name_of(struct pool_config_reader *reader, enum name_kind kind,
                                const struct doc_node *node, void *out, struct error *err) {
    switch (kind) {
    case NAME_COOKIE:
        return read_cookie(reader, node, out, err);
    case NAME_KEY:
        return read_key(reader, node, out, err);
    case NAME_HEADER:
        return pool_config_read_header(reader, node, out, err);
    case NAME_HEADERS:
        break;
    }
    return read_headers(reader, node, out, err);
}

static enum status read_names(struct pool_config_reader *reader, const struct doc_node *node,
                              struct error *err) {
    char *protocol = (char *)&reader->spec->protocol;
    enum status st = ST_OK;
    for (size_t i = 0; i < sizeof(name_rows) / sizeof(name_rows[0]) && st == ST_OK; i++) {
        struct doc_node member = doc_get(node, name_rows[i].field);
        st = read_name_of(reader, name_rows[i].kind, &member, protocol + name_rows[i].at, err);
    }
    return st;
}

static enum status read_fallback(const struct doc_node *node, struct protocol *protocol,
                                 struct error *err) {
    static const char *const words[] = {"none", "key", "list", NULL};
    struct doc_node form = doc_get(node, "fallback"), most = doc_get(node, "fallbacks");
    unsigned word = (unsigned)protocol->fallback; /* in the order of the enum */
    uint64_t n = protocol->n_fallbacks;
    enum status st = pool_config_read_word(&form, words, &word, err);
    protocol->fallback = (enum protocol_fallback)word;
    if (st == ST_OK && most.val && protocol->fallback != FALLBACK_LIST) {
        return doc_error(&most, err, "is for `fallback: list`; a key takes one");
    }
    if (st == ST_OK) {
        st = pool_config_read_unsigned(&most, 1, PROTOCOL_MAX_FALLBACKS, &n, err);
    }
    protocol->n_fallbacks = (size_t)n;
    return st;
}

static enum status read_protocol(struct pool_config_reader *reader, const struct doc_node *node,
                                 struct error *err) {
#define NAME(field, kind, preset, help) #field,
    static const char *const names[] = {
#include "pick/pool/endpoint/protocol.def"
        "fallback", "fallbacks", "conformance", NULL};
#undef NAME
    struct doc_node conformance = doc_get(node, "conformance");
    enum status st = doc_expect_object(node, err);
    if (st == ST_OK) {
        st = doc_reject_unknown(node, names, err);
    }
    if (st == ST_OK) {
        st = read_names(reader, node, err);
    }
    if (st == ST_OK) {
        st = read_fallback(node, &reader->spec->protocol, err);
    }
    if (st == ST_OK) {
        st = doc_read_bool(&conformance, &reader->spec->protocol.conformance, err);
    }
    const struct protocol *protocol = &reader->spec->protocol;
    protocol_update_lengths(&reader->spec->protocol);
    if (st == ST_OK && str_eq(protocol->destination_key, protocol->fallback_key)) {
        st = doc_error(node, err, "expected destination_key and fallback_key to differ");
    }
    return st;
}

/* ---- the sections ---------------------------------------------------------------------------- */

enum status pool_config_read_settings(struct pool_config_reader *reader,
                                      const struct doc_node *node, struct error *err) {
    struct doc_node health = doc_get(node, "health");
    struct doc_node refused = doc_get(node, "refused_for"), protocol = doc_get(node, "protocol");
    enum status st = read_health(reader, &health, err);
    if (st == ST_OK) {
        st = pool_config_read_flow_control(reader, node, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_duration(&refused, 0, NS_PER_HOUR, &reader->spec->refused_ns, err);
    }
    return st == ST_OK ? read_protocol(reader, &protocol, err) : st;
}
