/* Trace settings, as JSON and as protobuf: set, cleared, ignored and invalid ones. */
#include "codec/kserve/trace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "codec/kserve/v2_fixture.h"
#include "codec/protobuf/pb.h"

enum { TEXT_BYTES = 128 };

/* "level=3 rate=5 count- frequency=7": settings that are set, with '-' those that are cleared. */
static void wanted_print(const struct v2_trace_update *wanted, char out[TEXT_BYTES]) {
    const struct {
        const char *name;
        enum v2_trace_key key;
        long long value;
    } rows[] = {
        {"level", V2_TRACE_LEVEL, wanted->values.level},
        {"rate", V2_TRACE_RATE, wanted->values.rate},
        {"count", V2_TRACE_COUNT, wanted->values.count},
        {"frequency", V2_TRACE_FREQUENCY, wanted->values.log_frequency},
    };
    size_t n = 0;
    out[0] = '\0';
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *space = n > 0 ? " " : "";
        if (wanted->change[rows[i].key] == V2_TRACE_SET) {
            n += (size_t)snprintf(out + n, TEXT_BYTES - n, "%s%s=%lld", space, rows[i].name,
                                  rows[i].value);
        } else if (wanted->change[rows[i].key] == V2_TRACE_CLEAR) {
            n += (size_t)snprintf(out + n, TEXT_BYTES - n, "%s%s-", space, rows[i].name);
        }
    }
}

static void v2_trace_decode_json_rows_match(void **state) {
    static const struct {
        const char *body;
        enum status status;
        const char *wanted;
    } rows[] = {
        {"{}", ST_OK, ""},
        {"{\"trace_level\":[\"TIMESTAMPS\"]}", ST_OK, "level=1"},
        {"{\"trace_level\":[\"TENSORS\",\"TIMESTAMPS\"]}", ST_OK, "level=3"},
        {"{\"trace_level\":[\"OFF\"],\"trace_rate\":\"5\"}", ST_OK, "level=0 rate=5"},
        {"{\"trace_level\":[\"other\"]}", ST_OK, ""},
        {"{\"trace_level\":[]}", ST_OK, ""},
        {"{\"trace_level\":null,\"trace_count\":null}", ST_OK, "level- count-"},
        {"{\"trace_rate\":null,\"log_frequency\":null}", ST_OK, "rate- frequency-"},
        {"{\"trace_count\":\"-1\",\"log_frequency\":\"7\"}", ST_OK, "count=-1 frequency=7"},
        {"{\"trace_rate\":\"0\",\"other\":{}}", ST_OK, "rate=0"},
        {"{\"trace_rate\":\"2147483647\"}", ST_OK, "rate=2147483647"},
        {"", ST_BAD_JSON, NULL},
        {"{\"trace_file\":\"x\"}", ST_UNSUPPORTED, NULL},
        {"{\"trace_file\":null,\"trace_rate\":1}", ST_UNSUPPORTED, NULL},
        {"{\"trace_level\":\"OFF\"}", ST_BAD_FIELD, NULL},
        {"{\"trace_level\":[1]}", ST_BAD_FIELD, NULL},
        {"{\"trace_level\":[\"OFF\",\"TENSORS\"]}", ST_BAD_FIELD, NULL},
        {"{\"trace_rate\":5}", ST_BAD_FIELD, NULL},
        {"{\"trace_rate\":\"\"}", ST_BAD_FIELD, NULL},
        {"{\"trace_rate\":\" 5\"}", ST_BAD_FIELD, NULL},
        {"{\"trace_rate\":\"-1\"}", ST_BAD_FIELD, NULL},
        {"{\"trace_rate\":\"2147483648\"}", ST_BAD_FIELD, NULL},
        {"{\"trace_count\":\"-2\"}", ST_BAD_FIELD, NULL},
        {"{\"trace_count\":\"many\"}", ST_BAD_FIELD, NULL},
        {"{\"log_frequency\":\"99999999999999999999\"}", ST_BAD_FIELD, NULL},
        {"[]", ST_BAD_FIELD, NULL},
        {"{\"trace_rate\":NaN}", ST_BAD_FIELD, NULL},
        {"{\"trace_rate\":\"5\"", ST_BAD_JSON, NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct v2_trace_update got;
        struct error err = {.text = ""};
        char wanted[TEXT_BYTES];
        enum status st = v2_trace_decode(arena, str_of(rows[i].body), &fixture_limits, &got, &err);
        wanted_print(&got, wanted);
        if (st != rows[i].status || (rows[i].wanted && strcmp(wanted, rows[i].wanted) != 0)) {
            fail_msg("%s: %d %s, wanted %s", rows[i].body, st, err.text, wanted);
        }
        assert_true(st == ST_OK || err.status == st);
        arena_free(arena);
    }
}

/* An entry of the map; `values` separated by commas, "": none. */
static void add_entry(struct buf *out, const char *key, const char *values) {
    size_t entry = pb_begin(out, 1);
    pb_add_string(out, 1, str_of(key));
    size_t value = pb_begin(out, 2);
    struct str rest = str_of(values);
    while (values[0] && rest.ptr) {
        pb_add_bytes(out, 1, str_cut(&rest, ','));
    }
    pb_end(out, value);
    pb_end(out, entry);
}

static void v2_grpc_trace_decode_rows_match(void **state) {
    static const struct {
        const char *key, *values;
        enum status status;
        const char *wanted; /* includes the other entry, trace_rate 9 */
    } rows[] = {
        {"trace_level", "TIMESTAMPS", ST_OK, "level=1 rate=9"},
        {"trace_level", "TIMESTAMPS,TENSORS", ST_OK, "level=3 rate=9"},
        {"trace_level", "", ST_OK, "level- rate=9"},
        {"trace_level", "other", ST_OK, "rate=9"},
        {"trace_rate", "3", ST_OK, "rate=3"}, /* the last counts */
        {"trace_rate", "", ST_OK, "rate-"},
        {"trace_count", "-1", ST_OK, "rate=9 count=-1"},
        {"anything", "1", ST_OK, "rate=9"},
        {"trace_level", "OFF,TENSORS", ST_BAD_FIELD, NULL},
        {"trace_count", "1,2", ST_BAD_FIELD, NULL},
        {"trace_count", "-2", ST_BAD_FIELD, NULL},
        {"log_frequency", "x", ST_BAD_FIELD, NULL},
        {"log_frequency", "\xff", ST_BAD_FIELD, NULL},
        {"trace_file", "", ST_UNSUPPORTED, NULL},
        {"trace_file", "/x", ST_UNSUPPORTED, NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct v2_trace_update got;
        struct error err;
        struct buf message;
        char wanted[TEXT_BYTES];
        buf_init(&message, arena, 64);
        add_entry(&message, "trace_rate", "9");
        add_entry(&message, rows[i].key, rows[i].values);
        pb_add_string(&message, 2, STR("m"));
        assert_int_equal(v2_grpc_trace_decode(buf_str(&message), &got, &err), rows[i].status);
        assert_true(str_is(got.model, "m"));
        wanted_print(&got, wanted);
        if (rows[i].wanted) {
            assert_string_equal(wanted, rows[i].wanted);
        }
        arena_free(arena);
    }
}

static void v2_grpc_trace_decode_truncated_is_refused(void **state) {
    struct arena *arena = arena_new(NULL, 0);
    struct v2_trace_update got;
    struct error err;
    struct buf message;
    (void)state;
    buf_init(&message, arena, 64);
    add_entry(&message, "trace_rate", "9");
    size_t whole = message.len;
    add_entry(&message, "trace_level", "TIMESTAMPS,TENSORS");
    for (size_t n = 0; n < message.len; n++) {
        char *copy = malloc(n + 1);
        memcpy(copy, message.data, n);
        enum status st = v2_grpc_trace_decode(str_make(copy, n), &got, &err);
        assert_int_equal(st, n == 0 || n == whole ? ST_OK : ST_BAD_REQUEST);
        free(copy);
    }
    arena_free(arena);
}

/* Printed numbers and levels can be sent back. */
static void v2_trace_print_output_decodes_again(void **state) {
    const struct v2_trace_option options[] = {{"url", "http://h/"}};
    const struct v2_trace_settings to_url = {.values = {.level = 0, .rate = 1, .count = 0},
                                             .opentelemetry = true,
                                             .options = options,
                                             .n_options = 1};
    const struct v2_trace_settings to_file = {
        .values = {.level = 3, .rate = 1000, .count = -1, .log_frequency = 5}, .file = "/t"};
    struct arena *arena = arena_new(NULL, 0);
    struct v2_trace_update got;
    struct error err;
    struct buf out;
    char wanted[TEXT_BYTES];
    (void)state;
    buf_init(&out, arena, 64);
    v2_trace_print(&out, &to_file);
    assert_true(str_is(buf_str(&out),
                       "{\"trace_level\":[\"TIMESTAMPS\",\"TENSORS\"],\"trace_rate\":"
                       "\"1000\",\"trace_count\":\"-1\",\"log_frequency\":\"5\","
                       "\"trace_file\":\"/t\",\"trace_mode\":\"triton\"}"));
    buf_init(&out, arena, 64);
    v2_trace_print(&out, &to_url);
    assert_true(str_is(buf_str(&out), "{\"trace_level\":[\"OFF\"],\"trace_rate\":\"1\","
                                      "\"trace_count\":\"0\",\"trace_mode\":\"opentelemetry\","
                                      "\"url\":\"http://h/\"}"));
    assert_int_equal(v2_trace_decode(arena, buf_str(&out), &fixture_limits, &got, &err), ST_OK);
    wanted_print(&got, wanted);
    assert_string_equal(wanted, "level=0 rate=1 count=0");
    buf_init(&out, arena, 64);
    v2_grpc_trace_encode(&out, &to_url);
    assert_int_equal(v2_grpc_trace_decode(buf_str(&out), &got, &err), ST_OK);
    wanted_print(&got, wanted);
    assert_string_equal(wanted, "level=0 rate=1 count=0");
    buf_init(&out, arena, 64);
    v2_grpc_trace_encode(&out, &to_file);
    assert_int_equal(v2_grpc_trace_decode(buf_str(&out), &got, &err), ST_UNSUPPORTED);
    arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(v2_trace_decode_json_rows_match),
        cmocka_unit_test(v2_grpc_trace_decode_rows_match),
        cmocka_unit_test(v2_grpc_trace_decode_truncated_is_refused),
        cmocka_unit_test(v2_trace_print_output_decodes_again),
    };
    return cmocka_run_group_tests_name("codec/kserve/trace", tests, NULL, NULL);
}
