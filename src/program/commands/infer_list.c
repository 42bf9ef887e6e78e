/* The models of a server, from the index of the model repository extension and their metadata. */
#include "program/commands/infer.h"

#include "program/options/example.h"
#include "program/requests/file.h"
#include "program/requests/model_names.h"

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

static enum status print_entry(const struct infer_server *server, struct arena *arena,
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
    if (!model_index_is_ready(entry)) {
        return ST_OK;
    }
    enum status st =
        server->http ? client_model_metadata(server->http, arena, name, version, &model, err)
                     : command_client_get_model(server->grpc, arena, name, version, &model, err);
    if (st == ST_OK) {
        infer_list_print_model(out, server->url, &model);
    }
    return st;
}

enum status infer_list_models(const struct infer_server *server, struct arena *arena,
                              struct error *err) {
    yyjson_val *index;
    struct buf out;
    buf_init(&out, arena, 0);
    enum status st = server->http ? model_index_get(server->http, arena, &index, err)
                                  : model_index_get_grpc(server->grpc, arena, &index, err);
    struct json_iter entry = json_elements(index);
    while (st == ST_OK && json_iter_next(&entry)) {
        st = print_entry(server, arena, entry.value, &out, err);
    }
    struct str text = out.len > 0 ? buf_str(&out) : STR("no models\n");
    return st == ST_OK ? file_write("-", &text, 1, err) : st;
}
