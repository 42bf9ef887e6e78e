/* Checks a configuration against the table of fields in field.def. */
#include "serve/config/field.h"

#include "core/base/log.h"

enum treatment { READ, IGNORED, REFUSED, REFUSED_TRUE };

struct field {
    enum config_message message;
    const char *name;
    enum treatment treatment;
    enum config_message holds;
    const char *why;
};

#define CONFIG_FIELD(in, field_name, what, inner, reason)                                          \
    {CONFIG_##in, #field_name, what, CONFIG_##inner, reason},
static const struct field fields[] = {
#include "serve/config/field.def"
};
#undef CONFIG_FIELD

enum { N_FIELDS = sizeof(fields) / sizeof(fields[0]) };

static void names_of(enum config_message message, const char *names[N_FIELDS + 1]) {
    size_t n = 0;
    for (size_t i = 0; i < N_FIELDS; i++) {
        if (fields[i].message == message) {
            names[n++] = fields[i].name;
        }
    }
    names[n] = NULL;
}

static void warn_no_effect(const struct doc_node *node, const char *why) {
    struct error where;
    doc_error(node, &where, "has no effect: %s", why);
    log_event(LOG_WARNING, "configuration", LOG_CSTR("text", where.text));
}

/* Returns: whether the field has its default value. A configuration that was printed in full
 * contains every field. */
static bool is_default(const struct doc_node *node, enum treatment treatment) {
    yyjson_val *val = node->val;
    bool boolean;
    double number;
    return json_is_null(val) || (json_get_bool(val, &boolean) && !boolean) ||
           json_text_is(val, "") || json_text_is(val, "FORMAT_NONE") ||
           (json_get_f64(val, &number) && number == 0) ||
           (json_is_array(val) && json_count(val) == 0) ||
           (treatment == IGNORED && json_is_object(val) && json_count(val) == 0);
}

static enum status check_inner(const struct doc_node *node, enum config_message message,
                               struct error *err) {
    struct doc_node element = {0};
    while (doc_next(node, &element)) {
        enum status st = config_fields_check(&element, message, err);
        if (st != ST_OK) {
            return st;
        }
    }
    return ST_OK;
}

static enum status apply_field(const struct doc_node *node, const struct field *field,
                               struct error *err) {
    bool refused = false;
    enum status st = ST_OK;
    if (field->treatment != READ && is_default(node, field->treatment)) {
        return ST_OK;
    }
    switch (field->treatment) {
    case READ:
        return field->holds == CONFIG_NONE ? ST_OK : check_inner(node, field->holds, err);
    case IGNORED:
        warn_no_effect(node, field->why);
        return ST_OK;
    case REFUSED:
        refused = true;
        break;
    case REFUSED_TRUE:
        st = doc_read_bool(node, &refused, err);
        break;
    }
    return st == ST_OK && refused ? doc_error(node, err, "%s", field->why) : st;
}

enum status config_fields_check(const struct doc_node *node, enum config_message message,
                                struct error *err) {
    const char *names[N_FIELDS + 1];
    names_of(message, names);
    enum status st = doc_expect_object(node, err);
    if (st == ST_OK) {
        st = doc_reject_unknown(node, names, err);
    }
    for (size_t i = 0; i < N_FIELDS && st == ST_OK; i++) {
        if (fields[i].message == message) {
            struct doc_node inner = doc_get(node, fields[i].name);
            st = inner.val ? apply_field(&inner, &fields[i], err) : ST_OK;
        }
    }
    return st;
}
