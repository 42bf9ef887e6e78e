/* Which of several pools a request is for: found out at its headers, and kept to the stream's end,
 * also when that pool has gone meanwhile. Where there is one pool for all nothing is looked at. */
#include "pick/session/state.h"

/* The names that pools ask for are few; the first header of a name counts. */
static void read_headers(const struct pool_index *index, const struct ext_proc_headers *fields,
                         struct pool_match_facts *out) {
    struct ext_proc_walk walk = ext_proc_walk(fields);
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
                          struct pool_match_facts *out) {
    for (size_t i = 0; i < index->metadata.n; i++) {
        const struct pool_match_name *wanted = &index->metadata.items[i];
        struct ext_proc_value value = ext_proc_metadata_find(message, wanted->space, wanted->name);
        if (value.kind == EXT_PROC_STRING) {
            out->metadata[i] = value.text.ptr ? value.text : STR("");
        }
    }
}

/* `*authority` is what the request says, for people. */
static size_t find(const struct pool_index *index, const struct ext_proc_request *message,
                   struct str *authority) {
    struct pool_match_facts facts = {.authority = {NULL, 0}};
    read_headers(index, &message->fields, &facts);
    read_metadata(index, message, &facts);
    *authority = facts.authority;
    return pool_index_find(index, &facts);
}

static enum status refuse(const struct pool_list *list, struct str authority, struct error *err) {
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

static void use(struct pick_session *session, struct pool_reader *reader) {
    struct pool_reader *old = session->means.reader;
    if (reader == old) {
        return;
    }
    session->means.reader = pool_reader_ref(reader);
    session->means.pool = pool_reader_pool(reader);
    pool_reader_free(old);
}

void pick_session_begin_pool(struct pick_session *session) {
    struct pool_set_reader *pools = session->means.pools;
    if (!pools) {
        pool_reader_ref(session->means.reader);
        return;
    }
    const struct pool_list *list = pool_set_look(pools);
    struct pool_reader *reader =
        list->index.is_plain ? pool_set_reader_of(pools, &list->entries[list->index.rest]) : NULL;
    session->means.reader = NULL;
    use(session, reader ? reader : pool_set_nobody(pools));
}

enum status pick_session_find_pool(struct pick_session *session,
                                   const struct ext_proc_request *message, struct error *err) {
    struct pool_set_reader *pools = session->means.pools;
    struct str authority = {NULL, 0};
    if (!pools) {
        return ST_OK;
    }
    const struct pool_list *list = pool_set_look(pools);
    size_t found =
        list->index.is_plain ? list->index.rest : find(&list->index, message, &authority);
    if (found == SIZE_MAX) {
        use(session, pool_set_nobody(pools));
        return refuse(list, authority, err);
    }
    struct pool_reader *reader = pool_set_reader_of(pools, &list->entries[found]);
    if (!reader) {
        return error_set(err, ST_NO_MEMORY, "no memory for reading a pool");
    }
    use(session, reader);
    return ST_OK;
}
