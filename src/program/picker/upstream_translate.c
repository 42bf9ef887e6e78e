/* Translates single flags of the upstream picker, and collects the YAML of those that belong to the
 * pools' configuration. */
#include "program/picker/upstream_translate.h"

#include <inttypes.h>
#include <string.h>

#include "core/base/num.h"

static void section_begin(struct upstream_section *section, struct arena *arena) {
    buf_init(&section->text, arena, 0);
    section->json = (struct json_writer){.out = &section->text, .layout = JSON_SPACED};
    json_write_open(&section->json, JSON_ELEMENT, '{');
}

/* Adds the object to another one, unless it is empty. */
static void section_end(struct upstream_section *section, const char *name,
                        struct json_writer *to) {
    if (section->json.position == JSON_AT_START) {
        return;
    }
    json_write_close(&section->json, '}');
    json_write_raw(to, name, buf_str(&section->text));
}

void upstream_config_init(struct upstream_config *config, struct arena *arena) {
    section_begin(&config->metrics, arena);
    section_begin(&config->rules, arena);
    section_begin(&config->protocol, arena);
    json_write_string(&config->metrics.json, "preset", STR("vllm"));
}

/* ---- YAML: series ---------------------------------------------------------------------------- */

static struct str unquoted(struct str text) {
    bool quoted = text.len >= 2 && text.ptr[0] == '"' && text.ptr[text.len - 1] == '"';
    return quoted ? str_make(text.ptr + 1, text.len - 2) : text;
}

static enum status add_labels(struct json_writer *rule, struct str labels, struct error *err) {
    json_write_open(rule, "labels", '{');
    while (labels.ptr) {
        struct str value = str_cut(&labels, ',');
        struct str name = str_trim(str_cut(&value, '='));
        if (name.len == 0 || !value.ptr) {
            return error_set(err, ST_BAD_CONFIG, "expected NAME or NAME{LABEL=VALUE,…}");
        }
        json_write_key_str(rule, name);
        json_write_string(rule, JSON_ELEMENT, unquoted(str_trim(value)));
    }
    json_write_close(rule, '}');
    return ST_OK;
}

/* Both numbers of the cache are labels of one series. */
static void add_cache(struct json_writer *rules, struct str series) {
    static const struct {
        const char *key, *label;
    } values[] = {{"kv_block_tokens", "block_size"}, {"kv_blocks", "num_gpu_blocks"}};
    for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++) {
        json_write_open(rules, values[i].key, '{');
        json_write_string(rules, "series", series);
        json_write_string(rules, "value_label", str_of(values[i].label));
        json_write_close(rules, '}');
    }
}

static enum status add_rule(struct json_writer *rules, const char *key, struct str spec,
                            struct error *err) {
    struct str rest = spec, series = str_trim(str_cut(&rest, '{'));
    enum status st = ST_OK;
    if (spec.len == 0) {
        return ST_OK;
    }
    if (series.len == 0 || (rest.ptr && (rest.len == 0 || rest.ptr[rest.len - 1] != '}'))) {
        return error_set(err, ST_BAD_CONFIG, "expected NAME or NAME{LABEL=VALUE,…}");
    }
    if (strcmp(key, "kv_block_tokens") == 0) {
        add_cache(rules, series);
        return ST_OK;
    }
    json_write_open(rules, key, '{');
    json_write_string(rules, "series", series);
    if (rest.len > 1) {
        st = add_labels(rules, str_make(rest.ptr, rest.len - 1), err);
    }
    json_write_close(rules, '}');
    return st;
}

/* ---- YAML: the document ---------------------------------------------------------------------- */

const char *upstream_config_print(struct upstream_config *config, struct arena *arena) {
    struct buf out;
    struct json_writer json = {.out = &out, .layout = JSON_SPACED};
    buf_init(&out, arena, 256);
    section_end(&config->rules, "rules", &config->metrics.json);
    json_write_open(&json, JSON_ELEMENT, '{');
    section_end(&config->metrics, "metrics", &json);
    section_end(&config->protocol, "protocol", &json);
    json_write_close(&json, '}');
    buf_add(&out, "\n", 2); /* including the NUL */
    return out.data;
}

enum { DEBUG_VERBOSITY = 4 };

/* Inserted before "--", which ends the flags: new flags are put in front. */
void upstream_add_flag(struct upstream_translation *self, const char *flag, const char *value) {
    struct upstream_flags *out = self->out;
    struct str text = *value ? arena_printf(self->arena, "--%s=%s", flag, value)
                             : arena_printf(self->arena, "--%s", flag);
    memmove(out->argv + 2, out->argv + 1, (size_t)(out->argc - 1) * sizeof(*out->argv));
    out->argv[1] = (char *)text.ptr;
    out->argc++;
}

void upstream_add_tls_files(struct upstream_translation *self, const char *listener,
                            const char *folder) {
    static const char *const files[][2] = {{"cert", "tls.crt"}, {"key", "tls.key"}};
    for (size_t i = 0; i < sizeof(files) / sizeof(*files) && *folder; i++) {
        struct str flag = arena_printf(self->arena, "%s-tls-%s", listener, files[i][0]);
        struct str path = arena_printf(self->arena, "%s/%s", folder, files[i][1]);
        upstream_add_flag(self, flag.ptr, path.ptr);
    }
}

static enum status add_note(struct upstream_translation *self, const struct upstream_row *row,
                            const char *value) {
    struct str flag = arena_printf(self->arena, "--%s=%s", row->name, value);
    self->notes[self->out->n_notes++] = (struct flag_note){flag.ptr, row->why};
    return ST_OK;
}

static enum status refuse_flag(const struct upstream_row *row, struct error *err) {
    return error_set(err, ST_BAD_CONFIG, "not supported: %s", row->why);
}

/* ---- values ---------------------------------------------------------------------------------- */

static const char *expected(const char *what, const char *value, struct error *err) {
    error_set(err, ST_BAD_CONFIG, "expected %s, got \"%s\"", what, value);
    return NULL;
}

/* Verbosity 4 and above is upstream's debug. */
static const char *level_of(const char *value, struct error *err) {
    int64_t level;
    return !num_parse_i64(str_of(value), &level) ? expected("a whole number", value, err)
           : level >= DEBUG_VERBOSITY            ? "debug"
                                                 : "info";
}

static const char *zap_level_of(const char *value, struct error *err) {
    static const char *const words[][2] = {{"debug", "debug"},
                                           {"info", "info"},
                                           {"warn", "warning"},
                                           {"error", "error"},
                                           {"panic", "error"}};
    uint64_t level;
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
        if (strcmp(value, words[i][0]) == 0) {
            return words[i][1];
        }
    }
    return num_parse_u64(str_of(value), &level)
               ? level_of(value, err)
               : expected("debug, info, error, panic or a number", value, err);
}

/* Returns: the value of our flag or setting; NULL, with an error, where the flag has none such. */
static const char *our_value(struct upstream_translation *self, const struct upstream_row *row,
                             const char *value, struct error *err) {
    uint64_t number;
    size_t len = strlen(value);
    switch ((unsigned)row->action) {
    case UPSTREAM_PORT:
    case UPSTREAM_METRICS_PORT:
        if (!num_parse_u64(str_of(value), &number) || number > UINT16_MAX) {
            return expected("a port up to 65535", value, err);
        }
        return row->action == UPSTREAM_PORT ? arena_printf(self->arena, ":%" PRIu64, number).ptr
                                            : value;
    case UPSTREAM_SIZE: /* "10Mi" is "10MiB" */
        return len > 0 && strchr("ikKMG", value[len - 1])
                   ? arena_printf(self->arena, "%sB", value).ptr
                   : value;
    case UPSTREAM_DURATION:
    case UPSTREAM_METRICS_DURATION:
        return num_parse_go_duration_ns(str_of(value), &number)
                   ? arena_printf(self->arena, "%" PRIu64 "us", number / 1000).ptr
                   : expected("a time such as 50ms, 30s or 1m30s", value, err);
    case UPSTREAM_VERBOSITY:
        return level_of(value, err);
    case UPSTREAM_ZAP_LEVEL:
        return zap_level_of(value, err);
    case UPSTREAM_ZAP_ENCODER:
        return strcmp(value, "json") == 0      ? "json"
               : strcmp(value, "console") == 0 ? "text"
                                               : expected("json or console", value, err);
    default:
        return value;
    }
}

/* ---- flags of the pools' configuration ------------------------------------------------------- */

static enum status add_to_config(struct upstream_translation *self, const struct upstream_row *row,
                                 const char *value, struct error *err) {
    struct json_writer *metrics = &self->config.metrics.json;
    struct json_writer *protocol = &self->config.protocol.json;
    uint64_t port;
    if (!self->out->extra_config_flag) {
        self->out->extra_config_flag = arena_printf(self->arena, "--%s", row->name).ptr;
    }
    switch ((unsigned)row->action) {
    case UPSTREAM_METRICS_PORT:
        if (num_parse_u64(str_of(value), &port) && port > 0) { /* 0: the endpoint's own port */
            json_write_raw(metrics, row->our_name, str_of(value));
        }
        return ST_OK;
    case UPSTREAM_METRICS_BOOL:
        json_write_raw(metrics, row->our_name, str_of(value));
        return ST_OK;
    case UPSTREAM_METRICS_DURATION:
    case UPSTREAM_METRICS_TEXT:
        json_write_string(metrics, row->our_name, str_of(value));
        return ST_OK;
    case UPSTREAM_PROTOCOL_NAME:
        json_write_string(protocol, row->our_name, str_of(value));
        if (strcmp(row->our_name, "destination_header") == 0) { /* the metadata key's name too */
            json_write_string(protocol, "destination_key", str_of(value));
        }
        return ST_OK;
    default:
        return add_rule(&self->config.rules.json, row->our_name, str_of(value), err);
    }
}

/* ---- all flags ------------------------------------------------------------------------------- */

enum status upstream_translate_flag(struct upstream_translation *self,
                                    const struct upstream_row *row, const char *value,
                                    struct error *err) {
    static const char *const fine[] = {"VersionTLS10", "VersionTLS11", "VersionTLS12"};
    bool yes = strcmp(value, "true") == 0;
    const char *ours = our_value(self, row, value, err);
    if (!ours) {
        return ST_BAD_CONFIG;
    }
    switch (row->action) {
    case UPSTREAM_FLAG:
    case UPSTREAM_PORT:
    case UPSTREAM_SIZE:
    case UPSTREAM_DURATION:
    case UPSTREAM_VERBOSITY:
    case UPSTREAM_ZAP_LEVEL:
    case UPSTREAM_ZAP_ENCODER:
        upstream_add_flag(self, row->our_name, ours);
        return ST_OK;
    case UPSTREAM_FLAG_IF_TRUE:
        if (yes) {
            upstream_add_flag(self, row->our_name, "");
        }
        return ST_OK;
    case UPSTREAM_POOL_FLAG:
        upstream_add_flag(self, row->our_name, ours);
        upstream_add_flag(self, "kube", "");
        return ST_OK;
    case UPSTREAM_METRICS_CERT_DIR:
        upstream_add_tls_files(self, "metrics", value);
        return ST_OK;
    case UPSTREAM_MIN_TLS:
        if (strcmp(value, "VersionTLS13") == 0) {
            upstream_add_flag(self, row->our_name, "1.3");
            return ST_OK;
        }
        for (size_t i = 0; i < sizeof(fine) / sizeof(*fine); i++) {
            if (strcmp(value, fine[i]) == 0) {
                return add_note(self, row, value);
            }
        }
        return refuse_flag(row, err);
    case UPSTREAM_METRICS_PORT:
    case UPSTREAM_METRICS_TEXT:
    case UPSTREAM_METRICS_BOOL:
    case UPSTREAM_METRICS_DURATION:
    case UPSTREAM_METRICS_RULE:
    case UPSTREAM_PROTOCOL_NAME:
        return add_to_config(self, row, ours, err);
    case UPSTREAM_IGNORED:
        return add_note(self, row, value);
    case UPSTREAM_IGNORED_IF_ONE:
        return strcmp(value, "0") == 0 || strcmp(value, "1") == 0 ? ST_OK : refuse_flag(row, err);
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
