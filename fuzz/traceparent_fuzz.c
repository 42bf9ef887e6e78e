/* traceparent: a valid one is written the same way again, as far as version 0 defines it. */
#include <stdio.h>
#include <string.h>

#include "codec/trace/traceparent.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds) {
    if (!holds) {
        __builtin_trap();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct str text = str_make((const char *)data, size);
    struct traceparent got;
    char again[64];
    size_t n = 3;
    check(!tracestate_is_valid(text) || (size > 0 && size <= TRACESTATE_MAX_BYTES));
    if (!traceparent_parse(text, &got)) {
        return 0;
    }
    for (size_t i = 0; i < TRACE_ID_BYTES; i++) {
        n += (size_t)snprintf(again + n, sizeof again - n, "%02x", got.trace[i]);
    }
    again[n++] = '-';
    for (size_t i = 0; i < SPAN_ID_BYTES; i++) {
        n += (size_t)snprintf(again + n, sizeof again - n, "%02x", got.span[i]);
    }
    check(n == 52 && size >= 55 && memcmp(text.ptr + 3, again + 3, n - 3) == 0);
    return 0;
}
