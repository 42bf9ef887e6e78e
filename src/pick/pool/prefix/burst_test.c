/* Windows on several threads: requests join, some leave at once or after the end, and any of them
 * seals. Each is released once, or has left; at the end nothing is held. For the thread
 * sanitizer. */
#include "pick/pool/prefix/burst.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "pick/pool/flow/wait.h"
#include "pick/pool/pool_fixture.h"
#include "pick/pool/profile/profile.h"
#include "pick/pool/state.h"

enum { N = 8, THREADS = 4, ROUNDS = 600, AT_A_TIME = 6 };

static const struct profile_step PREFIX = {.plugin = &plugin_prefix_cache_scorer, .weight = 1};
static const struct profile HOLDING = {
    .scorers = &PREFIX,
    .n_scorers = 1,
    .picker = {.plugin = &plugin_max_score_picker},
    .needs = {.prompt = true,
              .body = true,
              .n_prefixes = 1,
              .used_prefixes = 1,
              .burst_on = true,
              .burst = {.window_ns = 1, .max_batch = 40, .min_blocks = 1},
              .prefixes = {{.name = STR("burst"),
                            .kind = PREFIX_BURST,
                            .block_bytes = 16,
                            .max_blocks = 64,
                            .capacity = 1}}}};

struct worker {
    struct pool *pool;
    struct pool_reader *reader;
    struct pool_wakeup wakeup;
    struct prng prng;
    uint32_t n_joined, n_released, n_left, n_assigned, n_wrong;
};

static void on_notified(void *user) {
    (void)user; /* the workers look at their lists anyway */
}

/* Picks as far as the window. Returns: whether it has joined. */
static bool join(struct worker *worker, struct arena *arena, struct pool_prompt *prompt,
                 struct burst_member *member) {
    char text[80];
    struct pool_pick pick;
    struct error err;
    (void)pool_reader_refresh(worker->reader);
    snprintf(text, sizeof(text), "%064u", prng_below(&worker->prng, 4));
    *member = (struct burst_member){.wakeup = &worker->wakeup};
    struct pool_request request = {
        .may_hold = true, .prompt = pool_prompt_init(prompt, worker->reader, arena, str_of(text))};
    if (pool_pick(worker->reader, &request, &pick, &err) != ST_OK || !pick.is_held ||
        pick.ticket.endpoint) {
        worker->n_wrong++;
        return false;
    }
    return burst_join(worker->reader, &request, member) != 0;
}

static void run_round(struct worker *worker) {
    struct burst_member members[AT_A_TIME], *released;
    struct pool_prompt prompts[AT_A_TIME];
    struct arena *arena = arena_new(NULL, 0);
    for (uint32_t i = 0; i < AT_A_TIME; i++) {
        worker->n_joined += join(worker, arena, &prompts[i], &members[i]);
    }
    if (members[1].batch && prng_below(&worker->prng, 2) == 0) { /* before the end, or after it */
        worker->n_left++;
        burst_leave(worker->pool, &members[1]);
    }
    for (uint32_t i = 0; i < AT_A_TIME; i++) { /* as timers do */
        burst_seal(worker->pool, &members[i]);
    }
    for (uint32_t i = 0; i < AT_A_TIME; i++) {
        while ((released = pool_wakeup_pop_released(&worker->wakeup))) {
            worker->n_released++;
            worker->n_assigned += released->is_assigned;
            worker->n_wrong += released < members || released >= members + AT_A_TIME;
            burst_leave(worker->pool, released);
        }
    }
    for (uint32_t i = 0; i < AT_A_TIME; i++) { /* another thread is placing them */
        worker->n_left += members[i].batch != NULL;
        burst_leave(worker->pool, &members[i]);
    }
    arena_free(arena);
}

static void *work(void *user) {
    struct worker *worker = user;
    for (int i = 0; i < ROUNDS; i++) {
        run_round(worker);
    }
    return NULL;
}

static void burst_threads_share_windows(void **state) {
    struct worker workers[THREADS];
    pthread_t threads[THREADS];
    struct fixture fixture;
    struct pool_spec *spec = fixture_spec_of(N);
    struct error err;
    uint32_t n_assigned = 0;
    (void)state;
    spec->profile = &HOLDING;
    fixture_open_with_prefixes(&fixture, spec);
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.pool = fixture.pool, .prng = {i + 1}};
        pool_wakeup_init(&workers[i].wakeup, on_notified, NULL);
        assert_int_equal(pool_reader_new(fixture.pool, i + 1, &workers[i].reader, &err), ST_OK);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(workers[i].n_wrong, 0);
        assert_int_equal(workers[i].n_released + workers[i].n_left, workers[i].n_joined);
        n_assigned += workers[i].n_assigned;
        pool_wakeup_fini(&workers[i].wakeup);
        pool_reader_unref(workers[i].reader);
    }
    assert_true(n_assigned > 0);
    fixture_close(&fixture); /* asserts that no window is open */
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(burst_threads_share_windows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
