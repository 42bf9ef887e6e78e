/* Builds the lookup table and converts rows with it. */
#include "serve/picture/pixels.h"

#include <math.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/tensor/float16.h"

/* ---- samples to RGB -------------------------------------------------------------------------- */

enum { RGB = 3, FOUR = 4, FULL = 255 };

/* a x b / 255, rounded. */
static uint8_t product(unsigned a, unsigned b) {
    unsigned x = a * b + 128;
    return (uint8_t)((x + (x >> 8)) >> 8);
}

void samples_drop_alpha(const uint8_t *rgba, size_t n, uint8_t *rgb) {
    for (size_t i = 0; i < n; i++) {
        rgb[0] = rgba[0];
        rgb[1] = rgba[1];
        rgb[2] = rgba[2];
        rgba += FOUR;
        rgb += RGB;
    }
}

void samples_multiply(const uint8_t *rgba, size_t n, uint8_t *multiplied) {
    for (size_t i = 0; i < n; i++) {
        for (int c = 0; c < RGB; c++) {
            multiplied[c] = product(rgba[c], rgba[3]);
        }
        multiplied[3] = rgba[3];
        rgba += FOUR;
        multiplied += FOUR;
    }
}

void samples_divide(const uint8_t *multiplied, size_t n, uint8_t *rgb) {
    for (size_t i = 0; i < n; i++) {
        unsigned alpha = multiplied[3];
        for (int c = 0; c < RGB; c++) {
            unsigned value = alpha == 0 ? multiplied[c] : multiplied[c] * FULL / alpha;
            rgb[c] = (uint8_t)(value < FULL ? value : FULL);
        }
        multiplied += FOUR;
        rgb += RGB;
    }
}

void samples_from_cmyk(const uint8_t *cmyk, size_t n, uint8_t *rgb) {
    for (size_t i = 0; i < n; i++) {
        unsigned light = FULL - cmyk[3];
        for (int c = 0; c < RGB; c++) {
            rgb[c] = product((unsigned)(FULL - cmyk[c]), light);
        }
        cmyk += FOUR;
        rgb += RGB;
    }
}

/* ---- RGB to elements ------------------------------------------------------------------------- */

static uint32_t count_channels(const struct picture_plan *plan) {
    return plan->color == PICTURE_GREY ? 1 : 3;
}

bool picture_plan_bytes(const struct picture_plan *plan, size_t *n_bytes) {
    size_t n = 0;
    bool fits = checked_mul(plan->width, plan->height, &n) &&
                checked_mul(n, count_channels(plan), &n) &&
                checked_mul(n, datatype_size(plan->datatype), &n);
    *n_bytes = n;
    return fits && n > 0;
}

/* Rounds half away from zero and clamps to `bits` bits; NaN becomes 0. */
static uint64_t clamp_to_bits(double value, unsigned bits, bool is_signed) {
    double below = is_signed ? -ldexp(1, (int)bits - 1) : 0;  /* minimum */
    double above = ldexp(1, (int)bits - (is_signed ? 1 : 0)); /* maximum + 1 */
    double rounded = round(value);
    uint64_t most = UINT64_MAX >> (64 - bits + (is_signed ? 1 : 0));
    if (isnan(value)) {
        return 0;
    }
    if (rounded >= above) {
        return most;
    }
    if (rounded < below) {
        rounded = below;
    }
    return rounded < 0 ? (uint64_t)(int64_t)rounded : (uint64_t)rounded;
}

static uint64_t float_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static uint64_t double_bits(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static uint64_t element_of(enum datatype datatype, double value) {
    switch (datatype) {
    case DT_BOOL:
        return clamp_to_bits(value, 1, false);
    case DT_UINT8:
    case DT_UINT16:
    case DT_UINT32:
    case DT_UINT64:
        return clamp_to_bits(value, (unsigned)datatype_size(datatype) * 8, false);
    case DT_INT8:
    case DT_INT16:
    case DT_INT32:
    case DT_INT64:
        return clamp_to_bits(value, (unsigned)datatype_size(datatype) * 8, true);
    case DT_FP16:
        return half_from_double(value);
    case DT_BF16:
        return bfloat_from_double(value);
    case DT_FP32:
        return float_bits((float)value);
    case DT_FP64:
        return double_bits(value);
    case DT_INVALID:
    case DT_BYTES:
    case DT_COUNT_:
        break;
    }
    return 0;
}

void normalise_init(struct normalise *normalise, const struct picture_plan *plan) {
    size_t n_pixels = (size_t)plan->width * plan->height;
    bool planes = plan->layout == PICTURE_NCHW;
    normalise->plan = plan;
    normalise->n_channels = count_channels(plan);
    normalise->element_bytes = datatype_size(plan->datatype);
    normalise->channel_step = planes ? n_pixels : 1;
    normalise->pixel_step = planes ? 1 : normalise->n_channels;
    for (uint32_t c = 0; c < normalise->n_channels; c++) {
        for (int i = 0; i < 256; i++) {
            double value = (i * plan->scale - plan->mean[c]) / plan->std[c];
            normalise->table[c][i] = element_of(plan->datatype, value);
        }
    }
}

/* ITU-R BT.601 in 16 bits of fixed point, rounded. */
static uint8_t grey_of(const uint8_t *rgb) {
    return (uint8_t)((rgb[0] * 19595u + rgb[1] * 38470u + rgb[2] * 7471u + 0x8000u) >> 16);
}

/* Converts one channel: bytes `from_step` apart to elements `to_step` apart, each through the
 * table. */
#define STORE_CHANNEL(type)                                                                        \
    for (uint32_t i = 0; i < n; i++) {                                                             \
        ((type *)out)[i * to_step] = (type)table[from[i * from_step]];                             \
    }
static void store_channel(void *out, size_t to_step, const uint8_t *from, size_t from_step,
                          uint32_t n, const uint64_t table[256], size_t element_bytes) {
    switch (element_bytes) {
    case 1:
        STORE_CHANNEL(uint8_t)
        break;
    case 2:
        STORE_CHANNEL(uint16_t)
        break;
    case 4:
        STORE_CHANNEL(uint32_t)
        break;
    default:
        STORE_CHANNEL(uint64_t)
        break;
    }
}
#undef STORE_CHANNEL

static char *element_at(const struct normalise *normalise, void *out, uint32_t x, uint32_t y,
                        uint32_t channel) {
    size_t pixel = (size_t)y * normalise->plan->width + x;
    size_t index = pixel * normalise->pixel_step + channel * normalise->channel_step;
    return (char *)out + index * normalise->element_bytes;
}

void normalise_row(const struct normalise *normalise, void *out, uint32_t x, uint32_t y, uint32_t n,
                   const uint8_t *rgb) {
    if (normalise->plan->color == PICTURE_GREY) {
        for (uint32_t i = 0; i < n; i++) {
            uint8_t grey = grey_of(rgb + (size_t)i * 3);
            store_channel(element_at(normalise, out, x + i, y, 0), 1, &grey, 1, 1,
                          normalise->table[0], normalise->element_bytes);
        }
        return;
    }
    bool turned = normalise->plan->color == PICTURE_BGR;
    for (uint32_t c = 0; c < 3; c++) {
        store_channel(element_at(normalise, out, x, y, c), normalise->pixel_step,
                      rgb + (turned ? 2 - c : c), 3, n, normalise->table[c],
                      normalise->element_bytes);
    }
}

void normalise_pad(const struct normalise *normalise, void *out) {
    const struct picture_plan *plan = normalise->plan;
    for (uint32_t c = 0; c < normalise->n_channels; c++) {
        for (uint32_t y = 0; y < plan->height; y++) {
            store_channel(element_at(normalise, out, 0, y, c), normalise->pixel_step, &plan->pad, 0,
                          plan->width, normalise->table[c], normalise->element_bytes);
        }
    }
}
