/* Two passes in fixed point with rounding to bytes in between, in the order of Pillow's resize,
 * which gives the same bytes. The sums of new rows are in a ring with as many slots as one old row
 * contributes to. */
#include "serve/picture/resample.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "core/base/checked.h"

enum { MAX_CHANNELS = 4, HALF = 1 << (WEIGHT_BITS - 1) };

struct resample {
    struct resample_plan plan;
    struct weights x, y;
    uint32_t n_rows; /* old rows received */
    uint32_t n_done; /* new rows delivered */
    uint32_t n_open; /* new rows started, delivered ones included */
    uint32_t n_slots;
    size_t n_samples;    /* per new row */
    int32_t *sums;       /* n_slots rows */
    uint8_t *scaled_row; /* an old row at the new width, and a new row while it is delivered */
};

static uint8_t byte_of(int32_t sum) {
    int32_t value = sum >> WEIGHT_BITS; /* arithmetic shift with gcc and clang */
    if (value < 0) {
        return 0;
    }
    return (uint8_t)(value > 255 ? 255 : value);
}

static uint32_t span_end(struct weights_span span) {
    return span.first + span.n;
}

/* The maximum number of new rows that one old row contributes to. */
static uint32_t count_slots(const struct weights *y) {
    uint32_t most = 1, open = 0;
    for (uint32_t done = 0; done < y->n_out; done++) {
        while (open < y->n_out && y->spans[open].first < span_end(y->spans[done])) {
            open++;
        }
        most = open - done > most ? open - done : most;
    }
    return most;
}

/* ---- creation -------------------------------------------------------------------------------- */

static bool resample_alloc(struct resample *resample) {
    size_t n_samples, n_sums, n_bytes;
    if (!weights_init(&resample->x, &resample->plan.x, resample->plan.filter) ||
        !weights_init(&resample->y, &resample->plan.y, resample->plan.filter)) {
        return false;
    }
    resample->n_slots = count_slots(&resample->y);
    if (!checked_mul(resample->x.n_out, resample->plan.n_channels, &n_samples) ||
        !checked_mul(n_samples, resample->n_slots, &n_sums) ||
        !checked_mul(n_sums, sizeof(*resample->sums), &n_bytes)) {
        return false;
    }
    resample->n_samples = n_samples;
    resample->sums = malloc(n_bytes);
    resample->scaled_row = malloc(n_samples);
    return resample->sums && resample->scaled_row;
}

enum status resample_new(const struct resample_plan *plan, struct resample **out,
                         struct error *err) {
    struct resample *resample = calloc(1, sizeof(*resample));
    assert(plan->n_channels == 3 || plan->n_channels == MAX_CHANNELS);
    if (resample) {
        resample->plan = *plan;
    }
    if (!resample || !resample_alloc(resample)) {
        resample_free(resample);
        return error_no_memory(
            err, "resizing a picture of %" PRIu32 " x %" PRIu32 " pixels to %" PRIu32 " x %" PRIu32,
            plan->x.n_in, plan->y.n_in, plan->x.n_out, plan->y.n_out);
    }
    *out = resample;
    return ST_OK;
}

void resample_free(struct resample *resample) {
    if (!resample) {
        return;
    }
    weights_fini(&resample->x);
    weights_fini(&resample->y);
    free(resample->sums);
    free(resample->scaled_row);
    free(resample);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* `n_channels` is a constant at each call site, so the compiler unrolls the loops over it. */
static inline __attribute__((always_inline)) void resize_row_to_width(struct resample *resample,
                                                                      const uint8_t *samples,
                                                                      const uint32_t n_channels) {
    const struct weights *x = &resample->x;
    uint8_t *out = resample->scaled_row;
    for (uint32_t i = 0; i < x->n_out; i++) {
        const int32_t *weights = weights_of(x, i);
        const uint8_t *from = samples + (size_t)x->spans[i].first * n_channels;
        uint32_t n = x->spans[i].n;
        int32_t sums[MAX_CHANNELS] = {HALF, HALF, HALF, HALF};
        for (uint32_t k = 0; k < n; k++) {
            for (uint32_t c = 0; c < n_channels; c++) {
                sums[c] += from[c] * weights[k];
            }
            from += n_channels;
        }
        for (uint32_t c = 0; c < n_channels; c++) {
            out[c] = byte_of(sums[c]);
        }
        out += n_channels;
    }
}

static void resize_row(struct resample *resample, const uint8_t *samples) {
    if (resample->plan.n_channels == 3) {
        resize_row_to_width(resample, samples, 3);
    } else {
        resize_row_to_width(resample, samples, MAX_CHANNELS);
    }
}

static int32_t *sums_of(struct resample *resample, uint32_t y) {
    return resample->sums + (y % resample->n_slots) * resample->n_samples;
}

static void open_rows(struct resample *resample) {
    const struct weights *y = &resample->y;
    while (resample->n_open < y->n_out && y->spans[resample->n_open].first <= resample->n_rows) {
        assert(resample->n_open - resample->n_done < resample->n_slots);
        int32_t *sums = sums_of(resample, resample->n_open);
        for (size_t i = 0; i < resample->n_samples; i++) {
            sums[i] = HALF;
        }
        resample->n_open++;
    }
}

static void add_row(struct resample *resample) {
    const uint8_t *scaled_row = resample->scaled_row;
    size_t n = resample->n_samples;
    for (uint32_t y = resample->n_done; y < resample->n_open; y++) {
        int32_t weight = weights_of(&resample->y, y)[resample->n_rows - resample->y.spans[y].first];
        int32_t *restrict sums = sums_of(resample, y);
        for (size_t i = 0; i < n; i++) {
            sums[i] += scaled_row[i] * weight;
        }
    }
}

static void emit_rows(struct resample *resample) {
    while (resample->n_done < resample->n_open &&
           span_end(resample->y.spans[resample->n_done]) == resample->n_rows) {
        const int32_t *sums = sums_of(resample, resample->n_done);
        for (size_t i = 0; i < resample->n_samples; i++) {
            resample->scaled_row[i] = byte_of(sums[i]);
        }
        resample->plan.row(resample->plan.user, resample->n_done, resample->scaled_row);
        resample->n_done++;
    }
}

void resample_row(struct resample *resample, const uint8_t *samples) {
    assert(resample->n_rows < resample->plan.y.n_in);
    open_rows(resample);
    if (resample->n_done < resample->n_open) {
        resize_row(resample, samples);
        add_row(resample);
    }
    resample->n_rows++;
    emit_rows(resample);
}
