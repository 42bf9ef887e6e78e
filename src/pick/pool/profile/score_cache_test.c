/* Scores with the cache equal those without, in a pool that changes in every way between picks,
 * with a profile of all scorers. */
#include "pick/pool/state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/event/clock.h"
#include "pick/pool/pool_fixture.h"

enum { MANY = SCORE_CACHE_MIN_CANDIDATES + CANDIDATE_BLOCK / 2, N_TURNS = 1500, N_HELD = 400 };

struct world {
    struct fixture pool;
    uint32_t n; /* number of endpoints */
    struct prng prng;
    struct arena *arena;
    struct prefix_table *prefix_table;
    struct profile profile;
    struct profile_step scorers[64];
    struct pool_ticket held[N_HELD];
    uint64_t now_ns;
    char text[256];
};

/* Each scorer has a weight of its own. */
static void open_profile(struct world *world) {
    struct error err;
    struct doc *doc;
    assert_int_equal(doc_parse(DOC_YAML, "test", STR("{}"), &doc, &err), ST_OK);
    struct doc_node none = doc_root(doc);
    world->profile = (struct profile){.name = STR("every scorer"),
                                      .scorers = world->scorers,
                                      .picker = {.plugin = &plugin_max_score_picker}};
    for (size_t i = 0; i < N_PLUGINS; i++) {
        struct profile_step *step = &world->scorers[world->profile.n_scorers];
        *step = (struct profile_step){.plugin = PLUGINS[i], .weight = 1 + (float)i / 8};
        if (PLUGINS[i]->kind == PLUGIN_SCORER &&
            plugin_read_parameters(PLUGINS[i], &none, world->arena, &step->parameters, &err) ==
                ST_OK) {
            world->profile.n_scorers++;
        }
    }
    doc_free(doc);
    assert_int_equal(profile_collect_needs(&world->profile, &err), ST_OK);
}

static void open_world(struct world *world, uint32_t n) {
    struct error err;
    *world = (struct world){.n = n, .prng = {7}, .arena = arena_new(NULL, 0), .now_ns = 1000000000};
    clock_set_fake_ns(world->now_ns);
    open_profile(world);
    struct pool_spec *spec = fixture_spec_of(n);
    spec->profile = &world->profile;
    assert_int_equal(prefix_table_new(PREFIX_MIN_BYTES, 0, &world->prefix_table, &err), ST_OK);
    assert_int_equal(pool_new(&world->pool.pool, &err), ST_OK);
    pool_attach_prefix_table(world->pool.pool, world->prefix_table);
    fixture_update(world->pool.pool, spec);
    assert_int_equal(pool_reader_new(world->pool.pool, 1, &world->pool.reader, &err), ST_OK);
}

static void close_world(struct world *world) {
    for (size_t i = 0; i < N_HELD; i++) {
        pool_release_ticket(world->pool.pool, &world->held[i]);
    }
    fixture_close(&world->pool);
    prefix_table_unref(world->prefix_table);
    arena_free(world->arena);
    clock_set_fake_ns(0);
}

/* ---- random changes -------------------------------------------------------------------------- */

static struct endpoint *any(struct world *world) {
    uint32_t i = prng_below(&world->prng, world->n);
    return pool_reader_refresh(world->pool.reader)->members[i].endpoint;
}

/* A load report, which may be incomplete, and may expire soon. */
static void say(struct world *world) {
    struct prng *prng = &world->prng;
    struct endpoint *endpoint = any(world);
    struct endpoint_load load = {.asked_ns = world->now_ns,
                                 .until_ns = world->now_ns + prng_below(prng, 2000) * 1000000ull,
                                 .in_flight = endpoint_in_flight(endpoint),
                                 .known = prng_below(prng, 32) | (prng_next(prng) & LOAD_ADAPTERS),
                                 .n_waiting = prng_below(prng, 9),
                                 .n_running = prng_below(prng, 30),
                                 .kv_cache_used = (float)prng_double(prng),
                                 .max_adapters = 3};
    static const struct str names[] = {STR("sql"), STR("poems"), STR("jokes"), STR("letters")};
    for (uint32_t k = prng_below(prng, 4); k > 0; k--) {
        (void)!load_add_adapter(&load, names[prng_below(prng, 4)], prng_below(prng, 2));
    }
    pool_set_load(world->pool.pool, endpoint, &load);
}

/* Some prompts share beginnings, some are new, some requests have none; some have no model or
 * session. */
static struct pool_request roll_request(struct world *world, struct pool_prompt *prompt) {
    struct prng *prng = &world->prng;
    struct pool_request request = {.n_tokens = prng_below(prng, 5000)};
    for (size_t i = 0; i < sizeof(world->text); i++) {
        world->text[i] = (char)('a' + prng_below(prng, 2) * (i > 128) + i / 64);
    }
    world->text[0] = (char)('a' + prng_below(prng, 4));
    struct str text = str_make(world->text, (size_t)prng_below(prng, 4) * 64);
    if (prng_below(prng, 8) > 0) {
        request.prompt = pool_prompt_init(prompt, world->pool.reader, world->arena, text);
    }
    request.model = prng_below(prng, 8) > 0 ? STR("sql") : request.model;
    request.session = prng_below(prng, 2) ? str_make(world->text + 60, 8) : request.session;
    return request;
}

static void pick(struct world *world) {
    struct pool_ticket *ticket = &world->held[prng_below(&world->prng, N_HELD)];
    struct pool_prompt prompt;
    struct pool_request request = roll_request(world, &prompt);
    struct pool_pick out;
    struct error err;
    request.n_fallbacks = prng_below(&world->prng, 3);
    pool_ticket_response_started(world->pool.pool, ticket, prng_below(&world->prng, 8) > 0);
    pool_release_ticket(world->pool.pool, ticket);
    assert_int_equal(pool_pick(world->pool.reader, &request, &out, &err), ST_OK);
    *ticket = out.ticket;
}

static void change(struct world *world) {
    switch (prng_below(&world->prng, 16)) {
    case 0:
        world->now_ns += prng_below(&world->prng, 200) * UINT64_C(1000000);
        clock_set_fake_ns(world->now_ns);
        break;
    case 1:
        pool_set_ready(world->pool.pool, any(world), prng_below(&world->prng, 4) > 0);
        pool_set_ready(world->pool.pool, any(world), prng_below(&world->prng, 2) > 0);
        break;
    case 2:
    case 3:
    case 4:
    case 5:
        say(world);
        break;
    default:
        pick(world);
    }
}

/* ---- comparison ------------------------------------------------------------------------------ */

static struct candidate_set gather(struct world *world, const struct pool_request *request) {
    struct candidate_set candidates;
    struct error err;
    pool_reader_refresh(world->pool.reader);
    assert_int_equal(
        pool_collect_candidates(world->pool.reader, request, request->model, 0, &candidates, &err),
        ST_OK);
    pool_prompt_match(world->pool.reader, &world->profile, request, request->model, &candidates);
    return candidates;
}

/* Returns: whether the cache was used. */
static bool compare(struct world *world) {
    struct pool_prompt prompt;
    struct pool_request request = roll_request(world, &prompt);
    struct candidate_set anew = gather(world, &request);
    float scores[MANY];
    anew.score_cache = NULL;
    profile_run(&world->profile, &anew);
    assert_ptr_not_equal(anew.score, world->pool.reader->view.score_cache.score);
    assert_in_range(anew.n, 1, MANY);
    memcpy(scores, anew.score, anew.n * sizeof(*scores)); /* the next run may overwrite them */
    struct candidate_set kept = gather(world, &request);
    profile_run(&world->profile, &kept);
    assert_int_equal(kept.n, anew.n);
    for (uint32_t i = 0; i < kept.n; i++) {
        float difference = kept.score[i] - scores[i];
        assert_true(difference < 1e-4f && difference > -1e-4f);
    }
    return kept.score == world->pool.reader->view.score_cache.score;
}

/* Returns: the number of picks that used the cache. */
static uint32_t they_are_as_without(uint32_t n_endpoints) {
    struct world world;
    uint32_t n_kept = 0;
    open_world(&world, n_endpoints);
    for (int i = 0; i < N_TURNS; i++) {
        for (uint32_t n = prng_below(&world.prng, 4); n > 0; n--) {
            change(&world);
        }
        n_kept += compare(&world);
    }
    close_world(&world);
    return n_kept;
}

static void score_cache_many_candidates_match_uncached_scores(void **state) {
    (void)state;
    /* At times fewer are ready. */
    assert_in_range(they_are_as_without(MANY), N_TURNS / 10, N_TURNS);
}

static void score_cache_few_candidates_are_not_cached(void **state) {
    (void)state;
    static const uint32_t sizes[] = {3, CANDIDATE_BLOCK + 7, SCORE_CACHE_MIN_CANDIDATES - 1};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        assert_int_equal(they_are_as_without(sizes[i]), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(score_cache_many_candidates_match_uncached_scores),
        cmocka_unit_test(score_cache_few_candidates_are_not_cached),
    };
    return cmocka_run_group_tests_name("pick/pool/profile/score_cache", tests, NULL, NULL);
}
