/* The two formats: heads, samples, escaping, histograms, and the choice by an Accept field. */
#include "core/base/metric/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void metric_format_negotiate_follows_accept(void **state) {
    static const struct {
        const char *accept;
        enum metric_format format;
    } cases[] = {
        {NULL, METRIC_FORMAT_PROMETHEUS},
        {"", METRIC_FORMAT_PROMETHEUS},
        {"*/*", METRIC_FORMAT_PROMETHEUS},
        {"text/html,application/xhtml+xml,*/*;q=0.8", METRIC_FORMAT_PROMETHEUS},
        {"application/openmetrics-text", METRIC_FORMAT_OPENMETRICS},
        {"Application/OpenMetrics-Text; version=1.0.0; charset=utf-8", METRIC_FORMAT_OPENMETRICS},
        {"application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
         "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;q=0.4,"
         "text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
         METRIC_FORMAT_OPENMETRICS},
        {"application/openmetrics-text;q=0.4, text/plain;q=0.5", METRIC_FORMAT_PROMETHEUS},
        {"text/plain;q=0.5, application/openmetrics-text;q=0.5", METRIC_FORMAT_OPENMETRICS},
        {"application/openmetrics-text;q=0", METRIC_FORMAT_PROMETHEUS},
        {"application/openmetrics-text;q=high", METRIC_FORMAT_PROMETHEUS},
        {"application/openmetrics-text;version=2.0.0", METRIC_FORMAT_PROMETHEUS},
        {"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;q=0.7,"
         "text/plain;q=0.5",
         METRIC_FORMAT_PROMETHEUS},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(metric_format_negotiate(str_of(cases[i].accept)), cases[i].format);
    }
}

/* One counter and one gauge of each name, with labels that need escaping. */
static void print_page(struct metric_text *text) {
    struct buf labels;
    buf_init(&labels, text->out->arena, 0);
    metric_label_add(&labels, "model", STR("a \"b\" \\ c\nd \xc3\xbc"));
    metric_label_add(&labels, "version", STR("1"));
    metric_text_begin(text, STR("one_total"), METRIC_KIND_COUNTER, STR("Ones."));
    metric_text_u64(text, STR(""), UINT64_MAX);
    metric_text_begin(text, STR("two"), METRIC_KIND_COUNTER, STR("Twos."));
    metric_text_u64(text, buf_str(&labels), 2);
    metric_text_begin(text, STR("three_total"), METRIC_KIND_GAUGE, STR("Threes."));
    metric_text_i64(text, STR(""), -3);
    metric_text_f64(text, STR("a=\"b\""), 0.25);
    metric_text_end(text);
}

static void assert_page(enum metric_format format, const char *expected) {
    struct arena *arena = arena_new(NULL, 0);
    struct buf out;
    struct metric_text text = {.out = &out, .format = format};
    buf_init(&out, arena, 0);
    print_page(&text);
    buf_add_char(&out, '\0');
    assert_string_equal(out.data, expected);
    arena_free(arena);
}

static void metric_text_prometheus_page_matches(void **state) {
    (void)state;
    assert_page(METRIC_FORMAT_PROMETHEUS,
                "# HELP one_total Ones.\n"
                "# TYPE one_total counter\n"
                "one_total 18446744073709551615\n"
                "# HELP two Twos.\n"
                "# TYPE two counter\n"
                "two{model=\"a \\\"b\\\" \\\\ c\\nd \xc3\xbc\",version=\"1\"} 2\n"
                "# HELP three_total Threes.\n"
                "# TYPE three_total gauge\n"
                "three_total -3\n"
                "three_total{a=\"b\"} 0.25\n");
}

static void metric_text_openmetrics_page_matches(void **state) {
    (void)state;
    assert_page(METRIC_FORMAT_OPENMETRICS,
                "# HELP one Ones.\n"
                "# TYPE one counter\n"
                "one_total 18446744073709551615\n"
                "# HELP two Twos.\n"
                "# TYPE two unknown\n"
                "two{model=\"a \\\"b\\\" \\\\ c\\nd \xc3\xbc\",version=\"1\"} 2\n"
                "# HELP three_total Threes.\n"
                "# TYPE three_total gauge\n"
                "three_total -3\n"
                "three_total{a=\"b\"} 0.25\n"
                "# EOF\n");
}

static void assert_distribution(struct str labels, enum metric_unit unit, unsigned first,
                                unsigned last, const char *expected) {
    struct metric_distribution seen = {.count = 6, .sum = 1500000007};
    struct arena *arena = arena_new(NULL, 0);
    struct buf out;
    struct metric_text text = {.out = &out, .format = METRIC_FORMAT_PROMETHEUS};
    seen.buckets[0] = 1;
    seen.buckets[2] = 2;
    seen.buckets[METRIC_BOUNDS] = 3;
    buf_init(&out, arena, 0);
    metric_text_begin(&text, STR("h"), METRIC_KIND_HISTOGRAM, STR("H."));
    out.len = 0;
    metric_text_distribution(&text, labels, &seen, unit, first, last);
    buf_add_char(&out, '\0');
    assert_string_equal(out.data, expected);
    arena_free(arena);
}

static void metric_text_distribution_writes_buckets(void **state) {
    (void)state;
    assert_distribution(STR("m=\"x\""), METRIC_UNIT_SECONDS, 0, 2,
                        "h_bucket{m=\"x\",le=\"0.000001\"} 1\n"
                        "h_bucket{m=\"x\",le=\"0.000002\"} 1\n"
                        "h_bucket{m=\"x\",le=\"0.000004\"} 3\n"
                        "h_bucket{m=\"x\",le=\"+Inf\"} 6\n"
                        "h_sum{m=\"x\"} 1.500000007\n"
                        "h_count{m=\"x\"} 6\n");
    assert_distribution(STR(""), METRIC_UNIT_ITEMS, 1, 2,
                        "h_bucket{le=\"2.0\"} 1\n"
                        "h_bucket{le=\"4.0\"} 3\n"
                        "h_bucket{le=\"+Inf\"} 6\n"
                        "h_sum 1500000007\n"
                        "h_count 6\n");
}

static void metric_text_scale_writes_its_bounds(void **state) {
    static const uint64_t times[] = {500, 2050, 3600000000};
    static const struct metric_scale scale = {METRIC_UNIT_SECONDS, 3, times};
    static const uint64_t counts[] = {1, 0, 2, 3, 1500000007};
    struct arena *arena = arena_new(NULL, 0);
    struct buf out;
    struct metric_text text = {.out = &out, .name = STR("h")};
    (void)state;
    buf_init(&out, arena, 0);
    metric_text_scale(&text, STR("m=\"x\""), &scale, counts);
    metric_text_scale(&text, STR(""), &(struct metric_scale){METRIC_UNIT_ITEMS, 1, times}, counts);
    buf_add_char(&out, '\0');
    assert_string_equal(out.data, "h_bucket{m=\"x\",le=\"0.0005\"} 1\n"
                                  "h_bucket{m=\"x\",le=\"0.00205\"} 1\n"
                                  "h_bucket{m=\"x\",le=\"3600.0\"} 3\n"
                                  "h_bucket{m=\"x\",le=\"+Inf\"} 6\n"
                                  "h_sum{m=\"x\"} 1.500000007\n"
                                  "h_count{m=\"x\"} 6\n"
                                  "h_bucket{le=\"500.0\"} 1\n"
                                  "h_bucket{le=\"+Inf\"} 1\n"
                                  "h_sum 2\n"
                                  "h_count 1\n");
    arena_free(arena);
}

static void metric_text_time_bounds_are_exact(void **state) {
    struct metric_distribution seen = {.count = 0};
    struct arena *arena = arena_new(NULL, 0);
    struct buf out;
    struct metric_text text = {.out = &out, .name = STR("h")};
    (void)state;
    buf_init(&out, arena, 0);
    metric_text_distribution(&text, STR(""), &seen, METRIC_UNIT_SECONDS, 0, UINT32_MAX);
    buf_add_char(&out, '\0');
    const char *at = out.data;
    for (unsigned i = 0; i < METRIC_BOUNDS; i++) {
        char expected[64]; /* "%g" has no zeros at the end, and powers of two no more digits */
        snprintf(expected, sizeof(expected), "%.8g", (double)(1u << i) / 1e6);
        if (strchr(expected, 'e') == NULL) {
            assert_memory_equal(at + strlen("h_bucket{le=\""), expected, strlen(expected));
        }
        at = strchr(at, '\n') + 1;
    }
    assert_non_null(strstr(out.data, "le=\"1.048576\"} 0\n"));
    assert_non_null(strstr(out.data, "le=\"33.554432\"} 0\n"));
    assert_non_null(strstr(out.data, "h_sum 0.0\n"));
    arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(metric_format_negotiate_follows_accept),
        cmocka_unit_test(metric_text_prometheus_page_matches),
        cmocka_unit_test(metric_text_openmetrics_page_matches),
        cmocka_unit_test(metric_text_distribution_writes_buckets),
        cmocka_unit_test(metric_text_scale_writes_its_bounds),
        cmocka_unit_test(metric_text_time_bounds_are_exact),
    };
    return cmocka_run_group_tests_name("core/base/metric/text", tests, NULL, NULL);
}
