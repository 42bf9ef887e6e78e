/* The endpoint that the request's token names is kept alone; a token that names none changes
 * nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pick/pool/profile/session_token_fixture.h"

static void expect_alone(struct plugin_fixture *fixture, uint32_t endpoint) {
    plugin_session_affinity_filter.filter(fixture->parameters, &fixture->candidates);
    assert_int_equal(fixture_left(fixture), 1U << endpoint);
}

static void filter_token_names_an_endpoint(void **state) {
    (void)state;
    assert_tokens_name_endpoints(&plugin_session_affinity_filter, expect_alone);
}

static void expect_all(struct plugin_fixture *fixture) {
    plugin_session_affinity_filter.filter(fixture->parameters, &fixture->candidates);
    assert_int_equal(fixture_left(fixture), 7);
}

static void filter_other_tokens_change_nothing(void **state) {
    (void)state;
    assert_other_tokens(&plugin_session_affinity_filter, expect_all);
}

/* Endpoints without a pod: an address is compared in the form that tokens have. */
static void filter_token_names_an_address(void **state) {
    static const struct {
        const char *token;
        unsigned left;
    } rows[] = {
        {"MTAuMC4wLjE6ODAwMA==", 2},             /* 10.0.0.1:8000 */
        {"WzIwMDE6ZGI4OjoxXTo4MDAw", 4},         /* [2001:db8::1]:8000 */
        {"WzIwMDE6REI4OjoxXTo4MDAw", 7},         /* [2001:DB8::1]:8000 */
        {"WzIwMDE6ZGI4OjA6OjFdOjgwMDA=", 7},     /* [2001:db8:0::1]:8000 */
        {"Wzo6ZmZmZjoxMC4wLjAuMV06ODAwMA==", 7}, /* [::ffff:10.0.0.1]:8000 */
        {"MTAuMC4wLjE6ODAwMQ==", 7},             /* 10.0.0.1:8001 */
        {"LzEwLjAuMC4xOjgwMDA=", 7},             /* /10.0.0.1:8000 */
    };
    (void)state;
    for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
        struct plugin_fixture fixture;
        struct pool_spec *spec = fixture_spec_of(2);
        session_fixture_open(&fixture, &plugin_session_affinity_filter);
        fixture_add(spec, "[2001:db8::1]:8000");
        fixture_update(fixture.pool.pool, spec);
        fixture.candidates.snapshot = pool_reader_refresh(fixture.pool.reader);
        fixture.candidates.headers =
            (struct pool_headers){.find = session_find_header, .of = rows[k].token};
        plugin_session_affinity_filter.filter(fixture.parameters, &fixture.candidates);
        assert_int_equal(fixture_left(&fixture), rows[k].left);
        plugin_fixture_close(&fixture);
    }
}

static void filter_invalid_parameters_are_rejected(void **state) {
    (void)state;
    assert_session_parameters_refused(&plugin_session_affinity_filter);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(filter_token_names_an_endpoint),
        cmocka_unit_test(filter_other_tokens_change_nothing),
        cmocka_unit_test(filter_token_names_an_address),
        cmocka_unit_test(filter_invalid_parameters_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
