/* Pictures as inputs over HTTP and gRPC. Resizing and normalising are those of a MIP server
 * (serve/picture), which compute what Pillow and numpy do. */
#include "program/commands/infer_picture.h"

#include <assert.h>
#include <string.h>

#include "core/base/num.h"
#include "program/model_server/settings.h"
#include "serve/picture/picture.h"

enum { DEFAULT_SIDE = 224, MAX_SIDE = 65535, IMAGE_RANK = 3 };
static const uint64_t MAX_PIXELS = UINT64_C(1) << 28;

static bool has_picture_name(const char *file) {
    static const char *const suffixes[] = {".jpg",  ".jpeg", ".png", ".webp",
                                           ".JPEG", ".JPG",  ".PNG", ".gif"};
    for (size_t i = 0; i < sizeof(suffixes) / sizeof(*suffixes); i++) {
        if (str_ends_with(str_of(file), str_of(suffixes[i]))) {
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

bool infer_picture_is(const struct infer_source *source, const struct infer_known *known) {
    struct shape shape = shape_of(known);
    bool pixels = shape.rank == IMAGE_RANK || shape.rank == IMAGE_RANK + 1;
    return source->kind == INFER_SOURCE_RAW && has_picture_name(source->file) && !known->raw &&
           pixels && datatype_size(datatype_of(known)) > 0;
}

/* ---- flags ----------------------------------------------------------------------------------- */

static enum status read_size(const char *text, struct picture_plan *plan, struct error *err) {
    struct str rest = str_of(text);
    struct str width = str_cut(&rest, 'x');
    uint64_t w = 0, h = 0;
    bool ok = num_parse_u64(width, &w);
    ok = ok && (rest.ptr ? num_parse_u64(rest, &h) : (h = w) > 0);
    if (!ok || w == 0 || h == 0 || w > MAX_SIDE || h > MAX_SIDE) {
        return error_set(err, ST_BAD_CONFIG, "--size %s: expected WIDTHxHEIGHT, such as 224x224",
                         text);
    }
    plan->width = (uint32_t)w;
    plan->height = (uint32_t)h;
    return ST_OK;
}

/* One number for all channels, or one for each: "0.485,0.456,0.406". */
static enum status read_channels(const char *flag, const char *text, double *out,
                                 struct error *err) {
    struct str rest = str_of(text);
    size_t n = 0;
    bool ok = true;
    while (rest.ptr && ok) {
        struct str number = str_trim(str_cut(&rest, ','));
        ok = n < PICTURE_MAX_CHANNELS && num_parse_f64(number, &out[n]);
        n++;
    }
    if (!ok || (n != 1 && n != PICTURE_MAX_CHANNELS)) {
        return error_set(err, ST_BAD_CONFIG,
                         "--%s %s: expected one number, or three with commas for red, green and "
                         "blue",
                         flag, text);
    }
    for (; n < PICTURE_MAX_CHANNELS; n++) {
        out[n] = out[0];
    }
    return ST_OK;
}

/* What models of torchvision, and most others that were trained on ImageNet, expect. */
static void set_imagenet(struct picture_plan *plan) {
    static const double mean[] = {0.485, 0.456, 0.406}, std[] = {0.229, 0.224, 0.225};
    memcpy(plan->mean, mean, sizeof(mean));
    memcpy(plan->std, std, sizeof(std));
    plan->scale = 1.0 / 255;
    plan->fit = PICTURE_CROP;
    plan->filter = PICTURE_BILINEAR;
}

/* ---- shape ----------------------------------------------------------------------------------- */

/* Finds which dimension is the channels': 3 or 1, first or last. */
static enum status read_layout(const struct infer_settings *settings,
                               const struct infer_source *source, const int64_t *dims,
                               struct picture_plan *plan, struct error *err) {
    bool first = dims[0] == 3 || dims[0] == 1, last = dims[2] == 3 || dims[2] == 1;
    if (settings->layout == INFER_LAYOUT_AUTO && !first && !last) {
        return error_set(err, ST_BAD_SHAPE,
                         "input \"%.*s\": no dimension is 3 or 1, the channels of a picture; "
                         "--layout nchw or nhwc says which it is",
                         STR_ARG(source->name));
    }
    bool nchw =
        settings->layout == INFER_LAYOUT_AUTO ? first : settings->layout == INFER_LAYOUT_NCHW;
    plan->layout = nchw ? PICTURE_NCHW : PICTURE_NHWC;
    plan->color = dims[nchw ? 0 : 2] == 1 ? PICTURE_GREY : PICTURE_RGB;
    int64_t height = dims[nchw ? 1 : 0], width = dims[nchw ? 2 : 1];
    uint32_t default_side = settings->preset == INFER_PRESET_IMAGENET ? DEFAULT_SIDE : 0;
    plan->height = height > 0 && height <= MAX_SIDE ? (uint32_t)height : default_side;
    plan->width = width > 0 && width <= MAX_SIDE ? (uint32_t)width : default_side;
    return ST_OK;
}

static enum status make_plan(const struct infer_settings *settings,
                             const struct infer_source *source, const struct infer_known *known,
                             struct picture_plan *plan, struct error *err) {
    struct shape shape = shape_of(known);
    assert(shape.dims && shape.rank >= IMAGE_RANK); /* infer_picture_is */
    *plan = (struct picture_plan){
        .datatype = datatype_of(known), .scale = 1, .mean = {0, 0, 0}, .std = {1, 1, 1}};
    if (settings->preset == INFER_PRESET_IMAGENET) {
        set_imagenet(plan);
    } else if (datatype_is_float(plan->datatype)) {
        plan->scale = 1.0 / 255;
    }
    enum status st = read_layout(settings, source, shape.dims + shape.rank - IMAGE_RANK, plan, err);
    if (st == ST_OK && settings->size) {
        st = read_size(settings->size, plan, err);
    }
    if (st == ST_OK && settings->mean) {
        st = read_channels("mean", settings->mean, plan->mean, err);
    }
    if (st == ST_OK && settings->std) {
        st = read_channels("std", settings->std, plan->std, err);
    }
    if (st == ST_OK && (plan->width == 0 || plan->height == 0)) {
        st = error_set(err, ST_BAD_SHAPE,
                       "input \"%.*s\": the model takes pictures of any size; give --size "
                       "WIDTHxHEIGHT",
                       STR_ARG(source->name));
    }
    return st;
}

static struct shape picture_shape(struct arena *arena, const struct picture_plan *plan,
                                  size_t rank) {
    int64_t *dims = arena_calloc(arena, rank, sizeof(*dims));
    int64_t channels = plan->color == PICTURE_GREY ? 1 : PICTURE_MAX_CHANNELS;
    if (!dims) {
        return (struct shape){0};
    }
    dims[0] = 1; /* the batch, unless the rank is 3 */
    int64_t *image = dims + rank - IMAGE_RANK;
    bool nchw = plan->layout == PICTURE_NCHW;
    image[nchw ? 0 : 2] = channels;
    image[nchw ? 1 : 0] = plan->height;
    image[nchw ? 2 : 1] = plan->width;
    return (struct shape){dims, rank};
}

/* ---- decoding -------------------------------------------------------------------------------- */

enum status infer_picture_read(struct arena *arena, const struct infer_settings *settings,
                               const struct infer_source *source, const struct infer_known *known,
                               struct tensor *out, struct error *err) {
    struct picture_plan plan;
    size_t n_bytes;
    enum status st = make_plan(settings, source, known, &plan, err);
    if (st != ST_OK) {
        return st;
    }
    if (!picture_plan_bytes(&plan, &n_bytes)) {
        return error_set(err, ST_BAD_DATATYPE, "input \"%.*s\": a picture cannot become %s",
                         STR_ARG(source->name), datatype_name(plan.datatype));
    }
    char *elements = arena_alloc(arena, n_bytes);
    struct piece *piece = arena_alloc(arena, sizeof(*piece));
    const char *part = picture_part_default(arena);
    *out = (struct tensor){.name = source->name,
                           .datatype = plan.datatype,
                           .shape = picture_shape(arena, &plan, shape_of(known).rank),
                           .pieces = piece,
                           .n_pieces = 1,
                           .n_bytes = n_bytes};
    if (!elements || !piece || !part || !out->shape.dims) {
        return error_no_memory(err, "input \"%.*s\"", STR_ARG(source->name));
    }
    *piece = (struct piece){elements, n_bytes};
    st = picture_decode_now(part, MAX_PIXELS, &plan, source->bytes, elements, err);
    return st == ST_OK ? st : error_prefix(err, "%s", source->file);
}
