/* Endpoints with as many requests or tokens in flight as they may have are removed, all of them
 * too. */
#include "pick/pool/profile/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pick/pool/profile/detector.h"
#include "pick/pool/profile/plugin_text_fixture.h"

enum { N = 4 };
static const struct {
    float in_flight, n_tokens;
} endpoints[N] = {{9, 100}, {10, 5000}, {12, 999}, {0, 1200}};

/* A slot at this member is the request's own; with 200 tokens. */
static uint32_t reserved = N;

static unsigned left_of(const char *parameters) {
    struct plugin_fixture fixture;
    plugin_fixture_open(&fixture, &plugin_concurrency_detector, N);
    fixture_tell(&fixture, &plugin_concurrency_detector, parameters);
    for (uint32_t i = 0; i < N; i++) {
        fixture.in_flight[i] = endpoints[i].in_flight;
        fixture.n_tokens[i] = endpoints[i].n_tokens;
    }
    if (reserved < N) {
        fixture.candidates.reserved = fixture_member(&fixture, reserved);
        fixture.candidates.reserved_tokens = 200;
    }
    plugin_concurrency_detector.filter(fixture.parameters, &fixture.candidates);
    unsigned left = fixture_left(&fixture);
    plugin_fixture_close(&fixture);
    return left;
}

static void detector_limits_what_its_mode_counts(void **state) {
    (void)state;
    assert_int_equal(left_of("{}"), 0xf);
    assert_int_equal(left_of("{maxConcurrency: 10}"), 0x9);
    assert_int_equal(left_of("{maxConcurrency: 10, concurrencyMode: requests, "
                             "maxTokenConcurrency: 1}"),
                     0x9);
    assert_int_equal(left_of("{concurrencyMode: tokens, maxTokenConcurrency: 1000, "
                             "maxConcurrency: 1}"),
                     0x5);
    assert_int_equal(left_of("{concurrencyMode: hybrid, maxTokenConcurrency: 1000, "
                             "maxConcurrency: 10}"),
                     0x1);
}

/* Limits are cut to whole numbers: 10 * 1.25 is 12. */
static void detector_headroom_raises_limits(void **state) {
    (void)state;
    assert_int_equal(left_of("{maxConcurrency: 10, headroom: 0.1}"), 0xb);
    assert_int_equal(left_of("{maxConcurrency: 10, headroom: 0.25}"), 0xb);
    assert_int_equal(left_of("{maxConcurrency: 10, headroom: 0.3}"), 0xf);
    assert_int_equal(left_of("{concurrencyMode: tokens, maxTokenConcurrency: 1000, headroom: 0.2}"),
                     0x5);
    assert_int_equal(
        left_of("{concurrencyMode: tokens, maxTokenConcurrency: 1000, headroom: 0.25}"), 0xd);
}

/* A request that waited, and was notified, has a slot, which does not keep it out. */
static void detector_own_slot_does_not_count(void **state) {
    (void)state;
    reserved = 1;
    assert_int_equal(left_of("{maxConcurrency: 10}"), 0xb);
    assert_int_equal(left_of("{maxConcurrency: 9}"), 0x8);
    reserved = 3;
    assert_int_equal(left_of("{concurrencyMode: tokens, maxTokenConcurrency: 1001}"), 0xd);
    assert_int_equal(left_of("{concurrencyMode: tokens, maxTokenConcurrency: 1000}"), 0x5);
    reserved = N;
}

static void detector_may_remove_all(void **state) {
    (void)state;
    assert_int_equal(left_of("{concurrencyMode: hybrid, maxTokenConcurrency: 50}"), 0);
}

static void detector_needs_tokens_where_they_count(void **state) {
    static const char *const modes[] = {"requests", "tokens", "hybrid"};
    (void)state;
    for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++) {
        struct plugin_fixture fixture;
        struct pool_request_needs needs = {0};
        struct error err;
        char text[64];
        plugin_fixture_open(&fixture, &plugin_concurrency_detector, 1);
        snprintf(text, sizeof(text), "{concurrencyMode: %s}", modes[i]);
        fixture_tell(&fixture, &plugin_concurrency_detector, text);
        assert_int_equal(plugin_concurrency_detector.add_needs(fixture.parameters, &needs, &err),
                         ST_OK);
        assert_int_equal(needs.tokens, i > 0);
        plugin_fixture_close(&fixture);
    }
}

static void detector_invalid_parameters_are_rejected(void **state) {
    static const char *const texts[][2] = {
        {"{headroom: -1}", "expected 0 or more"},
        {"{maxConcurrency: 0}", "expected a whole number from 1"},
        {"{maxTokenConcurrency: 0}", "expected a whole number from 1"},
        {"{maxTokenConcurrency: 1.5}", "expected a whole number"},
        {"{concurrencyMode: both}", "expected requests, tokens or hybrid, got \"both\""},
        {"{maxconcurrency: 1}", "did you mean \"maxConcurrency\"?"},
    };
    (void)state;
    assert_refused(&plugin_concurrency_detector, texts, sizeof(texts) / sizeof(*texts));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(detector_limits_what_its_mode_counts),
        cmocka_unit_test(detector_headroom_raises_limits),
        cmocka_unit_test(detector_own_slot_does_not_count),
        cmocka_unit_test(detector_may_remove_all),
        cmocka_unit_test(detector_needs_tokens_where_they_count),
        cmocka_unit_test(detector_invalid_parameters_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
