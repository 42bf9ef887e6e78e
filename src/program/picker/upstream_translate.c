/* Translates single flags of the upstream picker, and collects the YAML of those that belong to the
 * pools' configuration. */
#include "program/picker/upstream_translate.h"

#include <inttypes.h>
#include <string.h>

#include "core/base/num.h"

void upstream_config_init(struct upstream_config *config, struct arena *arena) {
    buf_init(&config->metrics, arena, 0);
    buf_init(&config->rules, arena, 0);
    buf_init(&config->protocol, arena, 0);
}

static void begin_member(struct buf *section, const char *key) {
    if (section->len > 0) {
        buf_add_str(section, STR(", "));
    }
    buf_add_json_string(section, str_of(key));
    buf_add_str(section, STR(": "));
}

static void upstream_config_plain(struct buf *section, const char *key, struct str value) {
    begin_member(section, key);
    buf_add_str(section, value);
}

static void upstream_config_text(struct buf *section, const char *key, struct str value) {
    begin_member(section, key);
    buf_add_json_string(section, value);
}

/* ---- YAML: series ---------------------------------------------------------------------------- */

static struct str unquoted(struct str text) {
    bool quoted = text.len >= 2 && text.ptr[0] == '"' && text.ptr[text.len - 1] == '"';
    return quoted ? str_make(text.ptr + 1, text.len - 2) : text;
}

static enum status add_labels(struct buf *rule, struct str labels, struct error *err) {
    const char *separator = "";
    buf_add_str(rule, STR(", \"labels\": {"));
    while (labels.ptr) {
        struct str value = str_cut(&labels, ',');
        struct str name = str_trim(str_cut(&value, '='));
        if (name.len == 0 || !value.ptr) {
            return error_set(err, ST_BAD_CONFIG, "expected NAME or NAME{LABEL=VALUE,…}");
        }
        buf_printf(rule, "%s", separator);
        buf_add_json_string(rule, name);
        buf_add_str(rule, STR(": "));
        buf_add_json_string(rule, unquoted(str_trim(value)));
        separator = ", ";
    }
    buf_add_char(rule, '}');
    return ST_OK;
}

/* Both numbers of the cache are labels of one series. */
static void add_cache(struct upstream_config *config, struct str series) {
    static const struct {
        const char *key, *label;
    } values[] = {{"kv_block_tokens", "block_size"}, {"kv_blocks", "num_gpu_blocks"}};
    for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++) {
        begin_member(&config->rules, values[i].key);
        buf_add_str(&config->rules, STR("{\"series\": "));
        buf_add_json_string(&config->rules, series);
        buf_printf(&config->rules, ", \"value_label\": \"%s\"}", values[i].label);
    }
}

static enum status upstream_config_rule(struct upstream_config *config, const char *key,
                                        struct str spec, struct error *err) {
    struct str rest = spec, series = str_trim(str_cut(&rest, '{'));
    enum status st = ST_OK;
    if (spec.len == 0) {
        return ST_OK;
    }
    if (series.len == 0 || (rest.ptr && (rest.len == 0 || rest.ptr[rest.len - 1] != '}'))) {
        return error_set(err, ST_BAD_CONFIG, "expected NAME or NAME{LABEL=VALUE,…}");
    }
    if (strcmp(key, "kv_block_tokens") == 0) {
        add_cache(config, series);
        return ST_OK;
    }
    begin_member(&config->rules, key);
    buf_add_str(&config->rules, STR("{\"series\": "));
    buf_add_json_string(&config->rules, series);
    if (rest.len > 1) {
        st = add_labels(&config->rules, str_make(rest.ptr, rest.len - 1), err);
    }
    buf_add_char(&config->rules, '}');
    return st;
}

/* ---- YAML: the document ---------------------------------------------------------------------- */

static void add_section(struct buf *out, const char *before, const struct buf *section,
                        const char *after) {
    if (section->len > 0) {
        buf_printf(out, "%s", before);
        buf_add_str(out, buf_str(section));
        buf_printf(out, "%s", after);
    }
}

const char *upstream_config_print(const struct upstream_config *config, struct arena *arena) {
    struct buf out;
    buf_init(&out, arena, 256);
    buf_add_str(&out, STR("{\"metrics\": {\"preset\": \"vllm\""));
    add_section(&out, ", ", &config->metrics, "");
    add_section(&out, ", \"rules\": {", &config->rules, "}");
    buf_add_char(&out, '}');
    add_section(&out, ", \"protocol\": {", &config->protocol, "}");
    buf_add(&out, "}\n", 3); /* including the NUL */
    bool failed =
        out.failed || config->metrics.failed || config->rules.failed || config->protocol.failed;
    return failed ? NULL : out.data;
}

enum { DEBUG_VERBOSITY = 4 };

/* Inserted before "--", which ends the flags: new flags are put in front. */
enum status upstream_add_flag(struct upstream_translation *self, const char *flag,
                              const char *value, struct error *err) {
    struct upstream_flags *out = self->out;
    struct str text = *value ? arena_printf(self->arena, "--%s=%s", flag, value)
                             : arena_printf(self->arena, "--%s", flag);
    if (!text.ptr) {
        return error_no_memory(err, "the flags");
    }
    memmove(out->argv + 2, out->argv + 1, (size_t)(out->argc - 1) * sizeof(*out->argv));
    out->argv[1] = (char *)text.ptr;
    out->argc++;
    return ST_OK;
}

static enum status add_note(struct upstream_translation *self, const struct upstream_row *row,
                            const char *value, struct error *err) {
    struct str flag = arena_printf(self->arena, "--%s=%s", row->name, value);
    if (!flag.ptr) {
        return error_no_memory(err, "the flags");
    }
    self->notes[self->out->n_notes++] = (struct upstream_note){flag.ptr, row->why};
    return ST_OK;
}

static enum status refuse_flag(const struct upstream_row *row, struct error *err) {
    return error_set(err, ST_BAD_CONFIG, "not supported: %s", row->why);
}

static enum status parse_port(const char *value, uint64_t *out, struct error *err) {
    return num_parse_u64(str_of(value), out) && *out <= UINT16_MAX
               ? ST_OK
               : error_set(err, ST_BAD_CONFIG, "expected a port up to 65535, got \"%s\"", value);
}

static enum status add_port(struct upstream_translation *self, const struct upstream_row *row,
                            const char *value, struct error *err) {
    uint64_t port;
    enum status st = parse_port(value, &port, err);
    if (st != ST_OK) {
        return st;
    }
    struct str place = arena_printf(self->arena, ":%" PRIu64, port);
    return place.ptr ? upstream_add_flag(self, row->our_name, place.ptr, err)
                     : error_no_memory(err, "the flags");
}

/* Translates "10Mi" to "10MiB". */
static enum status add_size(struct upstream_translation *self, const struct upstream_row *row,
                            const char *value, struct error *err) {
    struct str text = str_of(value), size = text;
    bool unit = text.len > 0 && strchr("ikKMG", text.ptr[text.len - 1]);
    if (unit) {
        size = arena_printf(self->arena, "%sB", value);
    }
    return size.ptr ? upstream_add_flag(self, row->our_name, size.ptr, err)
                    : error_no_memory(err, "the flags");
}

/* Returns: ptr NULL if it is no duration, or when out of memory. */
static struct str print_time(struct upstream_translation *self, const char *value) {
    uint64_t ns;
    return num_parse_go_duration_ns(str_of(value), &ns)
               ? arena_printf(self->arena, "%" PRIu64 "us", ns / 1000)
               : str_make(NULL, 0);
}

static enum status bad_time(const char *value, struct error *err) {
    return error_set(err, ST_BAD_CONFIG, "expected a time such as 50ms, 30s or 1m30s, got \"%s\"",
                     value);
}

static enum status add_time(struct upstream_translation *self, const struct upstream_row *row,
                            const char *value, struct error *err) {
    struct str time = print_time(self, value);
    return time.ptr ? upstream_add_flag(self, row->our_name, time.ptr, err) : bad_time(value, err);
}

static enum status add_pool(struct upstream_translation *self, const struct upstream_row *row,
                            const char *value, struct error *err) {
    enum status st = upstream_add_flag(self, row->our_name, value, err);
    return st == ST_OK ? upstream_add_flag(self, "kube", "", err) : st;
}

/* Verbosity 4 and above is upstream's debug. */
static enum status add_level(struct upstream_translation *self, const struct upstream_row *row,
                             const char *value, struct error *err) {
    int64_t level;
    if (!num_parse_i64(str_of(value), &level)) {
        return error_set(err, ST_BAD_CONFIG, "expected a whole number, got \"%s\"", value);
    }
    return upstream_add_flag(self, row->our_name, level >= DEBUG_VERBOSITY ? "debug" : "info", err);
}

static enum status add_zap_level(struct upstream_translation *self, const struct upstream_row *row,
                                 const char *value, struct error *err) {
    static const char *const words[][2] = {{"debug", "debug"},
                                           {"info", "info"},
                                           {"warn", "warning"},
                                           {"error", "error"},
                                           {"panic", "error"}};
    uint64_t level;
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
        if (strcmp(value, words[i][0]) == 0) {
            return upstream_add_flag(self, row->our_name, words[i][1], err);
        }
    }
    return num_parse_u64(str_of(value), &level)
               ? add_level(self, row, value, err)
               : error_set(err, ST_BAD_CONFIG,
                           "expected debug, info, error, panic or a number, got \"%s\"", value);
}

static enum status add_encoder(struct upstream_translation *self, const struct upstream_row *row,
                               const char *value, struct error *err) {
    bool json = strcmp(value, "json") == 0;
    if (!json && strcmp(value, "console") != 0) {
        return error_set(err, ST_BAD_CONFIG, "expected json or console, got \"%s\"", value);
    }
    return upstream_add_flag(self, row->our_name, json ? "json" : "text", err);
}

static enum status add_least_tls(struct upstream_translation *self, const struct upstream_row *row,
                                 const char *value, struct error *err) {
    static const char *const fine[] = {"VersionTLS10", "VersionTLS11", "VersionTLS12"};
    for (size_t i = 0; i < sizeof(fine) / sizeof(*fine); i++) {
        if (strcmp(value, fine[i]) == 0) {
            return add_note(self, row, value, err);
        }
    }
    return refuse_flag(row, err);
}

/* ---- flags of the pools' configuration ------------------------------------------------------- */

/* 0 means the endpoint's own port. */
static enum status add_metrics_port(struct upstream_translation *self,
                                    const struct upstream_row *row, const char *value,
                                    struct error *err) {
    uint64_t port;
    enum status st = parse_port(value, &port, err);
    if (st == ST_OK && port > 0) {
        upstream_config_plain(&self->config.metrics, row->our_name, str_of(value));
    }
    return st;
}

static enum status add_metrics_time(struct upstream_translation *self,
                                    const struct upstream_row *row, const char *value,
                                    struct error *err) {
    struct str time = print_time(self, value);
    if (!time.ptr) {
        return bad_time(value, err);
    }
    upstream_config_text(&self->config.metrics, row->our_name, time);
    return ST_OK;
}

/* The header and the metadata key have the same name. */
static enum status add_name(struct upstream_translation *self, const struct upstream_row *row,
                            const char *value) {
    upstream_config_text(&self->config.protocol, row->our_name, str_of(value));
    if (strcmp(row->our_name, "destination_header") == 0) {
        upstream_config_text(&self->config.protocol, "destination_key", str_of(value));
    }
    return ST_OK;
}

static enum status add_to_config(struct upstream_translation *self, const struct upstream_row *row,
                                 const char *value, struct error *err) {
    if (!self->out->extra_config_flag) {
        self->out->extra_config_flag = arena_printf(self->arena, "--%s", row->name).ptr;
    }
    switch ((unsigned)row->action) {
    case UPSTREAM_METRICS_PORT:
        return add_metrics_port(self, row, value, err);
    case UPSTREAM_METRICS_DURATION:
        return add_metrics_time(self, row, value, err);
    case UPSTREAM_METRICS_BOOL:
        upstream_config_plain(&self->config.metrics, row->our_name, str_of(value));
        return ST_OK;
    case UPSTREAM_METRICS_TEXT:
        upstream_config_text(&self->config.metrics, row->our_name, str_of(value));
        return ST_OK;
    case UPSTREAM_PROTOCOL_NAME:
        return add_name(self, row, value);
    default:
        return upstream_config_rule(&self->config, row->our_name, str_of(value), err);
    }
}

/* ---- all flags ------------------------------------------------------------------------------- */

enum status upstream_translate_flag(struct upstream_translation *self,
                                    const struct upstream_row *row, const char *value,
                                    struct error *err) {
    bool yes = strcmp(value, "true") == 0;
    switch (row->action) {
    case UPSTREAM_FLAG:
        return upstream_add_flag(self, row->our_name, value, err);
    case UPSTREAM_FLAG_IF_TRUE:
        return yes ? upstream_add_flag(self, row->our_name, "", err) : ST_OK;
    case UPSTREAM_POOL_FLAG:
        return add_pool(self, row, value, err);
    case UPSTREAM_PORT:
        return add_port(self, row, value, err);
    case UPSTREAM_SIZE:
        return add_size(self, row, value, err);
    case UPSTREAM_DURATION:
        return add_time(self, row, value, err);
    case UPSTREAM_VERBOSITY:
        return add_level(self, row, value, err);
    case UPSTREAM_ZAP_LEVEL:
        return add_zap_level(self, row, value, err);
    case UPSTREAM_ZAP_ENCODER:
        return add_encoder(self, row, value, err);
    case UPSTREAM_MIN_TLS:
        return add_least_tls(self, row, value, err);
    case UPSTREAM_METRICS_PORT:
    case UPSTREAM_METRICS_TEXT:
    case UPSTREAM_METRICS_BOOL:
    case UPSTREAM_METRICS_DURATION:
    case UPSTREAM_METRICS_RULE:
    case UPSTREAM_PROTOCOL_NAME:
        return add_to_config(self, row, value, err);
    case UPSTREAM_IGNORED:
        return add_note(self, row, value, err);
    case UPSTREAM_IGNORED_IF_TRUE:
        return yes ? add_note(self, row, value, err) : ST_OK;
    case UPSTREAM_REJECTED:
        return refuse_flag(row, err);
    case UPSTREAM_REJECTED_IF_TRUE:
        return yes ? refuse_flag(row, err) : ST_OK;
    case UPSTREAM_SECURE_SERVING:
    case UPSTREAM_CERT_PATH:
        break;
    }
    return ST_OK;
}
