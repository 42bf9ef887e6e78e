/* Pictures as inputs over HTTP and gRPC. Resizing and normalising are those of a MIP server
 * (serve/picture), which compute what Pillow and numpy do. */
#include "program/commands/infer_picture.h"

#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#include "program/model_server/settings.h"
#include "serve/frontend/mip/plan.h"
#include "serve/picture/picture.h"

enum { IMAGE_RANK = 3 };
/* ImageNet's: models are given the middle of a picture whose shorter side was resized, 224 of 256
 * pixels. */
enum { IMAGENET_SIDE = 224, IMAGENET_SHORT_SIDE = 256 };
static const uint64_t MAX_PIXELS = UINT64_C(1) << 28;

static bool has_picture_name(struct str file) {
    static const char *const suffixes[] = {".jpg",  ".jpeg", ".png", ".webp",
                                           ".JPEG", ".JPG",  ".PNG", ".gif"};
    for (size_t i = 0; i < sizeof(suffixes) / sizeof(*suffixes); i++) {
        if (str_ends_with(file, str_of(suffixes[i]))) {
            return true;
        }
    }
    return false;
}

static enum datatype datatype_of(const struct infer_known *known) {
    return known->datatype == DT_INVALID && known->spec ? known->spec->datatype : known->datatype;
}

static struct shape shape_of(const struct infer_known *known) {
    return known->has_shape ? known->shape : known->spec ? known->spec->shape : (struct shape){0};
}

bool infer_picture_may_be(const struct infer_settings *settings, const struct model_spec *model) {
    bool may_be = false;
    for (size_t i = 0; i < settings->inputs.n && !settings->raw; i++) {
        struct str source = str_of(settings->inputs.items[i]);
        struct str name = str_cut(&source, '=');
        size_t k = tensor_spec_find(model->inputs, model->n_inputs, name);
        may_be = may_be ||
                 (source.ptr && str_starts_with(source, STR("@")) && has_picture_name(source) &&
                  k != SIZE_MAX && model->inputs[k].datatype != DT_BYTES);
    }
    return may_be;
}

bool infer_picture_is(const struct infer_source *source, const struct infer_known *known) {
    struct shape shape = shape_of(known);
    bool pixels = shape.rank == IMAGE_RANK || shape.rank == IMAGE_RANK + 1;
    return source->kind == INFER_SOURCE_RAW && has_picture_name(str_of(source->file)) &&
           !known->raw && pixels && datatype_size(datatype_of(known)) > 0;
}

/* ---- settings -------------------------------------------------------------------------------- */

/* What models of torchvision, and most others that were trained on ImageNet, expect. */
static void set_imagenet(struct mip_settings *settings) {
    settings->mean = (struct mip_per_channel){{0.485, 0.456, 0.406}, PICTURE_MAX_CHANNELS};
    settings->std = (struct mip_per_channel){{0.229, 0.224, 0.225}, PICTURE_MAX_CHANNELS};
    settings->scale = 1.0 / 255;
    settings->fit = PICTURE_CROP;
    settings->filter = PICTURE_BILINEAR;
}

/* The settings of the configuration for this input; the defaults without one. Returns:
 * ST_BAD_CONFIG. */
static enum status read_config(struct arena *arena, const struct infer_model *model,
                               struct str input, struct mip_settings *out, struct error *err) {
    static const struct model_config no_config;
    *out = (struct mip_settings){0};
    const struct tensor_spec itself = {.name = input};
    const struct model_spec alone = {.inputs = &itself, .n_inputs = 1};
    bool known = model->spec && model->config;
    const struct model_spec *spec = known ? model->spec : &alone;
    struct mip_settings *inputs = arena_calloc(arena, spec->n_inputs, sizeof(*inputs));
    struct mip_settings *outputs = arena_calloc(arena, spec->n_outputs, sizeof(*outputs));
    enum status st =
        mip_settings_read(known ? model->config : &no_config, spec, inputs, outputs, err);
    size_t i = tensor_spec_find(spec->inputs, spec->n_inputs, input);
    assert(i != SIZE_MAX); /* infer_call.c:find_known */
    *out = inputs[i];
    return st == ST_OK ? st : error_prefix(err, "the model's configuration");
}

static enum status read_flag(const char *flag, const char *text, mip_value_read *read,
                             struct mip_settings *out, struct error *err) {
    enum status st = text ? read(str_of(text), out, err) : ST_OK;
    return st == ST_OK ? st : error_prefix(err, "--%s %s", flag, text);
}

static enum status read_flags(const struct infer_settings *settings, struct mip_settings *out,
                              struct error *err) {
    if (read_flag("size", settings->size, mip_value_size, out, err) != ST_OK ||
        read_flag("mean", settings->mean, mip_value_mean, out, err) != ST_OK ||
        read_flag("std", settings->std, mip_value_std, out, err) != ST_OK) {
        return err->status;
    }
    if (settings->layout != INFER_LAYOUT_AUTO) {
        out->layout = settings->layout == INFER_LAYOUT_NCHW ? MIP_LAYOUT_NCHW : MIP_LAYOUT_NHWC;
    }
    return ST_OK;
}

static enum status read_settings(struct arena *arena, const struct infer_settings *settings,
                                 const struct infer_source *source, const struct infer_model *model,
                                 enum datatype datatype, struct mip_settings *out,
                                 struct error *err) {
    bool is_imagenet = settings->preset == INFER_PRESET_IMAGENET;
    static const struct infer_model none;
    enum status st = read_config(arena, is_imagenet ? &none : model, source->name, out, err);
    if (st != ST_OK) {
        return st;
    }
    bool has_flag = settings->size || settings->mean || settings->std;
    out->prefix = is_imagenet && !has_flag ? "--preset imagenet: " : "--";
    if (is_imagenet) {
        set_imagenet(out);
    } else if (!out->given && datatype_is_float(datatype)) {
        out->scale = 1.0 / 255;
    }
    return read_flags(settings, out, err);
}

/* ---- shape ----------------------------------------------------------------------------------- */

/* Returns: how many dimensions are in front of the picture's. The configuration says whether there
 * is one for the batch; without it, [-1, 28, 28] is taken for grey pictures. */
static size_t leading_dims(struct shape shape, const struct infer_model *model,
                           const struct mip_settings *settings) {
    if (shape.rank > IMAGE_RANK || (model->config && model->config->max_batch_size > 0)) {
        return 1;
    }
    const int64_t *d = shape.dims;
    return settings->layout == MIP_LAYOUT_AUTO && d[0] == -1 && d[1] > 0 && d[2] > 0 && d[2] != 1 &&
           d[2] != PICTURE_MAX_CHANNELS;
}

static size_t n_open_sides(struct shape image) {
    size_t n = 0;
    for (size_t i = 0; i < image.rank; i++) {
        n += image.dims[i] == -1;
    }
    return n;
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* The numbers that pixels of 0 and 255 become, over all channels. */
static void range_of(const struct picture_plan *plan, double *low, double *high) {
    enum { WHITE = 255 };
    *low = INFINITY;
    *high = -INFINITY;
    for (size_t i = 0; i < PICTURE_MAX_CHANNELS; i++) {
        double black = -plan->mean[i] / plan->std[i];
        double white = (WHITE * plan->scale - plan->mean[i]) / plan->std[i];
        *low = fmin(*low, fmin(black, white));
        *high = fmax(*high, fmax(black, white));
    }
}

/* Normalised pixels as integers would be cut off at the datatype's limits, or rounded to a few
 * values. Returns: ST_BAD_DATATYPE where flags ask for that. */
static enum status check_range(const struct infer_settings *settings, struct str input,
                               const struct picture_plan *plan, struct error *err) {
    enum { MIN_VALUES = 16 };
    bool is_imagenet = settings->preset == INFER_PRESET_IMAGENET;
    if (datatype_is_float(plan->datatype) || !(is_imagenet || settings->mean || settings->std)) {
        return ST_OK;
    }
    bool is_signed = plan->datatype == DT_INT8 || plan->datatype == DT_INT16 ||
                     plan->datatype == DT_INT32 || plan->datatype == DT_INT64;
    int bits = (int)datatype_size(plan->datatype) * CHAR_BIT;
    double least = is_signed ? -ldexp(1, bits - 1) : 0, low, high;
    double most = ldexp(1, is_signed ? bits - 1 : bits) - 1;
    range_of(plan, &low, &high);
    if (low >= least && high <= most && high - low >= MIN_VALUES) {
        return ST_OK;
    }
    return error_set(err, ST_BAD_DATATYPE,
                     "input \"%.*s\" holds whole numbers (%s), and %s would make its pixels %.2f "
                     "to %.2f: leave that out if the model normalises its input itself",
                     STR_ARG(input), datatype_name(plan->datatype),
                     is_imagenet                       ? "--preset imagenet"
                     : settings->mean && settings->std ? "--mean with --std"
                     : settings->mean                  ? "--mean"
                                                       : "--std",
                     low, high);
}

/* ---- decoding -------------------------------------------------------------------------------- */

static uint32_t short_side(const struct picture_plan *plan) {
    double longest = plan->width > plan->height ? plan->width : plan->height;
    return (uint32_t)fmin(rint(longest * IMAGENET_SHORT_SIDE / IMAGENET_SIDE), UINT16_MAX);
}

static enum status plan_picture(struct arena *arena, const struct infer_settings *settings,
                                const struct infer_source *source, const struct infer_known *known,
                                const struct infer_model *model, struct picture_plan *plan,
                                struct shape *shape, struct error *err) {
    *plan = (struct picture_plan){0};
    bool is_imagenet = settings->preset == INFER_PRESET_IMAGENET;
    struct mip_settings mip;
    enum datatype datatype = datatype_of(known);
    struct shape model_shape = shape_of(known);
    assert(model_shape.dims && model_shape.rank >= IMAGE_RANK); /* infer_picture_is */
    int64_t *dims = arena_calloc(arena, model_shape.rank, sizeof(*dims));
    enum status st = read_settings(arena, settings, source, model, datatype, &mip, err);
    if (st != ST_OK) {
        return st;
    }
    size_t n_leading = leading_dims(model_shape, model, &mip);
    struct shape image = {model_shape.dims + n_leading, model_shape.rank - n_leading};
    if (is_imagenet && mip.width == 0 && n_open_sides(image) > 1) {
        mip.width = mip.height = IMAGENET_SIDE;
    } else if (n_open_sides(image) == 1) {
        mip.prefix = "--"; /* the missing side is one for --size */
    }
    dims[0] = 1; /* the batch, if there is one */
    st = mip_picture_plan(datatype, image, &mip, plan, dims + n_leading, err);
    plan->short_side = is_imagenet ? short_side(plan) : 0;
    *shape = (struct shape){dims, model_shape.rank};
    return st == ST_OK ? check_range(settings, source->name, plan, err)
                       : error_prefix(err, "input \"%.*s\"", STR_ARG(source->name));
}

enum status infer_picture_read(struct arena *arena, const struct infer_settings *settings,
                               const struct infer_source *source, const struct infer_known *known,
                               const struct infer_model *model, struct tensor *out,
                               struct error *err) {
    struct picture_plan plan;
    size_t n_bytes;
    *out = (struct tensor){.name = source->name, .n_pieces = 1};
    enum status st = plan_picture(arena, settings, source, known, model, &plan, &out->shape, err);
    if (st != ST_OK) {
        return st;
    }
    if (!picture_plan_bytes(&plan, &n_bytes)) {
        return error_set(err, ST_BAD_DATATYPE, "input \"%.*s\": a picture cannot become %s",
                         STR_ARG(source->name), datatype_name(plan.datatype));
    }
    if (n_bytes > settings->max_input_size) { /* a size that the server may have set */
        return error_set(err, ST_BODY_TOO_LARGE,
                         "input \"%.*s\": a picture of %" PRIu32 " x %" PRIu32
                         " pixels is a tensor of more than %" PRIu64
                         " bytes, which is the limit (--max-input-size)",
                         STR_ARG(source->name), plan.width, plan.height, settings->max_input_size);
    }
    char *elements = arena_alloc(arena, n_bytes);
    struct piece *piece = arena_alloc(arena, sizeof(*piece));
    const char *part = picture_part_default(arena);
    out->datatype = plan.datatype;
    out->pieces = piece;
    out->n_bytes = n_bytes;
    *piece = (struct piece){elements, n_bytes};
    st = picture_decode_now(part, MAX_PIXELS, &plan, source->bytes, elements, err);
    return st == ST_OK ? st : error_prefix(err, "%s", source->file);
}
