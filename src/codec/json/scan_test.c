/* The scan: its counts and findings, with the text at every offset in a block of 16 bytes; that no
 * parser makes more values than it counts; and a million brackets. */
#include "codec/json/scan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

#include <cmocka.h>

static const struct row {
    const char *text;
    uint64_t n_values; /* one too many for each container that is empty */
    uint64_t depth;
    size_t behind; /* bytes after the root */
    bool non_finite;
    const char *other; /* the first unknown word, or NULL */
} rows[] = {
    {"", 1, 0, 0, false, NULL},
    {"17", 1, 0, 0, false, NULL},
    {"[]", 2, 1, 0, false, NULL},
    {"{}", 2, 1, 0, false, NULL},
    {"[1,2,3]", 4, 1, 0, false, NULL},
    {"{\"a\":1,\"b\":[true,null]}", 7, 2, 0, false, NULL},
    {"[[[[]]],[]]", 7, 4, 0, false, NULL},
    {"[1.5e-3,2.5E+300,-0.125,1e9,123456789012345678901234567890]", 6, 1, 0, false, NULL},
    {"[\"[[[[,:{{\",\"\\\"]\",\"\\\\\",\"N I\"]", 5, 1, 0, false, NULL},
    {"{\"k\\u005b\\\"N\":\"NaN\"}", 3, 1, 0, false, NULL},
    {"[\"a string that is much longer than a block of sixteen bytes, and more\",1]", 3, 1, 0, false,
     NULL},
    {"[\"\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\"a,b[[\",1]", 3, 1, 0, false, NULL},
    {"[\"\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\\",1,[]]", 5, 2, 0, false, NULL},
    {"{\"\":\"\",\"a\":\"\",\"\\\"\":\"\\\"\\\"\",\"b\":[\"\",\"\",\"\"]}", 12, 2, 0, false, NULL},
    {"[\"never closed, [[[", 2, 1, 0, false, NULL},
    {"[\"ends in a backslash\\", 2, 1, 0, false, NULL},
    {"[NaN]", 2, 1, 0, true, NULL},
    {"[Infinity,-Infinity,1]", 4, 1, 0, true, NULL},
    {"[1.0,2.0,3.0,4.0,5.0,6.0,7.0,NaN]", 9, 1, 0, true, NULL},
    {"{\"a\": true, \"b\": false, \"c\": null, \"d\": NaN}", 9, 1, 0, true, NULL},
    {"[NaN,nan]", 3, 1, 0, true, "nan"},
    {"[NaN,-NaN]", 3, 1, 0, true, "-NaN"},
    {"[NaN,inf,INF]", 4, 1, 0, true, "inf"},
    {"[NaN,\"inf\",Inf]", 4, 1, 0, true, "Inf"},
    {"[NaN,NaNs]", 3, 1, 0, true, "NaNs"},
    {"[NaN, -infinity ]", 3, 1, 0, true, "-infinity"},
    {"[I,N]", 3, 1, 0, false, "I"},
    {"[1NaN]", 2, 1, 0, false, NULL},
    {"[1e5N,NaN]", 3, 1, 0, true, NULL}, /* a number that the parser rejects */
    {"NaN", 1, 0, 0, true, NULL},
    {"[1] ", 2, 1, 1, false, NULL},
    {"[1]\x80\xff[[[[[{{{,,,,", 2, 1, 14, false, NULL},
    {"{}NaN,Infinity", 2, 1, 12, false, NULL},
    {"[NaN]nan", 2, 1, 3, true, NULL},
    {"]]]1,2", 2, 0, 0, false, NULL},
};

enum { N_ROWS = sizeof(rows) / sizeof(rows[0]) };

/* Each text after 0 to 40 blanks, in memory that ends with it. */
static void json_scan_rows_at_each_offset_match(void **state) {
    (void)state;
    for (size_t i = 0; i < N_ROWS; i++) {
        for (size_t shift = 0; shift <= 40; shift++) {
            const struct row *row = &rows[i];
            size_t len = strlen(row->text);
            char *text = malloc(shift + len + (shift + len == 0));
            memset(text, ' ', shift);
            memcpy(text + shift, row->text, len);
            struct json_scan scan;
            json_scan(str_make(text, shift + len), &scan);
            if (scan.n_values < row->n_values || scan.depth != row->depth ||
                scan.end != shift + len - row->behind || scan.non_finite != row->non_finite ||
                (scan.non_finite && scan.has_unknown_word != (row->other != NULL))) {
                fail_msg("row %zu at %zu: %s: %llu values, depth %llu, end %zu", i, shift,
                         row->text, (unsigned long long)scan.n_values,
                         (unsigned long long)scan.depth, scan.end);
            }
            if (row->behind == 0) { /* counting past the end would be allowed, but does not
                                       happen */
                assert_int_equal(scan.n_values, row->n_values);
            }
            if (row->other) {
                assert_int_equal(scan.unknown_word_bytes, strlen(row->other));
                assert_memory_equal(text + scan.unknown_word_offset, row->other,
                                    scan.unknown_word_bytes);
            }
            free(text);
        }
    }
}

/* A text with long runs of every kind, cut at every byte. */
static void json_scan_count_is_never_below_parser(void **state) {
    char text[1024];
    size_t len = 0;
    (void)state;
    len += (size_t)snprintf(text, sizeof(text), "{\"inputs\":[{\"name\":\"a\\\"b\",\"data\":[");
    for (int i = 0; i < 40; i++) {
        len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%d.%d", i > 0 ? "," : "", i, i);
    }
    len += (size_t)snprintf(text + len, sizeof(text) - len,
                            "],\"x\":[[1,2],[3,[4,\"five, six\"]],true,null,{\"y\":{}}]}]}");
    struct json_scan scan;
    json_scan(str_make(text, len), &scan);
    yyjson_doc *doc = yyjson_read(text, len, 0);
    assert_non_null(doc);
    assert_true(scan.n_values >= yyjson_doc_get_val_count(doc));
    assert_true(scan.n_values <= yyjson_doc_get_val_count(doc) + 1); /* and not by much */
    assert_int_equal(scan.end, len);
    yyjson_doc_free(doc);
    for (size_t cut = 0; cut < len; cut++) {
        struct json_scan part;
        json_scan(str_make(text, cut), &part);
        assert_int_equal(part.end, cut);
        assert_true(part.n_values <= scan.n_values && part.depth <= scan.depth);
    }
}

static void json_scan_deep_nesting_is_measured(void **state) {
    size_t n = 1000000;
    char *text = malloc(n);
    struct json_scan scan;
    (void)state;
    memset(text, '[', n);
    json_scan(str_make(text, n), &scan);
    assert_int_equal(scan.depth, n);
    assert_int_equal(scan.n_values, n + 1);
    memset(text + n / 2, ']', n / 2);
    json_scan(str_make(text, n), &scan);
    assert_int_equal(scan.depth, n / 2);
    assert_int_equal(scan.end, n);
    free(text);
}

/* More blocks of commas than a lane of the counter holds. */
static void json_scan_many_commas_do_not_overflow_counter(void **state) {
    size_t n = 100003;
    char *text = malloc(n);
    struct json_scan scan;
    (void)state;
    memset(text, ',', n);
    json_scan(str_make(text, n), &scan);
    assert_int_equal(scan.n_values, n + 1);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_scan_rows_at_each_offset_match),
        cmocka_unit_test(json_scan_count_is_never_below_parser),
        cmocka_unit_test(json_scan_deep_nesting_is_measured),
        cmocka_unit_test(json_scan_many_commas_do_not_overflow_counter),
    };
    return cmocka_run_group_tests_name("codec/json/scan", tests, NULL, NULL);
}
