/* ProcessingRequests that encoders rarely or never write: fields in any order, repeated, of
 * wrong types, deeply nested. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/base/arena_fixture.h"
#include "lib/ext_proc/client.h"

static const struct str HINT = {"envoy.lb.subset_hint", 20};

/* "headers": ":path=/a, x=y, x=z" as raw_value, after an unknown field. */
static void add_headers(struct buf *out, uint32_t number, bool end) {
    static const struct str pairs[][2] = {
        {STR(":path"), STR("/a")}, {STR("x"), STR("y")}, {STR("x"), STR("z\xff")}};
    size_t begun = pb_begin(out, number);
    if (end) {
        pb_add_varint(out, 3, 1);
    }
    pb_add_bytes(out, 99, STR("?"));
    size_t map = pb_begin(out, 1);
    for (size_t i = 0; i < 3; i++) {
        pb_add_varint(out, 9, 7);
        size_t header = pb_begin(out, 1);
        pb_add_bytes(out, 3, pairs[i][1]);
        pb_add_fixed32(out, 8, 7);
        pb_add_bytes(out, 1, pairs[i][0]);
        pb_end(out, header);
    }
    pb_end(out, map);
    pb_end(out, begun);
}

static enum status decode(const struct buf *message, struct ext_proc_request *out,
                          struct error *err) {
    *err = (struct error){.status = ST_OK};
    enum status status = ext_proc_request_decode(buf_str(message), out, err);
    assert_int_equal(err->status, status);
    assert_int_equal(err->text[0] == '\0', status == ST_OK);
    return status;
}

/* ---- order ----------------------------------------------------------------------------------- */

static void ext_proc_request_fields_in_any_order_are_decoded(void **state) {
    struct buf out;
    struct ext_proc_request request;
    struct ext_proc_header header;
    struct error err;
    (void)state;
    buf_init(&out, arena, 0);
    pb_add_bytes(&out, 11, STR("\x18\x01\x10\x02\x08\x2a"));
    pb_add_varint(&out, 10, 1);
    pb_add_bytes(&out, 8, STR(""));
    pb_add_bytes(&out, 100, STR("unknown"));
    buf_add_str(&out, STR("\x83\x7d\x84\x7d")); /* a group with number 2000 */
    add_headers(&out, 2, true);
    assert_int_equal(decode(&out, &request, &err), ST_OK);
    assert_int_equal(request.kind, EXT_PROC_REQUEST_HEADERS);
    assert_true(request.end_of_stream && request.observability_mode && request.has_config);
    assert_int_equal(request.config.request_body, EXT_PROC_BODY_OTHER);
    assert_int_equal(request.config.response_body, EXT_PROC_BODY_BUFFERED);
    assert_true(request.config.send_body_without_waiting);
    struct ext_proc_header_iter headers = ext_proc_header_iter(&request.fields);
    static const char *const want[] = {":path/a", "xy", "xz\xff"};
    for (size_t i = 0; i < 3; i++) {
        assert_true(ext_proc_header_next(&headers, &header));
        assert_memory_equal(header.key.ptr, want[i], header.key.len);
        assert_true(str_is(header.value, want[i] + header.key.len));
    }
    assert_false(ext_proc_header_next(&headers, &header));
    assert_true(str_is(ext_proc_header_find(&request.fields, STR("X")), "y"));
}

static void ext_proc_request_repeated_oneof_takes_last_member(void **state) {
    struct buf out;
    struct ext_proc_request request;
    struct error err;
    (void)state;
    buf_init(&out, arena, 0);
    add_headers(&out, 2, true);
    pb_add_bytes(&out, 4, STR("\x0a\x02hi"));
    assert_int_equal(decode(&out, &request, &err), ST_OK);
    assert_int_equal(request.kind, EXT_PROC_REQUEST_BODY);
    assert_true(str_is(request.body, "hi") && !request.end_of_stream);
    assert_int_equal(request.fields.bytes.len, 0);
    pb_add_bytes(&out, 5, STR("\x0a\x02ho\x10\x01\x18\x01\x20\x01"));
    assert_int_equal(decode(&out, &request, &err), ST_OK);
    assert_int_equal(request.kind, EXT_PROC_RESPONSE_BODY);
    assert_true(str_is(request.body, "ho") && request.end_of_stream);
    assert_true(request.end_without_message && request.is_compressed);
    add_headers(&out, 7, true); /* trailers have no end_of_stream */
    assert_int_equal(decode(&out, &request, &err), ST_OK);
    assert_int_equal(request.kind, EXT_PROC_RESPONSE_TRAILERS);
    assert_true(request.body.len == 0 && !request.end_of_stream);
    assert_true(str_is(ext_proc_header_find(&request.fields, STR(":path")), "/a"));
}

static void ext_proc_request_unknown_fields_are_skipped(void **state) {
    struct ext_proc_request request;
    struct error err;
    (void)state;
    assert_int_equal(ext_proc_request_decode(str_make(NULL, 0), &request, &err), ST_OK);
    assert_int_equal(request.kind, EXT_PROC_NONE);
    assert_false(request.has_config || request.observability_mode);
    assert_int_equal(ext_proc_metadata_find(&request, HINT, HINT).kind, EXT_PROC_ABSENT);
    assert_int_equal(ext_proc_attribute_find(&request, HINT, HINT).kind, EXT_PROC_ABSENT);
    assert_int_equal(ext_proc_request_decode(STR("\x62\x01x\x08\x01"), &request, &err), ST_OK);
    assert_int_equal(request.kind, EXT_PROC_NONE);
}

/* ---- invalid messages ------------------------------------------------------------------------ */

static const struct row {
    struct str message;
    enum status status;
    const char *why;
} rows[] = {
    {STR("\x10\x01"), ST_BAD_FIELD, "request"},
    {STR("\x3d\x01\x02\x03\x04"), ST_BAD_FIELD, "request"},
    {STR("\x40\x01"), ST_BAD_FIELD, "metadata_context"},
    {STR("\x48\x01"), ST_BAD_FIELD, "attributes"},
    {STR("\x52\x01\x01"), ST_BAD_FIELD, "observability_mode"},
    {STR("\x58\x01"), ST_BAD_FIELD, "protocol_config"},
    {STR("\x5a\x02\x0a\x00"), ST_BAD_FIELD, "request_body_mode"},
    {STR("\x5a\x02\x12\x00"), ST_BAD_FIELD, "response_body_mode"},
    {STR("\x5a\x02\x1a\x00"), ST_BAD_FIELD, "send_body_without"},
    {STR("\x5a\x01\x08"), ST_BAD_REQUEST, "ProtocolConfiguration"},
    {STR("\x12\x02\x08\x01"), ST_BAD_FIELD, "headers"},
    {STR("\x12\x02\x1a\x00"), ST_BAD_FIELD, "end_of_stream"},
    {STR("\x12\x02\x0a\x05"), ST_BAD_REQUEST, "HttpHeaders"},
    {STR("\x12\x04\x0a\x02\x08\x01"), ST_BAD_FIELD, "headers"},
    {STR("\x12\x04\x0a\x02\x0a\x05"), ST_BAD_REQUEST, "HeaderMap"},
    {STR("\x12\x06\x0a\x04\x0a\x02\x08\x01"), ST_BAD_FIELD, "key"},
    {STR("\x12\x06\x0a\x04\x0a\x02\x10\x01"), ST_BAD_FIELD, "value"},
    {STR("\x12\x06\x0a\x04\x0a\x02\x18\x01"), ST_BAD_FIELD, "raw_value"},
    {STR("\x12\x06\x0a\x04\x0a\x02\x0a\x05"), ST_BAD_REQUEST, "HeaderValue"},
    {STR("\x12\x07\x0a\x05\x0a\x03\x0a\x01\xff"), ST_BAD_FIELD, "UTF-8"},
    {STR("\x12\x07\x0a\x05\x0a\x03\x12\x01\xff"), ST_BAD_FIELD, "UTF-8"},
    {STR("\x12\x0a\x0a\x08\x0a\x06\x0a\x01\xff\x1a\x01x"), ST_BAD_FIELD, "UTF-8"},
    {STR("\x12\x0a\x0a\x08\x0a\x06\x0a\x01k\x1a\x02x"), ST_BAD_REQUEST, "HeaderValue"},
    {STR("\x12\x09\x0a\x07\x0a\x06\x0a\x01k\x1a\x01"), ST_BAD_REQUEST, "HeaderMap"},
    {STR("\x32\x02\x0a\x05"), ST_BAD_REQUEST, "HttpTrailers"},
    {STR("\x22\x02\x08\x01"), ST_BAD_FIELD, "body"},
    {STR("\x22\x02\x12\x00"), ST_BAD_FIELD, "end_of_stream"},
    {STR("\x22\x02\x1a\x00"), ST_BAD_FIELD, "end_of_stream_without_message"},
    {STR("\x22\x02\x22\x00"), ST_BAD_FIELD, "grpc_message_compressed"},
    {STR("\x2a\x02\x0a\x05"), ST_BAD_REQUEST, "HttpBody"},
    {STR("\x12"), ST_BAD_REQUEST, "ProcessingRequest"},
    {STR("\x42\x02\x08\x01"), ST_BAD_FIELD, "metadata_context"},
    {STR("\x42\x02\x0a\x05"), ST_BAD_REQUEST, "metadata_context"},
    {STR("\x42\x05\x0a\x03\x0a\x01\xff"), ST_BAD_FIELD, "UTF-8"},
    {STR("\x42\x04\x0a\x02\x10\x01"), ST_BAD_FIELD, "metadata_context"},
    {STR("\x4a\x04\x12\x02\x08\x01"), ST_BAD_FIELD, "attributes"},
    {STR("\x4a\x04\x12\x02\x0a\x05"), ST_BAD_REQUEST, "attributes"},
};

static void ext_proc_request_malformed_is_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct ext_proc_request request;
        struct error err = {0};
        enum status status = ext_proc_request_decode(rows[i].message, &request, &err);
        if (status != rows[i].status || !strstr(err.text, rows[i].why)) {
            fail_msg("row %zu: %s: %s", i, status_name(status), err.text);
        }
    }
}

/* ---- metadata -------------------------------------------------------------------------------- */

/* Empty messages nested `depth` deep: metadata_context (8) with Structs, or attributes (9).
 * Written backwards. */
static struct str nest(size_t depth, uint32_t top) {
    enum { MOST_HEAD = 2 * PB_MAX_VARINT_BYTES };
    static const uint32_t begins[] = {1, 2};     /* a namespace's entry and its Struct ... */
    static const uint32_t goes_on[] = {1, 2, 5}; /* ... an entry, its value, its Struct */
    size_t room = depth * MOST_HEAD, at = room;
    char *data = arena_alloc(arena, room);
    for (size_t level = depth; level-- > 0;) {
        size_t below = level + (top == 9); /* attributes have no message around their map */
        uint32_t number = level == 0   ? top
                          : below <= 2 ? begins[below - 1]
                                       : goes_on[(below - 3) % 3];
        char bytes[MOST_HEAD];
        struct buf head = {.data = bytes, .cap = sizeof(bytes)};
        pb_add_head(&head, number, room - at);
        at -= head.len;
        memcpy(data + at, bytes, head.len);
    }
    return str_make(data + at, room - at);
}

/* Nesting beyond the limit is rejected at every place, without a stack of that depth. */
static void ext_proc_request_struct_over_max_depth_is_refused(void **state) {
    static const uint32_t places[] = {8, 9};
    static const size_t depths[] = {1, 2, 99, 100, 101, 102, 1000, 100000};
    (void)state;
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        for (size_t j = 0; j < sizeof(depths) / sizeof(depths[0]); j++) {
            struct ext_proc_request request;
            struct error err = {0};
            enum status status =
                ext_proc_request_decode(nest(depths[j], places[i]), &request, &err);
            bool deep = depths[j] > EXT_PROC_MAX_DEPTH;
            assert_int_equal(status, deep ? ST_TOO_DEEP : ST_OK);
            assert_true(!deep || strstr(err.text, "100 messages"));
        }
    }
}

static void add_entry(struct buf *out, uint32_t number, struct str key, struct str value) {
    size_t entry = pb_begin(out, number);
    pb_add_bytes(out, 2, value); /* before the key */
    pb_add_bytes(out, 1, key);
    pb_end(out, entry);
}

static struct ext_proc_value find_written(struct buf *metadata, struct str key) {
    struct buf out;
    struct ext_proc_request request;
    struct error err;
    buf_init(&out, arena, 0);
    size_t context = pb_begin(&out, 8);
    pb_add_bytes(&out, 2, STR("\xff typed metadata"));
    add_entry(&out, 1, STR("other"), STR("\x0a\x00"));
    add_entry(&out, 1, HINT, buf_str(metadata));
    pb_end(&out, context);
    assert_int_equal(decode(&out, &request, &err), ST_OK);
    return ext_proc_metadata_find(&request, HINT, key);
}

static void ext_proc_metadata_find_returns_value_by_kind(void **state) {
    static const struct {
        struct str value;
        enum ext_proc_value_kind kind;
        const char *text;
    } values[] = {
        {STR("\x1a\x02hi"), EXT_PROC_STRING, "hi"},
        {STR("\x1a\x00"), EXT_PROC_STRING, ""},
        {STR("\x08\x00"), EXT_PROC_OTHER, NULL},
        {STR("\x11\x00\x00\x00\x00\x00\x00\x08\x40"), EXT_PROC_NUMBER, NULL},
        {STR("\x10\x03"), EXT_PROC_OTHER, NULL}, /* not a double */
        {STR("\x20\x01"), EXT_PROC_OTHER, NULL},
        {STR("\x2a\x00"), EXT_PROC_OTHER, NULL},
        {STR("\x32\x00"), EXT_PROC_LIST, NULL},
        {STR(""), EXT_PROC_OTHER, NULL},
        {STR("\x7a\x02hi"), EXT_PROC_OTHER, NULL},          /* an unknown field */
        {STR("\x20\x01\x1a\x02hi"), EXT_PROC_STRING, "hi"}, /* the last counts */
        {STR("\x1a\x02hi\x20\x01"), EXT_PROC_OTHER, NULL},  /* ... in this order too */
        {STR("\x1a\x02hi\x1a\x02ho"), EXT_PROC_STRING, "ho"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        struct buf map;
        buf_init(&map, arena, 0);
        add_entry(&map, 1, STR("k"),
                  STR("\x1a\x05"
                      "first")); /* of equal keys the last counts */
        add_entry(&map, 1, STR("k"), values[i].value);
        add_entry(&map, 1, STR("l"), STR("\x1a\x04last"));
        struct ext_proc_value got = find_written(&map, STR("k"));
        if (got.kind != values[i].kind) {
            fail_msg("row %zu: %d", i, (int)got.kind);
        }
        assert_true(!values[i].text || str_is(got.text, values[i].text));
        assert_true(got.kind != EXT_PROC_NUMBER || got.number == 3);
        assert_int_equal(find_written(&map, STR("K")).kind, EXT_PROC_ABSENT);
    }
}

static void ext_proc_metadata_list_is_iterated(void **state) {
    struct buf map, out;
    struct ext_proc_value value;
    (void)state;
    buf_init(&map, arena, 0);
    buf_init(&out, arena, 0);
    size_t list = pb_begin(&out, 6);
    pb_add_bytes(&out, 1,
                 STR("\x1a\x01"
                     "a"));
    pb_add_varint(&out, 2, 1); /* an unknown field */
    pb_add_bytes(&out, 1, STR("\x20\x01"));
    pb_add_bytes(&out, 1, STR("\x32\x00"));
    pb_end(&out, list);
    add_entry(&map, 1, STR("k"), buf_str(&out));
    value = find_written(&map, STR("k"));
    assert_int_equal(value.kind, EXT_PROC_LIST);
    struct pb_reader reader = pb_read(value.list);
    assert_true(ext_proc_list_next(&reader, &value));
    assert_true(value.kind == EXT_PROC_STRING && str_is(value.text, "a"));
    assert_true(ext_proc_list_next(&reader, &value));
    assert_int_equal(value.kind, EXT_PROC_OTHER);
    assert_true(ext_proc_list_next(&reader, &value));
    assert_int_equal(value.kind, EXT_PROC_LIST);
    assert_false(ext_proc_list_next(&reader, &value));
}

/* Headers written with `value` instead of raw_value are read too. */
static void ext_proc_header_find_falls_back_to_value_field(void **state) {
    struct buf out;
    struct ext_proc_request request;
    struct error err;
    (void)state;
    buf_init(&out, arena, 0);
    size_t message = pb_begin(&out, 6), map = pb_begin(&out, 1);
    pb_add_bytes(&out, 1,
                 STR("\x0a\x01"
                     "a\x12\x01"
                     "1"));
    pb_add_bytes(&out, 1,
                 STR("\x0a\x01"
                     "b\x12\x01"
                     "1\x1a\x01"
                     "2"));
    pb_add_bytes(&out, 1,
                 STR("\x0a\x01"
                     "c\x1a\x00\x12\x01"
                     "1"));
    pb_add_bytes(&out, 1,
                 STR("\x0a\x01"
                     "d"));
    pb_end(&out, map);
    pb_end(&out, message);
    assert_int_equal(decode(&out, &request, &err), ST_OK);
    assert_true(str_is(ext_proc_header_find(&request.fields, STR("a")), "1"));
    assert_true(str_is(ext_proc_header_find(&request.fields, STR("b")), "2"));
    assert_true(str_is(ext_proc_header_find(&request.fields, STR("c")), "1"));
    assert_true(str_is(ext_proc_header_find(&request.fields, STR("d")), ""));
    assert_non_null(ext_proc_header_find(&request.fields, STR("d")).ptr);
    assert_null(ext_proc_header_find(&request.fields, STR("e")).ptr);
}

static void check_walk(const struct ext_proc_headers *fields, struct str key, struct str value) {
    struct ext_proc_header_iter walk = ext_proc_header_iter(fields);
    struct ext_proc_header header;
    assert_true(ext_proc_header_next(&walk, &header));
    assert_true(str_eq(header.key, key) && str_eq(header.value, value));
    assert_true(ext_proc_header_next(&walk, &header));
    assert_true(str_is(header.key, "z") && str_is(header.value, "\xff"));
    assert_false(ext_proc_header_next(&walk, &header));
}

/* A key and a raw_value of each length up to some with two-byte lengths, followed by another
 * header; the other header and the order make no difference. */
static void check_header(struct str key, struct str value, bool swapped, bool with_more) {
    struct ext_proc_request request;
    struct error err;
    struct buf out;
    buf_init(&out, arena, 0);
    size_t message = pb_begin(&out, 2), map = pb_begin(&out, 1), begun = pb_begin(&out, 1);
    pb_add_bytes(&out, swapped ? 3 : 1, swapped ? value : key);
    pb_add_bytes(&out, swapped ? 1 : 3, swapped ? key : value);
    if (with_more) {
        pb_add_varint(&out, 9, 1);
    }
    pb_end(&out, begun);
    pb_add_bytes(&out, 1, STR("\x0a\x01z\x1a\x01\xff"));
    pb_end(&out, map);
    pb_end(&out, message);
    assert_int_equal(decode(&out, &request, &err), ST_OK);
    bool is_compact = !swapped && !with_more && key.len + value.len + 4 < 128;
    assert_int_equal(request.fields.is_compact, is_compact);
    check_walk(&request.fields, key, value);
    request.fields.is_compact = false;
    check_walk(&request.fields, key, value);
}

static void ext_proc_header_next_of_each_size_matches_generic_reader(void **state) {
    char keys[140], values[140];
    (void)state;
    memset(keys, 'k', sizeof(keys));
    memset(values, '\xff', sizeof(values));
    for (size_t n = 0; n <= sizeof(keys); n++) {
        for (size_t m = 0; m <= sizeof(values); m++) {
            check_header(str_make(keys, n), str_make(values, m), false, false);
        }
        check_header(str_make(keys, n), str_make(values, 7), true, false);
        check_header(str_make(keys, n), str_make(values, 7), false, true);
        check_header(STR("\xc3\xa4"), str_make(values, n), false, false);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(ext_proc_request_fields_in_any_order_are_decoded, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(ext_proc_request_repeated_oneof_takes_last_member, setup,
                                        teardown),
        cmocka_unit_test(ext_proc_request_unknown_fields_are_skipped),
        cmocka_unit_test(ext_proc_request_malformed_is_refused),
        cmocka_unit_test_setup_teardown(ext_proc_request_struct_over_max_depth_is_refused, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(ext_proc_metadata_find_returns_value_by_kind, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(ext_proc_metadata_list_is_iterated, setup, teardown),
        cmocka_unit_test_setup_teardown(ext_proc_header_find_falls_back_to_value_field, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(ext_proc_header_next_of_each_size_matches_generic_reader,
                                        setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
