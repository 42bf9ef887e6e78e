/* The scan for token counts: the first byte selects the splits, which make no difference, and the
 * format. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "codec/prompt/usage_scan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0 || size > USAGE_SCAN_BYTES) {
        return 0;
    }
    struct str body = str_make((const char *)data + 1, size - 1);
    enum prompt_format format = (enum prompt_format)((data[0] >> 4) % (PROMPT_OF_VERTEX + 1));
    struct usage_scan whole = {.format = format}, pieces = {.format = format};
    size_t step = data[0] % 16 + 1;
    usage_scan_feed(&whole, body);
    for (size_t at = 0; at < body.len; at += step) {
        size_t n = body.len - at < step ? body.len - at : step;
        usage_scan_feed(&pieces, str_make(body.ptr + at, n));
    }
    assert(whole.n_input == pieces.n_input && whole.n_output == pieces.n_output);
    assert(whole.n_cached == pieces.n_cached && whole.has_cached == pieces.has_cached);
    assert(whole.state == pieces.state && whole.n_matched == pieces.n_matched);
    assert(whole.walk.result == pieces.walk.result && whole.walk.depth == pieces.walk.depth);
    return 0;
}
