/* MIP packets, decoded as a request and as a response: valid ones encode to the same bytes. Each
 * item is read into some datatypes and shapes, which the header's reserved byte selects; a valid
 * item fits its tensor, is printed, and reads back to the same bytes. */
#include <stdio.h>
#include <stdlib.h>

#include "codec/kserve/fuzz_fixture.h"
#include "codec/mip/item.h"
#include "core/tensor/bytes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- packets --------------------------------------------------------------------------------- */

static void check_header(const char *bytes, struct mip_header *header) {
    char back[MIP_HEADER_BYTES];
    struct error err = {0};
    mip_header_decode(bytes, header);
    mip_header_encode(header, back);
    check(memcmp(bytes, back, sizeof(back)) == 0, &err);
    enum status status = mip_header_check_request(header, &err);
    check(status == err.status && (status == ST_OK) == (err.text[0] == '\0'), &err);
}

static void reencode_packet(struct arena *arena, const struct mip_infer *infer, bool response,
                            struct str payload) {
    char head[MIP_HEADER_BYTES + MIP_COUNTS_BYTES], item[MIP_ITEM_HEAD_BYTES];
    struct buf out;
    struct error err = {0};
    uint32_t n_bytes;
    check(mip_infer_size(infer, response, &n_bytes, &err) == ST_OK, &err);
    mip_infer_head_encode(infer, response, n_bytes, head);
    buf_init(&out, arena, n_bytes);
    buf_add(&out, head + MIP_HEADER_BYTES, MIP_COUNTS_BYTES);
    for (size_t i = 0; i < infer->n_items; i++) {
        mip_item_head_encode(&infer->items[i], item);
        buf_add(&out, item, sizeof(item));
        buf_add_str(&out, infer->items[i].data);
    }
    check(n_bytes == payload.len && str_eq(buf_str(&out), payload), &err);
}

/* ---- items ----------------------------------------------------------------------------------- */

enum { MAX_RANK = 4, MAX_ITEMS = 8, READINGS = 4 };

static const struct {
    size_t rank;
    int64_t dims[MAX_RANK];
} shapes[] = {
    {0, {0}},
    {1, {-1}},
    {1, {1}},
    {1, {2}},
    {1, {0}},
    {2, {2, 2}},
    {2, {-1, 2}},
    {2, {2, -1}},
    {2, {-1, -1}},
    {3, {1, -1, 2}},
    {3, {-1, -1, -1}},
    {3, {2, 1, -1}},
    {2, {0, INT64_MAX}},
    {3, {-1, INT64_MAX, 3}},
    {4, {-1, 1, 1, -1}},
};

enum { N_SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

static void check_tensor(const struct tensor *tensor, struct shape dims) {
    struct error err = {0};
    uint64_t n_elements, n_bytes;
    check(shape_matches(tensor->shape, dims) && tensor->n_pieces == 1, &err);
    check(shape_elements(tensor->shape, &n_elements), &err);
    if (tensor->datatype == DT_BYTES) {
        struct str all = str_make(tensor->pieces[0].data, tensor->n_bytes);
        check(bytes_check(all, n_elements, tensor->name, &err) == ST_OK, &err);
    } else {
        check(shape_bytes(tensor->shape, tensor->datatype, &n_bytes), &err);
        check(tensor->n_bytes == n_bytes, &err);
    }
}

static enum status read_item(struct arena *arena, const struct mip_item *item,
                             enum datatype datatype, struct shape dims,
                             const struct json_limits *limits, struct tensor *out,
                             struct error *err) {
    *out = (struct tensor){.name = STR("x")};
    char *exact = malloc(item->data.len + (item->data.len == 0));
    memcpy(exact, item->data.ptr, item->data.len);
    struct str text = str_make(exact, item->data.len);
    enum status status =
        item->type == MIP_TEXT
            ? mip_item_read_text(arena, text, "x", datatype, dims, limits, out, err)
            : mip_item_read_json(arena, text, "x", datatype, dims, limits, out, err);
    free(exact);
    return status;
}

static void roundtrip_tensor(struct arena *arena, const struct tensor *tensor) {
    struct mip_item item;
    struct tensor back;
    struct error err = {0};
    enum status status = mip_item_of_tensor(arena, tensor, V2_NON_FINITE_WORDS, &item, &err);
    if (status == ST_BAD_OUTPUT) { /* very many empty rows */
        check(tensor->n_bytes == 0, &err);
        return;
    }
    check(status == ST_OK, &err);
    check(read_item(arena, &item, tensor->datatype, tensor->shape, &fuzz_limits, &back, &err) ==
              ST_OK,
          &err);
    check(shape_eq(back.shape, tensor->shape) && back.n_bytes == tensor->n_bytes, &err);
    check(memcmp(back.pieces[0].data, tensor->pieces[0].data, back.n_bytes) == 0, &err);
}

static void check_item(struct arena *arena, const struct mip_item *item, unsigned choice) {
    for (unsigned i = 0; i < READINGS; i++, choice += 67) {
        enum datatype datatype = (enum datatype)(1 + choice % (DT_COUNT_ - 1));
        size_t which = choice / (DT_COUNT_ - 1) % N_SHAPES;
        struct shape dims = {shapes[which].dims, shapes[which].rank};
        struct tensor tensor;
        struct error err = {0};
        enum status status = read_item(arena, item, datatype, dims, &fixture_limits, &tensor, &err);
        check(status == err.status && (status == ST_OK) == (err.text[0] == '\0'), &err);
        if (status == ST_OK) {
            check_tensor(&tensor, dims);
            roundtrip_tensor(arena, &tensor);
        }
    }
}

static void check_payload(struct str payload, bool response, unsigned choice) {
    struct arena *arena = arena_new(NULL, 0);
    struct mip_infer infer;
    struct error err = {0};
    enum status status = mip_infer_decode(arena, payload, response, &infer, &err);
    check(status == err.status && (status == ST_OK) == (err.text[0] == '\0'), &err);
    if (status == ST_OK) {
        reencode_packet(arena, &infer, response, payload);
        for (size_t i = 0; i < infer.n_items && i < MAX_ITEMS; i++) {
            check_item(arena, &infer.items[i], choice + (unsigned)i);
        }
    }
    arena_free(arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < MIP_HEADER_BYTES) {
        return 0;
    }
    struct mip_header header;
    size_t n_bytes = size - MIP_HEADER_BYTES; /* independent of the header */
    char *payload = malloc(n_bytes + (n_bytes == 0));
    memcpy(payload, data + MIP_HEADER_BYTES, n_bytes);
    check_header((const char *)data, &header);
    check_payload(str_make(payload, n_bytes), false, header.reserved);
    check_payload(str_make(payload, n_bytes), true, header.reserved);
    free(payload);
    return 0;
}
