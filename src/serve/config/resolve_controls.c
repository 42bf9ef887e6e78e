/* The inputs that the server fills are found among the model's. Each has one element a row. */
#include <string.h>

#include "serve/config/resolve_config.h"

bool config_is_control_input(const struct model_config *config, const char *name) {
    for (size_t i = 0; i < config->sequences.n_controls; i++) {
        if (str_is(config->sequences.controls[i].name, name)) {
            return true;
        }
    }
    return false;
}

static enum status check_control_tensor(const struct model_config *config,
                                        const struct model_control *control,
                                        const sluice_tensor_info *info, struct error *err) {
    size_t rank = config->max_batch_size > 0 ? 2 : 1;
    bool fits = info->rank == rank;
    for (size_t i = 0; i < info->rank && fits; i++) {
        bool is_batch = i + 1 < rank;
        fits = info->dims[i] == -1 || (info->dims[i] == 1 && !is_batch);
    }
    if ((enum datatype)info->datatype != control->datatype) {
        return error_set(err, ST_BAD_MODEL, "config.pbtxt fills it with %s, the model has %s",
                         datatype_config_name(control->datatype),
                         datatype_config_name((enum datatype)info->datatype));
    }
    if (!fits) {
        char text[SHAPE_TEXT_BYTES];
        return error_set(err, ST_BAD_MODEL,
                         "the server fills it with the shape %s, the model has %s",
                         rank == 2 ? "[-1,1]" : "[1]",
                         shape_print((struct shape){info->dims, info->rank}, text));
    }
    return ST_OK;
}

static enum status find_control_tensor(const struct model_config *config,
                                       const sluice_model_info *info,
                                       const struct model_control *control, uint32_t *index,
                                       struct error *err) {
    for (size_t i = 0; i < info->n_inputs; i++) {
        if (str_is(control->name, info->inputs[i].name)) {
            *index = (uint32_t)i;
            return check_control_tensor(config, control, &info->inputs[i], err);
        }
    }
    return error_set(err, ST_BAD_MODEL, "the model has no input of that name");
}

/* Those of a model that takes any come behind the others. */
static enum status locate_control(const struct model_config *config, const sluice_model_info *info,
                                  size_t i, struct plan_control *out, struct error *err) {
    out->control = &config->sequences.controls[i];
    if (info->takes_any) {
        out->index = (uint32_t)(config->n_inputs + i);
        return ST_OK;
    }
    enum status st = find_control_tensor(config, info, out->control, &out->index, err);
    return st == ST_OK ? ST_OK
                       : error_prefix(err, "control_input \"%.*s\"", STR_ARG(out->control->name));
}

enum status resolve_controls(struct arena *arena, const struct model_config *config,
                             const sluice_model_info *info, struct model_plan *plan,
                             struct error *err) {
    size_t n = config->sequences.n_controls;
    struct plan_control *controls = arena_calloc(arena, n, sizeof(*controls));
    if (!controls) {
        return error_set(err, ST_NO_MEMORY, "out of memory for the model's configuration");
    }
    for (size_t i = 0; i < n; i++) {
        struct plan_control control = {0};
        enum status st = locate_control(config, info, i, &control, err);
        if (st != ST_OK) {
            return st;
        }
        size_t at = i;
        for (; at > 0 && controls[at - 1].index > control.index; at--) {
            controls[at] = controls[at - 1];
        }
        controls[at] = control;
    }
    plan->controls = controls;
    plan->n_controls = n;
    return ST_OK;
}
