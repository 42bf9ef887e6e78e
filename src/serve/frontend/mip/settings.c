/* From parameters to settings: which key means what, of which tensor. Nothing is passed over: a key
 * that is not a setting, or names no tensor, is a slip that would change answers. */
#include "serve/frontend/mip/settings.h"

#include "core/base/suggest.h"
#include "serve/frontend/mip/values.h"

static const char PREFIX[] = "mip.";

/* One row per setting. */
static const struct setting {
    const char *name;
    bool of_output;
    mip_value_read *read;
} SETTINGS[] = {
    {"color", false, mip_value_color},   {"fit", false, mip_value_fit},
    {"filter", false, mip_value_filter}, {"scale", false, mip_value_scale},
    {"mean", false, mip_value_mean},     {"std", false, mip_value_std},
    {"layout", false, mip_value_layout}, {"size", false, mip_value_size},
    {"pad", false, mip_value_pad},       {"softmax", true, mip_value_softmax},
    {"top_k", true, mip_value_top_k},    {"labels", true, mip_value_labels},
};
enum { N_SETTINGS = sizeof(SETTINGS) / sizeof(SETTINGS[0]) };

/* What is read into. */
struct reader {
    const struct model_spec *spec;
    struct mip_settings *inputs;
    struct mip_settings *outputs;
};

/* A parameter's name, taken apart. */
struct key {
    const struct setting *setting;
    struct str tensor; /* ptr NULL: all */
};

/* ---- names ----------------------------------------------------------------------------------- */

static enum status unknown_setting(struct str name, struct error *err) {
    struct suggestion suggestion = {0};
    for (size_t i = 0; i < N_SETTINGS; i++) {
        suggest_consider(&suggestion, name, str_of(SETTINGS[i].name));
    }
    if (suggestion.best.ptr) {
        char hint[SUGGEST_HINT_BYTES];
        return error_set(err, ST_BAD_CONFIG, "there is no setting \"%.*s\"%s", STR_ARG(name),
                         suggest_hint(&suggestion, hint));
    }
    return error_set(err, ST_BAD_CONFIG,
                     "there is no setting \"%.*s\"; those of inputs are color, fit, filter, scale, "
                     "mean, std, layout, size and pad, those of outputs softmax, top_k and labels",
                     STR_ARG(name));
}

static enum status unknown_tensor(const struct model_spec *spec, const struct key *key,
                                  struct error *err) {
    const struct tensor_spec *specs = key->setting->of_output ? spec->outputs : spec->inputs;
    size_t n = key->setting->of_output ? spec->n_outputs : spec->n_inputs;
    const char *kind = key->setting->of_output ? "output" : "input";
    struct suggestion suggestion = {0};
    char hint[SUGGEST_HINT_BYTES];
    for (size_t i = 0; i < n; i++) {
        suggest_consider(&suggestion, key->tensor, specs[i].name);
    }
    return error_set(err, ST_BAD_CONFIG, "the model has no %s \"%.*s\"%s", kind,
                     STR_ARG(key->tensor), suggest_hint(&suggestion, hint));
}

/* A tensor's name may have dots in it: the setting is behind the last. */
static enum status parse_key(struct str name, struct key *out, struct error *err) {
    struct str rest = str_make(name.ptr + sizeof(PREFIX) - 1, name.len - (sizeof(PREFIX) - 1));
    size_t dot = rest.len;
    while (dot > 0 && rest.ptr[dot - 1] != '.') {
        dot--;
    }
    out->tensor = dot > 0 ? str_make(rest.ptr, dot - 1) : str_make(NULL, 0);
    struct str last = str_make(rest.ptr + dot, rest.len - dot);
    for (size_t i = 0; i < N_SETTINGS; i++) {
        if (str_is(last, SETTINGS[i].name)) {
            out->setting = &SETTINGS[i];
            return ST_OK;
        }
    }
    return unknown_setting(last, err);
}

/* ---- values ---------------------------------------------------------------------------------- */

static enum status apply_setting(const struct key *key, const struct model_config_param *param,
                                 struct mip_settings *out, struct error *err) {
    out->given = true;
    if (key->tensor.ptr) {
        out->own_key = param->name;
    }
    if (key->setting->read == mip_value_labels) {
        out->labels_by_server = param->by_server;
    }
    return key->setting->read(param->value, out, err);
}

static enum status apply_to_all(struct reader *reader, const struct key *key,
                                const struct model_config_param *param, struct error *err) {
    bool of_output = key->setting->of_output;
    struct mip_settings *settings = of_output ? reader->outputs : reader->inputs;
    size_t n = of_output ? reader->spec->n_outputs : reader->spec->n_inputs;
    enum status st = ST_OK;
    for (size_t i = 0; i < n && st == ST_OK; i++) {
        st = apply_setting(key, param, &settings[i], err);
    }
    return st;
}

static enum status apply_to_one(struct reader *reader, const struct key *key,
                                const struct model_config_param *param, struct error *err) {
    const struct model_spec *spec = reader->spec;
    bool of_output = key->setting->of_output;
    size_t at = of_output ? tensor_spec_find(spec->outputs, spec->n_outputs, key->tensor)
                          : tensor_spec_find(spec->inputs, spec->n_inputs, key->tensor);
    if (at == SIZE_MAX) {
        return unknown_tensor(spec, key, err);
    }
    return apply_setting(key, param, of_output ? &reader->outputs[at] : &reader->inputs[at], err);
}

/* Those for all tensors come first, so that those for one win wherever they stand. */
static enum status read_params(struct reader *reader, const struct model_config *config,
                               bool for_all, struct error *err) {
    for (size_t i = 0; i < config->n_params; i++) {
        const struct model_config_param *param = &config->params[i];
        struct key key = {0};
        if (!str_starts_with(param->name, str_of(PREFIX))) {
            continue;
        }
        enum status st = parse_key(param->name, &key, err);
        if (st == ST_OK && (key.tensor.ptr == NULL) == for_all) {
            st = (for_all ? apply_to_all : apply_to_one)(reader, &key, param, err);
        }
        if (st != ST_OK) {
            return error_prefix(err, "parameter %.*s", STR_ARG(param->name));
        }
    }
    return ST_OK;
}

enum status mip_settings_read(const struct model_config *config, const struct model_spec *spec,
                              struct mip_settings *inputs, struct mip_settings *outputs,
                              struct error *err) {
    static const struct mip_settings defaults = {.fit = PICTURE_STRETCH,
                                                 .filter = PICTURE_AUTO,
                                                 .scale = 1,
                                                 .mean = {{0}, 1},
                                                 .std = {{1}, 1},
                                                 .layout = MIP_LAYOUT_AUTO};
    for (size_t i = 0; i < spec->n_inputs; i++) {
        inputs[i] = defaults;
    }
    for (size_t i = 0; i < spec->n_outputs; i++) {
        outputs[i] = defaults;
    }
    struct reader reader = {spec, inputs, outputs};
    enum status st = read_params(&reader, config, true, err);
    return st == ST_OK ? read_params(&reader, config, false, err) : st;
}
