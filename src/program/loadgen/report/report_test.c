/* The reports of a result: the table's structure, its notes, and JSON that is parsed back. */
#include "program/loadgen/report/report.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/doc/doc.h"
#include "program/loadgen/fixture.h"

/* ---- the table ------------------------------------------------------------------------------- */

static void report_table_lists_steps(void **state) {
    (void)state;
    struct bench_fixture *fixture = fixture_sweep();
    struct str text = fixture_print(fixture, bench_report_print);
    fixture_says(
        text, "http://h:1 digits\n  KServe v2 over HTTP, binary, batch 2, 6,500 bytes a "
              "request\n  each step: 5 s, after 1 s of warm-up\n  first request, with connecting: "
              "2.5 ms\n  times in ms: half of the requests took at most p50, 99\u00a0% at most "
              "p99\n\n");
    fixture_says(text, "  concurrency  requests/s  infer/s  p50 ms    p90    p95    p99  p99.9    "
                       "max  errors  MB/s\n"
                       "            1         500    1,000   1.001  1.798  1.896  1.978  1.995  "
                       "2.000       0  3.50\n"
                       "            4       1,500    3,000   3.006  5.390  ");
    fixture_says(text, "           16       1,495    2,990   13.");
    fixture_says(text, "   1,201  10.5\n");
    fixture_says(
        text, "\n\nBest: 1,500 requests/s at concurrency 4, 99\u00a0% of them within 5.947 ms\n");
    fixture_says(
        text, "\nNote: concurrency 16: 1,200 requests failed, HTTP 503: queue <full> & \"closed\"\n"
              "Note: concurrency 16: 1 request failed, timeout: timed out\n");
    fixture_says_not(text, "busy");
    fixture_free(fixture);
}

static void report_rates_have_rate_column(void **state) {
    (void)state;
    struct bench_fixture *fixture = fixture_rates();
    struct str text = fixture_print(fixture, bench_report_print);
    fixture_says(text,
                 "MIP, pings\n  each step: 5 s, after 1 s of warm-up, random (Poisson) arrivals on "
                 "at most 256 connections");
    fixture_says(text, "  wanted/s  requests/s  p50 ms");
    fixture_says_not(text, "MB/s");
    fixture_says_not(text, "infer/s");
    fixture_says(text, "Best: 500 requests/s at rate 500/s");
    fixture_says(
        text,
        "rate 2,000/s: the server did not keep up: only 1,500/s were answered, and 1,000 requests "
        "were never sent because all 256 connections waited");
    fixture_says(text,
                 "rate 2,000/s: the load generator was busy 95\u00a0% of the time (1 thread)");
    fixture_says(text,
                 "rate 2,000/s: the load generator itself began requests up to 20.00 ms late");
    fixture_free(fixture);
}

static void report_notes_name_missing_requests(void **state) {
    (void)state;
    struct bench_fixture *fixture = fixture_new("http://h:1|digits|-c|1,4|--max-p99|1ms|-n|10");
    struct str text = fixture_print(fixture, bench_report_print); /* no step at all */
    fixture_says(text, "0 of 2 steps were run\n");
    fixture_add(fixture, 0, 1);
    fixture->result.steps[0]->stats.n_abandoned = 3;
    fixture->result.interrupted = true;
    text = fixture_print(fixture, bench_report_print);
    fixture_says(text, "each step: 10 requests");
    fixture_says(text, "            1       0.000       -    -    -    -      -    -       0");
    fixture_says(text, "No step kept its p99 within 1 ms");
    fixture_says(text, "concurrency 1: 3 requests were in flight when the run was interrupted");
    fixture_says(text, "1 of 2 steps were run; the last was interrupted");
    fixture_free(fixture);
}

static void report_names_knee_step(void **state) {
    (void)state;
    struct bench_fixture *fixture = fixture_new("http://h:1|digits|-c|1,4,8");
    fixture_add(fixture, 980, 1);
    fixture_add(fixture, 1000, 9);
    fixture_add(fixture, 100, 9);
    struct str text = fixture_print(fixture, bench_report_print);
    fixture_says(
        text,
        "Best: 500 requests/s at concurrency 4, 99\u00a0% of them within 8.880 ms; concurrency 1 "
        "already has 98\u00a0% of that rate, 99\u00a0% within 0.97");
    fixture_free(fixture);
}

/* One note covers all steps with the same problem, by the worst. */
static void report_notes_cover_several_steps(void **state) {
    (void)state;
    struct bench_fixture *fixture = fixture_new("http://h:1|digits|-c|1,4,8");
    static const uint64_t cpu_ms[] = {1700, 100, 1900};
    for (size_t i = 0; i < 3; i++) {
        fixture_add(fixture, 1000, 1)->stats.cpu_ns = cpu_ms[i] * 1000000;
    }
    struct str text = fixture_print(fixture, bench_report_print);
    fixture_says(text,
                 "\nNote: concurrency 8 (the worst of 2 such steps): the load generator was busy "
                 "95\u00a0% of the time");
    fixture_says_not(text, "concurrency 1 ");
    fixture_free(fixture);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static struct doc *parse(struct str text) {
    struct doc *doc;
    struct error err = {0};
    if (doc_parse(DOC_JSON, "json", text, &doc, &err) != ST_OK) {
        fail_msg("%s\n%s", err.text, text.ptr);
    }
    return doc;
}

static double number(const struct doc_node *node, const char *key) {
    double value = -1;
    struct error err = {0};
    struct doc_node member = doc_get(node, key);
    assert_int_equal(doc_read_f64(&member, &value, &err), ST_OK);
    return value;
}

static void report_json_has_all_members(void **state) {
    (void)state;
    struct bench_fixture *fixture = fixture_sweep();
    struct doc *doc = parse(fixture_print(fixture, bench_json_print));
    struct doc_node root = doc_root(doc), steps = doc_get(&root, "steps");
    struct doc_node step = doc_at(&steps, 2), errors = doc_get(&step, "errors");
    struct doc_node latency = doc_get(&step, "latency_ms"), error = doc_at(&errors, 0);
    struct doc_node histogram = doc_get(&step, "histogram_ns"), first = doc_get(&error, "first");
    struct doc_node started = doc_get(&root, "started"), rate = doc_get(&step, "rate");
    struct str text;
    struct error err = {0};
    assert_int_equal(doc_count(&steps), 3);
    assert_true(number(&step, "concurrency") == 16);
    assert_true(number(&step, "requests") == 2990 + 1201);
    assert_true(number(&step, "failed") == 1201);
    assert_true(number(&step, "requests_per_second") == 1495);
    assert_true(number(&step, "inferences_per_second") == 2990);
    assert_true(number(&latency, "max") == 26.91);
    assert_true(number(&latency, "p50") > 13 && number(&latency, "p50") < 14);
    assert_true(number(&error, "count") == 1200);
    assert_false(doc_is_present(&rate));
    assert_int_equal(doc_read_str(&first, &text, &err), ST_OK);
    assert_true(str_is(text, "queue <full> & \"closed\""));
    assert_int_equal(doc_read_str(&started, &text, &err), ST_OK);
    assert_true(str_is(text, "2026-01-31T12:00:00Z"));
    uint64_t n = 0;
    for (size_t i = 0; i < doc_count(&histogram); i++) {
        struct doc_node bucket = doc_at(&histogram, i), count = doc_at(&bucket, 2);
        int64_t value = 0;
        assert_int_equal(doc_count(&bucket), 3);
        assert_int_equal(doc_read_i64(&count, 1, 1000000, &value, &err), ST_OK);
        n += (uint64_t)value;
    }
    assert_int_equal(n, 2990);
    doc_free(doc);
    fixture_free(fixture);
}

static void report_json_of_empty_result_is_valid(void **state) {
    (void)state;
    struct bench_fixture *fixture = fixture_new("tcp://h:1|--ping|-r|0.5");
    doc_free(parse(fixture_print(fixture, bench_json_print)));
    fixture_add(fixture, 0, 1);
    struct doc *doc = parse(fixture_print(fixture, bench_json_print));
    struct doc_node root = doc_root(doc), steps = doc_get(&root, "steps");
    struct doc_node step = doc_at(&steps, 0), latency = doc_get(&step, "latency_ms");
    assert_false(doc_is_present(&latency));
    assert_true(number(&step, "rate") == 0.5);
    doc_free(doc);
    fixture_free(fixture);
}

/* Arguments need not be UTF-8; JSON must. */
static void report_json_escapes_text(void **state) {
    (void)state;
    struct bench_fixture *fixture = fixture_new("http://h:1|d\xff\x01\n|-c|1");
    fixture_add(fixture, 10, 1);
    doc_free(parse(fixture_print(fixture, bench_json_print)));
    fixture_free(fixture);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(report_table_lists_steps),
        cmocka_unit_test(report_rates_have_rate_column),
        cmocka_unit_test(report_notes_name_missing_requests),
        cmocka_unit_test(report_names_knee_step),
        cmocka_unit_test(report_notes_cover_several_steps),
        cmocka_unit_test(report_json_has_all_members),
        cmocka_unit_test(report_json_of_empty_result_is_valid),
        cmocka_unit_test(report_json_escapes_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
