/* Metrics of models: what is opened twice is one, what does not fit is refused, and what is closed
 * is not on the page. */
#include "serve/scheduler/statistics/custom_metrics.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static sluice_error error;

static sluice_metric_family *open_family(const char *name, sluice_metric_kind kind) {
    sluice_metric_family *family;
    assert_int_equal(custom_family_open(name, "a\\b\nc", kind, &family, &error), SLUICE_OK);
    return family;
}

static sluice_metric *open_metric(sluice_metric_family *family, const sluice_label *labels,
                                  size_t n) {
    sluice_metric *metric;
    assert_int_equal(custom_metric_open(family, labels, n, NULL, 0, &metric, &error), SLUICE_OK);
    return metric;
}

static void assert_page(enum metric_format format, const char *expected) {
    struct arena *arena = arena_new(NULL, 0);
    struct buf out;
    struct metric_text text = {.out = &out, .format = format};
    buf_init(&out, arena, 64);
    custom_metrics_print(&text);
    buf_add_char(&out, '\0');
    assert_string_equal(out.data, expected);
    arena_free(arena);
}

static void metrics_with_the_same_labels_are_one(void **state) {
    static const sluice_label labels[2] = {{"b", "x\"y"}, {"a", "\xc3\xa4"}};
    static const sluice_label turned[2] = {{"a", "\xc3\xa4"}, {"b", "x\"y"}};
    double value;
    (void)state;
    sluice_metric_family *family = open_family("requests_total", SLUICE_METRIC_COUNTER);
    sluice_metric_family *again = open_family("requests_total", SLUICE_METRIC_COUNTER);
    assert_ptr_equal(family, again);
    sluice_metric *metrics[] = {open_metric(family, labels, 2), open_metric(again, turned, 2),
                                open_metric(family, NULL, 0)};
    assert_ptr_equal(metrics[0], metrics[1]);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(custom_metric_change(metrics[i], SLUICE_METRIC_INCREMENT, 1.5, &error),
                         SLUICE_OK);
    }
    assert_int_equal(custom_metric_value(metrics[0], &value, &error), SLUICE_OK);
    assert_true(value == 3);
    assert_page(METRIC_FORMAT_PROMETHEUS, "# HELP requests_total a\\\\b\\nc\n"
                                          "# TYPE requests_total counter\n"
                                          "requests_total{a=\"\xc3\xa4\",b=\"x\\\"y\"} 3\n"
                                          "requests_total 1.5\n");
    assert_page(METRIC_FORMAT_OPENMETRICS, "# HELP requests a\\\\b\\nc\n"
                                           "# TYPE requests counter\n"
                                           "requests_total{a=\"\xc3\xa4\",b=\"x\\\"y\"} 3\n"
                                           "requests_total 1.5\n");
    custom_family_close(family);
    custom_family_close(again);
    custom_metric_close(metrics[0]);
    custom_metric_close(metrics[2]);
    assert_page(METRIC_FORMAT_PROMETHEUS, "# HELP requests_total a\\\\b\\nc\n"
                                          "# TYPE requests_total counter\n"
                                          "requests_total{a=\"\xc3\xa4\",b=\"x\\\"y\"} 3\n");
    custom_metric_close(metrics[1]);
    assert_page(METRIC_FORMAT_PROMETHEUS, "");
}

static void metrics_of_each_kind_take_their_changes(void **state) {
    static const double bounds[2] = {-0.5, 10}, others[2] = {-0.5, 11};
    sluice_metric *histogram, *refused;
    double value;
    (void)state;
    sluice_metric_family *gauges = open_family("level", SLUICE_METRIC_GAUGE);
    sluice_metric_family *histograms = open_family("size", SLUICE_METRIC_HISTOGRAM);
    sluice_metric *gauge = open_metric(gauges, NULL, 0);
    assert_int_equal(custom_metric_open(histograms, NULL, 0, bounds, 2, &histogram, &error),
                     SLUICE_OK);
    assert_int_equal(custom_metric_open(histograms, NULL, 0, others, 2, &refused, &error),
                     SLUICE_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "other buckets already"));
    assert_int_equal(custom_metric_change(gauge, SLUICE_METRIC_SET, -2, &error), SLUICE_OK);
    assert_int_equal(custom_metric_change(gauge, SLUICE_METRIC_INCREMENT, -1, &error), SLUICE_OK);
    for (int i = -1; i < 20; i += 5) {
        assert_int_equal(custom_metric_change(histogram, SLUICE_METRIC_OBSERVE, i, &error),
                         SLUICE_OK);
    }
    assert_page(METRIC_FORMAT_PROMETHEUS,
                "# HELP level a\\\\b\\nc\n# TYPE level gauge\nlevel -3\n"
                "# HELP size a\\\\b\\nc\n# TYPE size histogram\n"
                "size_bucket{le=\"-0.5\"} 1\nsize_bucket{le=\"10.0\"} 3\n"
                "size_bucket{le=\"+Inf\"} 5\nsize_sum 45\nsize_count 5\n");
    assert_int_equal(custom_metric_change(gauge, SLUICE_METRIC_SET, (double)INFINITY, &error),
                     SLUICE_OK);
    assert_int_equal(custom_metric_value(histogram, &value, &error), SLUICE_INVALID_ARGUMENT);
    assert_int_equal(custom_metric_change(histogram, SLUICE_METRIC_INCREMENT, 1, &error),
                     SLUICE_INVALID_ARGUMENT);
    assert_int_equal(custom_metric_change(histogram, SLUICE_METRIC_OBSERVE, (double)NAN, &error),
                     SLUICE_INVALID_ARGUMENT);
    assert_int_equal(custom_metric_change(gauge, SLUICE_METRIC_OBSERVE, 1, &error),
                     SLUICE_INVALID_ARGUMENT);
    assert_int_equal(custom_metric_change(gauge, (sluice_metric_change)9, 1, &error),
                     SLUICE_INVALID_ARGUMENT);
    sluice_metric_family *counters = open_family("events", SLUICE_METRIC_COUNTER);
    sluice_metric *counter = open_metric(counters, NULL, 0);
    assert_int_equal(custom_metric_change(counter, SLUICE_METRIC_SET, 1, &error),
                     SLUICE_INVALID_ARGUMENT);
    assert_int_equal(custom_metric_change(counter, SLUICE_METRIC_INCREMENT, -1, &error),
                     SLUICE_INVALID_ARGUMENT);
    custom_metric_close(counter);
    custom_metric_close(gauge);
    custom_metric_close(histogram);
    custom_family_close(counters);
    custom_family_close(gauges);
    custom_family_close(histograms);
    assert_page(METRIC_FORMAT_PROMETHEUS, "");
}

static void families_that_do_not_fit_are_refused(void **state) {
    static const struct {
        const char *name, *help;
        int kind;
        const char *says;
    } rows[] = {
        {"", "", 0, "a name has letters"},
        {"1a", "", 0, "a name has letters"},
        {"a-b", "", 0, "a name has letters"},
        {"\xc3\xa4", "", 0, "a name has letters"},
        {"sluice_x", "", 0, "the server's own"},
        {"nv_inference_count", "", 0, "the server's own"},
        {"process_x", "", 0, "the server's own"},
        {"a", "", 3, "3 is no kind"},
        {"a", "\xff", 0, "UTF-8"},
        {"used", "", 0, "is a histogram already, and cannot be a counter"},
        {"used_sum", "", 1, "family used has samples of the same name"},
        {"used_bucket", "", 0, "family used has samples of the same name"},
        {"other", "", 2, "family other_count has samples of the same name"},
    };
    (void)state;
    sluice_metric_family *used = open_family("used", SLUICE_METRIC_HISTOGRAM), *refused;
    sluice_metric_family *other = open_family("other_count", SLUICE_METRIC_COUNTER);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(custom_family_open(rows[i].name, rows[i].help,
                                            (sluice_metric_kind)rows[i].kind, &refused, &error),
                         SLUICE_INVALID_ARGUMENT);
        assert_null(refused);
        assert_non_null(strstr(error.text, rows[i].says));
    }
    custom_family_close(used);
    custom_family_close(other);
}

static void metrics_that_do_not_fit_are_refused(void **state) {
    static char large[CUSTOM_METRIC_MAX_TEXT_BYTES + 2];
    static const double bounds[3] = {1, 2, 2}, not_finite[1] = {(double)INFINITY};
    const struct {
        sluice_label labels[2];
        size_t n_labels;
        const double *bounds;
        size_t n_bounds;
        const char *says;
    } rows[] = {
        {{{"1", ""}}, 1, bounds, 1, "no name of a label"},
        {{{"__a", ""}}, 1, bounds, 1, "no name of a label"},
        {{{"a:b", ""}}, 1, bounds, 1, "no name of a label"},
        {{{"le", ""}}, 1, bounds, 1, "no name of a label"},
        {{{"a", "1"}, {"a", "2"}}, 2, bounds, 1, "two labels a"},
        {{{"a", "\xff"}}, 1, bounds, 1, "values of labels are UTF-8"},
        {{{"a", large}}, 1, bounds, 1, "at most 1024 bytes together"},
        {{{0}}, 0, NULL, 0, "1 to 100 buckets, got 0"},
        {{{0}}, 0, bounds, 3, "number 2 is 2"},
        {{{0}}, 0, not_finite, 1, "must be finite"},
    };
    (void)state;
    memset(large, 'x', sizeof(large) - 1);
    sluice_metric_family *family = open_family("sizes", SLUICE_METRIC_HISTOGRAM);
    sluice_metric *refused;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(custom_metric_open(family, rows[i].labels, rows[i].n_labels,
                                            rows[i].bounds, rows[i].n_bounds, &refused, &error),
                         SLUICE_INVALID_ARGUMENT);
        assert_null(refused);
        assert_non_null(strstr(error.text, rows[i].says));
    }
    custom_family_close(family);
    assert_page(METRIC_FORMAT_PROMETHEUS, "");
}

static void number_of_metrics_is_limited(void **state) {
    static sluice_metric_family *families[CUSTOM_METRIC_MAX_FAMILIES];
    static sluice_metric *metrics[CUSTOM_METRIC_MAX_LINES];
    sluice_metric_family *family;
    sluice_metric *metric;
    char name[32];
    (void)state;
    for (int i = 0; i < CUSTOM_METRIC_MAX_FAMILIES; i++) {
        snprintf(name, sizeof(name), "family_%d", i);
        families[i] = open_family(name, SLUICE_METRIC_GAUGE);
    }
    assert_int_equal(custom_family_open("one_more", "", SLUICE_METRIC_GAUGE, &family, &error),
                     SLUICE_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "400 families"));
    for (int i = 0; i < CUSTOM_METRIC_MAX_LINES; i++) {
        snprintf(name, sizeof(name), "%d", i);
        metrics[i] = open_metric(families[i % 7], &(sluice_label){"n", name}, 1);
    }
    assert_int_equal(custom_metric_open(families[0], NULL, 0, NULL, 0, &metric, &error),
                     SLUICE_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "at most 4000 are allowed"));
    for (int i = 0; i < CUSTOM_METRIC_MAX_LINES; i++) {
        custom_metric_close(metrics[i]);
    }
    for (int i = 0; i < CUSTOM_METRIC_MAX_FAMILIES; i++) {
        custom_family_close(families[i]);
    }
    assert_page(METRIC_FORMAT_PROMETHEUS, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(metrics_with_the_same_labels_are_one),
        cmocka_unit_test(metrics_of_each_kind_take_their_changes),
        cmocka_unit_test(families_that_do_not_fit_are_refused),
        cmocka_unit_test(metrics_that_do_not_fit_are_refused),
        cmocka_unit_test(number_of_metrics_is_limited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
