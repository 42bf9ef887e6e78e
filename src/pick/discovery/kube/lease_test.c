/* Who leads: a lease between two who see it, with times of their own. */
#include "pick/discovery/kube/lease.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const uint64_t S = 1000000000;

/* A lease as the server has it. */
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
    kube_lease_see(lease, served->exists ? &root : NULL, now_ns);
    doc_free(doc);
}

/* What is asked for is done as the server does it. Returns: it was; else somebody was faster. */
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
        kube_lease_missed(lease);
        return false;
    }
    char text[400];
    snprintf(text, sizeof(text),
             "{metadata: {resourceVersion: '%u'}, spec: {holderIdentity: '%s', "
             "leaseDurationSeconds: %u}}",
             served->version, served->holder, served->lasts_s);
    assert_int_equal(doc_parse(DOC_YAML, "answer", str_of(text), &doc, &err), ST_OK);
    struct doc_node answer = doc_root(doc);
    kube_lease_done(lease, step, &answer, now_ns, now_ns);
    doc_free(doc);
    return true;
}

/* Looks, if that is next, and does what follows. Returns: that. */
static enum kube_lease_step turn(struct kube_lease *lease, struct served *served, uint64_t now_ns) {
    if (kube_lease_next(lease, now_ns) == KUBE_LEASE_LOOK) {
        see(lease, served, now_ns);
    }
    enum kube_lease_step step = kube_lease_next(lease, now_ns);
    if (step != KUBE_LEASE_LOOK && step != KUBE_LEASE_REST) {
        (void)do_step(lease, served, step, now_ns);
    }
    return step;
}

static struct kube_lease of(const char *us) {
    struct kube_lease lease = {.known = false};
    strcpy(lease.us, us);
    return lease;
}

static void one_of_two_leads(void **state) {
    (void)state;
    struct kube_lease a = of("a"), b = of("b");
    struct served served = {.exists = false};
    uint64_t now = 100 * S;
    assert_int_equal(turn(&a, &served, now), KUBE_LEASE_CREATE);
    assert_true(kube_lease_leads(&a, now));
    for (int i = 0; i < 30; i++, now += KUBE_LEASE_RETRY_S * S) {
        assert_int_equal(turn(&a, &served, now), KUBE_LEASE_RENEW);
        assert_int_equal(turn(&b, &served, now + S), KUBE_LEASE_LOOK);
        assert_true(kube_lease_leads(&a, now + S));
        assert_false(kube_lease_leads(&b, now + S));
    }
    assert_string_equal(served.holder, "a");
    assert_int_equal(served.n_transitions, 0);
}

/* The one that went silent stops leading before the other begins, whatever their clocks say. */
static void a_silent_leader_is_followed(void **state) {
    (void)state;
    struct kube_lease a = of("a"), b = of("b");
    struct served served = {.exists = false};
    uint64_t now = 100 * S, far = 1000000 * S; /* b's clock is another one */
    turn(&a, &served, now);
    assert_int_equal(turn(&b, &served, far), KUBE_LEASE_LOOK);
    assert_int_equal(kube_lease_ends_ns(&a), now + KUBE_LEASE_LEADS_S * S);
    assert_true(kube_lease_leads(&a, now + KUBE_LEASE_LEADS_S * S - 1));
    assert_false(kube_lease_leads(&a, now + KUBE_LEASE_LEADS_S * S));
    assert_int_equal(turn(&b, &served, far + KUBE_LEASE_S * S - 1), KUBE_LEASE_LOOK);
    assert_int_equal(turn(&b, &served, far + KUBE_LEASE_S * S), KUBE_LEASE_TAKE);
    assert_true(kube_lease_leads(&b, far + KUBE_LEASE_S * S));
    assert_int_equal(served.n_transitions, 1);
    /* The old one comes back, and finds that out. */
    now += 60 * S;
    assert_int_equal(kube_lease_next(&a, now), KUBE_LEASE_RENEW);
    assert_false(do_step(&a, &served, KUBE_LEASE_RENEW, now));
    assert_int_equal(turn(&a, &served, now), KUBE_LEASE_LOOK);
    assert_false(kube_lease_leads(&a, now));
}

static void who_resigns_is_followed_at_once(void **state) {
    (void)state;
    struct kube_lease a = of("a"), b = of("b");
    struct served served = {.exists = false};
    uint64_t now = 100 * S;
    turn(&a, &served, now);
    turn(&b, &served, now);
    a.resigned = true;
    assert_false(kube_lease_leads(&a, now));
    assert_int_equal(turn(&a, &served, now), KUBE_LEASE_RELEASE);
    assert_int_equal(turn(&a, &served, now), KUBE_LEASE_REST);
    assert_int_equal(turn(&b, &served, now + S), KUBE_LEASE_TAKE);
    assert_string_equal(served.holder, "b");
    assert_int_equal(served.lasts_s, KUBE_LEASE_S);
    b.resigned = true;
    kube_lease_missed(&b); /* nobody knows whose it is: it is left alone */
    assert_int_equal(kube_lease_next(&b, now), KUBE_LEASE_REST);
}

/* Of two that want it at once one gets it. */
static void the_faster_one_gets_it(void **state) {
    (void)state;
    struct kube_lease a = of("a"), b = of("b");
    struct served served = {.exists = false};
    uint64_t now = 100 * S;
    see(&a, &served, now);
    see(&b, &served, now);
    assert_true(do_step(&b, &served, KUBE_LEASE_CREATE, now));
    assert_false(do_step(&a, &served, KUBE_LEASE_CREATE, now));
    assert_false(kube_lease_leads(&a, now));
    assert_int_equal(turn(&a, &served, now), KUBE_LEASE_LOOK);
    /* It was deleted under its holder, and is made again by whoever sees that first. */
    served.exists = false;
    kube_lease_missed(&b);
    assert_int_equal(turn(&b, &served, now + S), KUBE_LEASE_CREATE);
}

/* After a restart under the same name it is ours, though we have not asked for it yet. */
static void ours_of_before(void **state) {
    (void)state;
    struct kube_lease a = of("a");
    struct served served = {.exists = true, .version = 7, .holder = "a", .lasts_s = 15};
    see(&a, &served, 100 * S);
    assert_false(kube_lease_leads(&a, 100 * S));
    assert_int_equal(turn(&a, &served, 100 * S), KUBE_LEASE_RENEW);
    assert_true(kube_lease_leads(&a, 100 * S));
}

static void what_is_sent(void **state) {
    (void)state;
    struct kube_lease a = of("a");
    struct arena *arena = arena_new(NULL, 0);
    struct buf out;
    struct served served = {
        .exists = true, .version = 7, .holder = "b", .lasts_s = 1, .n_transitions = 4};
    see(&a, &served, S);
    buf_init(&out, arena, 256);
    kube_lease_print(&a, KUBE_LEASE_TAKE, "l", 1769903999000001, &out);
    assert_true(str_is(buf_str(&out),
                       "{\"metadata\":{\"resourceVersion\":\"7\"},\"spec\":{\"holderIdentity\":"
                       "\"a\",\"leaseDurationSeconds\":15,\"renewTime\":\"2026-01-31T23:59:59."
                       "000001Z\",\"acquireTime\":\"2026-01-31T23:59:59.000001Z\","
                       "\"leaseTransitions\":5}}"));
    arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_of_two_leads),
        cmocka_unit_test(a_silent_leader_is_followed),
        cmocka_unit_test(who_resigns_is_followed_at_once),
        cmocka_unit_test(the_faster_one_gets_it),
        cmocka_unit_test(ours_of_before),
        cmocka_unit_test(what_is_sent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
