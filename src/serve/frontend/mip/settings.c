/* Parsing of the "mip." parameters. An unknown setting or tensor name is an error, because ignoring
 * it would silently change answers. */
#include "serve/frontend/mip/settings.h"

#include <math.h>

#include "core/base/num.h"
#include "core/base/suggest.h"

enum { MAX_SIDE = 65535 };

/* ---- values: words --------------------------------------------------------------------------- */

static const char *const COLORS[] = {
    [PICTURE_RGB] = "rgb", [PICTURE_BGR] = "bgr", [PICTURE_GREY] = "grey", NULL};
static const char *const FITS[] = {
    [PICTURE_STRETCH] = "stretch", [PICTURE_CROP] = "crop", [PICTURE_PAD] = "pad", NULL};
static const char *const FILTERS[] = {
    [PICTURE_AUTO] = "auto",       [PICTURE_NEAREST] = "nearest", [PICTURE_BILINEAR] = "bilinear",
    [PICTURE_BICUBIC] = "bicubic", [PICTURE_LANCZOS] = "lanczos", NULL};
static const char *const LAYOUTS[] = {
    [MIP_LAYOUT_AUTO] = "auto", [MIP_LAYOUT_NCHW] = "nchw", [MIP_LAYOUT_NHWC] = "nhwc", NULL};
static const char *const BOOLS[] = {"false", "true", NULL};

const char *mip_color_name(enum picture_color color) {
    return COLORS[color];
}

const char *mip_fit_name(enum picture_fit fit) {
    return FITS[fit];
}

const char *mip_filter_name(enum picture_filter filter) {
    return FILTERS[filter];
}

/* Finds `value` in `words`, which are terminated by NULL. */
static enum status read_word(struct str value, const char *const *words, unsigned *out,
                             struct error *err) {
    char all[64] = "";
    size_t len = 0;
    for (unsigned i = 0; words[i]; i++) {
        if (str_is(value, words[i])) {
            *out = i;
            return ST_OK;
        }
        int wrote = snprintf(all + len, sizeof(all) - len, "%s%s", i == 0 ? "" : ", ", words[i]);
        len += wrote > 0 ? (size_t)wrote : 0;
    }
    return error_set(err, ST_BAD_CONFIG, "expected one of %s, got \"%.*s\"", all, STR_ARG(value));
}

enum status mip_value_color(struct str value, struct mip_settings *out, struct error *err) {
    unsigned word = 0;
    enum status st = read_word(value, COLORS, &word, err);
    out->color = (enum picture_color)word;
    out->has_color = true;
    return st;
}

enum status mip_value_fit(struct str value, struct mip_settings *out, struct error *err) {
    unsigned word = 0;
    enum status st = read_word(value, FITS, &word, err);
    out->fit = (enum picture_fit)word;
    return st;
}

enum status mip_value_filter(struct str value, struct mip_settings *out, struct error *err) {
    unsigned word = 0;
    enum status st = read_word(value, FILTERS, &word, err);
    out->filter = (enum picture_filter)word;
    return st;
}

enum status mip_value_layout(struct str value, struct mip_settings *out, struct error *err) {
    unsigned word = 0;
    enum status st = read_word(value, LAYOUTS, &word, err);
    out->layout = (enum mip_layout)word;
    return st;
}

enum status mip_value_softmax(struct str value, struct mip_settings *out, struct error *err) {
    unsigned word = 0;
    enum status st = read_word(value, BOOLS, &word, err);
    out->softmax = word == 1;
    return st;
}

/* ---- values: numbers ------------------------------------------------------------------------- */

/* "0.5", "-2", "1/255". */
static bool parse_ratio(struct str text, double *out) {
    struct str rest = text;
    struct str above = str_trim(str_cut(&rest, '/'));
    double below = 1;
    if (!num_parse_decimal(above, out) ||
        (rest.ptr && !num_parse_decimal(str_trim(rest), &below))) {
        return false;
    }
    *out /= below;
    return isfinite(*out);
}

enum status mip_value_scale(struct str value, struct mip_settings *out, struct error *err) {
    if (parse_ratio(value, &out->scale) && out->scale != 0) {
        return ST_OK;
    }
    return error_set(err, ST_BAD_CONFIG,
                     "expected a factor other than 0, such as 0.5 or 1/255, got \"%.*s\"",
                     STR_ARG(value));
}

/* One number, or three separated by commas. */
static bool parse_channels(struct str value, struct mip_per_channel *out) {
    struct str rest = value;
    out->n = 0;
    while (rest.ptr) {
        struct str number = str_trim(str_cut(&rest, ','));
        if (out->n == PICTURE_MAX_CHANNELS || !parse_ratio(number, &out->values[out->n])) {
            return false;
        }
        out->n++;
    }
    return out->n == 1 || out->n == PICTURE_MAX_CHANNELS;
}

enum status mip_value_mean(struct str value, struct mip_settings *out, struct error *err) {
    if (parse_channels(value, &out->mean)) {
        return ST_OK;
    }
    return error_set(err, ST_BAD_CONFIG,
                     "expected one number, or three with commas between them, got \"%.*s\"",
                     STR_ARG(value));
}

enum status mip_value_std(struct str value, struct mip_settings *out, struct error *err) {
    bool good = parse_channels(value, &out->std);
    for (size_t i = 0; good && i < out->std.n; i++) {
        good = out->std.values[i] != 0;
    }
    if (good) {
        return ST_OK;
    }
    return error_set(err, ST_BAD_CONFIG,
                     "expected one number other than 0, or three with commas between them, got "
                     "\"%.*s\"",
                     STR_ARG(value));
}

static bool parse_side(struct str text, uint32_t *out) {
    uint64_t number = 0;
    bool good = num_parse_u64(text, &number) && number >= 1 && number <= MAX_SIDE;
    *out = good ? (uint32_t)number : 0;
    return good;
}

enum status mip_value_size(struct str value, struct mip_settings *out, struct error *err) {
    struct str rest = value;
    struct str width = str_cut(&rest, 'x');
    if (parse_side(width, &out->width) && parse_side(rest.ptr ? rest : width, &out->height)) {
        return ST_OK;
    }
    return error_set(err, ST_BAD_CONFIG,
                     "expected WIDTHxHEIGHT, such as 320x240, or one number for both, each from 1 "
                     "to %d, got \"%.*s\"",
                     MAX_SIDE, STR_ARG(value));
}

enum status mip_value_pad(struct str value, struct mip_settings *out, struct error *err) {
    uint64_t number = 0;
    if (!num_parse_u64(value, &number) || number > UINT8_MAX) {
        return error_set(err, ST_BAD_CONFIG, "expected a whole number from 0 to 255, got \"%.*s\"",
                         STR_ARG(value));
    }
    out->pad = (uint8_t)number;
    return ST_OK;
}

enum status mip_value_top_k(struct str value, struct mip_settings *out, struct error *err) {
    uint64_t number = 0;
    if (!num_parse_u64(value, &number) || number > MIP_TOP_K_MAX) {
        return error_set(err, ST_BAD_CONFIG,
                         "expected a whole number from 0 (all values) to %d, got \"%.*s\"",
                         MIP_TOP_K_MAX, STR_ARG(value));
    }
    out->top_k = (uint32_t)number;
    return ST_OK;
}

enum status mip_value_labels(struct str value, struct mip_settings *out, struct error *err) {
    if (value.len == 0) {
        return error_set(err, ST_BAD_CONFIG, "expected the name of a file");
    }
    out->labels = value;
    return ST_OK;
}

/* ---- the table ------------------------------------------------------------------------------- */

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

/* The destination of the settings. */
struct reader {
    const struct model_spec *spec;
    struct mip_settings *inputs;
    struct mip_settings *outputs;
};

/* A parsed parameter name. */
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

/* A tensor's name may contain dots: the setting follows the last one. */
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

/* ---- applying -------------------------------------------------------------------------------- */

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

/* Called first for the settings of all tensors, then for those of one, so that these win in any
 * order. */
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
    static const struct mip_settings defaults = {.prefix = PREFIX,
                                                 .fit = PICTURE_STRETCH,
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
