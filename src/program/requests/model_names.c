/* Names of a server's models, by the model repository extension. */
#include "program/requests/model_names.h"

#include "core/base/suggest.h"

enum { MAX_INDEX_BYTES = 1 << 28, MAX_NAMES_BYTES = 200 };

static enum status parse_index(struct arena *arena, struct str text, yyjson_val **index,
                               struct error *err) {
    struct json_limits limits = {
        .max_json_size = MAX_INDEX_BYTES, .max_json_depth = 32, .max_tensor_elements = 1 << 24};
    struct json_tree tree;
    enum status st = json_tree_parse(&tree, "the index", arena, text, &limits, err);
    *index = st == ST_OK ? tree.root : NULL;
    return st;
}

enum status model_index_get(struct client *client, struct arena *arena, yyjson_val **index,
                            struct error *err) {
    struct client_query_args args = {.query = CLIENT_INDEX};
    struct client_request request;
    struct str text;
    *index = NULL;
    enum status st = client_query_encode(arena, client_url(client), &args, &request, err);
    if (st == ST_OK) {
        struct http_message message = {request.pieces, request.n_pieces};
        st = client_exchange(client, message, 0, err);
    }
    if (st == ST_OK) {
        st = client_text_decode(arena, client_http(client), &text, err);
    }
    return st == ST_OK ? parse_index(arena, text, index, err) : st;
}

enum status model_index_get_grpc(const struct command_client *client, struct arena *arena,
                                 yyjson_val **index, struct error *err) {
    const struct client_query_args args = {.query = CLIENT_INDEX};
    struct client_grpc_request request;
    struct str message, text;
    sluice_call *call = NULL;
    *index = NULL;
    enum status st = client_grpc_query_encode(arena, &args, &request, err);
    if (st == ST_OK) {
        st = command_call_run(client, &request, &call, &message, err);
    }
    if (st == ST_OK) {
        st = client_grpc_text_decode(arena, CLIENT_INDEX, message, MAX_INDEX_BYTES, &text, err);
    }
    sluice_call_free(call);
    return st == ST_OK ? parse_index(arena, text, index, err) : st;
}

bool model_index_is_ready(yyjson_val *entry) {
    return json_text_is(json_member(entry, "state"), "READY");
}

static void explain(yyjson_val *index, struct arena *arena, struct str name, struct error *err) {
    struct suggestion suggestion = {0};
    struct buf names;
    char hint[SUGGEST_HINT_BYTES];
    struct str last = {NULL, 0};
    buf_init(&names, arena, 0);
    struct json_iter entry = json_elements(index);
    while (json_iter_next(&entry)) {
        struct str known = json_text(json_member(entry.value, "name"));
        if (str_eq(known, name)) {
            return;
        }
        if (model_index_is_ready(entry.value) && !str_eq(known, last)) { /* sorted by name */
            suggest_consider(&suggestion, name, known);
            buf_printf(&names, "%s%.*s", names.len > 0 ? ", " : "", STR_ARG(known));
            last = known;
        }
    }
    struct error before = *err;
    struct str list = names.len == 0 ? STR("none") : buf_str(&names);
    error_set(err, before.status, "%s%s (served: %.*s)", before.text,
              suggest_hint(&suggestion, hint),
              (int)(list.len < MAX_NAMES_BYTES ? list.len : MAX_NAMES_BYTES), list.ptr);
}

void model_names_explain(struct client *client, struct arena *arena, struct str name,
                         struct error *err) {
    yyjson_val *index;
    struct error ignored;
    if (err->status == ST_REFUSED && model_index_get(client, arena, &index, &ignored) == ST_OK) {
        explain(index, arena, name, err);
    }
}

void model_names_explain_grpc(const struct command_client *client, struct arena *arena,
                              struct str name, struct error *err) {
    yyjson_val *index;
    struct error ignored;
    if (err->status == ST_REFUSED &&
        model_index_get_grpc(client, arena, &index, &ignored) == ST_OK) {
        explain(index, arena, name, err);
    }
}
