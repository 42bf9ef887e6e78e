/* 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01. Text that a later version adds after the
 * flags is ignored; anything else that is malformed makes the whole field invalid. */
#include "codec/trace/traceparent.h"

#include "core/base/hex.h"

enum {
    TRACE_AT = 3,
    SPAN_AT = TRACE_AT + 2 * TRACE_ID_BYTES + 1,
    FLAGS_AT = SPAN_AT + 2 * SPAN_ID_BYTES + 1,
    LENGTH = FLAGS_AT + 2,
    SAMPLED = 1,
};

static bool is_zero(const unsigned char *bytes, size_t n) {
    unsigned char any = 0;
    for (size_t i = 0; i < n; i++) {
        any |= bytes[i];
    }
    return any == 0;
}

bool traceparent_parse(struct str text, struct traceparent *out) {
    unsigned char version, flags;
    const char *at = text.ptr;
    if (text.len < LENGTH || !hex_decode_lower(at, &version, 1) || version == 0xff ||
        (text.len > LENGTH && (version == 0 || at[LENGTH] != '-'))) {
        return false;
    }
    bool read = at[TRACE_AT - 1] == '-' && at[SPAN_AT - 1] == '-' && at[FLAGS_AT - 1] == '-' &&
                hex_decode_lower(at + TRACE_AT, out->trace, TRACE_ID_BYTES) &&
                hex_decode_lower(at + SPAN_AT, out->span, SPAN_ID_BYTES) &&
                hex_decode_lower(at + FLAGS_AT, &flags, 1);
    if (!read || is_zero(out->trace, TRACE_ID_BYTES) || is_zero(out->span, SPAN_ID_BYTES)) {
        return false;
    }
    out->sampled = (flags & SAMPLED) != 0;
    return true;
}

bool tracestate_is_valid(struct str text) {
    if (text.len == 0 || text.len > TRACESTATE_MAX_BYTES) {
        return false;
    }
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        if ((c < 0x20 && c != '\t') || c > 0x7e) {
            return false;
        }
    }
    return true;
}

void trace_id_fill(struct prng *prng, unsigned char *out, size_t n_bytes) {
    for (size_t i = 0; i < n_bytes; i += sizeof(uint64_t)) {
        uint64_t bits = prng_next(prng) | 1;
        memcpy(out + i, &bits, sizeof bits);
    }
}
