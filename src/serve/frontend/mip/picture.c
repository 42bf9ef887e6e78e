/* The plan of a picture input, from its shape and settings. */
#include "serve/frontend/mip/plan.h"

#include "core/base/plural.h"

/* The indices of a picture's dimensions. */
struct axes {
    size_t height, width;
    size_t channels; /* NO_AXIS: no such dimension, one channel */
};

static const size_t NO_AXIS = SIZE_MAX;

/* A channel dimension of -1 needs a layout in the settings. */
static bool fits_layout(int64_t dim, bool said) {
    return dim == 1 || dim == 3 || (said && dim == -1);
}

static enum status error_not_a_picture(struct shape dims, struct error *err) {
    char text[SHAPE_TEXT_BYTES];
    return error_set(err, ST_UNSUPPORTED,
                     "its shape %s is not that of a picture: expected [H,W], [C,H,W] or [H,W,C] "
                     "with 1 or 3 channels C",
                     shape_print(dims, text));
}

static enum status find_axes(struct shape dims, enum mip_layout layout, struct axes *out,
                             enum picture_layout *found, struct error *err) {
    size_t front = 0; /* leading dimensions of 1 or -1 beyond three */
    while (dims.rank - front > 3 && (dims.dims[front] == 1 || dims.dims[front] == -1)) {
        front++;
    }
    const int64_t *d = dims.dims + front;
    *found = layout == MIP_LAYOUT_NHWC ? PICTURE_NHWC : PICTURE_NCHW;
    if (dims.rank == 2) {
        *out = (struct axes){0, 1, NO_AXIS};
        return ST_OK;
    }
    if (dims.rank < 2 || dims.rank - front != 3) {
        return error_not_a_picture(dims, err);
    }
    bool said = layout != MIP_LAYOUT_AUTO;
    if (layout != MIP_LAYOUT_NHWC && fits_layout(d[0], said)) {
        *found = PICTURE_NCHW;
        *out = (struct axes){front + 1, front + 2, front};
    } else if (layout != MIP_LAYOUT_NCHW && fits_layout(d[2], said)) {
        *found = PICTURE_NHWC;
        *out = (struct axes){front, front + 1, front + 2};
    } else {
        return error_not_a_picture(dims, err);
    }
    return ST_OK;
}

static enum status choose_color(int64_t channels, const struct mip_settings *settings,
                                enum picture_color *out, struct error *err) {
    *out = settings->has_color ? settings->color : channels == 1 ? PICTURE_GREY : PICTURE_RGB;
    int64_t needed = *out == PICTURE_GREY ? 1 : PICTURE_MAX_CHANNELS;
    if (channels == -1 || channels == needed) {
        return ST_OK;
    }
    return error_set(err, ST_UNSUPPORTED, "%s needs %lld channel%s, its shape has %lld",
                     mip_color_name(*out), (long long)needed, plural_s((uint64_t)needed),
                     (long long)channels);
}

/* One side of the picture: from the shape, or from the settings where the shape has -1. */
static enum status choose_side(const char *side, int64_t dim, uint32_t said, const char *prefix,
                               uint32_t *out, struct error *err) {
    if (dim == -1 && said == 0) {
        return error_set(err, ST_UNSUPPORTED,
                         "its shape does not set the %s of a picture; set %ssize", side, prefix);
    }
    if (dim != -1 && said != 0 && dim != (int64_t)said) {
        return error_set(err, ST_UNSUPPORTED, "%ssize makes the %s %u, its shape has %lld", prefix,
                         side, said, (long long)dim);
    }
    if (dim == 0 || dim > UINT16_MAX) {
        return error_set(err, ST_UNSUPPORTED, "a picture cannot have a %s of %lld", side,
                         (long long)dim);
    }
    *out = dim == -1 ? said : (uint32_t)dim;
    return ST_OK;
}

/* Expands one number to all channels. */
static enum status expand_per_channel(const char *prefix, const char *name,
                                      const struct mip_per_channel *from, size_t channels,
                                      double *out, struct error *err) {
    if (from->n > channels) {
        return error_set(err, ST_UNSUPPORTED, "%s%s has %zu numbers, for one channel", prefix, name,
                         from->n);
    }
    for (size_t i = 0; i < PICTURE_MAX_CHANNELS; i++) {
        out[i] = from->values[from->n == 1 ? 0 : i];
    }
    return ST_OK;
}

static enum status set_pixel_numbers(const struct mip_settings *settings, struct picture_plan *out,
                                     struct error *err) {
    size_t channels = out->color == PICTURE_GREY ? 1 : PICTURE_MAX_CHANNELS;
    out->fit = settings->fit;
    out->filter = settings->filter;
    out->scale = settings->scale;
    out->pad = settings->pad;
    enum status st =
        expand_per_channel(settings->prefix, "mean", &settings->mean, channels, out->mean, err);
    return st == ST_OK ? expand_per_channel(settings->prefix, "std", &settings->std, channels,
                                            out->std, err)
                       : st;
}

enum status mip_picture_plan(enum datatype datatype, struct shape dims,
                             const struct mip_settings *settings, struct picture_plan *out,
                             int64_t *out_dims, struct error *err) {
    struct axes axes = {0};
    *out = (struct picture_plan){.datatype = datatype};
    if (datatype == DT_BOOL || datatype == DT_BYTES) {
        return error_set(err, ST_UNSUPPORTED, "%s is not a datatype for the values of a picture",
                         datatype_name(datatype));
    }
    if (find_axes(dims, settings->layout, &axes, &out->layout, err) != ST_OK) {
        return err->status;
    }
    int64_t channels = axes.channels == NO_AXIS ? 1 : dims.dims[axes.channels];
    if (choose_color(channels, settings, &out->color, err) != ST_OK ||
        choose_side("height", dims.dims[axes.height], settings->height, settings->prefix,
                    &out->height, err) != ST_OK ||
        choose_side("width", dims.dims[axes.width], settings->width, settings->prefix, &out->width,
                    err) != ST_OK ||
        set_pixel_numbers(settings, out, err) != ST_OK) {
        return err->status;
    }
    for (size_t i = 0; i < dims.rank; i++) {
        out_dims[i] = dims.dims[i] == -1 ? 1 : dims.dims[i];
    }
    out_dims[axes.height] = out->height;
    out_dims[axes.width] = out->width;
    if (axes.channels != NO_AXIS) {
        out_dims[axes.channels] = out->color == PICTURE_GREY ? 1 : PICTURE_MAX_CHANNELS;
    }
    return ST_OK;
}
