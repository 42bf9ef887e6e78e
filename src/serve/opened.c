/* Reading what an opened version's configuration names. */
#include "serve/opened.h"

#include "model/config.h"

static enum status no_memory(struct error *err) {
    return error_set(err, ST_NO_MEMORY, "out of memory for what is kept with the model");
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

static enum status read_all_labels(struct arena *arena, const struct model_version *version,
                                   struct opened *opened, struct error *err) {
    const struct model_config *config = model_version_config(version);
    struct labels *labels =
        arena_calloc(arena, model_version_spec(version)->n_outputs, sizeof(*labels));
    enum status st = labels ? ST_OK : no_memory(err);
    opened->labels = labels;
    for (size_t i = 0; st == ST_OK && i < config->n_outputs; i++) {
        st = read_labels(arena, model_version_directory(version), &config->outputs[i], &labels[i],
                         err);
    }
    return st;
}

enum status opened_make(void *cookie, struct model_version *version, struct error *err) {
    struct arena *arena = model_version_arena(version);
    struct opened *opened = arena_calloc(arena, 1, sizeof(*opened));
    (void)cookie;
    if (!opened) {
        return no_memory(err);
    }
    enum status st =
        mip_plan_make(arena, model_version_spec(version), model_version_config(version),
                      model_version_directory(version), &opened->mip, err);
    if (st == ST_OK) {
        st = read_all_labels(arena, version, opened, err);
    }
    model_version_keep(version, opened);
    return st;
}

const struct opened *opened_of(const struct model_version *version) {
    return model_version_kept(version);
}
