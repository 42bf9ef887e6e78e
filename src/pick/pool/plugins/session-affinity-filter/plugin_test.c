/* The endpoint that the request's token names is kept alone; a token that names none changes
 * nothing. */
#include "pick/pool/profile/session_token.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pick/pool/profile/plugin_text_fixture.h"

enum { N = 3 };

static struct str find_header(const void *of, struct str name) {
    return str_is(name, "x-token") ? str_of(of) : str_make(NULL, 0);
}

static void open_named(struct plugin_fixture *fixture) {
    struct pool_spec *spec = fixture_spec();
    plugin_fixture_open(fixture, &plugin_session_affinity_filter, N);
    fixture_tell(fixture, &plugin_session_affinity_filter,
                 "{encodedEndpointHeaderConfig: {header: X-Token}}");
    for (uint32_t i = 0; i < N; i++) {
        struct pool_spec_endpoint wanted = {.address = fixture_numbered(i)};
        if (i > 0) {
            wanted.name = (struct pool_endpoint_name){
                STR("llama"), i == 1 ? STR("llama-rank-0") : STR("llama-rank-1"), STR("models")};
        }
        pool_spec_add_endpoint(spec, &wanted);
    }
    fixture_update(fixture->pool.pool, spec);
    fixture->candidates.snapshot = pool_reader_refresh(fixture->pool.reader);
}

static void filter_token_names_an_endpoint(void **state) {
    (void)state;
    for (uint32_t i = 0; i < N; i++) {
        struct plugin_fixture fixture;
        open_named(&fixture);
        struct arena *arena = arena_new(NULL, 0);
        struct str token = session_token_print(&fixture.candidates.snapshot->members[i], arena);
        assert_int_equal(token.len % 4, 0);
        assert_true(i != 1 || str_is(token, "bW9kZWxzL2xsYW1hLXJhbmstMA=="));
        fixture.candidates.headers =
            (struct pool_headers){find_header, arena_printf(arena, "%.*s", STR_ARG(token)).ptr};
        plugin_session_affinity_filter.filter(fixture.parameters, &fixture.candidates);
        assert_int_equal(fixture_left(&fixture), 1U << i);
        arena_free(arena);
        plugin_fixture_close(&fixture);
    }
}

static void filter_other_tokens_change_nothing(void **state) {
    static const char *const tokens[] = {"", "bW9kZWxz", "!!!!",
                                         "bW9kZWxzL2xsYW1hLXJhbmstMg==", "MTA="};
    (void)state;
    for (size_t k = 0; k < sizeof(tokens) / sizeof(tokens[0]); k++) {
        struct plugin_fixture fixture;
        open_named(&fixture);
        fixture.candidates.headers = (struct pool_headers){find_header, tokens[k]};
        plugin_session_affinity_filter.filter(fixture.parameters, &fixture.candidates);
        assert_int_equal(fixture_left(&fixture), 7);
        plugin_fixture_close(&fixture);
    }
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
        plugin_fixture_open(&fixture, &plugin_session_affinity_filter, N);
        fixture_tell(&fixture, &plugin_session_affinity_filter,
                     "{encodedEndpointHeaderConfig: {header: X-Token}}");
        fixture_add(spec, "[2001:db8::1]:8000");
        fixture_update(fixture.pool.pool, spec);
        fixture.candidates.snapshot = pool_reader_refresh(fixture.pool.reader);
        fixture.candidates.headers = (struct pool_headers){find_header, rows[k].token};
        plugin_session_affinity_filter.filter(fixture.parameters, &fixture.candidates);
        assert_int_equal(fixture_left(&fixture), rows[k].left);
        plugin_fixture_close(&fixture);
    }
}

static void filter_invalid_parameters_are_rejected(void **state) {
    static const char *const texts[][2] = {
        {"{strategy: session_id}", "\"session_id\" is not supported"},
        {"{strategy: cookie}", "expected encoded_endpoint_header, got \"cookie\""},
        {"{encodedEndpointHeaderConfig: {header: 'a b'}}", "expected the name of a header"},
        {"{encodedEndpointHeaderConfig: {name: a}}", "unknown field"},
        {"{profileName: prefill}", "a token names the request's destination"},
        {"{sessionIdConfig: {sources: [{header: a}]}}", "it is of the strategy session_id"},
    };
    (void)state;
    assert_refused(&plugin_session_affinity_filter, texts, sizeof(texts) / sizeof(*texts));
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
