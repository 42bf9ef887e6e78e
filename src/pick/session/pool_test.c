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
    struct stage *stage;
    struct pool_set *set;
    struct pool_set_reader *reader;
};

static void add_pool(struct pool_specs *specs, const char *name, const char *endpoint) {
    struct pool_spec *spec = fixture_spec();
    struct str *authority = arena_calloc(spec->arena, 1, sizeof(*authority));
    struct error err;
    assert_non_null(authority);
    fixture_add(spec, endpoint);
    spec->name = *authority = pool_spec_dup_text(spec, str_of(name));
    spec->match = (struct pool_match){.authorities = authority, .n_authorities = 1};
    assert_int_equal(pool_specs_add(specs, spec, &err), ST_OK);
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
    struct stage *stage = rig->stage;
    struct pick_context context = {.pools = rig->reader, .limits = stage_limits};
    struct pick_callbacks out = {.send = stage_on_send,
                                 .finish = stage_on_finish,
                                 .on_outcome = stage_on_note,
                                 .user = stage};
    pick_session_free(stage->session);
    stage->session = pick_session_new(stage->arena, &context, &out);
    stage->finished = false;
    assert_non_null(stage->session);
}

static void open_rig(struct rig *rig) {
    struct error err;
    assert_int_equal(pool_set_new(&rig->set, &err), ST_OK);
    set_pools(rig, true, true);
    assert_int_equal(pool_set_reader_new(rig->set, &rig->reader, &err), ST_OK);
    rig->stage = stage_open(fixture_spec());
    begin_stream(rig);
}

static void close_rig(struct rig *rig) {
    struct pool_stats pool_counts;
    stage_close(rig->stage);
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
    stage_request(rig.stage, REQUEST "a", true, NULL);
    stage_assert_text(stage_pick(stage_next(rig.stage)), "10.0.0.1:80");
    begin_stream(&rig);
    stage_request(rig.stage, REQUEST "B:8080", true, NULL);
    stage_assert_text(stage_pick(stage_next(rig.stage)), "10.0.0.2:80");
    close_rig(&rig);
}

static void session_without_matching_pool_is_404(void **state) {
    (void)state;
    struct rig rig;
    open_rig(&rig);
    stage_request(rig.stage, REQUEST "c", false, NULL);
    const struct ext_proc_client_response *reply = stage_expect_refusal(rig.stage, 404);
    stage_assert_text(reply->body,
                      "{\"error\":\"none of the 2 pools matches this request to \\\"c\\\" "
                      "(`match` in the picker's configuration)\"}");
    set_pools(&rig, false, false);
    begin_stream(&rig);
    stage_request(rig.stage, REQUEST "a", false, NULL);
    reply = stage_expect_refusal(rig.stage, 404);
    stage_assert_text(reply->body, "{\"error\":\"no pool is configured yet\"}");
    close_rig(&rig);
}

/* The request continues at its endpoint; its count is of a removed pool. */
static void session_outlives_removed_pool(void **state) {
    (void)state;
    struct rig rig;
    struct pool_stats pool_counts;
    open_rig(&rig);
    stage_request(rig.stage, REQUEST "a", true, STAGE_CONFIG(NONE, STREAMED));
    stage_assert_text(stage_pick(stage_next(rig.stage)), "10.0.0.1:80");
    set_pools(&rig, false, true);
    pool_set_reader_refresh_all(rig.reader);
    pool_set_get_stats(rig.set, &pool_counts);
    assert_int_equal(pool_counts.n_in_flight, 0);
    stage_answer(rig.stage, ":status=200", false);
    stage_expect_continue(rig.stage, EXT_PROC_RESPONSE_HEADERS);
    stage_part(rig.stage, EXT_PROC_RESPONSE_BODY, STR("x"), true);
    stage_expect_continue(rig.stage, EXT_PROC_RESPONSE_BODY);
    close_rig(&rig);
}

/* A proxy that sends responses only; and a stream that ends before its first message. */
static void session_without_request_ends_cleanly(void **state) {
    (void)state;
    struct rig rig;
    open_rig(&rig);
    stage_answer(rig.stage, ":status=200", true);
    stage_expect_continue(rig.stage, EXT_PROC_RESPONSE_HEADERS);
    begin_stream(&rig);
    pick_session_half_close(rig.stage->session);
    assert_true(rig.stage->finished);
    begin_stream(&rig);
    stage_take(rig.stage, STR("\xff\xff\xff"));
    assert_true(rig.stage->finished);
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
