/* The list `pools`: which pools there are, and which requests each is for. What else an item has is
 * read as if it were a file of its own. */
#include "pick/config/reader.h"

#include <stdlib.h>

enum { MOST_AUTHORITIES = 100, MOST_HOST_BYTES = 255 };

/* ---- authorities ----------------------------------------------------------------------------- */

static bool is_host_byte(char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || (c != '\0' && strchr("-._:[]", c));
}

/* "a.b", "a.b:80", "[::1]", or "*.b", which becomes ".b". */
static bool is_authority(struct str text) {
    struct str host = text;
    if (str_starts_with(text, STR("*."))) {
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

static enum status read_authority(struct pool_config_reader *reader, const struct doc_node *node,
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
    *out = pool_spec_dup_text(reader->spec, lower[0] == '*' ? str_make(lower + 1, n - 1) : name);
    return out->ptr ? ST_OK : pool_config_no_memory(reader, err);
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

static enum status read_authorities(struct pool_config_reader *reader, const struct doc_node *list,
                                    struct pool_match *match, struct error *err) {
    size_t n = doc_is_present(list) ? doc_count(list) : 0;
    if (list->val && (n == 0 || n > MOST_AUTHORITIES)) {
        return doc_error(list, err, "expected 1 to %d authorities, got %zu", MOST_AUTHORITIES, n);
    }
    struct str *authorities = arena_calloc(reader->spec->arena, n + 1, sizeof(*authorities));
    if (!authorities) {
        return pool_config_no_memory(reader, err);
    }
    enum status st = ST_OK;
    struct doc_node item = {0};
    for (size_t i = 0; i < n && st == ST_OK && doc_next(list, &item); i++) {
        st = read_authority(reader, &item, &authorities[i], err);
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
static enum status read_prefix(struct pool_config_reader *reader, const struct doc_node *node,
                               struct pool_match *match, struct error *err) {
    struct str path = {NULL, 0};
    enum status st = pool_config_read_path(reader, node, &path, err);
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

static enum status read_header(struct pool_config_reader *reader, const struct doc_node *node,
                               struct pool_match *match, struct error *err) {
    static const char *const names[] = {"name", "value", NULL};
    struct doc_node name = doc_get(node, "name"), value = doc_get(node, "value");
    if (!node->val) {
        return ST_OK;
    }
    enum status st = doc_expect_object(node, err);
    if (st == ST_OK) {
        st = doc_reject_unknown(node, names, err);
    }
    if (st == ST_OK && !name.val) {
        return doc_error(&name, err, "expected the name of a header, got nothing");
    }
    if (st == ST_OK) {
        st = pool_config_read_header(reader, &name, &match->header, err);
    }
    return st == ST_OK ? pool_config_read_name(reader, &value, &match->header_value, err) : st;
}

static enum status read_metadata(struct pool_config_reader *reader, const struct doc_node *node,
                                 struct pool_match *match, struct error *err) {
    static const char *const names[] = {"namespace", "key", "value", NULL};
    struct doc_node space = doc_get(node, "namespace"), key = doc_get(node, "key");
    struct doc_node value = doc_get(node, "value");
    if (!node->val) {
        return ST_OK;
    }
    enum status st = doc_expect_object(node, err);
    if (st == ST_OK) {
        st = doc_reject_unknown(node, names, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_name(reader, &space, &match->space, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_name(reader, &key, &match->key, err);
    }
    return st == ST_OK ? pool_config_read_name(reader, &value, &match->metadata_value, err) : st;
}

static enum status read_match(struct pool_config_reader *reader, const struct doc_node *node,
                              struct error *err) {
    static const char *const names[] = {"authority", "path_prefix", "header", "metadata", NULL};
    struct doc_node authority = doc_get(node, "authority"), path = doc_get(node, "path_prefix");
    struct doc_node header = doc_get(node, "header"), metadata = doc_get(node, "metadata");
    struct pool_match *match = &reader->spec->match;
    if (!node->val) {
        return ST_OK;
    }
    enum status st = doc_expect_object(node, err);
    if (st == ST_OK) {
        st = doc_reject_unknown(node, names, err);
    }
    if (st == ST_OK) {
        st = read_authorities(reader, &authority, match, err);
    }
    if (st == ST_OK) {
        st = read_prefix(reader, &path, match, err);
    }
    if (st == ST_OK) {
        st = read_header(reader, &header, match, err);
    }
    return st == ST_OK ? read_metadata(reader, &metadata, match, err) : st;
}

/* ---- names ----------------------------------------------------------------------------------- */

static int compare_reader_names(const void *a, const void *b) {
    const struct pool_config_reader *left = *(const struct pool_config_reader *const *)a;
    const struct pool_config_reader *right = *(const struct pool_config_reader *const *)b;
    int order = str_compare(left->spec->name, right->spec->name);
    return order ? order : left < right ? -1 : left > right;
}

static enum status sort_names(struct pool_config_file *file, struct error *err) {
    file->by_name = arena_calloc(file->arena, file->n, sizeof(struct pool_config_reader *));
    if (!file->by_name) {
        return pool_config_no_memory(&file->items[0], err);
    }
    for (size_t i = 0; i < file->n; i++) {
        file->by_name[i] = &file->items[i];
    }
    qsort(file->by_name, file->n, sizeof(struct pool_config_reader *), compare_reader_names);
    for (size_t i = 1; i < file->n; i++) {
        const struct pool_config_reader *first = file->by_name[i - 1], *again = file->by_name[i];
        if (str_eq(first->spec->name, again->spec->name)) {
            return error_set(err, ST_BAD_CONFIG,
                             "%s:%u: the pool \"%.*s\" is there twice; the first is in line %u",
                             file->name, again->line, STR_ARG(again->spec->name), first->line);
        }
    }
    return ST_OK;
}

struct pool_config_reader *pool_config_find_pool(const struct pool_config_file *file,
                                                 struct str name) {
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

static enum status begin_pool(struct pool_config_file *file, struct error *err) {
    struct pool_config_reader *reader = &file->items[file->n++];
    *reader = (struct pool_config_reader){.file = file->name, .arena = file->arena};
    return pool_spec_new(&reader->spec, err);
}

static enum status read_item(struct pool_config_file *file, const struct doc_node *item,
                             struct error *err) {
    struct doc_node name = doc_get(item, "name"), match = doc_get(item, "match");
    enum status st = begin_pool(file, err);
    struct pool_config_reader *reader = &file->items[file->n - 1];
    reader->line = doc_line(item);
    if (st == ST_OK) {
        st = doc_expect_object(item, err);
    }
    if (st == ST_OK) {
        st = pool_config_read_name(reader, &name, &reader->spec->name, err);
    }
    if (st != ST_OK) {
        return st;
    }
    st = read_match(reader, &match, err);
    return st == ST_OK ? ST_OK : pool_config_error_add_pool(reader, err);
}

enum status pool_config_read_pools(struct pool_config_file *file, const struct doc_node *node,
                                   struct error *err) {
    struct doc_node list = doc_get(node, "pools"), item = {0};
    size_t n = doc_is_present(&list) ? doc_count(&list) : 0;
    if (list.val && n == 0) {
        return doc_error(&list, err, "expected a list of pools, got none");
    }
    file->items = arena_calloc(file->arena, n + 1, sizeof(*file->items));
    if (!file->items) {
        return error_set(err, ST_NO_MEMORY, "%s: no memory for the pools", file->name);
    }
    if (!list.val) {
        return begin_pool(file, err);
    }
    enum status st = ST_OK;
    while (st == ST_OK && doc_next(&list, &item)) {
        st = read_item(file, &item, err);
    }
    return st == ST_OK ? sort_names(file, err) : st;
}

enum status pool_config_check_pools(const struct pool_config_file *file,
                                    const struct pool_specs *specs, struct error *err) {
    struct pool_match_conflict clash = {.first = 0};
    struct error why;
    enum status st = pool_specs_check(specs, &clash, &why);
    if (st != ST_BAD_CONFIG) {
        return st == ST_OK ? st : pool_config_no_memory(&file->items[0], err);
    }
    const struct pool_config_reader *first = &file->items[clash.first],
                                    *again = &file->items[clash.second];
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

enum status pool_config_error_add_pool(const struct pool_config_reader *reader, struct error *err) {
    struct error said = *err;
    if (reader->line == 0 || said.status != ST_BAD_CONFIG) {
        return said.status;
    }
    return error_set(err, said.status, "%s (in the pool \"%.*s\")", said.text,
                     STR_ARG(reader->spec->name));
}
