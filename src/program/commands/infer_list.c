/* The models of a server, from the index of the model repository extension and their metadata. */
#include "program/commands/infer_list.h"

#include "codec/json/tree.h"
#include "core/base/suggest.h"
#include "program/options/example.h"

/* Returns: the array in *index, whose elements have name, version, state and reason. */
static enum status read_index(struct client *client, struct arena *arena, yyjson_val **index,
                              struct error *err) {
    struct client_query_args args = {.query = CLIENT_INDEX};
    struct client_request request;
    struct str text;
    struct json_tree tree;
    enum status st = client_query_encode(arena, client_url(client), &args, &request, err);
    if (st == ST_OK) {
        struct http_message message = {request.pieces, request.n_pieces};
        st = client_exchange(client, message, 0, err);
    }
    if (st == ST_OK) {
        st = client_text_decode(arena, client_http(client), &text, err);
    }
    struct json_limits limits = {
        .max_json_size = 1 << 28, .max_json_depth = 32, .max_tensor_elements = 1 << 24};
    if (st == ST_OK) {
        st = json_tree_parse(&tree, "the index", arena, text, &limits, err);
    }
    *index = st == ST_OK ? tree.root : NULL;
    return st;
}

static bool is_ready(yyjson_val *entry) {
    return json_text_is(json_member(entry, "state"), "READY");
}

/* ---- one model ------------------------------------------------------------------------------- */

static void print_tensors(struct buf *out, const char *what, const struct tensor_spec *specs,
                          size_t n) {
    for (size_t i = 0; i < n; i++) {
        char shape[SHAPE_TEXT_BYTES];
        buf_printf(out, "  %-7s ", i == 0 ? what : "");
        buf_add_printable(out, specs[i].name);
        buf_printf(out, "  %s  %s%s\n", datatype_name(specs[i].datatype),
                   shape_print(specs[i].shape, shape), specs[i].optional ? "  optional" : "");
    }
}

void infer_list_print_model(struct buf *out, const char *url, const struct model_spec *model) {
    print_tensors(out, "inputs", model->inputs, model->n_inputs);
    print_tensors(out, "outputs", model->outputs, model->n_outputs);
    buf_add_str(out, STR("  try     "));
    example_command_print(out, url, model);
    buf_add_char(out, '\n');
}

/* ---- the list -------------------------------------------------------------------------------- */

static enum status print_entry(struct client *client, struct arena *arena, const char *url,
                               yyjson_val *entry, struct buf *out, struct error *err) {
    struct str name = json_text(json_member(entry, "name"));
    struct str version = json_text(json_member(entry, "version"));
    struct str reason = json_text(json_member(entry, "reason"));
    struct str state = json_text(json_member(entry, "state"));
    struct model_spec model;
    buf_add_printable(out, name);
    buf_add_str(out, version.len > 0 ? STR("  version ") : STR("  "));
    buf_add_printable(out, version);
    buf_add_str(out, STR("  "));
    buf_add_printable(out, state);
    buf_add_str(out, reason.len > 0 ? STR(": ") : STR(""));
    buf_add_printable(out, reason);
    buf_add_char(out, '\n');
    if (!is_ready(entry)) {
        return ST_OK;
    }
    enum status st = client_model_metadata(client, arena, name, version, &model, err);
    if (st == ST_OK) {
        infer_list_print_model(out, url, &model);
    }
    return st;
}

enum status infer_list_print(struct client *client, struct arena *arena, const char *url,
                             struct buf *out, struct error *err) {
    yyjson_val *index;
    enum status st = read_index(client, arena, &index, err);
    struct json_iter entry = json_elements(index);
    while (st == ST_OK && json_iter_next(&entry)) {
        st = print_entry(client, arena, url, entry.value, out, err);
    }
    if (st == ST_OK && out->len == 0) {
        buf_add_str(out, STR("no models\n"));
    }
    return st;
}

void infer_list_explain(struct client *client, struct arena *arena, struct str name,
                        struct error *err) {
    yyjson_val *index;
    struct error ignored;
    struct suggestion suggestion = {0};
    struct buf names;
    char hint[SUGGEST_HINT_BYTES];
    struct str last = {NULL, 0};
    buf_init(&names, arena, 0);
    if (read_index(client, arena, &index, &ignored) != ST_OK) {
        return;
    }
    struct json_iter entry = json_elements(index);
    while (json_iter_next(&entry)) {
        struct str known = json_text(json_member(entry.value, "name"));
        if (str_eq(known, name)) {
            return;
        }
        if (is_ready(entry.value) && !str_eq(known, last)) { /* sorted by name */
            suggest_consider(&suggestion, name, known);
            buf_printf(&names, "%s%.*s", names.len > 0 ? ", " : "", STR_ARG(known));
            last = known;
        }
    }
    if (!names.failed) {
        struct error before = *err;
        error_set(err, before.status, "%s%s (served: %.*s)", before.text,
                  suggest_hint(&suggestion, hint),
                  names.len == 0 ? 4 : (int)(names.len < 200 ? names.len : 200),
                  names.len == 0 ? "none" : names.data);
    }
}
