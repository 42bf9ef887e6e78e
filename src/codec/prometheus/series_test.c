/* The Prometheus text format: the series that are found in a page, with its bytes cut anywhere. */
#include "codec/prometheus/series.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/base/arena_fixture.h"

/* The series found, in words: "name{labels} value@time;". */
static struct buf found_text;

static void found(void *user, const struct series *series) {
    (void)user;
    buf_printf(&found_text, "%.*s{%.*s} %g", STR_ARG(series->name), STR_ARG(series->labels),
               series->value);
    if (series->has_time) {
        buf_printf(&found_text, "@%.0f", series->time);
    }
    buf_add_char(&found_text, ';');
}

static const struct str NAMES[] = {STR("a"), STR("vllm:num_requests_waiting")};

static struct series_reader *begin(void) {
    struct series_reader *reader = arena_calloc(arena, 1, sizeof(*reader));
    assert_non_null(reader);
    *reader = (struct series_reader){
        .names = NAMES, .n_names = sizeof(NAMES) / sizeof(NAMES[0]), .on_series = found};
    buf_init(&found_text, arena, 256);
    series_reader_init(reader);
    return reader;
}

static struct series_reader *read_page(struct str page) {
    struct series_reader *reader = begin();
    series_reader_feed(reader, page);
    series_reader_finish(reader);
    return reader;
}

static void check_found(const char *wanted) {
    assert_int_equal(found_text.len, strlen(wanted));
    assert_memory_equal(found_text.data, wanted, found_text.len);
}

static const char PAGE[] = "# HELP a Something.\n"
                           "# TYPE a gauge\n"
                           "a 1\n"
                           "ab 2\n"
                           "b{x=\"a 5\"} 7\n"
                           "\n"
                           "a{x=\"1\",y=\"two \\\"2\\\"\"} 2.5e3 1700000000000\n"
                           "a {} 3\r\n"
                           "  a\t4  \n"
                           "vllm:num_requests_waiting{model_name=\"m\",} 12.0\n"
                           "a_bucket{le=\"1\"} 4 # {trace_id=\"x\"} 0.5\n"
                           "a{le=\"1\"} 4 # {trace_id=\"x\"} 0.5\n"
                           "a +Inf\n"
                           "a -inf\n"
                           "# EOF\n"
                           "a 9";

static const char FOUND[] = "a{} 1;a{x=\"1\",y=\"two \\\"2\\\"\"} 2500@1700000000000;a{} 3;a{} 4;"
                            "vllm:num_requests_waiting{model_name=\"m\",} 12;a{le=\"1\"} 4;"
                            "a{} inf;a{} -inf;a{} 9;";

static void series_reader_page_yields_wanted_series(void **state) {
    (void)state;
    struct series_reader *reader = read_page(STR(PAGE));
    check_found(FOUND);
    assert_int_equal(reader->n_malformed, 0);
    assert_int_equal(reader->n_lines, 16);
    assert_int_equal(reader->n_bytes, sizeof(PAGE) - 1);
}

static void series_reader_page_at_each_split_matches(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(PAGE); i++) {
        struct series_reader *reader = begin();
        series_reader_feed(reader, str_make(PAGE, i));
        series_reader_feed(reader, str_make(PAGE + i, sizeof(PAGE) - 1 - i));
        series_reader_finish(reader);
        check_found(FOUND);
        assert_int_equal(reader->n_lines, 16);
    }
    struct series_reader *reader = begin();
    for (size_t i = 0; i + 1 < sizeof(PAGE); i++) {
        series_reader_feed(reader, str_make(PAGE + i, 1));
    }
    series_reader_finish(reader);
    check_found(FOUND);
}

/* Where names differ far after their beginnings, lines that end before that offset precede wanted
 * ones. */
static void series_reader_short_lines_are_skipped(void **state) {
    static const struct str names[] = {STR("vllm:num_requests_waiting"),
                                       STR("vllm:num_requests_running")};
    static const char page[] = "\n\nx\ny 1\n#\nvllm:num_requests_waiting 1\n\n"
                               "vllm:num_requests_running 2\n  vllm:num_requests_running 3\n"
                               "vllm:num_requests_runner 9\nvllm:num_requests_r\n\r\n"
                               "0123456789012345678ru\nvllm:num_requests_waiting 4";
    (void)state;
    for (size_t i = 0; i < sizeof(page); i++) {
        struct series_reader *reader = begin();
        reader->names = names;
        series_reader_init(reader);
        series_reader_feed(reader, str_make(page, i));
        series_reader_feed(reader, str_make(page + i, sizeof(page) - 1 - i));
        series_reader_finish(reader);
        check_found("vllm:num_requests_waiting{} 1;vllm:num_requests_running{} 2;"
                    "vllm:num_requests_running{} 3;vllm:num_requests_waiting{} 4;");
        assert_int_equal(reader->n_lines, 14);
        assert_int_equal(reader->n_malformed, 0);
    }
}

static void series_reader_nan_is_passed_on(void **state) {
    (void)state;
    read_page(STR("a NaN\n"));
    buf_add_char(&found_text, '\0');
    assert_non_null(strstr(found_text.data, "nan"));
}

static void series_reader_malformed_line_is_counted(void **state) {
    (void)state;
    static const char *const lines[] = {
        "a",           "a ",
        "a x",         "a 1x",
        "a{ 1",        "a{x} 1",
        "a{x=1} 1",    "a{x=\"1} 1",
        "a{x=\"1\" 1", "a{x=\"1\"y=\"2\"} 1",
        "a{=\"1\"} 1", "a 1 2 3",
        "a 1 x",       "a --1",
        "a 0x10",      "a{x=\"1\\\"} 1",
        "a{,} 1",
    };
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        struct series_reader *reader = begin();
        series_reader_feed(reader, str_of(lines[i]));
        series_reader_feed(reader, STR("\na 1\n"));
        series_reader_finish(reader);
        check_found("a{} 1;");
        assert_int_equal(reader->n_malformed, 1);
    }
}

static void series_reader_wanted_line_over_capacity_is_counted(void **state) {
    (void)state;
    enum { N_BYTES = 3 * SERIES_LINE_BYTES };
    char *blanks = arena_alloc(arena, N_BYTES);
    assert_non_null(blanks);
    memset(blanks, ' ', N_BYTES);
    static const char *const names[] = {"a", "other"};
    for (size_t i = 0; i < 2; i++) { /* a wanted series that is too long counts as lost; another
                                        one does not */
        struct series_reader *reader = begin();
        series_reader_feed(reader, str_of(names[i]));
        series_reader_feed(reader, str_make(blanks, N_BYTES));
        series_reader_feed(reader, STR("5\na 1\n"));
        series_reader_finish(reader);
        check_found("a{} 1;");
        assert_int_equal(reader->n_too_long, i == 0);
        assert_int_equal(reader->n_lines, 2);
    }
    struct series_reader *reader = begin(); /* a line that is complete in a chunk is not buffered */
    memcpy(blanks, "a 1", 3);
    blanks[N_BYTES - 1] = '\n';
    series_reader_feed(reader, str_make(blanks, N_BYTES));
    check_found("a{} 1;");
}

static void series_label_next_and_is_unescape_values(void **state) {
    (void)state;
    static const struct series series = {
        .labels = STR("model=\"a\\\\b\\nc\\\"\\x\", lora = \"\",z=\"1,2\""),
    };
    struct str labels = series.labels;
    struct series_label label;
    size_t n = 0;
    while (series_label_next(&labels, &label)) {
        n++;
    }
    assert_int_equal(n, 3);
    assert_true(series_label_is(&series, STR("z"), STR("1,2")));
    assert_false(series_label_is(&series, STR("z"), STR("1,")));
    assert_false(series_label_is(&series, STR("z"), STR("1,22")));
    assert_true(series_label_is(&series, STR("lora"), STR("")));
    assert_false(series_label_is(&series, STR("none"), STR("")));
    assert_true(series_label_is(&series, STR("model"), STR("a\\b\nc\"\\x")));
    struct buf value;
    buf_init(&value, arena, 16);
    assert_true(series_label_print(&series, STR("model"), &value));
    assert_true(str_eq(buf_str(&value), STR("a\\b\nc\"\\x")));
    assert_false(series_label_print(&series, STR("none"), &value));
}

static void count_found(void *user, const struct series *series) {
    (void)series;
    ++*(unsigned *)user;
}

/* Names with everything, little or nothing in common, and lines that nearly match one of them. */
static void series_reader_similar_names_are_distinguished(void **state) {
    static const struct {
        struct str names[4];
        const char *page;
        unsigned n_found;
    } cases[] = {
        {{STR("vllm:a_b"), STR("vllm:a_c")}, "vllm:a_b 1\nvllm:a_c 1\nvllm:a_d 1\nvllm:a 1\n", 2},
        {{STR("a"), STR("b")}, "a 1\nb 1\nc 1\nab 1\na{} 1\n", 3},
        {{STR("a"), STR("ab"), STR("abc")}, "a 1\nab 1\nabc 1\nabcd 1\nb 1\n", 3},
        {{STR("only")}, "only 1\nonl 1\nonly_ 1\nonl\n", 1},
        {{STR("")}, " 1\n{} 1\na 1\n\n", 0},
        {{STR("same"), STR("same")}, "same 1\n", 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct series_reader *reader = calloc(1, sizeof(*reader));
        unsigned n = 0;
        assert_non_null(reader);
        reader->names = cases[i].names;
        while (reader->n_names < 4 && cases[i].names[reader->n_names].ptr) {
            reader->n_names++;
        }
        reader->on_series = count_found;
        reader->user = &n;
        series_reader_init(reader);
        series_reader_feed(reader, str_of(cases[i].page));
        series_reader_finish(reader);
        assert_int_equal(n, cases[i].n_found);
        free(reader);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(series_reader_page_yields_wanted_series),
        cmocka_unit_test(series_reader_page_at_each_split_matches),
        cmocka_unit_test(series_reader_short_lines_are_skipped),
        cmocka_unit_test(series_reader_nan_is_passed_on),
        cmocka_unit_test(series_reader_malformed_line_is_counted),
        cmocka_unit_test(series_reader_wanted_line_over_capacity_is_counted),
        cmocka_unit_test(series_label_next_and_is_unescape_values),
        cmocka_unit_test(series_reader_similar_names_are_distinguished),
    };
    return cmocka_run_group_tests_name("codec/prometheus/series", tests, setup, teardown);
}
