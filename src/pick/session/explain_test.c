/* An explanation equals a pick: texts for each rule, and the same outcome as a pick over random
 * pools and requests. */
#include "pick/session/explain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "codec/prompt/model_location.h"
#include "core/base/random.h"
#include "core/event/clock.h"
#include "pick/pool/pool_fixture.h"
#include "pick/pool/profile/profile.h"

static const char A[] = "10.0.0.1:8000", B[] = "10.0.0.2:8000", C[] = "[::1]:8000";

struct sent {
    struct arena *arena;
    struct buf text;
    enum status status;
};

static struct sent ask(struct fixture *fixture, struct pick_described_request described) {
    struct sent sent = {.arena = arena_new(NULL, 0)};
    struct error err;
    buf_init(&sent.text, sent.arena, 0);
    described.method = described.method.ptr ? described.method : STR("POST");
    described.path = described.path.ptr ? described.path : STR("/");
    sent.status = pick_explain(fixture->reader, &described, &sent.text, &err);
    buf_add_char(&sent.text, '\0');
    assert_false(sent.text.failed);
    return sent;
}

static void expect(struct fixture *fixture, struct pick_described_request described,
                   enum status status, const char *text) {
    struct sent sent = ask(fixture, described);
    if (sent.status != status || !strstr(sent.text.data, text)) {
        fail_msg("expected %s and \"%s\" in\n%s", status_name(status), text, sent.text.data);
    }
    arena_free(sent.arena);
}

static struct pool_spec *three(void) {
    struct pool_spec *spec = fixture_spec();
    fixture_add(spec, A);
    fixture_add(spec, B);
    fixture_add(spec, C);
    return spec;
}

static void add_model(struct pool_spec *spec, const char *name, enum pool_criticality criticality,
                      struct pool_targets targets) {
    struct pool_model model = {str_of(name), criticality, targets};
    pool_spec_add_model(spec, &model);
}

/* ---- texts ----------------------------------------------------------------------------------- */

static void explain_model_source_is_printed(void **state) {
    (void)state;
    struct fixture fixture;
    fixture_open(&fixture, three());
    expect(&fixture, (struct pick_described_request){.path = STR("/v2/models/a%20b/infer")}, ST_OK,
           "model       a b, from the path\n");
    expect(&fixture,
           (struct pick_described_request){.path = STR("/v1/completions"), .model = STR("m")},
           ST_OK, "model       m, from the body\n");
    expect(&fixture, (struct pick_described_request){.path = STR("/v1/completions")}, ST_OK,
           "named by the body; none is given");
    expect(&fixture, (struct pick_described_request){.path = STR("/other"), .model = STR("m")},
           ST_OK, "and their body is not read");
    expect(&fixture, (struct pick_described_request){.path = STR("/v2/models/%zz/infer")},
           ST_BAD_REQUEST, "refused with 400");
    fixture_close(&fixture);
}

static void explain_model_targets_are_printed(void **state) {
    (void)state;
    static const struct pool_target split[] = {{STR("x"), 9}, {STR("y"), 1}},
                                    none[] = {{STR("z"), 0}};
    struct fixture fixture;
    struct pool_spec *spec = three();
    spec->strict_models = true;
    add_model(spec, "m", POOL_CRITICAL, (struct pool_targets){split, 2});
    add_model(spec, "reserved", POOL_STANDARD, (struct pool_targets){none, 1});
    fixture_open(&fixture, spec);
    struct pick_described_request described = {.path = STR("/v2/models/m/infer")};
    expect(&fixture, described, ST_OK, "Critical\n");
    expect(&fixture, described, ST_OK, "sent on as x (9 of 10), y (1 of 10)\n");
    described.path = STR("/v2/models/n/infer");
    expect(&fixture, described, ST_UNKNOWN_MODEL,
           "refused with 404 (gRPC: 5) UNKNOWN_MODEL: no model is called \"n\"");
    described.path = STR("/v2/models/reserved/infer");
    expect(&fixture, described, ST_UNKNOWN_MODEL, "no target of \"reserved\" has a weight above 0");
    fixture_close(&fixture);
}

static void explain_endpoints_are_ranked(void **state) {
    (void)state;
    static const struct pool_label app = {STR("app"), STR("x")};
    struct fixture fixture;
    struct pool_spec *spec = fixture_spec();
    spec->selector = (struct pool_labels){&app, 1};
    struct pool_spec_endpoint wanted = {.labels = {&app, 1}};
    wanted.address = fixture_address(A);
    pool_spec_add_endpoint(spec, &wanted);
    wanted.address = fixture_address(C);
    pool_spec_add_endpoint(spec, &wanted);
    fixture_add(spec, B);
    fixture_open(&fixture, spec);
    struct pick_described_request described = {.method = STR("GET")};
    expect(&fixture, described, ST_OK, "2 in the pool, of which 2 are eligible");
    expect(&fixture, described, ST_OK,
           "  10.0.0.2:8000                 no: its labels do not match the selector\n");
    expect(&fixture, described, ST_OK,
           "outcome     10.0.0.1:8000, or another of the 2 with rank 1, at random\n");
    pool_report_refused(fixture.pool, fixture_endpoint(&fixture, A));
    expect(&fixture, described, ST_OK,
           "  10.0.0.1:8000                 yes   conn refused            0     2\n");
    expect(&fixture, described, ST_OK, "outcome     [::1]:8000\n");
    described.subset = STR("10.0.0.1:8000,10.0.0.2:8000,x");
    expect(&fixture, described, ST_OK, "2 addresses, and 1 invalid");
    expect(&fixture, described, ST_OK,
           "  [::1]:8000                    yes   no      yes                     0     -\n");
    expect(&fixture, described, ST_OK, "outcome     10.0.0.1:8000\n");
    described.selection = STR("[::1]");
    expect(&fixture, described, ST_NO_ENDPOINT, "refused with 503 (gRPC: 14) NO_ENDPOINT");
    described.subset = STR("");
    expect(&fixture, described, ST_NO_ENDPOINT, "0 addresses: empty");
    fixture_close(&fixture);
}

static void explain_unchecked_endpoint_is_marked(void **state) {
    (void)state;
    struct fixture fixture;
    struct pool_spec *spec = three();
    struct pick_described_request described = {.method = STR("GET")};
    spec->health.kind = POOL_HEALTH_TCP;
    fixture_open(&fixture, spec);
    pool_set_ready(fixture.pool, fixture_endpoint(&fixture, A), false);
    expect(&fixture, described, ST_OK,
           "  10.0.0.1:8000                 yes   no                      0     -\n");
    expect(&fixture, described, ST_OK,
           "  10.0.0.2:8000                 yes   not checked yet         0     1\n");
    pool_set_ready(fixture.pool, fixture_endpoint(&fixture, B), true);
    expect(&fixture, described, ST_OK,
           "  [::1]:8000                    yes   not checked yet         0     2\n");
    expect(&fixture, described, ST_OK, "outcome     10.0.0.2:8000\n");
    fixture_close(&fixture);
}

/* Full endpoints are left out before the filters run, and included again where the filters leave no
 * other: a session's endpoint is one that is not full; a request waits for the only one with a
 * label. */
static void explain_full_endpoints_are_excluded_before_filters(void **state) {
    static const struct pool_label label = {STR("a"), STR("b")};
    (void)state;
    for (int by_label = 0; by_label < 2; by_label++) {
        struct fixture fixture;
        struct pool_spec *spec = fixture_spec();
        struct pool_pick picks[2];
        struct error err;
        struct doc *doc;
        for (uint32_t i = 0; i < 3; i++) {
            struct pool_spec_endpoint wanted = {.address = fixture_numbered(i),
                                                .labels = {&label, i < 2}};
            pool_spec_add_endpoint(spec, &wanted);
        }
        struct profile_step filter = {.plugin = by_label ? &plugin_label_selector_filter
                                                         : &plugin_session_hash_filter};
        struct profile profile = {
            .filters = &filter, .n_filters = 1, .picker = {.plugin = &plugin_max_score_picker}};
        assert_int_equal(doc_parse(DOC_YAML, "p", STR("{matchLabels: {a: b}}"), &doc, &err), ST_OK);
        struct doc_node node = doc_root(doc);
        if (by_label) {
            assert_int_equal(
                plugin_read_parameters(filter.plugin, &node, spec->arena, &filter.parameters, &err),
                ST_OK);
        }
        doc_free(doc);
        spec->profile = &profile;
        spec->max_in_flight = 1;
        spec->flow_control.on = true;
        fixture_open(&fixture, spec);
        struct pool_request request = {.session = STR("s")};
        struct pick_described_request described = {.session = STR("s")};
        for (int i = 0; i < 2; i++) { /* the third one is removed, in one case for all */
            assert_int_equal(pool_pick(fixture.reader, &request, &picks[i], &err), ST_OK);
        }
        expect(&fixture, described, ST_OK,
               by_label ? "outcome     queued: every endpoint is full (max_in_flight)\n"
                        : "outcome     10.0.0.");
        pool_release_ticket(fixture.pool, &picks[0].ticket);
        expect(&fixture, described, ST_OK, "outcome     10.0.0.");
        pool_release_ticket(fixture.pool, &picks[1].ticket);
        fixture_close(&fixture);
    }
}

static void explain_saturation_is_printed(void **state) {
    (void)state;
    struct fixture fixture;
    struct pool_spec *spec = three();
    struct pool_objective batch = {STR("batch"), -1};
    spec->max_in_flight = 1;
    pool_spec_add_objective(spec, &batch);
    fixture_open(&fixture, spec);
    struct pool_pick picks[3];
    struct pick_described_request described = {.objective = STR("batch")};
    expect(&fixture, described, ST_OK, "objective   batch, priority -1; sheddable\n");
    for (int i = 0; i < 3; i++) {
        picks[i] = fixture_pick(&fixture);
    }
    expect(&fixture, described, ST_SATURATED, "refused with 429 (gRPC: 8) SATURATED");
    described.objective = STR("other");
    expect(&fixture, described, ST_OK, "other, unknown to the configuration\n");
    spec = three();
    spec->max_in_flight = 1;
    spec->flow_control.on = true;
    fixture_update(fixture.pool, spec);
    expect(&fixture, described, ST_OK,
           "outcome     queued: every endpoint is full (max_in_flight)\n");
    char text[ENDPOINT_TEXT_BYTES + 16];
    snprintf(text, sizeof(text), "outcome     %s\n", picks[1].ticket.endpoint->text);
    pool_release_ticket(fixture.pool, &picks[1].ticket);
    expect(&fixture, described, ST_OK, text);
    pool_release_ticket(fixture.pool, &picks[0].ticket);
    pool_release_ticket(fixture.pool, &picks[2].ticket);
    fixture_close(&fixture);
}

/* ---- profiles -------------------------------------------------------------------------------- */

static void say(struct fixture *fixture, const char *text, uint32_t n_waiting, float used) {
    struct endpoint_load load = {.until_ns = UINT64_MAX,
                                 .known = LOAD_WAITING | LOAD_KV_CACHE,
                                 .n_waiting = n_waiting,
                                 .kv_cache_used = used};
    pool_set_load(fixture->pool, fixture_endpoint(fixture, text), &load);
}

static void explain_profile_scores_are_printed(void **state) {
    (void)state;
    struct fixture fixture;
    struct pick_described_request described = {.method = STR("GET")};
    fixture_open(&fixture, three());
    say(&fixture, A, 4, 0.25f);
    say(&fixture, B, 0, 0.5f);
    struct pool_pick body_buffer = fixture_pick(&fixture); /* C, without a report */
    expect(&fixture, described, ST_OK,
           "  profile                       waiting  running  KV cache  queue-scorer x 2"
           "  kv-cache-utilization-scorer x 2  prefix-cache-scorer x 3"
           "  active-request-scorer x 2      sum\n"
           "  10.0.0.1:8000                       4  (    0)    25.0 %             0.000"
           "                            0.750"
           "                    0.000                      1.000    3.500\n"
           "  10.0.0.2:8000                       0  (    0)    50.0 %             1.000"
           "                            0.500"
           "                    0.000                      1.000    5.000\n"
           "  [::1]:8000                    (    1)  (    1)         ?             0.750"
           "                            0.625"
           "                    0.000                      0.000    2.750\n"
           "  picker: max-score-picker\n");
    expect(&fixture, described, ST_OK,
           "  10.0.0.1:8000                 yes   yes                     0     2\n");
    expect(&fixture, described, ST_OK, "outcome     10.0.0.2:8000\n");
    pool_release_ticket(fixture.pool, &body_buffer.ticket);
    fixture_close(&fixture);
}

static void explain_other_picker_is_named(void **state) {
    (void)state;
    static const struct profile any = {
        .picker = {.plugin = &plugin_random_picker, .name = STR("any")}};
    struct fixture fixture;
    struct pick_described_request described = {.method = STR("GET"),
                                               .subset = STR("10.0.0.1:8000,10.0.0.2:8000")};
    struct pool_spec *spec = three();
    spec->profile = &any;
    fixture_open(&fixture, spec);
    expect(&fixture, described, ST_OK, "outcome     one of the 2, chosen by random-picker\n");
    fixture_close(&fixture);
}

/* ---- agreement with picks -------------------------------------------------------------------- */

enum { N_ROUNDS = 3000, N_ENDPOINTS = 6 };

static bool coin(struct prng *prng) {
    return prng_next(prng) % 2;
}

static struct pool_spec *random_spec(struct prng *prng) {
    static const struct pool_target zero[] = {{STR("t"), 0}}, one[] = {{STR("t"), 1}};
    static const struct str names[] = {STR("r")};
    struct pool_rewrite rewrite = {names, coin(prng), {coin(prng) ? one : zero, 1}};
    struct pool_objective objective = {STR("o"), coin(prng) ? -1 : 1};
    struct pool_spec *spec = fixture_spec_of((uint32_t)(prng_next(prng) % (N_ENDPOINTS + 1)));
    spec->strict_models = coin(prng);
    spec->max_in_flight = prng_next(prng) % 3;
    add_model(spec, "m", coin(prng) ? POOL_SHEDDABLE : POOL_CRITICAL, (struct pool_targets){0});
    pool_spec_add_objective(spec, &objective);
    if (coin(prng)) {
        pool_spec_add_rewrite(spec, &rewrite);
    }
    return spec;
}

/* Some of the pool's addresses and one outside it. */
static struct str random_list(struct prng *prng, struct arena *arena) {
    struct str list = STR("9.9.9.9:1");
    for (uint32_t i = 0; i < N_ENDPOINTS; i++) {
        char text[ENDPOINT_TEXT_BYTES];
        struct endpoint_address address = fixture_numbered(i);
        if (coin(prng)) {
            list = arena_printf(arena, "%.*s,%s", STR_ARG(list),
                                endpoint_address_print(&address, text).ptr);
        }
    }
    return list;
}

static struct pick_described_request random_question(struct prng *prng, struct arena *arena) {
    static const char *const models[] = {"m", "n", "r"};
    struct pick_described_request described = {.method = STR("POST"),
                                               .path = STR("/v1/completions")};
    if (coin(prng)) {
        described.model = str_of(models[prng_next(prng) % 3]);
    }
    if (coin(prng)) {
        described.objective = coin(prng) ? STR("o") : STR("p");
    }
    if (coin(prng)) {
        described.subset = random_list(prng, arena);
    }
    return described;
}

/* As a session does. */
static enum status pick(struct fixture *fixture, const struct pick_described_request *described,
                        struct arena *arena, struct pool_pick *out) {
    struct subset subset;
    struct error err;
    subset_init(&subset, false);
    if (described->subset.ptr) {
        assert_int_equal(subset_add_list(&subset, arena, described->subset, &err), ST_OK);
    }
    struct pool_request request = {.model = described->model,
                                   .objective = described->objective,
                                   .subset = described->subset.ptr ? &subset : NULL};
    return pool_pick(fixture->reader, &request, out, &err);
}

static void compare_one(struct fixture *fixture, struct prng *prng) {
    struct arena *arena = arena_new(NULL, 0);
    struct pick_described_request described = random_question(prng, arena);
    struct sent sent = ask(fixture, described);
    struct pool_pick picked;
    struct pool_stats before, after;
    pool_get_stats(fixture->pool, &before);
    enum status st = pick(fixture, &described, arena, &picked);
    if (st != sent.status) {
        fail_msg("picked: %s, explained:\n%s", status_name(st), sent.text.data);
    }
    if (st == ST_OK) { /* it has rank 1 */
        const char *row = strstr(sent.text.data, picked.endpoints[0]->text);
        const char *end = row ? strchr(row, '\n') : NULL;
        assert_true(end && memcmp(end - 4, "   1", 4) == 0);
        pool_release_ticket(fixture->pool, &picked.ticket);
    }
    pool_get_stats(fixture->pool, &after);
    assert_int_equal(before.n_in_flight, after.n_in_flight);
    arena_free(sent.arena);
    arena_free(arena);
}

/* Load reports of some endpoints. */
static void say_loads(struct fixture *fixture, struct prng *prng) {
    const struct pool_snapshot *snapshot = pool_reader_refresh(fixture->reader);
    for (uint32_t i = 0; i < snapshot->n_members; i++) {
        const struct endpoint *endpoint = snapshot->members[i].endpoint;
        struct endpoint_load load = {.until_ns = clock_now_ns() + prng_below(prng, 2),
                                     .in_flight = endpoint_in_flight(endpoint),
                                     .known = prng_below(prng, 16),
                                     .n_waiting = prng_below(prng, 3),
                                     .n_running = prng_below(prng, 3),
                                     .kv_cache_used = (float)prng_below(prng, 3) / 2};
        if (coin(prng)) {
            pool_set_load(fixture->pool, endpoint, &load);
        }
    }
}

/* Some endpoints have requests, some refused a connection. */
static size_t stir(struct fixture *fixture, struct prng *prng, struct pool_pick *body_buffer) {
    size_t n = 0;
    struct pool_request any = {.model = {NULL, 0}};
    struct error err;
    while (n < N_ENDPOINTS && coin(prng) &&
           pool_pick(fixture->reader, &any, &body_buffer[n], &err) == ST_OK) {
        n++;
    }
    if (n > 0 && coin(prng)) {
        pool_report_refused(fixture->pool, body_buffer[0].ticket.endpoint);
    }
    return n;
}

static void explain_outcome_agrees_with_pick(void **state) {
    (void)state;
    struct prng prng = {7};
    clock_set_fake_ns(1000000000);
    for (int i = 0; i < N_ROUNDS; i++) {
        struct pool_pick body_buffer[N_ENDPOINTS];
        struct fixture fixture;
        fixture_open(&fixture, random_spec(&prng));
        size_t n = stir(&fixture, &prng, body_buffer);
        if (coin(&prng)) {
            say_loads(&fixture, &prng);
        }
        compare_one(&fixture, &prng);
        while (n > 0) {
            pool_release_ticket(fixture.pool, &body_buffer[--n].ticket);
        }
        fixture_close(&fixture);
    }
    clock_set_fake_ns(0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(explain_model_source_is_printed),
        cmocka_unit_test(explain_model_targets_are_printed),
        cmocka_unit_test(explain_endpoints_are_ranked),
        cmocka_unit_test(explain_unchecked_endpoint_is_marked),
        cmocka_unit_test(explain_saturation_is_printed),
        cmocka_unit_test(explain_full_endpoints_are_excluded_before_filters),
        cmocka_unit_test(explain_profile_scores_are_printed),
        cmocka_unit_test(explain_other_picker_is_named),
        cmocka_unit_test(explain_outcome_agrees_with_pick),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
