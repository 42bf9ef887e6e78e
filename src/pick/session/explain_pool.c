/* The rules of pick/pool/match.h in words. Without a list of pools nothing is said of them. */
#include "pick/session/explain_pool.h"

enum { LABEL_COLUMNS = 12, MOST_NAMED = 20 };

static void print_label(struct buf *out) {
    buf_printf(out, "%-*s", LABEL_COLUMNS, "pool");
}

/* ---- by its name ----------------------------------------------------------------------------- */

static enum status print_unknown_pool(const struct pool_list *list, struct str name,
                                      struct buf *out, struct error *err) {
    print_label(out);
    if (!list->is_list) {
        buf_printf(out, "there is one, which has no name\n");
        return error_set(err, ST_NO_POOL, "there is one pool, which has no name");
    }
    buf_printf(out, "there is none called \"%.*s\"", STR_ARG(name));
    for (size_t i = 0; i < list->n && i < MOST_NAMED; i++) {
        buf_printf(out, "%s%.*s", i > 0 ? ", " : "; there are ", STR_ARG(list->entries[i].name));
    }
    buf_printf(out, "%s\n", list->n > MOST_NAMED ? " and others" : "");
    return error_set(err, ST_NO_POOL, "there is no pool called \"%.*s\"", STR_ARG(name));
}

/* ---- by what the request says ---------------------------------------------------------------- */

/* "name: value" */
static void read_header(const struct pool_index *index, struct str text,
                        struct pool_match_input *out) {
    struct str value = text, name = str_trim(str_cut(&value, ':'));
    for (size_t i = 0; i < index->headers.n; i++) {
        if (value.ptr && str_eq_nocase(index->headers.items[i].name, name)) {
            out->headers[i] = str_trim(value);
        }
    }
}

/* "namespace/key=value" */
static void read_metadata(const struct pool_index *index, struct str text,
                          struct pool_match_input *out) {
    struct str value = text, key = str_cut(&value, '='), space = str_cut(&key, '/');
    for (size_t i = 0; i < index->metadata.n; i++) {
        const struct pool_match_name *wanted = &index->metadata.items[i];
        if (value.ptr && str_eq(wanted->space, space) && str_eq(wanted->name, key)) {
            out->metadata[i] = value;
        }
    }
}

static size_t find_pool(const struct pool_index *index,
                        const struct pick_described_request *described) {
    struct pool_match_input input = {.authority = described->authority, .path = described->path};
    read_header(index, described->header, &input);
    read_metadata(index, described->metadata, &input);
    return index->is_single_catch_all ? index->catch_all : pool_index_find(index, &input);
}

static enum status print_no_pool(const struct pool_list *list, struct buf *out, struct error *err) {
    print_label(out);
    buf_printf(out, "none of the %zu takes this request\n", list->n);
    error_set(err, ST_NO_POOL, "none of the %zu pools takes this request (`match`)", list->n);
    buf_printf(out, "%-*srefused with %d (gRPC: %d) %s: %s\n", LABEL_COLUMNS, "outcome",
               status_http(err->status), status_grpc(err->status), status_name(err->status),
               err->text);
    return err->status;
}

static void print_match(const struct pool_entry *entry, bool by_name, struct buf *out) {
    print_label(out);
    buf_printf(out, "%.*s, %s", STR_ARG(entry->name), by_name ? "as asked for; it takes " : "for ");
    pool_match_print(&entry->match, out);
    buf_add_char(out, '\n');
}

/* Returns: NULL: `*st` says why. */
static const struct pool_entry *choose_pool(const struct pool_list *list,
                                            const struct pick_described_request *described,
                                            struct buf *out, enum status *st, struct error *err) {
    bool by_name = described->pool.len > 0;
    const struct pool_entry *entry = by_name ? pool_list_find(list, described->pool) : NULL;
    if (by_name && !entry) {
        *st = print_unknown_pool(list, described->pool, out, err);
        return NULL;
    }
    size_t found = by_name ? 0 : find_pool(&list->index, described);
    if (found == SIZE_MAX) {
        *st = print_no_pool(list, out, err);
        return NULL;
    }
    entry = by_name ? entry : &list->entries[found];
    if (list->is_list) {
        print_match(entry, by_name, out);
    }
    return entry;
}

enum status pick_explain_pools(struct pool_set_reader *pools,
                               const struct pick_described_request *described, struct buf *out,
                               struct error *err) {
    enum status st = ST_OK;
    const struct pool_list *list = pool_set_reader_refresh(pools);
    const struct pool_entry *entry = choose_pool(list, described, out, &st, err);
    if (!entry) {
        return out->failed ? error_set(err, ST_NO_MEMORY, "no memory for the explanation") : st;
    }
    struct pool_reader *reader = pool_set_reader_get(pools, entry);
    return reader ? pick_explain(reader, described, out, err)
                  : error_set(err, ST_NO_MEMORY, "no memory for the explanation");
}
