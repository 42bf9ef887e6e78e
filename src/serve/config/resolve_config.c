/* Completes a configuration from the model, tensor by tensor. A configured dimension or datatype
 * must agree with the model's; what is not configured is taken from the model. A configuration may
 * omit outputs and optional inputs.
 * Without max_batch_size, a model batches only when the first dimension of all its tensors is
 * dynamic and has one name: a -1 without a name may be something else than a batch. */
#include "serve/config/resolve_config.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/base/log.h"
#include "core/base/utf8.h"
#include "serve/config/batch_layout.h"

/* ---- the backend's description --------------------------------------------------------------- */

/* It is checked once per load, so the rest of the server can rely on names, ranks and
 * dimensions. */

static enum status check_tensor(const sluice_tensor_info *infos, size_t i, struct error *err) {
    const sluice_tensor_info *info = &infos[i];
    if (info->rank > SHAPE_MAX_RANK || (info->rank > 0 && !info->dims)) {
        return error_set(err, ST_BACKEND_FAILED, "expected at most %d dimensions, got %zu%s",
                         SHAPE_MAX_RANK, info->rank, info->dims ? "" : " without their sizes");
    }
    for (size_t k = 0; k < info->rank; k++) {
        if (info->dims[k] < -1) {
            return error_set(err, ST_BACKEND_FAILED,
                             "dimension %zu is %lld, expected -1 (any size) or at least 0", k,
                             (long long)info->dims[k]);
        }
    }
    if ((int)info->datatype <= DT_INVALID || (int)info->datatype >= DT_COUNT_) {
        return error_set(err, ST_BACKEND_FAILED, "datatype number %d is unknown",
                         (int)info->datatype);
    }
    for (size_t j = 0; j < i; j++) {
        if (strcmp(infos[j].name, info->name) == 0) {
            return error_set(err, ST_BACKEND_FAILED, "there are two of that name");
        }
    }
    return ST_OK;
}

static enum status check_tensors(const char *kind, const sluice_tensor_info *infos, size_t n,
                                 struct error *err) {
    for (size_t i = 0; i < n; i++) {
        const char *name = infos[i].name;
        size_t len = name ? strlen(name) : 0;
        if (len == 0 || !utf8_is_valid(name, len)) {
            return error_set(err, ST_BACKEND_FAILED, "%s %zu of the model has no proper name", kind,
                             i);
        }
        if (check_tensor(infos, i, err) != ST_OK) {
            return error_prefix(err, "%s \"%s\" of the model", kind, name);
        }
    }
    return ST_OK;
}

enum status model_info_check(const sluice_model_info *info, struct error *err) {
    if (info->takes_any && !info->adds_config) {
        return ST_OK;
    }
    if (check_tensors("input", info->inputs, info->n_inputs, err) != ST_OK ||
        check_tensors("output", info->outputs, info->n_outputs, err) != ST_OK) {
        return err->status;
    }
    return info->n_outputs > 0 || info->adds_config
               ? ST_OK
               : error_set(err, ST_BACKEND_FAILED, "the model has no outputs");
}

/* ---- reshape --------------------------------------------------------------------------------- */

/* Compares the runs of fixed dimensions between variable ones. */

/* The product of the fixed dimensions from *at up to the next -1 or the last dimension; *at then
 * points to it. */
static bool fixed_product(struct shape shape, size_t *at, uint64_t *product) {
    *product = 1;
    while (*at < shape.rank && shape.dims[*at] >= 0) {
        if (!checked_mul_u64(*product, (uint64_t)shape.dims[*at], product)) {
            return false;
        }
        (*at)++;
    }
    return true;
}

bool reshape_is_valid(struct shape from, struct shape to) {
    size_t a = 0, b = 0;
    for (;;) {
        uint64_t left, right;
        if (!fixed_product(from, &a, &left) || !fixed_product(to, &b, &right) || left != right) {
            return false;
        }
        if (a == from.rank || b == to.rank) {
            return a == from.rank && b == to.rank;
        }
        a++; /* skip the -1 of both */
        b++;
    }
}

bool reshape_apply(struct shape from, struct shape to, struct shape actual, int64_t *out) {
    if (!shape_matches(actual, from)) {
        return false;
    }
    size_t at = 0;
    for (size_t i = 0; i < to.rank; i++) {
        out[i] = to.dims[i];
        if (to.dims[i] < 0) {
            while (from.dims[at] >= 0) {
                at++;
            }
            out[i] = actual.dims[at++];
        }
    }
    return true;
}

/* ---- batching -------------------------------------------------------------------------------- */

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
    return n == 0; /* no tensor is configured: the model's own are used */
}

/* ---- batching: as configured ----------------------------------------------------------------- */

/* Returns: ST_OK when the first dimension of every served tensor is dynamic. An output without
 * dimensions passes: the model may not report its shape. */
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
    if (config->max_batch_size > 0 && !info->takes_any &&
        (check_batch_dimension(config, info, true, err) != ST_OK ||
         check_batch_dimension(config, info, false, err) != ST_OK)) {
        return err->status;
    }
    set_max_batch_size(config, config->max_batch_size,
                       arena_printf(arena, "max_batch_size is %" PRIu64 " in config.pbtxt",
                                    config->max_batch_size));
    return ST_OK;
}

/* ---- batching: derived from the model -------------------------------------------------------- */

struct batch_symbol {
    const char *symbol;      /* the name of the first dimension so far; NULL: none */
    const char *kind, *name; /* the tensor that has it */
};

/* Returns: the reason why this tensor prevents batching; ptr NULL: none. */
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

/* ---- batching -------------------------------------------------------------------------------- */

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
        log_event(LOG_WARNING, "dynamic_batching has no effect: the model does not batch",
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

static enum status resolve_batching(struct arena *arena, struct model_config *config,
                                    const sluice_model_info *info, uint64_t default_max_batch_size,
                                    struct error *err) {
    if (config->has_max_batch_size) {
        enum status st = check_configured_batching(arena, config, info, err);
        if (st != ST_OK) {
            return st;
        }
    } else if (info->takes_any || any_dims(config->inputs, config->n_inputs) ||
               any_dims(config->outputs, config->n_outputs) || config->sequences.n_states > 0) {
        set_max_batch_size(
            config, 0, STR("config.pbtxt gives dims and no max_batch_size: they are whole shapes"));
    } else {
        derive_batching(arena, config, info, default_max_batch_size);
    }
    if (!config->batch_reason) {
        return error_no_memory(err, "the model's configuration");
    }
    return check_dynamic_batching(config, err);
}

/* ---- control inputs -------------------------------------------------------------------------- */

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

static enum status resolve_controls(struct arena *arena, const struct model_config *config,
                                    const sluice_model_info *info, struct model_plan *plan,
                                    struct error *err) {
    size_t n = config->sequences.n_controls;
    struct plan_control *controls = arena_calloc(arena, n, sizeof(*controls));
    if (!controls) {
        return error_no_memory(err, "the model's configuration");
    }
    for (size_t i = 0; i < n; i++) {
        struct plan_control control = {.control = &config->sequences.controls[i]};
        if (info->takes_any) { /* they are numbered after the configured inputs */
            control.index = (uint32_t)(config->n_inputs + i);
        } else if (find_control_tensor(config, info, control.control, &control.index, err) !=
                   ST_OK) {
            return error_prefix(err, "control_input \"%.*s\"", STR_ARG(control.control->name));
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

/* The inputs or the outputs of a model while they are resolved. */
struct tensor_side {
    struct arena *arena;
    const char *kind; /* "input" */
    bool is_input;
    bool batches;
    bool takes_any;
    const struct model_config *config; /* inputs that the server fills are hidden from clients */
    const sluice_tensor_info *infos;   /* the model's */
    size_t n_infos;
    struct model_config_tensor *tensors; /* the configuration's, completed */
    struct tensor_spec *specs;
    struct plan_tensor *plans;
    size_t n;
    size_t max_rank;
    struct error *err;
    enum status status; /* ST_OK until the first error, which is kept */
};

static void side_fail(struct tensor_side *side, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void side_fail(struct tensor_side *side, const char *format, ...) {
    va_list args;
    va_start(args, format);
    if (side->status == ST_OK) {
        side->status = error_setv(side->err, ST_BAD_MODEL, format, args);
    }
    va_end(args);
}

static void side_no_memory(struct tensor_side *side) {
    if (side->status == ST_OK) {
        side->status = error_no_memory(side->err, "the model's configuration");
    }
}

static struct shape info_shape(const sluice_tensor_info *info) {
    return (struct shape){info->dims, info->rank};
}

/* Returns: `dims` with a leading -1 where the model batches. */
static struct shape full_shape(struct tensor_side *side, struct shape dims) {
    if (!side->batches) {
        return dims;
    }
    if (dims.rank >= SHAPE_MAX_RANK) {
        side_fail(side, "%zu dimensions and the batch dimension are more than %d", dims.rank,
                  SHAPE_MAX_RANK);
        return (struct shape){NULL, 0};
    }
    int64_t *full = arena_calloc(side->arena, dims.rank + 1, sizeof(*full));
    if (!full) {
        side_no_memory(side);
        return (struct shape){NULL, 0};
    }
    full[0] = -1;
    for (size_t i = 0; i < dims.rank; i++) {
        full[i + 1] = dims.dims[i];
    }
    return (struct shape){full, dims.rank + 1};
}

/* Returns: whether `dims` are those of one element: [1], [1,1], … */
static bool is_one_element(struct shape dims) {
    uint64_t n;
    return dims.rank > 0 && shape_elements(dims, &n) && n == 1;
}

/* As in Triton, `dims: [ 1 ]` describes a tensor without dimensions. `seen`: as in check_shape;
 * set to the model's shape where it is an input. An output without dimensions may have an unknown
 * shape, which the first response shows. */
static void accept_scalar(const struct tensor_side *side, const sluice_tensor_info *info,
                          struct plan_tensor *plan, struct shape *seen) {
    if (side->batches || info->rank > 0 || !is_one_element(*seen)) {
        return;
    }
    if (side->is_input) {
        *seen = info_shape(info);
        plan->reshaped = true;
        plan->reshape = *seen;
    } else {
        plan->may_be_scalar = true;
    }
}

/* ---- tensors: checks against the model ------------------------------------------------------- */

/* `seen` is the full configured shape, after reshape. A dimension that is fixed in the model must
 * be equal. An output that the model describes without dimensions may have an unknown shape: the
 * configured one is used. */
static void check_shape(struct tensor_side *side, const sluice_tensor_info *info, struct shape seen,
                        bool reshaped) {
    struct shape own = info_shape(info);
    assert(own.rank == 0 || own.dims); /* ensured by model_info_check */
    bool same = own.rank == seen.rank || (own.rank == 0 && !side->is_input);
    for (size_t i = 0; same && i < own.rank; i++) {
        same = own.dims[i] == -1 || own.dims[i] == seen.dims[i];
    }
    if (!same) {
        char configured[SHAPE_TEXT_BYTES], model[SHAPE_TEXT_BYTES];
        side_fail(side, "config.pbtxt makes its shape %s%s%s, the model has %s%s",
                  shape_print(seen, configured),
                  side->batches ? " (the batch dimension and dims)" : "",
                  reshaped ? " by its reshape" : "", shape_print(own, model),
                  own.rank == 0 && !side->batches ? ", one element: dims: [ 1 ]" : "");
    }
}

static bool is_scattered(const struct tensor_side *side, struct str name) {
    for (size_t i = 0; !side->is_input && i < side->config->n_batch_outputs; i++) {
        const struct model_batch_output *batch_output = &side->config->batch_outputs[i];
        for (size_t k = 0; k < batch_output->n_targets; k++) {
            if (str_eq(batch_output->targets[k], name)) {
                return true;
            }
        }
    }
    return false;
}

/* The shape of a ragged input and of a scattered output is another one in the model. */
static void check_model_shape(struct tensor_side *side, const struct model_config_tensor *tensor,
                              const sluice_tensor_info *info, struct shape seen, bool reshaped) {
    if (is_scattered(side, tensor->name)) {
        return;
    }
    if (!tensor->ragged) {
        check_shape(side, info, seen, reshaped);
    } else if (info->rank != 1 || info->dims[0] != -1) {
        char text[SHAPE_TEXT_BYTES];
        side_fail(side,
                  "with allow_ragged_batch the model gets the elements of all requests in one "
                  "dimension, the shape [-1]; the model has %s",
                  shape_print(info_shape(info), text));
    }
}

/* Returns: whether the server makes the input where a request leaves it out. */
static bool is_filled(const struct tensor_side *side, struct str name) {
    return model_padding_find(side->config, PADDING_MASK, name) ||
           model_padding_find(side->config, PADDING_LENGTH, name);
}

/* Takes from the model what the configuration omits. */
static void fill_from_info(struct tensor_side *side, const sluice_tensor_info *info,
                           struct model_config_tensor *tensor) {
    if (tensor->datatype == DT_INVALID) {
        tensor->datatype = (enum datatype)info->datatype;
    }
    if (!tensor->has_dims) {
        size_t skip = side->batches ? 1 : 0;
        if (info->rank < skip) {
            side_fail(side, "the model does not say its shape; config.pbtxt must give its dims");
            return;
        }
        tensor->dims = (struct shape){info->dims ? info->dims + skip : NULL, info->rank - skip};
        tensor->has_dims = true;
        tensor->dims_origin = STR("dimensions in the model's file");
    }
}

/* `info` is NULL for a model that takes any tensors. */
static void resolve_tensor(struct tensor_side *side, size_t i, const sluice_tensor_info *info) {
    struct model_config_tensor *tensor = &side->tensors[i];
    struct plan_tensor *plan = &side->plans[i];
    if (info) {
        fill_from_info(side, info, tensor);
    }
    struct tensor_spec *spec = &side->specs[i];
    *spec = (struct tensor_spec){.name = tensor->name,
                                 .datatype = tensor->datatype,
                                 .optional = tensor->optional,
                                 .origin = tensor->dims_origin};
    if (side->batches) {
        spec->origin = arena_printf(side->arena, "max_batch_size %" PRIu64 ", and %.*s",
                                    side->config->max_batch_size, STR_ARG(tensor->dims_origin));
    }
    if (!spec->origin.ptr) {
        side_no_memory(side);
    }
    spec->shape = full_shape(side, tensor->dims);
    struct shape seen = spec->shape;
    if (tensor->has_reshape) {
        seen = full_shape(side, tensor->reshape);
        plan->reshaped = true;
        plan->reshape = seen;
    }
    if (info) {
        if (tensor->datatype != (enum datatype)info->datatype) {
            side_fail(side, "config.pbtxt says %s, the model has %s",
                      datatype_config_name(tensor->datatype),
                      datatype_config_name((enum datatype)info->datatype));
        }
        if (!tensor->has_reshape) {
            accept_scalar(side, info, plan, &seen);
        }
        check_model_shape(side, tensor, info, seen, plan->reshaped);
        if (side->is_input && tensor->optional && !info->optional &&
            !is_filled(side, tensor->name)) {
            side_fail(side, "config.pbtxt makes it optional, but the model cannot do without it");
        }
    }
    size_t rank = seen.rank > spec->shape.rank ? seen.rank : spec->shape.rank;
    side->max_rank = rank > side->max_rank ? rank : side->max_rank;
}

/* ---- tensors: inputs or outputs -------------------------------------------------------------- */

/* Returns: false when out of memory. */
static bool side_allocate(struct tensor_side *side) {
    side->specs = arena_calloc(side->arena, side->n, sizeof(*side->specs));
    side->plans = arena_calloc(side->arena, side->n, sizeof(*side->plans));
    side->tensors = arena_calloc(side->arena, side->n, sizeof(*side->tensors));
    bool allocated = side->specs && side->plans && side->tensors;
    if (!allocated) {
        side_no_memory(side);
    }
    return allocated;
}

static void fail_unknown_tensor(struct tensor_side *side) {
    struct buf names;
    buf_init(&names, side->arena, 0);
    for (size_t i = 0; i < side->n_infos; i++) {
        buf_printf(&names, "%s\"%s\"", i > 0 ? ", " : "", side->infos[i].name);
    }
    struct str text = side->n_infos > 0 ? buf_str(&names) : STR("none");
    side_fail(side, "the model has no %s of that name; it has %.*s", side->kind, STR_ARG(text));
}

/* Returns: whether the tensor is one that clients do not see: a state, or an input that only the
 * server fills. */
static bool is_hidden(const struct tensor_side *side, const sluice_tensor_info *info) {
    const struct model_sequences *sequences = &side->config->sequences;
    for (size_t i = 0; side->is_input && i < sequences->n_controls; i++) {
        if (str_is(sequences->controls[i].name, info->name)) {
            return true;
        }
    }
    for (size_t i = 0; i < sequences->n_states; i++) {
        const struct model_state *state = &sequences->states[i];
        if (str_is(side->is_input ? state->input_name : state->output_name, info->name)) {
            return true;
        }
    }
    return side->is_input && batch_layout_makes_input(side->config, info->name);
}

static void adopt_tensor(struct tensor_side *side, uint32_t index) {
    const sluice_tensor_info *info = &side->infos[index];
    size_t i = side->n++;
    side->tensors[i].name = arena_dup(side->arena, str_of(info->name));
    side->tensors[i].optional = side->is_input && info->optional;
    side->plans[i].index = index;
    if (!side->tensors[i].name.ptr) {
        side_no_memory(side);
    }
    resolve_tensor(side, i, info);
    if (side->status != ST_OK) {
        error_prefix(side->err, "%s \"%s\"", side->kind, info->name);
    }
}

/* No tensor is configured: uses all of the model's. */
static void adopt_all_tensors(struct tensor_side *side) {
    side->n = side->n_infos;
    if (!side_allocate(side)) {
        return;
    }
    side->n = 0;
    for (size_t i = 0; i < side->n_infos && side->status == ST_OK; i++) {
        if (!is_hidden(side, &side->infos[i])) {
            adopt_tensor(side, (uint32_t)i);
        }
    }
}

/* Every input of the model must be configured, be optional, or be filled by the server. */
static void check_required_inputs(struct tensor_side *side) {
    for (size_t i = 0; i < side->n_infos && side->is_input; i++) {
        bool found = side->infos[i].optional || is_hidden(side, &side->infos[i]);
        for (size_t j = 0; j < side->n && !found; j++) {
            found = side->plans[j].index == i;
        }
        if (!found) {
            side_fail(side, "the model needs input \"%s\", which config.pbtxt does not list",
                      side->infos[i].name);
        }
    }
}

static void merge_tensor(struct tensor_side *side, size_t i) {
    const struct model_config_tensor *tensor = &side->tensors[i];
    size_t index = side->takes_any ? i : 0;
    while (!side->takes_any && index < side->n_infos &&
           !str_is(tensor->name, side->infos[index].name)) {
        index++;
    }
    side->plans[i].index = (uint32_t)index;
    if (!side->takes_any && index == side->n_infos) {
        fail_unknown_tensor(side);
    } else if (side->takes_any && (tensor->datatype == DT_INVALID || !tensor->has_dims)) {
        side_fail(side, "this backend's models take any tensors, so config.pbtxt must give its "
                        "data_type and dims");
    } else {
        resolve_tensor(side, i, side->takes_any ? NULL : &side->infos[index]);
    }
    if (side->status != ST_OK) {
        error_prefix(side->err, "%s \"%.*s\"", side->kind, STR_ARG(tensor->name));
    }
}

static void merge_tensors(struct tensor_side *side, const struct model_config_tensor *tensors,
                          size_t n) {
    side->n = n;
    if (!side_allocate(side)) {
        return;
    }
    for (size_t i = 0; i < n && side->status == ST_OK; i++) {
        side->tensors[i] = tensors[i];
        merge_tensor(side, i);
    }
    if (!side->takes_any && side->status == ST_OK) {
        check_required_inputs(side);
    }
}

static enum status resolve_side(struct tensor_side *side, const struct model_config_tensor *tensors,
                                size_t n) {
    if (n > 0) {
        merge_tensors(side, tensors, n);
    } else if (side->takes_any) {
        side_fail(side, "this backend's models take any tensors, so config.pbtxt must list each %s",
                  side->kind);
    } else {
        adopt_all_tensors(side);
    }
    return side->status;
}

/* ---- states ---------------------------------------------------------------------------------- */

/* The shape of a first value where the configuration gives none: 1 for any size. */
static struct shape first_shape_of(struct tensor_side *side, const struct model_state *state,
                                   struct shape seen) {
    int64_t *dims = arena_calloc(side->arena, seen.rank, sizeof(*dims));
    size_t skip = side->batches ? 1 : 0;
    if (!dims) {
        side_no_memory(side);
        return (struct shape){NULL, 0};
    }
    for (size_t i = 0; i < seen.rank; i++) {
        bool given = state->has_initial && i >= skip;
        int64_t size = given ? state->initial_dims.dims[i - skip] : seen.dims[i];
        dims[i] = size < 0 ? 1 : size;
    }
    return (struct shape){dims, seen.rank};
}

/* Finds a state's tensor among the model's and checks it. `number`: of the state, for models that
 * take any tensors: theirs are numbered after the configured ones and the control inputs. Returns:
 * the full shape as the model has it. */
static struct shape resolve_state_tensor(struct tensor_side *side, const struct model_state *state,
                                         size_t number, uint32_t *index) {
    struct str name = side->is_input ? state->input_name : state->output_name;
    struct shape seen = full_shape(side, state->dims);
    struct plan_tensor plan = {.reshaped = false};
    if (side->takes_any) {
        size_t n_controls = side->is_input ? side->config->sequences.n_controls : 0;
        *index = (uint32_t)(side->n + n_controls + number);
        for (size_t i = 0; !side->is_input && i < side->n; i++) {
            *index = str_eq(side->tensors[i].name, name) ? (uint32_t)i : *index;
        }
        return seen;
    }
    size_t at = 0;
    while (at < side->n_infos && !str_is(name, side->infos[at].name)) {
        at++;
    }
    if (at == side->n_infos) {
        fail_unknown_tensor(side);
        return seen;
    }
    const sluice_tensor_info *info = &side->infos[at];
    *index = (uint32_t)at;
    if (state->datatype != (enum datatype)info->datatype) {
        side_fail(side, "config.pbtxt says %s, the model has %s",
                  datatype_config_name(state->datatype),
                  datatype_config_name((enum datatype)info->datatype));
    }
    accept_scalar(side, info, &plan, &seen);
    check_shape(side, info, seen, false);
    return seen;
}

static enum status fail_state(const struct tensor_side *side, const struct model_state *state,
                              struct str name) {
    return error_prefix(side->err, "%.*s: %s_name \"%.*s\"", STR_ARG(state->origin), side->kind,
                        STR_ARG(name));
}

static enum status resolve_states(struct tensor_side *in, struct tensor_side *out,
                                  const struct model_config *config, struct model_plan *plan) {
    size_t n = config->sequences.n_states;
    struct plan_state *states = arena_calloc(in->arena, n, sizeof(*states));
    if (!states) {
        return error_no_memory(in->err, "the model's configuration");
    }
    for (size_t i = 0; i < n; i++) {
        const struct model_state *state = &config->sequences.states[i];
        struct plan_state *item = &states[i];
        struct shape seen = resolve_state_tensor(in, state, i, &item->input);
        item->state = state;
        item->first_shape = first_shape_of(in, state, seen);
        if (in->status != ST_OK) {
            return fail_state(in, state, state->input_name);
        }
        item->spec =
            (struct tensor_spec){.name = state->output_name,
                                 .datatype = state->datatype,
                                 .shape = resolve_state_tensor(out, state, i, &item->output)};
        if (out->status != ST_OK) {
            return fail_state(out, state, state->output_name);
        }
    }
    plan->states = states;
    plan->n_states = n;
    return ST_OK;
}

/* ---- plan ------------------------------------------------------------------------------------ */

/* Insertion sort by the model's index; models have few inputs. */
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
                .is_ensemble = config->ensemble.n_steps > 0,
                .batch_origin = str_of(config->batch_reason),
            },
        .inputs = in->plans,
        .outputs = out->plans,
        .input_order = input_order(in),
        .max_output_rank = out->max_rank,
    };
    return plan->spec.name.ptr && plan->spec.version_text.ptr && plan->spec.platform.ptr &&
                   plan->input_order
               ? ST_OK
               : error_no_memory(err, "the model's configuration");
}

enum status resolve_config(struct arena *arena, struct model_config *config,
                           const sluice_model_info *info, uint64_t version,
                           uint64_t default_max_batch_size, struct model_plan *plan,
                           struct error *err) {
    enum status st = resolve_batching(arena, config, info, default_max_batch_size, err);
    if (st == ST_OK) {
        st = batch_layout_check(arena, config, info, err);
    }
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
                             .n_infos = info->takes_any ? 0 : info->n_inputs,
                             .err = err};
    struct tensor_side out = {.arena = arena,
                              .kind = "output",
                              .config = config,
                              .batches = config->max_batch_size > 0,
                              .takes_any = info->takes_any != 0,
                              .infos = info->outputs,
                              .n_infos = info->takes_any ? 0 : info->n_outputs,
                              .err = err};
    if (resolve_side(&in, config->inputs, config->n_inputs) != ST_OK ||
        resolve_side(&out, config->outputs, config->n_outputs) != ST_OK) {
        return err->status;
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
    if (st == ST_OK) {
        st = resolve_controls(arena, config, info, plan, err);
    }
    if (st == ST_OK) {
        st = resolve_states(&in, &out, config, plan);
    }
    return st == ST_OK && batch_layout_is_needed(config)
               ? batch_layout_resolve(arena, config, info, in.specs, plan, err)
               : st;
}
