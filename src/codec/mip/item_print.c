/* Tensors into items. It refuses to send what a client could not read: bytes that are no text, and
 * rows without elements in numbers that no element stands behind. */
#include "codec/mip/item.h"

#include <assert.h>
#include <inttypes.h>

#include "codec/kserve/element_print.h"
#include "codec/kserve/json.h"
#include "core/base/checked.h"
#include "core/base/utf8.h"
#include "core/tensor/bytes.h"

enum {
    FIRST_BYTES = 64,
    /* Empty rows cost a backend nothing, and their brackets would cost us: so many are printed. */
    MAX_EMPTY_ROWS = 65536,
};

static enum status check_empty_rows(const struct tensor *tensor, struct error *err) {
    struct shape shape = tensor->shape;
    uint64_t n = 1;
    for (size_t i = 0; i < shape.rank && shape.dims[i] != 0; i++) {
        if (!checked_mul_u64(n, (uint64_t)shape.dims[i], &n)) {
            n = UINT64_MAX;
            break;
        }
    }
    if (n <= MAX_EMPTY_ROWS) {
        return ST_OK;
    }
    char name[TENSOR_NAME_TEXT_BYTES], text[SHAPE_TEXT_BYTES];
    return error_set(err, ST_BAD_OUTPUT,
                     "tensor %s: shape %s has no elements and more than %d rows, which JSON would "
                     "have to list",
                     tensor_name_print(tensor->name, name), shape_print(shape, text),
                     MAX_EMPTY_ROWS);
}

/* Appends what there is at `level` of the shape, with a comma behind it. Recursion as deep as the
 * shape has dimensions. */
static enum status print_level(struct element_print *print, size_t level, struct buf *out,
                               struct error *err) {
    struct shape shape = print->tensor->shape;
    enum status status = ST_OK;
    if (level == shape.rank) {
        return element_print_next(print, out, 1, err);
    }
    buf_add_char(out, '[');
    if (level + 1 == shape.rank) {
        status = element_print_next(print, out, (uint64_t)shape.dims[level], err);
    } else {
        for (int64_t i = 0; i < shape.dims[level] && status == ST_OK && !out->failed; i++) {
            status = print_level(print, level + 1, out, err);
        }
    }
    if (!out->failed && out->data[out->len - 1] == ',') {
        out->len--;
    }
    buf_add_str(out, STR("],"));
    return status;
}

static enum status print_all(struct buf *out, const struct tensor *tensor, struct error *err) {
    struct element_print print;
    uint64_t n_elements;
    enum status status = element_print_start(&print, out->arena, tensor, "", err);
    if (status == ST_OK && !shape_elements(tensor->shape, &n_elements)) {
        char name[TENSOR_NAME_TEXT_BYTES], text[SHAPE_TEXT_BYTES];
        status = error_set(err, ST_BAD_OUTPUT, "tensor %s: %s is no shape of an output",
                           tensor_name_print(tensor->name, name), shape_print(tensor->shape, text));
    }
    if (status == ST_OK && n_elements == 0) {
        status = check_empty_rows(tensor, err);
    }
    if (status == ST_OK) {
        status = print_level(&print, 0, out, err);
    }
    if (status == ST_OK && out->failed) {
        status = error_set(err, ST_NO_MEMORY, "out of memory for an output as JSON");
    }
    return status == ST_OK ? element_print_finish(&print, err) : status;
}

enum status mip_item_print_json(struct buf *out, const struct tensor *tensor, struct error *err) {
    assert(tensor->shape.rank <= SHAPE_MAX_RANK);
    enum status status = print_all(out, tensor, err);
    if (status == ST_OK) {
        out->len--; /* the last comma */
    }
    return v2_json_output_error(status, err);
}

/* ---- items ----------------------------------------------------------------------------------- */

static enum status view_text(struct arena *arena, const struct tensor *tensor, struct str *out,
                             struct error *err) {
    char name[TENSOR_NAME_TEXT_BYTES];
    struct str rest = element_gather(arena, tensor);
    if (!rest.ptr) {
        return error_set(err, ST_NO_MEMORY, "out of memory for an output as text");
    }
    if (!bytes_next(&rest, out) || rest.len > 0) {
        return error_set(err, ST_BAD_OUTPUT, "tensor %s: %zu bytes are not one BYTES element",
                         tensor_name_print(tensor->name, name), tensor->n_bytes);
    }
    size_t good = utf8_valid_prefix(out->ptr, out->len);
    if (good < out->len) {
        return error_set(err, ST_BAD_OUTPUT,
                         "tensor %s: its element is not UTF-8 (byte %zu of %zu), which TEXT has to "
                         "be",
                         tensor_name_print(tensor->name, name), good, out->len);
    }
    return ST_OK;
}

enum status mip_item_of_tensor(struct arena *arena, const struct tensor *tensor,
                               struct mip_item *out, struct error *err) {
    uint64_t n_elements;
    if (tensor->datatype == DT_BYTES && shape_elements(tensor->shape, &n_elements) &&
        n_elements == 1) {
        out->type = MIP_TEXT;
        return view_text(arena, tensor, &out->data, err);
    }
    struct buf json;
    buf_init(&json, arena, FIRST_BYTES);
    enum status status = mip_item_print_json(&json, tensor, err);
    *out = (struct mip_item){MIP_JSON, buf_str(&json)};
    return status;
}
