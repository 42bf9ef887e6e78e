/* Streams on several threads while the pool is updated. The endpoints of a pool follow from its
 * generation, so each pick is checked against the generations of its time: it is in the pool and in
 * the subset, or the request is refused. Streams end at any message; at the end nothing is in
 * flight. For the thread sanitizer. */
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
#include "pick/pool/pool_fixture.h"
#include "pick/session/churn_fixture.h"

enum { N = 48, THREADS = 4, UPDATES = 600, PICKS = 4000, OPEN = 8, MOST_HINT = 8 };

#define DESTINATION "x-gateway-destination-endpoint"

/* Whether endpoint `i` is in the pool in this generation. */
static bool is_member(uint64_t generation, uint32_t i) {
    struct prng prng = {generation * N + i};
    return generation > 0 && prng_next(&prng) % 4 > 0;
}

/* In every second generation models matter, and "m" is one. */
static struct pool_spec *spec_of(uint64_t generation) {
    struct pool_spec *spec = fixture_spec();
    struct pool_model model = {.name = STR("m")};
    spec->protocol.fallback = FALLBACK_LIST;
    spec->protocol.n_fallbacks = 2;
    spec->strict_models = generation % 2 == 0;
    pool_spec_add_model(spec, &model);
    for (uint32_t i = 0; i < N; i++) {
        struct pool_spec_endpoint wanted = {.address = fixture_numbered(i)};
        if (is_member(generation, i)) {
            pool_spec_add_endpoint(spec, &wanted);
        }
    }
    return spec;
}

/* ---- streams --------------------------------------------------------------------------------- */

struct worker_of_test;

struct stream {
    struct worker_of_test *worker;
    struct arena *arena;
    struct pick_session *session;
    uint32_t hint[MOST_HINT];
    uint32_t n_hint;
    bool has_hint, finished;
    unsigned step;
};

struct worker_of_test {
    struct pool *pool;
    struct pool_reader *reader;
    struct prng prng;
    _Atomic bool *over;
    _Atomic uint64_t *picks; /* of all threads */
    struct stream streams[OPEN];
    uint64_t before; /* the generation before the message was passed */
    unsigned n_picked, n_refused, n_wrong;
};

static bool is_allowed(const struct stream *stream, uint32_t number) {
    uint64_t last = pool_generation(stream->worker->pool);
    bool named = !stream->has_hint, member = false;
    for (uint32_t i = 0; i < stream->n_hint; i++) {
        named = named || stream->hint[i] == number;
    }
    for (uint64_t generation = stream->worker->before; generation <= last; generation++) {
        member = member || is_member(generation, number);
    }
    return named && member;
}

static void judge(struct stream *stream, const struct ext_proc_client_response *reply) {
    struct ext_proc_value told =
        ext_proc_client_response_metadata_find(reply, STR("envoy.lb"), STR(DESTINATION));
    struct endpoint_address address;
    if (reply->is_immediate) {
        stream->worker->n_refused++;
        stream->worker->n_wrong +=
            reply->http_status != 503 && reply->http_status != 404 && reply->http_status != 400;
    }
    if (told.kind != EXT_PROC_STRING) {
        return;
    }
    stream->worker->n_picked++;
    atomic_fetch_add_explicit(stream->worker->picks, 1, memory_order_relaxed);
    for (struct str rest = told.text; rest.ptr;) {
        bool ok = endpoint_address_parse(str_cut(&rest, ','), &address) &&
                  is_allowed(stream, (uint32_t)(address.low - (10u << 24)));
        stream->worker->n_wrong += !ok;
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

static void open_stream(struct worker_of_test *worker, struct stream *stream) {
    struct pick_context context = {.pool = worker->pool,
                                   .reader = worker->reader,
                                   .limits = {.max_body_size = 1000, .answer_timeout_ns = 1}};
    struct pick_callbacks out = {.send = on_send, .finish = on_finish, .user = stream};
    *stream = (struct stream){.worker = worker, .arena = arena_new(NULL, 0)};
    stream->session = pick_session_new(stream->arena, &context, &out);
    stream->has_hint = prng_below(&worker->prng, 2) == 0;
    stream->n_hint = stream->has_hint ? prng_below(&worker->prng, MOST_HINT) : 0;
    for (uint32_t i = 0; i < stream->n_hint; i++) {
        stream->hint[i] = prng_below(&worker->prng, N);
    }
}

static void close_stream(struct stream *stream) {
    pick_session_free(stream->session);
    arena_free(stream->arena);
    stream->session = NULL;
}

/* ---- messages of a stream -------------------------------------------------------------------- */

static void ask(struct stream *stream, const struct ext_proc_client_request *question) {
    struct buf out;
    buf_init(&out, stream->arena, 0);
    ext_proc_client_request_encode(&out, question);
    stream->worker->before = pool_generation(stream->worker->pool);
    pick_session_on_message(stream->session, &(struct pick_message){.data = buf_str(&out)});
}

static void ask_headers(struct stream *stream) {
    static const struct ext_proc_header headers[] = {{{":method", 7}, {"POST", 4}},
                                                     {{":path", 5}, {"/v1/completions", 15}}};
    static const enum ext_proc_body_mode modes[] = {EXT_PROC_BODY_NONE, EXT_PROC_BODY_FULL_DUPLEX,
                                                    EXT_PROC_BODY_BUFFERED};
    struct ext_proc_config config = {.request_body = modes[prng_below(&stream->worker->prng, 3)]};
    char texts[MOST_HINT][ENDPOINT_TEXT_BYTES];
    struct str list[MOST_HINT];
    for (uint32_t i = 0; i < stream->n_hint; i++) {
        struct endpoint_address address = fixture_numbered(stream->hint[i]);
        list[i] = endpoint_address_print(&address, texts[i]);
    }
    struct ext_proc_entry entry = {
        STR("x-gateway-destination-endpoint-subset"), {NULL, 0}, list, stream->n_hint, NULL};
    struct ext_proc_namespace space = {STR("envoy.lb.subset_hint"), &entry, 1};
    struct ext_proc_client_request question = {.kind = EXT_PROC_REQUEST_HEADERS,
                                               .headers = headers,
                                               .n_headers = 2,
                                               .config = &config,
                                               .has_metadata = true,
                                               .metadata = &space,
                                               .n_metadata = stream->has_hint};
    ask(stream, &question);
}

/* The next message; sometimes the stream ends instead. */
static void go_on(struct stream *stream) {
    static const struct ext_proc_header status = {{":status", 7}, {"200", 3}};
    struct ext_proc_client_request question = {.kind = EXT_PROC_REQUEST_BODY};
    switch (stream->step++) {
    case 0:
        ask_headers(stream);
        return;
    case 1:
        question.body = STR("{\"model\":\"m\"}");
        question.end_of_stream = true;
        break;
    case 2:
        question.kind = EXT_PROC_RESPONSE_HEADERS;
        question.headers = &status;
        question.n_headers = 1;
        question.end_of_stream = true;
        break;
    default:
        pick_session_half_close(stream->session);
        close_stream(stream);
        return;
    }
    ask(stream, &question);
}

static void *run_worker(void *arg) {
    struct worker_of_test *worker = arg;
    while (!atomic_load(worker->over)) {
        struct stream *stream = &worker->streams[prng_below(&worker->prng, OPEN)];
        if (!stream->session) {
            open_stream(worker, stream);
        } else if (prng_below(&worker->prng, 8) == 0) {
            close_stream(stream);
        } else {
            go_on(stream);
        }
    }
    for (size_t i = 0; i < OPEN; i++) {
        if (worker->streams[i].session) {
            close_stream(&worker->streams[i]);
        }
    }
    pool_reader_unref(worker->reader);
    return NULL;
}

static void session_concurrent_streams_survive_pool_updates(void **state) {
    static struct worker_of_test workers[THREADS];
    pthread_t threads[THREADS];
    _Atomic bool over = false;
    _Atomic uint64_t picks = 0;
    struct pool_stats pool_counts;
    struct pool *pool;
    struct error err;
    unsigned n_picked = 0, n_refused = 0;
    (void)state;
    assert_int_equal(pool_new(&pool, &err), ST_OK);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] =
            (struct worker_of_test){.pool = pool, .prng = {i}, .over = &over, .picks = &picks};
        assert_int_equal(pool_reader_new(pool, 0, &workers[i].reader, &err), ST_OK);
        assert_int_equal(pthread_create(&threads[i], NULL, run_worker, &workers[i]), 0);
    }
    uint64_t generation = 0;
    while (generation < UPDATES || atomic_load(&picks) < PICKS) {
        fixture_update(pool, spec_of(++generation));
        sched_yield();
    }
    atomic_store(&over, true);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(workers[i].n_wrong, 0);
        n_picked += workers[i].n_picked;
        n_refused += workers[i].n_refused;
    }
    assert_true(n_picked > 0 && n_refused > 0);
    pool_get_stats(pool, &pool_counts);
    assert_int_equal(pool_counts.n_in_flight, 0);
    pool_free(pool);
    assert_int_equal(metric_read(METRIC_ARENAS), 0);
    assert_int_equal(metric_read(METRIC_PICK_STREAMS), 0);
    assert_int_equal(metric_read(METRIC_PICK_HELD_BYTES), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(session_concurrent_streams_survive_pool_updates),
    };
    return cmocka_run_group_tests_name("pick/session/churn", tests, NULL, NULL);
}
