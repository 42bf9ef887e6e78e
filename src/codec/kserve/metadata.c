/* Metadata, health and error bodies. */
#include "codec/kserve/metadata.h"

#include "codec/kserve/encode.h"

void v2_server_metadata_print(struct buf *out, const char *name, const char *version,
                              const char *const *extensions) {
    struct json_writer json = {.out = out};
    json_write_open(&json, JSON_ELEMENT, '{');
    json_write_string(&json, "name", str_of(name));
    json_write_string(&json, "version", str_of(version));
    json_write_open(&json, "extensions", '[');
    for (size_t i = 0; extensions[i]; i++) {
        json_write_string(&json, JSON_ELEMENT, str_of(extensions[i]));
    }
    json_write_close(&json, ']');
    json_write_close(&json, '}');
}

static void print_tensors(struct json_writer *json, const char *name,
                          const struct tensor_spec *specs, size_t n) {
    json_write_open(json, name, '[');
    for (size_t i = 0; i < n; i++) {
        const struct tensor tensor = {
            .name = specs[i].name, .datatype = specs[i].datatype, .shape = specs[i].shape};
        v2_tensor_head_write(json, &tensor);
        json_write_close(json, '}');
    }
    json_write_close(json, ']');
}

void v2_model_metadata_print(struct buf *out, const struct model_spec *model,
                             const uint64_t *versions, size_t n_versions) {
    struct json_writer json = {.out = out};
    json_write_open(&json, JSON_ELEMENT, '{');
    json_write_string(&json, "name", model->name);
    json_write_open(&json, "versions", '[');
    for (size_t i = 0; i < n_versions; i++) {
        json_write_u64_string(&json, JSON_ELEMENT, versions[i]);
    }
    json_write_close(&json, ']');
    json_write_string(&json, "platform", model->platform);
    print_tensors(&json, "inputs", model->inputs, model->n_inputs);
    print_tensors(&json, "outputs", model->outputs, model->n_outputs);
    json_write_close(&json, '}');
}

/* Load balancers poll these two: their texts are constants. */
void v2_live_print(struct buf *out, bool live) {
    buf_add_str(out, live ? STR("{\"live\":true}") : STR("{\"live\":false}"));
}

void v2_ready_print(struct buf *out, bool ready) {
    buf_add_str(out, ready ? STR("{\"live\":true,\"ready\":true}")
                           : STR("{\"live\":false,\"ready\":false}"));
}

void v2_model_ready_print(struct buf *out, struct str name, bool ready) {
    struct json_writer json = {.out = out};
    json_write_open(&json, JSON_ELEMENT, '{');
    json_write_string(&json, "name", name);
    json_write_bool(&json, "ready", ready);
    json_write_close(&json, '}');
}
