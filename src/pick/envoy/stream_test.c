/* Requests in a simulated Envoy: picks at the headers and in the body, at every split; renamed
 * models; replies of the picker; waiting; a filter that is destroyed within a call, or while it
 * waits; bytes of any kind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/metric/metric.h"
#include "core/base/random.h"
#include "core/event/clock.h"
#include "pick/envoy/envoy_fixture.h"
#include "pick/pool/pool_fixture.h"

#define DESTINATION "x-gateway-destination-endpoint"

static const uint64_t SECOND_NS = 1000000000;

struct world {
    struct pool_set *set;
    struct pick_workers *shared;
    struct envoy_workers *workers;
    struct envoy_worker *worker;
    unsigned n_waiting_calls;
};

static void on_waiting(void *user) {
    struct world *world = user;
    world->n_waiting_calls++;
}

static void use_spec(struct world *world, struct pool_spec *spec) {
    struct pool_specs specs = {.n = 0};
    struct error err;
    pool_specs_add(&specs, spec);
    assert_int_equal(pool_set_update(world->set, &specs, &err), ST_OK);
}

/* Two endpoints, and the models "digits" and "other", which becomes "another-name". */
static struct pool_spec *spec_of_models(void) {
    struct pool_spec *spec = fixture_spec_of(2);
    static const struct pool_target target = {.model = STR("another-name"), .weight = 1};
    struct pool_model digits = {.name = STR("digits")};
    struct pool_model other = {.name = STR("other"), .targets = {&target, 1}};
    pool_spec_add_model(spec, &digits);
    pool_spec_add_model(spec, &other);
    spec->strict_models = true;
    return spec;
}

static void open_world(struct world *world, struct pool_spec *spec) {
    struct envoy_workers_options options = {.on_waiting = on_waiting, .user = world};
    struct error err;
    *world = (struct world){.set = NULL};
    clock_set_fake_ns(1000 * SECOND_NS);
    assert_int_equal(pool_set_new(&world->set, &err), ST_OK);
    use_spec(world, spec);
    assert_int_equal(
        pick_workers_new(
            &(struct pick_workers_options){
                .pools = world->set,
                .limits = {.max_body_size = 1 << 20, .answer_timeout_ns = 30 * SECOND_NS},
                .fairness_id_metric_label_limit = 10,
                .proxy_keeps_body = true},
            &world->shared, &err),
        ST_OK);
    options.shared = world->shared;
    assert_int_equal(envoy_workers_new(&options, &world->workers, &err), ST_OK);
    world->worker = envoy_workers_get(world->workers, 0);
    assert_non_null(world->worker);
    assert_null(envoy_workers_get(world->workers, ENVOY_MAX_WORKERS));
}

static void close_world(struct world *world) {
    struct pool_stats stats;
    pool_set_get_stats(world->set, &stats);
    assert_int_equal(stats.n_in_flight, 0);
    envoy_workers_free(world->workers);
    pick_workers_free(world->shared);
    pool_set_free(world->set);
    clock_set_fake_ns(0);
}

static uint64_t in_flight(struct world *world) {
    struct pool_stats stats;
    pool_set_get_stats(world->set, &stats);
    return stats.n_in_flight;
}

/* ---- picks ----------------------------------------------------------------------------------- */

static void envoy_stream_without_model_picks_at_headers(void **state) {
    struct world world;
    struct fake_envoy fake;
    (void)state;
    open_world(&world, fixture_spec_of(1));
    fake_open(&fake, world.worker);
    assert_int_equal(fake_send_headers(&fake, "GET", "/", true), ENVOY_HEADERS_CONTINUE);
    assert_true(str_is(fake_header_set(&fake, DESTINATION), "10.0.0.0:8000"));
    assert_string_equal(fake.destination, "10.0.0.0:8000");
    assert_int_equal(in_flight(&world), 1);
    fake_send_response(&fake, "200", true);
    assert_int_equal(in_flight(&world), 0);
    fake_close(&fake);
    close_world(&world);
}

static void check_split(struct world *world, struct str body, struct str expected, size_t at,
                        bool ends_apart) {
    struct fake_envoy fake;
    char length[24];
    fake_open(&fake, world->worker);
    (void)snprintf(length, sizeof(length), "%zu", body.len);
    fake_add_header(&fake, "content-length", length);
    assert_int_equal(fake_send_headers(&fake, "POST", "/v1/completions", false),
                     ENVOY_HEADERS_STOP);
    (void)fake_send_body(&fake, str_make(body.ptr, at), false);
    (void)fake_send_body(&fake, str_make(body.ptr + at, body.len - at), !ends_apart);
    if (ends_apart) {
        (void)fake_send_body(&fake, STR(""), true);
    }
    assert_int_equal(fake.status, 0);
    assert_true(fake.is_headers_sent && fake.is_end_sent);
    assert_non_null(fake_header_set(&fake, DESTINATION).ptr);
    assert_true(str_eq(buf_str(&fake.upstream), expected));
    (void)snprintf(length, sizeof(length), "%zu", expected.len);
    assert_true(body.len == expected.len ||
                str_is(fake_header_set(&fake, "content-length"), length));
    fake_close(&fake);
}

static void envoy_stream_body_split_anywhere_is_passed_on(void **state) {
    static const struct str body = STR("{\"prompt\": \"abc\", \"model\": \"digits\", \"n\": 1}");
    static const struct str other = STR("{\"prompt\": \"abc\", \"model\": \"other\", \"n\": 1}");
    static const struct str renamed =
        STR("{\"prompt\": \"abc\", \"model\": \"another-name\", \"n\": 1}");
    struct world world;
    (void)state;
    open_world(&world, spec_of_models());
    for (size_t at = 0; at <= body.len; at++) {
        check_split(&world, body, body, at, false);
        check_split(&world, body, body, at, true);
    }
    for (size_t at = 0; at <= other.len; at++) {
        check_split(&world, other, renamed, at, false);
        check_split(&world, other, renamed, at, true);
    }
    close_world(&world);
}

static void envoy_stream_subset_of_metadata_limits_pick(void **state) {
    struct world world;
    (void)state;
    open_world(&world, fixture_spec_of(20));
    for (int i = 0; i < 8; i++) {
        struct fake_envoy fake;
        fake_open(&fake, world.worker);
        fake.subset = i == 7 ? "10.9.9.9:1" : "10.0.0.13:8000";
        enum envoy_headers_status status = fake_send_headers(&fake, "GET", "/", true);
        assert_int_equal(status, i == 7 ? ENVOY_HEADERS_STOP : ENVOY_HEADERS_CONTINUE);
        assert_int_equal(fake.status, i == 7 ? 503 : 0);
        assert_true(i == 7 || str_is(fake_header_set(&fake, DESTINATION), "10.0.0.13:8000"));
        fake_close(&fake);
    }
    close_world(&world);
}

static void envoy_stream_refused_connection_is_avoided(void **state) {
    struct world world;
    struct fake_envoy fake;
    struct str first;
    (void)state;
    open_world(&world, fixture_spec_of(2));
    fake_open(&fake, world.worker);
    (void)fake_send_headers(&fake, "GET", "/", true);
    first = str_make(fake.destination, strlen(fake.destination));
    fake.details = "upstream_reset_before_response_started{remote_connection_failure|x}";
    fake_send_response(&fake, "503", true);
    for (int i = 0; i < 10; i++) {
        struct fake_envoy next;
        fake_open(&next, world.worker);
        (void)fake_send_headers(&next, "GET", "/", true);
        assert_false(str_is(first, next.destination));
        fake_close(&next);
    }
    fake_close(&fake);
    close_world(&world);
}

/* Envoy has tried the picked endpoint in vain, and another one has served. */
static void envoy_stream_retried_request_tells_of_first_endpoint(void **state) {
    static const char *const others[] = {"10.0.0.0:8000", "10.0.0.1:8000"};
    struct world world;
    struct fake_envoy fake, next;
    (void)state;
    for (unsigned n_attempts = 1; n_attempts <= 2; n_attempts++) {
        open_world(&world, fixture_spec_of(2));
        fake_open(&fake, world.worker);
        (void)fake_send_headers(&fake, "GET", "/", true);
        fake.details = "via_upstream";
        fake.n_attempts = n_attempts;
        fake.served = others[strcmp(fake.destination, others[0]) == 0];
        int64_t n_refused = metric_read(METRIC_PICK_REFUSED_TOTAL);
        fake_send_response(&fake, "200", true);
        assert_int_equal(metric_read(METRIC_PICK_REFUSED_TOTAL) - n_refused, n_attempts - 1);
        for (int i = 0; i < 10 && n_attempts == 2; i++) {
            fake_open(&next, world.worker);
            (void)fake_send_headers(&next, "GET", "/", true);
            assert_string_equal(next.destination, fake.served);
            fake_close(&next);
        }
        fake_close(&fake);
        close_world(&world);
    }
}

/* ---- replies --------------------------------------------------------------------------------- */

struct refused {
    const char *path, *body, *type;
    unsigned status, grpc_status;
    const char *says;
};

static const struct refused REFUSED[] = {
    {"/v1/completions", "{\"model\": \"unheard\"}", "application/json", 404, 0, "unheard"},
    {"/v1/completions", "{}", "application/json", 400, 0, "model"},
    {"/v1/completions", "nonsense", "application/json", 400, 0, ""},
    {"/v1/completions", "", "application/json", 400, 0, ""},
    {"/v2/models/unheard/infer", "{}", "application/json", 404, 0, "unheard"},
    {"/inference.GRPCInferenceService/ModelInfer", "x", "application/grpc", 200, 3, ""},
};

static void refuse(struct world *world, const struct refused *row, bool destroys, bool has_length) {
    struct fake_envoy fake;
    char length[24];
    struct str body = str_of(row->body);
    fake_open(&fake, world->worker);
    fake.destroys_on_reply = destroys;
    (void)snprintf(length, sizeof(length), "%zu", body.len);
    fake_add_header(&fake, "content-type", row->type);
    if (has_length) {
        fake_add_header(&fake, "content-length", length);
    }
    (void)fake_send_headers(&fake, "POST", row->path, false);
    for (size_t i = 0; i < body.len && !fake.is_destroyed && fake.status == 0; i++) {
        assert_int_equal(fake_send_body(&fake, str_make(body.ptr + i, 1), false), ENVOY_BODY_STOP);
    }
    if (!fake.is_destroyed && fake.status == 0) {
        assert_int_equal(fake_send_body(&fake, STR(""), true), ENVOY_BODY_STOP);
    }
    assert_int_equal(fake.status, row->status);
    assert_int_equal(fake.grpc_status, row->grpc_status);
    assert_true(row->grpc_status > 0 || strstr(fake.body.ptr, row->says));
    assert_false(fake.is_headers_sent);
    fake_close(&fake);
}

static void envoy_stream_refusal_is_sent_once(void **state) {
    struct world world;
    (void)state;
    open_world(&world, spec_of_models());
    for (size_t i = 0; i < sizeof(REFUSED) / sizeof(REFUSED[0]); i++) {
        for (int k = 0; k < 4; k++) {
            refuse(&world, &REFUSED[i], k % 2 == 0, k / 2 == 0);
        }
    }
    close_world(&world);
}

static void envoy_stream_large_body_without_model_is_413(void **state) {
    static char bytes[1 << 16];
    struct world world;
    struct fake_envoy fake;
    (void)state;
    memset(bytes, ' ', sizeof(bytes));
    open_world(&world, spec_of_models());
    fake_open(&fake, world.worker);
    (void)fake_send_headers(&fake, "POST", "/v1/completions", false);
    for (int i = 0; i < 40 && fake.status == 0; i++) {
        (void)fake_send_body(&fake, str_make(bytes, sizeof(bytes)), false);
        (void)fake_run_scheduled(&fake);
    }
    assert_int_equal(fake.status, 413);
    fake_close(&fake);
    close_world(&world);
}

/* ---- waiting --------------------------------------------------------------------------------- */

static struct pool_spec *spec_of_one_at_a_time(void) {
    struct pool_spec *spec = fixture_spec_of(1);
    struct pool_model digits = {.name = STR("digits")};
    pool_spec_add_model(spec, &digits);
    spec->strict_models = true;
    spec->max_in_flight = 1;
    spec->flow_control.on = true;
    return spec;
}

/* The one that has the endpoint's only place. */
static void occupy(struct fake_envoy *fake, struct world *world) {
    fake_open(fake, world->worker);
    assert_int_equal(fake_send_headers(fake, "GET", "/", true), ENVOY_HEADERS_CONTINUE);
}

static void envoy_stream_queued_at_headers_continues(void **state) {
    struct world world;
    struct fake_envoy first, second;
    (void)state;
    open_world(&world, spec_of_one_at_a_time());
    occupy(&first, &world);
    fake_open(&second, world.worker);
    assert_int_equal(fake_send_headers(&second, "GET", "/", true), ENVOY_HEADERS_STOP_ALL);
    assert_int_equal(world.n_waiting_calls, 1);
    assert_true(envoy_workers_tick(world.workers));
    assert_true(fake_run_scheduled(&second));
    assert_false(second.is_headers_sent);
    fake_send_response(&first, "200", true);
    assert_true(fake_run_scheduled(&second));
    assert_true(second.is_headers_sent);
    assert_int_equal(second.n_continues, 1);
    assert_false(envoy_workers_tick(world.workers));
    fake_close(&first);
    fake_close(&second);
    close_world(&world);
}

static void envoy_stream_queued_at_body_passes_rest_later(void **state) {
    static const char body[] = "{\"model\": \"digits\", \"prompt\": \"abcdefghijklmnop\"}";
    struct world world;
    struct fake_envoy first, second;
    (void)state;
    open_world(&world, spec_of_one_at_a_time());
    for (size_t at = 20; at < sizeof(body) - 1; at++) {
        occupy(&first, &world);
        fake_open(&second, world.worker);
        assert_int_equal(fake_send_headers(&second, "POST", "/v1/completions", false),
                         ENVOY_HEADERS_STOP);
        assert_int_equal(fake_send_body(&second, str_make(body, at), false), ENVOY_BODY_STOP);
        assert_int_equal(
            fake_send_body(&second, str_make(body + at, sizeof(body) - 1 - at), at % 2 == 0),
            ENVOY_BODY_STOP);
        fake_close(&first);
        assert_true(fake_run_scheduled(&second));
        assert_int_equal(second.n_continues, 1);
        if (at % 2 == 1) {
            assert_int_equal(fake_send_body(&second, STR(""), true), ENVOY_BODY_CONTINUE);
        }
        assert_true(second.is_end_sent);
        assert_true(str_is(buf_str(&second.upstream), body));
        fake_close(&second);
    }
    close_world(&world);
}

/* Envoy keeps the body meanwhile, and passes it when the request goes on: each byte once. */
static void envoy_stream_queued_at_headers_reads_body_once(void **state) {
    static const char body[] = "{\"inputs\": []}";
    struct world world;
    struct fake_envoy first, second;
    (void)state;
    open_world(&world, spec_of_one_at_a_time());
    for (int with_trailers = 0; with_trailers < 2; with_trailers++) {
        occupy(&first, &world);
        fake_open(&second, world.worker);
        assert_int_equal(fake_send_headers(&second, "POST", "/v2/models/digits/infer", false),
                         ENVOY_HEADERS_STOP_ALL);
        (void)fake_send_body(&second, str_of(body), with_trailers == 0);
        if (with_trailers) {
            (void)fake_send_trailers(&second);
        }
        fake_close(&first);
        assert_true(fake_run_scheduled(&second));
        assert_int_equal(second.n_continues, 1);
        assert_int_equal(second.status, 0);
        assert_true(second.is_end_sent);
        assert_true(str_is(buf_str(&second.upstream), body));
        assert_int_equal(pick_session_body_bytes(second.stream->shared.session), sizeof(body) - 1);
        fake_send_response(&second, "200", true);
        fake_close(&second);
    }
    close_world(&world);
}

static void envoy_stream_destroyed_while_queued_lets_others_continue(void **state) {
    struct world world;
    struct fake_envoy first, second, third;
    (void)state;
    open_world(&world, spec_of_one_at_a_time());
    occupy(&first, &world);
    fake_open(&second, world.worker);
    fake_open(&third, world.worker);
    assert_int_equal(fake_send_headers(&second, "GET", "/", true), ENVOY_HEADERS_STOP_ALL);
    assert_int_equal(fake_send_headers(&third, "GET", "/", true), ENVOY_HEADERS_STOP_ALL);
    fake_close(&first); /* calls the scheduler of the second, which is destroyed before it runs */
    fake_close(&second);
    assert_true(fake_run_scheduled(&third));
    assert_true(third.is_headers_sent);
    fake_close(&third);
    close_world(&world);
}

static void envoy_stream_queue_deadline_is_replied(void **state) {
    struct world world;
    struct fake_envoy first, second, third;
    (void)state;
    open_world(&world, spec_of_one_at_a_time());
    occupy(&first, &world);
    fake_open(&second, world.worker);
    fake_open(&third, world.worker);
    second.destroys_on_reply = true;
    (void)fake_send_headers(&second, "GET", "/", true);
    (void)fake_send_headers(&third, "POST", "/v1/completions", false); /* its body never comes */
    clock_set_fake_ns(2000 * SECOND_NS);
    assert_true(envoy_workers_tick(world.workers));
    assert_true(fake_run_scheduled(&second));
    assert_int_equal(second.status, 429);
    assert_int_equal(third.status, 408);
    fake_close(&first);
    fake_close(&second);
    fake_close(&third);
    close_world(&world);
}

/* ---- turns ----------------------------------------------------------------------------------- */

enum { LONG_BYTES = 1 << 19, LONG_PIECE = 16 << 10 };

/* A prompt before its model, or after it: then another name may follow. */
static struct str long_body(struct arena *arena, const char *model, bool is_model_first) {
    struct buf body;
    buf_init(&body, arena, LONG_BYTES + 100);
    if (is_model_first) {
        buf_add_str(&body, arena_printf(arena, "{\"model\": \"%s\", ", model));
    } else {
        buf_add_char(&body, '{');
    }
    buf_add_str(&body, STR("\"prompt\": \""));
    while (body.len < LONG_BYTES) {
        buf_add_str(&body, STR("many words "));
    }
    if (!is_model_first) {
        buf_add_str(&body, arena_printf(arena, "\", \"model\": \"%s", model));
    }
    buf_add_str(&body, STR("\"}"));
    return buf_str(&body);
}

/* One call of its scheduler. */
static bool run_turn(struct fake_envoy *fake) {
    if (atomic_exchange(&fake->n_scheduled, 0) == 0) {
        return false;
    }
    envoy_stream_on_scheduled(fake->stream);
    return true;
}

/* Between the turns of a long body, which comes at once, another request is picked for. */
static void envoy_stream_long_body_lets_others_pick(void **state) {
    struct world world;
    struct fake_envoy fake, other;
    struct arena *arena = arena_new(NULL, 0);
    struct str body = long_body(arena, "digits", false);
    unsigned n_turns = 0;
    (void)state;
    open_world(&world, spec_of_models());
    for (int apart = 0; apart < 2; apart++) {
        fake_open(&fake, world.worker);
        fake.piece_bytes = LONG_PIECE;
        assert_int_equal(fake_send_headers(&fake, "POST", "/v1/completions", false),
                         ENVOY_HEADERS_STOP);
        assert_int_equal(fake_send_body(&fake, body, apart == 0), ENVOY_BODY_STOP);
        assert_true(fake.stream->n_passed < LONG_BYTES / 2);
        for (n_turns = 0; run_turn(&fake); n_turns++) {
            fake_open(&other, world.worker);
            (void)fake_send_headers(&other, "GET", "/v2/models/digits/infer", true);
            assert_true(other.is_headers_sent && other.destination[0]);
            fake_close(&other);
        }
        assert_true(n_turns >= 3);
        assert_int_equal(fake.n_continues, 1);
        if (apart) {
            assert_int_equal(fake_send_body(&fake, STR(""), true), ENVOY_BODY_CONTINUE);
        }
        assert_true(fake.is_end_sent && fake.status == 0);
        assert_true(str_eq(buf_str(&fake.upstream), body));
        fake_close(&fake);
    }
    arena_free(arena);
    close_world(&world);
}

/* What comes while it waits for its turn: the rest of the body, trailers; a model that is renamed,
 * or unknown, at the end or at the beginning, when the first parts have gone on. */
static void envoy_stream_long_body_is_read_to_its_end(void **state) {
    static const char *const models[] = {"digits", "other", "unheard"};
    struct world world;
    struct fake_envoy fake;
    (void)state;
    open_world(&world, spec_of_models());
    for (int i = 0; i < 12; i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct str body = long_body(arena, models[i % 3], i % 6 >= 3);
        struct str expected = i % 3 == 1 ? long_body(arena, "another-name", i % 6 >= 3) : body;
        fake_open(&fake, world.worker);
        fake.piece_bytes = LONG_PIECE;
        (void)fake_send_headers(&fake, "POST", "/v1/completions", false);
        for (size_t at = 0; at < body.len && fake.status == 0; at += 60000) {
            size_t n = body.len - at < 60000 ? body.len - at : 60000;
            (void)fake_send_body(&fake, str_make(body.ptr + at, n), at + n == body.len && i < 6);
        }
        if (i >= 6 && fake.status == 0) {
            assert_int_equal(fake_send_trailers(&fake), ENVOY_TRAILERS_STOP);
        }
        assert_true(fake_run_scheduled(&fake) || fake.status > 0);
        assert_int_equal(fake.status, i % 3 == 2 ? 404 : 0);
        if (fake.status == 0) {
            assert_true(fake.is_end_sent && str_eq(buf_str(&fake.upstream), expected));
            assert_int_equal(pick_session_body_bytes(fake.stream->shared.session), body.len);
        }
        fake_close(&fake);
        arena_free(arena);
    }
    close_world(&world);
}

static void envoy_stream_destroyed_before_its_turn_leaves_others(void **state) {
    struct world world;
    struct fake_envoy fakes[3];
    struct arena *arena = arena_new(NULL, 0);
    struct str body = long_body(arena, "digits", false);
    (void)state;
    open_world(&world, spec_of_models());
    for (int i = 0; i < 3; i++) {
        fake_open(&fakes[i], world.worker);
        fakes[i].piece_bytes = LONG_PIECE;
        (void)fake_send_headers(&fakes[i], "POST", "/v1/completions", false);
        assert_int_equal(fake_send_body(&fakes[i], body, true), ENVOY_BODY_STOP);
    }
    fake_close(&fakes[0]); /* whose scheduler was called */
    for (int n = 0; n < 100 && !(fakes[1].is_end_sent && fakes[2].is_end_sent); n++) {
        (void)fake_run_scheduled(&fakes[1]);
        (void)fake_run_scheduled(&fakes[2]);
    }
    assert_true(fakes[1].is_end_sent && fakes[2].is_end_sent);
    fake_close(&fakes[1]);
    fake_close(&fakes[2]);
    arena_free(arena);
    close_world(&world);
}

/* ---- any bytes ------------------------------------------------------------------------------- */

static struct str random_text(struct prng *prng, struct arena *arena, size_t most) {
    static const char *const words[] = {
        "{\"model\": \"digits\"}", "model", "digits", "\"",   "{", ":",
        "/v2/models/digits/infer", "\xff",  "POST",   "\\u00"};
    struct buf out;
    buf_init(&out, arena, most + 64);
    while (out.len < most && prng_below(prng, 4) > 0) {
        if (prng_below(prng, 3) == 0) {
            buf_add_str(&out, str_of(words[prng_below(prng, sizeof(words) / sizeof(words[0]))]));
        } else {
            buf_add_char(&out, (char)prng_below(prng, 256));
        }
    }
    return buf_str(&out).ptr ? buf_str(&out) : STR("");
}

static void send_random(struct fake_envoy *fake, struct prng *prng) {
    static const char *const paths[] = {"/v1/completions", "/v2/models/other/infer", "/", "",
                                        "/inference.GRPCInferenceService/ModelInfer"};
    for (uint32_t n = prng_below(prng, 40); n > 0; n--) {
        fake->given[fake->n_given++] = (struct fake_header){random_text(prng, fake->arena, 60),
                                                            random_text(prng, fake->arena, 400)};
    }
    bool is_end = prng_below(prng, 5) == 0;
    enum envoy_headers_status status =
        fake_send_headers(fake, "POST", paths[prng_below(prng, 5)], is_end);
    while (!is_end && !fake->is_destroyed && fake->status == 0 &&
           status != ENVOY_HEADERS_STOP_ALL && prng_below(prng, 9) > 0) {
        is_end = prng_below(prng, 6) == 0;
        (void)fake_send_body(fake, random_text(prng, fake->arena, 500), is_end);
    }
    if (!is_end && !fake->is_destroyed && fake->status == 0 && prng_below(prng, 3) == 0) {
        (void)envoy_stream_on_request_trailers(fake->stream);
    }
}

static void envoy_stream_any_bytes_are_safe(void **state) {
    struct prng prng = {1};
    struct world world;
    (void)state;
    open_world(&world, spec_of_models());
    for (int i = 0; i < 4000; i++) {
        struct fake_envoy fake;
        fake_open(&fake, world.worker);
        fake.destroys_on_reply = prng_below(&prng, 2) == 0;
        send_random(&fake, &prng);
        if (!fake.is_destroyed && fake.status == 0 && prng_below(&prng, 2) == 0) {
            fake_send_response(&fake, prng_below(&prng, 2) == 0 ? "200" : "\xff", false);
            envoy_stream_on_response_trailers(fake.stream);
        }
        fake_close(&fake);
    }
    close_world(&world);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(envoy_stream_without_model_picks_at_headers),
        cmocka_unit_test(envoy_stream_body_split_anywhere_is_passed_on),
        cmocka_unit_test(envoy_stream_subset_of_metadata_limits_pick),
        cmocka_unit_test(envoy_stream_refused_connection_is_avoided),
        cmocka_unit_test(envoy_stream_retried_request_tells_of_first_endpoint),
        cmocka_unit_test(envoy_stream_refusal_is_sent_once),
        cmocka_unit_test(envoy_stream_large_body_without_model_is_413),
        cmocka_unit_test(envoy_stream_queued_at_headers_continues),
        cmocka_unit_test(envoy_stream_queued_at_headers_reads_body_once),
        cmocka_unit_test(envoy_stream_queued_at_body_passes_rest_later),
        cmocka_unit_test(envoy_stream_destroyed_while_queued_lets_others_continue),
        cmocka_unit_test(envoy_stream_queue_deadline_is_replied),
        cmocka_unit_test(envoy_stream_long_body_lets_others_pick),
        cmocka_unit_test(envoy_stream_long_body_is_read_to_its_end),
        cmocka_unit_test(envoy_stream_destroyed_before_its_turn_leaves_others),
        cmocka_unit_test(envoy_stream_any_bytes_are_safe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
