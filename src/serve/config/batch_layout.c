/* Resolves the layout of a model's batches by the indexes of its inputs and outputs. What the
 * configuration cannot mean, or the model does not fit, fails the load: at run time only sizes are
 * left to be checked. */
#include "serve/config/batch_layout.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/base/num.h"
#include "core/tensor/float16.h"
#include "serve/config/resolve_config.h"

/* ---- elements -------------------------------------------------------------------------------- */

/* Numbers are little-endian, as the machine is. */

static bool is_signed(enum datatype datatype) {
    return datatype == DT_INT8 || datatype == DT_INT16 || datatype == DT_INT32 ||
           datatype == DT_INT64;
}

/* Returns: whether the integer datatype has the value. */
static bool integer_fits(enum datatype datatype, int64_t value) {
    size_t bits = datatype_size(datatype) * 8;
    if (datatype == DT_BOOL) {
        return value == 0 || value == 1;
    }
    if (is_signed(datatype)) {
        return bits == 64 ||
               (value >= -(INT64_C(1) << (bits - 1)) && value < INT64_C(1) << (bits - 1));
    }
    return value >= 0 && (bits == 64 || value < INT64_C(1) << bits);
}

/* Returns: false when it overflows. */
static bool float_put(enum datatype datatype, double value, unsigned char out[ELEMENT_MAX_BYTES]) {
    float single = (float)value;
    uint16_t half = datatype == DT_FP16 ? half_from_double(value) : bfloat_from_double(value);
    float rounded = datatype == DT_FP16 ? half_to_float(half) : bfloat_to_float(half);
    switch (datatype_size(datatype)) {
    case sizeof(double):
        memcpy(out, &value, sizeof(value));
        return true;
    case sizeof(float):
        memcpy(out, &single, sizeof(single));
        return isfinite(single);
    default:
        memcpy(out, &half, sizeof(half));
        return isfinite(rounded);
    }
}

bool element_put(enum datatype datatype, int64_t value, unsigned char out[ELEMENT_MAX_BYTES]) {
    if (datatype_is_float(datatype)) {
        return float_put(datatype, (double)value, out);
    }
    memcpy(out, &value, sizeof(value));
    return datatype != DT_BYTES && integer_fits(datatype, value);
}

/* Returns: false when the text is no number of the datatype. */
static bool element_parse(enum datatype datatype, struct str text,
                          unsigned char out[ELEMENT_MAX_BYTES]) {
    double number;
    int64_t whole;
    bool truth;
    if (datatype_is_float(datatype)) {
        return num_parse_f64(text, &number) && float_put(datatype, number, out);
    }
    if (datatype == DT_BOOL && num_parse_bool(text, &truth)) {
        return element_put(datatype, truth, out);
    }
    if (datatype == DT_UINT64) {
        uint64_t wide;
        bool ok = num_parse_u64(text, &wide);
        memcpy(out, &wide, ok ? sizeof(wide) : 0);
        return ok;
    }
    return num_parse_i64(text, &whole) && element_put(datatype, whole, out);
}

/* ---- looking up ------------------------------------------------------------------------------ */

bool batch_layout_is_needed(const struct model_config *config) {
    bool needed = config->n_batch_inputs > 0 || config->n_batch_outputs > 0 ||
                  config->n_paddings > 0 || config->pad_multiple > 0;
    for (size_t i = 0; i < config->n_inputs; i++) {
        needed = needed || config->inputs[i].ragged;
    }
    return needed;
}

bool batch_layout_makes_input(const struct model_config *config, const char *name) {
    for (size_t i = 0; i < config->n_batch_inputs; i++) {
        for (size_t k = 0; k < config->batch_inputs[i].n_targets; k++) {
            if (str_is(config->batch_inputs[i].targets[k], name)) {
                return true;
            }
        }
    }
    return false;
}

const struct model_padding *model_padding_find(const struct model_config *config,
                                               enum model_padding_kind kind, struct str name) {
    for (size_t i = 0; i < config->n_paddings; i++) {
        if (config->paddings[i].kind == kind && str_eq(config->paddings[i].name, name)) {
            return &config->paddings[i];
        }
    }
    return NULL;
}

/* The layout while it is resolved. */
struct resolver {
    struct arena *arena;
    const struct model_config *config;
    const sluice_model_info *info;
    struct tensor_spec *specs;
    struct model_plan *plan;
    struct layout_input *inputs;
    struct layout_output *outputs;
    struct layout_made *made;
    size_t n_made;
    struct error *err;
};

static struct shape model_shape(const struct tensor_spec *spec, const struct plan_tensor *plan) {
    return plan->reshaped ? plan->reshape : spec->shape;
}

/* The free dimensions after the batch dimension. */
static size_t count_free(struct shape shape) {
    size_t n = 0;
    for (size_t i = 1; i < shape.rank; i++) {
        n += shape.dims[i] < 0;
    }
    return n;
}

static enum status fail_unknown(const struct resolver *resolver, const char *kind, struct str name,
                                bool is_output) {
    const struct model_spec *spec = &resolver->plan->spec;
    char quoted[QUOTED_NAME_BYTES];
    struct buf names;
    buf_init(&names, resolver->arena, 0);
    size_t n = is_output ? spec->n_outputs : spec->n_inputs;
    for (size_t i = 0; i < n; i++) {
        struct str known = is_output ? spec->outputs[i].name : spec->inputs[i].name;
        buf_printf(&names, "%s\"%.*s\"", i > 0 ? ", " : "", STR_ARG(known));
    }
    struct str text = buf_str(&names);
    return error_set(resolver->err, ST_BAD_MODEL, "%s %s is no %s that clients %s; those are %.*s",
                     kind, quote_name(name, quoted), is_output ? "output" : "input",
                     is_output ? "get" : "send", STR_ARG(text));
}

/* Finds an input that clients send. *spec: its index in plan->spec.inputs. */
static enum status find_input(const struct resolver *resolver, const char *kind, struct str name,
                              size_t *spec) {
    *spec = tensor_spec_find(resolver->specs, resolver->plan->spec.n_inputs, name);
    return *spec < SIZE_MAX ? ST_OK : fail_unknown(resolver, kind, name, false);
}

static enum status find_source(const struct resolver *resolver, const char *kind, struct str name,
                               uint32_t *index) {
    size_t spec;
    char quoted[QUOTED_NAME_BYTES];
    if (find_input(resolver, kind, name, &spec) != ST_OK) {
        return resolver->err->status;
    }
    if (resolver->specs[spec].optional) {
        return error_set(resolver->err, ST_BAD_MODEL,
                         "%s %s is optional: the shape of an input that a request leaves out is "
                         "not known",
                         kind, quote_name(name, quoted));
    }
    *index = resolver->plan->inputs[spec].index;
    return ST_OK;
}

static enum status find_output(const struct resolver *resolver, const char *kind, struct str name,
                               size_t *spec) {
    const struct model_spec *model = &resolver->plan->spec;
    *spec = tensor_spec_find(model->outputs, model->n_outputs, name);
    return *spec < SIZE_MAX ? ST_OK : fail_unknown(resolver, kind, name, true);
}

/* ---- inputs ---------------------------------------------------------------------------------- */

static enum status resolve_ragged(const struct resolver *resolver, size_t spec) {
    const struct model_config_tensor *tensor = &resolver->config->inputs[spec];
    if (model_padding_find(resolver->config, PADDING_VALUE, tensor->name)) {
        return error_set(resolver->err, ST_BAD_MODEL,
                         "input \"%.*s\" is padded (sluice.pad) and has allow_ragged_batch: one of "
                         "them is possible",
                         STR_ARG(tensor->name));
    }
    resolver->inputs[resolver->plan->inputs[spec].index].kind = INPUT_RAGGED;
    return ST_OK;
}

static enum status resolve_inputs(const struct resolver *resolver) {
    const struct model_plan *plan = resolver->plan;
    enum status st = ST_OK;
    for (size_t i = 0; st == ST_OK && i < plan->spec.n_inputs; i++) {
        uint32_t index = plan->inputs[i].index;
        struct layout_input *input = &resolver->inputs[index];
        input->shape = model_shape(&resolver->specs[i], &plan->inputs[i]);
        input->alone = !resolver->info->takes_any && resolver->info->inputs[index].optional;
        if (resolver->config->inputs[i].ragged) {
            st = resolve_ragged(resolver, i);
        }
    }
    return st;
}

/* ---- padding --------------------------------------------------------------------------------- */

static enum status check_padded(const struct resolver *resolver, size_t spec) {
    const struct tensor_spec *input = &resolver->specs[spec];
    char text[SHAPE_TEXT_BYTES];
    if (resolver->plan->inputs[spec].reshaped) {
        return error_set(resolver->err, ST_BAD_MODEL, "a padded input cannot have a reshape");
    }
    if (input->datatype == DT_BYTES) {
        return error_set(resolver->err, ST_BAD_MODEL, "inputs of TYPE_STRING cannot be padded");
    }
    if (count_free(input->shape) == 0) {
        return error_set(resolver->err, ST_BAD_MODEL,
                         "the input's shape %s has no free dimension (-1) after the batch "
                         "dimension",
                         shape_print(input->shape, text));
    }
    return ST_OK;
}

static enum status resolve_value(const struct resolver *resolver,
                                 const struct model_padding *padding) {
    size_t spec;
    enum status st = find_input(resolver, "input", padding->name, &spec);
    if (st == ST_OK) {
        st = check_padded(resolver, spec);
    }
    if (st != ST_OK) {
        return st;
    }
    struct layout_input *input = &resolver->inputs[resolver->plan->inputs[spec].index];
    enum datatype datatype = resolver->specs[spec].datatype;
    input->kind = INPUT_PADDED;
    if (!element_parse(datatype, padding->value, input->pad)) {
        return error_set(resolver->err, ST_BAD_MODEL, "\"%.*s\" is no number of %s",
                         STR_ARG(padding->value), datatype_config_name(datatype));
    }
    return ST_OK;
}

/* The source of a mask, a length, or an output that is cut. */
static enum status find_padded(const struct resolver *resolver, struct str name, uint32_t *index) {
    enum status st = find_source(resolver, "input", name, index);
    if (st == ST_OK && resolver->inputs[*index].kind != INPUT_PADDED) {
        return error_set(resolver->err, ST_BAD_MODEL,
                         "input \"%.*s\" is not padded: it needs the parameter sluice.pad.%.*s",
                         STR_ARG(name), STR_ARG(name));
    }
    return st;
}

/* A length needs an element for each free dimension of the source. */
static enum status check_length(const struct resolver *resolver, struct shape shape,
                                enum datatype datatype, size_t n_free) {
    uint64_t n = 0;
    struct shape row = {shape.dims + 1, shape.rank - 1};
    if (!shape_elements(row, &n) || n != n_free) {
        char text[SHAPE_TEXT_BYTES];
        return error_set(resolver->err, ST_BAD_MODEL,
                         "the lengths are %zu %s for each row, the input has the shape %s", n_free,
                         n_free == 1 ? "number" : "numbers", shape_print(shape, text));
    }
    if (datatype == DT_BOOL || datatype == DT_BYTES) {
        return error_set(resolver->err, ST_BAD_MODEL, "%s cannot be a length",
                         datatype_config_name(datatype));
    }
    return ST_OK;
}

/* A mask has a dimension for each that is free in the source. */
static enum status check_mask(const struct resolver *resolver, size_t spec, size_t n_free) {
    struct shape shape = resolver->specs[spec].shape;
    char text[SHAPE_TEXT_BYTES];
    if (count_free(shape) != n_free) {
        return error_set(resolver->err, ST_BAD_MODEL,
                         "a mask of %zu free %s is needed, the input has the shape %s", n_free,
                         n_free == 1 ? "dimension" : "dimensions", shape_print(shape, text));
    }
    return check_padded(resolver, spec);
}

/* A mask or a length: an input that the server fills where a request leaves it out. */
static enum status resolve_fill(const struct resolver *resolver,
                                const struct model_padding *padding) {
    size_t spec;
    uint32_t source = 0;
    enum status st = find_input(resolver, "input", padding->name, &spec);
    if (st == ST_OK) {
        st = find_padded(resolver, padding->value, &source);
    }
    if (st != ST_OK) {
        return st;
    }
    struct layout_input *input = &resolver->inputs[resolver->plan->inputs[spec].index];
    size_t n_free = count_free(resolver->inputs[source].shape);
    if (input->fill != FILL_NOTHING || input == &resolver->inputs[source]) {
        return error_set(resolver->err, ST_BAD_MODEL,
                         "the input cannot be made: it is its own source, or is made in another "
                         "way");
    }
    if (padding->kind == PADDING_MASK) {
        st = check_mask(resolver, spec, n_free);
        input->kind = INPUT_PADDED; /* with 0, or what sluice.pad says */
        input->fill = FILL_MASK;
    } else {
        st = check_length(resolver, input->shape, resolver->specs[spec].datatype, n_free);
        input->fill = FILL_LENGTH;
    }
    input->source = source;
    return st;
}

static enum status resolve_cut(const struct resolver *resolver,
                               const struct model_padding *padding) {
    size_t spec;
    struct layout_output *output;
    enum status st = find_output(resolver, "output", padding->name, &spec);
    if (st != ST_OK) {
        return st;
    }
    output = &resolver->outputs[resolver->plan->outputs[spec].index];
    st = find_padded(resolver, padding->value, &output->source);
    if (st != ST_OK) {
        return st;
    }
    output->kind = OUTPUT_CUT;
    output->shape = resolver->plan->spec.outputs[spec].shape;
    size_t n_source = count_free(resolver->inputs[output->source].shape);
    size_t n_output = count_free(output->shape);
    if (resolver->plan->outputs[spec].reshaped ||
        resolver->plan->spec.outputs[spec].datatype == DT_BYTES) {
        return error_set(resolver->err, ST_BAD_MODEL,
                         "an output of TYPE_STRING, or with a reshape, cannot be cut");
    }
    if (n_output == 0 || (n_source > 1 && n_output != n_source)) {
        char text[SHAPE_TEXT_BYTES];
        return error_set(resolver->err, ST_BAD_MODEL,
                         "the output's shape %s has %zu free %s after the batch dimension, the "
                         "input \"%.*s\" %zu",
                         shape_print(output->shape, text), n_output,
                         n_output == 1 ? "dimension" : "dimensions", STR_ARG(padding->value),
                         n_source);
    }
    return ST_OK;
}

static enum status resolve_padding(const struct resolver *resolver,
                                   const struct model_padding *padding) {
    enum status st = ST_OK;
    switch (padding->kind) {
    case PADDING_VALUE:
        st = resolve_value(resolver, padding);
        break;
    case PADDING_MASK:
    case PADDING_LENGTH:
        st = resolve_fill(resolver, padding);
        break;
    case PADDING_CUT:
        st = resolve_cut(resolver, padding);
        break;
    }
    return st == ST_OK ? ST_OK
                       : error_prefix(resolver->err, "parameter \"%.*s\"", STR_ARG(padding->param));
}

/* In the order of their kinds: the others refer to padded inputs. Inputs that can be filled become
 * optional at last, so that none of them is a source. */
static enum status resolve_paddings(const struct resolver *resolver) {
    const struct model_config *config = resolver->config;
    for (int kind = PADDING_VALUE; kind <= PADDING_CUT; kind++) {
        for (size_t i = 0; i < config->n_paddings; i++) {
            if ((int)config->paddings[i].kind == kind &&
                resolve_padding(resolver, &config->paddings[i]) != ST_OK) {
                return resolver->err->status;
            }
        }
    }
    for (size_t i = 0; i < resolver->plan->spec.n_inputs; i++) {
        bool filled = resolver->inputs[resolver->plan->inputs[i].index].fill != FILL_NOTHING;
        resolver->specs[i].optional = resolver->specs[i].optional || filled;
        config->inputs[i].optional = resolver->specs[i].optional;
    }
    if (config->pad_multiple > 0 && config->n_paddings == 0) {
        return error_set(resolver->err, ST_BAD_MODEL,
                         "the parameter sluice.pad_multiple needs a padded input "
                         "(sluice.pad.INPUT)");
    }
    return ST_OK;
}

/* ---- batch_input ----------------------------------------------------------------------------- */

static size_t made_rank(enum model_batch_input_kind kind) {
    return kind == BATCH_ITEM_SHAPE ? 2 : 1;
}

static enum status check_made(const struct resolver *resolver, const struct layout_made *made,
                              const sluice_tensor_info *info) {
    size_t rank = made_rank(made->kind);
    int64_t n_dims = (int64_t)resolver->inputs[made->source].shape.rank - 1;
    bool fits = info->rank == rank && info->dims[0] == -1 &&
                (rank == 1 || info->dims[1] == -1 || info->dims[1] == n_dims);
    if ((enum datatype)info->datatype != made->datatype) {
        return error_set(resolver->err, ST_BAD_MODEL,
                         "its data_type is %s, the model's input has %s",
                         datatype_config_name(made->datatype),
                         datatype_config_name((enum datatype)info->datatype));
    }
    if (!fits) {
        char text[SHAPE_TEXT_BYTES];
        return error_set(resolver->err, ST_BAD_MODEL,
                         "the server makes it with the shape %s, the model has %s",
                         rank == 2 ? "[-1,-1]" : "[-1]",
                         shape_print((struct shape){info->dims, info->rank}, text));
    }
    return ST_OK;
}

/* Returns: the index of the model's input; n_inputs: there is none. */
static size_t find_info(const sluice_model_info *info, struct str name) {
    size_t i = 0;
    while (i < info->n_inputs && !str_is(name, info->inputs[i].name)) {
        i++;
    }
    return i;
}

/* Finds the input of the model. */
static enum status find_target(const struct resolver *resolver, struct layout_made *made) {
    const sluice_model_info *info = resolver->info;
    if (info->takes_any) { /* they are numbered after the configured and the control inputs */
        made->index = (uint32_t)(resolver->plan->spec.n_inputs + resolver->plan->n_controls +
                                 resolver->n_made);
        return ST_OK;
    }
    size_t i = find_info(info, str_of(made->name)); /* batch_layout_check has found it */
    made->index = (uint32_t)i;
    return check_made(resolver, made, &info->inputs[i]);
}

static bool name_is_taken(const struct resolver *resolver, struct str name) {
    const struct model_plan *plan = resolver->plan;
    bool taken = tensor_spec_find(resolver->specs, plan->spec.n_inputs, name) < SIZE_MAX;
    for (size_t i = 0; i < plan->n_controls; i++) {
        taken = taken || str_eq(plan->controls[i].control->name, name);
    }
    for (size_t i = 0; i < resolver->n_made; i++) {
        taken = taken || str_is(name, resolver->made[i].name);
    }
    return taken;
}

static enum status add_made(struct resolver *resolver, struct layout_made made, struct str name) {
    made.name = name.ptr;
    if (name_is_taken(resolver, name)) {
        return error_set(resolver->err, ST_BAD_MODEL,
                         "the name is taken: clients send that input, or the server makes it "
                         "otherwise");
    }
    if (find_target(resolver, &made) != ST_OK) {
        return resolver->err->status;
    }
    size_t at = resolver->n_made++;
    for (; at > 0 && resolver->made[at - 1].index > made.index; at--) {
        resolver->made[at] = resolver->made[at - 1];
    }
    resolver->made[at] = made;
    return ST_OK;
}

static enum status resolve_batch_input(struct resolver *resolver,
                                       const struct model_batch_input *batch_input) {
    struct layout_made made = {.kind = batch_input->kind, .datatype = batch_input->datatype};
    enum status st = find_source(resolver, "source_input", batch_input->source, &made.source);
    for (size_t i = 0; st == ST_OK && i < batch_input->n_targets; i++) {
        st = add_made(resolver, made, batch_input->targets[i]);
        if (st != ST_OK) {
            error_prefix(resolver->err, "target_name \"%.*s\"", STR_ARG(batch_input->targets[i]));
        }
    }
    return st == ST_OK ? ST_OK : error_prefix(resolver->err, "%.*s", STR_ARG(batch_input->place));
}

/* ---- batch_output ---------------------------------------------------------------------------- */

/* A free dimension of the output takes the size of the same dimension of the source. */
static enum status check_scattered(const struct resolver *resolver, size_t spec,
                                   const struct layout_output *output) {
    struct shape source = resolver->inputs[output->source].shape;
    bool fits = true;
    for (size_t i = 0; i < output->shape.rank; i++) {
        fits = fits && (output->shape.dims[i] >= 0 || i < source.rank);
    }
    if (!fits) {
        char text[SHAPE_TEXT_BYTES], source_text[SHAPE_TEXT_BYTES];
        return error_set(resolver->err, ST_BAD_MODEL,
                         "its shape %s has a free dimension that the source's shape %s lacks",
                         shape_print(output->shape, text), shape_print(source, source_text));
    }
    if (resolver->plan->outputs[spec].reshaped) {
        return error_set(resolver->err, ST_BAD_MODEL, "it cannot have a reshape");
    }
    return ST_OK;
}

static enum status add_scattered(const struct resolver *resolver, struct str name,
                                 uint32_t source) {
    size_t spec;
    if (find_output(resolver, "target_name", name, &spec) != ST_OK) {
        return resolver->err->status;
    }
    struct layout_output *output = &resolver->outputs[resolver->plan->outputs[spec].index];
    enum output_layout before = output->kind;
    output->kind = OUTPUT_SCATTERED;
    output->shape = resolver->plan->spec.outputs[spec].shape;
    output->source = source;
    enum status st = before == OUTPUT_ROWS
                         ? check_scattered(resolver, spec, output)
                         : error_set(resolver->err, ST_BAD_MODEL, "it is divided twice");
    return st == ST_OK ? ST_OK : error_prefix(resolver->err, "target_name \"%.*s\"", STR_ARG(name));
}

static enum status resolve_batch_output(const struct resolver *resolver,
                                        const struct model_batch_output *batch_output) {
    uint32_t source = 0;
    enum status st = find_source(resolver, "source_input", batch_output->source, &source);
    for (size_t i = 0; st == ST_OK && i < batch_output->n_targets; i++) {
        st = add_scattered(resolver, batch_output->targets[i], source);
    }
    return st == ST_OK ? ST_OK : error_prefix(resolver->err, "%.*s", STR_ARG(batch_output->place));
}

/* ---- layout ---------------------------------------------------------------------------------- */

/* Names the first setting that needs a layout. */
static struct str needing_setting(struct arena *arena, const struct model_config *config) {
    for (size_t i = 0; i < config->n_inputs; i++) {
        if (config->inputs[i].ragged) {
            return arena_printf(arena, "allow_ragged_batch of input \"%.*s\"",
                                STR_ARG(config->inputs[i].name));
        }
    }
    if (config->n_batch_inputs > 0) {
        return arena_printf(arena, "%.*s", STR_ARG(config->batch_inputs[0].place));
    }
    if (config->n_batch_outputs > 0) {
        return arena_printf(arena, "%.*s", STR_ARG(config->batch_outputs[0].place));
    }
    return config->n_paddings > 0
               ? arena_printf(arena, "parameter \"%.*s\"", STR_ARG(config->paddings[0].param))
               : STR("parameter \"sluice.pad_multiple\"");
}

static enum status check_targets(const struct model_config *config, const sluice_model_info *info,
                                 struct error *err) {
    for (size_t i = 0; i < config->n_batch_inputs; i++) {
        const struct model_batch_input *batch_input = &config->batch_inputs[i];
        for (size_t k = 0; k < batch_input->n_targets; k++) {
            if (find_info(info, batch_input->targets[k]) == info->n_inputs) {
                return error_set(err, ST_BAD_MODEL,
                                 "%.*s: target_name \"%.*s\": the model has no input "
                                 "of that name",
                                 STR_ARG(batch_input->place), STR_ARG(batch_input->targets[k]));
            }
        }
    }
    return ST_OK;
}

enum status batch_layout_check(struct arena *arena, const struct model_config *config,
                               const sluice_model_info *info, struct error *err) {
    if (!batch_layout_is_needed(config)) {
        return ST_OK;
    }
    struct str setting = needing_setting(arena, config);
    if (config->max_batch_size == 0) {
        return error_set(err, ST_BAD_MODEL,
                         "%.*s needs a model that batches (max_batch_size of at least 1): %s",
                         STR_ARG(setting), config->batch_reason);
    }
    if (config->decoupled) {
        return error_set(err, ST_BAD_MODEL,
                         "%.*s needs a model with one response for each request, not a decoupled "
                         "one",
                         STR_ARG(setting));
    }
    if (config->sequences.n_states > 0 || config->sequences.iterative) {
        return error_set(err, ST_BAD_MODEL,
                         "%.*s is not supported together with state or iterative_sequence of "
                         "sequence_batching",
                         STR_ARG(setting));
    }
    return info->takes_any ? ST_OK : check_targets(config, info, err);
}

static bool resolver_allocate(struct resolver *resolver, size_t n_inputs, size_t n_outputs) {
    const struct model_config *config = resolver->config;
    size_t n_made = 0;
    for (size_t i = 0; i < config->n_batch_inputs; i++) {
        n_made += config->batch_inputs[i].n_targets;
    }
    resolver->inputs = arena_calloc(resolver->arena, n_inputs + n_made, sizeof(*resolver->inputs));
    resolver->outputs = arena_calloc(resolver->arena, n_outputs, sizeof(*resolver->outputs));
    resolver->made = arena_calloc(resolver->arena, n_made, sizeof(*resolver->made));
    return resolver->inputs && resolver->outputs && resolver->made;
}

/* An input that a request may leave out has no shape for others then. */
static enum status check_sources(const struct resolver *resolver) {
    const struct model_plan *plan = resolver->plan;
    bool filled = false;
    for (size_t i = 0; i < plan->spec.n_inputs; i++) {
        const struct layout_input *input = &resolver->inputs[plan->inputs[i].index];
        filled = filled || (input->fill != FILL_NOTHING &&
                            resolver->inputs[input->source].fill != FILL_NOTHING);
    }
    for (size_t i = 0; i < plan->spec.n_outputs; i++) {
        const struct layout_output *output = &resolver->outputs[plan->outputs[i].index];
        filled = filled || (output->kind != OUTPUT_ROWS &&
                            resolver->inputs[output->source].fill != FILL_NOTHING);
    }
    for (size_t i = 0; i < resolver->n_made; i++) {
        filled = filled || resolver->inputs[resolver->made[i].source].fill != FILL_NOTHING;
    }
    return filled ? error_set(resolver->err, ST_BAD_MODEL,
                              "an input of sluice.pad_mask or sluice.pad_length cannot be the "
                              "source of another one")
                  : ST_OK;
}

static enum status resolve_parts(struct resolver *resolver) {
    const struct model_config *config = resolver->config;
    const struct model_plan *plan = resolver->plan;
    for (size_t i = 0; i < plan->spec.n_outputs; i++) {
        resolver->outputs[plan->outputs[i].index].name = plan->spec.outputs[i].name.ptr;
    }
    enum status st = resolve_inputs(resolver);
    for (size_t i = 0; st == ST_OK && i < config->n_batch_inputs; i++) {
        st = resolve_batch_input(resolver, &config->batch_inputs[i]);
    }
    for (size_t i = 0; st == ST_OK && i < config->n_batch_outputs; i++) {
        st = resolve_batch_output(resolver, &config->batch_outputs[i]);
    }
    if (st == ST_OK) {
        st = resolve_paddings(resolver);
    }
    return st == ST_OK ? check_sources(resolver) : st;
}

enum status batch_layout_resolve(struct arena *arena, const struct model_config *config,
                                 const sluice_model_info *info, struct tensor_spec *specs,
                                 struct model_plan *plan, struct error *err) {
    struct resolver resolver = {
        .arena = arena, .config = config, .info = info, .specs = specs, .plan = plan, .err = err};
    size_t n_inputs = info->takes_any ? plan->spec.n_inputs + plan->n_controls : info->n_inputs;
    size_t n_outputs = info->takes_any ? plan->spec.n_outputs : info->n_outputs;
    struct batch_layout *layout = arena_calloc(arena, 1, sizeof(*layout));
    if (!layout || !resolver_allocate(&resolver, n_inputs, n_outputs)) {
        return error_no_memory(err, "the model's configuration");
    }
    if (resolve_parts(&resolver) != ST_OK) {
        return err->status;
    }
    *layout =
        (struct batch_layout){.inputs = resolver.inputs,
                              .n_inputs = info->takes_any ? n_inputs + resolver.n_made : n_inputs,
                              .made = resolver.made,
                              .n_made = resolver.n_made,
                              .outputs = resolver.outputs,
                              .n_outputs = n_outputs,
                              .pad_multiple = config->pad_multiple > 0 ? config->pad_multiple : 1};
    plan->layout = layout;
    return ST_OK;
}
