/* Picks of sessions: they stay at the endpoint of their first request, move when it is no candidate
 * any more, and are remembered when the configuration is read again. With a fake clock. */
#include "pick/pool/profile/session_id.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/event/clock.h"
#include "pick/pool/profile/filter_fixture.h"

static const uint64_t S = 1000000000;
enum { N = 8 };

static struct str find_header(const void *of, struct str name) {
    const char *const *header = of; /* a name and a value */
    return header && str_is(name, header[0]) ? str_of(header[1]) : str_make(NULL, 0);
}

static struct pool_spec *spec_of(const char *parameters) {
    struct pool_spec *spec =
        fixture_spec_with_filter(N, &plugin_session_affinity_filter, parameters);
    assert_int_equal(spec->profile->needs.n_sessions, 1);
    return spec;
}

static const char BY_HEADER[] = "{strategy: session_id}";

/* Returns: the number of the endpoint that a request with this header is sent to; its ticket is
 * released unless `ticket` receives it. */
static uint32_t pick_by(struct fixture *fixture, const char *name, const char *value,
                        struct pool_ticket *ticket) {
    const char *header[] = {name, value};
    struct pool_request request = {.headers = {.find = find_header, .of = name ? header : NULL}};
    struct pool_pick pick;
    struct error err = {0};
    if (pool_pick(fixture->reader, &request, &pick, &err) != ST_OK) {
        fail_msg("%s", err.text);
    }
    uint32_t number = (uint32_t)(pick.ticket.endpoint->address.low - (10u << 24));
    if (ticket) {
        *ticket = pick.ticket;
    } else {
        pool_release_ticket(fixture->pool, &pick.ticket);
    }
    return number;
}

static uint32_t pick_session(struct fixture *fixture, const char *session) {
    return pick_by(fixture, "x-session-id", session, NULL);
}

static void expect_stays(struct fixture *fixture, const char *session, uint32_t endpoint) {
    for (int i = 0; i < 20; i++) {
        assert_int_equal(pick_session(fixture, session), endpoint);
    }
}

/* How many endpoints requests without a session get. */
static unsigned count_spread(struct fixture *fixture, const char *name, const char *value) {
    unsigned seen = 0, n = 0;
    for (int i = 0; i < 200; i++) {
        seen |= 1u << pick_by(fixture, name, value, NULL);
    }
    for (; seen != 0; seen &= seen - 1) {
        n++;
    }
    return n;
}

static void session_stays_at_its_first_endpoint(void **state) {
    struct fixture fixture;
    uint32_t endpoints[20];
    unsigned seen = 0;
    char name[20];
    (void)state;
    fixture_open(&fixture, spec_of(BY_HEADER));
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof(name), "session-%d", i);
        endpoints[i] = pick_session(&fixture, name);
        seen |= 1u << endpoints[i];
    }
    assert_true((seen & (seen - 1)) != 0); /* not all at one */
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof(name), " session-%d ", i); /* spaces around it do not count */
        expect_stays(&fixture, name, endpoints[i]);
    }
    assert_int_equal(count_spread(&fixture, NULL, NULL), N);
    assert_int_equal(count_spread(&fixture, "x-session-id", " "), N);
    assert_int_equal(count_spread(&fixture, "x-session-token", "session-1"), N);
    fixture_close(&fixture);
}

static void session_moves_when_its_endpoint_is_gone(void **state) {
    struct fixture fixture;
    struct pool_spec *spec = spec_of(BY_HEADER);
    (void)state;
    spec->health.kind = POOL_HEALTH_TCP;
    fixture_open(&fixture, spec);
    const struct pool_snapshot *snapshot = pool_reader_refresh(fixture.reader);
    for (uint32_t i = 0; i < N; i++) {
        pool_set_ready(fixture.pool, snapshot->members[i].endpoint, true);
    }
    uint32_t first = pick_session(&fixture, "a");
    struct endpoint_address address = fixture_numbered(first);
    pool_set_ready(fixture.pool, pool_snapshot_find(snapshot, &address)->endpoint, false);
    uint32_t second = pick_session(&fixture, "a");
    assert_int_not_equal(first, second);
    pool_set_ready(fixture.pool, pool_snapshot_find(snapshot, &address)->endpoint, true);
    expect_stays(&fixture, "a", second);

    /* The configuration is read again, with other times; then the endpoint leaves. */
    spec = spec_of("{strategy: session_id, sessionIdConfig: {evictionTtlSeconds: 20}}");
    fixture_update(fixture.pool, spec);
    expect_stays(&fixture, "a", second);
    spec = spec_of(BY_HEADER);
    spec->endpoints[second] = spec->endpoints[--spec->n_endpoints];
    fixture_update(fixture.pool, spec);
    uint32_t third = pick_session(&fixture, "a");
    assert_int_not_equal(third, second);
    fixture_update(fixture.pool, spec_of(BY_HEADER));
    expect_stays(&fixture, "a", third);
    fixture_close(&fixture);
}

/* A name that comes back with another address is the same endpoint. */
static void session_follows_the_name_of_its_endpoint(void **state) {
    static const char *const names[N] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    struct fixture fixture;
    uint32_t found = 0;
    (void)state;
    for (uint32_t shift = 0; shift < 2; shift++) {
        struct pool_spec *spec = spec_of(BY_HEADER);
        for (uint32_t i = 0; i < N; i++) {
            struct str name = str_of(names[(i + shift) % N]);
            spec->endpoints[i].name =
                (struct pool_endpoint_name){.pod = name, .text = name, .name_space = STR("ns")};
        }
        if (shift == 0) {
            fixture_open(&fixture, spec);
            found = pick_session(&fixture, "s");
        } else {
            fixture_update(fixture.pool, spec);
        }
        expect_stays(&fixture, "s", (found + N - shift) % N);
    }
    fixture_close(&fixture);
}

/* Unused for 20 s, and at the next multiple of 7 s. */
static void session_ends_unused(void **state) {
    struct fixture fixture;
    uint32_t before[30];
    char name[20];
    int n_same = 0;
    (void)state;
    clock_set_fake_ns(700 * S);
    fixture_open(&fixture, spec_of("{strategy: session_id, sessionIdConfig: {evictionTtlSeconds: "
                                   "20, evictionSweepSeconds: 7}}"));
    for (int pass = 0; pass < 3; pass++) {
        clock_set_fake_ns(pass == 0 ? 700 * S : pass == 1 ? 720 * S : 742 * S);
        n_same = 0;
        for (int i = 0; i < 30; i++) {
            snprintf(name, sizeof(name), "session-%d", i);
            uint32_t endpoint = pick_session(&fixture, name);
            n_same += pass > 0 && endpoint == before[i];
            before[i] = endpoint;
        }
        assert_true(pass != 1 || n_same == 30);
    }
    assert_true(n_same < 30);
    fixture_close(&fixture);
    clock_set_fake_ns(0);
}

static void session_of_an_agent_is_found(void **state) {
    struct fixture fixture;
    (void)state;
    struct pool_spec *spec =
        spec_of("{strategy: session_id, sessionIdConfig: {sources: [{header: X-Own}, {attribute: "
                "agent-identity}]}}");
    spec->agent_headers = (struct protocol_headers){.names = {STR("agent"), STR("other")}, .n = 2};
    fixture_open(&fixture, spec);
    uint32_t endpoint = pick_by(&fixture, "other", "1", NULL);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(pick_by(&fixture, "agent", "1", NULL), endpoint); /* the same id */
        assert_int_equal(pick_by(&fixture, "x-own", "1", NULL), endpoint);
    }
    assert_int_equal(count_spread(&fixture, "x-session-id", "1"), N);
    fixture_close(&fixture);
}

/* With flow control a request of the session goes elsewhere while the endpoint is full, and the
 * session stays. */
static void session_stays_while_its_endpoint_is_full(void **state) {
    struct fixture fixture;
    struct pool_ticket held;
    (void)state;
    struct pool_spec *spec = spec_of(BY_HEADER);
    spec->max_in_flight = 1;
    spec->flow_control.on = true;
    spec->flow_control.limits.max_requests = 10;
    fixture_open(&fixture, spec);
    uint32_t endpoint = pick_by(&fixture, "x-session-id", "a", &held);
    for (int i = 0; i < 20; i++) {
        assert_int_not_equal(pick_session(&fixture, "a"), endpoint);
    }
    pool_release_ticket(fixture.pool, &held);
    expect_stays(&fixture, "a", endpoint);
    fixture_close(&fixture);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(session_stays_at_its_first_endpoint),
        cmocka_unit_test(session_moves_when_its_endpoint_is_gone),
        cmocka_unit_test(session_follows_the_name_of_its_endpoint),
        cmocka_unit_test(session_ends_unused),
        cmocka_unit_test(session_of_an_agent_is_found),
        cmocka_unit_test(session_stays_while_its_endpoint_is_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
