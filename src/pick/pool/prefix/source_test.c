/* The endpoint that others fetch the prompt's beginning from: one that has most of it, by load and
 * by the request's id. */
#include "pick/pool/prefix/source.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/event/clock.h"
#include "pick/pool/pool_fixture.h"
#include "pick/pool/profile/profile.h"
#include "pick/pool/state.h"

enum { N = 5, BLOCK = 64 /* 16 tokens */ };

/* By load, so that the picks are where the test wants them. */
static const struct profile BY_LOAD = {
    .picker = {.plugin = &plugin_max_score_picker},
    .needs = {.prompt = true,
              .body = true,
              .source = {.on = true, .min_tokens = 1, .profile = STR("prefill")},
              FIXTURE_PREFIXES(BLOCK, 16, 1000)}};

struct sources {
    struct fixture pool;
    struct arena *arena;
};

static void open_pool(struct sources *self) {
    struct pool_spec *spec = fixture_spec_of(N);
    spec->profile = &BY_LOAD;
    self->arena = arena_new(NULL, 0);
    fixture_open_with_prefixes(&self->pool, spec);
}

static void close_pool(struct sources *self) {
    arena_free(self->arena);
    fixture_close(&self->pool);
    clock_set_fake_ns(0);
}

/* The first `n_blocks` of a prompt of eight. */
static struct str text_of(uint32_t n_blocks) {
    static char text[8 * BLOCK + 1];
    for (uint32_t k = 0; k < 8; k++) {
        snprintf(text + (size_t)k * BLOCK, BLOCK + 1, "%0*d", BLOCK, (int)k + 1);
    }
    return str_make(text, (size_t)n_blocks * BLOCK);
}

/* A request that only endpoint `i` may get, or any with N; its id. Returns: the pick. */
static struct pool_pick ask(struct sources *self, uint32_t i, uint32_t n_blocks, const char *id,
                            struct pool_prompt *prompt) {
    struct endpoint_address address = fixture_numbered(i);
    struct subset only = {.items = &address, .n = 1, .cap = 1};
    struct pool_pick out;
    struct error err;
    (void)pool_reader_refresh(self->pool.reader);
    struct pool_request request = {
        .id = str_of(id),
        .subset = i < N ? &only : NULL,
        .prompt = pool_prompt_init(prompt, self->pool.reader, self->arena, text_of(n_blocks))};
    assert_int_equal(pool_pick(self->pool.reader, &request, &out, &err), ST_OK);
    pool_release_ticket(self->pool.pool, &out.ticket);
    return out;
}

/* Endpoint `i` has so many blocks. */
static void give(struct sources *self, uint32_t i, uint32_t n_blocks) {
    struct pool_prompt prompt;
    struct pool_pick out = ask(self, i, n_blocks, "x", &prompt);
    pool_prompt_answered(self->pool.reader, &prompt, out.endpoints[0], true);
}

/* The source for endpoint `i`, of a request that may go to any; "" for none. */
static const char *source_for(struct sources *self, uint32_t i, const char *id,
                              uint32_t min_tokens) {
    static char out[ENDPOINT_TEXT_BYTES];
    struct pool_prompt prompt;
    struct endpoint_address address = fixture_numbered(i);
    (void)ask(self, N, 8, id, &prompt);
    const struct endpoint *endpoint =
        pool_snapshot_find(pool_reader_refresh(self->pool.reader), &address)->endpoint;
    struct str text = prefix_source_for(&prompt.text->source, endpoint, min_tokens, self->arena);
    pool_prompt_answered(self->pool.reader, &prompt, NULL, false);
    snprintf(out, sizeof(out), "%.*s", STR_ARG(text));
    return out;
}

/* The proxy shows responses: prompts are recorded by them. */
static void show_a_response(struct sources *self) {
    struct pool_prompt prompt;
    (void)pool_reader_refresh(self->pool.reader);
    (void)pool_prompt_init(&prompt, self->pool.reader, self->arena, STR("x"));
    pool_prompt_answered(self->pool.reader, &prompt, NULL, false);
}

static void source_has_most_of_the_prompt(void **state) {
    struct sources self;
    (void)state;
    open_pool(&self);
    show_a_response(&self);
    assert_string_equal(source_for(&self, 0, "a", 1), "");
    give(&self, 1, 2);
    give(&self, 2, 6);
    assert_string_equal(source_for(&self, 0, "a", 1), "10.0.0.2:8000");
    assert_string_equal(source_for(&self, 1, "a", 1), "10.0.0.2:8000");
    assert_string_equal(source_for(&self, 2, "a", 1), "");               /* not from itself */
    assert_string_equal(source_for(&self, 1, "a", 64), "10.0.0.2:8000"); /* 4 blocks more */
    assert_string_equal(source_for(&self, 1, "a", 65), "");
    assert_string_equal(source_for(&self, 0, "a", 96), "10.0.0.2:8000");
    assert_string_equal(source_for(&self, 0, "a", 97), "");
    assert_string_equal(source_for(&self, 0, "a", UINT32_MAX), "");
    close_pool(&self);
}

/* Those with up to a block less share the requests, by the request's id. */
static void source_is_shared_by_request_id(void **state) {
    struct sources self;
    uint32_t n_of[N] = {0};
    (void)state;
    open_pool(&self);
    give(&self, 1, 5);
    give(&self, 2, 6);
    give(&self, 3, 4); /* two blocks less */
    for (int i = 0; i < 400; i++) {
        char id[40], first[ENDPOINT_TEXT_BYTES];
        snprintf(id, sizeof(id), "request-%d", i * 7919);
        snprintf(first, sizeof(first), "%s", source_for(&self, 0, id, 1));
        assert_string_equal(source_for(&self, 0, id, 1), first); /* the same id, the same source */
        n_of[first[7] - '0']++;
    }
    assert_int_equal(n_of[1] + n_of[2], 400);
    assert_in_range(n_of[1], 120, 280);
    assert_int_equal(n_of[3], 0);
    close_pool(&self);
}

/* One with nine requests that wait gets a tenth of the share. */
static void source_with_a_queue_gets_fewer(void **state) {
    struct sources self;
    uint32_t n_of[N] = {0};
    (void)state;
    open_pool(&self);
    clock_set_fake_ns(1000000000);
    give(&self, 1, 6);
    give(&self, 2, 6);
    const struct pool_snapshot *snapshot = pool_reader_refresh(self.pool.reader);
    struct endpoint_load load = {.asked_ns = clock_now_ns(),
                                 .until_ns = clock_now_ns() + 1000000000000,
                                 .known = LOAD_WAITING,
                                 .n_waiting = 9};
    struct endpoint_address busy = fixture_numbered(1);
    pool_set_load(self.pool.pool, pool_snapshot_find(snapshot, &busy)->endpoint, &load);
    for (int i = 0; i < 400; i++) {
        char id[40];
        snprintf(id, sizeof(id), "request-%d", i * 7919);
        n_of[source_for(&self, 0, id, 1)[7] - '0']++;
    }
    assert_int_equal(n_of[1] + n_of[2], 400);
    assert_in_range(n_of[1], 10, 80); /* 36 */
    close_pool(&self);
}

/* An endpoint outside the request's subset is no source, and neither is one that has left. */
static void source_is_a_candidate_of_the_request(void **state) {
    struct sources self;
    struct pool_prompt prompt;
    (void)state;
    open_pool(&self);
    give(&self, 2, 6);
    (void)ask(&self, 1, 8, "a", &prompt);
    assert_false(prompt.text->source.is_chosen);
    pool_prompt_answered(self.pool.reader, &prompt, NULL, false);
    struct pool_spec *spec = fixture_spec();
    for (uint32_t i = 0; i < N; i++) {
        struct pool_spec_endpoint wanted = {.address = fixture_numbered(i)};
        if (i != 2) {
            pool_spec_add_endpoint(spec, &wanted);
        }
    }
    spec->profile = &BY_LOAD;
    fixture_update(self.pool.pool, spec);
    assert_string_equal(source_for(&self, 0, "a", 1), "");
    close_pool(&self);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(source_has_most_of_the_prompt),
        cmocka_unit_test(source_is_shared_by_request_id),
        cmocka_unit_test(source_with_a_queue_gets_fewer),
        cmocka_unit_test(source_is_a_candidate_of_the_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
