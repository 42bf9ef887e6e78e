/* The names are those of OpenTelemetry's specification; the defaults are the upstream project's:
 * OTLP over gRPC, and one trace of ten unless the caller has decided. */
#include "telemetry/trace/otel.h"

#include <stdlib.h>
#include <string.h>

#include "codec/http1/head_check.h"
#include "core/base/hex.h"
#include "core/base/log.h"
#include "core/base/num.h"
#include "core/base/utf8.h"

#define NS_PER_MS UINT64_C(1000000)
#define ALL_BOUND (UINT64_C(1) << 63)

static const double DEFAULT_RATIO = 0.1;

enum {
    MAX_MS = 3600 * 1000,
    MAX_SPANS = 1000000,
    DEFAULT_QUEUE = 2048,
    DEFAULT_BATCH = 512,
    DEFAULT_DELAY_MS = 5000,
    DEFAULT_TIMEOUT_MS = 10000,
};

/* Returns: ptr NULL where it is unset or empty. */
static struct str read_variable(const char *name) {
    const char *value = getenv(name);
    return value && *value ? str_trim(str_of(value)) : str_make(NULL, 0);
}

/* OTEL_EXPORTER_OTLP_TRACES_NAME, or else OTEL_EXPORTER_OTLP_NAME. */
static struct str read_otlp(struct arena *arena, const char *name, const char **variable) {
    static const char *const prefixes[] = {"OTEL_EXPORTER_OTLP_TRACES_", "OTEL_EXPORTER_OTLP_"};
    struct str value = {NULL, 0};
    for (size_t i = 0; i < 2 && !value.ptr; i++) {
        struct str full = arena_printf(arena, "%s%s", prefixes[i], name);
        *variable = full.ptr ? full.ptr : name;
        value = read_variable(*variable);
    }
    return value;
}

static void log_invalid(const char *variable, struct str value, const char *used) {
    log_event(LOG_WARNING, "environment variable has an invalid value",
              LOG_CSTR("variable", variable), LOG_STR("value", value), LOG_CSTR("used", used));
}

static uint32_t read_number(const char *variable, struct str value, uint32_t least, uint32_t most,
                            uint32_t usual) {
    uint64_t number;
    if (!value.ptr) {
        return usual;
    }
    if (!num_parse_u64(value, &number) || number < least || number > most) {
        log_invalid(variable, value, "the default");
        return usual;
    }
    return (uint32_t)number;
}

/* ---- sampler --------------------------------------------------------------------------------- */

static uint64_t bound_of(double ratio) {
    return ratio >= 1 ? ALL_BOUND : (uint64_t)(ratio * (double)ALL_BOUND);
}

static double read_ratio(void) {
    struct str value = read_variable("OTEL_TRACES_SAMPLER_ARG");
    double ratio = DEFAULT_RATIO;
    if (value.ptr && (!num_parse_f64(value, &ratio) || !(ratio >= 0 && ratio <= 1))) {
        log_invalid("OTEL_TRACES_SAMPLER_ARG", value, "0.1");
        ratio = DEFAULT_RATIO;
    }
    return ratio;
}

static struct otel_sampler read_sampler(void) {
    static const struct str parent_based = STR("parentbased_");
    struct str value = read_variable("OTEL_TRACES_SAMPLER"), name = value;
    struct otel_sampler sampler = {.is_parent_based = true};
    if (value.ptr) {
        sampler.is_parent_based = str_starts_with(value, parent_based);
        if (sampler.is_parent_based) {
            name = str_make(value.ptr + parent_based.len, value.len - parent_based.len);
        }
    }
    if (!value.ptr || str_is(name, "traceidratio")) {
        sampler.bound = bound_of(read_ratio());
    } else if (str_is(name, "always_on")) {
        sampler.bound = ALL_BOUND;
    } else if (!str_is(name, "always_off")) {
        log_invalid("OTEL_TRACES_SAMPLER", value, "parentbased_traceidratio, 0.1");
        sampler = (struct otel_sampler){.is_parent_based = true, .bound = bound_of(DEFAULT_RATIO)};
    }
    return sampler;
}

bool otel_is_sampled(const struct otel_sampler *sampler, const struct traceparent *parent,
                     const unsigned char trace[TRACE_ID_BYTES]) {
    uint64_t half = 0;
    if (parent && sampler->is_parent_based) {
        return parent->sampled;
    }
    for (size_t i = TRACE_ID_BYTES / 2; i < TRACE_ID_BYTES; i++) {
        half = half << 8 | trace[i];
    }
    return half >> 1 < sampler->bound;
}

/* ---- lists ----------------------------------------------------------------------------------- */

/* Decodes "a%20b". Returns: ptr NULL when it is malformed or memory is short. */
static struct str decode_percent(struct arena *arena, struct str text) {
    char *out = arena_alloc(arena, text.len + 1);
    size_t n = 0;
    for (size_t i = 0; out && i < text.len; i++) {
        if (text.ptr[i] != '%') {
            out[n++] = text.ptr[i];
            continue;
        }
        int upper = i + 1 < text.len ? hex_value(text.ptr[i + 1]) : -1;
        int lower = i + 2 < text.len ? hex_value(text.ptr[i + 2]) : -1;
        if (upper < 0 || lower < 0) {
            return str_make(NULL, 0);
        }
        out[n++] = (char)(upper << 4 | lower);
        i += 2;
    }
    return str_make(out, n);
}

/* The next item of "NAME=VALUE,NAME=VALUE", decoded. Returns: false for one that is malformed. */
static bool next_item(struct arena *arena, struct str *list, struct str *name, struct str *value) {
    struct str rest = str_cut(list, ',');
    *name = str_trim(str_cut(&rest, '='));
    *value = rest.ptr ? decode_percent(arena, str_trim(rest)) : rest;
    return name->len > 0 && value->ptr;
}

static void set_resource(struct trace_export_options *out, struct str key, struct str value) {
    size_t at = 0;
    while (at < out->n_resource && !str_eq(out->resource[at].key, key)) {
        at++;
    }
    if (at == TRACE_MAX_RESOURCES) {
        log_invalid("OTEL_RESOURCE_ATTRIBUTES", key, "the first ones");
        return;
    }
    out->resource[at] = (struct otlp_attribute){.key = key, .text = value};
    out->n_resource += at == out->n_resource;
}

static void read_resource(struct arena *arena, const char *service,
                          struct trace_export_options *out) {
    struct str list = read_variable("OTEL_RESOURCE_ATTRIBUTES"), name, value;
    struct str given = read_variable("OTEL_SERVICE_NAME");
    set_resource(out, STR("service.name"), str_of(service));
    set_resource(out, STR("service.version"), STR(SLUICE_VERSION));
    while (list.ptr && list.len > 0) {
        struct str before = list;
        if (next_item(arena, &list, &name, &value) && utf8_is_valid(name.ptr, name.len) &&
            utf8_is_valid(value.ptr, value.len)) {
            set_resource(out, name, value);
        } else {
            log_invalid("OTEL_RESOURCE_ATTRIBUTES", str_cut(&before, ','), "the others");
        }
    }
    if (given.ptr) {
        set_resource(out, STR("service.name"), given);
    }
}

/* RFC 9110, 5.5, without line breaks. */
static bool is_field_value(struct str value) {
    for (size_t i = 0; i < value.len; i++) {
        if (value.ptr[i] < 0x20 || value.ptr[i] > 0x7e) {
            return false;
        }
    }
    return true;
}

/* The name in lower case, as gRPC has it. */
static bool add_field(struct arena *arena, struct str name, struct str value,
                      struct trace_export_options *out) {
    struct str lower = arena_dup(arena, name);
    char *bytes = (char *)(uintptr_t)lower.ptr;
    if (!bytes || out->n_fields == TRACE_MAX_FIELDS) {
        return false;
    }
    str_copy_lower(bytes, lower);
    if (!http1_is_token(lower) || !is_field_value(value)) {
        return false;
    }
    out->fields[out->n_fields++] = (struct grpc_field){lower, value};
    return true;
}

/* The values may be secrets, and are not told. */
static enum status read_fields(struct arena *arena, struct trace_export_options *out,
                               struct error *err) {
    const char *variable;
    struct str list = read_otlp(arena, "HEADERS", &variable), name, value;
    while (list.ptr && list.len > 0) {
        if (!next_item(arena, &list, &name, &value) || !add_field(arena, name, value, out)) {
            return error_set(err, ST_BAD_CONFIG,
                             "%s: expected NAME=VALUE,NAME=VALUE, at most %d of them", variable,
                             TRACE_MAX_FIELDS);
        }
    }
    return ST_OK;
}

/* ---- the collector --------------------------------------------------------------------------- */

static enum status read_protocol(struct arena *arena, struct trace_export_options *out,
                                 struct error *err) {
    const char *variable;
    struct str value = read_otlp(arena, "PROTOCOL", &variable);
    if (!value.ptr || str_is(value, "grpc")) {
        out->protocol = TRACE_GRPC;
    } else if (str_is(value, "http/protobuf")) {
        out->protocol = TRACE_HTTP_PROTOBUF;
    } else if (str_is(value, "http/json")) {
        out->protocol = TRACE_HTTP_JSON;
    } else {
        return error_set(err, ST_BAD_CONFIG,
                         "%s: expected grpc, http/protobuf or http/json, got \"%.*s\"", variable,
                         STR_ARG(value));
    }
    return ST_OK;
}

/* Clause: OpenTelemetry, OTLP exporter, "Insecure": of gRPC; a scheme of the endpoint counts
 * before it. */
static bool read_insecure(struct arena *arena) {
    const char *variable;
    struct str value = read_otlp(arena, "INSECURE", &variable);
    bool is_insecure = value.ptr && str_eq_nocase(value, STR("true"));
    if (value.ptr && !is_insecure && !str_eq_nocase(value, STR("false"))) {
        log_invalid(variable, value, "false");
    }
    return is_insecure;
}

/* "http://HOST:PORT", https, or HOST:PORT; the port is 4317 by default, and a path means
 * nothing. */
static enum status read_grpc_endpoint(struct arena *arena, const char *variable, struct str value,
                                      struct trace_export_options *out, struct error *err) {
    static const struct str plain = STR("http://"), secure = STR("https://");
    struct str rest = value;
    if (str_starts_with(value, secure)) {
        out->is_tls = true;
        rest = str_make(value.ptr + secure.len, value.len - secure.len);
    } else if (str_starts_with(value, plain)) {
        rest = str_make(value.ptr + plain.len, value.len - plain.len);
    } else {
        out->is_tls = !read_insecure(arena);
    }
    struct str host = str_cut(&rest, '/');
    if (host.len == 0 || (rest.ptr && rest.len > 0 && rest.ptr[0] == '/')) {
        return error_set(err, ST_BAD_CONFIG,
                         "%s: expected http://HOST:PORT, https or HOST:PORT, got \"%.*s\"",
                         variable, STR_ARG(value));
    }
    bool is_v6 = host.ptr[host.len - 1] == ']';
    bool has_port = !is_v6 && memchr(host.ptr, ':', host.len);
    out->url = arena_printf(arena, "%.*s%s", STR_ARG(host), has_port ? "" : ":4317").ptr;
    return out->url ? ST_OK : error_no_memory(err, "traces");
}

/* The variable of traces has the whole URL, the general one has the URL to which a path is
 * added. */
static enum status read_http_endpoint(struct arena *arena, const char *variable, struct str value,
                                      struct trace_export_options *out, struct error *err) {
    bool is_whole = strcmp(variable, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == 0;
    if (!str_starts_with(value, STR("http://")) && !str_starts_with(value, STR("https://"))) {
        return error_set(err, ST_BAD_CONFIG,
                         "%s: expected http://HOST:PORT, or https, got \"%.*s\"", variable,
                         STR_ARG(value));
    }
    out->is_tls = str_starts_with(value, STR("https://"));
    while (!is_whole && value.len > 0 && value.ptr[value.len - 1] == '/') {
        value.len--;
    }
    out->url = arena_printf(arena, "%.*s%s", STR_ARG(value), is_whole ? "" : "/v1/traces").ptr;
    return out->url ? ST_OK : error_no_memory(err, "traces");
}

static enum status read_endpoint(struct arena *arena, struct trace_export_options *out,
                                 struct error *err) {
    const char *variable;
    struct str value = read_otlp(arena, "ENDPOINT", &variable);
    bool is_grpc = out->protocol == TRACE_GRPC;
    if (!value.ptr) {
        value = is_grpc ? STR("http://localhost:4317") : STR("http://localhost:4318");
    }
    return is_grpc ? read_grpc_endpoint(arena, variable, value, out, err)
                   : read_http_endpoint(arena, variable, value, out, err);
}

/* A key of no certificate would not be sent. */
static enum status check_files(const struct trace_export_options *out, struct error *err) {
    const struct grpc_client_tls *tls = &out->tls;
    return out->is_tls && tls->key && !tls->cert
               ? error_set(err, ST_BAD_CONFIG, "%s: expected its certificate in %s",
                           tls->key_setting, tls->cert_setting)
               : ST_OK;
}

static enum status read_collector(struct arena *arena, const char *service,
                                  struct trace_export_options *out, struct error *err) {
    const char *variable;
    struct str timeout = read_otlp(arena, "TIMEOUT", &variable);
    out->timeout_ns = read_number(variable, timeout, 1, MAX_MS, DEFAULT_TIMEOUT_MS) * NS_PER_MS;
    out->max_queue =
        read_number("OTEL_BSP_MAX_QUEUE_SIZE", read_variable("OTEL_BSP_MAX_QUEUE_SIZE"),
                    OTEL_MIN_BATCH, MAX_SPANS, DEFAULT_QUEUE);
    out->max_batch = read_number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
                                 read_variable("OTEL_BSP_MAX_EXPORT_BATCH_SIZE"), OTEL_MIN_BATCH,
                                 MAX_SPANS, DEFAULT_BATCH);
    out->max_batch = out->max_batch < out->max_queue ? out->max_batch : out->max_queue;
    out->delay_ms = read_number("OTEL_BSP_SCHEDULE_DELAY", read_variable("OTEL_BSP_SCHEDULE_DELAY"),
                                0, MAX_MS, DEFAULT_DELAY_MS);
    out->tls.ca = read_otlp(arena, "CERTIFICATE", &out->tls.ca_setting).ptr;
    out->tls.cert = read_otlp(arena, "CLIENT_CERTIFICATE", &out->tls.cert_setting).ptr;
    out->tls.key = read_otlp(arena, "CLIENT_KEY", &out->tls.key_setting).ptr;
    read_resource(arena, service, out);
    enum status st = read_protocol(arena, out, err);
    if (st == ST_OK) {
        st = read_endpoint(arena, out, err);
    }
    st = st == ST_OK ? check_files(out, err) : st;
    return st == ST_OK ? read_fields(arena, out, err) : st;
}

enum status otel_settings_read(struct arena *arena, const char *service, struct otel_settings *out,
                               struct error *err) {
    struct str exporter = read_variable("OTEL_TRACES_EXPORTER");
    *out = (struct otel_settings){.sampler = read_sampler()};
    out->exports = !exporter.ptr || str_is(exporter, "otlp");
    if (!out->exports && !str_is(exporter, "none")) {
        return error_set(err, ST_BAD_CONFIG,
                         "OTEL_TRACES_EXPORTER: expected otlp or none, got \"%.*s\"",
                         STR_ARG(exporter));
    }
    return out->exports ? read_collector(arena, service, &out->collector, err) : ST_OK;
}
