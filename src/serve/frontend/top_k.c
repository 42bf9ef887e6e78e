/* A heap holds the best k elements, the worst of them at its root; at the end it is emptied from
 * the root into the result, last place first. */
#include "serve/frontend/top_k.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "core/tensor/float16.h"

/* ---- numbers --------------------------------------------------------------------------------- */

union bits {
    uint8_t u8;
    int8_t i8;
    uint16_t u16;
    int16_t i16;
    uint32_t u32;
    int32_t i32;
    uint64_t u64;
    int64_t i64;
    float f32;
    double f64;
};

static union bits bits_at(enum datatype datatype, const char *data, size_t i) {
    union bits bits;
    size_t size = datatype_size(datatype);
    assert(data && size > 0 && size <= sizeof(bits));
    memcpy(&bits, data + i * size, size);
    return bits;
}

double top_k_value(enum datatype datatype, const char *data, size_t i) {
    union bits bits = bits_at(datatype, data, i);
    switch (datatype) {
    case DT_UINT8:
        return bits.u8;
    case DT_INT8:
        return bits.i8;
    case DT_UINT16:
        return bits.u16;
    case DT_INT16:
        return bits.i16;
    case DT_UINT32:
        return bits.u32;
    case DT_INT32:
        return bits.i32;
    case DT_UINT64:
        return (double)bits.u64;
    case DT_INT64:
        return (double)bits.i64;
    case DT_FP16:
        return half_to_float(bits.u16);
    case DT_BF16:
        return bfloat_to_float(bits.u16);
    case DT_FP32:
        return bits.f32;
    case DT_FP64:
        return bits.f64;
    case DT_BOOL:
    case DT_BYTES:
    case DT_INVALID:
    case DT_COUNT_:
        break;
    }
    return NAN;
}

/* Maps a double to an integer of the same order, for both signs; NaN is the lowest. */
static uint64_t rank_of(double value) {
    static const uint64_t SIGN = UINT64_C(1) << 63;
    if (isnan(value)) {
        return 0;
    }
    value += 0.0; /* -0 equals 0 */
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits & SIGN ? ~bits : bits | SIGN;
}

static uint64_t rank_at(enum datatype datatype, const char *data, size_t i) {
    if (datatype == DT_UINT64) {
        return bits_at(datatype, data, i).u64;
    }
    if (datatype == DT_INT64) {
        return bits_at(datatype, data, i).u64 ^ (UINT64_C(1) << 63);
    }
    return rank_of(top_k_value(datatype, data, i));
}

/* ---- the heap -------------------------------------------------------------------------------- */

static bool ranks_before(struct top_k_item one, struct top_k_item other) {
    return one.rank != other.rank ? one.rank > other.rank : one.index < other.index;
}

/* Replaces the root by `one` and restores the heap order. */
static void heap_replace_top(struct top_k_item *heap, size_t n, struct top_k_item one) {
    size_t at = 0;
    for (size_t child = 1; child < n; child = 2 * at + 1) {
        if (child + 1 < n && ranks_before(heap[child], heap[child + 1])) {
            child++;
        }
        if (!ranks_before(one, heap[child])) {
            break;
        }
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = one;
}

void top_k_find(enum datatype datatype, const char *data, size_t n, size_t max,
                struct top_k_item *out) {
    assert(max <= n);
    for (size_t i = 0; max > 0 && i < n; i++) {
        struct top_k_item one = {rank_at(datatype, data, i), i};
        if (i < max) {
            size_t at = i;
            for (; at > 0 && ranks_before(out[(at - 1) / 2], one); at = (at - 1) / 2) {
                out[at] = out[(at - 1) / 2];
            }
            out[at] = one;
        } else if (ranks_before(one, out[0])) {
            heap_replace_top(out, max, one);
        }
    }
    for (size_t left = max; left > 1; left--) {
        struct top_k_item worst = out[0];
        heap_replace_top(out, left - 1, out[left - 1]);
        out[left - 1] = worst;
    }
}
