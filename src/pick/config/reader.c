/* Readers of values of a pool's configuration, and lists of names that must be unique. */
#include "pick/config/reader.h"

#include <stdlib.h>

#include "core/base/buf.h"
#include "core/base/num.h"

void pool_config_reader_init(struct pool_config_reader *reader, const char *file,
                             struct pool_spec *spec, struct arena *arena, struct error *err) {
    *reader = (struct pool_config_reader){
        .doc = {.arena = spec->arena, .on_ignored = pool_config_add_note, .err = err},
        .file = file,
        .spec = spec,
        .arena = arena};
}

/* ---- notes ----------------------------------------------------------------------------------- */

/* Prints a path such as "flowControl.priorityBands[1].maxBytes". */
static void add_path(const struct doc_node *node, struct buf *out) {
    if (!node->parent) {
        return;
    }
    add_path(node->parent, out);
    if (node->key) {
        buf_printf(out, "%s%s", out->len > 0 ? "." : "", node->key);
    } else {
        buf_printf(out, "[%zu]", node->index);
    }
}

void pool_config_add_note(struct doc_reader *reader, const struct doc_node *node, const char *why) {
    struct pool_config_reader *pool = pool_config_reader_of(reader);
    struct buf path;
    struct str value;
    if (!doc_reader_ok(reader)) {
        return;
    }
    buf_init(&path, pool->arena, 0);
    add_path(node, &path);
    if (doc_read_str(node, &value, NULL) == ST_OK && node->val) {
        buf_printf(&path, ": %.*s", STR_ARG(value));
    }
    pool_spec_add_note(pool->spec, buf_str(&path), why);
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

void pool_config_read_name(struct doc_reader *reader, const struct doc_node *node, void *out) {
    struct str text = {NULL, 0};
    doc_reader_view(reader, node, &text);
    if (!is_name(text)) {
        doc_reader_fail(reader, node,
                        "expected a name of 1 to %d bytes without control characters%s",
                        POOL_CONFIG_NAME_BYTES, node->val ? "" : ", got none");
    }
    doc_reader_dup(reader, text, out);
}

void pool_config_read_optional_name(struct doc_reader *reader, const struct doc_node *node,
                                    void *out) {
    if (node->val) {
        pool_config_read_name(reader, node, out);
    }
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

void pool_config_read_path(struct doc_reader *reader, const struct doc_node *node, void *out) {
    struct str text = {NULL, 0};
    doc_reader_view(reader, node, &text);
    if (!text.ptr) {
        return;
    }
    if (!is_path(text)) {
        doc_reader_fail(reader, node,
                        "expected a path of visible ASCII that begins with /, got \"%.*s\"",
                        STR_ARG(text));
    }
    doc_reader_dup(reader, text, out);
}

void pool_config_read_page_path(struct doc_reader *reader, const struct doc_node *node, void *out) {
    const struct str *path = out;
    pool_config_read_path(reader, node, out);
    if (path->len > POOL_CONFIG_MAX_PATH) {
        doc_reader_fail(reader, node, "expected at most %d bytes, got %zu", POOL_CONFIG_MAX_PATH,
                        path->len);
    }
}

void pool_config_read_each_port(struct doc_reader *reader, const struct doc_node *list,
                                pool_config_read_port *read_port, struct pool_config_ports *ports) {
    if (!doc_is_present(list)) {
        return;
    }
    if (doc_count(list) > POOL_CONFIG_MAX_PORTS) {
        doc_reader_fail(reader, list, "expected at most %d ports, got %zu", POOL_CONFIG_MAX_PORTS,
                        doc_count(list));
    }
    ports->n = 0;
    for (struct doc_node item = {0}; doc_reader_next(reader, list, &item);) {
        ports->items[ports->n++] = read_port(reader, &item);
    }
}

uint16_t pool_config_port(struct doc_reader *reader, const struct doc_node *node) {
    uint64_t port = 0;
    doc_reader_u64(reader, node, 1, UINT16_MAX, &port);
    return (uint16_t)port;
}

void pool_config_read_port_list(struct doc_reader *reader, const struct doc_node *list, void *out) {
    pool_config_read_each_port(reader, list, pool_config_port, out);
}

void pool_config_read_labels(struct doc_reader *reader, const struct doc_node *node, void *out) {
    struct doc_node member = {0};
    size_t n = 0;
    *(struct pool_labels *)out = (struct pool_labels){NULL, 0};
    if (!node->val) {
        return;
    }
    doc_reader_expect_object(reader, node);
    while (doc_next_member(node, &member)) {
        n++;
    }
    struct pool_label *labels = doc_reader_calloc(reader, n, sizeof(*labels));
    for (size_t i = 0; doc_reader_ok(reader) && doc_next_member(node, &member); i++) {
        struct str value = {NULL, 0};
        doc_reader_view(reader, &member, &value);
        doc_reader_dup(reader, str_of(member.key), &labels[i].key);
        doc_reader_dup(reader, value, &labels[i].value);
    }
    *(struct pool_labels *)out = (struct pool_labels){labels, n};
}

/* ---- targets --------------------------------------------------------------------------------- */

void pool_config_read_targets(struct doc_reader *reader, const struct doc_node *list,
                              const char *key, struct pool_targets *out) {
    const struct doc_member members[] = {
        {key, MEMBER_CUSTOM_FIELD(struct pool_target, model, struct str, pool_config_read_name)},
        {"weight", MEMBER_WHOLE(struct pool_target, weight, 0, 1000000), .preset = 1},
        {0}};
    size_t n = doc_is_present(list) ? doc_count(list) : 0, n_weighted = 0, i = 0;
    if (n > POOL_CONFIG_MAX_TARGETS) {
        doc_reader_fail(reader, list, "expected at most %d targets, got %zu",
                        POOL_CONFIG_MAX_TARGETS, n);
    }
    struct pool_target *targets = doc_reader_calloc(reader, n, sizeof(*targets));
    for (struct doc_node item = {0}; n > 0 && doc_reader_next(reader, list, &item); i++) {
        doc_reader_presets(members, &targets[i]);
        doc_reader_object(reader, &item, members, &targets[i]);
        n_weighted += doc_get(&item, "weight").val != NULL;
    }
    if (n_weighted > 0 && n_weighted < n) {
        doc_reader_fail(reader, list,
                        "expected a weight for every target or for none; %zu of %zu have one",
                        n_weighted, n);
    }
    *out = (struct pool_targets){targets, n};
}

/* ---- unique names ---------------------------------------------------------------------------- */

void pool_config_add_name(struct pool_config_reader *reader, struct pool_config_names *names,
                          struct str name, const struct doc_node *node) {
    if (!doc_reader_ok(&reader->doc)) {
        return;
    }
    if (names->n == names->cap) {
        size_t cap = 2 * names->cap + 16, size = sizeof(*names->items);
        names->items = arena_realloc(reader->arena, names->items, names->cap * size, cap * size);
        names->cap = cap;
    }
    names->items[names->n++] = (struct pool_config_name){name, doc_line(node)};
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

void pool_config_check_unique(struct pool_config_reader *reader, struct pool_config_names *names,
                              const char *what) {
    if (names->n > 0) {
        qsort(names->items, names->n, sizeof(*names->items), compare_places);
    }
    for (size_t i = 1; i < names->n && doc_reader_ok(&reader->doc); i++) {
        const struct pool_config_name *first = &names->items[i - 1], *again = &names->items[i];
        if (str_eq(first->name, again->name)) {
            reader->doc.status =
                error_set(reader->doc.err, ST_BAD_CONFIG,
                          "%s:%u: the %s \"%.*s\" is there twice; the first is in line %u",
                          reader->file, again->line, what, STR_ARG(again->name), first->line);
        }
    }
}

void pool_config_check_disjoint(struct pool_config_reader *reader,
                                const struct pool_config_names *models,
                                const struct pool_config_names *rewrites) {
    size_t k = 0;
    for (size_t i = 0; i < models->n && k < rewrites->n && doc_reader_ok(&reader->doc);) {
        int order = compare_names(&models->items[i], &rewrites->items[k]);
        if (order == 0) {
            reader->doc.status =
                error_set(reader->doc.err, ST_BAD_CONFIG,
                          "%s:%u: the model \"%.*s\" has targets of its own, in line %u; "
                          "expected these or a rewrite",
                          reader->file, rewrites->items[k].line, STR_ARG(models->items[i].name),
                          models->items[i].line);
        }
        i += order < 0;
        k += order > 0;
    }
}
