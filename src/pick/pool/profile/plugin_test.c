/* What holds for every plugin, tried on each that is listed, with candidates of all kinds. */
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

/* Anything that an endpoint can have said, the impossible included. */
static void roll_candidate(struct plugin_fixture *fixture, struct dice *dice, uint32_t i) {
    static const float counts[] = {0, 1, 2, 5, 1000, (float)(UINT32_MAX / 2), (float)UINT32_MAX};
    static const float shares[] = {0, 0.25f, 0.999f, 1};
    fixture->in_flight[i] = counts[dice_below(dice, 5)];
    fixture->known[i] = dice_below(dice, 32);
    fixture->adapters[i] = fixture->known[i] & LOAD_ADAPTERS ? (uint32_t)dice_roll(dice) : 0;
    fixture->n_waiting[i] = counts[dice_below(dice, 7)];
    fixture->n_running[i] = counts[dice_below(dice, 7)];
    float share = shares[dice_below(dice, 4)];
    fixture->kv_cache_used[i] = fixture->known[i] & LOAD_KV_CACHE ? share : 0;
    fixture->score[i] = (float)dice_below(dice, 4);
}

/* And what this picker knows of them. */
static void roll_endpoint(struct plugin_fixture *fixture, struct dice *dice, uint32_t i) {
    static const float seconds[] = {0, 0.001f, 1, 1e9f};
    struct endpoint *endpoint = fixture->choice.snapshot->members[i].endpoint;
    endpoint->n_tokens = dice_roll(dice) >> dice_below(dice, 64);
    endpoint->cold_turn = dice_below(dice, 2) * dice_below(dice, 100);
    endpoint->answered_ns = dice_below(dice, 3) * UINT64_C(1000000000);
    endpoint->first_byte_s = seconds[dice_below(dice, 4)];
    endpoint->answer_s = seconds[dice_below(dice, 4)];
}

/* Of endpoints that need not be candidates. */
static void roll_prefix(struct plugin_fixture *fixture, struct dice *dice) {
    struct choice_prefix *prefix = &fixture->prefix;
    prefix->n = dice_below(dice, PREFIX_MOST_HOSTS + 1);
    prefix->n_blocks = prefix->n > 0 ? 1 + dice_below(dice, 256) : dice_below(dice, 2);
    for (uint32_t i = 0; i < prefix->n; i++) {
        prefix->hits[i].member = (i * 2 + dice_below(dice, 2)) % FIXTURE_MOST_CANDIDATES;
        prefix->hits[i].n_blocks = 1 + dice_below(dice, prefix->n_blocks);
    }
}

static void roll_choice(struct plugin_fixture *fixture, struct dice *dice) {
    fixture->choice.n = dice_below(dice, FIXTURE_MOST_CANDIDATES + 1);
    fixture->choice.now_ns = UINT64_C(1000000000);
    roll_prefix(fixture, dice);
    for (uint32_t i = 0; i < FIXTURE_MOST_CANDIDATES; i++) {
        fixture->member[i] = i;
        roll_endpoint(fixture, dice, i);
    }
    for (uint32_t i = 0; i < fixture->choice.n; i++) {
        uint32_t k = i + dice_below(dice, FIXTURE_MOST_CANDIDATES - i), other = fixture->member[k];
        fixture->member[k] = fixture->member[i];
        fixture->member[i] = other;
        roll_candidate(fixture, dice, i);
    }
}

/* Each that is there now was there before, and once. */
static void assert_none_invented(const struct choice *choice, const struct plugin_fixture *before) {
    uint32_t there = 0, now = 0;
    for (uint32_t i = 0; i < before->choice.n; i++) {
        there |= 1u << before->member[i];
    }
    assert_true(choice->n <= before->choice.n);
    for (uint32_t i = 0; i < choice->n; i++) {
        uint32_t bit = 1u << choice->columns->member[i];
        assert_true(there & bit);
        assert_false(now & bit);
        now |= bit;
    }
}

/* Returns: the first choice of a picker. */
static uint32_t run(const struct plugin *plugin, struct plugin_fixture *fixture, uint32_t most) {
    struct choice *choice = &fixture->choice;
    uint32_t first = 0;
    switch (plugin->kind) {
    case PLUGIN_FILTER:
        plugin->filter(fixture->parameters, choice);
        break;
    case PLUGIN_SCORER:
        plugin->score(fixture->parameters, choice, 1);
        break;
    case PLUGIN_PICKER:
        for (uint32_t nth = 0; nth < most && choice->n > 0; nth++) {
            uint32_t member = plugin_fixture_pick(fixture, plugin, nth);
            first = nth == 0 ? member : first;
        }
        break;
    }
    return first;
}

static void assert_scored(const struct choice *choice, const struct plugin_fixture *before) {
    for (uint32_t i = 0; i < choice->n; i++) {
        float added = choice->score[i] - before->score[i];
        assert_int_equal(choice->columns->member[i], before->member[i]);
        assert_true(added >= 0);
        assert_true(added <= 1);
    }
}

static void keeps_to_its_candidates(void **state) {
    const struct plugin *plugin = *state;
    struct plugin_fixture fixture, before;
    struct dice dice = {3};
    plugin_fixture_open(&fixture, plugin, FIXTURE_MOST_CANDIDATES);
    for (int i = 0; i < N_TRIES; i++) {
        roll_choice(&fixture, &dice);
        for (uint32_t k = 0; plugin->kind == PLUGIN_SCORER && k < fixture.choice.n; k++) {
            fixture.score[k] = 0; /* so that what is added can be told exactly */
        }
        before = fixture;
        run(plugin, &fixture, 1 + dice_below(&dice, 8));
        assert_none_invented(&fixture.choice, &before);
        if (plugin->kind == PLUGIN_SCORER) {
            assert_int_equal(fixture.choice.n, before.choice.n);
            assert_scored(&fixture.choice, &before);
        }
    }
    plugin_fixture_close(&fixture);
}

static void does_the_same_again(void **state) {
    const struct plugin *plugin = *state;
    struct plugin_fixture one, other;
    struct dice dice = {5}, again = {5};
    plugin_fixture_open(&one, plugin, FIXTURE_MOST_CANDIDATES);
    plugin_fixture_open(&other, plugin, FIXTURE_MOST_CANDIDATES);
    for (int i = 0; i < N_TRIES; i++) {
        roll_choice(&one, &dice);
        roll_choice(&other, &again);
        assert_int_equal(run(plugin, &one, 3), run(plugin, &other, 3));
        assert_int_equal(one.choice.n, other.choice.n);
        for (uint32_t k = 0; k < one.choice.n; k++) {
            assert_int_equal(one.member[k], other.member[k]);
            assert_true(one.score[k] == other.score[k]);
        }
    }
    plugin_fixture_close(&one);
    plugin_fixture_close(&other);
}

static void takes_the_only_one(void **state) {
    const struct plugin *plugin = *state;
    struct plugin_fixture fixture;
    plugin_fixture_open(&fixture, plugin, 1);
    assert_int_equal(run(plugin, &fixture, 1), 0);
    if (plugin->kind == PLUGIN_SCORER) {
        assert_int_equal(fixture.choice.n, 1);
    }
    assert_int_equal(fixture.member[0], 0);
    plugin_fixture_close(&fixture);
}

/* A sum that is none must not lead a picker outside, or to forget anybody. */
static void survives_sums_that_are_none(void **state) {
    static const float sums[] = {NAN, INFINITY, -INFINITY, -1, 0, 1};
    const struct plugin *plugin = *state;
    struct plugin_fixture fixture, before;
    struct dice dice = {11};
    plugin_fixture_open(&fixture, plugin, FIXTURE_MOST_CANDIDATES);
    for (int i = 0; i < N_TRIES; i++) {
        roll_choice(&fixture, &dice);
        for (uint32_t k = 0; k < fixture.choice.n; k++) {
            fixture.score[k] = sums[dice_below(&dice, 6)];
        }
        before = fixture;
        run(plugin, &fixture, 4);
        assert_none_invented(&fixture.choice, &before);
    }
    plugin_fixture_close(&fixture);
}

static void refuses_what_it_does_not_know(void **state) {
    const struct plugin *plugin = *state;
    struct doc *doc;
    struct error err;
    void *parameters;
    struct arena *arena = arena_new(NULL, 0);
    assert_int_equal(doc_parse(DOC_YAML, "p", STR("no_such_parameter: 1"), &doc, &err), ST_OK);
    struct doc_node node = doc_root(doc);
    assert_int_equal(plugin_read(plugin, &node, arena, &parameters, &err), ST_BAD_CONFIG);
    assert_non_null(strstr(err.text, "no_such_parameter"));
    doc_free(doc);
    assert_int_equal(doc_parse(DOC_YAML, "p", STR("[1]"), &doc, &err), ST_OK);
    node = doc_root(doc);
    assert_int_equal(plugin_read(plugin, &node, arena, &parameters, &err), ST_BAD_CONFIG);
    doc_free(doc);
    arena_free(arena);
}

static void is_what_it_says(void **state) {
    const struct plugin *plugin = *state;
    assert_ptr_equal(plugin_find(str_of(plugin->type)), plugin);
    assert_non_null(strstr(plugin->type, plugin_kind_name(plugin->kind)));
    assert_int_equal(plugin->filter != NULL, plugin->kind == PLUGIN_FILTER);
    assert_int_equal(plugin->score != NULL, plugin->kind == PLUGIN_SCORER);
    assert_int_equal(plugin->pick != NULL, plugin->kind == PLUGIN_PICKER);
}

static int run_of(const struct plugin *plugin) {
    void *state = (void *)(uintptr_t)plugin;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(keeps_to_its_candidates, state),
        cmocka_unit_test_prestate(does_the_same_again, state),
        cmocka_unit_test_prestate(takes_the_only_one, state),
        cmocka_unit_test_prestate(survives_sums_that_are_none, state),
        cmocka_unit_test_prestate(refuses_what_it_does_not_know, state),
        cmocka_unit_test_prestate(is_what_it_says, state),
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
