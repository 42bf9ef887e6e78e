/* Tensor data as one flat JSON array. */
#include "codec/kserve/data_print.h"

#include "codec/kserve/element_print.h"

static const char advice[] = "; the parameter \"binary_data\": true asks for it as bytes";

enum status v2_data_print(struct buf *out, const struct tensor *tensor, struct error *err) {
    struct element_print print;
    uint64_t n;
    enum status status = element_print_start(&print, out->arena, tensor, advice, err);
    if (status != ST_OK) {
        return status;
    }
    if (!shape_elements(tensor->shape, &n)) {
        n = UINT64_MAX; /* BYTES of an impossible shape: so many are not there */
    }
    buf_add_char(out, '[');
    size_t start = out->len;
    status = element_print_next(&print, out, n, err);
    if (status == ST_OK) {
        status = element_print_finish(&print, err);
    }
    if (status != ST_OK) {
        return status;
    }
    if (!out->failed && out->len > start) {
        out->data[out->len - 1] = ']'; /* in place of the last comma */
    } else {
        buf_add_char(out, ']');
    }
    return out->failed ? error_set(err, ST_NO_MEMORY, "out of memory for the data as JSON") : ST_OK;
}
