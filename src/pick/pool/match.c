/* The index is one sorted list of rules, one for each authority of each pool, and nested ranges of
 * it: the rules of an authority, within them those of a path, within them those that read the same
 * header and metadata.
 *
 * The longest prefix of a path is found by binary search: it is the last prefix that does not sort
 * after the path, or one of its ancestors (match_node.parent). */
#include "pick/pool/match.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/checked.h"

enum { NO_CONDITION = POOL_MATCH_MAX_NAMES };

/* The conditions of a pool, for one of its authorities. */
struct match_rule {
    struct str authority, path;
    unsigned header, metadata; /* indices into the names of pool_index; or NO_CONDITION */
    struct str header_value, metadata_value;
    size_t pool;
};

/* Each range ends where the next one begins. */
struct match_authority {
    struct str text;
    size_t node;
};

struct match_node {
    struct str path;
    size_t parent; /* the longest of the authority's paths that is a prefix of it; SIZE_MAX: none */
    size_t shape;
};

/* Rules that read the same header and metadata. */
struct match_shape {
    unsigned header, metadata;
    size_t rule;
};

/* ---- copies ---------------------------------------------------------------------------------- */

static bool dup_text(struct arena *arena, struct str *text) {
    if (text->ptr) {
        *text = arena_dup(arena, *text);
        return text->ptr != NULL;
    }
    return true;
}

bool pool_match_dup(const struct pool_match *match, struct arena *arena, struct pool_match *out) {
    struct str *authorities = arena_calloc(arena, match->n_authorities + 1, sizeof(*authorities));
    bool room = authorities != NULL;
    *out = *match;
    for (size_t i = 0; room && i < match->n_authorities; i++) {
        authorities[i] = match->authorities[i];
        room = dup_text(arena, &authorities[i]);
    }
    out->authorities = authorities;
    return room && dup_text(arena, &out->path) && dup_text(arena, &out->header) &&
           dup_text(arena, &out->header_value) && dup_text(arena, &out->space) &&
           dup_text(arena, &out->key) && dup_text(arena, &out->metadata_value);
}

/* ---- print ----------------------------------------------------------------------------------- */

void pool_match_print(const struct pool_match *match, struct buf *out) {
    const char *between = "";
    for (size_t i = 0; i < match->n_authorities; i++) {
        struct str text = match->authorities[i];
        buf_printf(out, "%s%s%.*s", i == 0 ? "authority " : " or ", text.ptr[0] == '.' ? "*" : "",
                   STR_ARG(text));
        between = ", ";
    }
    if (match->path.len > 0) {
        buf_printf(out, "%spath %.*s", between, STR_ARG(match->path));
        between = ", ";
    }
    if (match->header.ptr) {
        buf_printf(out, "%sheader %.*s = %.*s", between, STR_ARG(match->header),
                   STR_ARG(match->header_value));
        between = ", ";
    }
    if (match->key.ptr) {
        buf_printf(out, "%smetadata %.*s/%.*s = %.*s", between, STR_ARG(match->space),
                   STR_ARG(match->key), STR_ARG(match->metadata_value));
        between = ", ";
    }
    buf_printf(out, "%s", between[0] ? "" : "all other requests");
}

/* ---- order ----------------------------------------------------------------------------------- */

static int compare_numbers(size_t a, size_t b) {
    return a < b ? -1 : a > b;
}

/* More conditions come first. */
static unsigned rank_of(unsigned header, unsigned metadata) {
    return (header == NO_CONDITION ? 2U : 0U) + (metadata == NO_CONDITION ? 1U : 0U);
}

static int compare_shape(const struct match_rule *a, const struct match_rule *b) {
    int order = compare_numbers(rank_of(a->header, a->metadata), rank_of(b->header, b->metadata));
    order = order ? order : compare_numbers(a->header, b->header);
    return order ? order : compare_numbers(a->metadata, b->metadata);
}

static int compare_values(const struct match_rule *a, const struct match_rule *b) {
    int order = str_compare(a->header_value, b->header_value);
    return order ? order : str_compare(a->metadata_value, b->metadata_value);
}

static int compare_rules(const void *a, const void *b) {
    const struct match_rule *left = a, *right = b;
    int order = str_compare(left->authority, right->authority);
    order = order ? order : str_compare(left->path, right->path);
    order = order ? order : compare_shape(left, right);
    order = order ? order : compare_values(left, right);
    return order ? order : compare_numbers(left->pool, right->pool);
}

/* ---- building the index ---------------------------------------------------------------------- */

/* Returns: the name's index; NO_CONDITION: the array is full. */
static unsigned note_name(struct pool_match_names *names, struct str space, struct str name) {
    unsigned i = 0;
    while (i < names->n &&
           !(str_eq(names->items[i].name, name) && str_eq(names->items[i].space, space))) {
        i++;
    }
    if (i == names->n && names->n < POOL_MATCH_MAX_NAMES) {
        names->items[names->n++] = (struct pool_match_name){space, name};
    }
    return i < names->n ? i : NO_CONDITION;
}

static enum status too_many_names(const char *what, size_t pool,
                                  struct pool_match_conflict *conflict, struct error *err) {
    *conflict = (struct pool_match_conflict){.first = pool, .second = pool};
    return error_set(err, ST_BAD_CONFIG, "expected at most %d different %s in all matches of pools",
                     POOL_MATCH_MAX_NAMES, what);
}

/* Appends the rules of one pool. */
static enum status add_rules(struct pool_index *index, const struct pool_match *match, size_t pool,
                             struct pool_match_conflict *conflict, struct error *err) {
    struct match_rule rule = {.path = match->path,
                              .header = NO_CONDITION,
                              .metadata = NO_CONDITION,
                              .header_value = match->header_value,
                              .metadata_value = match->metadata_value,
                              .pool = pool};
    if (match->header.ptr) {
        rule.header = note_name(&index->headers, str_make(NULL, 0), match->header);
    }
    if (match->key.ptr) {
        rule.metadata = note_name(&index->metadata, match->space, match->key);
    }
    if ((match->header.ptr && rule.header == NO_CONDITION) ||
        (match->key.ptr && rule.metadata == NO_CONDITION)) {
        return too_many_names(match->key.ptr && rule.metadata == NO_CONDITION ? "keys of metadata"
                                                                              : "headers",
                              pool, conflict, err);
    }
    for (size_t i = 0; i < match->n_authorities; i++) {
        rule.authority = match->authorities[i];
        index->rules[index->n_rules++] = rule;
    }
    if (match->n_authorities == 0) {
        index->rules[index->n_rules++] = rule;
    }
    bool is_rest =
        match->n_authorities == 0 && match->path.len == 0 && !match->header.ptr && !match->key.ptr;
    if (is_rest && !index->has_catch_all) {
        index->has_catch_all = true;
        index->catch_all = pool;
    }
    return ST_OK;
}

static enum status list_rules(struct pool_index *index, const struct pool_match *const *matches,
                              size_t n, struct arena *arena, struct pool_match_conflict *conflict,
                              struct error *err) {
    size_t n_rules = n;
    for (size_t i = 0; i < n; i++) {
        if (!checked_add(n_rules, matches[i]->n_authorities, &n_rules)) {
            return error_no_memory(err, "the index of pools");
        }
    }
    index->rules = arena_calloc(arena, n_rules + 1, sizeof(*index->rules));
    if (!index->rules) {
        return error_no_memory(err, "the index of pools");
    }
    enum status st = ST_OK;
    for (size_t i = 0; i < n && st == ST_OK; i++) {
        st = add_rules(index, matches[i], i, conflict, err);
    }
    if (st == ST_OK && index->n_rules > 0) {
        qsort(index->rules, index->n_rules, sizeof(*index->rules), compare_rules);
    }
    return st;
}

static enum status check_apart(const struct pool_index *index, struct pool_match_conflict *conflict,
                               struct error *err) {
    for (size_t i = 1; i < index->n_rules; i++) {
        const struct match_rule *before = &index->rules[i - 1], *rule = &index->rules[i];
        if (str_eq(before->authority, rule->authority) && str_eq(before->path, rule->path) &&
            compare_shape(before, rule) == 0 && compare_values(before, rule) == 0) {
            *conflict = (struct pool_match_conflict){before->pool, rule->pool, rule->authority};
            return error_set(err, ST_BAD_CONFIG, "two pools take the same requests");
        }
    }
    return ST_OK;
}

static bool starts_with(struct str text, struct str prefix) {
    return text.len >= prefix.len &&
           (prefix.len == 0 || memcmp(text.ptr, prefix.ptr, prefix.len) == 0);
}

/* `nodes` from `first` up to this one, excluded, are sorted. */
static size_t parent_of(const struct match_node *nodes, size_t first, size_t node) {
    size_t parent = node > first ? node - 1 : SIZE_MAX;
    while (parent != SIZE_MAX && !starts_with(nodes[node].path, nodes[parent].path)) {
        parent = nodes[parent].parent;
    }
    return parent;
}

/* Builds the ranges, with a final one of each kind that marks the end. */
static void index_rules(struct pool_index *index) {
    size_t n_nodes = 0, n_shapes = 0;
    for (size_t i = 0; i < index->n_rules; i++) {
        const struct match_rule *rule = &index->rules[i];
        bool fresh = i == 0 || !str_eq(rule[-1].authority, rule->authority);
        if (fresh) {
            index->has_suffixes |= rule->authority.len > 0 && rule->authority.ptr[0] == '.';
            index->authorities[index->n_authorities++] =
                (struct match_authority){rule->authority, n_nodes};
        }
        fresh = fresh || !str_eq(rule[-1].path, rule->path);
        if (fresh) {
            index->nodes[n_nodes] = (struct match_node){.path = rule->path, .shape = n_shapes};
            index->nodes[n_nodes].parent =
                parent_of(index->nodes, index->authorities[index->n_authorities - 1].node, n_nodes);
            n_nodes++;
        }
        if (fresh || compare_shape(&rule[-1], rule) != 0) {
            index->shapes[n_shapes++] = (struct match_shape){rule->header, rule->metadata, i};
        }
    }
    index->authorities[index->n_authorities].node = n_nodes;
    index->nodes[n_nodes].shape = n_shapes;
    index->shapes[n_shapes].rule = index->n_rules;
}

enum status pool_index_build(const struct pool_match *const *matches, size_t n, struct arena *arena,
                             struct pool_index *out, struct pool_match_conflict *conflict,
                             struct error *err) {
    *out = (struct pool_index){.n_rules = 0};
    enum status st = list_rules(out, matches, n, arena, conflict, err);
    if (st == ST_OK) {
        st = check_apart(out, conflict, err);
    }
    if (st != ST_OK) {
        return st;
    }
    size_t most = out->n_rules + 1;
    out->authorities = arena_calloc(arena, most, sizeof(*out->authorities));
    out->nodes = arena_calloc(arena, most, sizeof(*out->nodes));
    out->shapes = arena_calloc(arena, most, sizeof(*out->shapes));
    if (!out->authorities || !out->nodes || !out->shapes) {
        return error_no_memory(err, "the index of pools");
    }
    index_rules(out);
    out->is_single_catch_all = n == 1 && out->has_catch_all;
    return ST_OK;
}

/* ---- finding --------------------------------------------------------------------------------- */

/* The input, with its path without the query. */
struct search {
    const struct pool_index *index;
    const struct pool_match_input *input;
    struct str path;
};

/* Returns: the pool of a rule of this shape that matches; SIZE_MAX: none. */
static size_t find_in_shape(const struct search *search, const struct match_shape *shape) {
    const struct pool_match_input *input = search->input;
    struct match_rule wanted = {.header = shape->header, .metadata = shape->metadata};
    size_t low = shape[0].rule, high = shape[1].rule;
    if (shape->header != NO_CONDITION) {
        wanted.header_value = input->headers[shape->header];
    }
    if (shape->metadata != NO_CONDITION) {
        wanted.metadata_value = input->metadata[shape->metadata];
    }
    if ((shape->header != NO_CONDITION && !wanted.header_value.ptr) ||
        (shape->metadata != NO_CONDITION && !wanted.metadata_value.ptr)) {
        return SIZE_MAX;
    }
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare_values(&search->index->rules[middle], &wanted) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    const struct match_rule *rule = &search->index->rules[low];
    return low < shape[1].rule && compare_values(rule, &wanted) == 0 ? rule->pool : SIZE_MAX;
}

/* Shapes are sorted by rank; among equal ranks the first pool counts. */
static size_t find_in_node(const struct search *search, const struct match_node *node) {
    size_t found = SIZE_MAX;
    unsigned rank = 0;
    for (size_t i = node[0].shape; i < node[1].shape; i++) {
        const struct match_shape *shape = &search->index->shapes[i];
        if (found != SIZE_MAX && rank_of(shape->header, shape->metadata) > rank) {
            break;
        }
        size_t pool = find_in_shape(search, shape);
        if (pool < found) {
            found = pool;
            rank = rank_of(shape->header, shape->metadata);
        }
    }
    return found;
}

/* Clause: Gateway API, HTTPPathMatch, PathPrefix: "/a" is a prefix of "/a/b", not of "/ab". */
static bool is_path_prefix(struct str path, struct str prefix) {
    return starts_with(path, prefix) &&
           (prefix.len == 0 || path.len == prefix.len || path.ptr[prefix.len] == '/');
}

static size_t find_in_authority(const struct search *search,
                                const struct match_authority *authority) {
    const struct match_node *nodes = search->index->nodes;
    size_t low = authority[0].node, high = authority[1].node;
    while (low < high) { /* the first that sorts after the path */
        size_t middle = low + (high - low) / 2;
        if (str_compare(nodes[middle].path, search->path) <= 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    size_t node = low > authority[0].node ? low - 1 : SIZE_MAX, found = SIZE_MAX;
    while (node != SIZE_MAX && found == SIZE_MAX) {
        if (is_path_prefix(search->path, nodes[node].path)) {
            found = find_in_node(search, &nodes[node]);
        }
        node = nodes[node].parent;
    }
    return found;
}

static size_t find_text(const struct search *search, struct str text) {
    const struct pool_index *index = search->index;
    size_t low = 0, high = index->n_authorities;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (str_compare(index->authorities[middle].text, text) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    bool found = low < index->n_authorities && str_eq(index->authorities[low].text, text);
    return found ? find_in_authority(search, &index->authorities[low]) : SIZE_MAX;
}

/* Without the port and without the trailing dot. */
static struct str host_of(struct str authority) {
    const char *colon = memrchr(authority.ptr, ':', authority.len);
    size_t n = colon ? (size_t)(colon - authority.ptr) : authority.len;
    if (colon && memchr(colon, ']', authority.len - n)) {
        n = authority.len; /* the colon is within an IPv6 address */
    }
    return str_make(authority.ptr, n > 0 && authority.ptr[n - 1] == '.' ? n - 1 : n);
}

/* The authority with its port, then without it, then the suffixes, the longest first. */
static size_t find_by_authority(const struct search *search) {
    char text[POOL_MATCH_MAX_AUTHORITY_BYTES];
    struct str authority = search->input->authority;
    if (authority.len == 0 || authority.len > sizeof(text) || authority.ptr[0] == '.') {
        return SIZE_MAX; /* empty, or too long for a DNS name */
    }
    for (size_t i = 0; i < authority.len; i++) {
        char c = authority.ptr[i];
        text[i] = (char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
    }
    authority.ptr = text;
    struct str host = host_of(authority);
    size_t found = find_text(search, authority);
    if (found == SIZE_MAX && host.len < authority.len && host.len > 0) {
        found = find_text(search, host);
    }
    for (size_t i = 1; search->index->has_suffixes && found == SIZE_MAX && i < host.len; i++) {
        if (host.ptr[i] == '.') {
            found = find_text(search, str_make(host.ptr + i, host.len - i));
        }
    }
    return found;
}

size_t pool_index_find(const struct pool_index *index, const struct pool_match_input *input) {
    struct search search = {index, input, input->path};
    for (size_t i = 0; i < search.path.len; i++) {
        if (search.path.ptr[i] == '?' || search.path.ptr[i] == '#') {
            search.path.len = i;
        }
    }
    size_t found = index->n_authorities > 0 ? find_by_authority(&search) : SIZE_MAX;
    return found != SIZE_MAX ? found : find_text(&search, STR(""));
}
