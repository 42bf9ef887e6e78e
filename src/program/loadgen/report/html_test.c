/* The page: well-formed, self-contained, and with all its sections. */
#include "program/loadgen/report/report.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "program/loadgen/fixture.h"

/* The name of the tag at `at`. */
static struct str tag_name(const char *at) {
    return str_make(at, strcspn(at, " \t\n/>"));
}

/* Every element is closed, in order; text contains no markup. */
static void assert_well_formed(struct str page) {
    struct str open[64];
    size_t depth = 0;
    const char *at = strstr(page.ptr, "<html");
    assert_non_null(at);
    for (at = strchr(at, '<'); at; at = strchr(at + 1, '<')) {
        const char *end = strchr(at, '>');
        assert_non_null(end);
        const char *inside = memchr(at + 1, '<', (size_t)(end - at - 1));
        assert_null(inside);
        if (at[1] == '/') {
            assert_true(depth > 0);
            if (!str_eq(tag_name(at + 2), open[--depth])) {
                fail_msg("%.40s does not end %.*s", at, STR_ARG(open[depth]));
            }
        } else if (end[-1] != '/') {
            assert_true(depth < 64);
            open[depth++] = tag_name(at + 1);
        }
    }
    assert_int_equal(depth, 0);
    for (at = strchr(page.ptr, '&'); at; at = strchr(at + 1, '&')) {
        assert_true(strncmp(at, "&lt;", 4) == 0 || strncmp(at, "&gt;", 4) == 0 ||
                    strncmp(at, "&amp;", 5) == 0 || strncmp(at, "&quot;", 6) == 0);
    }
}

static void assert_alone(struct str page) {
    static const char *const references[] = {"src=",     "href", "url(",    "@import", "<script",
                                             "<link",    "<img", "<object", "<iframe", "//www",
                                             "https://", "nan",  "inf\""};
    for (size_t i = 0; i < sizeof(references) / sizeof(*references); i++) {
        fixture_says_not(page, references[i]);
    }
}

static size_t count(struct str page, const char *what) {
    size_t n = 0;
    for (const char *at = strstr(page.ptr, what); at; at = strstr(at + 1, what)) {
        n++;
    }
    return n;
}

static void html_page_is_well_formed(void **state) {
    (void)state;
    struct bench_fixture *fixture = fixture_sweep();
    struct str text = fixture_print(fixture, bench_html_print);
    assert_well_formed(text);
    assert_alone(text);
    assert_int_equal(count(text, "<figure>"), 4);
    assert_int_equal(count(text, "<tr"), 1 + 3);
    assert_int_equal(count(text, "class=\"best\""), 1);
    assert_int_equal(count(text, "class=\"area\""), 3);
    assert_int_equal(count(text, "class=\"spark\""), 3);
    fixture_says(text, "<h1>digits under load</h1>");
    fixture_says(text, "queue &lt;full&gt; &amp; &quot;closed&quot;");
    fixture_says(text, "image: FP32 [2,28,28], 6,272 bytes");
    fixture_says(text, "2026-01-31 12:00 UTC");
    fixture_says(text, "prefers-color-scheme:dark");
    fixture_says(text, "1,201 <span class=\"unit\">errors</span>");
    fixture_free(fixture);
}

static void html_rates_and_single_step_are_well_formed(void **state) {
    (void)state;
    struct bench_fixture *fixture = fixture_rates();
    struct str text = fixture_print(fixture, bench_html_print);
    assert_well_formed(text);
    assert_alone(text);
    assert_int_equal(count(text, "<figure>"), 4);
    fixture_says(text, "over the rate wanted");
    fixture_says_not(text, "MB/s</th>");
    fixture_free(fixture);

    fixture = fixture_new("http://h:1|digits|-c|4|--title|a <b> & c");
    fixture_add(fixture, 1, 5);
    text = fixture_print(fixture, bench_html_print);
    assert_well_formed(text);
    assert_alone(text);
    assert_int_equal(count(text, "<figure>"), 2); /* no curve for a single load */
    fixture_says(text, "<h1>a &lt;b&gt; &amp; c</h1>");
    fixture_free(fixture);
}

static void html_empty_results_are_well_formed(void **state) {
    (void)state;
    struct bench_fixture *fixture = fixture_new("http://h:1|d\xff\x01\n|-c|4,5");
    struct str text = fixture_print(fixture, bench_html_print);
    assert_well_formed(text);
    fixture_add(fixture, 0, 1);
    text = fixture_print(fixture, bench_html_print);
    assert_well_formed(text);
    assert_alone(text);
    assert_int_equal(count(text, "<figure>"), 0);
    fixture_says(text, "<h1>d??\n under load</h1>");
    fixture_free(fixture);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(html_page_is_well_formed),
        cmocka_unit_test(html_rates_and_single_step_are_well_formed),
        cmocka_unit_test(html_empty_results_are_well_formed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
