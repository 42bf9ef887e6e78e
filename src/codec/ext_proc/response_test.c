/* ProcessingResponses: for any body size the lengths around it are right and its bytes are not
 * copied; every field can be read back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/base/arena_fixture.h"
#include "lib/ext_proc/client.h"

static struct str join(const struct ext_proc_message *bytes) {
    struct buf all;
    buf_init(&all, arena, bytes->n_bytes);
    for (size_t i = 0; i < bytes->n_pieces; i++) {
        buf_add(&all, bytes->pieces[i].data, bytes->pieces[i].n_bytes);
    }
    assert_int_equal(all.len, bytes->n_bytes);
    return buf_str(&all);
}

static struct ext_proc_client_response roundtrip_response(const struct ext_proc_response *answer,
                                                          struct ext_proc_message *bytes) {
    struct ext_proc_client_response reply;
    struct error err;
    assert_int_equal(ext_proc_response_encode(arena, answer, bytes, &err), ST_OK);
    assert_int_equal(ext_proc_client_response_decode(join(bytes), &reply, &err), ST_OK);
    assert_int_equal(reply.kind, answer->kind);
    return reply;
}

static const struct str ENDPOINT = {"[::1]:8000", 10};
static const struct str LB = {"envoy.lb", 8};
static const struct str KEY = {"x-gateway-destination-endpoint", 30};

/* ---- picks ----------------------------------------------------------------------------------- */

/* The same response with empty modes, which come last, takes the general encoder; its bytes must
 * be equal. */
static void check_pick(struct ext_proc_response *answer) {
    static const struct ext_proc_processing_mode modes = {.request_headers = EXT_PROC_SEND_DEFAULT};
    struct ext_proc_message bytes;
    answer->mode_override = NULL;
    struct ext_proc_client_response reply = roundtrip_response(answer, &bytes);
    struct str straight = join(&bytes);
    assert_int_equal(reply.clear_route_cache, answer->clear_route_cache);
    answer->mode_override = &modes;
    roundtrip_response(answer, &bytes);
    struct str any = join(&bytes);
    assert_int_equal(any.len, straight.len + 2);
    assert_memory_equal(any.ptr, straight.ptr, straight.len);
}

/* Texts of each length up to some with two-byte lengths. */
static void ext_proc_response_pick_of_each_size_matches_generic_encoder(void **state) {
    char text[140];
    (void)state;
    memset(text, 'x', sizeof(text));
    for (size_t n = 0; n <= sizeof(text); n++) {
        for (size_t n_key = 0; n_key <= sizeof(text); n_key += n_key == 30 ? 97 : 30) {
            struct str value = {text, n}, key = {text, n_key};
            struct ext_proc_header set[] = {{KEY, value}, {key, ENDPOINT}};
            struct ext_proc_entry entries[] = {{KEY, value, NULL, 0, NULL},
                                               {key, ENDPOINT, NULL, 0, NULL}};
            struct ext_proc_namespace space = {LB, entries, 0};
            struct ext_proc_response answer = {.kind = EXT_PROC_REQUEST_HEADERS,
                                               .clear_route_cache = true,
                                               .headers = {.set = set},
                                               .metadata = &space,
                                               .n_metadata = 1};
            for (int which = 0; which < 9; which++) {
                answer.headers.n_set = (size_t)which % 3;
                space.n_entries = (size_t)which / 3;
                check_pick(&answer);
            }
            space.name = key;
            check_pick(&answer);
            answer.kind = EXT_PROC_REQUEST_TRAILERS;
            answer.clear_route_cache = false;
            check_pick(&answer);
        }
    }
}

/* Responses with other fields are encoded completely. */
static void ext_proc_response_pick_with_more_fields_matches_generic_encoder(void **state) {
    struct str texts[] = {ENDPOINT, LB};
    struct ext_proc_header header = {KEY, ENDPOINT};
    struct ext_proc_entry entry = {KEY, ENDPOINT, NULL, 0, NULL};
    struct ext_proc_namespace space = {LB, &entry, 1};
    const struct ext_proc_response pick = {.kind = EXT_PROC_REQUEST_HEADERS,
                                           .clear_route_cache = true,
                                           .headers = {.set = &header, .n_set = 1},
                                           .metadata = &space,
                                           .n_metadata = 1};
    struct ext_proc_response others[] = {pick, pick, pick, pick};
    (void)state;
    others[1].clear_route_cache = false;
    others[2].continue_and_replace = true;
    others[3].headers.remove = texts;
    others[3].headers.n_remove = 2;
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        check_pick(&others[i]);
    }
    entry.list = texts;
    entry.n_list = 2;
    check_pick(&others[0]);
}

/* ---- bodies ---------------------------------------------------------------------------------- */

/* A body of each size at which a length field grows, with and without the fields before and
 * after it. */
static void check_body(struct str body, enum ext_proc_body_mutation change, bool with_rest) {
    struct ext_proc_header header = {KEY, ENDPOINT};
    struct ext_proc_entry entry = {KEY, ENDPOINT, NULL, 0, NULL};
    struct ext_proc_namespace space = {LB, &entry, 1};
    struct piece pieces[] = {{body.ptr, body.len / 3},
                             {body.ptr + body.len / 3, 0},
                             {body.ptr + body.len / 3, body.len - body.len / 3}};
    struct ext_proc_response answer = {.kind = EXT_PROC_RESPONSE_BODY,
                                       .body_mutation = change,
                                       .body = pieces,
                                       .n_body = 3,
                                       .end_of_stream =
                                           with_rest && change == EXT_PROC_BODY_STREAMED_RESPONSE};
    if (with_rest) {
        answer.headers = (struct ext_proc_mutation){&header, 1, NULL, 0};
        answer.clear_route_cache = true;
        answer.metadata = &space;
        answer.n_metadata = 1;
    }
    struct ext_proc_message bytes;
    struct ext_proc_client_response reply = roundtrip_response(&answer, &bytes);
    assert_int_equal(reply.body_mutation, change);
    assert_true(str_eq(reply.body, body));
    assert_int_equal(reply.end_of_stream, answer.end_of_stream);
    assert_int_equal(reply.clear_route_cache, with_rest);
    assert_int_equal(ext_proc_client_response_metadata_find(&reply, LB, KEY).kind,
                     with_rest ? EXT_PROC_STRING : EXT_PROC_ABSENT);
    if (body.len > 0) {
        assert_ptr_equal(bytes.pieces[1].data, pieces[0].data);
        assert_ptr_equal(bytes.pieces[3].data, pieces[2].data);
        assert_true(bytes.n_bytes - body.len < 256);
    }
}

static void ext_proc_response_body_of_each_size_roundtrips(void **state) {
    static const size_t sizes[] = {
        0,     1,     2,     90,    100,   110,   115,   120,           121,           122,
        123,   124,   125,   126,   127,   128,   129,   200,           255,           256,
        16200, 16370, 16376, 16383, 16384, 16385, 62000, (1 << 21) - 9, (1 << 21) - 1, 1 << 21};
    char *data = calloc(1, 1 << 21);
    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct str body = str_make(data, sizes[i]);
        check_body(body, EXT_PROC_BODY_STREAMED_RESPONSE, false);
        check_body(body, EXT_PROC_BODY_STREAMED_RESPONSE, true);
        check_body(body, EXT_PROC_BODY_REPLACED, false);
        check_body(body, EXT_PROC_BODY_REPLACED, true);
    }
    free(data);
}

static void ext_proc_response_body_cleared_or_unchanged_roundtrips(void **state) {
    struct piece piece = {"unused", 6};
    struct ext_proc_response answer = {.kind = EXT_PROC_REQUEST_BODY,
                                       .body_mutation = EXT_PROC_BODY_CLEARED,
                                       .body = &piece,
                                       .n_body = 1};
    struct ext_proc_message bytes;
    (void)state;
    struct ext_proc_client_response reply = roundtrip_response(&answer, &bytes);
    assert_int_equal(reply.body_mutation, EXT_PROC_BODY_CLEARED);
    assert_int_equal(reply.body.len, 0);
    answer.body_mutation = EXT_PROC_BODY_UNCHANGED;
    reply = roundtrip_response(&answer, &bytes);
    assert_int_equal(reply.body_mutation, EXT_PROC_BODY_UNCHANGED);
    assert_true(str_eq(join(&bytes), str_make("\x1a\x02\x0a\x00", 4)));
}

static void ext_proc_response_end_without_message_roundtrips(void **state) {
    struct ext_proc_response answer = {.kind = EXT_PROC_REQUEST_BODY,
                                       .body_mutation = EXT_PROC_BODY_STREAMED_RESPONSE,
                                       .end_of_stream = true,
                                       .end_without_message = true,
                                       .is_compressed = true};
    struct ext_proc_message bytes;
    (void)state;
    struct ext_proc_client_response reply = roundtrip_response(&answer, &bytes);
    assert_int_equal(reply.body_mutation, EXT_PROC_BODY_STREAMED_RESPONSE);
    assert_true(reply.end_of_stream && reply.end_without_message && reply.is_compressed);
    assert_int_equal(bytes.n_pieces, 1);
}

/* ---- other fields ---------------------------------------------------------------------------- */

static void ext_proc_response_header_mutation_roundtrips(void **state) {
    static const struct ext_proc_header set[] = {
        {STR("a"), STR("1")}, {STR("b"), STR("")}, {STR("c"), STR("\xff")}};
    static const struct str removed[] = {STR("d"), STR("e")};
    struct ext_proc_mutation mutation = {set, 3, removed, 2};
    (void)state;
    for (int kind = EXT_PROC_REQUEST_HEADERS; kind <= EXT_PROC_RESPONSE_TRAILERS; kind++) {
        struct ext_proc_response answer = {.kind = (enum ext_proc_kind)kind,
                                           .headers = mutation,
                                           .continue_and_replace = kind < 3};
        struct ext_proc_message bytes;
        struct ext_proc_header header;
        struct str name;
        struct ext_proc_client_response reply = roundtrip_response(&answer, &bytes);
        assert_int_equal(reply.continue_and_replace, answer.continue_and_replace);
        struct pb_reader reader = pb_read(reply.mutation);
        for (size_t i = 0; i < 3; i++) {
            assert_true(ext_proc_set_header_next(&reader, &header));
            assert_true(str_eq(header.key, set[i].key) && str_eq(header.value, set[i].value));
        }
        assert_false(ext_proc_set_header_next(&reader, &header));
        reader = pb_read(reply.mutation);
        assert_true(ext_proc_removed_header_next(&reader, &name) && str_is(name, "d"));
        assert_true(ext_proc_removed_header_next(&reader, &name) && str_is(name, "e"));
        assert_false(ext_proc_removed_header_next(&reader, &name));
    }
}

static void ext_proc_response_dynamic_metadata_roundtrips(void **state) {
    static const struct ext_proc_number number = {.number = -2.5}; /* by itself, in no Struct */
    static const struct str list[] = {STR("10.0.0.1:8000"), STR("10.0.0.2:8000")};
    struct ext_proc_entry entries[] = {{KEY, ENDPOINT, NULL, 0, NULL},
                                       {STR("list"), {NULL, 0}, list, 2, NULL},
                                       {STR("none"), {NULL, 0}, list, 0, NULL},
                                       {STR("empty"), STR(""), NULL, 0, NULL},
                                       {STR("number"), {NULL, 0}, NULL, 1, &number}};
    struct ext_proc_namespace spaces[] = {{LB, entries, 5}, {STR("other"), NULL, 0}};
    struct ext_proc_response answer = {
        .kind = EXT_PROC_REQUEST_HEADERS, .metadata = spaces, .n_metadata = 2};
    struct ext_proc_message bytes;
    struct ext_proc_value value, item;
    (void)state;
    struct ext_proc_client_response reply = roundtrip_response(&answer, &bytes);
    value = ext_proc_client_response_metadata_find(&reply, LB, KEY);
    assert_true(value.kind == EXT_PROC_STRING && str_eq(value.text, ENDPOINT));
    value = ext_proc_client_response_metadata_find(&reply, LB, STR("number"));
    assert_true(value.kind == EXT_PROC_NUMBER && value.number == -2.5);
    value = ext_proc_client_response_metadata_find(&reply, LB, STR("empty"));
    assert_true(value.kind == EXT_PROC_STRING && value.text.len == 0);
    value = ext_proc_client_response_metadata_find(&reply, LB, STR("list"));
    assert_int_equal(value.kind, EXT_PROC_LIST);
    struct pb_reader reader = pb_read(value.list);
    for (size_t i = 0; i < 2; i++) {
        assert_true(ext_proc_list_next(&reader, &item) && str_eq(item.text, list[i]));
    }
    assert_false(ext_proc_list_next(&reader, &item));
    value = ext_proc_client_response_metadata_find(&reply, LB, STR("none"));
    assert_true(value.kind == EXT_PROC_LIST && value.list.len == 0);
    assert_int_equal(ext_proc_client_response_metadata_find(&reply, STR("other"), KEY).kind,
                     EXT_PROC_ABSENT);
}

static void ext_proc_response_mode_override_roundtrips(void **state) {
    static const struct ext_proc_processing_mode all = {
        EXT_PROC_SEND_SKIP,     EXT_PROC_SEND_YES,  EXT_PROC_BODY_BUFFERED,
        EXT_PROC_BODY_STREAMED, EXT_PROC_SEND_SKIP, EXT_PROC_SEND_YES};
    static const struct ext_proc_processing_mode zero = {.request_body = EXT_PROC_BODY_NONE};
    struct ext_proc_response answer = {.kind = EXT_PROC_REQUEST_HEADERS, .mode_override = &all};
    struct ext_proc_message bytes;
    (void)state;
    struct ext_proc_client_response reply = roundtrip_response(&answer, &bytes);
    assert_true(reply.has_mode_override);
    assert_memory_equal(&reply.mode_override, &all, sizeof(all));
    answer.mode_override = &zero;
    reply = roundtrip_response(&answer, &bytes);
    assert_true(reply.has_mode_override);
    assert_memory_equal(&reply.mode_override, &zero, sizeof(zero));
    answer.mode_override = NULL;
    assert_false(roundtrip_response(&answer, &bytes).has_mode_override);
}

static void ext_proc_response_immediate_roundtrips(void **state) {
    struct ext_proc_header header = {STR("retry-after"), STR("1")};
    struct ext_proc_entry entry = {KEY, ENDPOINT, NULL, 0, NULL};
    struct ext_proc_namespace space = {LB, &entry, 1};
    struct ext_proc_immediate answer = {.http_status = 599,
                                        .grpc_status = 8,
                                        .headers = {&header, 1, NULL, 0},
                                        .body = STR("{\"error\":\"\xc3\xa9\"}"),
                                        .details = STR("queue_full"),
                                        .metadata = &space,
                                        .n_metadata = 1};
    struct ext_proc_message bytes;
    struct ext_proc_client_response reply;
    struct ext_proc_header got;
    (void)state;
    assert_int_equal(ext_proc_immediate_encode(arena, &answer, &bytes, NULL), ST_OK);
    assert_int_equal(ext_proc_client_response_decode(join(&bytes), &reply, NULL), ST_OK);
    assert_true(reply.is_immediate && reply.kind == EXT_PROC_NONE);
    assert_int_equal(reply.http_status, 599);
    assert_int_equal(reply.grpc_status, 8);
    assert_true(str_eq(reply.body, answer.body) && str_eq(reply.details, answer.details));
    assert_int_equal(ext_proc_client_response_metadata_find(&reply, LB, KEY).kind, EXT_PROC_STRING);
    struct pb_reader reader = pb_read(reply.mutation);
    assert_true(ext_proc_set_header_next(&reader, &got) && str_is(got.key, "retry-after"));
}

/* ---- limits ---------------------------------------------------------------------------------- */

static void ext_proc_response_over_max_message_is_refused(void **state) {
    struct piece pieces[] = {{"", INT32_MAX / 2}, {"", INT32_MAX / 2}};
    struct ext_proc_response answer = {.kind = EXT_PROC_REQUEST_BODY,
                                       .body_mutation = EXT_PROC_BODY_STREAMED_RESPONSE,
                                       .body = pieces,
                                       .n_body = 2};
    struct ext_proc_message bytes;
    struct error err;
    (void)state;
    assert_int_equal(ext_proc_response_encode(arena, &answer, &bytes, &err), ST_BAD_OUTPUT);
    assert_non_null(strstr(err.text, "2147483647"));
}

static void ext_proc_response_out_of_memory_is_reported(void **state) {
    static char value[8192];
    struct ext_proc_header header = {KEY, {value, sizeof(value)}};
    struct piece piece = {value, sizeof(value)};
    struct ext_proc_response answer = {.kind = EXT_PROC_REQUEST_BODY,
                                       .headers = {&header, 1, NULL, 0},
                                       .body_mutation = EXT_PROC_BODY_STREAMED_RESPONSE,
                                       .body = &piece,
                                       .n_body = 1};
    struct ext_proc_immediate immediate = {.http_status = 503, .headers = {&header, 1, NULL, 0}};
    struct ext_proc_message bytes;
    struct error err;
    (void)state;
    for (size_t limit = 1; limit < 12000; limit += 500) {
        struct arena *small = arena_new(NULL, limit);
        assert_int_equal(ext_proc_response_encode(small, &answer, &bytes, &err), ST_NO_MEMORY);
        assert_int_equal(ext_proc_immediate_encode(small, &immediate, &bytes, &err), ST_NO_MEMORY);
        arena_free(small);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(ext_proc_response_pick_of_each_size_matches_generic_encoder,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(
            ext_proc_response_pick_with_more_fields_matches_generic_encoder, setup, teardown),
        cmocka_unit_test_setup_teardown(ext_proc_response_body_of_each_size_roundtrips, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(ext_proc_response_body_cleared_or_unchanged_roundtrips,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(ext_proc_response_end_without_message_roundtrips, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(ext_proc_response_header_mutation_roundtrips, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(ext_proc_response_dynamic_metadata_roundtrips, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(ext_proc_response_mode_override_roundtrips, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(ext_proc_response_immediate_roundtrips, setup, teardown),
        cmocka_unit_test_setup_teardown(ext_proc_response_over_max_message_is_refused, setup,
                                        teardown),
        cmocka_unit_test(ext_proc_response_out_of_memory_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
