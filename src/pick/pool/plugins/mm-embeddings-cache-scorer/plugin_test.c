/* The score is the share of the request's media; the producer is the default one or has a name. */
#include "pick/pool/profile/plugin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pick/pool/profile/plugin_text_fixture.h"

static void scorer_share_of_media_is_the_score(void **state) {
    static const float wanted[] = {0.25f, 0, 1}, busy[] = {0.25f, 0, 0}, none[] = {0, 0, 0};
    struct plugin_fixture fixture;
    (void)state;
    plugin_fixture_open(&fixture, &plugin_mm_embeddings_cache_scorer, 3);
    assert_scores(&fixture, &plugin_mm_embeddings_cache_scorer, none);
    fixture.media = (struct media_matches){
        .n_items = 4,
        .n = 3,
        .hits = {{2, 4, {0}}, {0, 1, {0}}, {9, 3, {0}} /* not a candidate */}};
    assert_scores(&fixture, &plugin_mm_embeddings_cache_scorer, wanted);
    plugin_fixture_load(&fixture, 2, 100); /* the bound of affinities */
    assert_scores(&fixture, &plugin_mm_embeddings_cache_scorer, busy);
    plugin_fixture_close(&fixture);
}

static enum status ask_for(struct plugin_fixture *fixture, const char *text,
                           struct pool_request_needs *needs, struct error *err) {
    fixture_tell(fixture, &plugin_mm_embeddings_cache_scorer, text);
    return plugin_mm_embeddings_cache_scorer.add_needs(fixture->parameters, needs, err);
}

static void scorer_uses_its_producer(void **state) {
    struct pool_request_needs needs = {
        .n_prefixes = 2,
        .prefixes = {PREFIX_PRODUCER_DEFAULT, {.name = STR("own"), .kind = PREFIX_MEDIA}}};
    struct plugin_fixture fixture;
    struct error err;
    (void)state;
    plugin_fixture_open(&fixture, &plugin_mm_embeddings_cache_scorer, 1);
    assert_int_equal(ask_for(&fixture, "{producerName: own}", &needs, &err), ST_OK);
    assert_int_equal(needs.used_prefixes, 2);
    assert_true(needs.prompt && needs.body && needs.media_items);
    assert_int_equal(ask_for(&fixture, "{}", &needs, &err), ST_OK);
    assert_int_equal(needs.n_prefixes, 3);
    assert_int_equal(needs.used_prefixes, 6);
    assert_int_equal(needs.prefixes[2].capacity, 2048);
    assert_int_equal(ask_for(&fixture, "{}", &needs, &err), ST_OK); /* another one */
    assert_int_equal(needs.n_prefixes, 3);
    assert_int_equal(
        ask_for(&fixture, "{producerName: approx-prefix-cache-producer}", &needs, &err),
        ST_BAD_CONFIG);
    plugin_fixture_close(&fixture);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scorer_share_of_media_is_the_score),
        cmocka_unit_test(scorer_uses_its_producer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
