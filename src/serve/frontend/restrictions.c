/* The nine categories and the parsing of "CATEGORY,…:HEADER=VALUE"; values are kept as digests. */
#include "serve/frontend/restrictions.h"

static const char *const NAMES[RESTRICTED_CATEGORIES] = {
    [RESTRICTED_HEALTH] = "health",
    [RESTRICTED_METADATA] = "metadata",
    [RESTRICTED_INFERENCE] = "inference",
    [RESTRICTED_SHARED_MEMORY] = "shared-memory",
    [RESTRICTED_MODEL_CONFIG] = "model-config",
    [RESTRICTED_MODEL_REPOSITORY] = "model-repository",
    [RESTRICTED_STATISTICS] = "statistics",
    [RESTRICTED_TRACE] = "trace",
    [RESTRICTED_LOGGING] = "logging",
};

static enum status add_category(struct restrictions *self, struct str name,
                                const struct restriction *restriction, struct error *err) {
    size_t i = 0;
    while (i < RESTRICTED_CATEGORIES && !str_is(name, NAMES[i])) {
        i++;
    }
    if (i == RESTRICTED_CATEGORIES) {
        return error_set(err, ST_BAD_CONFIG,
                         "unknown category \"%.*s\": expected health, metadata, inference, "
                         "shared-memory, model-config, model-repository, statistics, trace or "
                         "logging",
                         STR_ARG(name));
    }
    if (self->of[i].field) {
        return error_set(err, ST_BAD_CONFIG, "%s has two headers", NAMES[i]);
    }
    self->of[i] = *restriction;
    return ST_OK;
}

/* The name in lower case, which HTTP/2 has and HTTP/1 ignores. */
static const char *field_of(struct arena *arena, const char *prefix, struct str name) {
    struct str field = arena_printf(arena, "%s%.*s", prefix, STR_ARG(name));
    str_copy_lower((char *)field.ptr, field);
    return field.ptr;
}

static enum status add_setting(struct restrictions *self, struct str text, const char *prefix,
                               struct arena *arena, struct error *err) {
    struct str value = text;
    struct str categories = str_cut(&value, ':');
    struct str header = str_cut(&value, '=');
    if (categories.len == 0 || header.len == 0 || !value.ptr || value.len == 0) {
        return error_set(err, ST_BAD_CONFIG, "expected CATEGORY,…:HEADER=VALUE");
    }
    struct restriction restriction = {field_of(arena, prefix, header), secret_digest_of(value)};
    enum status st = ST_OK;
    while (st == ST_OK && categories.ptr) {
        st = add_category(self, str_cut(&categories, ','), &restriction, err);
    }
    return st;
}

enum status restrictions_parse(const char *const *texts, size_t n, const char *what,
                               const char *prefix, struct arena *arena, struct restrictions *out,
                               struct error *err) {
    enum status st = ST_OK;
    *out = (struct restrictions){.what = what};
    for (size_t i = 0; i < n && st == ST_OK; i++) {
        st = add_setting(out, str_of(texts[i]), prefix, arena, err);
    }
    return st;
}

bool restrictions_read_field(const struct restrictions *self, struct str name) {
    for (size_t i = 0; self && i < RESTRICTED_CATEGORIES; i++) {
        if (self->of[i].field && str_is(name, self->of[i].field)) {
            return true;
        }
    }
    return false;
}

enum status restrictions_check(const struct restrictions *self, enum restricted_category category,
                               keys_field_find *find, const void *request, struct error *err) {
    struct str value;
    if (!self || category == RESTRICTED_CATEGORIES || !self->of[category].field) {
        return ST_OK;
    }
    const struct restriction *restriction = &self->of[category];
    if (find(request, restriction->field, &value) == 1) {
        struct secret_digest digest = secret_digest_of(value);
        if (secret_digest_equal(&digest, &restriction->value)) {
            return ST_OK;
        }
    }
    return error_set(err, ST_RESTRICTED, "This %s is restricted, expecting header '%s'", self->what,
                     restriction->field);
}
