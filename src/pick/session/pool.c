/* Which of several pools a request is for: found out at its headers, and kept to the stream's end,
 * also when that pool has gone meanwhile. Where there is one pool for all nothing is looked at. */
#include "pick/session/state.h"

/* The names that pools ask for are few; the first header of a name counts. */
static void read_headers(const struct pool_index *index, const struct ext_proc_headers *fields,
                         struct pool_match_input *out) {
    struct ext_proc_header_iter walk = ext_proc_header_iter(fields);
    struct ext_proc_header header;
    while (ext_proc_header_next(&walk, &header)) {
        struct str value = header.value.ptr ? header.value : STR("");
        if (!out->authority.ptr && str_is(header.key, ":authority")) {
            out->authority = value;
        } else if (!out->path.ptr && str_is(header.key, ":path")) {
            out->path = value;
        }
        for (size_t i = 0; i < index->headers.n; i++) {
            if (!out->headers[i].ptr && str_eq(index->headers.items[i].name, header.key)) {
                out->headers[i] = value;
            }
        }
    }
}

static void read_metadata(const struct pool_index *index, const struct ext_proc_request *message,
                          struct pool_match_input *out) {
    for (size_t i = 0; i < index->metadata.n; i++) {
        const struct pool_match_name *wanted = &index->metadata.items[i];
        struct ext_proc_value value = ext_proc_metadata_find(message, wanted->space, wanted->name);
        if (value.kind == EXT_PROC_STRING) {
            out->metadata[i] = value.text.ptr ? value.text : STR("");
        }
    }
}

/* `*authority` is what the request says, for people. */
static size_t find_pool(const struct pool_index *index, const struct ext_proc_request *message,
                        struct str *authority) {
    struct pool_match_input input = {.authority = {NULL, 0}};
    read_headers(index, &message->fields, &input);
    read_metadata(index, message, &input);
    *authority = input.authority;
    return pool_index_find(index, &input);
}

static enum status no_pool_error(const struct pool_list *list, struct str authority,
                                 struct error *err) {
    enum { MOST_BYTES = 200 };
    size_t n = authority.len < MOST_BYTES ? authority.len : MOST_BYTES;
    if (list->n == 0) {
        return error_set(err, ST_NO_POOL, "there is no pool yet");
    }
    return error_set(err, ST_NO_POOL,
                     "none of the %zu pools takes this request to \"%.*s\" (`match` in the "
                     "picker's configuration)",
                     list->n, STR_ARG(str_make(authority.ptr, n)));
}

static void use_reader(struct pick_session *session, struct pool_reader *reader) {
    struct pool_reader *old = session->context.reader;
    if (reader == old) {
        return;
    }
    session->context.reader = pool_reader_ref(reader);
    session->context.pool = pool_reader_pool(reader);
    pool_reader_unref(old);
}

void pick_session_init_pool(struct pick_session *session) {
    struct pool_set_reader *pools = session->context.pools;
    if (!pools) {
        pool_reader_ref(session->context.reader);
        return;
    }
    const struct pool_list *list = pool_set_reader_refresh(pools);
    struct pool_reader *reader =
        list->index.is_single_catch_all
            ? pool_set_reader_get(pools, &list->entries[list->index.catch_all])
            : NULL;
    session->context.reader = NULL;
    use_reader(session, reader ? reader : pool_set_reader_get_empty(pools));
}

enum status pick_session_select_pool(struct pick_session *session,
                                     const struct ext_proc_request *message, struct error *err) {
    struct pool_set_reader *pools = session->context.pools;
    struct str authority = {NULL, 0};
    if (!pools) {
        return ST_OK;
    }
    const struct pool_list *list = pool_set_reader_refresh(pools);
    size_t found = list->index.is_single_catch_all ? list->index.catch_all
                                                   : find_pool(&list->index, message, &authority);
    if (found == SIZE_MAX) {
        use_reader(session, pool_set_reader_get_empty(pools));
        return no_pool_error(list, authority, err);
    }
    struct pool_reader *reader = pool_set_reader_get(pools, &list->entries[found]);
    if (!reader) {
        return error_set(err, ST_NO_MEMORY, "no memory for reading a pool");
    }
    use_reader(session, reader);
    return ST_OK;
}
