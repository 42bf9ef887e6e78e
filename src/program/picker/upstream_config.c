/* Members of YAML's flow form, one after the other. */
#include "program/picker/upstream_config.h"

#include <string.h>

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

void upstream_config_plain(struct buf *section, const char *key, struct str value) {
    begin_member(section, key);
    buf_add_str(section, value);
}

void upstream_config_text(struct buf *section, const char *key, struct str value) {
    begin_member(section, key);
    buf_add_json_string(section, value);
}

/* ---- a series -------------------------------------------------------------------------------- */

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

/* The labels of one series have both of the cache's numbers. */
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

enum status upstream_config_rule(struct upstream_config *config, const char *key, struct str spec,
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

/* ---- the document ---------------------------------------------------------------------------- */

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
    buf_add(&out, "}\n", 3); /* with the NUL */
    bool failed =
        out.failed || config->metrics.failed || config->rules.failed || config->protocol.failed;
    return failed ? NULL : out.data;
}
