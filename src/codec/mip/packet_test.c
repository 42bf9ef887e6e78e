/* Invalid packets, each with one error and its text; packets at the limits of their counts;
 * packets for which nothing is allocated. */
#include "codec/mip/packet.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/buf.h"

static void mip_error_name_unknown_code_is_unknown(void **state) {
    static const char *const names[] = {"PROTOCOL", "SUBTYPE", "METHOD",
                                        "MEMORY",   "SHAPE",   "INTERNAL"};
    (void)state;
    for (unsigned i = 0; i < MIP_ERRORS; i++) {
        assert_string_equal(mip_error_name(i), names[i]);
    }
    assert_string_equal(mip_error_name(MIP_ERRORS), "unknown");
    assert_string_equal(mip_error_name(255), "unknown");
    assert_string_equal(mip_error_name(UINT32_MAX), "unknown");
}

/* ---- headers --------------------------------------------------------------------------------- */

static void mip_header_roundtrips(void **state) {
    static const char bytes[] = "\xff\x80\x01\x7f\x80\x02\xfe\x04";
    struct mip_header header;
    char back[MIP_HEADER_BYTES];
    (void)state;
    mip_header_decode(bytes, &header);
    assert_int_equal(header.version, 0xff);
    assert_int_equal(header.kind, 0x80);
    assert_int_equal(header.subtype, 1);
    assert_int_equal(header.reserved, 0x7f);
    assert_int_equal(header.n_bytes, 0x8002fe04);
    mip_header_encode(&header, back);
    assert_memory_equal(bytes, back, sizeof(back));
}

/* Version, subtype, kind: the first invalid one is reported. */
static void mip_header_check_request_reports_first_error(void **state) {
    static const struct {
        struct mip_header header;
        enum status status;
        const char *sentence;
    } rows[] = {
        {{0, MIP_PING, MIP_REQUEST, 0, 0}, ST_OK, ""},
        {{0, MIP_PING, MIP_REQUEST, 255, 0}, ST_OK, ""}, /* reserved is ignored */
        {{0, MIP_INFER, MIP_REQUEST, 0, 4}, ST_OK, ""},
        {{0, MIP_INFER, MIP_REQUEST, 9, UINT32_MAX}, ST_OK, ""},
        {{1, MIP_PING, MIP_REQUEST, 0, 0}, ST_BAD_VERSION, "expected MIP version 0, got 1"},
        {{255, 9, 9, 9, 9}, ST_BAD_VERSION, "got 255"},
        {{0, MIP_PING, MIP_RESPONSE, 0, 0},
         ST_BAD_SUBTYPE,
         "expected a packet of subtype 0 (request), got 1"},
        {{0, 9, 5, 0, 9}, ST_BAD_SUBTYPE, "got 5"},
        {{0, MIP_ERROR, MIP_ERROR_SHAPE, 0, 0}, ST_BAD_SUBTYPE, "got 4"},
        {{0, MIP_ERROR, 0, 0, 0},
         ST_BAD_KIND,
         "expected a packet of kind 1 (ping) or 2 (inference), got 0"},
        {{0, 3, MIP_REQUEST, 0, 9}, ST_BAD_KIND, "got 3"},
        {{0, 255, MIP_REQUEST, 0, 0}, ST_BAD_KIND, "got 255"},
        {{0, MIP_PING, MIP_REQUEST, 0, 1},
         ST_BAD_FRAMING,
         "expected a ping without payload, got 1 bytes of it"},
        {{0, MIP_PING, MIP_REQUEST, 0, UINT32_MAX}, ST_BAD_FRAMING, "got 4294967295 bytes"},
        {{0, MIP_INFER, MIP_REQUEST, 0, 0},
         ST_BAD_FRAMING,
         "expected an inference with at least 4 bytes of payload, got 0"},
        {{0, MIP_INFER, MIP_REQUEST, 0, 3}, ST_BAD_FRAMING, "got 3"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct error err = {0};
        enum status status = mip_header_check_request(&rows[i].header, &err);
        if (status != rows[i].status || !strstr(err.text, rows[i].sentence)) {
            fail_msg("row %zu: %s %s", i, status_name(status), err.text);
        }
        assert_int_equal(mip_header_check_request(&rows[i].header, NULL), status);
    }
}

/* ---- payloads -------------------------------------------------------------------------------- */

enum { REQUEST = false, RESPONSE = true };

static enum status decode(struct arena *arena, struct str payload, bool response,
                          struct mip_infer *out, struct error *err) {
    char *exact = malloc(payload.len + (payload.len == 0));
    memcpy(exact, payload.ptr, payload.len);
    enum status status = mip_infer_decode(arena, str_make(exact, payload.len), response, out, err);
    /* The error is optional. */
    assert_int_equal(mip_infer_decode(arena, str_make(exact, payload.len), response, out, NULL),
                     status);
    free(exact);
    return status;
}

#define ROW(response, payload, sentence)                                                           \
    { response, {payload, sizeof(payload) - 1}, sentence }

static void mip_infer_decode_inconsistent_payload_is_refused(void **state) {
    static const struct {
        bool response;
        struct str payload;
        const char *sentence;
    } rows[] = {
        ROW(REQUEST, "", "at least 4 bytes of payload, got 0"),
        ROW(REQUEST, "\1\0\0", "at least 4 bytes of payload, got 3"),
        ROW(REQUEST, "\1\0\0\0", "expected a batch size from 1 to 65535, got 0"),
        ROW(REQUEST, "\0\0\0\0", "batch size"),
        ROW(RESPONSE, "\1\1\0\0", "expected a batch size from 1 to 65535, got 0"),
        ROW(REQUEST, "\0\1\0\1\0\0\0\1\0\0\0\0", "expected 1 to 255 inputs, got 0"),
        /* no item, half a head, a head without all of its bytes */
        ROW(REQUEST, "\1\0\0\1",
            "item 0 of 1 (batch element 0, input 0): expected 8 bytes of type and size, got 0"),
        ROW(REQUEST, "\1\0\0\1\0\0\0\1\0\0\0",
            "item 0 of 1 (batch element 0, input 0): expected 8 bytes of type and size, got 7"),
        ROW(REQUEST, "\1\0\0\1\0\0\0\1\0\0\0\2x",
            "item 0 of 1 (batch element 0, input 0): expected 2 bytes of data, got 1"),
        ROW(REQUEST, "\1\0\0\1\0\0\0\1\xff\xff\xff\xffxyz", "expected 4294967295 bytes of data"),
        ROW(REQUEST, "\1\0\0\1\0\0\0\1\x80\0\0\0xyz", "expected 2147483648 bytes of data, got 3"),
        /* the second of two: by its element and by its input */
        ROW(REQUEST, "\1\0\0\2\0\0\0\1\0\0\0\1x",
            "item 1 of 2 (batch element 1, input 0): expected 8 bytes of type and size, got 0"),
        ROW(REQUEST, "\2\0\0\1\0\0\0\1\0\0\0\1x\0\0\0\1\0\0\0\2y",
            "item 1 of 2 (batch element 0, input 1): expected 2 bytes of data, got 1"),
        /* an item that contains the next one's head */
        ROW(REQUEST, "\2\0\0\1\0\0\0\1\0\0\0\6x\0\0\0\1\0\0\0\0",
            "item 1 of 2 (batch element 0, input 1): expected 8 bytes of type and size, got 3"),
        ROW(REQUEST, "\1\0\0\1\0\0\0\1\0\0\0\1xy",
            "expected a payload of 1 items, got 1 bytes more after them"),
        ROW(REQUEST, "\1\0\0\1\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0\0", "got 8 bytes more"),
        /* a response has items for outputs only, */
        ROW(RESPONSE, "\2\1\0\1\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0\0",
            "expected a payload of 1 items, got 8 bytes more"),
        ROW(RESPONSE, "\1\2\0\1\0\0\0\1\0\0\0\0",
            "item 1 of 2 (batch element 0, output 1): expected 8 bytes of type and size, got 0"),
        ROW(RESPONSE, "\1\0\0\1\0\0\0\1\0\0\0\0", "expected a payload of 0 items, got 8 bytes"),
        /* a request for inputs only */
        ROW(REQUEST, "\1\2\0\1\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0\0", "got 8 bytes more"),
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct mip_infer infer;
        struct error err = {0};
        enum status status = decode(arena, rows[i].payload, rows[i].response, &infer, &err);
        if (status != ST_BAD_FRAMING || err.status != status ||
            !strstr(err.text, rows[i].sentence)) {
            fail_msg("row %zu: %s %s", i, status_name(status), err.text);
        }
        arena_free(arena);
    }
}

/* The counts exceed the payload: nothing is allocated. */
static void mip_infer_decode_missing_items_allocate_nothing(void **state) {
    enum { ITEMS = 255 * 65535, PAYLOAD = 1000 };
    char *payload = calloc(1, PAYLOAD);
    (void)state;
    memcpy(payload, "\xff\xff\xff\xff", 4);
    for (int response = 0; response <= 1; response++) {
        struct arena *arena = arena_new(NULL, 4096);
        size_t before = arena_bytes(arena);
        struct mip_infer infer;
        struct error err = {0};
        assert_int_equal(
            mip_infer_decode(arena, str_make(payload, PAYLOAD), response != 0, &infer, &err),
            ST_BAD_FRAMING);
        assert_int_equal(infer.n_items, ITEMS);
        assert_non_null(strstr(err.text, "item 124 of 16711425"));
        assert_int_equal(arena_bytes(arena), before);
        arena_free(arena);
    }
    free(payload);
}

/* All heads fit the payload, but not the memory. */
static void mip_infer_decode_out_of_memory_is_reported(void **state) {
    enum { N = 65535 };
    size_t n_bytes = MIP_COUNTS_BYTES + N * MIP_ITEM_HEAD_BYTES;
    char *payload = calloc(1, n_bytes);
    struct arena *arena = arena_new(NULL, 4096);
    struct mip_infer infer;
    struct error err = {0};
    (void)state;
    memcpy(payload, "\1\0\xff\xff", 4);
    assert_int_equal(mip_infer_decode(arena, str_make(payload, n_bytes), false, &infer, &err),
                     ST_NO_MEMORY);
    assert_string_equal(err.text, "out of memory for 65535 items");
    arena_free(arena);
    free(payload);
}

/* Unknown item types are preserved; empty items are valid. */
static void mip_infer_decode_unknown_item_types_are_kept(void **state) {
    static const char payload[] = "\4\0\0\1"
                                  "\0\0\0\0\0\0\0\1a"
                                  "\0\0\0\3\0\0\0\0"
                                  "\x80\0\0\2\0\0\0\2bc"
                                  "\xff\xff\xff\xff\0\0\0\1d";
    static const struct {
        uint32_t type;
        const char *data;
    } items[] = {{0, "a"}, {MIP_IMAGE, ""}, {0x80000002, "bc"}, {UINT32_MAX, "d"}};
    struct arena *arena = arena_new(NULL, 0);
    struct mip_infer infer;
    struct error err = {0};
    (void)state;
    assert_int_equal(
        mip_infer_decode(arena, str_make(payload, sizeof(payload) - 1), false, &infer, &err),
        ST_OK);
    assert_int_equal(infer.n_items, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(infer.items[i].type, items[i].type);
        assert_true(str_is(infer.items[i].data, items[i].data));
        assert_true(infer.items[i].data.ptr >= payload); /* a view */
        assert_true(infer.items[i].data.ptr < payload + sizeof(payload));
    }
    arena_free(arena);
}

/* Counts that a peer may send although this implementation does not. */
static void mip_infer_decode_unusual_counts_are_accepted(void **state) {
    static const char request[] = "\1\7\0\1\0\0\0\1\0\0\0\0"; /* outputs, in a request */
    static const char response[] = "\0\0\0\5";                /* of a model without outputs */
    struct arena *arena = arena_new(NULL, 0);
    struct mip_infer infer;
    struct error err = {0};
    (void)state;
    assert_int_equal(mip_infer_decode(arena, str_make(request, 12), false, &infer, &err), ST_OK);
    assert_int_equal(infer.n_outputs, 7);
    assert_int_equal(infer.n_items, 1);
    assert_int_equal(mip_infer_decode(arena, str_make(response, 4), true, &infer, &err), ST_OK);
    assert_int_equal(infer.batch, 5);
    assert_int_equal(infer.n_items, 0);
    arena_free(arena);
}

/* ---- writing --------------------------------------------------------------------------------- */

static struct str encode(struct arena *arena, const struct mip_infer *infer, bool response) {
    struct buf out;
    struct error err = {0};
    char head[MIP_HEADER_BYTES + MIP_COUNTS_BYTES], item[MIP_ITEM_HEAD_BYTES];
    uint32_t n_bytes;
    buf_init(&out, arena, 0);
    assert_int_equal(mip_infer_size(infer, response, &n_bytes, &err), ST_OK);
    mip_infer_head_encode(infer, response, n_bytes, head);
    buf_add(&out, head, sizeof(head));
    for (size_t i = 0; i < infer->n_items; i++) {
        mip_item_head_encode(&infer->items[i], item);
        buf_add(&out, item, sizeof(item));
        buf_add_str(&out, infer->items[i].data);
    }
    assert_int_equal(out.len, MIP_HEADER_BYTES + (size_t)n_bytes);
    return buf_str(&out);
}

/* The largest batch, with one and with more items each, encoded and decoded. */
static void mip_infer_max_batch_roundtrips(void **state) {
    static const struct {
        uint8_t n_inputs, n_outputs;
        uint16_t batch;
        bool response;
    } rows[] = {{1, 0, 65535, REQUEST},
                {3, 0, 65535, REQUEST},
                {255, 0, 257, REQUEST},
                {1, 2, 65535, RESPONSE}};
    (void)state;
    for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
        struct arena *arena = arena_new(NULL, 0);
        size_t n =
            (size_t)rows[k].batch * (rows[k].response ? rows[k].n_outputs : rows[k].n_inputs);
        struct mip_item *items = arena_calloc(arena, n, sizeof(*items));
        struct mip_infer infer = {.n_inputs = rows[k].n_inputs,
                                  .n_outputs = rows[k].n_outputs,
                                  .batch = rows[k].batch,
                                  .items = items,
                                  .n_items = n};
        for (size_t i = 0; i < n; i++) {
            items[i] = (struct mip_item){MIP_JSON, str_make("1234567890", i % 10)};
        }
        struct str packet = encode(arena, &infer, rows[k].response);
        struct mip_header header;
        struct mip_infer back;
        struct error err = {0};
        mip_header_decode(packet.ptr, &header);
        assert_int_equal(header.kind, MIP_INFER);
        assert_int_equal(header.subtype, rows[k].response);
        assert_int_equal(header.n_bytes, packet.len - MIP_HEADER_BYTES);
        assert_int_equal(mip_infer_decode(arena,
                                          str_make(packet.ptr + MIP_HEADER_BYTES, header.n_bytes),
                                          rows[k].response, &back, &err),
                         ST_OK);
        assert_int_equal(back.n_inputs, infer.n_inputs);
        assert_int_equal(back.n_outputs, infer.n_outputs);
        assert_int_equal(back.batch, infer.batch);
        assert_int_equal(back.n_items, n);
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(back.items[i].type, MIP_JSON);
            assert_true(str_eq(back.items[i].data, items[i].data));
        }
        arena_free(arena);
    }
}

static void mip_infer_size_inconsistent_counts_are_refused(void **state) {
    static char byte; /* only its address is used */
    struct mip_item items[2] = {{MIP_TEXT, {&byte, 0x7fffffff}}, {MIP_TEXT, {&byte, 0}}};
    const struct {
        struct mip_infer infer;
        bool response;
        const char *sentence;
    } rows[] = {
        {{1, 0, 0, items, 0}, REQUEST, "expected a batch size from 1"},
        {{0, 0, 1, items, 0}, REQUEST, "expected 1 to 255 inputs, got 0"},
        {{2, 0, 2, items, 3}, REQUEST, "expected 4 items for batch size 2 and 2 inputs, got 3"},
        {{2, 1, 2, items, 4}, RESPONSE, "expected 2 items for batch size 2 and 1 output, got 4"},
    };
    uint32_t n_bytes = 0;
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct error err = {0};
        enum status status = mip_infer_size(&rows[i].infer, rows[i].response, &n_bytes, &err);
        if (status != ST_BAD_FRAMING || !strstr(err.text, rows[i].sentence)) {
            fail_msg("row %zu: %s %s", i, status_name(status), err.text);
        }
    }
    /* The largest packet, to the byte. */
    items[1].data.len = UINT32_MAX - 4 - 16 - 0x7fffffffu;
    struct mip_infer infer = {1, 0, 2, items, 2};
    assert_int_equal(mip_infer_size(&infer, false, &n_bytes, NULL), ST_OK);
    assert_int_equal(n_bytes, UINT32_MAX);
    items[1].data.len++;
    struct error err = {0};
    assert_int_equal(mip_infer_size(&infer, false, &n_bytes, &err), ST_BODY_TOO_LARGE);
    assert_non_null(strstr(err.text, "at most 4294967295 bytes"));
    items[1].data.len = SIZE_MAX;
    assert_int_equal(mip_infer_size(&infer, false, &n_bytes, NULL), ST_BODY_TOO_LARGE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mip_error_name_unknown_code_is_unknown),
        cmocka_unit_test(mip_header_roundtrips),
        cmocka_unit_test(mip_header_check_request_reports_first_error),
        cmocka_unit_test(mip_infer_decode_inconsistent_payload_is_refused),
        cmocka_unit_test(mip_infer_decode_missing_items_allocate_nothing),
        cmocka_unit_test(mip_infer_decode_out_of_memory_is_reported),
        cmocka_unit_test(mip_infer_decode_unknown_item_types_are_kept),
        cmocka_unit_test(mip_infer_decode_unusual_counts_are_accepted),
        cmocka_unit_test(mip_infer_max_batch_roundtrips),
        cmocka_unit_test(mip_infer_size_inconsistent_counts_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
