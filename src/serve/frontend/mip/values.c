/* Words, factors, lists of numbers, sizes: the texts of MIP's settings. */
#include "serve/frontend/mip/values.h"

#include <math.h>

#include "core/base/num.h"

enum { MAX_SIDE = 65535 };

/* ---- words ----------------------------------------------------------------------------------- */

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

/* Finds `value` among `words`, which end with NULL. */
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

/* ---- numbers --------------------------------------------------------------------------------- */

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

/* One number or three, with commas between them. */
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
