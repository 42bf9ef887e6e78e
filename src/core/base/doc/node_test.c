/* The typed readers: the values that each accepts, and the texts of its errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/doc/doc.h"
#include "core/base/json_writer.h"

static struct doc *parse(enum doc_format format, const char *text) {
    struct error err;
    struct doc *doc;
    if (doc_parse(format, "models/x/config.pbtxt", str_of(text), &doc, &err) != ST_OK) {
        fail_msg("%s\n%s", text, err.text);
    }
    return doc;
}

static void doc_get_and_at_find_nodes(void **state) {
    struct doc *doc = parse(DOC_PBTXT, "one: 1 many: [1, 2] none: [] m { x: 'y' }");
    (void)state;
    struct doc_node root = doc_root(doc);
    struct doc_node one = doc_get(&root, "one"), many = doc_get(&root, "many");
    struct doc_node none = doc_get(&root, "none"), no = doc_get(&root, "no");
    assert_int_equal(doc_count(&one), 1);
    assert_int_equal(doc_count(&many), 2);
    assert_int_equal(doc_count(&none), 0);
    assert_int_equal(doc_count(&no), 0);
    assert_true(doc_is_present(&none));
    assert_false(doc_is_present(&no));
    struct doc_node first = doc_at(&one, 0), second = doc_at(&one, 1), third = doc_at(&many, 2);
    assert_ptr_equal(first.val, one.val);
    assert_null(second.val);
    assert_null(third.val);
    struct doc_node of_no = doc_at(&no, 0), in_no = doc_get(&no, "x"), in_one = doc_get(&one, "x");
    assert_null(of_no.val);
    assert_null(in_no.val);
    assert_null(in_one.val);
    doc_free(doc);
    doc = parse(DOC_YAML, "a:\nb: ~\n");
    root = doc_root(doc);
    struct doc_node a = doc_get(&root, "a");
    assert_non_null(a.val);
    assert_false(doc_is_present(&a)); /* there, but null */
    doc_free(doc);
}

static void doc_next_visits_elements_and_members(void **state) {
    (void)state;
    struct doc *doc = parse(DOC_YAML, "l: [7, [8], {a: 9}]\ne: []\no: {x: 1, y: {z: 2}, w: 3}\n"
                                      "s: 5\nn: {}\nin: [[1, 2], 3]\n");
    struct doc_node root = doc_root(doc), list = doc_get(&root, "l"), item = {0};
    for (size_t i = 0; i < 3; i++) {
        struct doc_node same = doc_at(&list, i);
        assert_true(doc_next(&list, &item));
        assert_ptr_equal(item.val, same.val);
        assert_int_equal(item.index, i);
        assert_ptr_equal(item.parent, &list);
    }
    assert_false(doc_next(&list, &item));
    assert_null(item.val);
    static const char *const empty[] = {"e", "n", "s", "none"};
    for (size_t i = 0; i < 4; i++) {
        struct doc_node node = doc_get(&root, empty[i]);
        unsigned n = 0, n_members = 0;
        for (item = (struct doc_node){0}; doc_next(&node, &item);) {
            assert_ptr_equal(item.val, node.val); /* itself */
            n++;
        }
        for (item = (struct doc_node){0}; doc_next_member(&node, &item);) {
            n_members++;
        }
        assert_int_equal(n, i == 1 || i == 2);
        assert_int_equal(n_members, 0);
    }
    struct doc_node object = doc_get(&root, "o");
    static const char *const names[] = {"x", "y", "w"};
    for (size_t i = 0; i < 3; i++) {
        struct doc_node same = doc_get(&object, names[i]);
        assert_true(doc_next_member(&object, &item));
        assert_ptr_equal(item.val, same.val);
        assert_string_equal(item.key, names[i]);
    }
    assert_false(doc_next_member(&object, &item));
    struct doc_node outer = doc_get(&root, "in"), inner = {0}, number = {0};
    struct error err;
    assert_true(doc_next(&outer, &inner) && doc_next(&inner, &number) && doc_next(&inner, &number));
    assert_int_equal(doc_error(&number, &err, "no"), ST_BAD_CONFIG);
    assert_non_null(strstr(err.text, "in[0][1]: no"));
    doc_free(doc);
}

enum reader {
    READ_BOOL,
    READ_I64,
    READ_F64,
    READ_SHARE,
    READ_SHARE_ABOVE_ZERO,
    READ_STR,
    READ_OBJECT
};

static enum status read_with(enum reader reader, const struct doc_node *node, struct error *err) {
    bool boolean = true;
    int64_t whole = 5;
    double real = 5;
    struct str text = STR("before");
    switch (reader) {
    case READ_BOOL:
        return doc_read_bool(node, &boolean, err);
    case READ_I64:
        return doc_read_i64(node, -1, INT64_MAX, &whole, err);
    case READ_F64:
        return doc_read_f64(node, &real, err);
    case READ_SHARE:
    case READ_SHARE_ABOVE_ZERO:
        return doc_read_share(node, reader == READ_SHARE, &real, err);
    case READ_STR:
        return doc_read_str(node, &text, err);
    case READ_OBJECT:
        return doc_expect_object(node, err);
    }
    return ST_INTERNAL;
}

static const struct {
    enum doc_format format;
    enum reader reader;
    const char *text;
    const char *refusal; /* after "models/x/config.pbtxt:1: v: expected "; NULL: accepted */
} rows[] = {
    {DOC_YAML, READ_BOOL, "v: true", NULL},
    {DOC_YAML, READ_BOOL, "v: yes", "true or false, got \"yes\""},
    {DOC_YAML, READ_BOOL, "v: 1", "true or false, got 1"},
    {DOC_YAML, READ_BOOL, "v:", "true or false, got nothing (null)"},
    {DOC_PBTXT, READ_BOOL, "v: 1", NULL},
    {DOC_PBTXT, READ_BOOL, "v: f", NULL},
    {DOC_PBTXT, READ_BOOL, "v: 2", "true or false, got 2"},
    {DOC_PBTXT, READ_BOOL, "v: -1", "true or false, got -1"},
    {DOC_PBTXT, READ_I64, "v: -1", NULL},
    {DOC_PBTXT, READ_I64, "v: 9223372036854775807", NULL},
    {DOC_PBTXT, READ_I64, "v: -2", "a whole number from -1 to 9223372036854775807, got -2"},
    {DOC_PBTXT, READ_I64, "v: 9223372036854775808",
     "a whole number from -1 to 9223372036854775807, got 9223372036854775808"},
    {DOC_PBTXT, READ_I64, "v: 'abc'", "a whole number from -1 to 9223372036854775807, got \"abc\""},
    {DOC_PBTXT, READ_I64, "v: 2.0", "a whole number from -1 to 9223372036854775807, got 2.0"},
    {DOC_PBTXT, READ_I64, "v: 2.5", "a whole number from -1 to 9223372036854775807, got 2.5"},
    {DOC_PBTXT, READ_I64, "v: inf", "a whole number from -1 to 9223372036854775807, got inf"},
    {DOC_PBTXT, READ_I64, "v: [1, 2]",
     "a whole number from -1 to 9223372036854775807, got a list of 2"},
    {DOC_PBTXT, READ_I64, "v { }", "a whole number from -1 to 9223372036854775807, got an object"},
    {DOC_PBTXT, READ_I64, "v: true", "a whole number from -1 to 9223372036854775807, got true"},
    {DOC_YAML, READ_F64, "v: 1", NULL},
    {DOC_YAML, READ_F64, "v: -1.5e3", NULL},
    {DOC_YAML, READ_F64, "v: '1'", "a number, got \"1\""},
    {DOC_YAML, READ_SHARE, "v: 0", NULL},
    {DOC_YAML, READ_SHARE, "v: 1", NULL},
    {DOC_YAML, READ_SHARE, "v: 1.5", "a share from 0 to 1, got 1.5"},
    {DOC_YAML, READ_SHARE, "v: -0.1", "a share from 0 to 1, got -0.1"},
    {DOC_YAML, READ_SHARE, "v: .nan", "a share from 0 to 1, got nan"},
    {DOC_YAML, READ_SHARE, "v: x", "a number, got \"x\""},
    {DOC_YAML, READ_SHARE_ABOVE_ZERO, "v: 0.1", NULL},
    {DOC_YAML, READ_SHARE_ABOVE_ZERO, "v: 0", "a share above 0, of 1 at most, got 0"},
    {DOC_YAML, READ_STR, "v: abc", NULL},
    {DOC_YAML, READ_STR, "v: ''", NULL},
    {DOC_YAML, READ_STR, "v: 1.10",
     "text (in quotes, where it looks like something else), got 1.1000000000000001"},
    {DOC_YAML, READ_STR, "v: no", NULL},
    {DOC_YAML, READ_STR, "v: false",
     "text (in quotes, where it looks like something else), got false"},
    {DOC_YAML, READ_STR, "v: [a]", "text, got a list of 1"},
    {DOC_YAML, READ_OBJECT, "v: {}", NULL},
    {DOC_YAML, READ_OBJECT, "v: x", "an object (named fields), got \"x\""},
    {DOC_YAML, READ_BOOL, "v: aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeee12",
     "true or false, got \"aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeee...\""},
};

static void doc_read_checks_type_and_range(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct doc *doc = parse(rows[i].format, rows[i].text);
        struct doc_node root = doc_root(doc), v = doc_get(&root, "v");
        struct doc_node absent = doc_get(&root, "absent");
        struct error err = {.text = "nothing was said"};
        enum status status = read_with(rows[i].reader, &v, &err);
        if (rows[i].refusal) {
            char want[ERROR_TEXT_BYTES];
            snprintf(want, sizeof(want), "models/x/config.pbtxt:1: v: expected %s",
                     rows[i].refusal);
            assert_string_equal(err.text, want);
            assert_int_equal(status, ST_BAD_CONFIG);
        } else if (status != ST_OK) {
            fail_msg("%s: %s", rows[i].text, err.text);
        }
        assert_int_equal(read_with(rows[i].reader, &absent, &err), ST_OK);
        doc_free(doc);
    }
}

static void doc_read_returns_values(void **state) {
    struct doc *doc = parse(DOC_PBTXT, "b: t z: 0 i: -7 f: 2.5 n: 3 s: 'a\\0b'");
    struct doc_node root = doc_root(doc), node;
    struct error err;
    bool boolean = false, zero = true;
    int64_t whole = 0;
    double real = 0, number = 0;
    struct str text = STR("");
    (void)state;
    node = doc_get(&root, "b");
    assert_int_equal(doc_read_bool(&node, &boolean, &err), ST_OK);
    node = doc_get(&root, "z");
    assert_int_equal(doc_read_bool(&node, &zero, &err), ST_OK);
    node = doc_get(&root, "i");
    assert_int_equal(doc_read_i64(&node, INT64_MIN, 0, &whole, &err), ST_OK);
    node = doc_get(&root, "f");
    assert_int_equal(doc_read_f64(&node, &real, &err), ST_OK);
    node = doc_get(&root, "n");
    assert_int_equal(doc_read_f64(&node, &number, &err), ST_OK);
    node = doc_get(&root, "s");
    assert_int_equal(doc_read_str(&node, &text, &err), ST_OK);
    assert_true(boolean && !zero && whole == -7 && real == 2.5 && number == 3);
    assert_true(str_eq(text, STR("a\0b")));
    node = doc_get(&root, "absent"); /* `out` is not changed */
    assert_int_equal(doc_read_i64(&node, 0, 0, &whole, &err), ST_OK);
    assert_int_equal(doc_read_str(&node, &text, &err), ST_OK);
    assert_true(whole == -7 && text.len == 3);
    doc_free(doc);
}

static void doc_whole_number_in_json_may_be_a_string(void **state) {
    static const char *const texts[] = {"16", "-3", "17", "", "1e1", " 5", "5.0", "0x5", "x"};
    struct error err;
    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        for (int format = DOC_PBTXT; format <= DOC_JSON; format++) {
            bool is_json = format == DOC_JSON;
            char text[64];
            snprintf(text, sizeof(text), is_json ? "{\"n\": \"%s\"}" : "n: \"%s\"", texts[i]);
            struct doc *doc = parse((enum doc_format)format, text);
            struct doc_node root = doc_root(doc), node = doc_get(&root, "n");
            int64_t whole = 5;
            bool good = doc_read_i64(&node, -3, 16, &whole, &err) == ST_OK;
            assert_int_equal(good, is_json && i < 2);
            assert_int_equal(whole, !good ? 5 : i == 0 ? 16 : -3);
            doc_free(doc);
        }
    }
}

static void doc_error_names_line_and_path(void **state) {
    struct doc *doc = parse(DOC_PBTXT, "input [\n {\n},\n {\n dims: [1,\n'x']\n}\n]\nname: 'm'");
    struct error err;
    (void)state;
    struct doc_node root = doc_root(doc), input = doc_get(&root, "input");
    struct doc_node second = doc_at(&input, 1), dims = doc_get(&second, "dims");
    struct doc_node dim = doc_at(&dims, 1), name = doc_get(&root, "name"), only = doc_at(&name, 0);
    struct doc_node missing = doc_get(&second, "name");
    doc_error(&dim, &err, "bad %d", 1);
    assert_string_equal(err.text, "models/x/config.pbtxt:6: input[1].dims[1]: bad 1");
    doc_error(&missing, &err, "is missing");
    assert_string_equal(err.text, "models/x/config.pbtxt:4: input[1].name: is missing");
    doc_error(&only, &err, "bad");
    assert_string_equal(err.text, "models/x/config.pbtxt:9: name: bad");
    doc_error(&root, &err, "bad");
    assert_string_equal(err.text, "models/x/config.pbtxt:1: bad");
    assert_int_equal(doc_error(&root, NULL, "bad"), ST_BAD_CONFIG);
    doc_free(doc);
}

static void doc_error_long_path_is_truncated(void **state) {
    struct doc *doc = parse(DOC_JSON, "{}");
    char key[300];
    struct error err;
    (void)state;
    memset(key, 'k', sizeof(key) - 1);
    key[sizeof(key) - 1] = '\0';
    struct doc_node nodes[300];
    nodes[0] = doc_root(doc);
    for (size_t i = 1; i < 300; i++) {
        nodes[i] = doc_get(&nodes[i - 1], i == 1 ? key : "x");
    }
    doc_error(&nodes[1], &err, "said");
    assert_non_null(strstr(err.text, "kkk: said"));
    doc_error(&nodes[299], &err, "said");
    assert_non_null(strstr(err.text, ".x: said"));
    doc_free(doc);
}

static void doc_reject_unknown_suggests_name(void **state) {
    static const char *const names[] = {"name", "dims", "data_type", "max_batch_size", NULL};
    static const struct {
        const char *text;
        const char *message; /* NULL: accepted */
    } fields[] = {
        {"", NULL},
        {"name: 'x' dims: 1 data_type: X max_batch_size: 1", NULL},
        {"name: 'x'\ndim: 1", "f:2: unknown field \"dim\"; did you mean \"dims\"?"},
        {"nmae: 1", "f:1: unknown field \"nmae\"; did you mean \"name\"?"},
        {"datatype: 1", "f:1: unknown field \"datatype\"; did you mean \"data_type\"?"},
        {"max_batchsize: 1",
         "f:1: unknown field \"max_batchsize\"; did you mean \"max_batch_size\"?"},
        {"Name: 1", "f:1: unknown field \"Name\"; did you mean \"name\"?"},
        {"x: 1", "f:1: unknown field \"x\""},
        {"platform: 1", "f:1: unknown field \"platform\""},
        {"name_: 1", "f:1: unknown field \"name_\"; did you mean \"name\"?"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        struct error err = {.text = ""};
        struct doc *doc;
        assert_int_equal(doc_parse(DOC_PBTXT, "f", str_of(fields[i].text), &doc, &err), ST_OK);
        struct doc_node root = doc_root(doc);
        assert_int_equal(doc_reject_unknown(&root, names, &err),
                         fields[i].message ? ST_BAD_CONFIG : ST_OK);
        assert_string_equal(err.text, fields[i].message ? fields[i].message : "");
        doc_free(doc);
    }
    struct error err;
    struct doc *doc = parse(DOC_PBTXT, "input {}\ninput {\n\ndim: 1 }");
    struct doc_node root = doc_root(doc), input = doc_get(&root, "input");
    struct doc_node second = doc_at(&input, 1), absent = doc_get(&root, "absent");
    assert_int_equal(doc_reject_unknown(&second, names, &err), ST_BAD_CONFIG);
    assert_string_equal(err.text,
                        "models/x/config.pbtxt:4: unknown field \"input[1].dim\"; did you "
                        "mean \"dims\"?");
    assert_int_equal(doc_reject_unknown(&absent, names, &err), ST_OK);
    doc_free(doc);
}

static void doc_reject_unknown_long_name_is_truncated(void **state) {
    static const char *const names[] = {"name", NULL};
    char text[1000];
    struct error err;
    (void)state;
    memset(text, 'n', sizeof(text));
    memcpy(text + 990, ": 1", 4);
    struct doc *doc = parse(DOC_PBTXT, text);
    struct doc_node root = doc_root(doc);
    assert_int_equal(doc_reject_unknown(&root, names, &err), ST_BAD_CONFIG);
    assert_in_range(strlen(err.text), 80, 140);
    doc_free(doc);
}

/* A peer's JSON: messages have no lines, and unknown members are accepted. */
static void doc_parse_answer_reports_no_lines(void **state) {
    static const char *const names[] = {"a", NULL};
    const char *text = "{\"a\": {\"b\": 7}, \"new\": 1}";
    struct error err;
    struct doc *doc;
    struct str value;
    (void)state;
    assert_int_equal(doc_parse_answer("Thing one", str_of("{"), &doc, &err), ST_BAD_JSON);
    assert_int_equal(doc_parse_answer("Thing one", STR(""), &doc, &err), ST_BAD_JSON);
    assert_int_equal(doc_parse_answer("Thing one", str_of(text), &doc, &err), ST_OK);
    struct doc_node root = doc_root(doc), a = doc_get(&root, "a"), b = doc_get(&a, "b");
    assert_int_equal(doc_reject_unknown(&root, names, &err), ST_OK);
    assert_int_equal(doc_line(&b), 0);
    assert_int_equal(doc_read_str(&b, &value, &err), ST_BAD_CONFIG);
    assert_string_equal(err.text, "Thing one: a.b: expected text (in quotes, where it looks like "
                                  "something else), got 7");
    assert_int_equal(doc_error(&root, &err, "no"), ST_BAD_CONFIG);
    assert_string_equal(err.text, "Thing one: no");
    doc_free(doc);
}

static void doc_copy_members_takes_the_named_ones(void **state) {
    static const char *const paths[] = {"meta/name", "meta/none", "meta/age", "none/x",
                                        "spec",      "no",        NULL};
    struct error err;
    struct doc *doc, *copy;
    (void)state;
    const char *text =
        "{\"spec\":{\"a\":[1,{}]},\"meta\":{\"age\":7,\"big\":[1,2],\"name\":\"n\"}}";
    assert_int_equal(doc_parse_answer("one", str_of(text), &doc, &err), ST_OK);
    struct doc_node root = doc_root(doc);
    assert_int_equal(doc_copy_members("two", &root, paths, &copy, &err), ST_OK);
    doc_free(doc);
    struct doc_node copied = doc_root(copy);
    char *printed = json_value_print(copied.val, NULL);
    assert_string_equal(printed, "{\"meta\":{\"name\":\"n\",\"age\":7},\"spec\":{\"a\":[1,{}]}}");
    free(printed);
    doc_free(copy);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(doc_get_and_at_find_nodes),
        cmocka_unit_test(doc_next_visits_elements_and_members),
        cmocka_unit_test(doc_read_checks_type_and_range),
        cmocka_unit_test(doc_read_returns_values),
        cmocka_unit_test(doc_whole_number_in_json_may_be_a_string),
        cmocka_unit_test(doc_error_names_line_and_path),
        cmocka_unit_test(doc_error_long_path_is_truncated),
        cmocka_unit_test(doc_reject_unknown_suggests_name),
        cmocka_unit_test(doc_reject_unknown_long_name_is_truncated),
        cmocka_unit_test(doc_parse_answer_reports_no_lines),
        cmocka_unit_test(doc_copy_members_takes_the_named_ones),
    };
    return cmocka_run_group_tests_name("core/base/doc/node", tests, NULL, NULL);
}
