/* The JSON of a run in the page that draws it: nothing of it ends the script that it is in. What
 * the page shows is tested in a browser, by tests/interop/cli/test_bench_page.py. */
#include "program/loadgen/report/report.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "program/loadgen/fixture.h"

static void page_holds_the_run(void **state) {
    (void)state;
    static const char begin[] = "<script type=\"application/json\" id=\"run\">";
    struct bench_fixture *fixture = fixture_sweep();
    struct str page = fixture_print(fixture, bench_html_print);
    const char *at = strstr(page.ptr, begin);
    assert_non_null(at);
    const char *end = strstr(at, "</script>");
    assert_non_null(end);
    at += sizeof(begin) - 1;
    assert_null(memchr(at, '<', (size_t)(end - at)));
    fixture_says(page, "queue \\u003cfull> & \\\"closed\\\"");
    struct str json = fixture_print(fixture, bench_json_print);
    fixture_says(json, "queue <full> & \\\"closed\\\"");
    fixture_says(json, "\"best_step\": 1");
    fixture_says(json, "\"knee_step\": null");
    fixture_says(json, "\"cpus\": 8");
    fixture_free(fixture);
}

static void page_refers_to_nothing_outside(void **state) {
    (void)state;
    static const char *const references[] = {"src=", "url(",    "@import", "<script src",
                                             "<img", "<object", "<iframe", "https://"};
    struct bench_fixture *fixture = fixture_rates();
    struct str page = fixture_print(fixture, bench_html_print);
    for (size_t i = 0; i < sizeof(references) / sizeof(*references); i++) {
        fixture_says_not(page, references[i]);
    }
    fixture_free(fixture);
}

static void page_of_empty_results_is_whole(void **state) {
    (void)state;
    struct bench_fixture *fixture = fixture_new("http://h:1|d\xff\x01\n|-c|4,5");
    struct str page = fixture_print(fixture, bench_html_print);
    fixture_says(page, "\"steps\": []");
    fixture_says(page, "\"best_step\": null");
    fixture_says(page, "</html>");
    fixture_free(fixture);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(page_holds_the_run),
        cmocka_unit_test(page_refers_to_nothing_outside),
        cmocka_unit_test(page_of_empty_results_is_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
