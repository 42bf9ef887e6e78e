/* Reading the label files that a version's configuration names. */
#include "serve/frontend/model_labels.h"

#include "serve/config/config.h"

static enum status no_memory(struct error *err) {
    return error_set(err, ST_NO_MEMORY, "out of memory for the model's labels");
}

/* That the file is one of the model's own was seen when the configuration was read. */
static enum status read_labels(struct arena *arena, struct str directory,
                               const struct model_config_tensor *output, struct labels *out,
                               struct error *err) {
    if (output->label_filename.len == 0) {
        return ST_OK;
    }
    struct str path =
        arena_printf(arena, "%.*s/%.*s", STR_ARG(directory), STR_ARG(output->label_filename));
    if (!path.ptr) {
        return no_memory(err);
    }
    enum status st = labels_load(arena, path.ptr, out, err);
    char name[TENSOR_NAME_TEXT_BYTES];
    return st == ST_BAD_CONFIG
               ? error_prefix(err, "labels of output %s", tensor_name_print(output->name, name))
               : st;
}

enum status model_labels_load(struct model_version *version, struct error *err) {
    const struct model_config *config = model_version_config(version);
    struct arena *arena = model_version_arena(version);
    struct labels *labels =
        arena_calloc(arena, model_version_spec(version)->n_outputs, sizeof(*labels));
    enum status st = labels ? ST_OK : no_memory(err);
    for (size_t i = 0; st == ST_OK && i < config->n_outputs; i++) {
        st = read_labels(arena, model_version_directory(version), &config->outputs[i], &labels[i],
                         err);
    }
    model_version_set_user_data(version, MODEL_VERSION_LABELS, labels);
    return st;
}

const struct labels *model_labels(const struct model_version *version) {
    return model_version_user_data(version, MODEL_VERSION_LABELS);
}
