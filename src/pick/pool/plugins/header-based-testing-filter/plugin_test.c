/* Keeps the endpoints named in the header; none without it. */
#include "pick/pool/profile/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "pick/pool/profile/plugin_text_fixture.h"

/* A request with the header, `of`. */
static struct str find(const void *of, struct str name) {
    return str_is(name, "test-epp-endpoint-selection") ? str_of(of) : str_make(NULL, 0);
}

/* Two ports of one address, another address, and IPv6. */
static void open_pool(struct plugin_fixture *fixture) {
    struct pool_spec *spec = fixture_spec();
    plugin_fixture_open(fixture, &plugin_header_based_testing_filter, 4);
    fixture_add(spec, "10.0.0.1:3000");
    fixture_add(spec, "10.0.0.1:3002");
    fixture_add(spec, "10.0.0.2:3000");
    fixture_add(spec, "[2001:db8::1]:3000");
    fixture_update(fixture->pool.pool, spec);
    fixture->candidates.snapshot = pool_reader_refresh(fixture->pool.reader);
}

static unsigned left_by(struct pool_headers headers) {
    struct plugin_fixture fixture;
    open_pool(&fixture);
    fixture.candidates.headers = headers;
    plugin_header_based_testing_filter.filter(NULL, &fixture.candidates);
    unsigned left = fixture_left(&fixture);
    plugin_fixture_close(&fixture);
    return left;
}

static void filter_keeps_endpoints_of_header(void **state) {
    static const struct {
        const char *header;
        unsigned left; /* one bit each */
    } rows[] = {
        {"10.0.0.1", 3},
        {"10.0.0.1:3002", 2},
        {"10.0.0.2:3000, 10.0.0.1:3000", 5},
        {" 10.0.0.2 ,\t10.0.0.2,10.9.9.9", 4},
        {"2001:db8::1", 8},
        {"[2001:db8::1]", 8},
        {"[2001:db8:0::1]:3000,,10.0.0.2", 12},
        {"10.0.0.1:1", 0},
        {"10.9.9.9", 0},
        {"10.0.0.1:99999", 0},
        {"10.0.0", 0},
        {"pod-1, everything, *", 0},
        {",,,", 0},
        {"", 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        unsigned left = left_by((struct pool_headers){.find = find, .of = rows[i].header});
        if (left != rows[i].left) {
            fail_msg("\"%s\": left %x", rows[i].header, left);
        }
    }
}

static void filter_without_header_keeps_none(void **state) {
    (void)state;
    assert_int_equal(left_by((struct pool_headers){.find = NULL}), 0);
}

/* The end of a list that is too long is ignored. */
static void filter_too_long_list_is_cut(void **state) {
    static char text[32 * 1024];
    size_t n = 0;
    (void)state;
    for (int i = 0; i < 1500; i++) {
        const char *item = i == 1023 ? "10.0.0.2," : i == 1024 ? "10.0.0.1," : "10.9.9.9,";
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s", item);
    }
    assert_true(n < sizeof(text));
    assert_int_equal(left_by((struct pool_headers){.find = find, .of = text}), 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(filter_keeps_endpoints_of_header),
        cmocka_unit_test(filter_without_header_keeps_none),
        cmocka_unit_test(filter_too_long_list_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
