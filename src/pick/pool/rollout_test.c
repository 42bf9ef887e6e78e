/* While a set of servers is rolled out, the stages of a request get servers of one revision, and a
 * revision gets its share of the requests. */
#include "pick/pool/rollout.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "pick/pool/pool_fixture.h"
#include "pick/pool/profile/profile.h"

#define REVISION "disaggregatedset.x-k8s.io/revision"
#define ROLE "disaggregatedset.x-k8s.io/role"

enum { N_REQUESTS = 4000 };

static struct rollout_screener screener_of(enum rollout_mode mode) {
    return (struct rollout_screener){.mode = mode,
                                     .revision_label = STR(REVISION),
                                     .role_label = STR(ROLE),
                                     .roles = {STR("prefill"), STR("decode")},
                                     .n_roles = 2};
}

static void add_servers_in_zone(struct pool_spec *spec, const char *revision, const char *role,
                                const char *zone, uint32_t n) {
    struct pool_label *labels = arena_calloc(spec->arena, 3, sizeof(*labels));
    labels[0] = (struct pool_label){STR(REVISION), str_of(revision)};
    labels[1] = (struct pool_label){STR(ROLE), str_of(role)};
    labels[2] = (struct pool_label){STR("zone"), str_of(zone)};
    for (uint32_t i = 0; i < n; i++) {
        struct pool_spec_endpoint wanted = {
            .address = fixture_numbered((uint32_t)spec->n_endpoints), .labels = {labels, 3}};
        pool_spec_add_endpoint(spec, &wanted);
    }
}

static void add_servers(struct pool_spec *spec, const char *revision, const char *role,
                        uint32_t n) {
    add_servers_in_zone(spec, revision, role, "x", n);
}

/* In the middle of a rollout: A 2 and 9, B 1 and 1, and C without a server that prefills. */
static void open_rollout(struct fixture *f, const struct rollout_screener *screener) {
    struct pool_spec *spec = fixture_spec();
    add_servers(spec, "A", "prefill", 2);
    add_servers(spec, "A", "decode", 9);
    add_servers(spec, "B", "prefill", 1);
    add_servers(spec, "B", "decode", 1);
    add_servers(spec, "C", "decode", 4);
    spec->profile = &PROFILE_DEFAULT;
    spec->rollout = screener;
    spec->max_in_flight = 0;
    fixture_open(f, spec);
}

static struct str label_of(struct fixture *f, const struct endpoint *endpoint, const char *key) {
    const struct pool_snapshot *snapshot = pool_reader_refresh(f->reader);
    const struct pool_member *member = pool_snapshot_find(snapshot, &endpoint->address);
    return pool_labels_find(member->labels, str_of(key))->value;
}

/* The share of B in percent, of requests with two stages each. */
static unsigned share_of_b(enum rollout_mode mode) {
    struct rollout_screener screener = screener_of(mode);
    struct fixture f;
    unsigned n_b = 0;
    open_rollout(&f, &screener);
    for (unsigned i = 0; i < N_REQUESTS; i++) {
        struct pool_request first = {.n_fallbacks = 0}, second = {.n_fallbacks = 0};
        struct pool_pick one, other;
        struct error err;
        assert_int_equal(pool_pick(f.reader, &first, &one, &err), ST_OK);
        second.fellow = one.ticket.endpoint;
        assert_int_equal(pool_pick(f.reader, &second, &other, &err), ST_OK);
        struct str revision = label_of(&f, one.ticket.endpoint, REVISION);
        assert_true(str_eq(revision, label_of(&f, other.ticket.endpoint, REVISION)));
        assert_false(str_is(revision, "C"));
        n_b += str_is(revision, "B");
        pool_release_ticket(f.pool, &one.ticket);
        pool_release_ticket(f.pool, &other.ticket);
    }
    fixture_close(&f);
    return n_b * 100 / N_REQUESTS;
}

static void rollout_stages_have_one_revision_by_its_share(void **state) {
    (void)state;
    assert_in_range(share_of_b(ROLLOUT_MAX_ROLE), 8, 12); /* 1 of 10 that decode */
    assert_in_range(share_of_b(ROLLOUT_SUM), 13, 17);     /* 2 of 13 */
}

static void set_ready(struct fixture *f, const char *revision, const char *role, bool ready) {
    const struct pool_snapshot *snapshot = pool_reader_refresh(f->reader);
    for (uint32_t i = 0; i < snapshot->n_members; i++) {
        struct endpoint *endpoint = snapshot->members[i].endpoint;
        if (str_is(label_of(f, endpoint, REVISION), revision) &&
            str_is(label_of(f, endpoint, ROLE), role)) {
            pool_set_ready(f->pool, endpoint, ready);
        }
    }
}

static void set_all_ready(struct fixture *f) {
    static const char *const revisions[] = {"A", "B", "C"};
    for (size_t i = 0; i < 3; i++) {
        set_ready(f, revisions[i], "prefill", true);
        set_ready(f, revisions[i], "decode", true);
    }
}

static void rollout_revision_without_a_ready_role_gets_nothing(void **state) {
    struct rollout_screener screener = screener_of(ROLLOUT_MAX_ROLE);
    struct fixture f;
    struct pool_request request = {.n_fallbacks = 0};
    struct pool_pick pick;
    struct error err;
    (void)state;
    struct pool_spec *spec = fixture_spec();
    add_servers(spec, "A", "prefill", 1);
    add_servers(spec, "A", "decode", 3);
    add_servers(spec, "B", "prefill", 1);
    add_servers(spec, "B", "decode", 1);
    spec->profile = &PROFILE_DEFAULT;
    spec->rollout = &screener;
    spec->health = (struct pool_health){.kind = POOL_HEALTH_TCP,
                                        .interval_ns = 1,
                                        .timeout_ns = 1,
                                        .n_healthy = 1,
                                        .n_unhealthy = 1};
    fixture_open(&f, spec);
    set_all_ready(&f);
    set_ready(&f, "A", "prefill", false);
    for (unsigned i = 0; i < 100; i++) {
        assert_int_equal(pool_pick(f.reader, &request, &pick, &err), ST_OK);
        assert_true(str_is(label_of(&f, pick.ticket.endpoint, REVISION), "B"));
        pool_release_ticket(f.pool, &pick.ticket);
    }
    set_ready(&f, "B", "decode", false);
    assert_int_equal(pool_pick(f.reader, &request, &pick, &err), ST_NO_ENDPOINT);
    assert_non_null(strstr(err.text, "has a ready endpoint of each role"));
    set_ready(&f, "A", "prefill", true);
    assert_int_equal(pool_pick(f.reader, &request, &pick, &err), ST_OK);
    assert_true(str_is(label_of(&f, pick.ticket.endpoint, REVISION), "A"));
    pool_release_ticket(f.pool, &pick.ticket);
    fixture_close(&f);
}

static struct str find_header(const void *of, struct str name) {
    return str_is(name, "x-disagg-revision") ? str_of(of) : str_make(NULL, 0);
}

static void rollout_header_selects_a_revision(void **state) {
    struct rollout_screener screener = screener_of(ROLLOUT_SUM);
    struct fixture f;
    struct pool_pick pick;
    struct error err;
    (void)state;
    screener.selectors[0] =
        (struct rollout_selector){STR("revision"), STR("x-disagg-revision"), STR(REVISION)};
    screener.n_selectors = 1;
    open_rollout(&f, &screener);
    struct pool_request request = {.headers = {.find = find_header, .of = "B"}};
    for (unsigned i = 0; i < 100; i++) {
        assert_int_equal(pool_pick(f.reader, &request, &pick, &err), ST_OK);
        assert_true(str_is(label_of(&f, pick.ticket.endpoint, REVISION), "B"));
        pool_release_ticket(f.pool, &pick.ticket);
    }
    request.headers.of = ""; /* as without it */
    assert_int_equal(pool_pick(f.reader, &request, &pick, &err), ST_OK);
    pool_release_ticket(f.pool, &pick.ticket);
    request.headers.of = "C"; /* lacks a role */
    assert_int_equal(pool_pick(f.reader, &request, &pick, &err), ST_NO_ENDPOINT);
    request.headers.of = "D";
    assert_int_equal(pool_pick(f.reader, &request, &pick, &err), ST_NO_ENDPOINT);
    assert_non_null(strstr(err.text, "the header x-disagg-revision asks for"));
    screener.mode = ROLLOUT_DISABLED;
    request.headers.of = "C";
    assert_int_equal(pool_pick(f.reader, &request, &pick, &err), ST_OK);
    pool_release_ticket(f.pool, &pick.ticket);
    fixture_close(&f);
}

static void rollout_scope_leaves_other_servers_out_of_the_counts(void **state) {
    static const struct pool_label other = {STR("set"), STR("other")};
    struct rollout_screener screener = screener_of(ROLLOUT_SUM);
    struct fixture f;
    struct pool_request request = {.n_fallbacks = 0};
    struct pool_pick pick;
    struct error err;
    (void)state;
    screener.scope = (struct pool_labels){&other, 1};
    open_rollout(&f, &screener);
    assert_int_equal(pool_pick(f.reader, &request, &pick, &err), ST_NO_ENDPOINT);
    fixture_close(&f);
}

/* The revision of each of many picks is `revision`; none is refused. */
static void assert_revision(struct fixture *f, const struct pool_request *request,
                            const char *revision) {
    for (unsigned i = 0; i < 200; i++) {
        struct pool_pick pick;
        struct error err = {0};
        if (pool_pick(f->reader, request, &pick, &err) != ST_OK) {
            fail_msg("pick %u was refused: %s", i, err.text);
        }
        assert_true(str_is(label_of(f, pick.ticket.endpoint, REVISION), revision));
        pool_release_ticket(f->pool, &pick.ticket);
    }
}

static void rollout_subset_gets_its_own_revisions_only(void **state) {
    enum { FIRST_OF_C = 13, N_ALL = 17, N_A = 11 };
    struct rollout_screener screener = screener_of(ROLLOUT_SUM);
    struct fixture f;
    struct subset of_a, of_c;
    struct pool_pick pick;
    struct error err;
    struct arena *arena = arena_new(NULL, 0);
    (void)state;
    open_rollout(&f, &screener);
    subset_init(&of_a, false);
    subset_init(&of_c, false);
    for (uint32_t i = 0; i < N_ALL; i++) {
        char text[ENDPOINT_TEXT_BYTES];
        struct endpoint_address address = fixture_numbered(i);
        struct subset *subset = i < N_A ? &of_a : i >= FIRST_OF_C ? &of_c : NULL;
        if (subset) {
            endpoint_address_print(&address, text);
            assert_int_equal(subset_add(subset, arena, str_of(text), &err), ST_OK);
        }
    }
    assert_revision(&f, &(struct pool_request){.subset = &of_a}, "A");
    struct pool_request request = {.subset = &of_c}; /* lacks a role */
    assert_int_equal(pool_pick(f.reader, &request, &pick, &err), ST_NO_ENDPOINT);
    assert_non_null(strstr(err.text, "no revision that the request may use"));
    fixture_close(&f);
    arena_free(arena);
}

static bool decodes(const void *parameters, const struct candidate_set *candidates, uint32_t i) {
    (void)parameters;
    struct pool_labels labels = candidate_set_member(candidates, i)->labels;
    return str_is(pool_labels_find(labels, STR(ROLE))->value, "decode");
}

static void keep_decoders(const void *parameters, struct candidate_set *candidates) {
    candidate_set_filter(candidates, parameters, decodes);
}

/* As of a stage: those that decode. */
static const struct plugin FILTER = {
    .type = "decoders", .kind = PLUGIN_FILTER, .filter = keep_decoders};
static const struct profile_step FILTERS[] = {{.plugin = &FILTER, .name = STR("decoders")}};
static const struct profile_step SCORERS[] = {
    {.plugin = &plugin_active_request_scorer, .weight = 1, .name = STR("active-request-scorer")}};
static const struct profile DECODE = {.name = STR("decode"),
                                      .filters = FILTERS,
                                      .n_filters = 1,
                                      .scorers = SCORERS,
                                      .n_scorers = 1,
                                      .picker = {.plugin = &plugin_max_score_picker},
                                      .needs = {.n_prefixes = 1}};
static const struct profile ANY_ROLE = {.name = STR("any"),
                                        .scorers = SCORERS,
                                        .n_scorers = 1,
                                        .picker = {.plugin = &plugin_max_score_picker},
                                        .needs = {.n_prefixes = 1}};

static void refuse(struct fixture *f, uint32_t i) {
    struct endpoint_address address = fixture_numbered(i);
    const struct pool_member *member = pool_snapshot_find(pool_reader_refresh(f->reader), &address);
    pool_report_refused(f->pool, member->endpoint);
    assert_true(endpoint_is_avoided(member->endpoint));
}

static void rollout_revision_whose_role_is_avoided_gets_nothing(void **state) {
    struct rollout_screener screener = screener_of(ROLLOUT_SUM);
    struct fixture f;
    (void)state;
    struct pool_spec *spec = fixture_spec();
    add_servers(spec, "A", "prefill", 1);
    add_servers(spec, "A", "decode", 1);
    add_servers(spec, "B", "prefill", 3);
    add_servers(spec, "B", "decode", 1);
    spec->profile = &DECODE;
    spec->rollout = &screener;
    spec->max_in_flight = 0;
    spec->refused_ns = UINT64_MAX / 4;
    fixture_open(&f, spec);
    refuse(&f, 5);
    assert_revision(&f, &(struct pool_request){.n_fallbacks = 0}, "A");
    fixture_close(&f);
}

static void rollout_avoided_roles_count_where_no_others_are_left(void **state) {
    struct rollout_screener screener = screener_of(ROLLOUT_SUM);
    struct fixture f;
    (void)state;
    struct pool_spec *spec = fixture_spec();
    add_servers(spec, "A", "prefill", 1);
    add_servers(spec, "A", "decode", 1);
    spec->profile = &ANY_ROLE;
    spec->rollout = &screener;
    spec->refused_ns = UINT64_MAX / 4;
    fixture_open(&f, spec);
    refuse(&f, 1);
    assert_revision(&f, &(struct pool_request){.n_fallbacks = 0}, "A");
    refuse(&f, 0);
    assert_revision(&f, &(struct pool_request){.n_fallbacks = 0}, "A");
    fixture_close(&f);
}

/* The header leaves one server of each revision, C lacks a role, and B has most servers: without a
 * draw the server with the fewest requests in flight is picked each time. */
static void rollout_header_of_another_label_draws_no_revision(void **state) {
    struct rollout_screener screener = screener_of(ROLLOUT_SUM);
    struct fixture f;
    struct pool_pick busy;
    struct error err;
    (void)state;
    screener.selectors[0] =
        (struct rollout_selector){STR("zone"), STR("x-disagg-revision"), STR("zone")};
    screener.n_selectors = 1;
    struct pool_spec *spec = fixture_spec();
    add_servers_in_zone(spec, "A", "prefill", "y", 1);
    add_servers_in_zone(spec, "A", "decode", "x", 1);
    add_servers_in_zone(spec, "B", "prefill", "x", 9);
    add_servers_in_zone(spec, "B", "decode", "y", 1);
    add_servers_in_zone(spec, "C", "decode", "y", 1);
    spec->profile = &ANY_ROLE;
    spec->rollout = &screener;
    spec->max_in_flight = 0;
    fixture_open(&f, spec);
    struct pool_request request = {.headers = {.find = find_header, .of = "y"}};
    request.fellow = fixture_endpoint(&f, "10.0.0.11:8000"); /* B's */
    assert_int_equal(pool_pick(f.reader, &request, &busy, &err), ST_OK);
    request.fellow = NULL;
    assert_revision(&f, &request, "A");
    pool_release_ticket(f.pool, &busy.ticket);
    fixture_close(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rollout_stages_have_one_revision_by_its_share),
        cmocka_unit_test(rollout_revision_without_a_ready_role_gets_nothing),
        cmocka_unit_test(rollout_header_selects_a_revision),
        cmocka_unit_test(rollout_scope_leaves_other_servers_out_of_the_counts),
        cmocka_unit_test(rollout_subset_gets_its_own_revisions_only),
        cmocka_unit_test(rollout_revision_whose_role_is_avoided_gets_nothing),
        cmocka_unit_test(rollout_avoided_roles_count_where_no_others_are_left),
        cmocka_unit_test(rollout_header_of_another_label_draws_no_revision),
    };
    return cmocka_run_group_tests_name("pick/pool/rollout", tests, NULL, NULL);
}
