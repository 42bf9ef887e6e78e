/* Building the plan: every input and output with its settings, and the text for --check. */
#include "serve/frontend/mip/plan.h"

#include <inttypes.h>

#include "serve/config/config.h"

static struct shape element_dims(struct shape shape, bool batches) {
    return batches ? (struct shape){shape.dims + 1, shape.rank - 1} : shape;
}

/* ---- inputs ---------------------------------------------------------------------------------- */

/* Can an element of that shape be a single value? */
static bool may_be_single(struct shape dims) {
    for (size_t i = 0; i < dims.rank; i++) {
        if (dims.dims[i] != 1 && dims.dims[i] != -1) {
            return false;
        }
    }
    return true;
}

static enum status plan_file(struct mip_input *input, int64_t *dims, struct error *err) {
    if (!may_be_single(input->dims)) {
        char text[SHAPE_TEXT_BYTES];
        return error_set(err, ST_UNSUPPORTED, "its shape %s is not one element of BYTES",
                         shape_print(input->dims, text));
    }
    for (size_t i = 0; i < input->dims.rank; i++) {
        dims[i] = 1;
    }
    input->pictures = MIP_PICTURES_AS_FILE;
    return ST_OK;
}

static enum status plan_decoding(const struct mip_settings *settings, struct mip_input *input,
                                 int64_t *dims, struct error *err) {
    enum status st =
        mip_picture_plan(input->spec->datatype, input->dims, settings, &input->picture, dims, err);
    if (st != ST_OK) {
        return st;
    }
    if (!picture_plan_bytes(&input->picture, &input->picture_bytes)) {
        return error_set(err, ST_UNSUPPORTED, "a picture of that size is too large");
    }
    input->pictures = MIP_PICTURES_DECODED;
    return ST_OK;
}

/* An input that cannot be a picture is an error only when a setting names this input. */
static enum status plan_input(struct arena *arena, const struct mip_settings *settings,
                              struct mip_input *input, struct error *err) {
    bool bytes = input->spec->datatype == DT_BYTES;
    int64_t *dims = arena_calloc(arena, input->dims.rank, sizeof(*dims));
    if (!dims) {
        return error_no_memory(err, "the model's plan for MIP");
    }
    input->picture_dims = (struct shape){dims, input->dims.rank};
    if (!shape_bytes(input->dims, input->spec->datatype, &input->n_bytes)) {
        input->n_bytes = 0;
    }
    enum status st =
        bytes ? plan_file(input, dims, err) : plan_decoding(settings, input, dims, err);
    if (st == ST_OK && bytes && settings->own_key.ptr) {
        st = error_set(err, ST_UNSUPPORTED,
                       "a picture's file is a BYTES input's element as it is, without settings");
    }
    if (st != ST_UNSUPPORTED) {
        return st;
    }
    if (settings->own_key.ptr) {
        err->status = ST_BAD_CONFIG;
        return error_prefix(err, "parameter %.*s", STR_ARG(settings->own_key));
    }
    input->why_refused = arena_dup(arena, str_of(err->text)).ptr;
    return input->why_refused ? ST_OK : error_no_memory(err, "the model's plan for MIP");
}

/* Settings for all inputs must apply to one of them. */
static enum status check_settings_used(const struct mip_plan *plan,
                                       const struct mip_settings *settings, struct error *err) {
    for (size_t i = 0; i < plan->spec->n_inputs; i++) {
        if (!settings[i].given || plan->inputs[i].pictures == MIP_PICTURES_DECODED) {
            return ST_OK;
        }
    }
    if (plan->spec->n_inputs == 0) {
        return ST_OK;
    }
    const struct mip_input *first = &plan->inputs[0];
    char name[QUOTED_NAME_BYTES];
    return error_set(
        err, ST_BAD_CONFIG,
        "its parameters set how pictures are read, but no input can be a picture: input %s: %s",
        quote_name(first->spec->name, name),
        first->why_refused ? first->why_refused : "it takes files as they are");
}

static enum status plan_inputs(struct arena *arena, const struct mip_settings *settings,
                               struct mip_plan *plan, struct error *err) {
    for (size_t i = 0; i < plan->spec->n_inputs; i++) {
        struct mip_input *input = &plan->inputs[i];
        input->spec = &plan->spec->inputs[i];
        input->dims = element_dims(input->spec->shape, plan->batches);
        enum status st = plan_input(arena, &settings[i], input, err);
        if (st != ST_OK) {
            return st;
        }
        if (!input->spec->optional) {
            plan->n_required = i + 1;
        }
    }
    return check_settings_used(plan, settings, err);
}

/* ---- outputs --------------------------------------------------------------------------------- */

/* A labels file that config.pbtxt names must be inside the model's directory; the server's settings
 * may name any file. */
static enum status check_labels_path(const struct mip_settings *settings, struct error *err) {
    struct str rest = settings->labels;
    if (settings->labels_by_server) {
        return ST_OK;
    }
    bool inside = rest.ptr[0] != '/';
    while (inside && rest.ptr) {
        inside = !str_is(str_cut(&rest, '/'), "..");
    }
    if (inside) {
        return ST_OK;
    }
    return error_set(err, ST_BAD_CONFIG,
                     "labels: \"%.*s\" must be a file of the model's own, inside its directory",
                     STR_ARG(settings->labels));
}

/* `config`: that names the file; NULL: the server's settings do. */
static enum status load_output_labels(struct arena *arena, const struct model_config *config,
                                      struct str directory, struct str file,
                                      struct mip_output *output, struct error *err) {
    struct str path = file.ptr[0] == '/'
                          ? arena_dup(arena, file)
                          : arena_printf(arena, "%.*s/%.*s", STR_ARG(directory), STR_ARG(file));
    if (!path.ptr) {
        return error_no_memory(err, "the model's plan for MIP");
    }
    enum status st = labels_load(arena, config, directory, path.ptr, &output->labels, err);
    if (st == ST_OK) {
        st = mip_labels_make_keys(arena, path.ptr, &output->labels, err);
    }
    uint64_t elements;
    if (st == ST_OK && shape_elements(output->dims, &elements) && elements > output->labels.n) {
        st = error_set(err, ST_BAD_CONFIG, "%s has %zu labels, the output has %" PRIu64 " values",
                       path.ptr, output->labels.n, elements);
    }
    return st;
}

static enum status label_keys(struct arena *arena, const struct mip_settings *settings,
                              const struct model_config *config, struct str directory,
                              struct str label_filename, struct mip_output *output,
                              struct error *err) {
    if (settings->labels.ptr) {
        enum status st = check_labels_path(settings, err);
        return st == ST_OK ? load_output_labels(arena, settings->labels_by_server ? NULL : config,
                                                directory, settings->labels, output, err)
                           : st;
    }
    return label_filename.len > 0
               ? load_output_labels(arena, config, directory, label_filename, output, err)
               : ST_OK;
}

static enum status plan_output(struct arena *arena, const struct mip_settings *settings,
                               const struct model_config *config, struct str directory,
                               struct str label_filename, struct mip_output *output,
                               struct error *err) {
    enum datatype datatype = output->spec->datatype;
    output->softmax = settings->softmax;
    output->top_k = settings->top_k;
    if ((output->softmax || output->top_k > 0) && (datatype == DT_BYTES || datatype == DT_BOOL)) {
        return error_set(err, ST_BAD_CONFIG, "%s: values of %s are not scores",
                         output->softmax ? "softmax" : "top_k", datatype_name(datatype));
    }
    if (output->top_k > 0) {
        return label_keys(arena, settings, config, directory, label_filename, output, err);
    }
    if (settings->labels.ptr) {
        return error_set(err, ST_BAD_CONFIG,
                         "labels: they are the keys of the top_k values, so top_k must be set");
    }
    return ST_OK;
}

static enum status plan_outputs(struct arena *arena, const struct mip_settings *settings,
                                const struct model_config *config, struct str directory,
                                struct mip_plan *plan, struct error *err) {
    for (size_t i = 0; i < plan->spec->n_outputs; i++) {
        struct mip_output *output = &plan->outputs[i];
        output->spec = &plan->spec->outputs[i];
        output->dims = element_dims(output->spec->shape, plan->batches);
        struct str labels =
            i < config->n_outputs ? config->outputs[i].label_filename : str_make(NULL, 0);
        enum status st = plan_output(arena, &settings[i], config, directory, labels, output, err);
        if (st != ST_OK) {
            char name[QUOTED_NAME_BYTES];
            return st == ST_BAD_CONFIG ? error_prefix(err, "MIP settings of output %s",
                                                      quote_name(output->spec->name, name))
                                       : st;
        }
    }
    return ST_OK;
}

/* ---- the plan ------------------------------------------------------------------------------- */

enum status mip_plan_new(struct arena *arena, const struct model_spec *spec,
                         const struct model_config *config, struct str directory,
                         const struct mip_plan **out, struct error *err) {
    struct mip_plan *plan = arena_calloc(arena, 1, sizeof(*plan));
    struct mip_settings *inputs = arena_calloc(arena, spec->n_inputs, sizeof(*inputs));
    struct mip_settings *outputs = arena_calloc(arena, spec->n_outputs, sizeof(*outputs));
    if (!plan || !inputs || !outputs) {
        return error_no_memory(err, "the model's plan for MIP");
    }
    plan->spec = spec;
    plan->batches = spec->max_batch_size > 0;
    plan->max_batch = plan->batches ? spec->max_batch_size : 1;
    plan->inputs = arena_calloc(arena, spec->n_inputs, sizeof(*plan->inputs));
    plan->outputs = arena_calloc(arena, spec->n_outputs, sizeof(*plan->outputs));
    if (!plan->inputs || !plan->outputs) {
        return error_no_memory(err, "the model's plan for MIP");
    }
    *out = plan;
    if (mip_settings_read(config, spec, inputs, outputs, err) != ST_OK ||
        plan_inputs(arena, inputs, plan, err) != ST_OK) {
        return err->status;
    }
    return plan_outputs(arena, outputs, config, directory, plan, err);
}

bool mip_plan_decodes_pictures(const struct mip_plan *plan) {
    for (size_t i = 0; i < plan->spec->n_inputs; i++) {
        if (plan->inputs[i].pictures == MIP_PICTURES_DECODED) {
            return true;
        }
    }
    return false;
}

enum status mip_plan_add(struct model_version *version, struct error *err) {
    const struct mip_plan *plan = NULL;
    enum status st =
        mip_plan_new(model_version_arena(version), model_version_spec(version),
                     model_version_config(version), model_version_directory(version), &plan, err);
    model_version_set_user_data(version, MODEL_VERSION_MIP, plan);
    return st;
}

const struct mip_plan *mip_plan_of(const struct model_version *version) {
    return model_version_user_data(version, MODEL_VERSION_MIP);
}

/* ---- text for --check ------------------------------------------------------------------------ */

static void print_numbers(const char *name, const double *values, size_t n, double usual,
                          struct buf *out) {
    bool same = true, all_usual = true;
    for (size_t i = 0; i < n; i++) {
        same = same && values[i] == values[0];
        all_usual = all_usual && values[i] == usual;
    }
    if (all_usual) {
        return;
    }
    buf_printf(out, ", %s", name);
    for (size_t i = 0; i < (same ? 1 : n); i++) {
        buf_printf(out, " %g", values[i]);
    }
}

static void print_picture(const struct picture_plan *plan, struct buf *out) {
    size_t channels = plan->color == PICTURE_GREY ? 1 : PICTURE_MAX_CHANNELS;
    buf_printf(out, "pictures become %" PRIu32 "x%" PRIu32 " %s (%s, filter %s", plan->width,
               plan->height, mip_color_name(plan->color), mip_fit_name(plan->fit),
               mip_filter_name(plan->filter));
    if (channels > 1) {
        buf_printf(out, ", %s", plan->layout == PICTURE_NCHW ? "nchw" : "nhwc");
    }
    print_numbers("scale", &plan->scale, 1, 1, out);
    print_numbers("mean", plan->mean, channels, 0, out);
    print_numbers("std", plan->std, channels, 1, out);
    buf_add_char(out, ')');
}

static void print_input(const struct mip_input *input, struct buf *out) {
    bool bytes = input->spec->datatype == DT_BYTES;
    buf_printf(out, "%.*s  %s; ", STR_ARG(input->spec->name), bytes ? "TEXT, JSON" : "JSON");
    switch (input->pictures) {
    case MIP_PICTURES_DECODED:
        print_picture(&input->picture, out);
        break;
    case MIP_PICTURES_AS_FILE:
        buf_printf(out, "pictures as the files they are");
        break;
    case MIP_PICTURES_REFUSED:
        buf_printf(out, "no pictures: %s", input->why_refused);
        break;
    }
}

static void print_output(const struct mip_output *output, struct buf *out) {
    buf_printf(out, "%.*s  ", STR_ARG(output->spec->name));
    if (output->top_k > 0) {
        buf_printf(out, "JSON, the %zu best%s by ", output->top_k,
                   output->softmax ? " after softmax" : "");
        if (output->labels.n > 0) {
            buf_printf(out, "%zu labels", output->labels.n);
        } else {
            buf_printf(out, "index");
        }
    } else if (output->softmax) {
        buf_printf(out, "JSON, after softmax");
    } else if (output->spec->datatype == DT_BYTES) {
        buf_printf(out, "TEXT where it is one element, else JSON");
    } else {
        buf_printf(out, "JSON");
    }
}

void mip_plan_print(const struct mip_plan *plan, struct buf *out) {
    for (size_t i = 0; i < plan->spec->n_inputs; i++) {
        buf_printf(out, "  %-10s ", i == 0 ? "inputs" : "");
        print_input(&plan->inputs[i], out);
        buf_add_char(out, '\n');
    }
    for (size_t i = 0; i < plan->spec->n_outputs; i++) {
        buf_printf(out, "  %-10s ", i == 0 ? "outputs" : "");
        print_output(&plan->outputs[i], out);
        buf_add_char(out, '\n');
    }
}
