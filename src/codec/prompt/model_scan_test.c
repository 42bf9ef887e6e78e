/* Scanning a body for the model: rows with the expected result, each cut at every byte and fed
 * byte by byte; then random texts, damaged and cut at random, compared with a parser: the scan
 * finds the parser's value at the same place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <yyjson.h>

#include <cmocka.h>

#include "codec/prompt/model_scan.h"
#include "core/base/arena_fixture.h"
#include "core/base/json_writer.h"

/* ---- rows ------------------------------------------------------------------------------------ */

static const struct row {
    struct str text;
    enum model_scan_result result;
    const char *name; /* of the match */
    size_t value_at;
} rows[] = {
    {STR("{\"model\":\"m\"}"), MODEL_SCAN_FOUND, "m", 9},
    {STR(" \t\r\n{ \"model\" :\n\"a/b-1\" , \"x\": 1}"), MODEL_SCAN_FOUND, "a/b-1", 16},
    {STR("{\"model\":\"\"}"), MODEL_SCAN_FOUND, "", 9},
    {STR("{\"a\":1,\"model\":\"m\""), MODEL_SCAN_FOUND, "m", 15},
    {STR("{\"messages\":[{\"model\":\"no\",\"a\":[\"]\"]}],\"model\":\"yes\"}"), MODEL_SCAN_FOUND,
     "yes", 47},
    {STR("{\"a\":{\"model\":\"no\"},\"b\":\"\\\"model\\\":\\\"no\\\"\",\"model\":\"yes\"}"),
     MODEL_SCAN_FOUND, "yes", 51},
    {STR("{\"\\\"\":\"\\\\\",\"b\\\\\":\"{\",\"model\":\"m\"}"), MODEL_SCAN_FOUND, "m", 29},
    {STR("{\"mode\":\"no\",\"models\":\"no\",\"Model\":\"no\",\"\":0,\"model\":\"m\"}"),
     MODEL_SCAN_FOUND, "m", 53},
    {STR("{\"\\u006dod\\u0065l\":\"m\"}"), MODEL_SCAN_FOUND, "m", 19},
    {STR("{\"\\u006dod\\u0065l\\u0000\":\"no\",\"mo\\\\del\":1,\"model\":\"m\"}"), MODEL_SCAN_FOUND,
     "m", 50},
    {STR("{\"model\":\"first\",\"model\":\"second\"}"), MODEL_SCAN_FOUND, "first", 9},
    {STR("{\"model\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"}"), MODEL_SCAN_FOUND, "\"\\/\b\f\n\r\t", 9},
    {STR("{\"model\":\"\\u00e9\\u20AC\\ud83d\\ude00\\u0041\"}"), MODEL_SCAN_FOUND,
     "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"
     "A",
     9},
    {STR("{\"model\":\"\xc3\xa9\xf0\x9f\x98\x80\"}"), MODEL_SCAN_FOUND, "\xc3\xa9\xf0\x9f\x98\x80",
     9},
    {STR("{\"a\":-1.5e+3,\"b\":true,\"c\":null ,\"model\":\"m\"}"), MODEL_SCAN_FOUND, "m", 40},
    {STR("{\"a\":[],\"b\":{},\"c\":[[{}],[]],\"model\":\"m\"}"), MODEL_SCAN_FOUND, "m", 37},
    /* bytes after the name are not read */
    {STR("{\"model\":\"m\"]}}"), MODEL_SCAN_FOUND, "m", 9},
    {STR("{}"), MODEL_SCAN_ABSENT, NULL, 0},
    {STR(" { \"a\" : \"model\" } "), MODEL_SCAN_ABSENT, NULL, 0},
    {STR("{\"a\":{\"model\":\"no\"}}"), MODEL_SCAN_ABSENT, NULL, 0},
    {STR("{\"model\":7}"), MODEL_SCAN_OTHER_TYPE, NULL, 0},
    {STR("{\"model\": null}"), MODEL_SCAN_OTHER_TYPE, NULL, 0},
    {STR("{\"model\":[\"m\"]}"), MODEL_SCAN_OTHER_TYPE, NULL, 0},
    {STR("{\"model\":{\"model\":\"m\"}}"), MODEL_SCAN_OTHER_TYPE, NULL, 0},
    {STR(""), MODEL_SCAN_NOT_OBJECT, NULL, 0},
    {STR(" \n"), MODEL_SCAN_NOT_OBJECT, NULL, 0},
    {STR("[{\"model\":\"m\"}]"), MODEL_SCAN_NOT_OBJECT, NULL, 0},
    {STR("\"model\""), MODEL_SCAN_NOT_OBJECT, NULL, 0},
    {STR("\xef\xbb\xbf{\"model\":\"m\"}"), MODEL_SCAN_NOT_OBJECT, NULL, 0},
    {STR("model=m"), MODEL_SCAN_NOT_OBJECT, NULL, 0},
    {STR("{"), MODEL_SCAN_MALFORMED, NULL, 0},
    {STR("{\"model\":\"m"), MODEL_SCAN_MALFORMED, NULL, 0},
    {STR("{\"a\":[1,2"), MODEL_SCAN_MALFORMED, NULL, 0},
    {STR("{\"a\":\"x\\"), MODEL_SCAN_MALFORMED, NULL, 0},
    {STR("{model:\"m\"}"), MODEL_SCAN_MALFORMED, NULL, 0},
    {STR("{,\"model\":\"m\"}"), MODEL_SCAN_MALFORMED, NULL, 0},
    {STR("{\"a\":1,}"), MODEL_SCAN_MALFORMED, NULL, 0},
    {STR("{\"a\" \"model\":\"m\"}"), MODEL_SCAN_MALFORMED, NULL, 0},
    {STR("{\"a\":,\"model\":\"m\"}"), MODEL_SCAN_MALFORMED, NULL, 0},
    {STR("{\"a\":1 2,\"model\":\"m\"}"), MODEL_SCAN_MALFORMED, NULL, 0},
    {STR("{\"a\":1\"b\",\"model\":\"m\"}"), MODEL_SCAN_MALFORMED, NULL, 0},
    {STR("{\"a\":\"b\"\"model\":\"m\"}"), MODEL_SCAN_MALFORMED, NULL, 0},
    {STR("{\"a\":[1]]}"), MODEL_SCAN_MALFORMED, NULL, 0},
    {STR("{\"model\":\"a\nb\"}"), MODEL_SCAN_MALFORMED, NULL, 0},
    {STR("{\"model\":\"\\x41\"}"), MODEL_SCAN_MALFORMED, NULL, 0},
    {STR("{\"model\":\"\\\0\"}"), MODEL_SCAN_MALFORMED, NULL, 0},
    {STR("{\"model\":\"\\u00g0\"}"), MODEL_SCAN_MALFORMED, NULL, 0},
    {STR("{\"model\":\"\\ud83d\"}"), MODEL_SCAN_MALFORMED, NULL, 0},
    {STR("{\"model\":\"\\ud83dx\"}"), MODEL_SCAN_MALFORMED, NULL, 0},
    {STR("{\"model\":\"\\ud83d\\n\"}"), MODEL_SCAN_MALFORMED, NULL, 0},
    {STR("{\"model\":\"\\ud83d\\ud83d\"}"), MODEL_SCAN_MALFORMED, NULL, 0},
    {STR("{\"model\":\"\\ude00\"}"), MODEL_SCAN_MALFORMED, NULL, 0},
    {STR("{\"model\":\"\xff\"}"), MODEL_SCAN_MALFORMED, NULL, 0},
    {STR("{\"model\":\"\xc3\"}"), MODEL_SCAN_MALFORMED, NULL, 0},
};

enum { N_ROWS = sizeof(rows) / sizeof(rows[0]) };

/* Feeds `text` in parts that end at `cuts`, each in its own allocation. */
static void scan_parts(struct str text, const size_t *cuts, size_t n_cuts,
                       struct model_scan *scan) {
    size_t at = 0;
    model_scan_init(scan, arena);
    for (size_t i = 0; i <= n_cuts; i++) {
        size_t end = i < n_cuts ? cuts[i] : text.len;
        char *part = malloc(end - at + (end == at));
        memcpy(part, text.ptr + at, end - at);
        model_scan_feed(scan, str_make(part, end - at));
        free(part);
        at = end;
    }
    model_scan_finish(scan);
}

static void check_row(const struct row *row, const struct model_scan *scan) {
    struct error err = {0};
    if (scan->result != row->result) {
        fail_msg("%.*s: %d", STR_ARG(row->text), scan->result);
    }
    enum status status = model_scan_check(scan, &err);
    assert_int_equal(status, err.status);
    assert_int_equal(status == ST_OK, row->result == MODEL_SCAN_FOUND);
    assert_int_equal(err.text[0] == '\0', row->result == MODEL_SCAN_FOUND);
    if (row->result == MODEL_SCAN_FOUND) {
        assert_true(str_is(buf_str(&scan->name), row->name));
        assert_int_equal(scan->value_at, row->value_at);
        assert_int_equal(row->text.ptr[scan->value_at], '"');
        assert_int_equal(row->text.ptr[scan->value_at + scan->value_bytes - 1], '"');
    }
}

static void model_scan_rows_at_each_split_match(void **state) {
    (void)state;
    for (size_t i = 0; i < N_ROWS; i++) {
        size_t n = rows[i].text.len, all[128];
        struct model_scan scan;
        assert_true(n <= 128);
        for (size_t cut = 0; cut <= n; cut++) {
            scan_parts(rows[i].text, &cut, 1, &scan);
            check_row(&rows[i], &scan);
        }
        for (size_t k = 0; k < n; k++) {
            all[k] = k;
        }
        scan_parts(rows[i].text, all, n, &scan);
        check_row(&rows[i], &scan);
    }
}

/* The name is found at its closing quote; later bytes make no difference. */
static void model_scan_name_is_found_at_closing_quote(void **state) {
    struct str text = STR("{\"a\":[1,{\"b\":\"c\"}],\"model\":\"m\",\"z\":2}");
    struct model_scan scan;
    (void)state;
    model_scan_init(&scan, arena);
    for (size_t i = 0; i < text.len; i++) {
        enum model_scan_result want = i < 29 ? MODEL_SCAN_MORE : MODEL_SCAN_FOUND;
        assert_int_equal(model_scan_feed(&scan, str_make(text.ptr + i, 1)), want);
    }
    assert_int_equal(scan.at, 30);
    assert_int_equal(scan.value_at, 27);
    assert_int_equal(scan.value_bytes, 3);
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static enum model_scan_result scan_name(size_t n, const char *unit) {
    struct buf text;
    struct model_scan scan;
    struct error err;
    buf_init(&text, arena, 0);
    buf_add_str(&text, STR("{\"model\":\""));
    for (size_t i = 0; i < n; i++) {
        buf_add_str(&text, str_of(unit));
    }
    buf_add_str(&text, STR("\"}"));
    model_scan_init(&scan, arena);
    model_scan_feed(&scan, buf_str(&text));
    if (scan.result == MODEL_SCAN_TOO_LONG) {
        assert_int_equal(model_scan_check(&scan, &err), ST_BAD_FIELD);
        assert_non_null(strstr(err.text, "4096"));
    }
    return scan.result;
}

static void model_scan_name_over_max_is_refused(void **state) {
    (void)state;
    assert_int_equal(scan_name(MODEL_SCAN_MAX_BYTES, "x"), MODEL_SCAN_FOUND);
    assert_int_equal(scan_name(MODEL_SCAN_MAX_BYTES + 1, "x"), MODEL_SCAN_TOO_LONG);
    assert_int_equal(scan_name(MODEL_SCAN_MAX_BYTES, "\\u0078"), MODEL_SCAN_FOUND);
    assert_int_equal(scan_name(MODEL_SCAN_MAX_BYTES + 1, "\\u0078"), MODEL_SCAN_TOO_LONG);
    assert_int_equal(scan_name(MODEL_SCAN_MAX_BYTES / 2, "\\u00e9"), MODEL_SCAN_FOUND);
    assert_int_equal(scan_name(MODEL_SCAN_MAX_BYTES / 2 + 1, "\\u00e9"), MODEL_SCAN_TOO_LONG);
}

/* Depth, long keys, strings and runs of backslashes need no memory. */
static void model_scan_skipped_values_allocate_nothing(void **state) {
    static const char *const units[] = {"[",         "{\"a\":", "\"", "\\\\",
                                        "\"\\u0041", "[\"\\\"", "\"k"};
    (void)state;
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        struct model_scan scan;
        size_t before = arena_bytes(arena);
        model_scan_init(&scan, arena);
        model_scan_feed(&scan, i == 3 ? STR("{\"a\":\"") : STR("{\"a\":"));
        for (size_t k = 0; k < 300000; k++) {
            model_scan_feed(&scan, str_of(units[i]));
        }
        model_scan_finish(&scan);
        assert_int_equal(scan.result, MODEL_SCAN_MALFORMED);
        assert_int_equal(arena_bytes(arena), before);
    }
}

static void model_scan_out_of_memory_is_reported(void **state) {
    struct arena *small = arena_new(NULL, 1);
    struct model_scan scan;
    struct error err;
    (void)state;
    while (arena_alloc(small, 256)) {
    }
    while (arena_alloc(small, 1)) {
    }
    model_scan_init(&scan, small);
    assert_int_equal(model_scan_feed(&scan, STR("{\"model\":\"m\"}")), MODEL_SCAN_NO_MEMORY);
    assert_int_equal(model_scan_check(&scan, &err), ST_NO_MEMORY);
    arena_free(small);
}

/* ---- compared with a parser ------------------------------------------------------------------ */

static uint64_t seed = 0x9e3779b97f4a7c15u;

static size_t below(size_t n) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (size_t)(seed >> 11) % n;
}

static void add_any(struct buf *out, const char *const *choices, size_t n) {
    buf_add_str(out, str_of(choices[below(n)]));
}

static void add_text(struct buf *out) {
    static const char *const parts[] = {"a",        "model",
                                        "\\\"",     "\\\\",
                                        "\\u0041",  "\\ud83d\\ude00",
                                        "\xc3\xa9", "[",
                                        "]",        "{",
                                        "}",        ",",
                                        ":",        " ",
                                        "\\\\\"",   "0123456789abcdef",
                                        "\\/",      "\\n",
                                        "m",        "\\u006d"};
    for (size_t n = below(6); n > 0; n--) {
        size_t i = below(sizeof(parts) / sizeof(parts[0]));
        if (i != 14 || below(50) == 0) { /* a closing quote, rarely */
            buf_add_str(out, str_of(parts[i]));
        }
    }
}

static void add_blank(struct buf *out) {
    static const char *const blanks[] = {"", "", "", " ", "\n", "\t \r"};
    add_any(out, blanks, sizeof(blanks) / sizeof(blanks[0]));
}

static void add_string(struct buf *out) {
    buf_add_char(out, '"');
    add_text(out);
    buf_add_char(out, '"');
}

static void add_key(struct buf *out) {
    static const char *const keys[] = {"\"model\"", "\"mod\\u0065l\"", "\"mode\"", "\"models\"",
                                       "\"\""};
    if (below(3) == 0) {
        add_any(out, keys, sizeof(keys) / sizeof(keys[0]));
    } else {
        add_string(out);
    }
}

enum { MOST_OPEN = 6 };

/* Writes a random value without recursion: brackets are opened and closed on the way. */
static void add_value(struct buf *out) {
    static const char *const words[] = {"0", "-1.5e3", "true", "false", "null", "12345678901234"};
    char open[MOST_OPEN];
    size_t depth = 0;
    do {
        size_t what = below(8);
        if (what < 3 && depth < MOST_OPEN) {
            bool object = below(2) == 0;
            buf_add_char(out, object ? '{' : '[');
            if (object) {
                add_key(out);
                buf_add_char(out, ':');
            }
            open[depth++] = object ? '}' : ']';
            continue;
        }
        if (what < 6) {
            add_string(out);
        } else {
            add_any(out, words, sizeof(words) / sizeof(words[0]));
        }
        while (depth > 0 && below(2) == 0) {
            buf_add_char(out, open[--depth]);
            add_blank(out);
        }
        if (depth > 0) {
            buf_add_char(out, ',');
            if (open[depth - 1] == '}') {
                add_key(out);
                buf_add_char(out, ':');
            }
        }
    } while (depth > 0 || out->data[out->len - 1] == ',' || out->data[out->len - 1] == ':');
}

static void add_object(struct buf *out) {
    size_t n = below(5);
    add_blank(out);
    buf_add_char(out, '{');
    for (size_t i = 0; i < n; i++) {
        add_blank(out);
        add_key(out);
        add_blank(out);
        buf_add_char(out, ':');
        add_blank(out);
        add_value(out);
        add_blank(out);
        if (i + 1 < n) {
            buf_add_char(out, ',');
        }
    }
    buf_add_char(out, '}');
    add_blank(out);
}

/* Changes, drops or duplicates some bytes. */
static void damage(struct buf *text) {
    static const char bytes[] = "{}[]\",:\\u0 md\x01\xff";
    for (size_t n = 1 + below(3); n > 0 && text->len > 0; n--) {
        size_t at = below(text->len), what = below(3);
        if (what == 0) {
            text->data[at] = bytes[below(sizeof(bytes) - 1)];
        } else if (what == 1) {
            memmove(text->data + at, text->data + at + 1, text->len - at - 1);
            text->len--;
        } else {
            text->len = at;
        }
    }
}

/* Compares with the parser's result. */
static void check_parsed(struct str text, yyjson_val *root, const struct model_scan *scan) {
    yyjson_val *model = yyjson_obj_get(root, "model");
    if (!yyjson_is_obj(root)) {
        assert_int_equal(scan->result, MODEL_SCAN_NOT_OBJECT);
    } else if (!model) {
        assert_int_equal(scan->result, MODEL_SCAN_ABSENT);
    } else if (!yyjson_is_str(model)) {
        assert_int_equal(scan->result, MODEL_SCAN_OTHER_TYPE);
    } else {
        assert_int_equal(scan->result, MODEL_SCAN_FOUND);
        struct str name = str_make(yyjson_get_str(model), yyjson_get_len(model));
        assert_true(str_eq(buf_str(&scan->name), name));
        struct buf changed;
        buf_init(&changed, arena, text.len + 64);
        buf_add(&changed, text.ptr, scan->value_at);
        json_string_print(&changed, STR("an\"other"));
        size_t after = scan->value_at + scan->value_bytes;
        buf_add(&changed, text.ptr + after, text.len - after);
        yyjson_doc *doc = yyjson_read(changed.data, changed.len, 0);
        model = yyjson_obj_get(yyjson_doc_get_root(doc), "model");
        assert_string_equal(yyjson_get_str(model), "an\"other");
        yyjson_doc_free(doc);
    }
}

/* Whether another member follows, at every split of the text. */
static void model_scan_rest_finds_another_member(void **state) {
    static const struct {
        const char *text; /* after {"model":"a" */
        bool repeated;
    } cases[] = {
        {"}", false},
        {",\"model\":\"b\"}", true},
        {" , \"x\": [{\"model\":\"b\"}], \"mod\\u0065l\" : 1}", true},
        {",\"x\":{\"model\":\"b\"},\"models\":\"c\",\"mode\":\"\\\"model\\\":1\"}", false},
        {"},\"model\":\"b\"}", false}, /* after the object */
        {",model", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct str text = str_of(cases[i].text);
        for (size_t cut = 0; cut <= text.len; cut++) {
            struct model_scan rest;
            model_scan_init_rest(&rest, arena);
            bool repeated = model_scan_feed_rest(&rest, str_make(text.ptr, cut));
            repeated = model_scan_feed_rest(&rest, str_make(text.ptr + cut, text.len - cut));
            assert_int_equal(repeated, cases[i].repeated);
        }
    }
}

static void model_scan_random_texts_match_full_parser(void **state) {
    size_t n_found = 0, n_refused = 0;
    (void)state;
    for (size_t round = 0; round < 40000; round++) {
        struct arena *outer = arena;
        arena = arena_new(NULL, 0);
        struct buf text;
        struct model_scan whole, parts;
        size_t cuts[4], n_cuts = below(5);
        buf_init(&text, arena, 256);
        add_object(&text);
        if (below(3) == 0) {
            damage(&text);
        }
        for (size_t i = 0, at = 0; i < n_cuts; i++) {
            at += below(text.len - at + 1);
            cuts[i] = at;
        }
        scan_parts(buf_str(&text), NULL, 0, &whole);
        scan_parts(buf_str(&text), cuts, n_cuts, &parts);
        assert_int_equal(whole.result, parts.result);
        assert_int_equal(whole.at, parts.at);
        assert_true(str_eq(buf_str(&whole.name), buf_str(&parts.name)));
        yyjson_doc *doc = yyjson_read(text.data, text.len, 0);
        if (doc) {
            check_parsed(buf_str(&text), yyjson_doc_get_root(doc), &whole);
            n_found += whole.result == MODEL_SCAN_FOUND;
        }
        n_refused += doc == NULL;
        yyjson_doc_free(doc);
        arena_free(arena);
        arena = outer;
    }
    assert_true(n_found > 1000 && n_refused > 1000); /* both cases occurred */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(model_scan_rows_at_each_split_match, setup, teardown),
        cmocka_unit_test_setup_teardown(model_scan_name_is_found_at_closing_quote, setup, teardown),
        cmocka_unit_test_setup_teardown(model_scan_name_over_max_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(model_scan_skipped_values_allocate_nothing, setup,
                                        teardown),
        cmocka_unit_test(model_scan_out_of_memory_is_reported),
        cmocka_unit_test_setup_teardown(model_scan_rest_finds_another_member, setup, teardown),
        cmocka_unit_test_setup_teardown(model_scan_random_texts_match_full_parser, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
