/* Requests in a simulated Envoy, several at once, with hostile headers, bodies, metadata and ends:
 * the input is a script of Envoy's calls. Most orders are Envoy's own; a part of the inputs has the
 * calls in any order. A reply is sent once and nothing after it, a body that is not renamed is
 * passed on unchanged, an endpoint that was picked is in the pool, and at the end nothing waits or
 * is in flight. */
#include <stdbool.h>
#include <stdlib.h>

static void check(bool holds) {
    if (!holds) {
        __builtin_trap();
    }
}

#define assert_true(holds) check(holds)
#define assert_false(holds) check(!(holds))
#define assert_int_equal(a, b) check((a) == (b))
#define assert_non_null(pointer) check((pointer) != NULL)
#define assert_null(pointer) check((pointer) == NULL)

#include "core/base/log.h"
#include "core/event/clock.h"
#include "pick/envoy/envoy_fixture.h"
#include "pick/pool/pool_fixture.h"
#include "pick/pool/profile/profile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SLOTS = 4, MAX_BODY_BYTES = 3000, MAX_LONG_BODY_BYTES = 1 << 20, N_REPEATED = 400 };

static const uint64_t SECOND_NS = 1000000000;

enum {
    RENAMES = 1,
    QUEUES = 2,
    STRICT = 4,
    EMPTY = 8,
    PROMPTS = 16,
    CONFORMS = 32,
    ANY_ORDER = 64,
    LONG_BODIES = 128
};

struct slot {
    struct fake_envoy fake;
    struct buf sent; /* the request's body */
    bool is_open, has_headers, has_ended, has_response;
};

struct world {
    uint8_t options;
    struct arena *arena;
    struct pool_set *set;
    struct pick_workers *shared;
    struct envoy_workers *workers;
    struct slot slots[SLOTS];
    uint64_t now_ns;
};

/* ---- pools ----------------------------------------------------------------------------------- */

static const struct profile_step PREFIX = {
    .plugin = &plugin_prefix_cache_scorer, .weight = 1, .name = STR("prefix")};
static const struct profile ASKING = {
    .scorers = &PREFIX,
    .n_scorers = 1,
    .picker = {.plugin = &plugin_max_score_picker},
    .needs = {.prompt = true, .body = true, FIXTURE_PREFIXES(16, 4, 1000)}};

static void use_pool(struct world *world) {
    static const struct pool_target target = {.model = STR("another-name"), .weight = 1};
    struct pool_model digits = {.name = STR("digits")};
    struct pool_model other = {.name = STR("other"), .targets = {&target, 1}};
    struct pool_spec *spec = fixture_spec_of(world->options & EMPTY ? 0 : 2);
    struct pool_specs specs = {.n = 0};
    pool_spec_add_model(spec, &digits);
    if (world->options & RENAMES) {
        pool_spec_add_model(spec, &other);
    }
    spec->strict_models = world->options & STRICT;
    spec->protocol.conformance = world->options & CONFORMS;
    if (world->options & QUEUES) {
        spec->max_in_flight = 1;
        spec->flow_control.on = true;
    }
    if (world->options & PROMPTS) {
        spec->profile = &ASKING;
    }
    pool_specs_add(&specs, spec);
    check(pool_set_update(world->set, &specs, NULL) == ST_OK);
}

static void open_world(struct world *world, uint8_t options) {
    struct prefix_table *prefixes = NULL;
    world->options = options;
    world->arena = arena_new(NULL, 0);
    world->now_ns = 1000 * SECOND_NS;
    clock_set_fake_ns(world->now_ns);
    check(pool_set_new(&world->set, NULL) == ST_OK);
    check(prefix_table_new(PREFIX_MIN_BYTES, 0, &prefixes, NULL) == ST_OK);
    pool_set_attach_prefix_table(world->set, prefixes);
    prefix_table_unref(prefixes);
    use_pool(world);
    struct pick_workers_options shared = {
        .pools = world->set,
        .limits = {.max_body_size = options & LONG_BODIES ? MAX_LONG_BODY_BYTES : MAX_BODY_BYTES,
                   .answer_timeout_ns = 30 * SECOND_NS},
        .fairness_id_metric_label_limit = 10,
        .proxy_keeps_body = true};
    check(pick_workers_new(&shared, &world->shared, NULL) == ST_OK);
    struct envoy_workers_options own = {.shared = world->shared};
    check(envoy_workers_new(&own, &world->workers, NULL) == ST_OK);
}

static void close_world(struct world *world) {
    struct pool_stats stats;
    pool_set_get_stats(world->set, &stats);
    check(stats.n_in_flight == 0 && !envoy_workers_tick(world->workers));
    envoy_workers_free(world->workers);
    pick_workers_free(world->shared);
    pool_set_free(world->set);
    arena_free(world->arena);
    clock_set_fake_ns(0);
}

/* ---- requests -------------------------------------------------------------------------------- */

/* Schedulers that were called run before anything else; each may call others. */
static void run_scheduled(struct world *world) {
    for (size_t i = 0; i < SLOTS; i++) {
        if (world->slots[i].is_open && fake_run_scheduled(&world->slots[i].fake)) {
            i = (size_t)-1;
        }
    }
}

static void check_picked(const struct slot *slot) {
    struct str header = fake_header_set(&slot->fake, "x-gateway-destination-endpoint");
    check(!header.ptr || str_is(header, "10.0.0.0:8000") || str_is(header, "10.0.0.1:8000"));
}

static void check_passed_on(const struct world *world, const struct slot *slot) {
    const struct fake_envoy *fake = &slot->fake;
    if (!(world->options & (RENAMES | ANY_ORDER)) && fake->status == 0) {
        size_t n = fake->upstream.len + fake->buffered.len;
        check(n == slot->sent.len);
        check(fake->upstream.len == 0 ||
              memcmp(fake->upstream.data, slot->sent.data, fake->upstream.len) == 0);
        check(!fake->is_end_sent || (fake->buffered.len == 0 && slot->has_ended));
    }
}

static void open_slot(struct world *world, struct slot *slot, uint8_t extra) {
    *slot = (struct slot){.is_open = true};
    buf_init(&slot->sent, world->arena, 0);
    fake_open(&slot->fake, envoy_workers_get(world->workers, 0));
    slot->fake.destroys_on_reply = extra & 1;
}

static void close_slot(struct world *world, struct slot *slot) {
    if (slot->is_open) {
        check_passed_on(world, slot);
        fake_close(&slot->fake);
        slot->is_open = false;
    }
}

/* NAME=VALUE|…, with any bytes; `extra` chooses path and whether the request ends. */
static void send_headers(struct slot *slot, struct arena *arena, struct str text, uint8_t extra) {
    static const char *const paths[] = {"/v1/completions", "/v2/models/digits/infer",
                                        "/inference.GRPCInferenceService/ModelInfer", "/"};
    struct fake_envoy *fake = &slot->fake;
    while (text.len > 0 && fake->n_given < FAKE_HEADERS - 4) {
        struct str value = str_cut(&text, '|'), key = str_cut(&value, '=');
        fake->given[fake->n_given++] = (struct fake_header){
            arena_dup(arena, key), value.ptr ? arena_dup(arena, value) : STR("")};
    }
    slot->has_headers = true;
    slot->has_ended = extra & 4;
    (void)fake_send_headers(fake, extra & 8 ? "GET" : "POST", paths[extra & 3], extra & 4);
}

/* Many times over, where bodies may be long: they are read in turns then. */
static void send_body(const struct world *world, struct slot *slot, struct str bytes, uint8_t extra,
                      bool is_end) {
    struct buf all;
    buf_init(&all, world->arena, bytes.len);
    for (int n = world->options & LONG_BODIES && extra & 1 ? N_REPEATED : 1; n > 0; n--) {
        buf_add_str(&all, bytes);
    }
    slot->fake.piece_bytes = extra & 2 ? 4096 : 0;
    bytes = all.len > 0 ? buf_str(&all) : STR("");
    buf_add_str(&slot->sent, bytes);
    slot->has_ended = is_end;
    (void)fake_send_body(&slot->fake, bytes, is_end);
}

static void send_response(struct slot *slot, struct arena *arena, struct str text, uint8_t extra) {
    static const char *const statuses[] = {"200", "503", "\xff", "100"};
    struct fake_envoy *fake = &slot->fake;
    char *details = arena_alloc(arena, text.len + 1);
    memcpy(details, text.ptr, text.len);
    details[text.len] = '\0';
    fake->details = extra & 4 ? details : NULL;
    fake->served = extra & 16 ? (extra & 32 ? details : "10.0.0.1:8000") : NULL;
    fake->n_attempts = extra >> 6;
    slot->has_response = true;
    fake_send_response(fake, statuses[extra & 3], extra & 8);
    fake->details = NULL;
    fake->served = NULL;
}

static void send_response_body(struct slot *slot, struct str bytes, uint8_t extra) {
    struct fake_envoy *fake = &slot->fake;
    if (extra & 8) {
        envoy_stream_on_response_trailers(fake->stream);
        return;
    }
    free(fake->received);
    fake->received = malloc(bytes.len + 1);
    memcpy(fake->received, bytes.ptr, bytes.len);
    fake->n_received = bytes.len;
    fake->is_received = true;
    envoy_stream_on_response_body(fake->stream, extra & 1);
    fake->is_received = false;
    fake->n_received = 0;
}

/* What belongs to no request. */
static void act_beside(struct world *world, struct slot *slot, uint8_t extra) {
    if (extra & 1) {
        world->now_ns += (extra & 8 ? 100 : 1) * SECOND_NS;
        clock_set_fake_ns(world->now_ns);
    }
    if (extra & 2) {
        (void)envoy_workers_tick(world->workers);
    }
    if (extra & 4) {
        use_pool(world);
    }
    if (slot->is_open && world->options & ANY_ORDER && !slot->fake.is_destroyed) {
        envoy_stream_on_scheduled(slot->fake.stream);
    }
}

enum { OPEN, HEADERS, BODY, LAST_BODY, TRAILERS, RESPONSE, RESPONSE_BODY, BESIDE };

/* Whether Envoy would make this call of an open request. */
static bool is_due(const struct slot *slot, unsigned action) {
    switch (action) {
    case HEADERS:
        return !slot->has_headers;
    case BODY:
    case LAST_BODY:
    case TRAILERS:
        return slot->has_headers && !slot->has_ended;
    case RESPONSE: /* an own reply of Envoy's may come before the request is sent */
        return slot->has_headers && !slot->has_response;
    default:
        return slot->has_response;
    }
}

static void act(struct world *world, uint8_t op, uint8_t extra, struct str bytes) {
    struct slot *slot = &world->slots[op & 3];
    struct fake_envoy *fake = &slot->fake;
    unsigned action = op >> 2 & 7;
    if (action == BESIDE) {
        act_beside(world, slot, extra);
    } else if (action == OPEN) {
        close_slot(world, slot);
        if (!(extra & 2)) {
            open_slot(world, slot, extra);
        }
    } else if (slot->is_open && !fake->is_destroyed && fake->status == 0 &&
               (world->options & ANY_ORDER || is_due(slot, action))) {
        fake->n_set = 0;
        switch (action) {
        case HEADERS:
            send_headers(slot, world->arena, bytes, extra);
            break;
        case BODY:
        case LAST_BODY:
            send_body(world, slot, bytes, extra, action == LAST_BODY);
            break;
        case TRAILERS:
            slot->has_ended = true;
            (void)fake_send_trailers(fake);
            break;
        case RESPONSE:
            send_response(slot, world->arena, bytes, extra);
            break;
        default:
            send_response_body(slot, bytes, extra);
        }
        check_picked(slot);
    }
    if (!(extra & 0x80) || action == BESIDE) { /* otherwise calls come before them */
        run_scheduled(world);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct world world;
    memset(&world, 0, sizeof(world));
    log_configure(LOG_ERROR, LOG_TEXT);
    open_world(&world, size > 0 ? data[0] : 0);
    for (size_t at = 1; size >= 3 && at <= size - 3;) {
        size_t n = data[at + 2] < size - at - 3 ? data[at + 2] : size - at - 3;
        act(&world, data[at], data[at + 1], str_make((const char *)data + at + 3, n));
        at += 3 + n;
    }
    for (size_t i = 0; i < SLOTS; i++) {
        close_slot(&world, &world.slots[i]);
        run_scheduled(&world);
    }
    close_world(&world);
    return 0;
}
