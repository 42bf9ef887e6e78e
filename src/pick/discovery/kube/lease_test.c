/* Leader election between two candidates, each with its own clock. */
#include "pick/discovery/kube/lease.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const uint64_t S = 1000000000;

/* The lease on the server. */
struct served {
    bool exists;
    unsigned version;
    char holder[64];
    unsigned lasts_s, n_transitions;
};

static void see(struct kube_lease *lease, const struct served *served, uint64_t now_ns) {
    char text[400];
    struct doc *doc;
    struct error err;
    snprintf(text, sizeof(text),
             "metadata: {resourceVersion: '%u'}\n"
             "spec: {holderIdentity: '%s', leaseDurationSeconds: %u, leaseTransitions: %u}",
             served->version, served->holder, served->lasts_s, served->n_transitions);
    assert_int_equal(doc_parse(DOC_YAML, "lease", str_of(text), &doc, &err), ST_OK);
    struct doc_node root = doc_root(doc);
    kube_lease_observe(lease, served->exists ? &root : NULL, now_ns);
    doc_free(doc);
}

/* Applies the step as the server does. Returns: false if another candidate was faster. */
static bool do_step(struct kube_lease *lease, struct served *served, enum kube_lease_step step,
                    uint64_t now_ns) {
    struct arena *arena = arena_new(NULL, 0);
    struct buf body;
    struct doc *doc;
    struct error err;
    buf_init(&body, arena, 256);
    kube_lease_print(lease, step, "l", 1769903999000001, &body);
    assert_int_equal(doc_parse(DOC_JSON, "body", buf_str(&body), &doc, &err), ST_OK);
    yyjson_val *root = doc_root(doc).val;
    yyjson_val *version = yyjson_ptr_get(root, "/metadata/resourceVersion");
    char known[16];
    snprintf(known, sizeof(known), "%u", served->version);
    bool good = step == KUBE_LEASE_CREATE ? !served->exists : yyjson_equals_str(version, known);
    if (good) {
        yyjson_val *n = yyjson_ptr_get(root, "/spec/leaseTransitions");
        served->exists = true;
        served->version++;
        served->n_transitions = n ? (unsigned)yyjson_get_uint(n) : served->n_transitions;
        served->lasts_s =
            (unsigned)yyjson_get_uint(yyjson_ptr_get(root, "/spec/leaseDurationSeconds"));
        strcpy(served->holder, yyjson_get_str(yyjson_ptr_get(root, "/spec/holderIdentity")));
    }
    doc_free(doc);
    arena_free(arena);
    if (!good) {
        kube_lease_apply_conflict(lease);
        return false;
    }
    char text[400];
    snprintf(text, sizeof(text),
             "{metadata: {resourceVersion: '%u'}, spec: {holderIdentity: '%s', "
             "leaseDurationSeconds: %u}}",
             served->version, served->holder, served->lasts_s);
    assert_int_equal(doc_parse(DOC_YAML, "answer", str_of(text), &doc, &err), ST_OK);
    struct doc_node answer = doc_root(doc);
    kube_lease_apply_success(lease, step, &answer, now_ns, now_ns);
    doc_free(doc);
    return true;
}

/* Runs the next step, and after a GET the one that follows. Returns: the last step. */
static enum kube_lease_step turn(struct kube_lease *lease, struct served *served, uint64_t now_ns) {
    if (kube_lease_next(lease, now_ns) == KUBE_LEASE_GET) {
        see(lease, served, now_ns);
    }
    enum kube_lease_step step = kube_lease_next(lease, now_ns);
    if (step != KUBE_LEASE_GET && step != KUBE_LEASE_STOPPED) {
        (void)do_step(lease, served, step, now_ns);
    }
    return step;
}

static struct kube_lease of(const char *us) {
    struct kube_lease lease = {.known = false};
    strcpy(lease.identity, us);
    return lease;
}

static void lease_two_candidates_one_leads(void **state) {
    (void)state;
    struct kube_lease a = of("a"), b = of("b");
    struct served served = {.exists = false};
    uint64_t now = 100 * S;
    assert_int_equal(turn(&a, &served, now), KUBE_LEASE_CREATE);
    assert_true(kube_lease_is_leader(&a, now));
    for (int i = 0; i < 30; i++, now += KUBE_LEASE_RETRY_PERIOD_S * S) {
        assert_int_equal(turn(&a, &served, now), KUBE_LEASE_RENEW);
        assert_int_equal(turn(&b, &served, now + S), KUBE_LEASE_GET);
        assert_true(kube_lease_is_leader(&a, now + S));
        assert_false(kube_lease_is_leader(&b, now + S));
    }
    assert_string_equal(served.holder, "a");
    assert_int_equal(served.n_transitions, 0);
}

/* A silent holder stops leading before the other candidate begins, whatever their clocks are. */
static void lease_expired_is_acquired(void **state) {
    (void)state;
    struct kube_lease a = of("a"), b = of("b");
    struct served served = {.exists = false};
    uint64_t now = 100 * S, far = 1000000 * S; /* b's clock differs */
    turn(&a, &served, now);
    assert_int_equal(turn(&b, &served, far), KUBE_LEASE_GET);
    assert_int_equal(kube_lease_expires_ns(&a), now + KUBE_LEASE_RENEW_DEADLINE_S * S);
    assert_true(kube_lease_is_leader(&a, now + KUBE_LEASE_RENEW_DEADLINE_S * S - 1));
    assert_false(kube_lease_is_leader(&a, now + KUBE_LEASE_RENEW_DEADLINE_S * S));
    assert_int_equal(turn(&b, &served, far + KUBE_LEASE_DURATION_S * S - 1), KUBE_LEASE_GET);
    assert_int_equal(turn(&b, &served, far + KUBE_LEASE_DURATION_S * S), KUBE_LEASE_ACQUIRE);
    assert_true(kube_lease_is_leader(&b, far + KUBE_LEASE_DURATION_S * S));
    assert_int_equal(served.n_transitions, 1);
    /* The old holder comes back and observes the change. */
    now += 60 * S;
    assert_int_equal(kube_lease_next(&a, now), KUBE_LEASE_RENEW);
    assert_false(do_step(&a, &served, KUBE_LEASE_RENEW, now));
    assert_int_equal(turn(&a, &served, now), KUBE_LEASE_GET);
    assert_false(kube_lease_is_leader(&a, now));
}

static void lease_released_is_acquired_at_once(void **state) {
    (void)state;
    struct kube_lease a = of("a"), b = of("b");
    struct served served = {.exists = false};
    uint64_t now = 100 * S;
    turn(&a, &served, now);
    turn(&b, &served, now);
    a.resigned = true;
    assert_false(kube_lease_is_leader(&a, now));
    assert_int_equal(turn(&a, &served, now), KUBE_LEASE_RELEASE);
    assert_int_equal(turn(&a, &served, now), KUBE_LEASE_STOPPED);
    assert_int_equal(turn(&b, &served, now + S), KUBE_LEASE_ACQUIRE);
    assert_string_equal(served.holder, "b");
    assert_int_equal(served.lasts_s, KUBE_LEASE_DURATION_S);
    b.resigned = true;
    kube_lease_apply_conflict(&b); /* the state is unknown: nothing is written */
    assert_int_equal(kube_lease_next(&b, now), KUBE_LEASE_STOPPED);
}

/* Of two candidates at the same time one gets the lease. */
static void lease_conflict_lets_first_writer_lead(void **state) {
    (void)state;
    struct kube_lease a = of("a"), b = of("b");
    struct served served = {.exists = false};
    uint64_t now = 100 * S;
    see(&a, &served, now);
    see(&b, &served, now);
    assert_true(do_step(&b, &served, KUBE_LEASE_CREATE, now));
    assert_false(do_step(&a, &served, KUBE_LEASE_CREATE, now));
    assert_false(kube_lease_is_leader(&a, now));
    assert_int_equal(turn(&a, &served, now), KUBE_LEASE_GET);
    /* The lease is deleted under its holder; the first that observes it creates it again. */
    served.exists = false;
    kube_lease_apply_conflict(&b);
    assert_int_equal(turn(&b, &served, now + S), KUBE_LEASE_CREATE);
}

/* After a restart with the same identity the lease is ours, before the first renewal. */
static void lease_of_own_identity_is_renewed(void **state) {
    (void)state;
    struct kube_lease a = of("a");
    struct served served = {.exists = true, .version = 7, .holder = "a", .lasts_s = 15};
    see(&a, &served, 100 * S);
    assert_false(kube_lease_is_leader(&a, 100 * S));
    assert_int_equal(turn(&a, &served, 100 * S), KUBE_LEASE_RENEW);
    assert_true(kube_lease_is_leader(&a, 100 * S));
}

static void lease_steps_print_request_bodies(void **state) {
    (void)state;
    struct kube_lease a = of("a");
    struct arena *arena = arena_new(NULL, 0);
    struct buf out;
    struct served served = {
        .exists = true, .version = 7, .holder = "b", .lasts_s = 1, .n_transitions = 4};
    see(&a, &served, S);
    buf_init(&out, arena, 256);
    kube_lease_print(&a, KUBE_LEASE_ACQUIRE, "l", 1769903999000001, &out);
    assert_true(str_is(buf_str(&out),
                       "{\"metadata\":{\"resourceVersion\":\"7\"},\"spec\":{\"holderIdentity\":"
                       "\"a\",\"leaseDurationSeconds\":15,\"renewTime\":\"2026-01-31T23:59:59."
                       "000001Z\",\"acquireTime\":\"2026-01-31T23:59:59.000001Z\","
                       "\"leaseTransitions\":5}}"));
    arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lease_two_candidates_one_leads),
        cmocka_unit_test(lease_expired_is_acquired),
        cmocka_unit_test(lease_released_is_acquired_at_once),
        cmocka_unit_test(lease_conflict_lets_first_writer_lead),
        cmocka_unit_test(lease_of_own_identity_is_renewed),
        cmocka_unit_test(lease_steps_print_request_bodies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
