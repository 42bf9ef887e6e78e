/* Metadata, health and error bodies. */
#include "codec/kserve/metadata.h"

#include "codec/kserve/json.h"

static void add_text(struct buf *out, const char *text) {
    buf_add(out, text, strlen(text));
}

void v2_error_print(struct buf *out, const struct error *error) {
    add_text(out, "{\"error\":");
    buf_add_json_string(out, str_of(error->text)); /* error_set has made it valid UTF-8 */
    buf_add_char(out, '}');
}

void v2_server_metadata_print(struct buf *out, const char *name, const char *version,
                              const char *const *extensions) {
    add_text(out, "{\"name\":");
    buf_add_json_string(out, str_of(name));
    add_text(out, ",\"version\":");
    buf_add_json_string(out, str_of(version));
    add_text(out, ",\"extensions\":[");
    for (size_t i = 0; extensions[i]; i++) {
        if (i > 0) {
            buf_add_char(out, ',');
        }
        buf_add_json_string(out, str_of(extensions[i]));
    }
    add_text(out, "]}");
}

static void print_tensors(struct buf *out, const struct tensor_spec *specs, size_t n) {
    buf_add_char(out, '[');
    for (size_t i = 0; i < n; i++) {
        const struct tensor tensor = {
            .name = specs[i].name, .datatype = specs[i].datatype, .shape = specs[i].shape};
        v2_json_tensor_head(out, &tensor, i == 0);
        buf_add_char(out, '}');
    }
    buf_add_char(out, ']');
}

void v2_model_metadata_print(struct buf *out, const struct model_spec *model,
                             const uint64_t *versions, size_t n_versions) {
    add_text(out, "{\"name\":");
    buf_add_json_string(out, model->name);
    add_text(out, ",\"versions\":[");
    for (size_t i = 0; i < n_versions; i++) {
        add_text(out, i > 0 ? ",\"" : "\"");
        buf_add_u64(out, versions[i]);
        buf_add_char(out, '"');
    }
    add_text(out, "],\"platform\":");
    buf_add_json_string(out, model->platform);
    add_text(out, ",\"inputs\":");
    print_tensors(out, model->inputs, model->n_inputs);
    add_text(out, ",\"outputs\":");
    print_tensors(out, model->outputs, model->n_outputs);
    buf_add_char(out, '}');
}

void v2_live_print(struct buf *out, bool live) {
    add_text(out, live ? "{\"live\":true}" : "{\"live\":false}");
}

void v2_ready_print(struct buf *out, bool ready) {
    add_text(out, ready ? "{\"live\":true,\"ready\":true}" : "{\"live\":false,\"ready\":false}");
}

void v2_model_ready_print(struct buf *out, struct str name, bool ready) {
    add_text(out, "{\"name\":");
    buf_add_json_string(out, name);
    add_text(out, ready ? ",\"ready\":true}" : ",\"ready\":false}");
}
