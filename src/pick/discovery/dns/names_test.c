/* When names are queried again, and which addresses stay when queries fail, by a clock that the
 * test drives. */
#include "pick/discovery/dns/names.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "pick/pool/pool_fixture.h"

static const uint64_t SECOND = 1000000000;
static const uint64_t BEGIN = UINT64_C(1000000000000);

struct rig {
    struct dns_names names;
    struct pool_spec *spec; /* the plan in use */
    uint64_t now_ns;
};

static const uint16_t PORTS[] = {80, 81};

static void want(struct rig *rig, const char *name, enum dns_records records) {
    struct dns_plan_name wanted = {.name = str_of(name),
                                   .records = records,
                                   .ports = PORTS,
                                   .n_ports = records == DNS_RECORDS_SRV ? 0 : 2};
    struct error err;
    assert_int_equal(dns_plan_add(rig->spec, &wanted, &err), ST_OK);
}

static void rig_init(struct rig *rig) {
    *rig = (struct rig){.spec = fixture_spec(), .now_ns = BEGIN};
    assert_non_null(dns_plan_get(rig->spec));
}

static void follow(struct rig *rig) {
    struct pool_specs specs = {.items = &rig->spec, .n = 1};
    assert_true(dns_names_set_pools(&rig->names, &specs, rig->now_ns));
}

static void rig_fini(struct rig *rig) {
    dns_names_fini(&rig->names);
    pool_spec_free(rig->spec);
}

static struct dns_name *take_due(struct rig *rig, const char *wanted) {
    struct dns_name *name = dns_names_pop_due(&rig->names, rig->now_ns);
    assert_non_null(name);
    assert_string_equal(name->name, wanted);
    return name;
}

/* Finishes with 10.0.0.`first` and the following, `n` addresses. */
static bool finish_query(struct rig *rig, struct dns_name *name, enum dns_outcome outcome,
                         uint32_t first, size_t n, uint32_t ttl_s) {
    struct dns_query_address found[10];
    struct dns_result result = {
        .outcome = outcome, .found = found, .n_found = n, .ttl_s = ttl_s, .error.status = ST_OK};
    if (outcome != DNS_FOUND) {
        error_set(&result.error, ST_IO, "why");
    }
    for (uint32_t i = 0; i < n; i++) {
        found[i] =
            (struct dns_query_address){.address = {.family = 4, .low = (10u << 24) + first + i}};
    }
    return dns_names_finish(&rig->names, name, &result, rig->now_ns);
}

static uint64_t wait_of(const struct rig *rig) {
    return dns_names_next_ns(&rig->names) - rig->now_ns;
}

/* Advances to the next due name and takes it. */
static struct dns_name *take_next(struct rig *rig) {
    uint64_t next_ns = dns_names_next_ns(&rig->names);
    assert_true(next_ns != UINT64_MAX);
    rig->now_ns = next_ns;
    struct dns_name *name = dns_names_pop_due(&rig->names, rig->now_ns);
    assert_non_null(name);
    return name;
}

/* ---- time ------------------------------------------------------------------------------------ */

static void names_ttl_of_answer_sets_next_query(void **state) {
    static const struct {
        uint32_t ttl_s;
        uint64_t wait_s;
    } rows[] = {{30, 30}, {1, 1}, {0, 1}, {300, 300}, {301, 300}, {UINT32_MAX, 300}};
    (void)state;
    struct rig rig;
    rig_init(&rig);
    want(&rig, "a", DNS_RECORDS_ANY);
    follow(&rig);
    assert_int_equal(wait_of(&rig), 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct dns_name *name = take_next(&rig);
        assert_int_equal(name->query_running, true);
        assert_null(dns_names_pop_due(&rig.names, rig.now_ns));
        assert_int_equal(finish_query(&rig, name, DNS_FOUND, 1, 1, rows[i].ttl_s), i == 0);
        assert_int_equal(wait_of(&rig), rows[i].wait_s * SECOND);
        assert_null(dns_names_pop_due(&rig.names, rig.now_ns + rows[i].wait_s * SECOND - 1));
    }
    rig_fini(&rig);
}

/* The wait doubles up to 30 s, with a random share; one answer resets it. */
static void names_failed_query_backs_off(void **state) {
    static const uint64_t waits_s[] = {1, 2, 4, 8, 16, 30, 30, 30};
    (void)state;
    struct rig rig;
    rig_init(&rig);
    want(&rig, "a", DNS_RECORDS_A);
    follow(&rig);
    assert_true(finish_query(&rig, take_next(&rig), DNS_FOUND, 1, 2, 5));
    for (size_t i = 0; i < sizeof(waits_s) / sizeof(waits_s[0]); i++) {
        struct dns_name *name = take_next(&rig);
        assert_false(finish_query(&rig, name, DNS_FAILED, 0, 0, 0));
        assert_int_equal(name->state, DNS_STATE_FAILING);
        assert_int_equal(name->n_found, 2);
        assert_in_range(wait_of(&rig), waits_s[i] * SECOND, waits_s[i] * SECOND * 5 / 4);
    }
    assert_false(finish_query(&rig, take_next(&rig), DNS_FOUND, 1, 2, 5));
    assert_int_equal(wait_of(&rig), 5 * SECOND);
    rig_fini(&rig);
}

/* Pickers that lost their server at the same time do not query it again at the same time. */
static void names_back_off_is_jittered(void **state) {
    (void)state;
    struct rig rigs[2];
    for (size_t i = 0; i < 2; i++) {
        rig_init(&rigs[i]);
        rigs[i].names.prng.state = 1 + i;
        want(&rigs[i], "a", DNS_RECORDS_A);
        follow(&rigs[i]);
        assert_false(finish_query(&rigs[i], take_next(&rigs[i]), DNS_FAILED, 0, 0, 0));
    }
    assert_int_not_equal(wait_of(&rigs[0]), wait_of(&rigs[1]));
    rig_fini(&rigs[0]);
    rig_fini(&rigs[1]);
}

/* ---- names without addresses ----------------------------------------------------------------- */

static void names_empty_answer_keeps_addresses_for_keep_time(void **state) {
    (void)state;
    struct rig rig;
    rig_init(&rig);
    want(&rig, "a", DNS_RECORDS_A);
    follow(&rig);
    struct dns_name *name = take_next(&rig);
    assert_true(finish_query(&rig, name, DNS_FOUND, 1, 2, 5));
    assert_false(finish_query(&rig, take_next(&rig), DNS_EMPTY, 0, 0, 0));
    uint64_t gone_ns = rig.now_ns;
    assert_int_equal(name->state, DNS_STATE_EMPTY);
    while (rig.now_ns < gone_ns + 30 * SECOND) {
        assert_int_equal(name->n_found, 2);
        take_next(&rig);
        /* Failures in between do not change the time. */
        bool fails = rig.now_ns - gone_ns < 10 * SECOND;
        assert_int_equal(finish_query(&rig, name, fails ? DNS_FAILED : DNS_EMPTY, 0, 0, 0),
                         rig.now_ns == gone_ns + 30 * SECOND);
    }
    assert_int_equal(rig.now_ns,
                     gone_ns + 30 * SECOND); /* queried exactly when the kept addresses expire */
    assert_int_equal(name->n_found, 0);
    take_next(&rig);
    assert_true(finish_query(&rig, name, DNS_FOUND, 7, 1, 5));
    assert_int_equal(name->none_ns, 0);
    rig_fini(&rig);
}

static void names_empty_first_answer_resolves_to_nothing(void **state) {
    (void)state;
    struct rig rig;
    rig_init(&rig);
    want(&rig, "a", DNS_RECORDS_A);
    follow(&rig);
    assert_int_equal(rig.names.n_unresolved, 1);
    assert_false(finish_query(&rig, take_next(&rig), DNS_EMPTY, 0, 0, 0));
    assert_int_equal(rig.names.n_unresolved, 0);
    assert_in_range(wait_of(&rig), SECOND, SECOND * 5 / 4);
    rig_fini(&rig);
}

/* A partial answer is used, and queried again as after a failure or at its TTL. */
static void names_partial_answer_is_used_and_retried(void **state) {
    (void)state;
    struct rig rig;
    rig_init(&rig);
    want(&rig, "a", DNS_RECORDS_ANY);
    follow(&rig);
    struct dns_name *name = take_next(&rig);
    assert_true(finish_query(&rig, name, DNS_PARTIAL, 1, 2, 60));
    assert_int_equal(name->state, DNS_STATE_PARTIAL);
    assert_in_range(wait_of(&rig), SECOND, SECOND * 5 / 4);
    for (int i = 0; i < 5; i++) {
        assert_false(finish_query(&rig, take_next(&rig), DNS_PARTIAL, 1, 2, 3));
    }
    assert_int_equal(wait_of(&rig), 3 * SECOND);
    rig_fini(&rig);
}

/* ---- plans ----------------------------------------------------------------------------------- */

static void names_changed_pools_add_and_remove(void **state) {
    (void)state;
    struct rig rig;
    rig_init(&rig);
    want(&rig, "a", DNS_RECORDS_ANY);
    want(&rig, "a", DNS_RECORDS_SRV); /* another record type is another name */
    want(&rig, "a", DNS_RECORDS_ANY); /* listed twice, one name */
    follow(&rig);
    assert_int_equal(rig.names.n, 2);
    struct dns_name *a = take_due(&rig, "a");
    struct dns_name *srv = take_due(&rig, "a");
    enum dns_records first = a->records;
    assert_true(finish_query(&rig, first == DNS_RECORDS_ANY ? a : srv, DNS_FOUND, 1, 2, 60));
    srv = first == DNS_RECORDS_SRV ? a : srv;
    rig.spec->dns->n_names = 1; /* only the first; the other is being queried */
    follow(&rig);
    assert_int_equal(rig.names.n, 1);
    assert_int_equal(rig.names.n_unresolved, 0);
    assert_true(srv->removed);
    assert_false(finish_query(&rig, srv, DNS_FOUND, 1, 2, 60)); /* it is freed */
    const struct dns_name *kept = dns_names_find(&rig.names, "a", DNS_RECORDS_ANY, "");
    assert_int_equal(kept->n_found, 2);
    assert_int_equal(wait_of(&rig), 60 * SECOND);
    assert_true(dns_names_set_pools(&rig.names, NULL, rig.now_ns));
    assert_null(dns_names_find(&rig.names, "a", DNS_RECORDS_ANY, ""));
    assert_int_equal(dns_names_next_ns(&rig.names), UINT64_MAX);
    rig_fini(&rig);
}

/* Two pools with the same servers share the query, and each has its own ports. */
static void names_shared_by_pools_are_queried_once(void **state) {
    (void)state;
    struct rig one, other;
    rig_init(&one);
    rig_init(&other);
    want(&one, "a", DNS_RECORDS_A);
    want(&other, "b", DNS_RECORDS_A);
    want(&other, "a", DNS_RECORDS_A);
    struct pool_spec *items[] = {one.spec, other.spec};
    struct pool_specs specs = {.items = items, .n = 2};
    assert_true(dns_names_set_pools(&one.names, &specs, one.now_ns));
    assert_int_equal(one.names.n, 2);
    for (int i = 0; i < 2; i++) {
        struct dns_name *name = take_next(&one);
        assert_true(finish_query(&one, name, DNS_FOUND, name->name[0] == 'a' ? 1 : 5, 1, 60));
    }
    dns_names_add_endpoints(&one.names, one.spec);
    dns_names_add_endpoints(&one.names, other.spec);
    assert_int_equal(one.spec->n_endpoints, 2);
    assert_int_equal(other.spec->n_endpoints, 4);
    other.spec->dns->servers = STR("127.0.0.1:53"); /* whose answer may differ */
    assert_true(dns_names_set_pools(&one.names, &specs, one.now_ns));
    assert_int_equal(one.names.n, 3);
    assert_int_equal(one.names.n_unresolved, 2);
    rig_fini(&one);
    rig_fini(&other);
}

static void names_changed_max_ttl_reschedules(void **state) {
    (void)state;
    struct rig rig;
    rig_init(&rig);
    want(&rig, "a", DNS_RECORDS_A);
    follow(&rig);
    assert_true(finish_query(&rig, take_next(&rig), DNS_FOUND, 1, 1, 200));
    rig.spec->dns->max_ttl_ns = 10 * SECOND;
    follow(&rig);
    assert_int_equal(wait_of(&rig), 10 * SECOND);
    rig_fini(&rig);
}

static void names_concurrent_queries_are_limited(void **state) {
    (void)state;
    static char texts[DNS_MAX_CONCURRENT_QUERIES + 4][8];
    struct dns_name *asked[DNS_MAX_CONCURRENT_QUERIES];
    struct rig rig;
    rig_init(&rig);
    for (int i = 0; i < DNS_MAX_CONCURRENT_QUERIES + 4; i++) {
        snprintf(texts[i], sizeof(texts[i]), "n%d", i);
        want(&rig, texts[i], DNS_RECORDS_A);
    }
    follow(&rig);
    for (int i = 0; i < DNS_MAX_CONCURRENT_QUERIES; i++) {
        asked[i] = dns_names_pop_due(&rig.names, rig.now_ns);
        assert_non_null(asked[i]);
    }
    assert_null(dns_names_pop_due(&rig.names, rig.now_ns));
    assert_int_equal(dns_names_next_ns(&rig.names), UINT64_MAX);
    dns_names_requeue(&rig.names, asked[0], rig.now_ns); /* due at once */
    assert_int_equal(wait_of(&rig), 0);
    for (int i = 1; i < DNS_MAX_CONCURRENT_QUERIES; i++) {
        finish_query(&rig, asked[i], DNS_FAILED, 0, 0, 0);
    }
    assert_int_equal(rig.names.n_unresolved, 5);
    rig_fini(&rig);
}

static void names_resolved_become_endpoints(void **state) {
    (void)state;
    struct rig rig;
    rig_init(&rig);
    want(&rig, "a", DNS_RECORDS_A);
    want(&rig, "never", DNS_RECORDS_A);
    follow(&rig);
    struct dns_name *name = take_next(&rig);
    while (strcmp(name->name, "a") != 0) {
        finish_query(&rig, name, DNS_FAILED, 0, 0, 0);
        name = take_next(&rig);
    }
    finish_query(&rig, name, DNS_FOUND, 1, 3, 60);
    dns_names_add_endpoints(&rig.names, rig.spec);
    assert_int_equal(rig.spec->n_endpoints, 6); /* at two ports */
    assert_int_equal(rig.spec->endpoints[0].address.port, 80);
    assert_int_equal(rig.spec->endpoints[5].address.port, 81);
    rig_fini(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_ttl_of_answer_sets_next_query),
        cmocka_unit_test(names_failed_query_backs_off),
        cmocka_unit_test(names_back_off_is_jittered),
        cmocka_unit_test(names_empty_answer_keeps_addresses_for_keep_time),
        cmocka_unit_test(names_empty_first_answer_resolves_to_nothing),
        cmocka_unit_test(names_partial_answer_is_used_and_retried),
        cmocka_unit_test(names_changed_pools_add_and_remove),
        cmocka_unit_test(names_shared_by_pools_are_queried_once),
        cmocka_unit_test(names_changed_max_ttl_reschedules),
        cmocka_unit_test(names_concurrent_queries_are_limited),
        cmocka_unit_test(names_resolved_become_endpoints),
    };
    return cmocka_run_group_tests_name("pick/discovery/dns/names", tests, NULL, NULL);
}
