/* Streams with several pools: a request stays in its pool from its headers to its end, whatever
 * happens to the pools meanwhile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/base/metric/metric.h"
#include "pick/session/pick_fixture.h"

struct rig {
    struct fake_proxy *proxy;
    struct pool_set *set;
    struct pool_set_reader *reader;
};

static void add_pool(struct pool_specs *specs, const char *name, const char *endpoint) {
    struct pool_spec *spec = fixture_spec();
    struct str *authority = arena_calloc(spec->arena, 1, sizeof(*authority));
    assert_non_null(authority);
    fixture_add(spec, endpoint);
    spec->name = *authority = pool_spec_dup_text(spec, str_of(name));
    spec->match = (struct pool_match){.authorities = authority, .n_authorities = 1};
    pool_specs_add(specs, spec);
}

/* "a" matches the authority a, with 10.0.0.1:80; "b" likewise. Either may be missing. */
static void set_pools(struct rig *rig, bool a, bool b) {
    struct pool_specs specs = {.is_list = true};
    struct error err;
    if (a) {
        add_pool(&specs, "a", "10.0.0.1:80");
    }
    if (b) {
        add_pool(&specs, "b", "10.0.0.2:80");
    }
    assert_int_equal(pool_set_update(rig->set, &specs, &err), ST_OK);
}

static void begin_stream(struct rig *rig) {
    struct fake_proxy *proxy = rig->proxy;
    struct pick_context context = {.pools = rig->reader, .limits = proxy_limits};
    struct pick_callbacks out = {.send = proxy_on_send,
                                 .finish = proxy_on_finish,
                                 .on_outcome = proxy_on_note,
                                 .user = proxy};
    pick_session_free(proxy->session);
    proxy->session = pick_session_new(proxy->arena, &context, &out);
    proxy->finished = false;
    assert_non_null(proxy->session);
}

static void open_rig(struct rig *rig) {
    struct error err;
    assert_int_equal(pool_set_new(&rig->set, &err), ST_OK);
    set_pools(rig, true, true);
    assert_int_equal(pool_set_reader_new(rig->set, &rig->reader, &err), ST_OK);
    rig->proxy = proxy_open(fixture_spec());
    begin_stream(rig);
}

static void close_rig(struct rig *rig) {
    struct pool_stats pool_counts;
    proxy_close(rig->proxy);
    pool_set_get_stats(rig->set, &pool_counts);
    assert_int_equal(pool_counts.n_in_flight, 0);
    pool_set_reader_free(rig->reader);
    pool_set_free(rig->set);
    assert_int_equal(metric_read(METRIC_ARENAS), 0);
}

#define REQUEST ":method=POST|:path=/v2/models/m/infer|:authority="

static void session_request_goes_to_matching_pool(void **state) {
    (void)state;
    struct rig rig;
    open_rig(&rig);
    proxy_request(rig.proxy, REQUEST "a", true, NULL);
    proxy_assert_text(proxy_pick(proxy_next(rig.proxy)), "10.0.0.1:80");
    begin_stream(&rig);
    proxy_request(rig.proxy, REQUEST "B:8080", true, NULL);
    proxy_assert_text(proxy_pick(proxy_next(rig.proxy)), "10.0.0.2:80");
    close_rig(&rig);
}

static void session_without_matching_pool_is_404(void **state) {
    (void)state;
    struct rig rig;
    open_rig(&rig);
    proxy_request(rig.proxy, REQUEST "c", false, NULL);
    const struct ext_proc_client_response *reply = proxy_expect_refusal(rig.proxy, 404);
    proxy_assert_text(reply->body,
                      "{\"error\":\"none of the 2 pools matches this request to \\\"c\\\" "
                      "(`match` in the picker's configuration)\"}");
    set_pools(&rig, false, false);
    begin_stream(&rig);
    proxy_request(rig.proxy, REQUEST "a", false, NULL);
    reply = proxy_expect_refusal(rig.proxy, 404);
    proxy_assert_text(reply->body, "{\"error\":\"no pool is configured yet\"}");
    close_rig(&rig);
}

/* The request continues at its endpoint; its count is of a removed pool. */
static void session_outlives_removed_pool(void **state) {
    (void)state;
    struct rig rig;
    struct pool_stats pool_counts;
    open_rig(&rig);
    proxy_request(rig.proxy, REQUEST "a", true, PROXY_CONFIG(NONE, STREAMED));
    proxy_assert_text(proxy_pick(proxy_next(rig.proxy)), "10.0.0.1:80");
    set_pools(&rig, false, true);
    pool_set_reader_refresh_all(rig.reader);
    pool_set_get_stats(rig.set, &pool_counts);
    assert_int_equal(pool_counts.n_in_flight, 0);
    proxy_answer(rig.proxy, ":status=200", false);
    proxy_expect_continue(rig.proxy, EXT_PROC_RESPONSE_HEADERS);
    proxy_part(rig.proxy, EXT_PROC_RESPONSE_BODY, STR("x"), true);
    proxy_expect_continue(rig.proxy, EXT_PROC_RESPONSE_BODY);
    close_rig(&rig);
}

/* A proxy that sends responses only; and a stream that ends before its first message. */
static void session_without_request_ends_cleanly(void **state) {
    (void)state;
    struct rig rig;
    open_rig(&rig);
    proxy_answer(rig.proxy, ":status=200", true);
    proxy_expect_continue(rig.proxy, EXT_PROC_RESPONSE_HEADERS);
    begin_stream(&rig);
    pick_session_half_close(rig.proxy->session);
    assert_true(rig.proxy->finished);
    begin_stream(&rig);
    proxy_take(rig.proxy, STR("\xff\xff\xff"));
    assert_true(rig.proxy->finished);
    close_rig(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(session_request_goes_to_matching_pool),
        cmocka_unit_test(session_without_matching_pool_is_404),
        cmocka_unit_test(session_outlives_removed_pool),
        cmocka_unit_test(session_without_request_ends_cleanly),
    };
    return cmocka_run_group_tests_name("pick/session/pool", tests, NULL, NULL);
}
