/* The sections of one pool. Here are readiness checks (`health`), names of the protocol with the
 * proxy (`protocol`) and `outlier_detection`. */
#include "pick/config/reader.h"

#include "codec/http1/cookie.h"
#include "codec/http1/head_check.h"

/* ---- health ---------------------------------------------------------------------------------- */

/* A text, which may be empty. */
static void read_service(struct doc_reader *reader, const struct doc_node *node, void *out) {
    struct str text = {NULL, 0};
    doc_reader_view(reader, node, &text);
    if (text.ptr && memchr(text.ptr, '\0', text.len)) {
        doc_reader_fail(reader, node, "a NUL character can't be in this text");
    }
    if (text.ptr) {
        doc_reader_dup(reader, text, out);
    }
}

/* Reads `tcp`. There must be exactly one of `http`, `grpc` and `tcp`. */
static void read_kind(struct doc_reader *reader, const struct doc_node *tcp, void *object) {
    struct doc_node http = doc_get(tcp->parent, "http"), grpc = doc_get(tcp->parent, "grpc");
    struct pool_health *health = object;
    bool by_tcp = false;
    doc_reader_bool(reader, tcp, &by_tcp);
    if ((http.val != NULL) + (grpc.val != NULL) + by_tcp != 1) {
        doc_reader_fail(reader, tcp->parent,
                        "expected one of `http: /PATH`, `grpc: SERVICE` and `tcp: true`");
    }
    health->kind = http.val ? POOL_HEALTH_HTTP : grpc.val ? POOL_HEALTH_GRPC : POOL_HEALTH_TCP;
}

const struct doc_member POOL_CONFIG_HEALTH[] = {
    {"http", MEMBER_CUSTOM_FIELD(struct pool_health, path, struct str, pool_config_read_path),
     .form = "a path", .help = "`GET` of it is answered with 200 to 299"},
    {"grpc", MEMBER_CUSTOM_FIELD(struct pool_health, service, struct str, read_service),
     .form = "a text", .help = "`grpc.health.v1` reports this service, which may be empty"},
    {"tcp", MEMBER_CUSTOM(read_kind), .form = "`true`", .help = "a connection can be made"},
    {"port", MEMBER_WHOLE(struct pool_health, port, 1, UINT16_MAX),
     .help = "in place of the endpoint's own"},
    {"interval", MEMBER_DURATION(struct pool_health, interval_ns, 10 * CONFIG_MS, CONFIG_HOUR),
     .preset = 1e9, .help = "time between two checks of an endpoint"},
    {"timeout", MEMBER_DURATION(struct pool_health, timeout_ns, CONFIG_MS, CONFIG_HOUR),
     .preset = 1e9, .help = "a check that takes longer has failed"},
    {"healthy", MEMBER_WHOLE(struct pool_health, n_healthy, 1, 100), .preset = 1,
     .help = "successes in a row until an endpoint is ready again"},
    {"unhealthy", MEMBER_WHOLE(struct pool_health, n_unhealthy, 1, 100), .preset = 2,
     .help = "failures in a row until it is not"},
    {0}};

static void read_health(struct doc_reader *reader, const struct doc_node *node, void *out) {
    struct pool_health *health = out;
    if (doc_is_present(node)) {
        *health = (struct pool_health){.kind = POOL_HEALTH_NONE};
        doc_reader_presets(POOL_CONFIG_HEALTH, health);
        doc_reader_object(reader, node, POOL_CONFIG_HEALTH, health);
    }
}

/* ---- protocol -------------------------------------------------------------------------------- */

/* RFC 9110, 5.6.2: a token, in lower case. */
bool pool_config_is_header(struct str name) {
    for (size_t i = 0; i < name.len; i++) {
        if (name.ptr[i] >= 'A' && name.ptr[i] <= 'Z') {
            return false;
        }
    }
    return http1_is_token(name);
}

void pool_config_read_header(struct doc_reader *reader, const struct doc_node *node, void *out) {
    const struct str *name = out;
    pool_config_read_optional_name(reader, node, out);
    if (node->val && !pool_config_is_header(*name)) {
        doc_reader_fail(reader, node, "expected the name of a header in lower case, got \"%.*s\"",
                        STR_ARG(*name));
    }
}

static void read_headers(struct doc_reader *reader, const struct doc_node *node, void *out) {
    struct protocol_headers *headers = out;
    size_t n = doc_is_present(node) ? doc_count(node) : 0;
    if (!node->val) {
        return;
    }
    if (n > PROTOCOL_MAX_HEADERS) {
        doc_reader_fail(reader, node, "expected at most %d headers, got %zu", PROTOCOL_MAX_HEADERS,
                        n);
    }
    *headers = (struct protocol_headers){.n = 0};
    for (struct doc_node item = {0}; n > 0 && doc_reader_next(reader, node, &item);) {
        pool_config_read_header(reader, &item, &headers->names[headers->n++]);
    }
}

static void read_cookie(struct doc_reader *reader, const struct doc_node *node, void *out) {
    const struct str *name = out;
    pool_config_read_optional_name(reader, node, out);
    if (node->val && !cookie_is_name(*name)) {
        doc_reader_fail(reader, node, "expected the name of a cookie, got \"%.*s\"",
                        STR_ARG(*name));
    }
}

static void check_fallbacks(struct doc_reader *reader, const struct doc_node *form, void *object) {
    struct doc_node most = doc_get(form->parent, "fallbacks");
    const struct protocol *protocol = object;
    if (most.val && protocol->fallback != FALLBACK_LIST) {
        doc_reader_fail(reader, &most, "is for `fallback: list`; a key takes one");
    }
}

static const char *const FALLBACKS[] = {"none", "key", "list",
                                        NULL}; /* as enum protocol_fallback */

#define READ_HEADER pool_config_read_header
#define READ_HEADERS read_headers
#define READ_KEY pool_config_read_optional_name
#define READ_COOKIE read_cookie
#define FORM_HEADER "a header"
#define FORM_HEADERS "up to 16 headers"
#define FORM_KEY "a name"
#define FORM_COOKIE "a cookie"
#define NAME(field, kind, preset, about)                                                           \
    {#field, MEMBER_CUSTOM_FIELD(struct protocol, field, PROTOCOL_TYPE_##kind, READ_##kind),       \
     .form = FORM_##kind, .help = (about)},
const struct doc_member POOL_CONFIG_PROTOCOL[] = {
#include "pick/pool/endpoint/protocol.def"
    {"fallback", MEMBER_WORD(struct protocol, fallback, FALLBACKS), .check = check_fallbacks,
     .help = "how fallback endpoints are named: not, in a key of their own, or in one list with "
             "the first"},
    {"fallbacks", MEMBER_WHOLE(struct protocol, n_fallbacks, 1, PROTOCOL_MAX_FALLBACKS),
     .help = "how many, with `fallback: list`"},
    {"conformance", MEMBER_BOOL(struct protocol, conformance),
     .help = "the headers of conformance tests are read and set"},
    {0}};
#undef NAME

static void read_protocol(struct doc_reader *reader, const struct doc_node *node, void *out) {
    struct protocol *protocol = out;
    doc_reader_object(reader, node, POOL_CONFIG_PROTOCOL, protocol);
    protocol_update_lengths(protocol);
    if (str_eq(protocol->destination_key, protocol->fallback_key)) {
        doc_reader_fail(reader, node, "expected destination_key and fallback_key to differ");
    }
}

/* ---- outlier detection ----------------------------------------------------------------------- */

#define OUTLIERS struct pool_outlier_detection
const struct doc_member POOL_CONFIG_OUTLIER_DETECTION[] = {
    {"consecutive_5xx", MEMBER_WHOLE(OUTLIERS, consecutive_5xx, 0, 1000000),
     .help = "failures in a row that eject an endpoint; 0: not looked at"},
    {"consecutive_gateway_failure", MEMBER_WHOLE(OUTLIERS, consecutive_gateway_failure, 0, 1000000),
     .help = "gateway failures in a row that do; 0: not looked at"},
    {"failure_percentage_threshold", MEMBER_WHOLE(OUTLIERS, failure_percentage_threshold, 0, 100),
     .help = "share of failures in an interval that does; 0: not looked at"},
    {"failure_percentage_request_volume",
     MEMBER_WHOLE(OUTLIERS, failure_percentage_request_volume, 1, 1000000),
     .help = "in an interval with fewer responses the share does not count"},
    {"interval", MEMBER_DURATION(OUTLIERS, interval_ns, CONFIG_MS, CONFIG_HOUR),
     .help = "of the share, and after which an ejection less counts"},
    {"base_ejection_time", MEMBER_DURATION(OUTLIERS, base_ejection_time_ns, CONFIG_MS, CONFIG_HOUR),
     .help = "time until a trial, times the ejections in a row"},
    {"max_ejection_time", MEMBER_DURATION(OUTLIERS, max_ejection_time_ns, CONFIG_MS, CONFIG_HOUR),
     .help = "its upper limit"},
    {"max_ejection_percent", MEMBER_WHOLE(OUTLIERS, max_ejection_percent, 0, 100),
     .help = "share of the pool's endpoints that may be ejected; 0: none"},
    {0}};
#undef OUTLIERS

/* ---- all sections ---------------------------------------------------------------------------- */

#define SPEC struct pool_spec
const struct doc_member POOL_CONFIG_SECTIONS[] = {
    {"selector", MEMBER_CUSTOM(pool_config_read_selector)},
    {"ports", MEMBER_CUSTOM(pool_config_read_ports)},
    {"endpoints", MEMBER_CUSTOM(pool_config_read_endpoints)},
    {"dns", MEMBER_CUSTOM(pool_config_read_dns)},
    {"unknown_models", MEMBER_CUSTOM(pool_config_read_unknown_models)},
    {"models", MEMBER_CUSTOM(pool_config_read_models)},
    {"model_paths", MEMBER_CUSTOM(pool_config_read_model_paths)},
    {"objectives", MEMBER_CUSTOM(pool_config_read_objectives)},
    {"rewrites", MEMBER_CUSTOM(pool_config_read_rewrites)},
    {"health", MEMBER_CUSTOM_FIELD(SPEC, health, struct pool_health, read_health)},
    {"saturation", MEMBER_CUSTOM(pool_config_read_saturation)},
    {"flow_control", MEMBER_CUSTOM_FIELD(SPEC, flow_control, struct pool_flow_control,
                                         pool_config_read_flow_control)},
    {"refused_for", MEMBER_DURATION(SPEC, refused_ns, 0, CONFIG_HOUR)},
    {"outlier_detection", MEMBER_OBJECT(POOL_CONFIG_OUTLIER_DETECTION),
     .offset = offsetof(SPEC, outlier_detection)},
    {"protocol", MEMBER_CUSTOM_FIELD(SPEC, protocol, struct protocol, read_protocol)},
    {"metrics", MEMBER_CUSTOM(pool_config_read_metrics)},
    {"profile", MEMBER_CUSTOM(pool_config_read_profile_section)},
    {0}};
#undef SPEC
