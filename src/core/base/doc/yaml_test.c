/* YAML as JSON, row by row: the core schema, and errors with their line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
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
    {"# nothing but a comment\n", "{}"},
    {"---\n...\n", "null"},
    {"a: 1\nb: [x, 'y', \"z\\n\"]\nc:\n  d: e\n  f:\n    - 1\n    - g: 2\n",
     "{\"a\":1,\"b\":[\"x\",\"y\",\"z\\n\"],\"c\":{\"d\":\"e\",\"f\":[1,{\"g\":2}]}}"},
    {"{a: {b: [1, [2]]}, c: }", "{\"a\":{\"b\":[1,[2]]},\"c\":null}"},
    {"t: |\n  one\n  two\nf: >-\n  three\n  four\n",
     "{\"t\":\"one\\ntwo\\n\",\"f\":\"three four\"}"},
    {"--- {a: 1}\n...\n", "{\"a\":1}"},
    {"%YAML 1.2\n---\na: 1\n", "{\"a\":1}"},
    /* keys are text in any form */
    {"1: a\ntrue: b\n\"\": c\n~: d\n", "{\"1\":\"a\",\"true\":\"b\",\"\":\"c\",\"~\":\"d\"}"},
    {"<<: {a: 1}\n", "{\"<<\":{\"a\":1}}"},
    /* null, bool */
    {"[~, null, Null, NULL, '', 'null', nULL]", "[null,null,null,null,\"\",\"null\",\"nULL\"]"},
    {"[true, True, TRUE, false, False, FALSE]", "[true,true,true,false,false,false]"},
    {"[yes, no, on, off, y, tRue, 'true']",
     "[\"yes\",\"no\",\"on\",\"off\",\"y\",\"tRue\",\"true\"]"},
    /* whole numbers */
    {"[0, -0, +5, -5, 012, 0o17, 0x1F, 0xff]", "[0,0,5,-5,12,15,31,255]"},
    {"[9223372036854775807, -9223372036854775808, 18446744073709551615]",
     "[9223372036854775807,-9223372036854775808,18446744073709551615]"},
    {"[0o8, 0xg, 0x, 1_000, 0b1, 1:30, 0x10000000000000000, -0x1]",
     "[\"0o8\",\"0xg\",\"0x\",\"1_000\",\"0b1\",\"1:30\",\"0x10000000000000000\",\"-0x1\"]"},
    /* real numbers */
    {"[1.5, -1.5, +1.5, .5, 5., 1e3, 1.5E-3, 007.5, 18446744073709551616]",
     "[1.5,-1.5,1.5,0.5,5.0,1000.0,0.0015,7.5,18446744073709552000.0]"},
    {"[.inf, -.Inf, +.INF, .nan, .NaN, .NAN]", "[Infinity,-Infinity,Infinity,NaN,NaN,NaN]"},
    {"[., 1e, e5, 1.2.3, inf, nan, -, .iNF, 1e999]",
     "[\".\",\"1e\",\"e5\",\"1.2.3\",\"inf\",\"nan\",\"-\",\".iNF\",\"1e999\"]"},
    {"['1', \"1.5\", 'true']", "[\"1\",\"1.5\",\"true\"]"},
    {"a: 127.0.0.1:8000\nb: unix:/run/x.sock\nc: 64MiB\nd: 20ms\n",
     "{\"a\":\"127.0.0.1:8000\",\"b\":\"unix:/run/x.sock\",\"c\":\"64MiB\",\"d\":\"20ms\"}"},
    {"caf\xc3\xa9: \xf0\x9f\x98\x80\n", "{\"caf\xc3\xa9\":\"\xf0\x9f\x98\x80\"}"},
    {"a: \"\\x41\\u20ac\\0\"\n", "{\"a\":\"A€\\u0000\"}"},
};

static const struct {
    const char *text;
    const char *message;
} refused[] = {
    {"a: 1\nb: &x 2\n", "f:2: anchors (\"&x\") are not supported"},
    {"a: &x\n  b: 1\n", "f:1: anchors (\"&x\") are not supported"},
    {"a: &x [1]\n", "f:1: anchors (\"&x\") are not supported"},
    {"a: 1\nb:\n  - *x\n", "f:3: aliases (\"*x\") are not supported"},
    {"a: !!str 5\n",
     "f:1: tags (\"tag:yaml.org,2002:str\") are not supported; put text into quotes"},
    {"a: !mine {b: 1}\n", "f:1: tags (\"!mine\") are not supported; put text into quotes"},
    {"a: !mine [1]\n", "f:1: tags (\"!mine\") are not supported; put text into quotes"},
    {"a: ! x\n", "f:1: tags (\"!\") are not supported; put text into quotes"},
    {"a: 1\nb: 2\na: 3\n", "f:3: the key \"a\" is there twice; the first is in line 1"},
    {"- x:\n    b: 1\n    c: 2\n    'b': 3\n",
     "f:4: the key \"b\" is there twice; the first is in line 2"},
    {"? [1]\n: 2\n", "f:1: expected text as a key, got a list"},
    {"{a: 1}: 2\n", "f:1: expected text as a key, got an object"},
    {"a: 1\n---\nb: 2\n", "f:2: expected one document in the file, got a second"},
    {"a: b: c\n", "f:1: not YAML: mapping values are not allowed in this context"},
    {"a: [1, 2\nb: 3\n",
     "f:2: not YAML: did not find expected ',' or ']', while parsing a flow sequence"},
    {"a:\n\t- 1\n",
     "f:2: not YAML: found character that cannot start any token, while scanning for "
     "the next token"},
    {"a: 'open\n", "f:2: not YAML: found unexpected end of stream, while scanning a quoted scalar"},
    {"a: \x01\n", "f:1: not YAML: control characters are not allowed"},
    {"a: \xff\n", "f:1: expected UTF-8 text, got the byte 0xff"},
    {"a: 1\nb: \xc3\n", "f:2: expected UTF-8 text, got the byte 0xc3"},
};

static void doc_yaml_valid_text_becomes_tree(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++) {
        struct error err;
        struct doc *doc;
        if (doc_parse(DOC_YAML, "f", str_of(taken[i].text), &doc, &err) != ST_OK) {
            fail_msg("%s\n%s", taken[i].text, err.text);
        }
        char *json = yyjson_write(doc->tree, YYJSON_WRITE_ALLOW_INF_AND_NAN, NULL);
        assert_non_null(json);
        assert_string_equal(json, taken[i].json);
        free(json);
        doc_free(doc);
    }
}

static void doc_yaml_invalid_text_is_rejected(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        struct error err;
        struct doc *doc;
        if (doc_parse(DOC_YAML, "f", str_of(refused[i].text), &doc, &err) == ST_OK) {
            fail_msg("%s\nshould be refused", refused[i].text);
        }
        assert_null(doc);
        assert_int_equal(err.status, ST_BAD_CONFIG);
        assert_string_equal(err.text, refused[i].message);
    }
}

static void doc_yaml_every_prefix_terminates(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++) {
        for (size_t n = 0; n <= strlen(taken[i].text); n++) {
            char *text = malloc(n > 0 ? n : 1);
            assert_non_null(text);
            memcpy(text, taken[i].text, n);
            struct error err = {.status = ST_OK};
            struct doc *doc;
            enum status status = doc_parse(DOC_YAML, "f", str_make(text, n), &doc, &err);
            assert_true(status == ST_OK ? doc != NULL : doc == NULL && err.text[0] != '\0');
            doc_free(doc);
            free(text);
        }
    }
}

static void doc_yaml_depth_over_limit_is_rejected(void **state) {
    char text[400] = "";
    struct error err;
    struct doc *doc;
    (void)state;
    memset(text, '[', 64);
    memset(text + 64, ']', 64);
    assert_int_equal(doc_parse(DOC_YAML, "f", str_make(text, 128), &doc, &err), ST_OK);
    doc_free(doc);
    memset(text, '[', 65);
    memset(text + 65, ']', 65);
    assert_int_equal(doc_parse(DOC_YAML, "f", str_make(text, 130), &doc, &err), ST_BAD_CONFIG);
    assert_string_equal(err.text, "f:1: nested deeper than 64");
}

static void doc_yaml_values_have_lines(void **state) {
    struct error err;
    struct doc *doc;
    (void)state;
    assert_int_equal(
        doc_parse(DOC_YAML, "f", STR("# c\na: 1\nb:\n  - 2\n  - c: 3\nd:\n"), &doc, &err), ST_OK);
    struct doc_node root = doc_root(doc), a = doc_get(&root, "a"), b = doc_get(&root, "b");
    struct doc_node b1 = doc_at(&b, 1), c = doc_get(&b1, "c"), none = doc_get(&b1, "none");
    assert_int_equal(doc_line(&root), 2);
    assert_int_equal(doc_line(&a), 2);
    assert_int_equal(doc_line(&b), 4);
    assert_int_equal(doc_line(&b1), 5);
    assert_int_equal(doc_line(&c), 5);
    assert_int_equal(doc_line(&none), 5);
    doc_free(doc);
}

static void doc_yaml_multi_document_becomes_list(void **state) {
    static const struct {
        const char *text, *json;
    } rows[] = {
        {"", "[]"},
        {"# nothing\n", "[]"},
        {"a: 1\n", "[{\"a\":1}]"},
        {"---\na: 1\n", "[{\"a\":1}]"},
        {"a: 1\n---\nb: [2]\n--- 3\n...\n---\n", "[{\"a\":1},{\"b\":[2]},3,null]"},
        {"t: |\n  ---\n---\nu: 'x\n  --- y'\n", "[{\"t\":\"---\\n\"},{\"u\":\"x --- y\"}]"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct error err;
        struct doc *doc;
        assert_int_equal(doc_parse(DOC_YAML_MULTI, "f", str_of(rows[i].text), &doc, &err), ST_OK);
        char *json = yyjson_write(doc->tree, YYJSON_WRITE_NOFLAG, NULL);
        assert_string_equal(json, rows[i].json);
        free(json);
        doc_free(doc);
    }
    struct error err;
    struct doc *doc;
    assert_int_equal(doc_parse(DOC_YAML_MULTI, "f", STR("a: 1\n---\nb: 1\nb: 2\n"), &doc, &err),
                     ST_BAD_CONFIG);
    assert_string_equal(err.text, "f:4: the key \"b\" is there twice; the first is in line 3");
    assert_int_equal(doc_parse(DOC_YAML_MULTI, "f", STR("a: 1\n---\nb:\n  c: 7\n"), &doc, &err),
                     ST_OK);
    struct doc_node root = doc_root(doc), second = doc_at(&root, 1), b = doc_get(&second, "b");
    struct doc_node c = doc_get(&b, "c");
    assert_int_equal(doc_line(&c), 4);
    doc_free(doc);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(doc_yaml_valid_text_becomes_tree),
        cmocka_unit_test(doc_yaml_invalid_text_is_rejected),
        cmocka_unit_test(doc_yaml_every_prefix_terminates),
        cmocka_unit_test(doc_yaml_depth_over_limit_is_rejected),
        cmocka_unit_test(doc_yaml_values_have_lines),
        cmocka_unit_test(doc_yaml_multi_document_becomes_list),
    };
    return cmocka_run_group_tests_name("core/base/doc/yaml", tests, NULL, NULL);
}
