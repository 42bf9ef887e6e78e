/* The list `pools`: which pools there are, and which requests each is for. What else an item has is
 * read as if it were a file of its own. */
#include "pick/config/reading.h"

#include <stdlib.h>

enum { MOST_AUTHORITIES = 100, MOST_HOST_BYTES = 255 };

/* ---- authorities ----------------------------------------------------------------------------- */

static bool is_host_byte(char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || (c != '\0' && strchr("-._:[]", c));
}

/* "a.b", "a.b:80", "[::1]", or "*.b", which becomes ".b". */
static bool is_authority(struct str text) {
    struct str host = text;
    if (str_starts(text, STR("*."))) {
        host = str_make(text.ptr + 2, text.len - 2);
    }
    bool fits = host.len > 0 && text.len <= MOST_HOST_BYTES && host.ptr[0] != '.' &&
                host.ptr[host.len - 1] != '.' && host.ptr[host.len - 1] != ':';
    for (size_t i = 0; i < host.len; i++) {
        fits = fits && is_host_byte(host.ptr[i]);
        fits = fits && !(host.len < text.len && host.ptr[i] == ':'); /* no port behind a suffix */
    }
    return fits;
}

static enum status read_authority(struct reading *reading, const struct doc_node *node,
                                  struct str *out, struct error *err) {
    char lower[MOST_HOST_BYTES];
    struct str text = {NULL, 0};
    enum status st = doc_read_str(node, &text, err);
    if (st != ST_OK) {
        return st;
    }
    size_t n = text.len < sizeof(lower) ? text.len : 0;
    for (size_t i = 0; i < n; i++) {
        char c = text.ptr[i];
        lower[i] = (char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
    }
    struct str name = str_make(lower, n);
    if (!is_authority(name)) {
        return doc_error(node, err,
                         "expected an authority (api.example.com, api.example.com:8443 or "
                         "*.example.com), got \"%.*s\"",
                         STR_ARG(text));
    }
    *out = pool_spec_text(reading->spec, lower[0] == '*' ? str_make(lower + 1, n - 1) : name);
    return out->ptr ? ST_OK : reading_no_memory(reading, err);
}

static enum status check_new(const struct doc_node *node, const struct str *authorities, size_t n,
                             struct error *err) {
    for (size_t i = 0; i < n; i++) {
        if (str_eq(authorities[i], authorities[n])) {
            return doc_error(node, err, "is there twice");
        }
    }
    return ST_OK;
}

static enum status read_authorities(struct reading *reading, const struct doc_node *list,
                                    struct pool_match *match, struct error *err) {
    size_t n = doc_present(list) ? doc_count(list) : 0;
    if (list->val && (n == 0 || n > MOST_AUTHORITIES)) {
        return doc_error(list, err, "expected 1 to %d authorities, got %zu", MOST_AUTHORITIES, n);
    }
    struct str *authorities = arena_calloc(reading->spec->arena, n + 1, sizeof(*authorities));
    if (!authorities) {
        return reading_no_memory(reading, err);
    }
    enum status st = ST_OK;
    struct doc_node item = {0};
    for (size_t i = 0; i < n && st == ST_OK && doc_each(list, &item); i++) {
        st = read_authority(reading, &item, &authorities[i], err);
        if (st == ST_OK) {
            st = check_new(&item, authorities, i, err);
        }
    }
    match->authorities = authorities;
    match->n_authorities = n;
    return st;
}

/* ---- the others ------------------------------------------------------------------------------ */

/* Whole segments count, so that a / at the end says nothing. */
static enum status read_prefix(struct reading *reading, const struct doc_node *node,
                               struct pool_match *match, struct error *err) {
    struct str path = {NULL, 0};
    enum status st = reading_path(reading, node, &path, err);
    if (st == ST_OK && path.ptr &&
        (memchr(path.ptr, '?', path.len) || memchr(path.ptr, '#', path.len))) {
        st = doc_error(node, err, "expected a path without ? and #, got \"%.*s\"", STR_ARG(path));
    }
    while (path.ptr && path.len > 0 && path.ptr[path.len - 1] == '/') {
        path.len--;
    }
    match->path = path;
    return st;
}

static enum status read_header(struct reading *reading, const struct doc_node *node,
                               struct pool_match *match, struct error *err) {
    static const char *const names[] = {"name", "value", NULL};
    struct doc_node name = doc_get(node, "name"), value = doc_get(node, "value");
    if (!node->val) {
        return ST_OK;
    }
    enum status st = doc_expect_object(node, err);
    if (st == ST_OK) {
        st = doc_only(node, names, err);
    }
    if (st == ST_OK && !name.val) {
        return doc_error(&name, err, "expected the name of a header, got nothing");
    }
    if (st == ST_OK) {
        st = reading_header(reading, &name, &match->header, err);
    }
    return st == ST_OK ? reading_name(reading, &value, &match->header_value, err) : st;
}

static enum status read_metadata(struct reading *reading, const struct doc_node *node,
                                 struct pool_match *match, struct error *err) {
    static const char *const names[] = {"namespace", "key", "value", NULL};
    struct doc_node space = doc_get(node, "namespace"), key = doc_get(node, "key");
    struct doc_node value = doc_get(node, "value");
    if (!node->val) {
        return ST_OK;
    }
    enum status st = doc_expect_object(node, err);
    if (st == ST_OK) {
        st = doc_only(node, names, err);
    }
    if (st == ST_OK) {
        st = reading_name(reading, &space, &match->space, err);
    }
    if (st == ST_OK) {
        st = reading_name(reading, &key, &match->key, err);
    }
    return st == ST_OK ? reading_name(reading, &value, &match->metadata_value, err) : st;
}

static enum status read_match(struct reading *reading, const struct doc_node *node,
                              struct error *err) {
    static const char *const names[] = {"authority", "path_prefix", "header", "metadata", NULL};
    struct doc_node authority = doc_get(node, "authority"), path = doc_get(node, "path_prefix");
    struct doc_node header = doc_get(node, "header"), metadata = doc_get(node, "metadata");
    struct pool_match *match = &reading->spec->match;
    if (!node->val) {
        return ST_OK;
    }
    enum status st = doc_expect_object(node, err);
    if (st == ST_OK) {
        st = doc_only(node, names, err);
    }
    if (st == ST_OK) {
        st = read_authorities(reading, &authority, match, err);
    }
    if (st == ST_OK) {
        st = read_prefix(reading, &path, match, err);
    }
    if (st == ST_OK) {
        st = read_header(reading, &header, match, err);
    }
    return st == ST_OK ? read_metadata(reading, &metadata, match, err) : st;
}

/* ---- names ----------------------------------------------------------------------------------- */

static int compare_readings(const void *a, const void *b) {
    const struct reading *left = *(const struct reading *const *)a;
    const struct reading *right = *(const struct reading *const *)b;
    int order = str_compare(left->spec->name, right->spec->name);
    return order ? order : left < right ? -1 : left > right;
}

static enum status sort_names(struct reading_file *file, struct error *err) {
    file->by_name = arena_calloc(file->arena, file->n, sizeof(struct reading *));
    if (!file->by_name) {
        return reading_no_memory(&file->items[0], err);
    }
    for (size_t i = 0; i < file->n; i++) {
        file->by_name[i] = &file->items[i];
    }
    qsort(file->by_name, file->n, sizeof(struct reading *), compare_readings);
    for (size_t i = 1; i < file->n; i++) {
        const struct reading *first = file->by_name[i - 1], *again = file->by_name[i];
        if (str_eq(first->spec->name, again->spec->name)) {
            return error_set(err, ST_BAD_CONFIG,
                             "%s:%u: the pool \"%.*s\" is there twice; the first is in line %u",
                             file->name, again->line, STR_ARG(again->spec->name), first->line);
        }
    }
    return ST_OK;
}

struct reading *reading_pools_find(const struct reading_file *file, struct str name) {
    size_t low = 0, high = file->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (str_compare(file->by_name[middle]->spec->name, name) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    bool found = low < file->n && str_eq(file->by_name[low]->spec->name, name);
    return found ? file->by_name[low] : NULL;
}

/* ---- the list -------------------------------------------------------------------------------- */

static enum status begin(struct reading_file *file, struct error *err) {
    struct reading *reading = &file->items[file->n++];
    *reading = (struct reading){.file = file->name, .arena = file->arena};
    return pool_spec_new(&reading->spec, err);
}

static enum status read_item(struct reading_file *file, const struct doc_node *item,
                             struct error *err) {
    struct doc_node name = doc_get(item, "name"), match = doc_get(item, "match");
    enum status st = begin(file, err);
    struct reading *reading = &file->items[file->n - 1];
    reading->line = doc_line(item);
    if (st == ST_OK) {
        st = doc_expect_object(item, err);
    }
    if (st == ST_OK) {
        st = reading_name(reading, &name, &reading->spec->name, err);
    }
    if (st != ST_OK) {
        return st;
    }
    st = read_match(reading, &match, err);
    return st == ST_OK ? ST_OK : reading_pools_blame(reading, err);
}

enum status reading_pools(struct reading_file *file, const struct doc_node *node,
                          struct error *err) {
    struct doc_node list = doc_get(node, "pools"), item = {0};
    size_t n = doc_present(&list) ? doc_count(&list) : 0;
    if (list.val && n == 0) {
        return doc_error(&list, err, "expected a list of pools, got none");
    }
    file->items = arena_calloc(file->arena, n + 1, sizeof(*file->items));
    if (!file->items) {
        return error_set(err, ST_NO_MEMORY, "%s: no memory for the pools", file->name);
    }
    if (!list.val) {
        return begin(file, err);
    }
    enum status st = ST_OK;
    while (st == ST_OK && doc_each(&list, &item)) {
        st = read_item(file, &item, err);
    }
    return st == ST_OK ? sort_names(file, err) : st;
}

enum status reading_pools_check(const struct reading_file *file, const struct pool_specs *specs,
                                struct error *err) {
    struct pool_clash clash = {.first = 0};
    struct error why;
    enum status st = pool_specs_check(specs, &clash, &why);
    if (st != ST_BAD_CONFIG) {
        return st == ST_OK ? st : reading_no_memory(&file->items[0], err);
    }
    const struct reading *first = &file->items[clash.first], *again = &file->items[clash.again];
    if (first == again) {
        return error_set(err, st, "%s:%u: the pool \"%.*s\": %s", file->name, again->line,
                         STR_ARG(again->spec->name), why.text);
    }
    bool suffix = clash.authority.len > 0 && clash.authority.ptr[0] == '.';
    return error_set(
        err, st,
        "%s:%u: the pool \"%.*s\" is for the same requests%s%s%.*s as \"%.*s\" in line "
        "%u: expected a `match` that tells them apart",
        file->name, again->line, STR_ARG(again->spec->name), clash.authority.len > 0 ? " to " : "",
        suffix ? "*" : "", STR_ARG(clash.authority), STR_ARG(first->spec->name), first->line);
}

enum status reading_pools_blame(const struct reading *reading, struct error *err) {
    struct error said = *err;
    if (reading->line == 0 || said.status != ST_BAD_CONFIG) {
        return said.status;
    }
    return error_set(err, said.status, "%s (in the pool \"%.*s\")", said.text,
                     STR_ARG(reading->spec->name));
}
