/* Readers of values of a pool's configuration, and lists of names that must be unique. */
#include "pick/config/reader.h"

#include <stdlib.h>

#include "core/base/checked.h"
#include "core/base/num.h"

enum status pool_config_no_memory(const struct pool_config_reader *reader, struct error *err) {
    return error_no_memory(err, "the pool of %s", reader->file);
}

/* ---- values ---------------------------------------------------------------------------------- */

static bool is_name(struct str text) {
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        if (c < 0x20 || c == 0x7f) {
            return false;
        }
    }
    return text.len > 0 && text.len <= POOL_CONFIG_NAME_BYTES;
}

enum status pool_config_read_name(struct pool_config_reader *reader, const struct doc_node *node,
                                  struct str *out, struct error *err) {
    struct str text = {NULL, 0};
    enum status st = doc_read_str(node, &text, err);
    if (st != ST_OK) {
        return st;
    }
    if (!is_name(text)) {
        return doc_error(node, err, "expected a name of 1 to %d bytes without control characters%s",
                         POOL_CONFIG_NAME_BYTES, node->val ? "" : ", got none");
    }
    *out = pool_spec_dup_text(reader->spec, text);
    return out->ptr ? ST_OK : pool_config_no_memory(reader, err);
}

static enum status read_duration_text(const struct doc_node *node, uint64_t *out,
                                      struct error *err) {
    struct str text;
    enum status st = doc_read_str(node, &text, err);
    if (st == ST_OK && !num_parse_duration_ns(text, out)) {
        st = doc_error(node, err, "expected a time (250ms, 1.5s, 2m), got \"%.*s\"", STR_ARG(text));
    }
    return st;
}

enum status pool_config_read_duration(const struct doc_node *node, uint64_t min_ns, uint64_t max_ns,
                                      uint64_t *out, struct error *err) {
    uint64_t ns = 0;
    double seconds = 0;
    if (!node->val) {
        return ST_OK;
    }
    enum status st = ST_OK;
    if (doc_read_f64(node, &seconds, NULL) == ST_OK) {
        bool fits = seconds >= 0 && seconds <= 1e9;
        ns = fits ? (uint64_t)(seconds * 1e9) : UINT64_MAX;
    } else {
        st = read_duration_text(node, &ns, err);
    }
    if (st == ST_OK && (ns < min_ns || ns > max_ns)) {
        st = doc_error(node, err, "expected %g to %g seconds", (double)min_ns / 1e9,
                       (double)max_ns / 1e9);
    }
    if (st == ST_OK) {
        *out = ns;
    }
    return st;
}

enum status pool_config_read_unsigned(const struct doc_node *node, int64_t min, int64_t max,
                                      uint64_t *out, struct error *err) {
    int64_t value = (int64_t)*out;
    enum status st = doc_read_i64(node, min, max, &value, err);
    *out = (uint64_t)value;
    return st;
}

static enum status expected_word(const struct doc_node *node, const char *const *words,
                                 struct str got, struct error *err) {
    char list[200];
    size_t len = 0;
    for (size_t i = 0; words[i] && len < sizeof(list); i++) {
        const char *between = i == 0 ? "" : words[i + 1] ? ", " : " or ";
        len += (size_t)snprintf(list + len, sizeof(list) - len, "%s%s", between, words[i]);
    }
    return doc_error(node, err, "expected %s, got \"%.*s\"", list, STR_ARG(got));
}

enum status pool_config_read_word(const struct doc_node *node, const char *const *words,
                                  unsigned *out, struct error *err) {
    struct str text = {NULL, 0};
    enum status st = doc_read_str(node, &text, err);
    if (st != ST_OK || !node->val) {
        return st;
    }
    for (unsigned i = 0; words[i]; i++) {
        if (str_is(text, words[i])) {
            *out = i;
            return ST_OK;
        }
    }
    return expected_word(node, words, text, err);
}

/* It is copied into a request line unchanged. */
static bool is_path(struct str path) {
    for (size_t i = 0; i < path.len; i++) {
        if (path.ptr[i] <= ' ' || path.ptr[i] > '~') {
            return false;
        }
    }
    return path.len > 0 && path.ptr[0] == '/';
}

enum status pool_config_read_path(struct pool_config_reader *reader, const struct doc_node *node,
                                  struct str *out, struct error *err) {
    struct str text = {NULL, 0};
    enum status st = doc_read_str(node, &text, err);
    if (st != ST_OK || !node->val) {
        return st;
    }
    if (!is_path(text)) {
        return doc_error(node, err,
                         "expected a path of visible ASCII that begins with /, got \"%.*s\"",
                         STR_ARG(text));
    }
    *out = pool_spec_dup_text(reader->spec, text);
    return out->ptr ? ST_OK : pool_config_no_memory(reader, err);
}

enum status pool_config_read_port(const struct doc_node *node, uint16_t *out, struct error *err) {
    int64_t port = *out;
    enum status st = doc_read_i64(node, 1, UINT16_MAX, &port, err);
    *out = (uint16_t)port;
    return st;
}

enum status pool_config_read_port_list(const struct doc_node *list, struct pool_config_ports *out,
                                       struct error *err) {
    enum status st = ST_OK;
    if (!doc_is_present(list)) {
        return ST_OK;
    }
    if (doc_count(list) > POOL_CONFIG_MAX_PORTS) {
        return doc_error(list, err, "expected at most %d ports, got %zu", POOL_CONFIG_MAX_PORTS,
                         doc_count(list));
    }
    out->n = 0;
    for (struct doc_node item = {0}; st == ST_OK && doc_next(list, &item);) {
        st = pool_config_read_port(&item, &out->items[out->n++], err);
    }
    return st;
}

enum status pool_config_read_labels(struct pool_config_reader *reader, const struct doc_node *node,
                                    struct pool_labels *out, struct error *err) {
    struct doc_node member = {0};
    size_t n = 0;
    *out = (struct pool_labels){NULL, 0};
    if (!node->val) {
        return ST_OK;
    }
    enum status st = doc_expect_object(node, err);
    while (st == ST_OK && doc_next_member(node, &member)) {
        n++;
    }
    struct pool_label *labels = arena_calloc(reader->spec->arena, n, sizeof(*labels));
    if (st != ST_OK || !labels) {
        return st != ST_OK ? st : pool_config_no_memory(reader, err);
    }
    for (size_t i = 0; st == ST_OK && doc_next_member(node, &member); i++) {
        struct str value = {NULL, 0};
        st = doc_read_str(&member, &value, err);
        labels[i].key = pool_spec_dup_text(reader->spec, str_of(member.key));
        labels[i].value = pool_spec_dup_text(reader->spec, value);
        if (st == ST_OK && (!labels[i].key.ptr || !labels[i].value.ptr)) {
            st = pool_config_no_memory(reader, err);
        }
    }
    *out = (struct pool_labels){labels, n};
    return st;
}

/* ---- targets --------------------------------------------------------------------------------- */

static enum status read_target(struct pool_config_reader *reader, const struct doc_node *node,
                               const char *key, struct pool_target *out, bool *weighted,
                               struct error *err) {
    const char *const names[] = {key, "weight", NULL};
    struct doc_node name = doc_get(node, key), weight = doc_get(node, "weight");
    int64_t share = 1;
    enum status st = doc_expect_object(node, err);
    if (st == ST_OK) {
        st = doc_reject_unknown(node, names, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_name(reader, &name, &out->model, err);
    }
    if (st == ST_OK) {
        st = doc_read_i64(&weight, 0, 1000000, &share, err);
    }
    out->weight = (uint32_t)share;
    *weighted = weight.val != NULL;
    return st;
}

enum status pool_config_read_targets(struct pool_config_reader *reader, const struct doc_node *list,
                                     const char *key, struct pool_targets *out, struct error *err) {
    size_t n = doc_is_present(list) ? doc_count(list) : 0, n_weighted = 0, i = 0;
    *out = (struct pool_targets){NULL, 0};
    if (n > POOL_CONFIG_MAX_TARGETS) {
        return doc_error(list, err, "expected at most %d targets, got %zu", POOL_CONFIG_MAX_TARGETS,
                         n);
    }
    struct pool_target *targets = arena_calloc(reader->spec->arena, n, sizeof(*targets));
    if (!targets) {
        return pool_config_no_memory(reader, err);
    }
    enum status st = ST_OK;
    for (struct doc_node item = {0}; n > 0 && st == ST_OK && doc_next(list, &item); i++) {
        bool weighted = false;
        st = read_target(reader, &item, key, &targets[i], &weighted, err);
        n_weighted += weighted;
    }
    if (st == ST_OK && n_weighted > 0 && n_weighted < n) {
        st = doc_error(list, err,
                       "expected a weight for every target or for none; %zu of %zu "
                       "have one",
                       n_weighted, n);
    }
    *out = (struct pool_targets){targets, n};
    return st;
}

/* ---- unique names ---------------------------------------------------------------------------- */

enum status pool_config_add_name(struct pool_config_reader *reader, struct pool_config_names *names,
                                 struct str name, const struct doc_node *node, struct error *err) {
    if (names->n == names->cap) {
        size_t cap = 2 * names->cap + 16, size = sizeof(*names->items), n_bytes;
        struct pool_config_name *items =
            checked_mul(cap, size, &n_bytes)
                ? arena_realloc(reader->arena, names->items, names->cap * size, n_bytes)
                : NULL;
        if (!items) {
            return pool_config_no_memory(reader, err);
        }
        names->items = items;
        names->cap = cap;
    }
    names->items[names->n++] = (struct pool_config_name){name, doc_line(node)};
    return ST_OK;
}

static int compare_names(const struct pool_config_name *a, const struct pool_config_name *b) {
    size_t n = a->name.len < b->name.len ? a->name.len : b->name.len;
    int order = memcmp(a->name.ptr, b->name.ptr, n);
    return order ? order : a->name.len < b->name.len ? -1 : a->name.len > b->name.len;
}

/* By name, then by line. */
static int compare_places(const void *a, const void *b) {
    const struct pool_config_name *left = a, *right = b;
    int order = compare_names(left, right);
    return order ? order : left->line < right->line ? -1 : left->line > right->line;
}

enum status pool_config_check_unique(const struct pool_config_reader *reader,
                                     struct pool_config_names *names, const char *what,
                                     struct error *err) {
    if (names->n > 0) {
        qsort(names->items, names->n, sizeof(*names->items), compare_places);
    }
    for (size_t i = 1; i < names->n; i++) {
        const struct pool_config_name *first = &names->items[i - 1], *again = &names->items[i];
        if (str_eq(first->name, again->name)) {
            return error_set(err, ST_BAD_CONFIG,
                             "%s:%u: the %s \"%.*s\" is there twice; the first is in line %u",
                             reader->file, again->line, what, STR_ARG(again->name), first->line);
        }
    }
    return ST_OK;
}

enum status pool_config_check_disjoint(const struct pool_config_reader *reader,
                                       const struct pool_config_names *models,
                                       const struct pool_config_names *rewrites,
                                       struct error *err) {
    size_t k = 0;
    for (size_t i = 0; i < models->n && k < rewrites->n;) {
        int order = compare_names(&models->items[i], &rewrites->items[k]);
        if (order == 0) {
            return error_set(err, ST_BAD_CONFIG,
                             "%s:%u: the model \"%.*s\" has targets of its own, in line %u; "
                             "expected these or a rewrite",
                             reader->file, rewrites->items[k].line, STR_ARG(models->items[i].name),
                             models->items[i].line);
        }
        i += order < 0;
        k += order > 0;
    }
    return ST_OK;
}
