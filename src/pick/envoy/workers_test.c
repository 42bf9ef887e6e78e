/* Requests on several worker threads, which share pools and wait for each other's endpoints, while
 * pools are updated and a thread ticks: every request goes on, is replied to, or is destroyed, and
 * nothing is left. For the thread sanitizer. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/random.h"
#include "core/event/clock.h"
#include "pick/envoy/envoy_fixture.h"
#include "pick/pool/pool_fixture.h"

enum { THREADS = 3, OPEN = 8, STEPS = 20000, ENDPOINTS = 3, LONG_BYTES = 200 << 10 };

struct world {
    struct pool_set *set;
    struct pick_workers *shared;
    struct envoy_workers *workers;
    struct str long_body; /* read in several turns */
    atomic_bool is_over;
    atomic_bool calls_turns;
};

struct thread {
    struct world *world;
    uint32_t index;
    struct prng prng;
    struct fake_envoy open[OPEN];
    bool is_open[OPEN];
    bool is_body_ended[OPEN];
    uint64_t n_picked, n_replied, n_continued;
};

static void use_spec(struct pool_set *set, struct prng *prng) {
    struct pool_specs specs = {.n = 0};
    struct pool_model model = {.name = STR("digits")};
    struct error err;
    struct pool_spec *spec = fixture_spec_of(1 + prng_below(prng, ENDPOINTS));
    pool_spec_add_model(spec, &model);
    spec->max_in_flight = 1 + prng_below(prng, 2);
    spec->flow_control.on = prng_below(prng, 8) > 0;
    pool_specs_add(&specs, spec);
    assert_int_equal(pool_set_update(set, &specs, &err), ST_OK);
}

static void begin(struct thread *self, size_t i) {
    struct fake_envoy *fake = &self->open[i];
    struct envoy_worker *worker = envoy_workers_get(self->world->workers, self->index);
    assert_non_null(worker);
    fake_open(fake, worker);
    self->is_open[i] = true;
    bool has_body = prng_below(&self->prng, 2) == 0;
    self->is_body_ended[i] = !has_body;
    (void)fake_send_headers(fake, "POST", has_body ? "/v1/completions" : "/", !has_body);
}

static void end(struct thread *self, size_t i) {
    struct fake_envoy *fake = &self->open[i];
    self->n_picked += fake->is_headers_sent;
    self->n_replied += fake->status > 0;
    self->n_continued += fake->n_continues;
    fake_close(fake);
    self->is_open[i] = false;
}

/* The next part of the request, or of its response, or its end. */
static void go_on(struct thread *self, size_t i) {
    static const struct str short_body = STR("{\"model\": \"digits\", \"prompt\": \"abc\"}");
    struct fake_envoy *fake = &self->open[i];
    struct str body = prng_below(&self->prng, 64) == 0 ? self->world->long_body : short_body;
    bool is_stopped = !fake->is_headers_sent && fake->buffered.len == 0 && fake->n_schedulers > 0;
    if (fake->status > 0 || prng_below(&self->prng, 12) == 0) {
        end(self, i);
    } else if (!self->is_body_ended[i] && !is_stopped) {
        self->is_body_ended[i] = true;
        fake->piece_bytes = 16 << 10;
        (void)fake_send_body(fake, body, true);
    } else if (fake->is_headers_sent && self->is_body_ended[i]) {
        fake_send_response(fake, "200", true);
        end(self, i);
    }
}

static void *run_worker(void *arg) {
    struct thread *self = arg;
    for (int step = 0; step < STEPS; step++) {
        size_t i = prng_below(&self->prng, OPEN);
        if (!self->is_open[i]) {
            begin(self, i);
        } else {
            go_on(self, i);
        }
        for (size_t k = 0; k < OPEN; k++) {
            if (self->is_open[k]) {
                (void)fake_run_scheduled(&self->open[k]);
            }
        }
    }
    for (size_t i = 0; i < OPEN; i++) {
        if (self->is_open[i]) {
            end(self, i);
        }
    }
    return NULL;
}

static void *run_ticks(void *arg) {
    struct world *world = arg;
    struct prng prng = {99};
    while (!atomic_load(&world->is_over)) {
        (void)envoy_workers_tick(world->workers);
        if (atomic_exchange(&world->calls_turns, false)) {
            envoy_workers_call_turns(world->workers);
        }
        if (prng_below(&prng, 4) == 0) {
            use_spec(world->set, &prng);
        }
        const struct pick_stats *stats[PICK_MAX_WORKERS];
        assert_true(pick_workers_stats(world->shared, stats) <= THREADS);
    }
    return NULL;
}

static void on_turn(void *user) {
    struct world *world = user;
    atomic_store(&world->calls_turns, true);
}

static void envoy_workers_share_pools_on_threads(void **state) {
    struct world world = {.set = NULL};
    struct thread *threads = calloc(THREADS, sizeof(*threads));
    struct prng prng = {7};
    pthread_t ids[THREADS], ticks;
    struct error err;
    struct pool_stats stats;
    uint64_t n_picked = 0, n_continued = 0;
    (void)state;
    struct arena *arena = arena_new(NULL, 0);
    assert_non_null(threads);
    world.long_body = fake_long_body(arena, LONG_BYTES);
    assert_int_equal(pool_set_new(&world.set, &err), ST_OK);
    use_spec(world.set, &prng);
    assert_int_equal(
        pick_workers_new(&(struct pick_workers_options){.pools = world.set,
                                                        .limits = {.max_body_size = 1 << 20,
                                                                   .answer_timeout_ns = 1000000000},
                                                        .proxy_keeps_body = true},
                         &world.shared, &err),
        ST_OK);
    assert_int_equal(envoy_workers_new(&(struct envoy_workers_options){.shared = world.shared,
                                                                       .on_turn = on_turn,
                                                                       .user = &world},
                                       &world.workers, &err),
                     ST_OK);
    for (uint32_t i = 0; i < THREADS; i++) {
        threads[i].world = &world;
        threads[i].index = i;
        threads[i].prng.state = i + 1;
        assert_int_equal(pthread_create(&ids[i], NULL, run_worker, &threads[i]), 0);
    }
    assert_int_equal(pthread_create(&ticks, NULL, run_ticks, &world), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(ids[i], NULL);
        n_picked += threads[i].n_picked;
        n_continued += threads[i].n_continued;
    }
    atomic_store(&world.is_over, true);
    pthread_join(ticks, NULL);
    assert_true(n_picked > 0 && n_continued > 0);
    pool_set_get_stats(world.set, &stats);
    assert_int_equal(stats.n_in_flight, 0);
    envoy_workers_free(world.workers);
    pick_workers_free(world.shared);
    pool_set_free(world.set);
    arena_free(arena);
    free(threads);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(envoy_workers_share_pools_on_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
