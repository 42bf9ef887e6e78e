/* Does a model batch, how far, and why? A configuration decides where it says anything about it.
 * Without one, requests may only be joined where the model itself says that the first dimension of
 * all its tensors is one and the same thing: dynamic, and by one name. Guessing from a bare -1
 * would join what does not belong together. */
#include <inttypes.h>

#include "core/base/log.h"
#include "serve/config/resolve_config.h"

static void set_max_batch_size(struct model_config *config, uint64_t max_batch_size,
                               struct str reason) {
    config->has_max_batch_size = true;
    config->max_batch_size = max_batch_size;
    config->batch_reason = reason.ptr;
}

static bool is_configured(const struct model_config_tensor *tensors, size_t n, const char *name) {
    for (size_t i = 0; i < n; i++) {
        if (str_is(tensors[i].name, name)) {
            return true;
        }
    }
    return n == 0; /* nothing listed: all are taken over */
}

/* ---- as configured --------------------------------------------------------------------------- */

/* Does the first dimension of every tensor that is served take any size? An output without
 * dimensions passes: the model may not know its shape. */
static enum status check_batch_dimension(const struct model_config *config,
                                         const sluice_model_info *info, bool is_input,
                                         struct error *err) {
    const sluice_tensor_info *infos = is_input ? info->inputs : info->outputs;
    size_t n = is_input ? info->n_inputs : info->n_outputs;
    const struct model_config_tensor *listed = is_input ? config->inputs : config->outputs;
    size_t n_listed = is_input ? config->n_inputs : config->n_outputs;
    for (size_t i = 0; i < n; i++) {
        bool takes_any = infos[i].rank > 0 ? infos[i].dims[0] == -1 : !is_input;
        if (takes_any || !is_configured(listed, n_listed, infos[i].name)) {
            continue;
        }
        char text[SHAPE_TEXT_BYTES];
        return error_set(err, ST_BAD_MODEL,
                         "max_batch_size is %" PRIu64
                         " in config.pbtxt, but %s \"%s\" of the model "
                         "has the shape %s, whose first dimension is not dynamic; set "
                         "max_batch_size: 0 and give whole shapes",
                         config->max_batch_size, is_input ? "input" : "output", infos[i].name,
                         shape_print((struct shape){infos[i].dims, infos[i].rank}, text));
    }
    return ST_OK;
}

static enum status check_configured_batching(struct arena *arena, struct model_config *config,
                                             const sluice_model_info *info, struct error *err) {
    enum status st = ST_OK;
    if (config->max_batch_size > 0 && !info->takes_any) {
        st = check_batch_dimension(config, info, true, err);
        if (st == ST_OK) {
            st = check_batch_dimension(config, info, false, err);
        }
    }
    if (st != ST_OK) {
        return st;
    }
    set_max_batch_size(config, config->max_batch_size,
                       arena_printf(arena, "max_batch_size is %" PRIu64 " in config.pbtxt",
                                    config->max_batch_size));
    return ST_OK;
}

/* ---- as the model says ----------------------------------------------------------------------- */

struct batch_symbol {
    const char *symbol;      /* of the tensors looked at so far; NULL: none */
    const char *kind, *name; /* whose it is */
};

/* Returns: why the model cannot batch because of this tensor; ptr NULL: it can. */
static struct str batch_obstacle(struct arena *arena, const char *kind,
                                 const sluice_tensor_info *info,
                                 struct batch_symbol *batch_symbol) {
    if (info->rank == 0) {
        return arena_printf(arena, "%s \"%s\" has no dimensions", kind, info->name);
    }
    if (info->dims[0] != -1) {
        return arena_printf(arena, "the first dimension of %s \"%s\" is fixed at %lld", kind,
                            info->name, (long long)info->dims[0]);
    }
    const char *symbol = info->symbols && info->symbols[0] ? info->symbols[0] : "";
    if (symbol[0] == '\0') {
        return arena_printf(arena, "the first dimension of %s \"%s\" is dynamic but has no name",
                            kind, info->name);
    }
    if (batch_symbol->symbol && strcmp(batch_symbol->symbol, symbol) != 0) {
        return arena_printf(arena,
                            "the first dimension of %s \"%s\" is named \"%s\", that of %s \"%s\" "
                            "is named \"%s\"",
                            batch_symbol->kind, batch_symbol->name, batch_symbol->symbol, kind,
                            info->name, symbol);
    }
    *batch_symbol = (struct batch_symbol){symbol, kind, info->name};
    return str_make(NULL, 0);
}

static void derive_batching(struct arena *arena, struct model_config *config,
                            const sluice_model_info *info, uint64_t default_max_batch_size) {
    struct batch_symbol batch_symbol = {0};
    struct str reason = {NULL, 0};
    for (size_t i = 0; i < info->n_inputs && !reason.ptr; i++) {
        reason = batch_obstacle(arena, "input", &info->inputs[i], &batch_symbol);
    }
    for (size_t i = 0; i < info->n_outputs && !reason.ptr; i++) {
        reason = batch_obstacle(arena, "output", &info->outputs[i], &batch_symbol);
    }
    if (reason.ptr) {
        set_max_batch_size(config, 0, reason);
    } else if (info->n_inputs == 0) {
        set_max_batch_size(config, 0, STR("the model has no inputs"));
    } else if (default_max_batch_size == 0) {
        set_max_batch_size(config, 0, STR("--default-max-batch-size is 0"));
    } else {
        set_max_batch_size(
            config, default_max_batch_size,
            arena_printf(
                arena,
                "the first dimension of every input and output is dynamic and named \"%s\"; "
                "%" PRIu64 " is --default-max-batch-size",
                batch_symbol.symbol, default_max_batch_size));
    }
}

/* ---- both ------------------------------------------------------------------------------------ */

static bool any_dims(const struct model_config_tensor *tensors, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (tensors[i].has_dims) {
            return true;
        }
    }
    return false;
}

static enum status check_dynamic_batching(const struct model_config *config, struct error *err) {
    if (config->has_dynamic_batching && config->max_batch_size == 0) {
        log_event(LOG_WARNING, "dynamic_batching forms no batches for a model that does not batch",
                  LOG_STR("model", config->name), LOG_CSTR("because", config->batch_reason));
        return ST_OK;
    }
    for (size_t i = 0; i < config->n_preferred; i++) {
        if (config->preferred_batch_sizes[i] > config->max_batch_size) {
            return error_set(err, ST_BAD_MODEL,
                             "preferred_batch_size %" PRIu64 " is above max_batch_size, %" PRIu64,
                             config->preferred_batch_sizes[i], config->max_batch_size);
        }
    }
    return ST_OK;
}

enum status resolve_batching(struct arena *arena, struct model_config *config,
                             const sluice_model_info *info, uint64_t default_max_batch_size,
                             struct error *err) {
    if (config->has_max_batch_size) {
        enum status st = check_configured_batching(arena, config, info, err);
        if (st != ST_OK) {
            return st;
        }
    } else if (info->takes_any || any_dims(config->inputs, config->n_inputs) ||
               any_dims(config->outputs, config->n_outputs)) {
        set_max_batch_size(
            config, 0, STR("config.pbtxt gives dims and no max_batch_size: they are whole shapes"));
    } else {
        derive_batching(arena, config, info, default_max_batch_size);
    }
    if (!config->batch_reason) {
        return error_set(err, ST_NO_MEMORY, "out of memory for the model's configuration");
    }
    return check_dynamic_batching(config, err);
}
