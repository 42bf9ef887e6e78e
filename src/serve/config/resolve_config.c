/* Completing a configuration, tensor by tensor. A dimension or datatype that is configured must
 * agree with the model's; what is not configured is taken from the model. A configuration may leave
 * out outputs, and inputs that the model can do without. */
#include "serve/config/resolve_config.h"

#include <assert.h>
#include <inttypes.h>

#include "serve/config/reshape.h"

/* One side of a model, inputs or outputs, on its way. */
struct tensor_side {
    struct arena *arena;
    const char *kind; /* "input" */
    bool is_input;
    bool batches;
    bool takes_any;
    const struct model_config *config; /* whose control inputs are no clients' inputs */
    const sluice_tensor_info *infos;   /* the model's */
    size_t n_infos;
    struct model_config_tensor *tensors; /* the configuration's, completed */
    struct tensor_spec *specs;
    struct plan_tensor *plans;
    size_t n;
    size_t max_rank;
};

static enum status error_no_memory_config(struct error *err) {
    return error_set(err, ST_NO_MEMORY, "out of memory for the model's configuration");
}

static struct shape info_shape(const sluice_tensor_info *info) {
    return (struct shape){info->dims, info->rank};
}

/* `dims` with a -1 in front where the model batches. */
static enum status full_shape(const struct tensor_side *side, struct shape dims, struct shape *out,
                              struct error *err) {
    if (!side->batches) {
        *out = dims;
        return ST_OK;
    }
    if (dims.rank >= SHAPE_MAX_RANK) {
        return error_set(err, ST_BAD_MODEL,
                         "%zu dimensions and the batch dimension are more than %d", dims.rank,
                         SHAPE_MAX_RANK);
    }
    int64_t *full = arena_calloc(side->arena, dims.rank + 1, sizeof(*full));
    if (!full) {
        return error_no_memory_config(err);
    }
    full[0] = -1;
    for (size_t i = 0; i < dims.rank; i++) {
        full[i + 1] = dims.dims[i];
    }
    *out = (struct shape){full, dims.rank + 1};
    return ST_OK;
}

/* ---- against the model ----------------------------------------------------------------------- */

/* Can the model take (give) `seen`, the full shape configured for it? Where the model has a fixed
 * size, the configuration must have the same. An output that the model describes without dimensions
 * may be one whose shape it does not know: whatever is configured is believed. */
static enum status check_shape(const struct tensor_side *side, const sluice_tensor_info *info,
                               struct shape seen, bool reshaped, struct error *err) {
    struct shape own = info_shape(info);
    assert(own.rank == 0 || own.dims); /* model_info_check */
    bool same = own.rank == seen.rank || (own.rank == 0 && !side->is_input);
    for (size_t i = 0; same && i < own.rank; i++) {
        same = own.dims[i] == -1 || own.dims[i] == seen.dims[i];
    }
    if (same) {
        return ST_OK;
    }
    char configured[SHAPE_TEXT_BYTES], model[SHAPE_TEXT_BYTES];
    return error_set(err, ST_BAD_MODEL, "config.pbtxt makes its shape %s%s%s, the model has %s",
                     shape_print(seen, configured),
                     side->batches ? " (the batch dimension and dims)" : "",
                     reshaped ? " by its reshape" : "", shape_print(own, model));
}

static enum status check_datatype(const struct model_config_tensor *tensor,
                                  const sluice_tensor_info *info, struct error *err) {
    if (tensor->datatype == (enum datatype)info->datatype) {
        return ST_OK;
    }
    return error_set(err, ST_BAD_MODEL, "config.pbtxt says %s, the model has %s",
                     datatype_config_name(tensor->datatype),
                     datatype_config_name((enum datatype)info->datatype));
}

/* What the configuration leaves open comes from the model. */
static enum status fill_from_info(const struct tensor_side *side, const sluice_tensor_info *info,
                                  struct model_config_tensor *tensor, struct error *err) {
    if (tensor->datatype == DT_INVALID) {
        tensor->datatype = (enum datatype)info->datatype;
    }
    if (!tensor->has_dims) {
        size_t skip = side->batches ? 1 : 0;
        if (info->rank < skip) {
            return error_set(err, ST_BAD_MODEL,
                             "the model does not say its shape; config.pbtxt must give its dims");
        }
        tensor->dims = (struct shape){info->dims ? info->dims + skip : NULL, info->rank - skip};
        tensor->has_dims = true;
    }
    return ST_OK;
}

static enum status resolve_tensor(struct tensor_side *side, size_t i,
                                  const sluice_tensor_info *info, struct error *err) {
    struct model_config_tensor *tensor = &side->tensors[i];
    struct plan_tensor *plan = &side->plans[i];
    enum status st = info ? fill_from_info(side, info, tensor, err) : ST_OK;
    if (st != ST_OK) {
        return st;
    }
    struct tensor_spec *spec = &side->specs[i];
    *spec = (struct tensor_spec){
        .name = tensor->name, .datatype = tensor->datatype, .optional = tensor->optional};
    st = full_shape(side, tensor->dims, &spec->shape, err);
    struct shape seen = spec->shape;
    if (st == ST_OK && tensor->has_reshape) {
        st = full_shape(side, tensor->reshape, &seen, err);
        plan->reshaped = true;
        plan->reshape = seen;
    }
    if (st == ST_OK && info) {
        st = check_datatype(tensor, info, err);
    }
    if (st == ST_OK && info) {
        st = check_shape(side, info, seen, plan->reshaped, err);
    }
    if (st == ST_OK && info && side->is_input && tensor->optional && !info->optional) {
        st = error_set(err, ST_BAD_MODEL,
                       "config.pbtxt makes it optional, but the model cannot do without it");
    }
    size_t rank = seen.rank > spec->shape.rank ? seen.rank : spec->shape.rank;
    side->max_rank = rank > side->max_rank ? rank : side->max_rank;
    return st;
}

/* ---- one side -------------------------------------------------------------------------------- */

static bool side_allocate(struct tensor_side *side) {
    side->specs = arena_calloc(side->arena, side->n, sizeof(*side->specs));
    side->plans = arena_calloc(side->arena, side->n, sizeof(*side->plans));
    side->tensors = arena_calloc(side->arena, side->n, sizeof(*side->tensors));
    return side->specs && side->plans && side->tensors;
}

static size_t info_find(const struct tensor_side *side, struct str name) {
    for (size_t i = 0; i < side->n_infos; i++) {
        if (str_is(name, side->infos[i].name)) {
            return i;
        }
    }
    return SIZE_MAX;
}

static enum status error_unknown_tensor(const struct tensor_side *side, struct error *err) {
    struct buf names;
    buf_init(&names, side->arena, 0);
    for (size_t i = 0; i < side->n_infos; i++) {
        buf_printf(&names, "%s\"%s\"", i > 0 ? ", " : "", side->infos[i].name);
    }
    struct str text = side->n_infos > 0 ? buf_str(&names) : STR("none");
    return error_set(err, ST_BAD_MODEL, "the model has no %s of that name; it has %.*s", side->kind,
                     STR_ARG(text));
}

static bool is_control(const struct tensor_side *side, const sluice_tensor_info *info) {
    return side->is_input && config_is_control_input(side->config, info->name);
}

static enum status adopt_tensor(struct tensor_side *side, uint32_t index, struct error *err) {
    const sluice_tensor_info *info = &side->infos[index];
    size_t i = side->n++;
    side->tensors[i].name = arena_dup(side->arena, str_of(info->name));
    side->tensors[i].optional = side->is_input && info->optional;
    side->plans[i].index = index;
    enum status st = side->tensors[i].name.ptr ? resolve_tensor(side, i, info, err)
                                               : error_no_memory_config(err);
    return st == ST_OK ? ST_OK : error_prefix(err, "%s \"%s\"", side->kind, info->name);
}

/* Nothing is configured on this side: all of the model's tensors. */
static enum status adopt_all_tensors(struct tensor_side *side, struct error *err) {
    side->n = side->n_infos;
    if (!side_allocate(side)) {
        return error_no_memory_config(err);
    }
    side->n = 0;
    for (size_t i = 0; i < side->n_infos; i++) {
        enum status st =
            is_control(side, &side->infos[i]) ? ST_OK : adopt_tensor(side, (uint32_t)i, err);
        if (st != ST_OK) {
            return st;
        }
    }
    return ST_OK;
}

/* The model needs every input that is neither optional nor configured. */
static enum status check_required_inputs(const struct tensor_side *side, struct error *err) {
    for (size_t i = 0; i < side->n_infos && side->is_input; i++) {
        bool found = side->infos[i].optional || is_control(side, &side->infos[i]);
        for (size_t j = 0; j < side->n && !found; j++) {
            found = side->plans[j].index == i;
        }
        if (!found) {
            return error_set(err, ST_BAD_MODEL,
                             "the model needs input \"%s\", which config.pbtxt does not list",
                             side->infos[i].name);
        }
    }
    return ST_OK;
}

static enum status merge_tensor(struct tensor_side *side, size_t i, struct error *err) {
    const struct model_config_tensor *tensor = &side->tensors[i];
    if (side->takes_any) {
        side->plans[i].index = (uint32_t)i;
        if (tensor->datatype == DT_INVALID || !tensor->has_dims) {
            return error_set(
                err, ST_BAD_MODEL,
                "this backend's models take any tensors, so config.pbtxt must give its "
                "data_type and dims");
        }
        return resolve_tensor(side, i, NULL, err);
    }
    size_t index = info_find(side, tensor->name);
    if (index == SIZE_MAX) {
        return error_unknown_tensor(side, err);
    }
    side->plans[i].index = (uint32_t)index;
    return resolve_tensor(side, i, &side->infos[index], err);
}

static enum status merge_tensors(struct tensor_side *side,
                                 const struct model_config_tensor *tensors, size_t n,
                                 struct error *err) {
    side->n = n;
    if (!side_allocate(side)) {
        return error_no_memory_config(err);
    }
    for (size_t i = 0; i < n; i++) {
        side->tensors[i] = tensors[i];
        enum status st = merge_tensor(side, i, err);
        if (st != ST_OK) {
            return error_prefix(err, "%s \"%.*s\"", side->kind, STR_ARG(tensors[i].name));
        }
    }
    return side->takes_any ? ST_OK : check_required_inputs(side, err);
}

static enum status resolve_side(struct tensor_side *side, const struct model_config_tensor *tensors,
                                size_t n, struct error *err) {
    if (n > 0) {
        return merge_tensors(side, tensors, n, err);
    }
    if (side->takes_any) {
        return error_set(err, ST_BAD_MODEL,
                         "this backend's models take any tensors, so config.pbtxt must list each "
                         "%s",
                         side->kind);
    }
    return adopt_all_tensors(side, err);
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Sorts by the model's own index; inputs are few. */
static const uint32_t *input_order(const struct tensor_side *side) {
    uint32_t *order = arena_calloc(side->arena, side->n, sizeof(*order));
    for (size_t i = 0; order && i < side->n; i++) {
        size_t at = i;
        while (at > 0 && side->plans[order[at - 1]].index > side->plans[i].index) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = (uint32_t)i;
    }
    return order;
}

static enum status plan_init(struct arena *arena, struct model_config *config, uint64_t version,
                             const struct tensor_side *in, const struct tensor_side *out,
                             struct model_plan *plan, struct error *err) {
    *plan = (struct model_plan){
        .spec =
            {
                .name = arena_dup(arena, config->name),
                .version = version,
                .version_text = arena_printf(arena, "%" PRIu64, version),
                .platform = config->platform,
                .max_batch_size = config->max_batch_size,
                .inputs = in->specs,
                .n_inputs = in->n,
                .outputs = out->specs,
                .n_outputs = out->n,
                .decoupled = config->decoupled,
            },
        .inputs = in->plans,
        .outputs = out->plans,
        .input_order = input_order(in),
        .max_output_rank = out->max_rank,
    };
    return plan->spec.name.ptr && plan->spec.version_text.ptr && plan->spec.platform.ptr &&
                   plan->input_order
               ? ST_OK
               : error_no_memory_config(err);
}

enum status resolve_config(struct arena *arena, struct model_config *config,
                           const sluice_model_info *info, uint64_t version,
                           uint64_t default_max_batch_size, struct model_plan *plan,
                           struct error *err) {
    enum status st = resolve_batching(arena, config, info, default_max_batch_size, err);
    if (st != ST_OK) {
        return st;
    }
    struct tensor_side in = {.arena = arena,
                             .kind = "input",
                             .is_input = true,
                             .config = config,
                             .batches = config->max_batch_size > 0,
                             .takes_any = info->takes_any != 0,
                             .infos = info->inputs,
                             .n_infos = info->takes_any ? 0 : info->n_inputs};
    struct tensor_side out = {.arena = arena,
                              .kind = "output",
                              .batches = config->max_batch_size > 0,
                              .takes_any = info->takes_any != 0,
                              .infos = info->outputs,
                              .n_infos = info->takes_any ? 0 : info->n_outputs};
    st = resolve_side(&in, config->inputs, config->n_inputs, err);
    if (st == ST_OK) {
        st = resolve_side(&out, config->outputs, config->n_outputs, err);
    }
    if (st != ST_OK) {
        return st;
    }
    if (config->platform.len == 0) {
        config->platform =
            info->platform ? arena_dup(arena, str_of(info->platform)) : config->backend;
    }
    config->inputs = in.tensors;
    config->n_inputs = in.n;
    config->outputs = out.tensors;
    config->n_outputs = out.n;
    st = plan_init(arena, config, version, &in, &out, plan, err);
    return st == ST_OK ? resolve_controls(arena, config, info, plan, err) : st;
}
