/* A tensor that config.pbtxt has stays as it is there: labels, reshape and more belong to it. */
#include "serve/config/config_add.h"

#include <inttypes.h>
#include <string.h>

enum { BATCH_MAX = 2147483647 };

static const struct model_config_tensor *find(const struct model_config_tensor *tensors, size_t n,
                                              const char *name) {
    for (size_t i = 0; i < n; i++) {
        if (str_is(tensors[i].name, name)) {
            return &tensors[i];
        }
    }
    return NULL;
}

static enum status check_same(const struct model_config_tensor *tensor,
                              const sluice_tensor_info *info, const char *kind, struct error *err) {
    char has[SHAPE_TEXT_BYTES], says[SHAPE_TEXT_BYTES];
    struct shape dims = {info->dims, info->rank};
    if (tensor->datatype != DT_INVALID && tensor->datatype != (enum datatype)info->datatype) {
        return error_set(err, ST_BAD_MODEL, "%s \"%s\": config.pbtxt says %s, the model %s", kind,
                         info->name, datatype_config_name(tensor->datatype),
                         datatype_config_name((enum datatype)info->datatype));
    }
    bool same = !tensor->has_dims || tensor->dims.rank == dims.rank;
    for (size_t i = 0; same && tensor->has_dims && i < dims.rank; i++) {
        same = tensor->dims.dims[i] == dims.dims[i];
    }
    return same
               ? ST_OK
               : error_set(err, ST_BAD_MODEL, "%s \"%s\": config.pbtxt says %s, the model %s", kind,
                           info->name, shape_print(tensor->dims, has), shape_print(dims, says));
}

static bool add_tensor(struct arena *arena, const sluice_tensor_info *info,
                       struct model_config_tensor *out) {
    int64_t *dims = arena_calloc(arena, info->rank + 1, sizeof(*dims));
    *out = (struct model_config_tensor){
        .name = arena_dup(arena, str_of(info->name)),
        .datatype = (enum datatype)info->datatype,
        .has_dims = true,
        .dims_origin = STR("dims of the model's auto_complete_config"),
        .optional = info->optional != 0,
    };
    if (!dims || !out->name.ptr) {
        return false;
    }
    for (size_t i = 0; i < info->rank; i++) {
        dims[i] = info->dims[i];
    }
    out->dims = (struct shape){dims, info->rank};
    return true;
}

static enum status add_tensors(struct arena *arena, struct model_config_tensor **tensors, size_t *n,
                               const sluice_tensor_info *infos, size_t n_infos, const char *kind,
                               struct error *err) {
    struct model_config_tensor *all = arena_calloc(arena, *n + n_infos + 1, sizeof(*all));
    size_t n_all = *n;
    if (!all) {
        return error_no_memory(err, "the model's configuration");
    }
    if (*n > 0) {
        memcpy(all, *tensors, *n * sizeof(*all));
    }
    for (size_t i = 0; i < n_infos; i++) {
        const struct model_config_tensor *given = find(*tensors, *n, infos[i].name);
        if (given) {
            enum status st = check_same(given, &infos[i], kind, err);
            if (st != ST_OK) {
                return st;
            }
        } else if (!add_tensor(arena, &infos[i], &all[n_all++])) {
            return error_no_memory(err, "the model's configuration");
        }
    }
    *tensors = all;
    *n = n_all;
    return ST_OK;
}

enum status config_add(struct arena *arena, struct model_config *config,
                       const sluice_model_info *info, struct error *err) {
    if (info->max_batch_size > BATCH_MAX) {
        return error_set(err, ST_BAD_MODEL, "max_batch_size: expected at most %d, got %" PRIu64,
                         BATCH_MAX, info->max_batch_size);
    }
    enum status st = add_tensors(arena, &config->inputs, &config->n_inputs, info->inputs,
                                 info->n_inputs, "input", err);
    if (st == ST_OK) {
        st = add_tensors(arena, &config->outputs, &config->n_outputs, info->outputs,
                         info->n_outputs, "output", err);
    }
    if (st != ST_OK) {
        return st;
    }
    config->has_max_batch_size = true;
    config->max_batch_size = info->max_batch_size;
    config->decoupled = info->decoupled != 0;
    config->has_dynamic_batching =
        config->has_dynamic_batching ||
        (info->dynamic_batching && config->sequences.strategy == SEQUENCES_NONE);
    return ST_OK;
}
