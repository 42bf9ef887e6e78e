/* The protobuf text format as JSON, row by row, and errors with their line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/doc/build.h"
#include "core/base/doc/doc.h"

static const struct {
    const char *text;
    const char *json;
} taken[] = {
    {"", "{}"},
    {" \t\r\n\v\f# only a comment", "{}"},
    {"a: 1", "{\"a\":1}"},
    {"a:1;b:2,c:3", "{\"a\":1,\"b\":2,\"c\":3}"},
    {"a:1 b:2\nc:3;", "{\"a\":1,\"b\":2,\"c\":3}"},
    {"# head\na: 1 # tail\n# between\nb: \"# no comment\"", "{\"a\":1,\"b\":\"# no comment\"}"},
    {"a # between name and colon\n: # and value\n1", "{\"a\":1}"},
    /* messages */
    {"m { a: 1 }", "{\"m\":{\"a\":1}}"},
    {"m: { a: 1 }", "{\"m\":{\"a\":1}}"},
    {"m < a: 1 >", "{\"m\":{\"a\":1}}"},
    {"m: < a: 1 n { b: 2 } >", "{\"m\":{\"a\":1,\"n\":{\"b\":2}}}"},
    {"m{}n<>", "{\"m\":{},\"n\":{}}"},
    {"m {a:1},n {b:2};", "{\"m\":{\"a\":1},\"n\":{\"b\":2}}"},
    {"_under_9 { Camel: 1 }", "{\"_under_9\":{\"Camel\":1}}"},
    /* lists */
    {"a: [1, 2, 3]", "{\"a\":[1,2,3]}"},
    {"a: [ ]", "{\"a\":[]}"},
    {"a []", "{\"a\":[]}"},
    {"a: [ -1, TYPE_FP32, \"x\" 'y', 0x1f, 1.5f, true ]",
     "{\"a\":[-1,\"TYPE_FP32\",\"xy\",31,1.5,true]}"},
    {"m [ { a: 1 }, < b: 2 > ]", "{\"m\":[{\"a\":1},{\"b\":2}]}"},
    {"m: [ { a: 1 } ]", "{\"m\":[{\"a\":1}]}"},
    {"a: [\n1 # one\n,\n2]", "{\"a\":[1,2]}"},
    /* repeated fields */
    {"a:1 a:2", "{\"a\":[1,2]}"},
    {"a:1 b:9 a:2 a:[3,4] a:[] c:8 a:5", "{\"a\":[1,2,3,4,5],\"b\":9,\"c\":8}"},
    {"b:1 a:2 b:3", "{\"b\":[1,3],\"a\":2}"},
    {"m{a:1 a:2} m{a:3}", "{\"m\":[{\"a\":[1,2]},{\"a\":3}]}"},
    {"p { key: \"k\" value: { string_value: \"v\" } } p { key: \"l\" value < string_value: 'w' > }",
     "{\"p\":[{\"key\":\"k\",\"value\":{\"string_value\":\"v\"}},"
     "{\"key\":\"l\",\"value\":{\"string_value\":\"w\"}}]}"},
    {"ab:1 a:2 ab:3 a:4 abc:5", "{\"ab\":[1,3],\"a\":[2,4],\"abc\":5}"},
    /* strings */
    {"s: \"\"", "{\"s\":\"\"}"},
    {"s: 'it''s' \" one\"\n  ' string' # of four\n '!'", "{\"s\":\"its one string!\"}"},
    {"s: 'say \"x\"'", "{\"s\":\"say \\\"x\\\"\"}"},
    {"s: \"\\a\\b\\f\\n\\r\\t\\v\\?\\\\\\'\\\"\"",
     "{\"s\":\"\\u0007\\b\\f\\n\\r\\t\\u000B?\\\\'\\\"\"}"},
    {"s: '\\0\\7\\101\\1012\\x41\\x4\\X4a'", "{\"s\":\"\\u0000\\u0007AA2A\\u0004J\"}"},
    {"s: '\\303\\251\\xc3\\xA9\\u00e9\\U000000e9'", "{\"s\":\"éééé\"}"},
    {"s: '\\u20AC\\U0001F600\\ud83d\\ude00'", "{\"s\":\"€😀😀\"}"},
    {"s: 'é\t'", "{\"s\":\"é\\t\"}"},
    /* whole numbers */
    {"n: 0 n: -0 n: 7 n: -7 n: - 7 n: -# here?\n7", "{\"n\":[0,0,7,-7,-7,-7]}"},
    {"n: 0x1F n: 0XfF n: -0x10 n: 017 n: -010 n: 00", "{\"n\":[31,255,-16,15,-8,0]}"},
    {"n: 9223372036854775807 n: -9223372036854775808 n: 18446744073709551615",
     "{\"n\":[9223372036854775807,-9223372036854775808,18446744073709551615]}"},
    {"n: 0xffffffffffffffff n: 01777777777777777777777",
     "{\"n\":[18446744073709551615,18446744073709551615]}"},
    /* real numbers */
    {"f: 1.5 f: -1.5 f: .5 f: 5. f: 1e3 f: 1E-2 f: 1.5e+2",
     "{\"f\":[1.5,-1.5,0.5,5.0,1000.0,0.01,150.0]}"},
    {"f: 1.5f f: 2F f: 10f f: 0f f: 1e2f f: - 2.5", "{\"f\":[1.5,2.0,10.0,0.0,100.0,-2.5]}"},
    {"f: 0.0 f: -0.0 f: 0.25", "{\"f\":[0.0,-0.0,0.25]}"},
    {"f: 18446744073709551616", "{\"f\":18446744073709552000.0}"},
    {"f: inf f: -inf f: nan f: Infinity f: - INF f: -nan",
     "{\"f\":[Infinity,-Infinity,NaN,Infinity,-Infinity,NaN]}"},
    /* words */
    {"b: true b: True b: t b: false b: False b: f", "{\"b\":[true,true,true,false,false,false]}"},
    {"e: TYPE_STRING e: KIND_CPU e: tRUE e: _x",
     "{\"e\":[\"TYPE_STRING\",\"KIND_CPU\",\"tRUE\",\"_x\"]}"},
    /* a realistic configuration */
    {"name: \"digits\"\nplatform: \"onnxruntime_onnx\"\nmax_batch_size: 8\n"
     "input [\n  {\n    name: \"x\"\n    data_type: TYPE_FP32\n    dims: [ 1, 8, 8 ]\n"
     "    reshape { shape: [ ] }\n  }\n]\noutput { name: \"y\" data_type: TYPE_INT64 dims: -1 }\n"
     "instance_group [ { count: 2 kind: KIND_CPU } ]\ndynamic_batching { }\n"
     "version_policy: { specific { versions: [1, 3] } }\n",
     "{\"name\":\"digits\",\"platform\":\"onnxruntime_onnx\",\"max_batch_size\":8,"
     "\"input\":[{\"name\":\"x\",\"data_type\":\"TYPE_FP32\",\"dims\":[1,8,8],"
     "\"reshape\":{\"shape\":[]}}],"
     "\"output\":{\"name\":\"y\",\"data_type\":\"TYPE_INT64\",\"dims\":-1},"
     "\"instance_group\":[{\"count\":2,\"kind\":\"KIND_CPU\"}],\"dynamic_batching\":{},"
     "\"version_policy\":{\"specific\":{\"versions\":[1,3]}}}"},
};

static const struct {
    const char *text;
    const char *message;
} refused[] = {
    {"a", "f:1: expected \":\" or \"{\" after \"a\", got the end of the file"},
    {"a 1", "f:1: expected \":\" or \"{\" after \"a\", got \"1\""},
    {"a:", "f:1: expected a value, got the end of the file"},
    {"\n\na: }", "f:3: expected a value, got \"}\""},
    {"a: 1 : 2", "f:1: expected a field's name, got \":\""},
    {": 1", "f:1: expected a field's name, got \":\""},
    {"1: 2", "f:1: expected a field's name, got \"1\""},
    {"a:1;;", "f:1: expected a field's name, got \";\""},
    {"a:1 }", "f:1: expected a field's name, got \"}\""},
    {"é: 1", "f:1: expected a field's name, got \"é\""},
    {"a: -\"x\"", "f:1: expected a number after \"-\", got \"\"\""},
    {"[a.b]: 1", "f:1: extensions and Any (\"[name]\") are not supported"},
    {"m {\n [type.googleapis.com/x] { } }",
     "f:2: extensions and Any (\"[name]\") are not supported"},
    {"m {\na: 1\n", "f:3: expected \"}\" to close the \"{\" of line 1, got the end of the file"},
    {"m < a: 1 }", "f:1: expected a field's name, got \"}\""},
    {"m { a: 1 >", "f:1: expected a field's name, got \">\""},
    {"m {,}", "f:1: expected a field's name, got \",\""},
    {"a: [1 2]", "f:1: expected \",\" or \"]\", got \"2\""},
    {"a: [1,]", "f:1: expected a value, got \"]\""},
    {"a: [,]", "f:1: expected a value, got \",\""},
    {"a: [1", "f:1: expected \",\" or \"]\", got the end of the file"},
    {"a: [[1]]", "f:1: expected a value, got \"[\""},
    {"a [1]", "f:1: expected \"{\" or \"<\" (a list of anything else needs a colon), got \"1\""},
    {"s: \"abc\nd\"", "f:1: expected \" to end the string before the end of the line"},
    {"s: 'abc", "f:1: expected ' to end the string before the end of the line"},
    {"s: \"\\", "f:1: expected an escape (one of abfnrtv?\\'\", octal digits, x, u or U) after "
                "\"\\\", got the end of the file"},
    {"s: '\\q'", "f:1: expected an escape (one of abfnrtv?\\'\", octal digits, x, u or U) after "
                 "\"\\\", got \"q\""},
    {"s: '\\xg'", "f:1: expected hexadecimal digits after \"\\x\", got \"g\""},
    {"s: '\\u12'", "f:1: expected 4 hexadecimal digits after \"\\u\""},
    {"s: '\\U0001F60'", "f:1: expected 8 hexadecimal digits after \"\\U\""},
    {"s: '\\ud83d'", "f:1: U+D83D is no character"},
    {"s: '\\ud83d\\u0041'", "f:1: U+D83D is no character"},
    {"s: '\\ude00'", "f:1: U+DE00 is no character"},
    {"s: '\\U00110000'", "f:1: U+110000 is no character"},
    {"s: '\\400'", "f:1: \"\\400\" is more than a byte"},
    {"s: '\\xff'", "f:1: expected a string of UTF-8 text; its escapes make something else"},
    {"n: 12abc", "f:1: expected a number, got \"12abc\""},
    {"n: 08", "f:1: expected a number, got \"08\""},
    {"n: 01.5", "f:1: expected a number, got \"01.5\""},
    {"n: 0x", "f:1: expected a number, got \"0x\""},
    {"n: 0xg", "f:1: expected a number, got \"0xg\""},
    {"n: 0x10000000000000000", "f:1: expected a number, got \"0x10000000000000000\""},
    {"n: 1.2.3", "f:1: expected a number, got \"1.2.3\""},
    {"n: .", "f:1: expected a number, got \".\""},
    {"n: 1e", "f:1: expected a number, got \"1e\""},
    {"n: 1e999", "f:1: expected a number, got \"1e999\""},
    {"n: +1", "f:1: expected a value, got \"+\""},
    {"n: -abc", "f:1: expected a number after \"-\", got \"abc\""},
    {"n: --1", "f:1: expected a number after \"-\", got \"-\""},
};

static char *as_json(const struct doc *doc) {
    char *json = yyjson_write(doc->tree, YYJSON_WRITE_ALLOW_INF_AND_NAN, NULL);
    assert_non_null(json);
    return json;
}

static void doc_pbtxt_valid_text_becomes_tree(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++) {
        struct error err;
        struct doc *doc;
        if (doc_parse(DOC_PBTXT, "f", str_of(taken[i].text), &doc, &err) != ST_OK) {
            fail_msg("%s\n%s", taken[i].text, err.text);
        }
        char *json = as_json(doc);
        assert_string_equal(json, taken[i].json);
        free(json);
        doc_free(doc);
    }
}

static void doc_pbtxt_invalid_text_is_rejected(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        struct error err;
        struct doc *doc;
        if (doc_parse(DOC_PBTXT, "f", str_of(refused[i].text), &doc, &err) == ST_OK) {
            fail_msg("%s\nshould be refused", refused[i].text);
        }
        assert_null(doc);
        assert_int_equal(err.status, ST_BAD_CONFIG);
        assert_string_equal(err.text, refused[i].message);
    }
}

/* No prefix of a valid text crashes or hangs; each is parsed from a block of exactly its size. */
static void doc_pbtxt_every_prefix_terminates(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++) {
        size_t all = strlen(taken[i].text);
        for (size_t n = 0; n <= all; n++) {
            char *text = malloc(n > 0 ? n : 1);
            assert_non_null(text);
            memcpy(text, taken[i].text, n);
            struct error err = {.status = ST_OK};
            struct doc *doc;
            enum status status = doc_parse(DOC_PBTXT, "f", str_make(text, n), &doc, &err);
            assert_true(status == ST_OK ? doc != NULL : doc == NULL && err.text[0] != '\0');
            doc_free(doc);
            free(text);
        }
    }
}

static void doc_pbtxt_nul_byte_is_rejected(void **state) {
    struct error err;
    struct doc *doc;
    (void)state;
    assert_int_equal(doc_parse(DOC_PBTXT, "f", STR("a: 1\0b: 2"), &doc, &err), ST_BAD_CONFIG);
    assert_int_equal(doc_parse(DOC_PBTXT, "f", STR("a: 'x\0y'"), &doc, &err), ST_BAD_CONFIG);
    assert_string_equal(err.text, "f:1: a string with a NUL (write \"\\0\")");
}

static enum status parse_nested(const char *open, const char *close, size_t depth,
                                struct error *err) {
    size_t n_open = strlen(open), n_close = strlen(close);
    size_t size = depth * (n_open + n_close);
    char *text = malloc(size);
    assert_non_null(text);
    for (size_t i = 0; i < depth; i++) {
        memcpy(text + i * n_open, open, n_open);
        memcpy(text + depth * n_open + i * n_close, close, n_close);
    }
    struct doc *doc;
    enum status status = doc_parse(DOC_PBTXT, "f", str_make(text, size), &doc, err);
    doc_free(doc);
    free(text);
    return status;
}

static void doc_pbtxt_depth_over_limit_is_rejected(void **state) {
    struct error err;
    (void)state;
    assert_int_equal(parse_nested("m{", "}", 63, &err), ST_OK);
    assert_int_equal(parse_nested("m{", "}", 64, &err), ST_BAD_CONFIG);
    assert_string_equal(err.text, "f:1: nested deeper than 64");
    assert_int_equal(parse_nested("m[{", "}]", 31, &err), ST_OK);
    assert_int_equal(parse_nested("m[{", "}]", 40000, &err), ST_BAD_CONFIG);
    assert_int_equal(parse_nested("m<", "", 40000, &err), ST_BAD_CONFIG);
}

/* Many fields, all the same and all different: joining them must not take quadratic time. */
static void doc_pbtxt_many_fields_are_merged(void **state) {
    enum { N = 100000 };
    (void)state;
    for (int same = 0; same < 2; same++) {
        char *text = malloc((size_t)N * 16);
        assert_non_null(text);
        size_t len = 0;
        for (unsigned i = 0; i < N; i++) {
            len += (size_t)snprintf(text + len, 16, "f%u:%u ", same ? 0 : i, i % 10);
        }
        struct error err;
        struct doc *doc;
        assert_int_equal(doc_parse(DOC_PBTXT, "f", str_make(text, len), &doc, &err), ST_OK);
        struct doc_node root = doc_root(doc);
        struct doc_node first = doc_get(&root, "f0");
        assert_int_equal(doc_count(&first), same ? N : 1);
        assert_int_equal(yyjson_obj_size(root.val), same ? 1 : N);
        doc_free(doc);
        free(text);
    }
}

static void doc_pbtxt_values_have_lines(void **state) {
    struct error err;
    struct doc *doc;
    (void)state;
    assert_int_equal(doc_parse(DOC_PBTXT, "f",
                               STR("a: 1\n\nm {\n  b: [ 2,\n 3 ]\n}\na: # here\n 4\ns: 'x'\n 'y'"),
                               &doc, &err),
                     ST_OK);
    struct doc_node root = doc_root(doc), a = doc_get(&root, "a"), m = doc_get(&root, "m");
    struct doc_node b = doc_get(&m, "b"), s = doc_get(&root, "s"), none = doc_get(&m, "none");
    struct doc_node a0 = doc_at(&a, 0), a1 = doc_at(&a, 1), b1 = doc_at(&b, 1);
    assert_int_equal(doc_line(&a), 1);
    assert_int_equal(doc_line(&a0), 1);
    assert_int_equal(doc_line(&a1), 8);
    assert_int_equal(doc_line(&m), 3);
    assert_int_equal(doc_line(&b), 4);
    assert_int_equal(doc_line(&b1), 5);
    assert_int_equal(doc_line(&s), 9);
    assert_int_equal(doc_line(&none), 3);
    doc_free(doc);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(doc_pbtxt_valid_text_becomes_tree),
        cmocka_unit_test(doc_pbtxt_invalid_text_is_rejected),
        cmocka_unit_test(doc_pbtxt_every_prefix_terminates),
        cmocka_unit_test(doc_pbtxt_nul_byte_is_rejected),
        cmocka_unit_test(doc_pbtxt_depth_over_limit_is_rejected),
        cmocka_unit_test(doc_pbtxt_many_fields_are_merged),
        cmocka_unit_test(doc_pbtxt_values_have_lines),
    };
    return cmocka_run_group_tests_name("core/base/doc/pbtxt", tests, NULL, NULL);
}
