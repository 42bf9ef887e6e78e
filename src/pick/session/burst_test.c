/* Requests that are held for a window: equal prompts are placed together, whatever happens to some
 * of the requests, to endpoints, or to the configuration meanwhile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/event/clock.h"
#include "pick/pool/profile/profile.h"
#include "pick/session/pick_fixture.h"

#define POST ":method=POST|:path=/v1/completions|content-type=application/json"

enum { MOST = 64, N_EQUAL = 40, WINDOW_NS = 100000000, START_NS = 1000000000 };

static const struct profile_step PREFIX = {
    .plugin = &plugin_prefix_cache_scorer, .weight = 1, .name = STR("prefix")};

/* The first producer is the window. */
#define HOLDING(batch, replica)                                                                    \
    {                                                                                              \
        .scorers = &PREFIX, .n_scorers = 1, .picker = {.plugin = &plugin_max_score_picker},        \
        .needs = {                                                                                 \
            .prompt = true,                                                                        \
            .body = true,                                                                          \
            .n_prefixes = 1,                                                                       \
            .used_prefixes = 1,                                                                    \
            .burst_on = true,                                                                      \
            .burst = {.window_ns = WINDOW_NS, .max_batch = (batch), .max_per_replica = (replica)}, \
            .prefixes = {{.name = STR("burst"),                                                    \
                          .kind = PREFIX_BURST,                                                    \
                          .block_bytes = 16,                                                       \
                          .max_blocks = 64,                                                        \
                          .capacity = 1}}},                                                        \
    }
static const struct profile ANY = HOLDING(1000, 0);
static const struct profile FEW = HOLDING(2, 0);
static const struct profile SPREAD = HOLDING(1000, 2);
static const struct profile NOT_HOLDING = {
    .scorers = &PREFIX,
    .n_scorers = 1,
    .picker = {.plugin = &plugin_max_score_picker},
    .needs = {.prompt = true, .body = true, FIXTURE_PREFIXES(16, 64, 1000)}};

/* Several streams of one pool, each as of a worker of its own. */
struct stage {
    struct fixture pool;
    struct fake_proxy *proxies[MOST];
    uint32_t n;
};

static struct pool_spec *spec_of(const struct profile *profile, uint32_t from, uint32_t to) {
    struct pool_spec *spec = fixture_spec();
    for (uint32_t i = from; i < to; i++) {
        struct pool_spec_endpoint wanted = {.address = fixture_numbered(i)};
        pool_spec_add_endpoint(spec, &wanted);
    }
    spec->profile = profile;
    return spec;
}

/* Takes the spec. */
static void open_stage(struct stage *stage, struct pool_spec *spec) {
    clock_set_fake_ns(START_NS);
    stage->n = 0;
    fixture_open_with_prefixes(&stage->pool, spec);
}

/* A request with this prompt, of which the whole body is shown. */
static struct fake_proxy *send_prompt(struct stage *stage, const char *prompt,
                                      enum ext_proc_body_mode mode) {
    struct fake_proxy *proxy = calloc(1, sizeof(*proxy));
    struct ext_proc_config config = {.request_body = mode};
    struct error err;
    char body[400];
    assert_non_null(proxy);
    stage->proxies[stage->n++] = proxy;
    proxy->pool.pool = stage->pool.pool;
    assert_int_equal(pool_reader_new(proxy->pool.pool, 1, &proxy->pool.reader, &err), ST_OK);
    pool_wakeup_init(&proxy->wakeup, proxy_on_call, proxy);
    proxy_stream(proxy, &proxy_limits);
    snprintf(body, sizeof(body), "{\"model\":\"m\",\"prompt\":\"%s\"}", prompt);
    proxy_request(proxy, POST, false, &config);
    if (mode == EXT_PROC_BODY_BUFFERED) {
        proxy_expect_continue(proxy, EXT_PROC_REQUEST_HEADERS);
    }
    proxy_body(proxy, body, true);
    return proxy;
}

static void end_stream(struct fake_proxy *proxy) {
    pick_session_free(proxy->session);
    proxy->session = NULL;
    proxy_flush(proxy);
    arena_free(proxy->arena);
    for (size_t i = 0; i < proxy->n_sent; i++) {
        free(proxy->sent[i].bytes);
    }
    assert_int_equal(proxy->n_messages, 0);
    assert_true(pool_waited_is_empty(&proxy->waited));
    proxy->n_sent = proxy->n_read = 0;
}

static void resume(struct fake_proxy *proxy) {
    struct loop_iteration iteration = {.messages = {0}};
    while (proxy->session && proxy->n_notified > 0) {
        proxy->n_notified = 0;
        while (pick_session_resume_some(&proxy->wakeup, &iteration.messages)) {
        }
    }
}

/* The window's time passes: each stream's timer, and then what it has led to. */
static void end_window(struct stage *stage, uint64_t after_ns) {
    clock_set_fake_ns(clock_now_ns() + after_ns);
    for (uint32_t i = 0; i < stage->n; i++) {
        struct fake_proxy *proxy = stage->proxies[i];
        uint64_t due_ns = proxy->session ? pick_session_deadline_ns(proxy->session) : 0;
        if (due_ns > 0 && due_ns <= clock_now_ns()) {
            pick_session_on_timeout(proxy->session);
        }
    }
    for (uint32_t i = 0; i < stage->n; i++) {
        resume(stage->proxies[i]);
    }
}

static void close_stage(struct stage *stage) {
    struct pool_stats counts;
    for (uint32_t i = 0; i < stage->n; i++) {
        if (stage->proxies[i]->session) {
            end_stream(stage->proxies[i]);
        }
        pool_wakeup_fini(&stage->proxies[i]->wakeup);
        pool_reader_unref(stage->proxies[i]->pool.reader);
        free(stage->proxies[i]);
    }
    pool_get_stats(stage->pool.pool, &counts);
    assert_int_equal(counts.n_in_flight, 0);
    fixture_close(&stage->pool);
    clock_set_fake_ns(0);
}

/* Returns: a text that stays valid for as many streams as there may be. */
static const char *picked(struct fake_proxy *proxy) {
    static char texts[2 * MOST][64];
    static unsigned next;
    char *out = texts[next++ % (2 * MOST)];
    struct str endpoint = proxy_pick(proxy_next(proxy));
    snprintf(out, 64, "%.*s", STR_ARG(endpoint));
    return out;
}

static void expect_held(const struct stage *stage) {
    for (uint32_t i = 0; i < stage->n; i++) {
        if (stage->proxies[i]->session) {
            proxy_expect_no_message(stage->proxies[i]);
        }
    }
}

#define ONE "the first prompt, which is long enough for some blocks"
#define TWO "another prompt, which is as long, and has other blocks"

/* ---- windows --------------------------------------------------------------------------------- */

static void burst_equal_prompts_are_placed_together(void **state) {
    static const enum ext_proc_body_mode modes[] = {EXT_PROC_BODY_FULL_DUPLEX,
                                                    EXT_PROC_BODY_BUFFERED};
    struct stage stage;
    (void)state;
    open_stage(&stage, spec_of(&ANY, 0, 8));
    for (int i = 0; i < N_EQUAL; i++) { /* more than the bound of affinities allows */
        send_prompt(&stage, i % 2 == 0 ? ONE : TWO, modes[i % 4 / 2]);
        clock_set_fake_ns(START_NS + (uint64_t)i * 1000000);
    }
    expect_held(&stage);
    assert_int_equal(pick_session_deadline_ns(stage.proxies[5]->session), START_NS + WINDOW_NS);
    end_window(&stage, WINDOW_NS - N_EQUAL * 1000000);
    expect_held(&stage); /* a millisecond is left */
    end_window(&stage, 2000000);
    const char *one = picked(stage.proxies[0]), *two = picked(stage.proxies[1]);
    assert_string_not_equal(one, two);
    for (uint32_t i = 2; i < N_EQUAL; i++) {
        assert_string_equal(picked(stage.proxies[i]), i % 2 == 0 ? one : two);
        assert_int_equal(pick_session_deadline_ns(stage.proxies[i]->session), 0);
    }
    close_stage(&stage);
}

static void burst_limit_spreads_a_prompt(void **state) {
    struct stage stage;
    int n_of[4] = {0};
    (void)state;
    open_stage(&stage, spec_of(&SPREAD, 0, 4));
    for (int i = 0; i < 8; i++) {
        send_prompt(&stage, ONE, EXT_PROC_BODY_FULL_DUPLEX);
    }
    end_window(&stage, WINDOW_NS);
    for (uint32_t i = 0; i < 8; i++) {
        n_of[picked(stage.proxies[i])[7] - '0']++;
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(n_of[i], 2);
    }
    close_stage(&stage);
}

/* One that comes after a window begins another, and one that finds it full is not held. */
static void burst_windows_follow_each_other(void **state) {
    struct stage stage;
    (void)state;
    open_stage(&stage, spec_of(&FEW, 0, 4));
    send_prompt(&stage, ONE, EXT_PROC_BODY_BUFFERED);
    send_prompt(&stage, ONE, EXT_PROC_BODY_BUFFERED);
    picked(send_prompt(&stage, ONE, EXT_PROC_BODY_BUFFERED)); /* the window is full */
    end_window(&stage, WINDOW_NS);
    assert_string_equal(picked(stage.proxies[0]), picked(stage.proxies[1]));
    send_prompt(&stage, TWO, EXT_PROC_BODY_BUFFERED);
    proxy_expect_no_message(stage.proxies[3]);
    end_window(&stage, WINDOW_NS);
    picked(stage.proxies[3]);
    close_stage(&stage);
}

/* Requests without a prompt are not held. */
static void burst_holds_prompts_only(void **state) {
    struct stage stage;
    (void)state;
    open_stage(&stage, spec_of(&ANY, 0, 2));
    struct fake_proxy *proxy = send_prompt(&stage, ONE, EXT_PROC_BODY_BUFFERED);
    end_window(&stage, WINDOW_NS);
    picked(proxy);
    end_stream(proxy);
    proxy_stream(proxy, &proxy_limits);
    proxy_request(proxy, ":method=GET|:path=/v1/models", true, PROXY_CONFIG(NONE, NONE));
    picked(proxy);
    close_stage(&stage);
}

/* ---- changes meanwhile ----------------------------------------------------------------------- */

static void burst_goes_on_without_those_that_leave(void **state) {
    struct stage stage;
    (void)state;
    open_stage(&stage, spec_of(&ANY, 0, 8));
    for (int i = 0; i < 6; i++) {
        send_prompt(&stage, ONE, EXT_PROC_BODY_FULL_DUPLEX);
    }
    pick_session_cancel(stage.proxies[0]->session, NULL); /* the first, which began it */
    end_stream(stage.proxies[0]);
    end_stream(stage.proxies[3]);
    end_window(&stage, WINDOW_NS);
    const char *one = picked(stage.proxies[1]);
    assert_string_equal(picked(stage.proxies[2]), one);
    assert_string_equal(picked(stage.proxies[4]), one);
    assert_string_equal(picked(stage.proxies[5]), one);
    close_stage(&stage);
}

/* Also between the end of the window and the next pick. */
static void burst_all_may_leave(void **state) {
    (void)state;
    for (int is_sealed = 0; is_sealed < 2; is_sealed++) {
        struct stage stage;
        open_stage(&stage, spec_of(&ANY, 0, 2));
        for (int i = 0; i < 3; i++) {
            send_prompt(&stage, ONE, EXT_PROC_BODY_BUFFERED);
        }
        if (is_sealed) {
            clock_set_fake_ns(START_NS + WINDOW_NS);
            pick_session_on_timeout(stage.proxies[1]->session);
        }
        for (int i = 0; i < 3; i++) {
            end_stream(stage.proxies[i]);
        }
        send_prompt(&stage, TWO, EXT_PROC_BODY_BUFFERED); /* begins another one */
        assert_int_equal(pick_session_deadline_ns(stage.proxies[3]->session),
                         clock_now_ns() + WINDOW_NS);
        end_window(&stage, WINDOW_NS);
        picked(stage.proxies[3]);
        close_stage(&stage);
    }
}

/* The endpoint that the requests were placed at has left when they pick. */
static void burst_endpoint_that_left_is_not_picked(void **state) {
    struct stage stage;
    (void)state;
    open_stage(&stage, spec_of(&ANY, 0, 1));
    send_prompt(&stage, ONE, EXT_PROC_BODY_BUFFERED);
    send_prompt(&stage, ONE, EXT_PROC_BODY_BUFFERED);
    fixture_update(stage.pool.pool, spec_of(&ANY, 1, 3));
    end_window(&stage, WINDOW_NS);
    assert_string_not_equal(picked(stage.proxies[0]), "10.0.0.0:8000");
    assert_string_not_equal(picked(stage.proxies[1]), "10.0.0.0:8000");
    close_stage(&stage);
}

static void burst_survives_a_reload(void **state) {
    struct stage stage;
    (void)state;
    open_stage(&stage, spec_of(&ANY, 0, 4));
    send_prompt(&stage, ONE, EXT_PROC_BODY_BUFFERED);
    fixture_update(stage.pool.pool, spec_of(&NOT_HOLDING, 0, 4));
    picked(send_prompt(&stage, ONE, EXT_PROC_BODY_BUFFERED)); /* not held any more */
    fixture_update(stage.pool.pool, spec_of(&FEW, 0, 4));
    send_prompt(&stage, ONE, EXT_PROC_BODY_BUFFERED); /* the same window */
    end_window(&stage, WINDOW_NS);
    assert_string_equal(picked(stage.proxies[0]), picked(stage.proxies[2]));
    close_stage(&stage);
}

/* ---- flow control ---------------------------------------------------------------------------- */

static struct pool_spec *limited(uint32_t n) {
    struct pool_spec *spec = spec_of(&ANY, 0, n);
    spec->max_in_flight = 1;
    spec->flow_control.on = true;
    spec->flow_control.max_wait_ns = 10 * (uint64_t)WINDOW_NS;
    return spec;
}

/* A request waits for capacity first, and keeps its slot while it is held. */
static void burst_is_after_the_queue(void **state) {
    struct stage stage;
    struct pool_stats counts;
    (void)state;
    open_stage(&stage, limited(1));
    send_prompt(&stage, ONE, EXT_PROC_BODY_BUFFERED);
    end_window(&stage, WINDOW_NS);
    picked(stage.proxies[0]);
    struct fake_proxy *queued = send_prompt(&stage, TWO, EXT_PROC_BODY_BUFFERED);
    end_window(&stage, WINDOW_NS);
    proxy_expect_no_message(queued);
    end_stream(stage.proxies[0]); /* there is capacity: it is held now */
    resume(queued);
    proxy_expect_no_message(queued);
    assert_int_equal(pick_session_deadline_ns(queued->session), clock_now_ns() + WINDOW_NS);
    pool_get_stats(stage.pool.pool, &counts);
    assert_int_equal(counts.n_in_flight, 1); /* its slot */
    struct fake_proxy *later = send_prompt(&stage, TWO, EXT_PROC_BODY_BUFFERED);
    end_window(&stage, WINDOW_NS);
    assert_string_equal(picked(queued), "10.0.0.0:8000");
    proxy_expect_no_message(later); /* it waits for capacity */
    end_stream(queued);
    resume(later);
    end_window(&stage, WINDOW_NS);
    picked(later);
    close_stage(&stage);
}

/* Those that were held, and find no capacity then, wait for it; their endpoint stays. */
static void burst_waits_for_capacity_afterwards(void **state) {
    struct stage stage;
    (void)state;
    open_stage(&stage, limited(1));
    for (int i = 0; i < 3; i++) {
        send_prompt(&stage, ONE, EXT_PROC_BODY_FULL_DUPLEX);
    }
    end_window(&stage, WINDOW_NS);
    picked(stage.proxies[0]);
    proxy_expect_no_message(stage.proxies[1]);
    end_stream(stage.proxies[0]);
    resume(stage.proxies[1]);
    picked(stage.proxies[1]); /* at once: it was held already */
    clock_set_fake_ns(clock_now_ns() + 20 * (uint64_t)WINDOW_NS);
    pick_session_on_timeout(stage.proxies[2]->session);
    assert_true(proxy_next(stage.proxies[2])->is_immediate); /* the queue's deadline */
    close_stage(&stage);
}

/* The queue's deadline passes while the request is held with its slot. */
static void burst_queue_deadline_holds(void **state) {
    struct stage stage;
    struct pool_stats counts;
    struct pool_spec *spec = limited(1);
    (void)state;
    spec->flow_control.max_wait_ns = WINDOW_NS / 2;
    open_stage(&stage, spec);
    send_prompt(&stage, ONE, EXT_PROC_BODY_BUFFERED);
    end_window(&stage, WINDOW_NS);
    picked(stage.proxies[0]);
    struct fake_proxy *queued = send_prompt(&stage, TWO, EXT_PROC_BODY_BUFFERED);
    end_stream(stage.proxies[0]);
    resume(queued);
    assert_int_equal(pick_session_deadline_ns(queued->session), clock_now_ns() + WINDOW_NS / 2);
    end_window(&stage, WINDOW_NS / 2);
    assert_true(proxy_next(queued)->is_immediate);
    pool_get_stats(stage.pool.pool, &counts);
    assert_int_equal(counts.n_in_flight, 0);
    close_stage(&stage);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(burst_equal_prompts_are_placed_together),
        cmocka_unit_test(burst_limit_spreads_a_prompt),
        cmocka_unit_test(burst_windows_follow_each_other),
        cmocka_unit_test(burst_holds_prompts_only),
        cmocka_unit_test(burst_goes_on_without_those_that_leave),
        cmocka_unit_test(burst_all_may_leave),
        cmocka_unit_test(burst_endpoint_that_left_is_not_picked),
        cmocka_unit_test(burst_survives_a_reload),
        cmocka_unit_test(burst_is_after_the_queue),
        cmocka_unit_test(burst_waits_for_capacity_afterwards),
        cmocka_unit_test(burst_queue_deadline_holds),
    };
    return cmocka_run_group_tests_name("pick/session/burst", tests, NULL, NULL);
}
