/* Properties of every plugin, tested on each in the list with random candidates. */
#include "pick/pool/profile/plugin.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "pick/pool/profile/plugin_fixture.h"

enum { N_TRIES = 300 };

/* Any possible load report, invalid values included. */
static void roll_candidate(struct plugin_fixture *fixture, struct prng *prng, uint32_t i) {
    static const float counts[] = {0, 1, 2, 5, 1000, (float)(UINT32_MAX / 2), (float)UINT32_MAX};
    static const float shares[] = {0, 0.25f, 0.999f, 1};
    fixture->in_flight[i] = counts[prng_below(prng, 5)];
    fixture->known[i] = prng_below(prng, 64);
    fixture->adapters[i] = fixture->known[i] & LOAD_ADAPTERS ? (uint32_t)prng_next(prng) : 0;
    fixture->n_waiting[i] = counts[prng_below(prng, 7)];
    fixture->n_running[i] = counts[prng_below(prng, 7)];
    float share = shares[prng_below(prng, 4)];
    fixture->kv_cache_used[i] = fixture->known[i] & LOAD_KV_CACHE ? share : 0;
    fixture->score[i] = (float)prng_below(prng, 4);
}

/* And the picker's own records. */
static void roll_endpoint(struct plugin_fixture *fixture, struct prng *prng, uint32_t i) {
    static const float seconds[] = {0, 0.001f, 1, 1e9f};
    struct endpoint *endpoint = fixture->candidates.snapshot->members[i].endpoint;
    endpoint->n_tokens = prng_next(prng) >> prng_below(prng, 64);
    endpoint->last_cold_request = prng_below(prng, 2) * prng_below(prng, 100);
    endpoint->answered_ns = prng_below(prng, 3) * UINT64_C(1000000000);
    endpoint->first_byte_s = seconds[prng_below(prng, 4)];
    endpoint->answer_s = seconds[prng_below(prng, 4)];
}

/* Of endpoints that need not be candidates. */
static void roll_prefix(struct plugin_fixture *fixture, struct prng *prng) {
    struct prefix_matches *prefix = &fixture->prefix;
    prefix->n = prng_below(prng, PREFIX_MAX_HOSTS + 1);
    prefix->n_blocks = prefix->n > 0 ? 1 + prng_below(prng, 256) : prng_below(prng, 2);
    for (uint32_t i = 0; i < prefix->n; i++) {
        prefix->hits[i].member = (i * 2 + prng_below(prng, 2)) % FIXTURE_MAX_CANDIDATES;
        prefix->hits[i].n_blocks = 1 + prng_below(prng, prefix->n_blocks);
    }
}

static void roll_choice(struct plugin_fixture *fixture, struct prng *prng) {
    fixture->candidates.n = prng_below(prng, FIXTURE_MAX_CANDIDATES + 1);
    fixture->candidates.now_ns = UINT64_C(1000000000);
    fixture->candidates.is_summed = false;
    fixture->candidates.affinity_limit = 0;
    roll_prefix(fixture, prng);
    for (uint32_t i = 0; i < FIXTURE_MAX_CANDIDATES; i++) {
        fixture->member[i] = i;
        roll_endpoint(fixture, prng, i);
    }
    for (uint32_t i = 0; i < fixture->candidates.n; i++) {
        uint32_t k = i + prng_below(prng, FIXTURE_MAX_CANDIDATES - i), other = fixture->member[k];
        fixture->member[k] = fixture->member[i];
        fixture->member[i] = other;
        roll_candidate(fixture, prng, i);
    }
}

/* The remaining candidates are some of those before, each once. */
static void assert_none_invented(const struct candidate_set *candidates,
                                 const struct plugin_fixture *before) {
    bool there[FIXTURE_MAX_CANDIDATES] = {false};
    for (uint32_t i = 0; i < before->candidates.n; i++) {
        there[before->member[i]] = true;
    }
    assert_true(candidates->n <= before->candidates.n);
    for (uint32_t i = 0; i < candidates->n; i++) {
        uint32_t member = candidates->columns->member[i];
        assert_true(member < FIXTURE_MAX_CANDIDATES && there[member]);
        there[member] = false;
    }
}

/* Returns: the picker's first choice. */
static uint32_t run(const struct plugin *plugin, struct plugin_fixture *fixture, uint32_t most) {
    struct candidate_set *candidates = &fixture->candidates;
    uint32_t first = 0;
    switch (plugin->kind) {
    case PLUGIN_FILTER:
        plugin->filter(fixture->parameters, candidates);
        break;
    case PLUGIN_SCORER:
        plugin->score(fixture->parameters, candidates, 1);
        break;
    case PLUGIN_PICKER:
        for (uint32_t nth = 0; nth < most && candidates->n > 0; nth++) {
            uint32_t member = plugin_fixture_pick(fixture, plugin, nth);
            first = nth == 0 ? member : first;
        }
        break;
    }
    return first;
}

static void assert_scored(const struct candidate_set *candidates,
                          const struct plugin_fixture *before) {
    for (uint32_t i = 0; i < candidates->n; i++) {
        float added = candidates->score[i] - before->score[i];
        assert_int_equal(candidates->columns->member[i], before->member[i]);
        assert_true(added >= 0);
        assert_true(added <= 1);
    }
}

static void plugin_random_candidates_stay_within_the_set(void **state) {
    const struct plugin *plugin = *state;
    struct plugin_fixture fixture, before;
    struct prng prng = {3};
    plugin_fixture_open(&fixture, plugin, FIXTURE_MAX_CANDIDATES);
    for (int i = 0; i < N_TRIES; i++) {
        roll_choice(&fixture, &prng);
        for (uint32_t k = 0; plugin->kind == PLUGIN_SCORER && k < fixture.candidates.n; k++) {
            fixture.score[k] = 0; /* so that the sum is exact */
        }
        before = fixture;
        run(plugin, &fixture, 1 + prng_below(&prng, 8));
        assert_none_invented(&fixture.candidates, &before);
        if (plugin->kind == PLUGIN_SCORER) {
            assert_int_equal(fixture.candidates.n, before.candidates.n);
            assert_scored(&fixture.candidates, &before);
        }
    }
    plugin_fixture_close(&fixture);
}

static void plugin_same_input_gives_same_result(void **state) {
    const struct plugin *plugin = *state;
    struct plugin_fixture one, other;
    struct prng prng = {5}, again = {5};
    plugin_fixture_open(&one, plugin, FIXTURE_MAX_CANDIDATES);
    plugin_fixture_open(&other, plugin, FIXTURE_MAX_CANDIDATES);
    for (int i = 0; i < N_TRIES; i++) {
        roll_choice(&one, &prng);
        roll_choice(&other, &again);
        assert_int_equal(run(plugin, &one, 3), run(plugin, &other, 3));
        assert_int_equal(one.candidates.n, other.candidates.n);
        for (uint32_t k = 0; k < one.candidates.n; k++) {
            assert_int_equal(one.member[k], other.member[k]);
            assert_true(one.score[k] == other.score[k]);
        }
    }
    plugin_fixture_close(&one);
    plugin_fixture_close(&other);
}

static void plugin_single_candidate_is_kept_or_picked(void **state) {
    const struct plugin *plugin = *state;
    struct plugin_fixture fixture;
    plugin_fixture_open(&fixture, plugin, 1);
    assert_int_equal(run(plugin, &fixture, 1), 0);
    if (plugin->kind == PLUGIN_SCORER) {
        assert_int_equal(fixture.candidates.n, 1);
    }
    assert_int_equal(fixture.member[0], 0);
    plugin_fixture_close(&fixture);
}

/* A score of NaN must not make a picker choose an invalid index or skip candidates. */
static void plugin_invalid_scores_do_not_break_pickers(void **state) {
    static const float sums[] = {NAN, INFINITY, -INFINITY, -1, 0, 1};
    const struct plugin *plugin = *state;
    struct plugin_fixture fixture, before;
    struct prng prng = {11};
    plugin_fixture_open(&fixture, plugin, FIXTURE_MAX_CANDIDATES);
    for (int i = 0; i < N_TRIES; i++) {
        roll_choice(&fixture, &prng);
        for (uint32_t k = 0; k < fixture.candidates.n; k++) {
            fixture.score[k] = sums[prng_below(&prng, 6)];
        }
        before = fixture;
        run(plugin, &fixture, 4);
        assert_none_invented(&fixture.candidates, &before);
    }
    plugin_fixture_close(&fixture);
}

static void plugin_unknown_parameter_is_rejected(void **state) {
    const struct plugin *plugin = *state;
    struct doc *doc;
    struct error err;
    void *parameters;
    struct arena *arena = arena_new(NULL, 0);
    assert_int_equal(doc_parse(DOC_YAML, "p", STR("no_such_parameter: 1"), &doc, &err), ST_OK);
    struct doc_node node = doc_root(doc);
    assert_int_equal(plugin_read_parameters(plugin, &node, arena, &parameters, &err),
                     ST_BAD_CONFIG);
    assert_non_null(strstr(err.text, "no_such_parameter"));
    doc_free(doc);
    assert_int_equal(doc_parse(DOC_YAML, "p", STR("[1]"), &doc, &err), ST_OK);
    node = doc_root(doc);
    assert_int_equal(plugin_read_parameters(plugin, &node, arena, &parameters, &err),
                     ST_BAD_CONFIG);
    doc_free(doc);
    arena_free(arena);
}

/* A plugin without parameters has the presets, which must be within the bounds. */
static void plugin_presets_are_within_bounds(void **state) {
    const struct plugin *plugin = *state;
    const struct doc_member *member = plugin->parameters;
    for (; member && member->name; member++) {
        if (member->kind == DOC_MEMBER_WHOLE || member->kind == DOC_MEMBER_NUMBER) {
            assert_true(member->preset >= (double)member->min);
            assert_true(member->preset <= (double)member->max);
        } else if (member->kind == DOC_MEMBER_SHARE) {
            assert_true(member->preset >= 0 && member->preset <= 1);
        }
    }
}

static void plugin_is_found_by_its_type(void **state) {
    const struct plugin *plugin = *state;
    assert_ptr_equal(plugin_find(str_of(plugin->type)), plugin);
    bool is_both = plugin->kind == PLUGIN_SCORER && plugin->filter; /* upstream's name says
                                                                       neither */
    bool is_detector = strstr(plugin->type, "-detector") != NULL;   /* the pool's one, too */
    assert_true(is_both || is_detector || strstr(plugin->type, plugin_kind_name(plugin->kind)));
    assert_true(is_both || (plugin->filter != NULL) == (plugin->kind == PLUGIN_FILTER));
    assert_int_equal(plugin->score != NULL, plugin->kind == PLUGIN_SCORER);
    assert_int_equal(plugin->pick != NULL, plugin->kind == PLUGIN_PICKER);
}

static int run_of(const struct plugin *plugin) {
    void *state = (void *)(uintptr_t)plugin;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(plugin_random_candidates_stay_within_the_set, state),
        cmocka_unit_test_prestate(plugin_same_input_gives_same_result, state),
        cmocka_unit_test_prestate(plugin_single_candidate_is_kept_or_picked, state),
        cmocka_unit_test_prestate(plugin_invalid_scores_do_not_break_pickers, state),
        cmocka_unit_test_prestate(plugin_unknown_parameter_is_rejected, state),
        cmocka_unit_test_prestate(plugin_presets_are_within_bounds, state),
        cmocka_unit_test_prestate(plugin_is_found_by_its_type, state),
    };
    return cmocka_run_group_tests_name(plugin->type, tests, NULL, NULL);
}

int main(void) {
    int failed = 0;
    for (size_t i = 0; i < N_PLUGINS; i++) {
        failed += run_of(PLUGINS[i]);
    }
    return failed > 0;
}
