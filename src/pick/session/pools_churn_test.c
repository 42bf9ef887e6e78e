/* Streams of several pools on several threads, which wait where there is no capacity, while pools
 * and endpoints are added and removed, load reports arrive and expire, limits change and flow
 * control is switched on and off. Streams end at any message. Each pick is from the stream's own
 * pool; at the end all waiters are admitted, and nothing is left. For the thread sanitizer. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/metric/metric.h"
#include "core/event/clock.h"
#include "pick/pool/pool_fixture.h"
#include "pick/session/churn_fixture.h"

enum { POOLS = 4, ENDPOINTS = 5, THREADS = 3, OPEN = 12, UPDATES = 300, WAITS = 2000 };

#define DESTINATION "x-gateway-destination-endpoint"

static const uint64_t PATIENCE_NS = UINT64_C(60000000000); /* a longer wait counts as endless */

/* ---- pools ----------------------------------------------------------------------------------- */

static const struct str NAMES[POOLS] = {STR("a"), STR("b"), STR("c"), STR("d")};

/* Of pool `i`, with some of its endpoints, one at least. */
static struct pool_spec *spec_of(struct prng *prng, uint32_t i) {
    struct pool_spec *spec = fixture_spec();
    struct pool_model model = {.name = STR("m")};
    spec->name = NAMES[i];
    spec->match = (struct pool_match){.authorities = &NAMES[i], .n_authorities = 1};
    spec->max_in_flight = 1 + prng_below(prng, 2);
    spec->queue_depth = prng_below(prng, 2) * 3;
    spec->flow_control.on = prng_below(prng, 4) > 0;
    spec->flow_control.limits.max_requests = 4 + prng_below(prng, 20);
    pool_spec_add_model(spec, &model);
    uint32_t first = prng_below(prng, ENDPOINTS), n = 1 + prng_below(prng, 3);
    for (uint32_t k = 0; k < n; k++) {
        struct pool_spec_endpoint wanted = {
            .address = fixture_numbered(i * ENDPOINTS + (first + k) % ENDPOINTS)};
        pool_spec_add_endpoint(spec, &wanted);
    }
    return spec;
}

static void change(struct pool_set *set, struct prng *prng) {
    struct pool_specs specs = {.is_list = true};
    struct error err;
    for (uint32_t i = 0; i < POOLS; i++) {
        if (prng_below(prng, 8) > 0) {
            pool_specs_add(&specs, spec_of(prng, i));
        }
    }
    assert_int_equal(pool_set_update(set, &specs, &err), ST_OK);
}

/* Each endpoint reports its queue; the reports expire soon. */
static void say_loads(struct pool_set_reader *pools, struct prng *prng) {
    const struct pool_list *list = pool_set_reader_refresh(pools);
    for (size_t i = 0; i < list->n; i++) {
        struct pool_reader *reader = pool_set_reader_get(pools, &list->entries[i]);
        assert_non_null(reader);
        const struct pool_snapshot *snapshot = pool_reader_refresh(reader);
        for (uint32_t k = 0; k < snapshot->n_members; k++) {
            uint64_t now_ns = clock_now_ns();
            struct endpoint_load load = {.asked_ns = now_ns,
                                         .until_ns = now_ns + prng_below(prng, 3) * 1000000,
                                         .known = LOAD_WAITING,
                                         .n_waiting = prng_below(prng, 5)};
            pool_set_load(list->entries[i].pool, snapshot->members[k].endpoint, &load);
        }
    }
}

/* ---- streams --------------------------------------------------------------------------------- */

struct worker_of_test {
    struct pool_set_reader *pools;
    struct pool_wakeup wakeup;
    struct prng prng;
    _Atomic bool *over;
    _Atomic uint64_t *waits; /* of all threads */
    _Atomic unsigned n_notified;
    struct stream {
        struct worker_of_test *worker;
        struct arena *arena;
        struct pick_session *session;
        uint32_t pool;
        bool is_body_split, finished, waited;
        unsigned step;
    } streams[OPEN];
    unsigned n_picked, n_refused, n_resumed, n_wrong;
};

static void on_ring(void *user) {
    struct worker_of_test *worker = user;
    atomic_fetch_add_explicit(&worker->n_notified, 1, memory_order_relaxed);
}

static bool is_own(const struct stream *stream, struct str text) {
    struct endpoint_address address;
    return endpoint_address_parse(text, &address) &&
           (address.low - (10u << 24)) / ENDPOINTS == stream->pool;
}

static void judge(struct stream *stream, const struct ext_proc_client_response *reply) {
    struct worker_of_test *worker = stream->worker;
    struct ext_proc_value told =
        ext_proc_client_response_metadata_find(reply, STR("envoy.lb"), STR(DESTINATION));
    uint32_t status = reply->is_immediate ? reply->http_status : 0;
    if (status != 0) {
        worker->n_refused++;
        worker->n_wrong += status != 404 && status != 429 && status != 503;
    }
    if (told.kind == EXT_PROC_STRING) {
        worker->n_picked++;
        worker->n_wrong += !is_own(stream, told.text);
    }
}

static void on_send(void *user, const struct piece *pieces, size_t n_pieces,
                    void (*release)(void *cookie), void *cookie) {
    struct stream *stream = user;
    struct churn_said sent;
    if (churn_read(pieces, n_pieces, release, cookie, &sent)) {
        judge(stream, &sent.reply);
    } else {
        stream->worker->n_wrong++;
    }
}

static void on_finish(void *user, const struct error *err) {
    struct stream *stream = user;
    stream->worker->n_wrong += stream->finished || err;
    stream->finished = true;
}

static bool is_waiting(const struct stream *stream) {
    return pick_session_deadline_ns(stream->session) > 0;
}

static void count_wait(struct stream *stream) {
    if (!stream->waited && is_waiting(stream)) {
        stream->waited = true;
        atomic_fetch_add_explicit(stream->worker->waits, 1, memory_order_relaxed);
    }
}

static void open_stream(struct worker_of_test *worker, struct stream *stream) {
    struct pick_context context = {.pools = worker->pools,
                                   .wakeup = &worker->wakeup,
                                   .limits = {.max_body_size = 1000, .answer_timeout_ns = 1}};
    struct pick_callbacks out = {.send = on_send, .finish = on_finish, .user = stream};
    *stream = (struct stream){.worker = worker, .arena = arena_new(NULL, 0)};
    stream->pool = prng_below(&worker->prng, POOLS);
    stream->session = pick_session_new(stream->arena, &context, &out);
}

static void close_stream(struct stream *stream) {
    pick_session_free(stream->session);
    arena_free(stream->arena);
    stream->session = NULL;
}

/* ---- messages -------------------------------------------------------------------------------- */

/* A message from malloc, so that the sanitizer finds a read past its end. */
static void ask(struct stream *stream, const struct ext_proc_client_request *question) {
    struct arena *arena = arena_new(NULL, 0);
    struct buf out;
    buf_init(&out, arena, 0);
    ext_proc_client_request_encode(&out, question);
    char *bytes = malloc(out.len);
    assert_non_null(bytes);
    memcpy(bytes, out.data, out.len);
    struct pick_message message = {str_make(bytes, out.len), free, bytes};
    arena_free(arena);
    pick_session_on_message(stream->session, &message);
    count_wait(stream);
}

static void ask_headers(struct stream *stream) {
    static const enum ext_proc_body_mode modes[] = {EXT_PROC_BODY_NONE, EXT_PROC_BODY_FULL_DUPLEX,
                                                    EXT_PROC_BODY_BUFFERED};
    struct prng *prng = &stream->worker->prng;
    struct ext_proc_header headers[] = {{{":method", 7}, {"POST", 4}},
                                        {{":path", 5}, {"/v1/completions", 15}},
                                        {{":authority", 10}, NAMES[stream->pool]}};
    struct ext_proc_config config = {.request_body = modes[prng_below(prng, 3)]};
    stream->is_body_split = config.request_body == EXT_PROC_BODY_FULL_DUPLEX;
    struct endpoint_address address =
        fixture_numbered(stream->pool * ENDPOINTS + prng_below(prng, ENDPOINTS));
    char text[ENDPOINT_TEXT_BYTES];
    struct str list[] = {endpoint_address_print(&address, text)};
    struct ext_proc_entry entry = {
        STR("x-gateway-destination-endpoint-subset"), {NULL, 0}, list, 1, NULL};
    struct ext_proc_namespace space = {STR("envoy.lb.subset_hint"), &entry, 1};
    struct ext_proc_client_request question = {.kind = EXT_PROC_REQUEST_HEADERS,
                                               .headers = headers,
                                               .n_headers = 3,
                                               .config = &config,
                                               .has_metadata = true,
                                               .metadata = &space,
                                               .n_metadata = prng_below(prng, 4) == 0};
    ask(stream, &question);
}

static void ask_answer(struct stream *stream) {
    static const struct ext_proc_header status = {{":status", 7}, {"200", 3}};
    struct ext_proc_client_request question = {.kind = EXT_PROC_RESPONSE_HEADERS,
                                               .headers = &status,
                                               .n_headers = 1,
                                               .end_of_stream = true};
    ask(stream, &question);
}

/* In two pieces, or whole. */
static void ask_body(struct stream *stream, unsigned piece) {
    static const struct str whole = STR("{\"model\":\"m\"}");
    struct ext_proc_client_request question = {
        .kind = EXT_PROC_REQUEST_BODY, .body = whole, .end_of_stream = true};
    if (stream->is_body_split) {
        question.body = piece == 0 ? str_make(whole.ptr, 9) : str_make(whole.ptr + 9, 4);
        question.end_of_stream = piece == 1;
    }
    if (stream->is_body_split || piece == 0) {
        ask(stream, &question);
    }
}

/* The next message. */
static void go_on(struct stream *stream) {
    unsigned step = stream->step++;
    if (step == 0) {
        ask_headers(stream);
    } else if (step <= 2) {
        ask_body(stream, step - 1);
    } else if (step == 3) {
        ask_answer(stream);
    } else {
        pick_session_half_close(stream->session);
        close_stream(stream);
    }
}

/* Ends in one of the ways in which a stream can end while it waits, or at any other time. */
static void end_somehow(struct stream *stream) {
    switch (prng_below(&stream->worker->prng, 4)) {
    case 0:
        pick_session_cancel(stream->session, NULL);
        break;
    case 1:
        pick_session_on_timeout(stream->session);
        break;
    case 2:
        if (is_waiting(stream)) { /* a local reply of the proxy */
            ask_answer(stream);
        }
        break;
    default:
        break;
    }
    close_stream(stream);
}

/* ---- threads --------------------------------------------------------------------------------- */

static void take_called(struct worker_of_test *worker) {
    struct pool_waiter *waiter;
    pool_set_reader_refresh_all(worker->pools);
    while ((waiter = pool_wakeup_pop(&worker->wakeup))) {
        pick_session_resume(waiter);
        worker->n_resumed++;
    }
}

static void step(struct worker_of_test *worker) {
    struct stream *stream = &worker->streams[prng_below(&worker->prng, OPEN)];
    if (!stream->session) {
        open_stream(worker, stream);
    } else if (prng_below(&worker->prng, 32) == 0) {
        end_somehow(stream);
    } else if (!is_waiting(stream) || stream->step <= 2) {
        go_on(stream);
    } else {
        pool_tick(pool_reader_pool(pick_session_reader(stream->session)), 0);
    }
}

/* No new requests: each stream continues to its end. Returns: the number of streams left. */
static unsigned run_out(struct worker_of_test *worker) {
    unsigned n = 0;
    for (size_t i = 0; i < OPEN; i++) {
        struct stream *stream = &worker->streams[i];
        if (stream->session && is_waiting(stream)) {
            pool_tick(pool_reader_pool(pick_session_reader(stream->session)), 0);
        } else if (stream->session) {
            close_stream(stream);
        }
        n += stream->session != NULL;
    }
    return n;
}

static void *run_worker(void *arg) {
    struct worker_of_test *worker = arg;
    while (!atomic_load(worker->over)) {
        take_called(worker);
        step(worker);
    }
    uint64_t until_ns = clock_now_ns() + PATIENCE_NS;
    while (run_out(worker) > 0 && clock_now_ns() < until_ns) {
        take_called(worker);
        sched_yield();
    }
    for (size_t i = 0; i < OPEN; i++) {
        if (worker->streams[i].session) { /* it waits endlessly */
            worker->n_wrong++;
            close_stream(&worker->streams[i]);
        }
    }
    return NULL;
}

static void open_worker(struct worker_of_test *worker, struct pool_set *set, unsigned i,
                        _Atomic bool *over, _Atomic uint64_t *waits) {
    struct error err;
    *worker = (struct worker_of_test){.prng = {i}, .over = over, .waits = waits};
    pool_wakeup_init(&worker->wakeup, on_ring, worker);
    assert_int_equal(pool_set_reader_new(set, &worker->pools, &err), ST_OK);
}

static void session_waiting_streams_survive_pool_set_updates(void **state) {
    static struct worker_of_test workers[THREADS];
    pthread_t threads[THREADS];
    _Atomic bool over = false;
    _Atomic uint64_t waits = 0;
    struct prng prng = {7};
    struct pool_stats pool_counts;
    struct pool_set *set;
    struct pool_set_reader *pools;
    struct error err;
    unsigned n_picked = 0, n_refused = 0, n_resumed = 0;
    (void)state;
    assert_int_equal(pool_set_new(&set, &err), ST_OK);
    assert_int_equal(pool_set_reader_new(set, &pools, &err), ST_OK);
    for (unsigned i = 0; i < THREADS; i++) {
        open_worker(&workers[i], set, i, &over, &waits);
        assert_int_equal(pthread_create(&threads[i], NULL, run_worker, &workers[i]), 0);
    }
    for (unsigned n = 0; n < UPDATES || atomic_load(&waits) < WAITS; n++) {
        change(set, &prng);
        say_loads(pools, &prng);
        sched_yield();
        say_loads(pools, &prng);
    }
    atomic_store(&over, true);
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(workers[i].n_wrong, 0);
        n_picked += workers[i].n_picked;
        n_refused += workers[i].n_refused;
        n_resumed += workers[i].n_notified > 0 ? workers[i].n_resumed : 0;
    }
    assert_true(n_picked > 0 && n_refused > 0 && n_resumed > 0);
    pool_set_get_stats(set, &pool_counts);
    assert_int_equal(pool_counts.n_in_flight, 0);
    for (unsigned i = 0; i < THREADS; i++) {
        pool_set_reader_free(workers[i].pools);
        pool_wakeup_fini(&workers[i].wakeup);
    }
    pool_set_reader_free(pools);
    pool_set_free(set);
    assert_int_equal(metric_read(METRIC_ARENAS), 0);
    assert_int_equal(metric_read(METRIC_PICK_STREAMS), 0);
    assert_int_equal(metric_read(METRIC_PICK_HELD_BYTES), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(session_waiting_streams_survive_pool_set_updates),
    };
    return cmocka_run_group_tests_name("pick/session/pools_churn", tests, NULL, NULL);
}
