/* Header forwarding with POSIX regular expressions. Only names of at most HEADER_FORWARD_NAME_BYTES
 * are matched, because clients choose them. */
#include "serve/frontend/header_forward.h"

#include <regex.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/utf8.h"

struct header_forward {
    regex_t pattern;
};

enum status header_forward_new(const char *pattern, struct header_forward **out,
                               struct error *err) {
    static const char exact[] = "(?-i)";
    bool is_exact = strncmp(pattern, exact, sizeof(exact) - 1) == 0;
    struct header_forward *self = calloc(1, sizeof(*self));
    *out = NULL;
    if (!self) {
        return error_no_memory(err, "a pattern");
    }
    int code = regcomp(&self->pattern, pattern + (is_exact ? sizeof(exact) - 1 : 0),
                       REG_EXTENDED | REG_NOSUB | (is_exact ? 0 : REG_ICASE));
    if (code != 0) {
        char why[128];
        regerror(code, &self->pattern, why, sizeof(why));
        free(self);
        return error_set(err, code == REG_ESPACE ? ST_NO_MEMORY : ST_BAD_CONFIG,
                         "expected an extended regular expression, got \"%.80s\": %s", pattern,
                         why);
    }
    *out = self;
    return ST_OK;
}

void header_forward_free(struct header_forward *self) {
    if (self) {
        regfree(&self->pattern);
        free(self);
    }
}

enum status header_forward_check(const char *pattern, struct error *err) {
    struct header_forward *self = NULL;
    enum status st = pattern ? header_forward_new(pattern, &self, err) : ST_OK;
    header_forward_free(self);
    return st;
}

/* ---- the fields of a request ----------------------------------------------------------------- */

static bool name_matches(const struct header_forward *self, struct str name) {
    char text[HEADER_FORWARD_NAME_BYTES + 1]; /* regexec needs a NUL-terminated name */
    if (name.len > HEADER_FORWARD_NAME_BYTES) {
        return false;
    }
    memcpy(text, name.ptr, name.len);
    text[name.len] = '\0';
    return regexec(&self->pattern, text, 0, NULL, 0) == 0;
}

/* The parameter list being built: the capacity is that of the request's parameters plus every
 * field. */
struct param_list {
    struct param *items;
    size_t n;
};

static enum status param_list_add(struct param_list *list, struct str name, struct str value,
                                  struct error *err) {
    if (param_is_reserved(name)) {
        return error_set(err, ST_BAD_FIELD,
                         "the header %.*s can't be forwarded: the name is reserved", STR_ARG(name));
    }
    if (!utf8_is_valid(value.ptr, value.len)) {
        return error_set(err, ST_BAD_FIELD,
                         "the header %.*s can't be forwarded: its value is not UTF-8",
                         STR_ARG(name));
    }
    list->items[list->n++] = (struct param){.name = name, .kind = PARAM_STRING, .string = value};
    return ST_OK;
}

static enum status param_list_init(struct param_list *list, struct arena *arena,
                                   struct params params, size_t n_fields, struct error *err) {
    list->items = arena_calloc(arena, params.n + n_fields, sizeof(*list->items));
    list->n = params.n;
    if (!list->items) {
        return error_no_memory(err, "forwarded headers");
    }
    if (params.n > 0) {
        memcpy(list->items, params.items, params.n * sizeof(*list->items));
    }
    return ST_OK;
}

static enum status param_list_finish(struct param_list *list, struct arena *arena,
                                     struct params *params, struct error *err) {
    if (!params_dedup(arena, list->items, &list->n, PARAMS_KEEP_FIRST)) {
        return error_no_memory(err, "forwarded headers");
    }
    *params = (struct params){list->items, list->n};
    return ST_OK;
}

enum status header_forward_http(const struct header_forward *self, struct arena *arena,
                                const struct http_head *head, struct params *params,
                                struct error *err) {
    struct param_list list;
    if (!self || head->n_fields == 0) {
        return ST_OK;
    }
    enum status st = param_list_init(&list, arena, *params, head->n_fields, err);
    for (size_t i = 0; st == ST_OK && i < head->n_fields; i++) {
        const struct http_field *field = &head->fields[i];
        if (name_matches(self, field->name)) {
            st = param_list_add(&list, field->name, field->value, err);
        }
    }
    return st == ST_OK ? param_list_finish(&list, arena, params, err) : st;
}

static bool is_grpc_reserved(struct str name) {
    static const struct str binary = STR("-bin");
    return str_is(name, "te") || str_is(name, "content-type") ||
           str_starts_with(name, STR("grpc-")) ||
           (name.len >= binary.len &&
            memcmp(name.ptr + name.len - binary.len, binary.ptr, binary.len) == 0);
}

bool header_forward_matches_grpc(const struct header_forward *self, struct str name) {
    return self && !is_grpc_reserved(name) && name_matches(self, name);
}

enum status header_forward_grpc(const struct header_forward *self, struct arena *arena,
                                const struct grpc_call *call, struct params *params,
                                struct error *err) {
    struct param_list list;
    if (!self || call->n_fields == 0) {
        return ST_OK;
    }
    enum status st = param_list_init(&list, arena, *params, call->n_fields, err);
    for (size_t i = 0; st == ST_OK && i < call->n_fields; i++) {
        const struct grpc_field *field = &call->fields[i];
        if (header_forward_matches_grpc(self, field->name)) {
            st = param_list_add(&list, field->name, field->value, err);
        }
    }
    return st == ST_OK ? param_list_finish(&list, arena, params, err) : st;
}
