/* The rules of a pick: models and their targets, subsets, fallbacks, shedding; one table each. */
#include "pick/pool/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "pick/pool/pool_fixture.h"

/* ---- models ---------------------------------------------------------------------------------- */

static void add_model(struct pool_spec *spec, const char *name, enum pool_criticality criticality,
                      const struct pool_target *targets, size_t n) {
    struct pool_model model = {
        .name = str_of(name), .criticality = criticality, .targets = {targets, n}};
    pool_spec_add_model(spec, &model);
}

static void add_rewrite(struct pool_spec *spec, const struct str *models, size_t n,
                        const struct pool_target *targets, size_t n_targets) {
    struct pool_rewrite rewrite = {models, n, {targets, n_targets}};
    pool_spec_add_rewrite(spec, &rewrite);
}

static const struct pool_target to_v2[] = {{STR("llama-v2"), 1}};
static const struct pool_target nowhere[] = {{STR("x"), 0}, {STR("y"), 0}};
static const struct pool_target to_other[] = {{STR("other-v9"), 3}};
static const struct pool_target to_first[] = {{STR("first"), 1}};
static const struct pool_target to_last[] = {{STR("last"), 1}};

/* `plain` and `llama` are models, `alias` and `both` are rewritten, `both` is also a model. */
static struct pool_spec *spec_with_models(bool strict, bool rest) {
    static const struct str alias[] = {STR("alias"), STR("both")}, again[] = {STR("alias")};
    struct pool_spec *spec = fixture_spec_of(2);
    spec->strict_models = strict;
    add_model(spec, "plain", POOL_STANDARD, NULL, 0);
    add_model(spec, "llama", POOL_CRITICAL, to_v2, 1);
    add_model(spec, "cheap", POOL_SHEDDABLE, NULL, 0);
    add_model(spec, "both", POOL_SHEDDABLE, to_v2, 1);
    add_model(spec, "reserved", POOL_STANDARD, nowhere, 2);
    add_model(spec, "", POOL_STANDARD, NULL, 0);
    add_rewrite(spec, alias, 2, to_other, 1);
    add_rewrite(spec, again, 1, to_first, 1);
    if (rest) {
        add_rewrite(spec, NULL, 0, to_last, 1);
        add_rewrite(spec, NULL, 0, to_first, 1);
    }
    return spec;
}

static void pool_pick_model_name_sets_target_and_criticality(void **state) {
    static const struct {
        const char *name;
        bool strict, rest;
        enum status status;
        const char *target; /* NULL: unchanged */
        enum pool_criticality criticality;
    } rows[] = {
        {"plain", true, false, ST_OK, NULL, POOL_STANDARD},
        {"llama", true, false, ST_OK, "llama-v2", POOL_CRITICAL},
        {"cheap", true, false, ST_OK, NULL, POOL_SHEDDABLE},
        {"", true, false, ST_OK, NULL, POOL_STANDARD},
        {"alias", true, false, ST_OK, "other-v9", POOL_STANDARD}, /* its first rewrite */
        {"both", true, false, ST_OK, "other-v9", POOL_SHEDDABLE}, /* a rewrite takes precedence */
        {"reserved", true, false, ST_UNKNOWN_MODEL, NULL, POOL_STANDARD},
        {"reserved", false, true, ST_UNKNOWN_MODEL, NULL, POOL_STANDARD},
        {"nobody", true, false, ST_UNKNOWN_MODEL, NULL, POOL_STANDARD},
        {"plai", true, false, ST_UNKNOWN_MODEL, NULL, POOL_STANDARD},
        {"plainer", true, false, ST_UNKNOWN_MODEL, NULL, POOL_STANDARD},
        {"Plain", true, false, ST_UNKNOWN_MODEL, NULL, POOL_STANDARD},
        {"nobody", false, false, ST_OK, NULL, POOL_STANDARD},
        {"nobody", true, true, ST_OK, "last", POOL_STANDARD},
        {"plain", true, true, ST_OK, NULL,
         POOL_STANDARD}, /* the default rewrite is for unknown ones */
        {"alias", true, true, ST_OK, "other-v9", POOL_STANDARD},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct fixture f;
        struct pool_pick pick;
        struct error err;
        struct pool_request request = {.model = str_of(rows[i].name)};
        fixture_open(&f, spec_with_models(rows[i].strict, rows[i].rest));
        enum status st = pool_pick(f.reader, &request, &pick, &err);
        assert_int_equal(st, rows[i].status);
        assert_int_equal(pick.criticality, rows[i].criticality);
        assert_int_equal(pick.sheddable, rows[i].criticality == POOL_SHEDDABLE);
        if (st == ST_OK) {
            assert_true(rows[i].target ? str_is(pick.target, rows[i].target) : !pick.target.ptr);
            pool_release_ticket(f.pool, &pick.ticket);
        } else {
            assert_int_equal(status_http(err.status), 404);
            assert_non_null(strstr(err.text, rows[i].name));
            assert_null(pick.ticket.endpoint);
        }
        fixture_close(&f);
    }
}

/* With an empty list of models every name is unknown; a request without a model is still picked
 * for. */
static void pool_pick_without_model_is_accepted(void **state) {
    (void)state;
    struct fixture f;
    struct pool_pick pick;
    struct error err;
    struct pool_spec *spec = fixture_spec_of(1);
    spec->strict_models = true;
    fixture_open(&f, spec);
    struct pool_request request = {.model = STR("m")};
    assert_int_equal(pool_pick(f.reader, &request, &pick, &err), ST_UNKNOWN_MODEL);
    pick = fixture_pick(&f);
    assert_null(pick.target.ptr);
    pool_release_ticket(f.pool, &pick.ticket);
    fixture_close(&f);
}

static void pool_pick_targets_follow_weights(void **state) {
    static const struct pool_target targets[] = {
        {STR("a"), 90}, {STR("never"), 0}, {STR("b"), 9}, {STR("c"), 1}};
    enum { PICKS = 100000 };
    (void)state;
    struct fixture f;
    unsigned counts[4] = {0};
    struct pool_spec *spec = fixture_spec_of(1);
    add_model(spec, "m", POOL_STANDARD, targets, 4);
    fixture_open(&f, spec);
    for (int i = 0; i < PICKS; i++) {
        struct pool_request request = {.model = STR("m")};
        struct pool_pick pick;
        struct error err;
        assert_int_equal(pool_pick(f.reader, &request, &pick, &err), ST_OK);
        for (int k = 0; k < 4; k++) {
            counts[k] += str_eq(pick.target, targets[k].model);
        }
        pool_release_ticket(f.pool, &pick.ticket);
    }
    assert_int_equal(counts[0] + counts[2] + counts[3], PICKS);
    assert_in_range(counts[0], 89500, 90500);
    assert_in_range(counts[2], 8700, 9300);
    assert_in_range(counts[3], 850, 1150);
    fixture_close(&f);
}

/* ---- subsets --------------------------------------------------------------------------------- */

static void add_text(struct subset *subset, struct arena *arena, const char *text, bool list) {
    struct error err;
    enum status st = list ? subset_add_list(subset, arena, str_of(text), &err)
                          : subset_add(subset, arena, str_of(text), &err);
    assert_int_equal(st, ST_OK);
}

/* The pool: 10.0.0.1:8000, 10.0.0.1:8001, 10.0.0.2:8000, [::1]:8000; 10.0.0.3:8000 is not ready. */
static void open_for_subsets(struct fixture *f) {
    static const char *const all[] = {"10.0.0.1:8000", "10.0.0.1:8001", "10.0.0.2:8000",
                                      "[::1]:8000", "10.0.0.3:8000"};
    struct pool_spec *spec = fixture_spec();
    spec->health.kind = POOL_HEALTH_TCP;
    for (int i = 0; i < 5; i++) {
        fixture_add(spec, all[i]);
    }
    fixture_open(f, spec);
    for (int i = 0; i < 5; i++) {
        pool_set_ready(f->pool, fixture_endpoint(f, all[i]), i < 4);
    }
}

/* Picks until no new endpoint appears, and records the endpoints. */
static enum status picked_by(struct fixture *f, const struct pool_request *request, char *out,
                             size_t n_bytes, struct error *err) {
    const struct pool_snapshot *snapshot = pool_reader_refresh(f->reader);
    bool came[8] = {false};
    enum status st = ST_OK;
    for (int i = 0; i < 200 && st == ST_OK; i++) {
        struct pool_pick pick;
        st = pool_pick(f->reader, request, &pick, err);
        for (uint32_t k = 0; st == ST_OK && k < snapshot->n_members; k++) {
            came[k] = came[k] || snapshot->members[k].endpoint == pick.ticket.endpoint;
        }
        if (st == ST_OK) {
            pool_release_ticket(f->pool, &pick.ticket);
        }
    }
    out[0] = '\0';
    for (uint32_t k = 0; k < snapshot->n_members; k++) {
        if (came[k]) {
            size_t len = strlen(out);
            snprintf(out + len, n_bytes - len, "%s%s", len > 0 ? " " : "",
                     snapshot->members[k].endpoint->text);
        }
    }
    return st;
}

static void pool_pick_stays_within_subset(void **state) {
    static const struct {
        const char *hint, *selection; /* NULL: absent; items separated by commas */
        const char *picked;           /* NULL: none */
    } rows[] = {
        {NULL, NULL, "10.0.0.1:8000 10.0.0.1:8001 10.0.0.2:8000 [::1]:8000"},
        {"10.0.0.2:8000", NULL, "10.0.0.2:8000"},
        {"10.0.0.2:8000,10.0.0.1:8001", NULL, "10.0.0.1:8001 10.0.0.2:8000"},
        {" 10.0.0.2:8000 ,,\t[0::1]:8000, ", NULL, "10.0.0.2:8000 [::1]:8000"},
        {"10.0.0.3:8000,10.0.0.2:8000", NULL, "10.0.0.2:8000"}, /* one is not ready */
        {"10.0.0.9:8000,10.0.0.2:8000", NULL, "10.0.0.2:8000"}, /* one is not in the pool */
        {"nonsense,10.0.0.2:8000", NULL, "10.0.0.2:8000"},
        {"", NULL, NULL},
        {",", NULL, NULL},
        {"10.0.0.3:8000", NULL, NULL},
        {"10.0.0.2:8001", NULL, NULL}, /* the port counts */
        {"10.0.0.2", NULL, NULL},
        {"nonsense", NULL, NULL},
        /* the selection of conformance tests may leave out the port */
        {NULL, "10.0.0.1", "10.0.0.1:8000 10.0.0.1:8001"},
        {NULL, "10.0.0.1:8001", "10.0.0.1:8001"},
        {NULL, "::1,10.0.0.2", "10.0.0.2:8000 [::1]:8000"},
        {NULL, "[::1]", "[::1]:8000"},
        {NULL, "10.0.0.1,10.0.0.1:8000", "10.0.0.1:8000 10.0.0.1:8001"},
        {NULL, "10.0.0.3", NULL},
        {NULL, "", NULL},
        /* both must match */
        {"10.0.0.1:8000,10.0.0.2:8000", "10.0.0.1", "10.0.0.1:8000"},
        {"10.0.0.1:8000,10.0.0.1:8000", "10.0.0.1,10.0.0.1,10.0.0.2", "10.0.0.1:8000"},
        {"10.0.0.2:8000", "10.0.0.1", NULL},
        {"", "10.0.0.1", NULL},
        {"10.0.0.2:8000", "", NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct fixture f;
        struct subset hint, selection;
        struct error err;
        char picked[300];
        struct arena *arena = arena_new(NULL, 0);
        open_for_subsets(&f);
        subset_init(&hint, false);
        subset_init(&selection, true);
        add_text(&hint, arena, rows[i].hint ? rows[i].hint : "", true);
        add_text(&selection, arena, rows[i].selection ? rows[i].selection : "", true);
        struct pool_request request = {.subset = rows[i].hint ? &hint : NULL,
                                       .selection = rows[i].selection ? &selection : NULL};
        enum status st = picked_by(&f, &request, picked, sizeof(picked), &err);
        assert_int_equal(st, rows[i].picked ? ST_OK : ST_NO_ENDPOINT);
        assert_string_equal(picked, rows[i].picked ? rows[i].picked : "");
        if (st != ST_OK) { /* the text is about the hint, where there is one */
            const struct subset *list = rows[i].hint ? &hint : &selection;
            assert_int_equal(strstr(err.text, "is empty") != NULL,
                             list->n + list->n_unreadable == 0);
        }
        arena_free(arena);
        fixture_close(&f);
    }
}

static void subset_element_is_exactly_one_address(void **state) {
    (void)state;
    struct subset subset;
    struct arena *arena = arena_new(NULL, 0);
    subset_init(&subset, false);
    add_text(&subset, arena, "10.0.0.1:8000,10.0.0.2:8000", false);
    add_text(&subset, arena, " 10.0.0.1:8000", false);
    add_text(&subset, arena, "", false);
    assert_int_equal(subset.n, 0);
    assert_int_equal(subset.n_unreadable, 3);
    for (int i = 0; i < 1000; i++) {
        add_text(&subset, arena, "10.0.0.1:8000", false);
    }
    assert_int_equal(subset.n, 1000);
    arena_free(arena);
}

static void pool_pick_without_endpoint_explains_the_reason(void **state) {
    (void)state;
    struct fixture f;
    struct subset subset;
    struct pool_pick pick;
    struct error err;
    struct arena *arena = arena_new(NULL, 0);
    open_for_subsets(&f);
    subset_init(&subset, false);
    add_text(&subset, arena, "10.0.0.9:8000,x,10.0.0.3:8000", true);
    struct pool_request request = {.subset = &subset};
    assert_int_equal(pool_pick(f.reader, &request, &pick, &err), ST_NO_ENDPOINT);
    assert_string_equal(
        err.text, "none of the 3 endpoints in the request's subset (1 of them not an address) is "
                  "in the pool and ready; the pool has 5 endpoints, of which 4 are ready");
    arena_free(arena);
    fixture_close(&f);
}

/* An endpoint named twice is not more likely, and the least busy of a subset is picked. */
static void pool_pick_within_subset_takes_least_requests(void **state) {
    (void)state;
    enum { PICKS = 20000 };
    struct fixture f;
    struct subset subset;
    struct pool_pick picks[3];
    struct error err;
    struct arena *arena = arena_new(NULL, 0);
    unsigned n_first = 0;
    open_for_subsets(&f);
    subset_init(&subset, false);
    add_text(&subset, arena, "10.0.0.1:8000,10.0.0.2:8000,10.0.0.1:8000,10.0.0.1:8000", true);
    struct pool_request request = {.subset = &subset};
    struct endpoint *first = fixture_endpoint(&f, "10.0.0.1:8000");
    for (int i = 0; i < PICKS; i++) {
        assert_int_equal(pool_pick(f.reader, &request, &picks[0], &err), ST_OK);
        n_first += picks[0].ticket.endpoint == first;
        pool_release_ticket(f.pool, &picks[0].ticket);
    }
    assert_in_range(n_first, PICKS * 47 / 100, PICKS * 53 / 100);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pool_pick(f.reader, &request, &picks[i], &err), ST_OK);
        assert_int_equal(endpoint_in_flight(picks[i].ticket.endpoint), i / 2 + 1);
    }
    assert_ptr_not_equal(picks[0].ticket.endpoint, picks[1].ticket.endpoint);
    pool_report_refused(f.pool, first);
    for (int i = 0; i < 3; i++) {
        pool_release_ticket(f.pool, &picks[i].ticket);
    }
    assert_int_equal(pool_pick(f.reader, &request, &picks[0], &err), ST_OK);
    assert_int_equal(pool_pick(f.reader, &request, &picks[1], &err), ST_OK);
    assert_ptr_not_equal(picks[0].ticket.endpoint, first);
    assert_ptr_not_equal(picks[1].ticket.endpoint, first);
    pool_release_ticket(f.pool, &picks[0].ticket);
    pool_release_ticket(f.pool, &picks[1].ticket);
    arena_free(arena);
    fixture_close(&f);
}

/* ---- fallbacks ------------------------------------------------------------------------------- */

/* In order of requests in flight, each once; only the first one's count is raised. */
static void pool_pick_fallbacks_are_distinct_and_ordered(void **state) {
    (void)state;
    enum { N = 6 };
    struct arena *arena = arena_new(NULL, 0);
    for (int with_subset = 0; with_subset < 2; with_subset++) {
        struct fixture f;
        struct subset all;
        struct pool_pick picks[40];
        struct error err;
        fixture_open(&f, fixture_spec_of(N));
        subset_init(&all, true);
        for (int i = 0; i < N; i++) {
            struct endpoint *endpoint = pool_reader_refresh(f.reader)->members[i].endpoint;
            add_text(&all, arena, endpoint->text, false);
        }
        for (unsigned i = 0; i < 40; i++) {
            struct pool_request request = {.subset = with_subset ? &all : NULL,
                                           .n_fallbacks = i % 8};
            assert_int_equal(pool_pick(f.reader, &request, &picks[i], &err), ST_OK);
            size_t n = i % 8 + 1 < N ? i % 8 + 1 : N;
            assert_int_equal(picks[i].n_endpoints, n);
            for (size_t k = 1; k < n; k++) {
                uint32_t own = endpoint_in_flight(picks[i].endpoints[k]);
                uint32_t before = endpoint_in_flight(picks[i].endpoints[k - 1]) - (k == 1);
                assert_true(own >= before);
                for (size_t j = 0; j < k; j++) {
                    assert_ptr_not_equal(picks[i].endpoints[k], picks[i].endpoints[j]);
                }
            }
        }
        struct pool_stats stats;
        pool_get_stats(f.pool, &stats);
        assert_int_equal(stats.n_in_flight, 40);
        for (int i = 0; i < 40; i++) {
            pool_release_ticket(f.pool, &picks[i].ticket);
        }
        fixture_close(&f);
    }
    arena_free(arena);
}

/* ---- shedding -------------------------------------------------------------------------------- */

static void pool_pick_saturated_pool_sheds_sheddable_requests(void **state) {
    static const struct {
        const char *model, *objective;
        bool shed;
    } rows[] = {
        {"cheap", NULL, true},    {"plain", NULL, false},   {"llama", NULL, false},
        {NULL, NULL, false},      {"plain", "batch", true}, {"llama", "batch", true},
        {"cheap", "fast", false}, {"cheap", "none", true},  {NULL, "batch", true},
        {NULL, "zero", false},    {"cheap", "zero", false},
    };
    static const struct pool_objective objectives[] = {
        {STR("zero"), 0}, {STR("fast"), 10}, {STR("batch"), -1}, {STR("batch"), 5}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct fixture f;
        struct pool_pick held[4], pick;
        struct error err;
        struct pool_spec *spec = spec_with_models(true, false);
        spec->max_in_flight = 2;
        for (int k = 0; k < 4; k++) {
            pool_spec_add_objective(spec, &objectives[k]);
        }
        fixture_open(&f, spec);
        struct pool_request request = {.model = str_of(rows[i].model),
                                       .objective = str_of(rows[i].objective)};
        for (int k = 0; k < 4; k++) { /* nothing is shed until both have two in flight */
            assert_int_equal(pool_pick(f.reader, &request, &held[k], &err), ST_OK);
        }
        enum status st = pool_pick(f.reader, &request, &pick, &err);
        assert_int_equal(st, rows[i].shed ? ST_SATURATED : ST_OK);
        assert_int_equal(pick.sheddable, rows[i].shed);
        if (st == ST_OK) {
            pool_release_ticket(f.pool, &pick.ticket);
        } else {
            assert_int_equal(status_http(err.status), 429);
            assert_non_null(strstr(err.text, "2 requests in flight"));
        }
        pool_release_ticket(f.pool, &held[0].ticket); /* there is capacity again */
        assert_int_equal(pool_pick(f.reader, &request, &held[0], &err), ST_OK);
        for (int k = 0; k < 4; k++) {
            pool_release_ticket(f.pool, &held[k].ticket);
        }
        fixture_close(&f);
    }
}

/* ---- models that become known after the pick ------------------------------------------------- */

/* Where nothing depends on the model's name it is not searched for. */
static void pool_snapshot_models_matter_follows_configuration(void **state) {
    static const struct str alias[] = {STR("alias")};
    (void)state;
    for (int i = 0; i < 6; i++) {
        struct pool_spec *spec = fixture_spec_of(1);
        struct fixture f;
        spec->strict_models = i == 1;
        add_model(spec, "plain", i == 2 ? POOL_SHEDDABLE : POOL_STANDARD, to_v2, i == 3 ? 1 : 0);
        if (i >= 4) {
            add_rewrite(spec, alias, i == 4 ? 1 : 0, to_last, 1);
        }
        fixture_open(&f, spec);
        const struct pool_snapshot *snapshot = pool_reader_refresh(f.reader);
        assert_int_equal(snapshot->models_matter, i > 0);
        assert_int_equal(pool_snapshot_renames_model(snapshot, STR("plain")), i == 3);
        assert_int_equal(pool_snapshot_renames_model(snapshot, STR("alias")), i >= 4);
        assert_int_equal(pool_snapshot_renames_model(snapshot, STR("stranger")), i == 5);
        fixture_close(&f);
    }
}

/* With an endpoint picked: resolves the model, and no second endpoint is picked. */
static void pool_check_picked_resolves_model_without_second_pick(void **state) {
    struct pool_spec *spec = spec_with_models(true, false);
    struct pool_request request = {.model = STR("llama")};
    struct pool_stats stats;
    struct pool_pick others[3], out;
    struct fixture f;
    struct error err;
    (void)state;
    spec->max_in_flight = 1;
    fixture_open(&f, spec);
    for (int i = 0; i < 2; i++) {
        others[i] = fixture_pick(&f);
    }
    assert_int_equal(pool_check_picked(f.reader, &request, &others[0].ticket, &out, &err), ST_OK);
    assert_true(str_is(out.target, "llama-v2"));
    assert_null(out.ticket.endpoint);
    request.model = STR("stranger");
    assert_int_equal(pool_check_picked(f.reader, &request, &others[0].ticket, &out, &err),
                     ST_UNKNOWN_MODEL);
    request.model = STR("cheap"); /* the request itself does not count */
    assert_int_equal(pool_check_picked(f.reader, &request, &others[0].ticket, &out, &err), ST_OK);
    others[2] = fixture_pick(&f);
    assert_int_equal(pool_check_picked(f.reader, &request, &others[2].ticket, &out, &err),
                     ST_SATURATED);
    pool_get_stats(f.pool, &stats);
    assert_int_equal(stats.n_in_flight, 3);
    for (int i = 0; i < 3; i++) {
        pool_release_ticket(f.pool, &others[i].ticket);
    }
    fixture_close(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pool_pick_model_name_sets_target_and_criticality),
        cmocka_unit_test(pool_pick_without_model_is_accepted),
        cmocka_unit_test(pool_pick_targets_follow_weights),
        cmocka_unit_test(pool_pick_stays_within_subset),
        cmocka_unit_test(subset_element_is_exactly_one_address),
        cmocka_unit_test(pool_pick_without_endpoint_explains_the_reason),
        cmocka_unit_test(pool_pick_within_subset_takes_least_requests),
        cmocka_unit_test(pool_pick_fallbacks_are_distinct_and_ordered),
        cmocka_unit_test(pool_pick_saturated_pool_sheds_sheddable_requests),
        cmocka_unit_test(pool_snapshot_models_matter_follows_configuration),
        cmocka_unit_test(pool_check_picked_resolves_model_without_second_pick),
    };
    return cmocka_run_group_tests_name("pick/pool/pick", tests, NULL, NULL);
}
