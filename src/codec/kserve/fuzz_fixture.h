/* Helpers for the fuzzers of the v2 codec and of codecs that share its data types. */
#ifndef SLUICE_CODEC_KSERVE_FUZZ_FIXTURE_H
#define SLUICE_CODEC_KSERVE_FUZZ_FIXTURE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/kserve/v2_fixture.h"

/* For our own output, which may be larger than the input. */
static const struct json_limits fuzz_limits = {
    .max_json_size = 1 << 26, .max_json_depth = 1000, .max_tensor_elements = 1 << 26};

static inline void check(bool holds, const struct error *err) {
    if (!holds) {
        fprintf(stderr, "%s\n", err->text);
        __builtin_trap();
    }
}

/* An input is JSON, a NUL, tensor bytes. Returns: a copy without the NUL, with exact bounds for
 * the address sanitizer. Owns: the caller frees it. */
static inline char *fuzz_body(const uint8_t *data, size_t size, size_t *json_bytes,
                              size_t *n_bytes) {
    const uint8_t *nul = size > 0 ? memchr(data, 0, size) : NULL;
    *json_bytes = nul ? (size_t)(nul - data) : size;
    *n_bytes = size - (nul != NULL);
    size_t after = *n_bytes - *json_bytes;
    char *body = malloc(*n_bytes + (*n_bytes == 0));
    memcpy(body, data, *json_bytes);
    memcpy(body + *json_bytes, data + size - after, after);
    return body;
}

#endif
