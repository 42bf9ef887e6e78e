/* The inference made of the flags: they are collected by input name, and every name must exist. */
#include "program/commands/infer_call.h"

#include <string.h>

#include "core/base/buf.h"
#include "core/base/num.h"
#include "core/base/suggest.h"
#include "program/requests/infer_shape.h"
#include "program/requests/infer_tensor.h"

/* ---- flags of the form NAME=VALUE ------------------------------------------------------------ */

/* Returns: the value after "NAME=" of the item for `name`, or ptr NULL. */
static struct str find_named(const struct option_texts *texts, struct str name) {
    for (size_t i = 0; i < texts->n; i++) {
        struct str rest = str_of(texts->items[i]);
        if (str_eq(str_cut(&rest, '='), name)) {
            return rest;
        }
    }
    return str_make(NULL, 0);
}

/* Checks that every item has the form and names an existing input, once. */
static enum status check_named(const char *flag, const char *form, const struct option_texts *texts,
                               const struct option_texts *inputs, struct error *err) {
    for (size_t i = 0; i < texts->n; i++) {
        struct str rest = str_of(texts->items[i]);
        struct str name = str_cut(&rest, '=');
        bool known = false;
        for (size_t k = 0; k < inputs->n; k++) {
            struct str input = str_of(inputs->items[k]);
            known = known || str_eq(str_cut(&input, '='), name);
        }
        if (!rest.ptr) {
            return error_set(err, ST_BAD_CONFIG, "--%s %s: expected %s", flag, texts->items[i],
                             form);
        }
        if (!known) {
            return error_set(err, ST_BAD_CONFIG, "--%s %s: there is no --input \"%.*s\"", flag,
                             texts->items[i], STR_ARG(name));
        }
        if (find_named(texts, name).ptr != rest.ptr) {
            return error_set(err, ST_BAD_CONFIG, "--%s is given twice for input \"%.*s\"", flag,
                             STR_ARG(name));
        }
    }
    return ST_OK;
}

bool infer_call_is_complete(const struct infer_settings *settings) {
    if (settings->top > 0 && settings->outputs.n == 0) {
        return false; /* the outputs are asked for by name */
    }
    for (size_t i = 0; i < settings->inputs.n; i++) {
        struct str rest = str_of(settings->inputs.items[i]);
        struct str name = str_cut(&rest, '=');
        bool raw = settings->raw && rest.ptr && str_starts_with(rest, STR("raw:"));
        if (!raw && (!find_named(&settings->datatypes, name).ptr ||
                     !find_named(&settings->shapes, name).ptr)) {
            return false;
        }
    }
    return true;
}

enum status infer_param_parse(const char *argument, struct param *out, struct error *err) {
    struct str value = str_of(argument);
    struct str name = str_cut(&value, '=');
    *out = (struct param){.name = name, .kind = PARAM_STRING, .string = value};
    if (!value.ptr || name.len == 0) {
        return error_set(err, ST_BAD_CONFIG, "--parameter %s: expected KEY=VALUE", argument);
    }
    if (value.len >= 2 && value.ptr[0] == '"' && value.ptr[value.len - 1] == '"') {
        out->string = str_make(value.ptr + 1, value.len - 2);
    } else if (str_is(value, "true") || str_is(value, "false")) {
        out->kind = PARAM_BOOL;
        out->boolean = str_is(value, "true");
    } else if (num_parse_i64(value, &out->int64)) {
        out->kind = PARAM_INT64;
    } else if (num_parse_u64(value, &out->uint64)) {
        out->kind = PARAM_UINT64;
    } else if (num_parse_f64(value, &out->number)) {
        out->kind = PARAM_DOUBLE;
    }
    return ST_OK;
}

/* ---- the model's names ----------------------------------------------------------------------- */

/* The error for a name that the model does not have. */
static enum status unknown_name(struct arena *arena, const char *what, struct str name,
                                const struct model_spec *model, const struct tensor_spec *specs,
                                size_t n, struct error *err) {
    struct suggestion suggestion = {0};
    char hint[SUGGEST_HINT_BYTES];
    struct buf names;
    buf_init(&names, arena, 0);
    for (size_t i = 0; i < n; i++) {
        buf_printf(&names, "%s%.*s", i > 0 ? ", " : "", STR_ARG(specs[i].name));
        suggest_consider(&suggestion, name, specs[i].name);
    }
    return error_set(err, ST_BAD_INPUTS, "model \"%.*s\" has no %s \"%.*s\"%s (it has: %.*s)",
                     STR_ARG(model->name), what, STR_ARG(name), suggest_hint(&suggestion, hint),
                     STR_ARG(buf_str(&names)));
}

/* ---- the parts of the request ---------------------------------------------------------------- */

static enum status find_known(struct arena *arena, const struct infer_settings *settings,
                              const struct model_spec *model, struct str name,
                              struct infer_known *out, struct error *err) {
    *out = (struct infer_known){.raw = settings->raw};
    struct str datatype = find_named(&settings->datatypes, name);
    struct str shape = find_named(&settings->shapes, name);
    if (model) {
        size_t i = tensor_spec_find(model->inputs, model->n_inputs, name);
        if (i == SIZE_MAX) {
            return unknown_name(arena, "input", name, model, model->inputs, model->n_inputs, err);
        }
        out->spec = &model->inputs[i];
    }
    out->datatype = datatype.ptr ? datatype_parse(datatype) : DT_INVALID;
    if (datatype.ptr && out->datatype == DT_INVALID) {
        return error_set(err, ST_BAD_CONFIG,
                         "--datatype %.*s=%.*s: expected BOOL, UINT8 to UINT64, INT8 to INT64, "
                         "FP16, FP32, FP64, BF16 or BYTES",
                         STR_ARG(name), STR_ARG(datatype));
    }
    out->has_shape = shape.ptr != NULL;
    if (out->has_shape && infer_shape_parse(arena, shape, &out->shape, err) != ST_OK) {
        return error_prefix(err, "--shape %.*s", STR_ARG(name));
    }
    return ST_OK;
}

static enum status add_inputs(struct arena *arena, const struct infer_settings *settings,
                              const struct infer_model *model, struct infer_request *out,
                              struct error *err) {
    out->n_inputs = settings->inputs.n;
    out->inputs = arena_calloc(arena, out->n_inputs, sizeof(*out->inputs));
    enum status status = ST_OK;
    for (size_t i = 0; i < out->n_inputs && status == ST_OK; i++) {
        struct infer_source source;
        struct infer_known known;
        status = infer_source_read(arena, settings->inputs.items[i], settings->max_input_size,
                                   &source, err);
        if (status == ST_OK && find_named(&settings->inputs, source.name).ptr !=
                                   settings->inputs.items[i] + source.name.len + 1) {
            status = error_set(err, ST_BAD_CONFIG, "input \"%.*s\" is given twice",
                               STR_ARG(source.name));
        }
        if (status == ST_OK) {
            status = find_known(arena, settings, model->spec, source.name, &known, err);
        }
        if (status == ST_OK) {
            struct tensor *tensor = &out->inputs[i].tensor;
            status = infer_picture_is(&source, &known)
                         ? infer_picture_read(arena, settings, &source, &known, model, tensor, err)
                         : infer_tensor_read(arena, &source, &known, tensor, err);
        }
    }
    return status;
}

static enum status add_outputs(struct arena *arena, const struct infer_settings *settings,
                               const struct model_spec *model, struct infer_request *out,
                               struct error *err) {
    bool all = settings->top > 0 && settings->outputs.n == 0 && model; /* each with --top */
    out->n_wanted = all ? model->n_outputs : settings->outputs.n;
    out->wanted = arena_calloc(arena, out->n_wanted, sizeof(*out->wanted));
    for (size_t i = 0; i < out->n_wanted; i++) {
        struct str name = all ? model->outputs[i].name : str_of(settings->outputs.items[i]);
        out->wanted[i].name = name;
        out->wanted[i].n_classes = settings->top;
        if (model && tensor_spec_find(model->outputs, model->n_outputs, name) == SIZE_MAX) {
            return unknown_name(arena, "output", name, model, model->outputs, model->n_outputs,
                                err);
        }
    }
    return ST_OK;
}

static enum status add_params(struct arena *arena, const struct infer_settings *settings,
                              struct infer_request *out, struct error *err) {
    struct param *items = arena_calloc(arena, settings->parameters.n, sizeof(*items));
    enum status status = ST_OK;
    for (size_t i = 0; i < settings->parameters.n && status == ST_OK; i++) {
        status = infer_param_parse(settings->parameters.items[i], &items[i], err);
    }
    out->params = (struct params){items, settings->parameters.n};
    return status;
}

enum status infer_call_init(struct arena *arena, const struct infer_settings *settings,
                            const struct infer_model *model, struct client_infer *out,
                            struct error *err) {
    struct v2_request *request = arena_calloc(arena, 1, sizeof(*request));
    *out = (struct client_infer){.model = str_of(settings->model),
                                 .version = str_of(settings->model_version),
                                 .request = request,
                                 .raw = settings->raw,
                                 .timeout_ns = settings->timeout_ns};
    request->infer.id = str_of(settings->id ? settings->id : "");
    request->infer.arena = arena;
    request->binary_default = settings->binary;
    if (check_named("datatype", "NAME=TYPE", &settings->datatypes, &settings->inputs, err) !=
            ST_OK ||
        check_named("shape", "NAME=DIMS", &settings->shapes, &settings->inputs, err) != ST_OK ||
        add_inputs(arena, settings, model, &request->infer, err) != ST_OK ||
        add_outputs(arena, settings, model->spec, &request->infer, err) != ST_OK ||
        add_params(arena, settings, &request->infer, err) != ST_OK) {
        return err->status;
    }
    out->forms =
        v2_forms_all(arena, settings->inputs.n, settings->binary ? V2_FORM_BINARY : V2_FORM_JSON);
    return ST_OK;
}
