/* Log settings, as JSON and as protobuf: settings before an invalid one are applied, and
 * truncated messages. */
#include "codec/kserve/logging.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "codec/kserve/v2_fixture.h"
#include "codec/protobuf/pb.h"

/* The given settings, one letter each: "iwev", upper case if on. */
static void taken_print(const struct v2_log_settings *got, char out[8]) {
    const struct {
        enum v2_log_key key;
        bool on;
        char letter;
    } rows[] = {
        {V2_LOG_INFO, got->info, 'i'},
        {V2_LOG_WARNING, got->warning, 'w'},
        {V2_LOG_ERROR, got->error, 'e'},
        {V2_LOG_VERBOSE_LEVEL, got->verbose_level > 0, 'v'},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (got->given[rows[i].key]) {
            *out++ = (char)(rows[i].on ? rows[i].letter - 32 : rows[i].letter);
        }
    }
    *out = '\0';
}

static void v2_log_decode_json_rows_match(void **state) {
    static const struct {
        const char *body;
        enum status status;
        const char *taken;
    } rows[] = {
        {"{}", ST_OK, ""},
        {"{\"log_info\":false,\"log_verbose_level\":3}", ST_OK, "iV"},
        {"{\"log_verbose_level\":4294967295,\"log_error\":true}", ST_OK, "EV"},
        {"{\"log_info\":null,\"log_file\":null,\"log_format\":null}", ST_OK, ""},
        {"{\"log_format\":\"ISO8601\",\"other\":[1]}", ST_OK, ""},
        {"", ST_BAD_JSON, ""},
        {"{\"log_file\":\"x\",\"log_info\":false}", ST_UNSUPPORTED, ""},
        {"{\"log_error\":1,\"log_info\":false}", ST_BAD_FIELD, "i"},
        {"{\"log_verbose_level\":-1,\"log_error\":false,\"log_warning\":true}", ST_BAD_FIELD, "We"},
        {"{\"log_verbose_level\":4294967296}", ST_BAD_FIELD, ""},
        {"{\"log_verbose_level\":1.0}", ST_BAD_FIELD, ""},
        {"{\"log_verbose_level\":\"1\"}", ST_BAD_FIELD, ""},
        {"{\"log_format\":\"default\"}", ST_OK, ""},
        {"{\"log_format\":\"iso\",\"log_verbose_level\":1}", ST_BAD_FIELD, "V"},
        {"{\"log_format\":1}", ST_BAD_FIELD, ""},
        {"[]", ST_BAD_FIELD, ""},
        {"{\"log_info\":NaN}", ST_BAD_FIELD, ""},
        {"{\"log_info\":false", ST_BAD_JSON, ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct v2_log_settings got;
        struct error err = {.text = ""};
        char taken[8];
        enum status st = v2_log_decode(arena, str_of(rows[i].body), &fixture_limits, &got, &err);
        taken_print(&got, taken);
        if (st != rows[i].status || strcmp(taken, rows[i].taken) != 0) {
            fail_msg("%s: %d %s, taken %s", rows[i].body, st, err.text, taken);
        }
        assert_true(st == ST_OK || err.status == st);
        arena_free(arena);
    }
}

/* An entry of the map, with a value of type `kind` (0: none). */
static void add_entry(struct buf *out, const char *key, uint32_t kind, uint64_t number) {
    size_t entry = pb_begin(out, 1);
    pb_add_string(out, 1, str_of(key));
    size_t value = pb_begin(out, 2);
    if (kind == 3) {
        pb_add_bytes(out, kind, number ? STR("ISO8601") : STR("nonsense"));
    } else if (kind > 0) {
        pb_add_varint(out, kind, number);
    }
    pb_end(out, value);
    pb_end(out, entry);
}

static void v2_grpc_log_decode_rows_match(void **state) {
    static const struct {
        const char *key;
        uint32_t kind;
        uint64_t number;
        enum status status;
        const char *taken; /* includes the other entry, "log_info" off */
    } rows[] = {
        {"log_warning", 1, 1, ST_OK, "iW"},
        {"log_verbose_level", 2, 7, ST_OK, "iV"},
        {"log_format", 3, 1, ST_OK, "i"},
        {"anything", 1, 1, ST_OK, "i"},
        {"log_info", 1, 1, ST_OK, "I"}, /* the last counts */
        {"log_error", 0, 0, ST_BAD_FIELD, "i"},
        {"log_error", 2, 1, ST_BAD_FIELD, "i"},
        {"log_verbose_level", 1, 1, ST_BAD_FIELD, "i"},
        {"log_format", 3, 0, ST_BAD_FIELD, "i"},
        {"log_file", 3, 1, ST_UNSUPPORTED, ""},
        {"log_file", 0, 0, ST_UNSUPPORTED, ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct v2_log_settings got;
        struct error err;
        struct buf message;
        char taken[8];
        buf_init(&message, arena, 64);
        add_entry(&message, "log_info", 1, 0);
        add_entry(&message, rows[i].key, rows[i].kind, rows[i].number);
        assert_int_equal(v2_grpc_log_decode(buf_str(&message), &got, &err), rows[i].status);
        taken_print(&got, taken);
        assert_string_equal(taken, rows[i].taken);
        arena_free(arena);
    }
}

/* A truncated message changes nothing. */
static void v2_grpc_log_decode_truncated_is_refused(void **state) {
    struct arena *arena = arena_new(NULL, 0);
    struct v2_log_settings got;
    struct error err;
    struct buf message;
    (void)state;
    buf_init(&message, arena, 64);
    add_entry(&message, "log_info", 1, 0);
    size_t whole = message.len;
    add_entry(&message, "log_verbose_level", 2, 300);
    for (size_t n = 0; n < message.len; n++) {
        char *copy = malloc(n + 1), taken[8];
        memcpy(copy, message.data, n);
        enum status st = v2_grpc_log_decode(str_make(copy, n), &got, &err);
        assert_int_equal(st, n == 0 || n == whole ? ST_OK : ST_BAD_REQUEST);
        taken_print(&got, taken);
        assert_string_equal(taken, n == whole ? "i" : "");
        free(copy);
    }
    arena_free(arena);
}

/* The printed settings can be sent back. */
static void v2_log_print_output_decodes_again(void **state) {
    const struct v2_log_settings now = {.info = true, .error = true, .verbose_level = 9};
    struct arena *arena = arena_new(NULL, 0);
    struct v2_log_settings got;
    struct error err;
    struct buf out;
    (void)state;
    buf_init(&out, arena, 64);
    v2_log_print(&out, &now);
    assert_true(str_is(buf_str(&out), "{\"log_file\":\"\",\"log_info\":true,\"log_warning\":false,"
                                      "\"log_error\":true,\"log_verbose_level\":9,"
                                      "\"log_format\":\"default\"}"));
    buf_init(&out, arena, 64);
    v2_grpc_log_encode(&out, &now);
    assert_int_equal(v2_grpc_log_decode(buf_str(&out), &got, &err), ST_UNSUPPORTED); /* because of
                                                                                        its file */
    arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(v2_log_decode_json_rows_match),
        cmocka_unit_test(v2_grpc_log_decode_rows_match),
        cmocka_unit_test(v2_grpc_log_decode_truncated_is_refused),
        cmocka_unit_test(v2_log_print_output_decodes_again),
    };
    return cmocka_run_group_tests_name("codec/kserve/logging", tests, NULL, NULL);
}
