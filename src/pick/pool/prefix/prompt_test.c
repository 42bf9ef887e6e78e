/* Prompts in a pool: an endpoint that has the beginning gets the prompt, others are spread, and
 * endpoints that may have lost their cache are invalidated. Also the other records of requests. */
#include "pick/pool/prefix/prompt.h"

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

enum { N = 10, BLOCK = 64, MOST_PICKS = 1000 };

static const struct profile_step PREFIX = {
    .plugin = &plugin_prefix_cache_scorer, .weight = 1, .name = STR("prefix")};

static const struct profile ONLY_PREFIX = {
    .scorers = &PREFIX,
    .n_scorers = 1,
    .picker = {.plugin = &plugin_max_score_picker},
    .needs = {.prompt = true, .body = true, FIXTURE_PREFIXES(BLOCK, 16, 1000)}};

struct prompts {
    struct fixture pool;
    struct arena *arena;
};

static void open_pool(struct prompts *self, uint32_t n, const struct profile *profile,
                      enum pool_health_kind health) {
    struct pool_spec *spec = fixture_spec_of(n);
    spec->profile = profile;
    spec->health.kind = health;
    self->arena = arena_new(NULL, 0);
    fixture_open_with_prefixes(&self->pool, spec);
}

static void close_pool(struct prompts *self) {
    arena_free(self->arena);
    fixture_close(&self->pool);
    clock_set_fake_ns(0);
}

static struct pool_pick pick(struct prompts *self, struct pool_request *request,
                             struct pool_prompt *prompt, const char *text) {
    struct pool_pick out;
    struct error err;
    (void)pool_reader_refresh(self->pool.reader);
    request->prompt = pool_prompt_init(prompt, self->pool.reader, self->arena, str_of(text));
    assert_int_equal(pool_pick(self->pool.reader, request, &out, &err), ST_OK);
    return out;
}

/* Where a request with this prompt is sent; it ends at once. */
static const struct endpoint *ask(struct prompts *self, const char *model, const char *text) {
    struct pool_request request = {.model = str_of(model)};
    struct pool_prompt prompt;
    struct pool_pick out = pick(self, &request, &prompt, text);
    pool_release_ticket(self->pool.pool, &out.ticket);
    return out.endpoints[0];
}

/* Four blocks that no other number has. */
static const char *text_of(int i) {
    static char text[4 * BLOCK + 1];
    for (int k = 0; k < 4; k++) {
        snprintf(text + k * BLOCK, BLOCK + 1, "%0*d", BLOCK, i * 4 + k + 1);
    }
    return text;
}

/* ---- matches --------------------------------------------------------------------------------- */

static void prompt_repeated_prefix_goes_to_same_endpoint(void **state) {
    struct prompts self;
    (void)state;
    open_pool(&self, N, &ONLY_PREFIX, POOL_HEALTH_NONE);
    const struct endpoint *first[20];
    for (int i = 0; i < 20; i++) {
        first[i] = ask(&self, "m", text_of(i));
    }
    for (int k = 0; k < 5; k++) {
        for (int i = 0; i < 20; i++) {
            char more[4 * BLOCK + 100];
            snprintf(more, sizeof(more), "%s and so on %d", text_of(i), k);
            assert_ptr_equal(ask(&self, "m", more), first[i]);
        }
    }
    close_pool(&self);
}

static void prompt_same_text_of_other_model_is_unrelated(void **state) {
    struct prompts self;
    int n_same = 0;
    (void)state;
    open_pool(&self, N, &ONLY_PREFIX, POOL_HEALTH_NONE);
    for (int i = 0; i < 100; i++) {
        const struct endpoint *first = ask(&self, "m", text_of(i));
        n_same += ask(&self, "n", text_of(i)) == first;
    }
    assert_true(n_same < 40); /* 10 at random */
    close_pool(&self);
}

/* A thousand different prompts between two load reports, with the default profile: within 10 % of
 * even. */
static void prompt_burst_of_different_prompts_spreads(void **state) {
    static const uint32_t sizes[] = {2, 3, 8, 10, 50, 100};
    (void)state;
    for (size_t k = 0; k < sizeof(sizes) / sizeof(*sizes); k++) {
        struct prompts self;
        struct pool_ticket tickets[MOST_PICKS];
        uint32_t n = sizes[k];
        clock_set_fake_ns(1000);
        open_pool(&self, n, NULL, POOL_HEALTH_NONE);
        const struct pool_snapshot *snapshot = pool_reader_refresh(self.pool.reader);
        for (uint32_t i = 0; i < n; i++) {
            struct endpoint_load load = {.asked_ns = 1000, .until_ns = 2000, .known = 7};
            pool_set_load(self.pool.pool, snapshot->members[i].endpoint, &load);
        }
        for (int i = 0; i < MOST_PICKS; i++) {
            struct pool_request request = {.model = STR("m")};
            struct pool_prompt prompt;
            tickets[i] = pick(&self, &request, &prompt, text_of(i)).ticket;
        }
        for (uint32_t i = 0; i < n; i++) {
            uint64_t n_picked = endpoint_n_picked(snapshot->members[i].endpoint);
            assert_true(n_picked * n >= 900 && n_picked * n <= 1100);
        }
        for (int i = 0; i < MOST_PICKS; i++) {
            pool_release_ticket(self.pool.pool, &tickets[i]);
        }
        close_pool(&self);
    }
}

/* ---- invalidation ---------------------------------------------------------------------------- */

/* How many of `N` prompts that were sent to one endpoint would be sent there again. */
static int count_again(struct prompts *self, const struct endpoint *endpoint) {
    int n = 0;
    for (int i = 0; i < 20; i++) {
        n += ask(self, "m", text_of(i)) == endpoint;
    }
    return n;
}

static struct endpoint *give_all(struct prompts *self) {
    struct endpoint_address wanted = fixture_numbered(0);
    for (int i = 0; i < 20; i++) {
        struct pool_request request = {.model = STR("m")};
        struct pool_prompt prompt;
        struct pool_ticket ticket = pick(self, &request, &prompt, text_of(i)).ticket;
        if (pool_ticket_move(self->pool.reader, &ticket, &wanted)) {
            pool_prompt_answered(self->pool.reader, &prompt, ticket.endpoint, true);
        }
        pool_release_ticket(self->pool.pool, &ticket);
    }
    return pool_reader_refresh(self->pool.reader)->members[0].endpoint;
}

static void prompt_history_is_lost_when_endpoint_not_ready(void **state) {
    struct prompts self;
    (void)state;
    open_pool(&self, N, &ONLY_PREFIX, POOL_HEALTH_TCP);
    const struct pool_snapshot *snapshot = pool_reader_refresh(self.pool.reader);
    for (uint32_t i = 0; i < N; i++) {
        pool_set_ready(self.pool.pool, snapshot->members[i].endpoint, true);
    }
    const struct endpoint *before = ask(&self, "m", text_of(1000));
    assert_ptr_equal(ask(&self, "m", text_of(1000)), before);
    for (uint32_t i = 0; i < N; i++) {
        pool_set_ready(self.pool.pool, snapshot->members[i].endpoint, false);
        pool_set_ready(self.pool.pool, snapshot->members[i].endpoint, true);
    }
    int n_same = 0;
    for (int i = 0; i < 200; i++) { /* no endpoint has them any more: at random */
        const struct endpoint *first = ask(&self, "m", text_of(i));
        n_same += ask(&self, "m", text_of(i)) == first;
        pool_set_ready(self.pool.pool, (struct endpoint *)(uintptr_t)first, false);
        pool_set_ready(self.pool.pool, (struct endpoint *)(uintptr_t)first, true);
        n_same -= ask(&self, "m", text_of(i)) == first;
    }
    assert_true(n_same > 120);
    close_pool(&self);
}

static void prompt_history_is_lost_after_refused_connection(void **state) {
    struct prompts self;
    (void)state;
    clock_set_fake_ns(1000);
    open_pool(&self, N, &ONLY_PREFIX, POOL_HEALTH_NONE);
    struct endpoint *endpoint = give_all(&self);
    pool_report_refused(self.pool.pool, endpoint);
    pool_report_answered(self.pool.pool, endpoint); /* a new process */
    assert_true(count_again(&self, endpoint) < 10);
    close_pool(&self);
}

static void prompt_history_is_lost_when_endpoint_returns(void **state) {
    struct prompts self;
    (void)state;
    open_pool(&self, N, &ONLY_PREFIX, POOL_HEALTH_NONE);
    give_all(&self);
    struct pool_spec *spec = fixture_spec(), *again = fixture_spec_of(N);
    for (uint32_t i = 1; i < N; i++) {
        struct pool_spec_endpoint wanted = {.address = fixture_numbered(i)};
        pool_spec_add_endpoint(spec, &wanted);
    }
    spec->profile = again->profile = &ONLY_PREFIX;
    fixture_update(self.pool.pool, spec);
    pool_reader_refresh(self.pool.reader);
    fixture_update(self.pool.pool, again);
    const struct endpoint *endpoint = pool_reader_refresh(self.pool.reader)->members[0].endpoint;
    assert_true(count_again(&self, endpoint) < 10);
    close_pool(&self);
}

/* An update that does not change the endpoint keeps its prompts. */
static void prompt_history_survives_unrelated_update(void **state) {
    struct prompts self;
    (void)state;
    open_pool(&self, N, &ONLY_PREFIX, POOL_HEALTH_NONE);
    const struct endpoint *first = ask(&self, "m", text_of(1));
    struct pool_spec *spec = fixture_spec_of(N + 5);
    spec->profile = &ONLY_PREFIX;
    fixture_update(self.pool.pool, spec);
    for (int i = 0; i < 5; i++) {
        assert_ptr_equal(ask(&self, "m", text_of(1)), first);
    }
    close_pool(&self);
}

/* The endpoint that served, not the picked one, has the prompt. */
static void prompt_history_moves_to_serving_endpoint(void **state) {
    struct prompts self;
    struct pool_request request = {.model = STR("m")};
    struct pool_prompt prompt;
    int n_served = 0;
    (void)state;
    open_pool(&self, N, &ONLY_PREFIX, POOL_HEALTH_NONE);
    struct pool_ticket ticket = pick(&self, &request, &prompt, text_of(1)).ticket;
    struct endpoint_address other =
        fixture_numbered(ticket.endpoint->address.low == fixture_numbered(0).low ? 1 : 0);
    assert_true(pool_ticket_move(self.pool.reader, &ticket, &other));
    pool_prompt_answered(self.pool.reader, &prompt, ticket.endpoint, true);
    const struct endpoint *served = ticket.endpoint;
    pool_release_ticket(self.pool.pool, &ticket);
    for (int i = 0; i < 100; i++) {
        n_served += ask(&self, "m", text_of(1)) == served;
    }
    assert_in_range(n_served, 20, 80); /* it and the picked one are equal */
    close_pool(&self);
}

/* ---- responses ------------------------------------------------------------------------------- */

/* From now on prompts are recorded with the response. */
static void show_response(struct prompts *self) {
    struct pool_request request = {.model = STR("m")};
    struct pool_prompt prompt;
    struct pool_pick out = pick(self, &request, &prompt, text_of(5000));
    pool_prompt_answered(self->pool.reader, &prompt, out.ticket.endpoint, false);
    pool_release_ticket(self->pool.pool, &out.ticket);
}

/* A burst of one prompt goes to one endpoint before the first response, and only then. */
static void prompt_in_flight_attracts_the_same_prompt(void **state) {
    struct prompts self;
    int n_same = 0;
    (void)state;
    open_pool(&self, N, &ONLY_PREFIX, POOL_HEALTH_NONE);
    show_response(&self);
    for (int i = 0; i < 100; i++) {
        struct pool_request request = {.model = STR("m")};
        struct pool_prompt prompt;
        struct pool_pick out = pick(&self, &request, &prompt, text_of(i));
        for (int k = 0; k < 3; k++) {
            assert_ptr_equal(ask(&self, "m", text_of(i)), out.ticket.endpoint);
        }
        if (i % 2 == 0) {
            pool_prompt_unanswered(self.pool.reader, &prompt);
        } else {
            pool_prompt_answered(self.pool.reader, &prompt, out.ticket.endpoint, false);
        }
        n_same += ask(&self, "m", text_of(i)) == out.ticket.endpoint;
        pool_release_ticket(self.pool.pool, &out.ticket);
    }
    assert_true(n_same < 40); /* 10 at random */
    close_pool(&self);
}

/* The part of a prompt that is in flight follows the part that the endpoint has. */
static void prompt_in_flight_continues_a_known_one(void **state) {
    struct prompts self;
    (void)state;
    open_pool(&self, N, &ONLY_PREFIX, POOL_HEALTH_NONE);
    show_response(&self);
    for (int i = 0; i < 20; i++) {
        struct pool_request request = {.model = STR("m")};
        struct pool_prompt prompt, longer;
        char more[6 * BLOCK + 1];
        snprintf(more, sizeof(more), "%s%0*d", text_of(i), 2 * BLOCK, i);
        struct pool_pick first = pick(&self, &request, &prompt, text_of(i));
        pool_prompt_answered(self.pool.reader, &prompt, first.ticket.endpoint, true);
        struct pool_pick next = pick(&self, &request, &longer, more);
        assert_ptr_equal(next.ticket.endpoint, first.ticket.endpoint);
        assert_int_equal(longer.holds[0].key.n, 2);
        struct pool_prompt again;
        struct pool_pick last = pick(&self, &request, &again, more);
        assert_ptr_equal(last.ticket.endpoint, first.ticket.endpoint);
        assert_int_equal(again.holds[0].key.n, 0); /* all six blocks are known */
        pool_release_ticket(self.pool.pool, &last.ticket);
        pool_prompt_unanswered(self.pool.reader, &longer);
        pool_release_ticket(self.pool.pool, &first.ticket);
        pool_release_ticket(self.pool.pool, &next.ticket);
    }
    close_pool(&self);
}

/* A proxy that stops showing responses: prompts are recorded at the pick again. */
static void prompt_is_recorded_at_pick_without_responses(void **state) {
    struct prompts self;
    (void)state;
    open_pool(&self, N, &ONLY_PREFIX, POOL_HEALTH_NONE);
    show_response(&self);
    for (int i = 0; i < 100; i++) {
        struct pool_request request = {.model = STR("m")};
        struct pool_prompt prompt;
        struct pool_pick out = pick(&self, &request, &prompt, text_of(i));
        pool_prompt_unanswered(self.pool.reader, &prompt);
        pool_release_ticket(self.pool.pool, &out.ticket);
    }
    const struct endpoint *first = ask(&self, "m", text_of(200));
    for (int i = 0; i < 20; i++) {
        assert_ptr_equal(ask(&self, "m", text_of(200)), first);
    }
    close_pool(&self);
}

/* ---- without a prompt or a table ------------------------------------------------------------- */

static void prompt_pick_works_without_table_or_prompt(void **state) {
    struct pool_spec *spec = fixture_spec_of(N);
    struct fixture fixture;
    struct pool_request request = {.model = STR("m")};
    struct arena *arena = arena_new(NULL, 0);
    struct pool_prompt prompt;
    struct pool_pick out;
    struct error err;
    (void)state;
    spec->profile = &ONLY_PREFIX;
    fixture_open(&fixture, spec);
    for (int i = 0; i < 2; i++) {
        request.prompt = i == 0 ? pool_prompt_init(&prompt, fixture.reader, arena, STR("x")) : NULL;
        assert_int_equal(pool_pick(fixture.reader, &request, &out, &err), ST_OK);
        pool_release_ticket(fixture.pool, &out.ticket);
    }
    arena_free(arena);
    fixture_close(&fixture);
}

/* ---- other records --------------------------------------------------------------------------- */

static void prompt_tokens_in_flight_follow_the_ticket(void **state) {
    static const struct profile profile = {.picker = {.plugin = &plugin_random_picker}};
    struct prompts self;
    struct pool_request request = {.n_tokens = 1000};
    struct pool_prompt prompt;
    (void)state;
    open_pool(&self, 2, &profile, POOL_HEALTH_NONE);
    struct pool_ticket ticket = pick(&self, &request, &prompt, "").ticket;
    struct endpoint *picked = ticket.endpoint;
    const struct pool_member *members = pool_reader_refresh(self.pool.reader)->members;
    struct endpoint *other = members[members[0].endpoint == picked].endpoint;
    assert_int_equal(endpoint_n_tokens(picked), 1000);
    assert_int_equal(endpoint_n_tokens(other), 0);
    assert_true(pool_ticket_move(self.pool.reader, &ticket, &other->address));
    assert_int_equal(endpoint_n_tokens(picked), 0);
    assert_int_equal(endpoint_n_tokens(other), 1000);
    pool_release_ticket(self.pool.pool, &ticket);
    pool_release_ticket(self.pool.pool, &ticket);
    assert_int_equal(endpoint_n_tokens(other), 0);
    close_pool(&self);
}

static void prompt_response_times_are_averaged(void **state) {
    static const uint64_t second = 1000000000;
    static const struct profile profile = {.picker = {.plugin = &plugin_random_picker},
                                           .needs = {.latency = true}};
    static const struct {
        uint64_t begins, ends;
        bool good;
        float first_byte_s, answer_s;
    } rows[] = {{2, 5, false, 0, 0},
                {2, 5, true, 2, 2.3f}, /* two first, then a tenth of five */
                {12, 22, true, 3, 4.27f},
                {0, 0, false, 3, 4.27f}};
    struct prompts self;
    (void)state;
    open_pool(&self, 1, &profile, POOL_HEALTH_NONE);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct pool_request request = {.n_tokens = 0};
        struct pool_prompt prompt;
        clock_set_fake_ns(second);
        struct pool_ticket ticket = pick(&self, &request, &prompt, "").ticket;
        const struct endpoint *endpoint = ticket.endpoint;
        clock_set_fake_ns(second + rows[i].begins * second);
        pool_ticket_response_started(self.pool.pool, &ticket, rows[i].good);
        clock_set_fake_ns(second + rows[i].ends * second);
        pool_ticket_response_ended(&ticket);
        pool_release_ticket(self.pool.pool, &ticket);
        assert_float_equal(endpoint->first_byte_s, rows[i].first_byte_s, 0.001);
        assert_float_equal(endpoint->answer_s, rows[i].answer_s, 0.001);
    }
    close_pool(&self);
}

/* After `ms` to the first byte and to the end. */
static void answer(struct prompts *self, struct pool_ticket *ticket, uint64_t ms) {
    uint64_t sent_ns = clock_now_ns();
    clock_set_fake_ns(sent_ns + ms * 1000000);
    pool_ticket_response_started(self->pool.pool, ticket, true);
    pool_ticket_response_ended(ticket);
    pool_release_ticket(self->pool.pool, ticket);
    clock_set_fake_ns(sent_ns);
}

/* A first response that is slow, as a new connection is, is a tenth of the mean of the others. */
static void prompt_first_response_time_is_not_the_mean(void **state) {
    static const struct profile profile = {.picker = {.plugin = &plugin_random_picker},
                                           .needs = {.latency = true}};
    struct prompts self;
    struct pool_request request = {.n_tokens = 0};
    struct pool_prompt prompt;
    struct pool_ticket tickets[3] = {0};
    int n = 0;
    (void)state;
    clock_set_fake_ns(1000000000);
    open_pool(&self, 3, &profile, POOL_HEALTH_NONE);
    while (n < 3) { /* one at each endpoint */
        struct pool_ticket ticket = pick(&self, &request, &prompt, "").ticket;
        struct pool_ticket *own = &tickets[ticket.endpoint->member];
        if (own->endpoint) {
            pool_release_ticket(self.pool.pool, &ticket);
        } else {
            *own = ticket;
            n++;
        }
    }
    const struct endpoint *last = tickets[2].endpoint;
    answer(&self, &tickets[0], 100);
    answer(&self, &tickets[1], 100);
    answer(&self, &tickets[2], 1100);
    assert_float_equal(endpoint_first_byte_s(last), 0.2f, 0.001);
    assert_float_equal(endpoint_answer_s(last), 0.2f, 0.001);
    close_pool(&self);
}

/* One hash for each block, the last of which may be shorter, and at most as many as the profile
 * compares. */
static void prompt_hashes_take_room_for_its_blocks(void **state) {
    static char text[100 * BLOCK + 1];
    static const struct {
        size_t n_bytes;
        uint32_t n_hashes;
    } rows[] = {{0, 0}, {BLOCK - 1, 1}, {3 * BLOCK + 1, 4}, {100 * BLOCK, 16}};
    struct prompts self;
    (void)state;
    open_pool(&self, N, &ONLY_PREFIX, POOL_HEALTH_NONE);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct pool_request request = {.model = STR("m")};
        struct pool_prompt prompt;
        memset(text, 'a', rows[i].n_bytes);
        text[rows[i].n_bytes] = '\0';
        struct pool_pick out = pick(&self, &request, &prompt, text);
        assert_int_equal(prompt.keys[0].n, rows[i].n_hashes);
        assert_in_range(prompt_text_bytes(prompt.text), 0, 16 * sizeof(uint64_t));
        pool_release_ticket(self.pool.pool, &out.ticket);
    }
    close_pool(&self);
}

/* Two producers: a prompt that the small cache has lost is still in the large one. */
static void prompt_lost_by_the_small_cache_is_in_the_large_one(void **state) {
    static const struct profile_step steps[] = {{.plugin = &plugin_queue_scorer, .weight = 1}};
    static const struct profile profile = {
        .scorers = steps,
        .n_scorers = 1,
        .picker = {.plugin = &plugin_max_score_picker},
        .needs = {.prompt = true,
                  .n_prefixes = 2,
                  .used_prefixes = 3,
                  .prefixes = {{.name = STR("gpu"), .block_bytes = BLOCK, .capacity = 8},
                               {.name = STR("cpu"), .block_bytes = BLOCK, .capacity = 80}}}};
    struct prompts self;
    (void)state;
    open_pool(&self, 1, &profile, POOL_HEALTH_NONE);
    for (int i = 0; i < 6; i++) {
        (void)ask(&self, "m", text_of(i)); /* four blocks each */
    }
    const struct prefix_matches *found = self.pool.reader->prefixes;
    (void)ask(&self, "m", text_of(5));
    assert_int_equal(found[0].n, 1);
    assert_int_equal(found[0].hits[0].n_blocks, 4);
    assert_int_equal(found[1].n, 1);
    (void)ask(&self, "m", text_of(1));
    assert_int_equal(found[0].n, 0);
    assert_int_equal(found[1].n, 1);
    assert_int_equal(found[1].hits[0].n_blocks, 4);
    assert_int_equal(found[1].n_blocks, 4);
    close_pool(&self);
}

/* The system text counts before the other one, whichever arrives first. */
static void prompt_system_text_comes_first(void **state) {
    struct prompts self;
    struct pool_prompt prompts[3];
    struct prompt_text texts[3];
    char system[2 * BLOCK + 10], text[3 * BLOCK];
    (void)state;
    memset(system, 's', sizeof(system));
    memset(text, 't', sizeof(text));
    open_pool(&self, 1, &ONLY_PREFIX, POOL_HEALTH_NONE);
    (void)pool_reader_refresh(self.pool.reader);
    for (size_t i = 0; i < 3; i++) {
        struct pool_request request = {.model = STR("m"), .prompt = &prompts[i]};
        prompts[i] = (struct pool_prompt){.text = &texts[i]};
        prompt_text_init(&texts[i], self.pool.reader, self.arena);
        system[0] = i == 2 ? 'x' : 's';
        for (size_t k = 0; k < 2; k++) {
            bool is_system = (k == 0) == (i == 0);
            prompt_text_add(&texts[i], is_system,
                            is_system ? str_make(system, sizeof(system))
                                      : str_make(text, sizeof(text)));
            prompt_text_end(&texts[i], is_system);
        }
        struct pool_pick out;
        struct error err;
        assert_int_equal(pool_pick(self.pool.reader, &request, &out, &err), ST_OK);
        pool_release_ticket(self.pool.pool, &out.ticket);
        assert_int_equal(prompts[i].keys[0].n, 6);
    }
    assert_memory_equal(prompts[0].keys[0].hashes, prompts[1].keys[0].hashes, 6 * sizeof(uint64_t));
    for (size_t k = 0; k < 6; k++) { /* after another system text all is another prompt */
        assert_true(prompts[0].keys[0].hashes[k] != prompts[2].keys[0].hashes[k]);
    }
    close_pool(&self);
}

/* Cold requests are spread round robin. */
static void prompt_cold_requests_rotate_over_endpoints(void **state) {
    static const struct profile_step steps[] = {
        {.plugin = &plugin_no_hit_lru_scorer, .weight = 1},
        {.plugin = &plugin_prefix_cache_scorer, .weight = 10}};
    static const struct profile profile = {
        .scorers = steps,
        .n_scorers = 2,
        .picker = {.plugin = &plugin_max_score_picker},
        .needs = {.prompt = true, .cold_requests = true, FIXTURE_PREFIXES(BLOCK, 16, 1000)}};
    struct prompts self;
    const struct endpoint *order[N];
    (void)state;
    open_pool(&self, N, &profile, POOL_HEALTH_NONE);
    for (int i = 0; i < 4 * N; i++) {
        const struct endpoint *picked = ask(&self, "m", text_of(i));
        if (i < N) {
            for (int k = 0; k < i; k++) {
                assert_ptr_not_equal(order[k], picked);
            }
            order[i] = picked;
        }
        assert_ptr_equal(picked, order[i % N]);
        assert_ptr_equal(ask(&self, "m", text_of(i)), picked); /* warm: does not count */
    }
    close_pool(&self);
}

/* ---- media ----------------------------------------------------------------------------------- */

static const struct profile_step BY_MEDIA = {
    .plugin = &plugin_mm_embeddings_cache_scorer, .weight = 1, .name = STR("media")};
#define MEDIA_PROFILE(most)                                                                        \
    {                                                                                              \
        .scorers = &BY_MEDIA, .n_scorers = 1, .picker = {.plugin = &plugin_max_score_picker},      \
        .needs = {.prompt = true,                                                                  \
                  .body = true,                                                                    \
                  .media_items = true,                                                             \
                  .n_prefixes = 1,                                                                 \
                  .used_prefixes = 1,                                                              \
                  .prefixes = {{.name = STR("mm-embeddings-cache-producer"),                       \
                                .kind = PREFIX_MEDIA,                                              \
                                .capacity = (most)}}},                                             \
    }

static struct pool_request media_request(const struct prompts *self, struct pool_prompt *prompt,
                                         const uint64_t *items, uint32_t n) {
    (void)pool_reader_refresh(self->pool.reader);
    struct pool_request request = {
        .prompt = pool_prompt_init(prompt, self->pool.reader, self->arena, STR("look"))};
    static const uint8_t kinds[512] = {MEDIA_IMAGE, MEDIA_VIDEO, MEDIA_VIDEO};
    prompt->text->media = items;
    prompt->text->media_kinds = kinds;
    prompt->text->n_media = n;
    return request;
}

/* Where a request with these pictures is sent, which the endpoint takes. */
static const struct endpoint *show(const struct prompts *self, const uint64_t *items, uint32_t n,
                                   bool taken) {
    struct pool_prompt prompt;
    struct pool_request request = media_request(self, &prompt, items, n);
    struct pool_pick out;
    struct error err;
    assert_int_equal(pool_pick(self->pool.reader, &request, &out, &err), ST_OK);
    pool_prompt_answered(self->pool.reader, &prompt, out.endpoints[0], taken);
    pool_release_ticket(self->pool.pool, &out.ticket);
    return out.endpoints[0];
}

/* The score of the endpoint for such a request. */
static float media_score(const struct prompts *self, const struct endpoint *endpoint,
                         const uint64_t *items, uint32_t n) {
    struct pool_prompt prompt;
    struct pool_request request = media_request(self, &prompt, items, n);
    struct pool_explanation explanation;
    struct error err;
    assert_int_equal(pool_explain(self->pool.reader, &request, self->arena, &explanation, &err),
                     ST_OK);
    return explanation.items[endpoint->member].score;
}

/* Hashes differ in all bits. */
#define ITEM(i) (UINT64_C(0x9e3779b97f4a7c15) * (uint64_t)(i))

static void assert_score(float got, float wanted) {
    assert_true(got > wanted - 1e-5f && got < wanted + 1e-5f);
}

static void prompt_media_attract_by_their_share(void **state) {
    static const struct profile profile = MEDIA_PROFILE(1000);
    static const uint64_t abc[] = {ITEM(1), ITEM(2), ITEM(3)}, bd[] = {ITEM(2), ITEM(4)},
                          d[] = {ITEM(4)};
    struct prompts self;
    (void)state;
    open_pool(&self, N, &profile, POOL_HEALTH_NONE);
    const struct endpoint *first = show(&self, abc, 3, true);
    assert_score(media_score(&self, first, abc, 3), 1);
    assert_score(media_score(&self, first, bd, 2), 0.5f);
    assert_score(media_score(&self, first, d, 1), 0);
    for (int i = 0; i < 20; i++) {
        assert_ptr_equal(show(&self, abc + i % 3, 1, true), first); /* in any order, each alone */
    }
    assert_ptr_equal(show(&self, bd, 2, true), first);
    assert_score(media_score(&self, first, d, 1), 1);
    close_pool(&self);
}

/* Lookups by kind, hits by endpoint and kind, and the share of each endpoint. */
static void prompt_media_are_counted_by_kind(void **state) {
    static const struct profile profile = MEDIA_PROFILE(1000);
    static const uint64_t abc[] = {ITEM(1), ITEM(2), ITEM(3)}, ad[] = {ITEM(1), ITEM(4)};
    uint64_t n_items[N_MEDIA_KINDS] = {0}, ratios[PREFIX_HIT_RATIO_CELLS] = {0};
    struct prompts self;
    (void)state;
    open_pool(&self, N, &profile, POOL_HEALTH_NONE);
    const struct endpoint *first = show(&self, abc, 3, true);
    assert_ptr_equal(show(&self, ad, 2, true), first);
    pool_read_media_lookups(self.pool.pool, 0, n_items, ratios);
    assert_int_equal(n_items[MEDIA_IMAGE], 2);
    assert_int_equal(n_items[MEDIA_VIDEO], 3);
    assert_int_equal(n_items[MEDIA_OTHER] + n_items[MEDIA_AUDIO], 0);
    assert_int_equal(metric_cell_read(&first->media_hits[0].n_items[MEDIA_IMAGE]), 1);
    assert_int_equal(metric_cell_read(&first->media_hits[0].n_items[MEDIA_VIDEO]), 0);
    assert_int_equal(ratios[0], 2 * N - 1); /* at most 0 */
    assert_int_equal(ratios[5], 1);         /* at most 0.5 */
    assert_int_equal(ratios[PREFIX_HIT_RATIO_CELLS - 1], PREFIX_HIT_ALL / 2);
    close_pool(&self);
}

/* Refused pictures are not remembered, and those in flight are. */
static void prompt_media_count_where_they_are_taken(void **state) {
    static const struct profile profile = MEDIA_PROFILE(1000);
    static const uint64_t a[] = {ITEM(1)}, b[] = {ITEM(2)};
    struct prompts self;
    struct pool_prompt prompt;
    struct pool_pick out;
    struct error err;
    (void)state;
    open_pool(&self, N, &profile, POOL_HEALTH_NONE);
    const struct endpoint *first = show(&self, a, 1, true); /* the proxy shows responses */
    const struct endpoint *refused = show(&self, b, 1, false);
    assert_score(media_score(&self, refused, b, 1), 0);
    struct pool_request request = media_request(&self, &prompt, b, 1);
    assert_int_equal(pool_pick(self.pool.reader, &request, &out, &err), ST_OK);
    assert_score(media_score(&self, out.endpoints[0], b, 1), 1);
    pool_prompt_unanswered(self.pool.reader, &prompt);
    assert_score(media_score(&self, out.endpoints[0], b, 1), 0);
    pool_release_ticket(self.pool.pool, &out.ticket);
    assert_score(media_score(&self, first, a, 1), 1);
    close_pool(&self);
}

/* An endpoint's cache has `capacity` items: the least recently sent are forgotten. */
static void prompt_media_are_forgotten_by_capacity(void **state) {
    static const struct profile profile = MEDIA_PROFILE(8);
    struct prompts self;
    uint64_t items[40];
    (void)state;
    open_pool(&self, 1, &profile, POOL_HEALTH_NONE);
    const struct endpoint *only = NULL;
    for (uint32_t i = 0; i < 40; i++) {
        items[i] = ITEM(100 + i);
        only = show(&self, &items[i], 1, true);
    }
    uint32_t n_known = 0;
    for (uint32_t i = 0; i < 40; i++) {
        n_known += media_score(&self, only, &items[i], 1) > 0.5f;
    }
    assert_in_range(n_known, 7, 9);
    assert_score(media_score(&self, only, &items[39], 1), 1);
    assert_score(media_score(&self, only, &items[0], 1), 0);
    close_pool(&self);
}

/* Of more than MEDIA_MAX_HITS endpoints the others count as without any. */
static void prompt_media_hits_are_bounded(void **state) {
    static const struct profile profile = MEDIA_PROFILE(1000);
    enum { MANY = 200 };
    struct prompts self;
    uint64_t items[MANY];
    (void)state;
    open_pool(&self, MANY, &profile, POOL_HEALTH_NONE);
    for (uint32_t i = 0; i < MANY; i++) {
        items[i] = ITEM(100 + i);
        (void)show(&self, &items[i], 1, true);
    }
    uint32_t n_hit = 0;
    for (uint32_t i = 0; i < MANY; i++) {
        n_hit += media_score(&self, pool_reader_refresh(self.pool.reader)->members[i].endpoint,
                             items, MANY) > 0;
    }
    assert_int_equal(n_hit, MEDIA_MAX_HITS);
    close_pool(&self);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompt_repeated_prefix_goes_to_same_endpoint),
        cmocka_unit_test(prompt_same_text_of_other_model_is_unrelated),
        cmocka_unit_test(prompt_burst_of_different_prompts_spreads),
        cmocka_unit_test(prompt_history_is_lost_when_endpoint_not_ready),
        cmocka_unit_test(prompt_history_is_lost_after_refused_connection),
        cmocka_unit_test(prompt_history_is_lost_when_endpoint_returns),
        cmocka_unit_test(prompt_history_survives_unrelated_update),
        cmocka_unit_test(prompt_history_moves_to_serving_endpoint),
        cmocka_unit_test(prompt_in_flight_attracts_the_same_prompt),
        cmocka_unit_test(prompt_in_flight_continues_a_known_one),
        cmocka_unit_test(prompt_is_recorded_at_pick_without_responses),
        cmocka_unit_test(prompt_pick_works_without_table_or_prompt),
        cmocka_unit_test(prompt_tokens_in_flight_follow_the_ticket),
        cmocka_unit_test(prompt_response_times_are_averaged),
        cmocka_unit_test(prompt_first_response_time_is_not_the_mean),
        cmocka_unit_test(prompt_hashes_take_room_for_its_blocks),
        cmocka_unit_test(prompt_lost_by_the_small_cache_is_in_the_large_one),
        cmocka_unit_test(prompt_system_text_comes_first),
        cmocka_unit_test(prompt_cold_requests_rotate_over_endpoints),
        cmocka_unit_test(prompt_media_attract_by_their_share),
        cmocka_unit_test(prompt_media_are_counted_by_kind),
        cmocka_unit_test(prompt_media_count_where_they_are_taken),
        cmocka_unit_test(prompt_media_are_forgotten_by_capacity),
        cmocka_unit_test(prompt_media_hits_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
