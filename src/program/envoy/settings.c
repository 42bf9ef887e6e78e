/* The object becomes a command line: so a setting is read, checked and explained as the flag. */
#include "program/envoy/settings.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/buf.h"
#include "core/base/doc/doc.h"

enum { MOST_ARGUMENTS = 1024 };

/* What is Envoy's in this place, or asks for a program of its own. */
static const char *const NOT_HERE[] = {"grpc",
                                       "health",
                                       "workers",
                                       "drain-timeout",
                                       "check",
                                       "explain",
                                       "max-streams",
                                       "idle-timeout",
                                       "loop-unready-after",
                                       "loop-dead-after",
                                       "grpc-tls-key",
                                       "grpc-tls-cert",
                                       "leader-election",
                                       "grpc-tls-client-ca",
                                       "grpc-tls-suites",
                                       "max-connections",
                                       "grpc-tls-self-signed"};

static enum status add_argument(struct envoy_arguments *arguments, const char *prefix,
                                struct str text, struct error *err) {
    if (arguments->n >= MOST_ARGUMENTS - 1) {
        return error_set(err, ST_BAD_CONFIG, "filter_config: more than %d settings",
                         (int)MOST_ARGUMENTS);
    }
    struct str argument = arena_printf(arguments->arena, "%s%.*s", prefix, STR_ARG(text));
    if (!arguments->items || !argument.ptr) {
        return error_no_memory(err, "filter_config");
    }
    arguments->items[arguments->n++] = (char *)argument.ptr;
    return ST_OK;
}

static enum status add_flag(struct envoy_arguments *arguments, const char *name,
                            struct error *err) {
    for (size_t i = 0; i < sizeof(NOT_HERE) / sizeof(NOT_HERE[0]); i++) {
        if (strcmp(name, NOT_HERE[i]) == 0) {
            return error_set(err, ST_BAD_CONFIG,
                             "filter_config: %s is a setting of `sluice pick` as a program, and "
                             "has no effect in Envoy",
                             name);
        }
    }
    return add_argument(arguments, "--", str_of(name), err);
}

static enum status add_value(struct envoy_arguments *arguments, const struct doc_node *value,
                             struct error *err) {
    struct str text = {NULL, 0};
    double number = 0;
    if (doc_is_text(value)) {
        enum status st = doc_read_str(value, &text, err);
        return st == ST_OK ? add_argument(arguments, "", text, err) : st;
    }
    enum status st = doc_read_f64(value, &number, err);
    if (st != ST_OK) {
        return doc_error(value, err, "expected a text, a number, true, or a list of these");
    }
    return add_argument(arguments, "", arena_printf(arguments->arena, "%.15g", number), err);
}

static enum status add_setting(struct envoy_arguments *arguments, const struct doc_node *member,
                               struct error *err) {
    struct doc_node item = {.doc = NULL};
    bool on = false;
    enum status st = ST_OK;
    if (doc_read_bool(member, &on, err) == ST_OK) {
        return on ? add_flag(arguments, member->key, err) : ST_OK;
    }
    while (st == ST_OK && doc_next(member, &item)) {
        st = add_flag(arguments, member->key, err);
        st = st == ST_OK ? add_value(arguments, &item, err) : st;
    }
    return st;
}

static int compare_keys(const void *a, const void *b) {
    const struct doc_node *left = a, *right = b;
    return strcmp(left->key, right->key);
}

/* By their names: Envoy writes a Struct's members in any order. */
static enum status add_settings(struct envoy_arguments *arguments, const struct doc *doc,
                                struct error *err) {
    struct doc_node root = doc_root(doc), member = {.doc = NULL};
    struct str file = {NULL, 0};
    enum status st = ST_OK;
    if (doc_is_text(&root)) {
        st = doc_read_str(&root, &file, err);
        st = st == ST_OK ? add_argument(arguments, "", STR("--config"), err) : st;
        return st == ST_OK ? add_argument(arguments, "", file, err) : st;
    }
    st = doc_expect_object(&root, err);
    size_t n = 0, most = st == ST_OK ? MOST_ARGUMENTS : 0;
    struct doc_node *members = arena_calloc(arguments->arena, most + 1, sizeof(*members));
    if (!members) {
        return error_no_memory(err, "filter_config");
    }
    while (n < most && doc_next_member(&root, &member)) {
        members[n++] = member;
    }
    if (st == ST_OK && n == 0) {
        return error_set(err, ST_BAD_CONFIG,
                         "filter_config: expected the settings, such as {config: "
                         "/etc/sluice/pool.yaml}, or the name of that file");
    }
    qsort(members, n, sizeof(*members), compare_keys);
    for (size_t i = 0; i < n && st == ST_OK; i++) {
        st = add_setting(arguments, &members[i], err);
    }
    return st;
}

/* The arguments, one a line. */
static struct str join(const struct envoy_arguments *arguments, struct arena *arena) {
    struct buf text;
    buf_init(&text, arena, 256);
    for (int i = 0; i < arguments->n; i++) {
        buf_add_str(&text, str_of(arguments->items[i]));
        buf_add_char(&text, '\n');
    }
    return buf_str(&text);
}

enum status envoy_arguments_read(struct str config, struct arena *arena,
                                 struct envoy_arguments *out, struct error *err) {
    struct doc *doc = NULL;
    *out = (struct envoy_arguments){.arena = arena};
    out->items = arena_calloc(arena, MOST_ARGUMENTS, sizeof(char *));
    enum status st = add_argument(out, "", STR("pick"), err);
    st = st == ST_OK ? doc_parse(DOC_YAML, "filter_config", config, &doc, err) : st;
    st = st == ST_OK ? add_settings(out, doc, err) : st;
    doc_free(doc);
    out->text = join(out, arena);
    return st;
}

enum status envoy_settings_read(const struct envoy_arguments *arguments, struct pick_settings *out,
                                struct error *err) {
    if (pick_settings_read(arguments->n, arguments->items, arguments->arena, out) >= 0) {
        return error_set(err, ST_BAD_CONFIG, "filter_config: the settings can't be used");
    }
    return pick_settings_choose_discovery(out, err);
}
