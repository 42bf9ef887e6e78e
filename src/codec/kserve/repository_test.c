/* Requests of the model repository extension, as JSON and as protobuf; and a model configuration
 * as JSON. */
#include "codec/kserve/repository.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "codec/kserve/v2_fixture.h"
#include "codec/protobuf/pb.h"

static void v2_repository_load_decode_json_rows_match(void **state) {
    static const struct {
        const char *body;
        enum status status;
        const char *says; /* the configuration, or a part of the error text */
        size_t n_files;
    } rows[] = {
        {"", ST_OK, "", 0},
        {"  ", ST_OK, "", 0},
        {"{}", ST_OK, "", 0},
        {"{\"parameters\":{}}", ST_OK, "", 0},
        {"{\"parameters\":{\"config\":\"{}\"}}", ST_OK, "{}", 0},
        {"{\"parameters\":{\"file:1/a\":\"QUI=\",\"config\":\"x\",\"file:\":\"\"}}", ST_OK, "x", 2},
        {"{\"parameters\":{\"config\":{}}}", ST_OK, "{}", 0},
        {"{\"parameters\":{\"config\":{\"a\": [1.50, 18446744073709551616, null, \"\\u00e9\"]}}}",
         ST_OK, "{\"a\":[1.5,18446744073709551616,null,\"\u00e9\"]}", 0},
        {"{\"parameters\":{\"config\":null,\"file:1/a\":null,\"other\":\"\"}}", ST_BAD_FIELD,
         "expected config, version and file:", 0},
        {"{\"parameters\":{\"config\":null,\"file:1/a\":null}}", ST_OK, "", 0},
        {"{\"parameters\":null}", ST_OK, "", 0},
        {"{\"parameters\":{\"config\":[]}}", ST_BAD_FIELD, "expected text for \"config\"", 0},
        {"{\"parameters\":{\"config\":3}}", ST_BAD_FIELD, "expected text for \"config\"", 0},
        {"{\"parameters\":{\"file:1/a\":{}}}", ST_BAD_FIELD, "expected text for \"file:1/a\"", 0},
        {"{\"parameters\":{\"file:1/a\":1}}", ST_BAD_FIELD, "expected text for \"file:1/a\"", 0},
        {"{\"parameters\":{\"files\":\"\"}}", ST_BAD_FIELD,
         "expected config, version and file:", 0},
        {"{\"parameters\":{\"version\":0}}", ST_BAD_FIELD, "a version's number", 0},
        {"{\"parameters\":{\"version\":-1}}", ST_BAD_FIELD, "a version's number", 0},
        {"{\"parameters\":{\"version\":\"1.5\"}}", ST_BAD_FIELD, "a version's number", 0},
        {"{\"parameters\":{\"version\":[1]}}", ST_BAD_FIELD, "a version's number", 0},
        {"{\"parameters\":{\"version\":1,\"config\":\"{}\"}}", ST_BAD_FIELD, "stands alone", 0},
        {"{\"parameters\":{\"version\":7}}", ST_OK, "", 0},
        {"{\"parameters\":{\"version\":\"7\"}}", ST_OK, "", 0},
        {"{\"parameters\":{\"file:1/a\":\"*\"}}", ST_BAD_FIELD, "is not base64", 0},
        {"{\"parameters\":[]}", ST_BAD_FIELD, "parameters", 0},
        {"[]", ST_BAD_FIELD, "object", 0},
        {"{", ST_BAD_JSON, "", 0},
        {"{\"parameters\":NaN}", ST_BAD_FIELD, "finite", 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct v2_repository_request request;
        struct error err = {.text = ""};
        enum status st =
            v2_repository_load_decode(arena, str_of(rows[i].body), &fixture_limits, &request, &err);
        if (st != rows[i].status || !strstr(err.text, st == ST_OK ? "" : rows[i].says)) {
            fail_msg("%s: %d %s", rows[i].body, st, err.text);
        }
        if (st == ST_OK) {
            assert_int_equal(request.n_files, rows[i].n_files);
            assert_true(str_is(request.config, rows[i].says));
            assert_int_equal(request.version, strstr(rows[i].body, "version") ? 7 : 0);
        }
        if (request.n_files == 2) {
            assert_true(str_is(request.files[0].path, "1/a"));
            assert_true(str_is(request.files[0].data, "AB"));
            assert_int_equal(request.files[1].path.len, 0);
        }
        arena_free(arena);
    }
}

/* An entry of the map of parameters, with a value of type `kind`. */
static void add_entry(struct buf *out, const char *key, uint32_t kind, const char *text) {
    size_t entry = pb_begin(out, 3);
    pb_add_string(out, 1, str_of(key));
    size_t value = pb_begin(out, 2);
    if (text) {
        pb_add_bytes(out, kind, str_of(text));
    } else {
        pb_add_varint(out, kind, 1);
    }
    pb_end(out, value);
    pb_end(out, entry);
}

static void v2_grpc_repository_load_decode_rows_match(void **state) {
    static const struct {
        const char *key;
        uint32_t kind;
        const char *text;
        enum status status;
    } rows[] = {
        {"config", 3, "{}", ST_OK},         {"config", 4, "{}", ST_BAD_FIELD},
        {"config", 1, NULL, ST_BAD_FIELD},  {"config", 3, NULL, ST_BAD_FIELD},
        {"file:1/a", 4, "A\xff", ST_OK},    {"file:1/a", 3, "A", ST_BAD_FIELD},
        {"other", 3, "x", ST_BAD_FIELD},    {"", 3, "x", ST_BAD_FIELD},
        {"version", 2, NULL, ST_OK},        {"version", 3, "1", ST_OK},
        {"version", 3, "0", ST_BAD_FIELD},  {"version", 3, "x", ST_BAD_FIELD},
        {"version", 1, NULL, ST_BAD_FIELD}, {"version", 4, "1", ST_BAD_FIELD},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct v2_repository_request request;
        struct error err;
        struct buf message;
        buf_init(&message, arena, 64);
        pb_add_string(&message, 2, STR("m"));
        add_entry(&message, rows[i].key, rows[i].kind, rows[i].text);
        add_entry(&message, rows[i].key, rows[i].kind, rows[i].text); /* the last counts */
        assert_int_equal(v2_grpc_repository_load_decode(arena, buf_str(&message), &request, &err),
                         rows[i].status);
        if (rows[i].status == ST_OK) {
            assert_true(str_is(request.model, "m"));
            assert_int_equal(request.n_files, rows[i].kind == 4);
            bool version = strcmp(rows[i].key, "version") == 0;
            assert_int_equal(request.config.ptr != NULL, rows[i].kind == 3 && !version);
            assert_int_equal(request.version, version);
        }
        arena_free(arena);
    }
}

static void v2_grpc_repository_load_too_many_files_is_refused(void **state) {
    struct arena *arena = arena_new(NULL, 0);
    struct v2_repository_request request;
    struct error err;
    struct buf message;
    (void)state;
    buf_init(&message, arena, 4096);
    for (int i = 0; i < 300; i++) {
        add_entry(&message, arena_printf(arena, "file:1/%d", i).ptr, 4, "x");
    }
    assert_int_equal(v2_grpc_repository_load_decode(arena, buf_str(&message), &request, &err),
                     ST_BAD_FIELD);
    arena_free(arena);
}

static void v2_grpc_repository_load_truncated_is_refused(void **state) {
    struct arena *arena = arena_new(NULL, 0);
    struct v2_repository_request request;
    struct error err;
    struct buf message;
    (void)state;
    buf_init(&message, arena, 64);
    pb_add_string(&message, 2, STR("model"));
    add_entry(&message, "config", 3, "{\"a\":1}");
    for (size_t n = 0; n < message.len; n++) { /* each prefix is an error, or a shorter message */
        char *copy = malloc(n + 1);
        memcpy(copy, message.data, n);
        struct str torn = str_make(copy, n);
        enum status st = v2_grpc_repository_load_decode(arena, torn, &request, &err);
        assert_true(st == ST_BAD_REQUEST || ((n == 0 || n == 7) && st == ST_OK));
        st = v2_grpc_repository_unload_decode(torn, &request, &err);
        assert_true(st == ST_BAD_REQUEST || ((n == 0 || n == 7) && st == ST_OK));
        free(copy);
    }
    arena_free(arena);
}

static void model_config_json_rewrite_rows_match(void **state) {
    static const struct {
        const char *json;
        const char *becomes; /* NULL: an error */
    } rows[] = {
        {"{}", "{}"},
        {"{\"input\":[{\"dims\":[\"-1\",\"3\",4]}]}", "{\"input\":[{\"dims\":[-1,3,4]}]}"},
        {"{\"name\":\"12\",\"default_model_filename\":\"7\"}",
         "{\"name\":\"12\",\"default_model_filename\":\"7\"}"},
        {"{\"parameters\":{\"dims\":{\"string_value\":\"1\"}}}",
         "{\"parameters\":[{\"key\":\"dims\",\"value\":{\"string_value\":\"1\"}}]}"},
        {"{\"dynamic_batching\":{\"max_queue_delay_microseconds\":\"5\","
         "\"priority_queue_policy\":{\"1\":{\"default_timeout_microseconds\":\"9\"}}}}",
         "{\"dynamic_batching\":{\"max_queue_delay_microseconds\":5,\"priority_queue_policy\":"
         "[{\"key\":1,\"value\":{\"default_timeout_microseconds\":9}}]}}"},
        {"{\"model_warmup\":[{\"inputs\":{\"a\":{\"dims\":[\"2\"]}}}]}",
         "{\"model_warmup\":[{\"inputs\":[{\"key\":\"a\",\"value\":{\"dims\":[2]}}]}]}"},
        {"{\"versions\":\"x\"}", "{\"versions\":\"x\"}"},
        {"", NULL},
        {"[]", NULL},
        {"\"{}\"", NULL},
        {"{", NULL},
        {"{\"a\":1}{", NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct str out = {NULL, 0};
        struct error err;
        enum status st = model_config_json_rewrite(arena, str_of(rows[i].json), &out, &err);
        assert_int_equal(st, rows[i].becomes ? ST_OK : ST_BAD_CONFIG);
        if (rows[i].becomes) {
            assert_string_equal(out.ptr, rows[i].becomes);
        }
        arena_free(arena);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(v2_repository_load_decode_json_rows_match),
        cmocka_unit_test(v2_grpc_repository_load_decode_rows_match),
        cmocka_unit_test(v2_grpc_repository_load_too_many_files_is_refused),
        cmocka_unit_test(v2_grpc_repository_load_truncated_is_refused),
        cmocka_unit_test(model_config_json_rewrite_rows_match),
    };
    return cmocka_run_group_tests_name("codec/kserve/repository", tests, NULL, NULL);
}
