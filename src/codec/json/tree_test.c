/* Text to tree: errors before a tree is built, paths and descriptions of values, where NaN may
 * appear, and that the received text is not changed. */
#include "codec/json/tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "codec/kserve/v2_fixture.h"

static enum status parse(struct json_tree *tree, struct arena *arena, const char *text,
                         struct error *err) {
    return json_tree_parse(tree, "the request", arena, str_of(text), &fixture_limits, err);
}

static void json_tree_parse_invalid_text_is_refused(void **state) {
    static const struct {
        const char *text;
        enum status status;
        const char *sentence; /* a substring */
    } rows[] = {
        {"", ST_BAD_JSON, "the request: expected JSON, got 0 bytes"},
        {"  ", ST_BAD_JSON, "malformed JSON at byte 0"},
        {"{", ST_BAD_JSON, "malformed JSON at byte 1: unexpected end of data"},
        {"{\"a\":}", ST_BAD_JSON, "malformed JSON at byte 5"},
        {"[1,]", ST_BAD_JSON, "malformed JSON at byte 2"},
        {"[1 2]", ST_BAD_JSON, "malformed JSON at byte 3"},
        {"[01]", ST_BAD_JSON, "leading zero"},
        {"[+1]", ST_BAD_JSON, "malformed JSON at byte 1"},
        {"[.5]", ST_BAD_JSON, "malformed JSON at byte 1"},
        {"[0x10]", ST_BAD_JSON, "malformed JSON at byte 2"},
        {"[tru]", ST_BAD_JSON, "literal"},
        {"['a']", ST_BAD_JSON, "malformed JSON at byte 1"},
        {"[1]/* */", ST_BAD_JSON, "ends at byte 3 and 5 bytes follow"},
        {"[/* */1]", ST_BAD_JSON, "malformed JSON at byte 1"},
        {"[\"\x01\"]", ST_BAD_JSON, "control character"},
        {"[\"\\x\"]", ST_BAD_JSON, "escape"},
        {"[\"\\ud800\"]", ST_BAD_JSON, "surrogate"},
        {"[\"\\udc00\"]", ST_BAD_JSON, "surrogate"},
        {"[\"\\ud800\\u0041\"]", ST_BAD_JSON, "surrogate"},
        {"[\"\xff\"]", ST_BAD_JSON, "UTF-8"},
        {"[\"\xed\xa0\x80\"]", ST_BAD_JSON, "UTF-8"}, /* a surrogate's own bytes */
        {"[\"\xc0\x80\"]", ST_BAD_JSON, "UTF-8"},     /* an overlong NUL */
        {"\xef\xbb\xbf{}", ST_BAD_JSON, "BOM"},
        {"[nan]", ST_BAD_JSON, "malformed JSON at byte 1"},
        {"[inf]", ST_BAD_JSON, "malformed JSON at byte 1"},
        {"[-nan]", ST_BAD_JSON, "malformed JSON at byte 2"},
        {"[NaN,nan]", ST_BAD_JSON,
         "at byte 5: expected a value (of bare words true, false, null, "
         "NaN, Infinity, -Infinity), got nan"},
        {"[-NaN,NaN]", ST_BAD_JSON, "got -NaN"},
        {"[NaN,INFINITY]", ST_BAD_JSON, "got INFINITY"},
        {"[NaN,Inf]", ST_BAD_JSON, "got Inf"},
        {"{}{}", ST_BAD_JSON, "the JSON ends at byte 2 and 2 bytes follow it"},
        {"1 2", ST_BAD_JSON, "malformed JSON"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct json_tree tree;
        struct error err = {0};
        enum status status = parse(&tree, arena, rows[i].text, &err);
        if (status != rows[i].status || err.status != status ||
            !strstr(err.text, rows[i].sentence)) {
            fail_msg("%s: %s %s", rows[i].text, status_name(status), err.text);
        }
        arena_free(arena);
    }
}

/* Only in a body does a header field separate the JSON from the bytes after it. */
static void json_tree_parse_trailing_bytes_are_refused_with_advice(void **state) {
    static const char advice[] = "; if they are tensor data, Inference-Header-Content-Length is "
                                 "missing or wrong";
    (void)state;
    for (int is_body = 0; is_body <= 1; is_body++) {
        struct arena *arena = arena_new(NULL, 0);
        struct json_tree tree;
        struct error err = {0};
        enum status status =
            is_body ? json_tree_parse_body(&tree, "x", arena, STR("{}{}"), &fixture_limits, &err)
                    : json_tree_parse(&tree, "x", arena, STR("{}{}"), &fixture_limits, &err);
        assert_int_equal(status, ST_BAD_JSON);
        assert_int_equal(strstr(err.text, advice) != NULL, is_body);
        arena_free(arena);
    }
}

static void json_tree_parse_over_limits_is_refused(void **state) {
    static const struct {
        const char *text;
        struct json_limits limits;
        enum status status;
        const char *sentence;
    } rows[] = {
        {"[[[1]]]", {100, 3, 10}, ST_OK, ""},
        {"[[[]]]", {100, 3, 10}, ST_OK, ""},
        {"[[[]]]", {100, 2, 10}, ST_TOO_DEEP, "limit (2): it is 3 levels deep (--max-json-depth)"},
        {"[[[1]]]", {100, 2, 10}, ST_TOO_DEEP, "limit (2): it is 3 levels deep (--max-json-depth)"},
        {"{\"a\":[{}]}", {100, 2, 10}, ST_TOO_DEEP, "--max-json-depth"},
        {"[1,2]", {5, 2, 10}, ST_OK, ""},
        {"[1,2]", {4, 2, 10}, ST_BODY_TOO_LARGE, "5 bytes long; the limit is 4 (--max-json-size)"},
        {"[1,2]", {5, 2, UINT64_MAX}, ST_OK, ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct json_tree tree;
        struct error err = {0};
        enum status status =
            json_tree_parse(&tree, "x", arena, str_of(rows[i].text), &rows[i].limits, &err);
        if (status != rows[i].status || !strstr(err.text, rows[i].sentence)) {
            fail_msg("%zu: %s %s", i, status_name(status), err.text);
        }
        arena_free(arena);
    }
}

/* Too deep or too many values: the error comes before the allocation, which would fail. */
static void json_tree_parse_over_limits_allocates_nothing(void **state) {
    size_t n = 1000000;
    char *text = malloc(n);
    struct arena *arena = arena_new(NULL, 8192);
    struct json_limits wide = {n, 100, 1000};
    struct json_tree tree;
    struct error err;
    (void)state;
    memset(text, '[', n);
    assert_int_equal(json_tree_parse(&tree, "x", arena, str_make(text, n), &wide, &err),
                     ST_TOO_DEEP);
    assert_non_null(strstr(err.text, "limit (100): it is 1000000 levels deep"));
    for (size_t i = 1; i + 1 < n; i += 2) {
        text[i] = '1';
        text[i + 1] = ',';
    }
    text[n - 1] = '2';
    assert_int_equal(json_tree_parse(&tree, "x", arena, str_make(text, n), &wide, &err),
                     ST_TOO_MANY_ELEMENTS);
    assert_non_null(strstr(err.text, "--max-tensor-elements is 1000"));
    wide.max_tensor_elements = n;
    assert_int_equal(json_tree_parse(&tree, "x", arena, str_make(text, n), &wide, &err),
                     ST_NO_MEMORY);
    arena_free(arena);
    free(text);
}

static void json_tree_parse_leaves_input_unchanged(void **state) {
    static const char before[] = "{\"a\\n\":\"\\u00e9\\\"\",\"b\":[1e400,2]}";
    char text[sizeof(before)];
    struct arena *arena = arena_new(NULL, 0);
    struct json_tree tree;
    struct error err;
    (void)state;
    memcpy(text, before, sizeof(before));
    assert_int_equal(parse(&tree, arena, text, &err), ST_OK);
    assert_memory_equal(text, before, sizeof(before));
    struct str key = json_str(json_first(tree.root));
    json_tree_free_values(&tree);
    assert_true(str_is(key, "a\n")); /* strings outlive the values */
    arena_free(arena);
}

/* ---- paths and descriptions ------------------------------------------------------------------ */

/* The value with the tag 777 (or the one that is described in the row): found by walking all
 * values. */
static yyjson_val *find_marked(const struct json_tree *tree) {
    for (yyjson_val *val = tree->root; val < tree->end; val++) {
        if (yyjson_is_uint(val) && yyjson_get_uint(val) == 777) {
            return val;
        }
    }
    return tree->root;
}

static void json_path_print_matches_rows(void **state) {
    static const char *const rows[][2] = {
        {"777", "the request"},
        {"{\"a\":777}", "a"},
        {"[777]", "[0]"},
        {"{\"inputs\":[{\"shape\":[1,777]}]}", "inputs[0].shape[1]"},
        {"{\"inputs\":[{\"shape\":[[],{},777]}]}", "inputs[0].shape[2]"},
        {"{\"inputs\":[{},{\"x\":[1,2,[3]],\"parameters\":{\"p_1\":777}}]}",
         "inputs[1].parameters.p_1"},
        {"{\"a b\":777}", "[\"a b\"]"},
        {"{\"x\":{\"\":777}}", "x[\"\"]"},
        {"{\"x\":{\"9\":777}}", "x[\"9\"]"},
        {"{\"a\\u0000b\":777}", "[\"a?b\"]"},
        {"{\"0123456789012345678901234567890123456789long\":{\"b\":777}}",
         "[\"0123456789012345678901234567890123456789…\"].b"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct json_tree tree;
        struct error err;
        char path[JSON_PATH_BYTES];
        assert_int_equal(parse(&tree, arena, rows[i][0], &err), ST_OK);
        assert_string_equal(json_path_print(&tree, find_marked(&tree), path), rows[i][1]);
        arena_free(arena);
    }
}

static void json_path_print_long_path_is_truncated(void **state) {
    char text[256];
    struct arena *arena = arena_new(NULL, 0);
    struct json_tree tree;
    struct error err;
    char path[JSON_PATH_BYTES];
    (void)state;
    memset(text, '[', 90);
    memcpy(text + 90, "777", 3);
    memset(text + 93, ']', 90);
    text[183] = '\0';
    assert_int_equal(parse(&tree, arena, text, &err), ST_OK);
    json_path_print(&tree, find_marked(&tree), path);
    assert_true(strlen(path) < JSON_PATH_BYTES);
    assert_memory_equal(path, "[0][0][0][0]", 12);
    assert_string_equal(path + strlen(path) - 3, "…");
    arena_free(arena);
}

static void json_error_got_describes_value(void **state) {
    static const char *const rows[][2] = {
        {"\"4\"", "a string \"4\""},
        {"\"a\\nb\\u0000\"", "a string \"a?b?\""},
        {"\"0123456789012345678901234567890123456789long\"",
         "a string \"0123456789012345678901234567890123456789…\""},
        {"1.0", "1.0"},
        {"1e3", "1000.0"},
        {"-5", "-5"},
        {"1e400", "1e400"},
        {"18446744073709551616", "18446744073709551616"},
        {"1234567890123456789012345678901234567890123456",
         "1234567890123456789012345678901234567890…"},
        {"NaN", "NaN"},
        {"-Infinity", "-Infinity"},
        {"true", "true"},
        {"false", "false"},
        {"null", "null"},
        {"[1,2]", "an array of 2"},
        {"{\"a\":[]}", "an object of 1"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct json_tree tree;
        struct error err;
        char want[256];
        snprintf(want, sizeof(want), "the request: expected 7, got %s", rows[i][1]);
        assert_int_equal(parse(&tree, arena, rows[i][0], &err), ST_OK);
        assert_int_equal(json_error_got(&tree, tree.root, ST_BAD_FIELD, &err, "expected %d", 7),
                         ST_BAD_FIELD);
        assert_string_equal(err.text, want);
        arena_free(arena);
    }
}

/* ---- NaN and infinities ---------------------------------------------------------------------- */

static void json_tree_check_finite_allows_listed_spans_only(void **state) {
    static const char text[] = "{\"a\":[1,NaN],\"b\":[Infinity],\"c\":[2,[-Infinity]],\"d\":NaN}";
    struct arena *arena = arena_new(NULL, 0);
    struct json_tree tree;
    struct error err;
    yyjson_val *found[4];
    const struct str names[] = {STR("a"), STR("b"), STR("c"), STR("d")};
    (void)state;
    assert_int_equal(parse(&tree, arena, text, &err), ST_OK);
    assert_true(tree.non_finite);
    json_find(tree.root, names, 4, found);
    struct json_span spans[4];
    for (size_t i = 0; i < 4; i++) {
        spans[i] = json_value_span(found[i]);
    }
    assert_int_equal(json_tree_check_finite(&tree, spans, 4, &err), ST_OK);
    static const struct {
        size_t first, n;
        const char *sentence;
    } rows[] = {
        {0, 0, "a[1]: expected a finite number"}, {1, 3, "a[1]: expected a finite number"},
        {0, 1, "b[0]: expected a finite number"}, {0, 2, "c[1][0]: expected a finite number"},
        {0, 3, "d: expected a finite number"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(json_tree_check_finite(&tree, spans + rows[i].first, rows[i].n, &err),
                         ST_BAD_FIELD);
        assert_memory_equal(err.text, rows[i].sentence, strlen(rows[i].sentence));
    }
    arena_free(arena);
}

static void json_find_duplicate_key_takes_first(void **state) {
    struct arena *arena = arena_new(NULL, 0);
    struct json_tree tree;
    struct error err;
    yyjson_val *found[3];
    const struct str names[] = {STR("a"), STR("b"), STR("c")};
    int64_t value = 0;
    (void)state;
    assert_int_equal(parse(&tree, arena, "{\"x\":{\"a\":9},\"a\":1,\"c\":2,\"a\":3}", &err), ST_OK);
    json_find(tree.root, names, 3, found);
    assert_int_equal(json_read_i64(&tree, found[0], 0, &value, &err), ST_OK);
    assert_int_equal(value, 1);
    assert_null(found[1]);
    assert_non_null(found[2]);
    arena_free(arena);
}

static void json_array_grow_keeps_items(void **state) {
    (void)state;
    for (size_t total = 1; total < 70; total++) {
        struct arena *arena = arena_new(NULL, 0);
        size_t *items = NULL;
        for (size_t n = 0; n < total; n++) {
            items = json_array_grow(arena, items, n, total, sizeof(*items));
            assert_non_null(items);
            items[n] = n;
        }
        for (size_t n = 0; n < total; n++) {
            assert_int_equal(items[n], n);
        }
        arena_free(arena);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_tree_parse_invalid_text_is_refused),
        cmocka_unit_test(json_tree_parse_trailing_bytes_are_refused_with_advice),
        cmocka_unit_test(json_tree_parse_over_limits_is_refused),
        cmocka_unit_test(json_tree_parse_over_limits_allocates_nothing),
        cmocka_unit_test(json_tree_parse_leaves_input_unchanged),
        cmocka_unit_test(json_path_print_matches_rows),
        cmocka_unit_test(json_path_print_long_path_is_truncated),
        cmocka_unit_test(json_error_got_describes_value),
        cmocka_unit_test(json_tree_check_finite_allows_listed_spans_only),
        cmocka_unit_test(json_find_duplicate_key_takes_first),
        cmocka_unit_test(json_array_grow_keeps_items),
    };
    return cmocka_run_group_tests_name("codec/json/tree", tests, NULL, NULL);
}
