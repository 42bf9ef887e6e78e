/* The replay: time advances from event to event. Those of an engine are SIM_END with its index, at
 * the time at which something happens there next. */
#include "replay.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/buf.h"
#include "core/base/doc/doc.h"
#include "core/base/log.h"
#include "core/event/clock.h"
#include "engine.h"
#include "events.h"
#include "pick/discovery/file/pool_file.h"
#include "pool.h"
#include "rival.h"

const char SIM_GUIDES_PATH[] = "tests/interop/pick/llm_d/guides.yaml";

const char *const SIM_GUIDES[] = {"optimized-baseline",
                                  "optimized-baseline-trtllm",
                                  "chart-default",
                                  "flow-control",
                                  "tiered-prefix-cache-single-host",
                                  "tiered-prefix-cache-mooncake",
                                  "pd-disaggregation",
                                  "agentic-serving",
                                  "agentic-serving-gpu",
                                  "agentic-serving-gpu-program-aware",
                                  NULL};

static const uint64_t SECOND_NS = 1000000000;

/* The picker's scrape interval for up to 100 endpoints, and how long a report is valid; upstream's
 * interval; the interval of the picker's ticks. */
static const uint64_t SCRAPE_NS = 200 * 1000000, VALID_NS = 2000000000, POLL_NS = 50 * 1000000;
static const uint64_t TICK_NS = 10 * 1000000;

enum { PREFIX_TABLE_BYTES = 64 << 20 }; /* the default of --prefix-memory */
/* Of engines whose configuration has a producer for main memory. */
enum { MAIN_TOKENS = 1000000 };

/* A request, from its arrival on. */
struct flight {
    struct pool_waiter waiter; /* first: a waiter is cast to its flight */
    struct sim_job jobs[N_STAGE_ROLES];
    struct pool_ticket tickets[N_STAGE_ROLES];
    struct pool_prompt prompts[N_STAGE_ROLES];
    struct prompt_text text;
    struct arena *arena;
    struct rival_pick rival;
    bool has_stage[N_STAGE_ROLES];
    uint32_t servers[N_STAGE_ROLES];
    uint64_t arrives_ns, first_ns; /* of the first token; 0: none yet */
    bool waits, refused;
};

struct replay {
    const struct sim_replay_setting *setting;
    struct doc *guides;
    struct sim_workload workload;
    struct sim_events events;
    struct sim_engine engines[REPLAY_SERVERS];
    uint64_t due_ns[REPLAY_SERVERS]; /* of the engine's event that counts */
    uint8_t roles[REPLAY_SERVERS];
    struct flight *flights; /* by turn */
    uint32_t n_ended;
    struct pool *pool;
    struct pool_reader *reader;
    struct pool_wakeup wakeup;
    struct rival *rival;
    uint32_t *queue; /* of turns that wait for upstream's flow control */
    uint32_t first_queued, n_queued;
    uint64_t queue_ttl_ns, queue_most;
};

/* ---- setup and teardown ---------------------------------------------------------------------- */

static void set_roles(struct replay *replay, const char *json) {
    bool is_split = strstr(json, "\"prefill-filter\"");
    for (uint32_t i = 0; i < REPLAY_SERVERS; i++) {
        replay->roles[i] = !is_split ? 1u << STAGE_DECODE | 1u << STAGE_PREFILL
                           : i % 2   ? 1u << STAGE_PREFILL
                                     : 1u << STAGE_DECODE;
    }
}

/* The configuration as the picker reads it, with the engines as its endpoints, whose loads are
 * scraped, as upstream's flags have it. */
static struct pool_spec *read_spec(const struct replay *replay, const char *json) {
    struct arena *arena = arena_new(NULL, 0);
    struct pool_specs specs;
    struct buf text;
    struct error err;
    if (!arena) {
        sim_no_memory();
    }
    buf_init(&text, arena, 0);
    buf_printf(&text, "%s\n---\nmetrics: {preset: vllm}\nendpoints:\n", json);
    for (uint32_t i = 0; i < REPLAY_SERVERS; i++) {
        bool decodes = replay->roles[i] >> STAGE_DECODE & 1;
        const char *role = decodes ? "decode" : "prefill";
        buf_printf(&text, "- {address: '10.0.0.%u:8000', labels: {llm-d.ai/role: %s}}\n", i + 1,
                   role);
    }
    if (text.failed) {
        sim_no_memory();
    }
    sim_check(pool_file_parse(replay->setting->guide, buf_str(&text), &specs, &err), &err);
    struct pool_spec *spec = specs.items[0];
    specs.items[0] = NULL;
    pool_specs_free(&specs);
    arena_free(arena);
    return spec;
}

static void open_pool(struct replay *replay, struct pool_spec *spec) {
    sim_pool_open(spec, PREFIX_TABLE_BYTES, replay->setting->seed, &replay->pool, &replay->reader);
    sim_wakeup_init(&replay->wakeup);
}

/* The limits of the queue are those of the priority 0, as the picker reads them. */
static void open_rival(struct replay *replay, struct pool_spec *spec, yyjson_val *config) {
    const struct pool_flow_control *flow = &spec->flow_control;
    replay->queue_ttl_ns = flow->max_wait_ns;
    replay->queue_most = flow->limits.max_requests;
    for (size_t i = 0; i < flow->limits.n_bands; i++) {
        const struct flow_band_rules *band = &flow->limits.bands[i];
        replay->queue_most = band->priority == 0 && band->max_requests < replay->queue_most
                                 ? band->max_requests
                                 : replay->queue_most;
    }
    replay->rival = rival_new(config, REPLAY_SERVERS, replay->roles);
    pool_spec_free(spec);
}

static void open_replay(struct replay *replay) {
    const struct sim_replay_setting *setting = replay->setting;
    struct error err;
    sim_check(doc_load(DOC_YAML, SIM_GUIDES_PATH, &replay->guides, &err), &err);
    struct doc_node root = doc_root(replay->guides);
    yyjson_val *config = json_member(root.val, setting->guide);
    if (!config) {
        fprintf(stderr, "simulate: %s has no \"%s\"\n", SIM_GUIDES_PATH, setting->guide);
        exit(1);
    }
    char *json = yyjson_val_write(config, YYJSON_WRITE_NOFLAG, NULL);
    sim_workload_make(setting->workload, setting->size, setting->seed, &replay->workload);
    replay->flights = calloc(replay->workload.n_turns, sizeof(*replay->flights));
    replay->queue = calloc(replay->workload.n_turns + 1, sizeof(*replay->queue));
    if (!json || !replay->flights || !replay->queue) {
        sim_no_memory();
    }
    set_roles(replay, json);
    struct pool_spec *spec = read_spec(replay, json);
    if (setting->chooser == CHOOSER_OURS) {
        open_pool(replay, spec);
    } else {
        open_rival(replay, spec, config);
    }
    bool has_main = strstr(json, "\"cpu-prefix-cache-producer\"");
    uint64_t every_ns = setting->chooser == CHOOSER_OURS ? SCRAPE_NS : POLL_NS;
    for (uint32_t i = 0; i < REPLAY_SERVERS; i++) {
        sim_engine_init(&replay->engines[i], has_main ? MAIN_TOKENS : 0);
        replay->due_ns[i] = UINT64_MAX;
        sim_events_add(&replay->events, 1 + every_ns * i / REPLAY_SERVERS, SIM_SCRAPE, i);
    }
    for (uint32_t i = 0; i < replay->workload.n_first; i++) {
        sim_events_add(&replay->events, replay->workload.turns[i].after_ns, SIM_ARRIVAL, i);
    }
    free(json);
}

static void close_replay(struct replay *replay) {
    for (uint32_t i = 0; i < REPLAY_SERVERS; i++) {
        sim_engine_fini(&replay->engines[i]);
    }
    if (replay->rival) {
        rival_free(replay->rival);
    } else {
        pool_reader_unref(replay->reader);
        pool_free(replay->pool);
        pool_wakeup_fini(&replay->wakeup);
    }
    sim_events_fini(&replay->events);
    sim_workload_fini(&replay->workload);
    doc_free(replay->guides);
    free(replay->flights);
    free(replay->queue);
}

/* ---- ours ------------------------------------------------------------------------------------ */

static uint32_t index_of(const struct replay *replay, const struct flight *flight) {
    return (uint32_t)(flight - replay->flights);
}

static const struct sim_turn *turn_of(const struct replay *replay, const struct flight *flight) {
    return &replay->workload.turns[index_of(replay, flight)];
}

static const struct sim_text *text_of(const struct replay *replay, const struct flight *flight) {
    return &replay->workload.texts[turn_of(replay, flight)->text];
}

static void read_prompt(struct replay *replay, struct flight *flight) {
    const struct sim_turn *turn = turn_of(replay, flight);
    const struct sim_text *text = text_of(replay, flight);
    if (flight->arena) {
        return;
    }
    flight->arena = arena_new(NULL, 0);
    if (!flight->arena) {
        sim_no_memory();
    }
    prompt_text_init(&flight->text, replay->reader, flight->arena);
    prompt_text_add(&flight->text, false,
                    str_make(text->bytes, (size_t)turn->n_prompt * WORKLOAD_TOKEN_BYTES));
    prompt_text_end(&flight->text, false);
    for (int i = 0; i < N_STAGE_ROLES; i++) {
        flight->prompts[i].text = &flight->text;
    }
}

static const struct profile_handler *handler_of(const struct replay *replay) {
    return pool_reader_refresh(replay->reader)->spec->handler;
}

/* Returns: false when the request waits, or was refused. */
static bool pick_stage(struct replay *replay, struct flight *flight, enum stage_role role,
                       struct decider_input *decided) {
    const struct sim_turn *turn = turn_of(replay, flight);
    enum stage_role peer = role == STAGE_DECODE ? STAGE_PREFILL : STAGE_DECODE;
    bool queues = pool_reader_refresh(replay->reader)->spec->flow_control.on;
    struct pool_request asked = {.model = STR("m"),
                                 .prompt = &flight->prompts[role],
                                 .n_tokens = turn->n_prompt,
                                 .max_output_tokens = turn->n_answer,
                                 .stage = role,
                                 .peer = flight->tickets[peer].endpoint,
                                 .fellow = flight->tickets[peer].endpoint,
                                 .waiter = queues ? &flight->waiter : NULL};
    struct pool_pick pick;
    struct error err;
    flight->waiter.wakeup = &replay->wakeup;
    enum status st = pool_pick(replay->reader, &asked, &pick, &err);
    flight->waits = st == ST_OK && !pick.ticket.endpoint;
    flight->refused = st != ST_OK;
    if (st != ST_OK || flight->waits) {
        return false;
    }
    flight->has_stage[role] = true;
    flight->tickets[role] = pick.ticket;
    flight->servers[role] = (uint32_t)pick.ticket.endpoint->address.low - (10u << 24) - 1;
    decided->has_peer = true;
    decided->n_cached_tokens = pick.n_cached_tokens;
    return true;
}

static void pick_ours(struct replay *replay, struct flight *flight) {
    const struct profile_handler *handler = handler_of(replay);
    struct decider_input decided = {.n_prompt_tokens = turn_of(replay, flight)->n_prompt};
    enum stage_role order[N_STAGE_ROLES];
    read_prompt(replay, flight);
    if (!handler) {
        (void)pick_stage(replay, flight, STAGE_DECODE, &decided);
        return;
    }
    profile_handler_order(handler, order);
    for (int i = 0; i < N_STAGE_ROLES; i++) {
        const struct handler_stage *stage = &handler->stages[order[i]];
        bool wanted = order[i] == STAGE_DECODE || stage_decider_says(&stage->decider, &decided);
        if (stage->profile && wanted && !pick_stage(replay, flight, order[i], &decided)) {
            fprintf(stderr, "simulate: a stage waits or is refused\n");
            exit(1);
        }
    }
}

static void answered_ours(struct replay *replay, struct flight *flight) {
    for (int i = 0; i < N_STAGE_ROLES; i++) {
        if (flight->has_stage[i]) {
            pool_prompt_answered(replay->reader, &flight->prompts[i], flight->tickets[i].endpoint,
                                 true);
            pool_ticket_response_started(replay->pool, &flight->tickets[i], true);
            pool_ticket_end_prompt(replay->pool, &flight->tickets[i]);
        }
    }
    pool_release_ticket(replay->pool, &flight->tickets[STAGE_PREFILL]);
    arena_free(flight->arena);
    flight->arena = NULL;
}

static void ended_ours(struct replay *replay, struct flight *flight) {
    const struct sim_turn *turn = turn_of(replay, flight);
    struct pool_ticket *ticket = &flight->tickets[STAGE_DECODE];
    pool_ticket_response_ended(ticket);
    pool_count_service(replay->pool, ticket, turn->n_prompt, turn->n_answer);
    pool_release_ticket(replay->pool, ticket);
}

/* ---- upstream's ------------------------------------------------------------------------------ */

static void pick_upstreams(struct replay *replay, struct flight *flight) {
    rival_pick(replay->rival, text_of(replay, flight), turn_of(replay, flight), &flight->rival);
    for (int i = 0; i < N_STAGE_ROLES; i++) {
        flight->has_stage[i] = flight->rival.has_stage[i];
        flight->servers[i] = flight->rival.servers[i];
    }
}

/* ---- requests -------------------------------------------------------------------------------- */

static void end_flight(struct replay *replay, struct flight *flight, uint64_t now_ns) {
    const struct sim_turn *turn = turn_of(replay, flight);
    replay->n_ended++;
    arena_free(flight->arena);
    flight->arena = NULL;
    if (turn->next > 0) {
        uint64_t after_ns = replay->workload.turns[turn->next].after_ns;
        sim_events_add(&replay->events, now_ns + after_ns, SIM_ARRIVAL, turn->next);
    }
}

static void send_job(struct replay *replay, struct flight *flight, enum stage_role role,
                     uint64_t now_ns) {
    const struct sim_turn *turn = turn_of(replay, flight);
    const struct sim_text *text = text_of(replay, flight);
    uint32_t server = flight->servers[role];
    bool decodes = role == STAGE_DECODE;
    flight->jobs[role] = (struct sim_job){
        .hashes = text->hashes,
        .n_prompt_blocks = turn->n_prompt / ENGINE_BLOCK_TOKENS,
        .n_kept_blocks = (decodes ? turn->n_kept : turn->n_prompt) / ENGINE_BLOCK_TOKENS,
        .n_prompt = turn->n_prompt,
        .n_answer = decodes ? turn->n_answer : 0,
        .has_cache = decodes && flight->has_stage[STAGE_PREFILL],
        .user = index_of(replay, flight) * N_STAGE_ROLES + role};
    sim_engine_take(&replay->engines[server], &flight->jobs[role]);
    replay->due_ns[server] = now_ns;
    sim_events_add(&replay->events, now_ns, SIM_END, server);
}

/* A new request, or one that waited. */
static void dispatch(struct replay *replay, struct flight *flight, uint64_t now_ns) {
    if (replay->rival) {
        pick_upstreams(replay, flight);
    } else {
        pick_ours(replay, flight);
    }
    if (flight->refused) {
        end_flight(replay, flight, now_ns);
    } else if (flight->waits) {
        sim_events_add(&replay->events, flight->waiter.until_ns, SIM_GIVE_UP,
                       index_of(replay, flight));
    } else {
        send_job(replay, flight, flight->has_stage[STAGE_PREFILL] ? STAGE_PREFILL : STAGE_DECODE,
                 now_ns);
    }
}

/* Upstream's queue: the first one goes as soon as the pool is not saturated. */
static void dispatch_queued(struct replay *replay, uint64_t now_ns) {
    while (replay->first_queued < replay->n_queued && rival_admits(replay->rival, now_ns)) {
        struct flight *flight = &replay->flights[replay->queue[replay->first_queued++]];
        if (flight->waits) {
            flight->waits = false;
            dispatch(replay, flight, now_ns);
        }
    }
}

static void queue_upstreams(struct replay *replay, struct flight *flight, uint64_t now_ns) {
    uint64_t n_waiting = replay->n_queued - replay->first_queued;
    flight->refused = n_waiting >= replay->queue_most && !rival_admits(replay->rival, now_ns);
    if (flight->refused) {
        end_flight(replay, flight, now_ns);
        return;
    }
    flight->waits = true;
    replay->queue[replay->n_queued++] = index_of(replay, flight);
    if (replay->queue_ttl_ns < POOL_WAIT_FOREVER) {
        sim_events_add(&replay->events, now_ns + replay->queue_ttl_ns, SIM_GIVE_UP,
                       index_of(replay, flight));
    }
}

/* ---- events ---------------------------------------------------------------------------------- */

static void on_first_token(struct replay *replay, struct flight *flight, uint64_t now_ns) {
    flight->first_ns = now_ns;
    if (replay->rival) {
        rival_answered(replay->rival, &flight->rival);
    } else {
        answered_ours(replay, flight);
    }
}

static void on_job_end(struct replay *replay, struct flight *flight, enum stage_role role,
                       uint64_t now_ns) {
    if (role == STAGE_PREFILL) {
        send_job(replay, flight, STAGE_DECODE, now_ns);
        return;
    }
    if (replay->rival) {
        rival_ended(replay->rival, &flight->rival);
    } else {
        ended_ours(replay, flight);
    }
    end_flight(replay, flight, now_ns);
}

static void on_engine(struct replay *replay, uint32_t server, uint64_t now_ns) {
    struct sim_engine *engine = &replay->engines[server];
    enum sim_engine_step step;
    struct sim_job *job;
    if (replay->due_ns[server] != now_ns) {
        return; /* something else happened there before */
    }
    while ((step = sim_engine_step(engine, now_ns, &job)) != ENGINE_NOTHING) {
        struct flight *flight = &replay->flights[job->user / N_STAGE_ROLES];
        enum stage_role role = (enum stage_role)(job->user % N_STAGE_ROLES);
        if (step == ENGINE_END) {
            on_job_end(replay, flight, role, now_ns);
        } else if (role == STAGE_DECODE) {
            on_first_token(replay, flight, now_ns);
        }
    }
    replay->due_ns[server] = sim_engine_due_ns(engine);
    if (replay->due_ns[server] < UINT64_MAX) {
        sim_events_add(&replay->events, replay->due_ns[server], SIM_END, server);
    }
}

static void on_scrape(struct replay *replay, uint32_t server, uint64_t now_ns) {
    struct endpoint_load load = {.asked_ns = now_ns, .until_ns = now_ns + VALID_NS};
    sim_engine_say(&replay->engines[server], &load);
    if (replay->rival) {
        rival_poll(replay->rival, server, &load, now_ns);
    } else {
        struct endpoint_address address = {
            .family = 4, .port = 8000, .low = (10u << 24) + server + 1};
        const struct pool_snapshot *snapshot = pool_reader_refresh(replay->reader);
        const struct pool_member *member = pool_snapshot_find(snapshot, &address);
        load.in_flight = endpoint_in_flight(member->endpoint);
        pool_set_load(replay->pool, member->endpoint, &load);
    }
    if (replay->n_ended < replay->workload.n_turns) {
        sim_events_add(&replay->events, now_ns + (replay->rival ? POLL_NS : SCRAPE_NS), SIM_SCRAPE,
                       server);
    }
}

static void on_arrival(struct replay *replay, uint32_t index, uint64_t now_ns) {
    struct flight *flight = &replay->flights[index];
    flight->arrives_ns = now_ns;
    if (replay->rival) {
        queue_upstreams(replay, flight, now_ns);
    } else {
        dispatch(replay, flight, now_ns);
    }
}

/* The queue's deadline. */
static void on_give_up(struct replay *replay, uint32_t index, uint64_t now_ns) {
    struct flight *flight = &replay->flights[index];
    struct pool_wait_expiry expiry;
    if (!flight->waits) {
        return;
    }
    if (!replay->rival && !pool_waiter_has_expired(replay->pool, &flight->waiter, &expiry)) {
        sim_events_add(&replay->events, flight->waiter.until_ns, SIM_GIVE_UP, index);
        return;
    }
    if (!replay->rival) {
        pool_dequeue(replay->pool, &flight->waiter, FLOW_EXPIRED);
    }
    flight->waits = false;
    flight->refused = true;
    end_flight(replay, flight, now_ns);
}

static void resume_waiting(struct replay *replay, uint64_t now_ns) {
    struct pool_waiter *waiter;
    if (replay->rival) {
        dispatch_queued(replay, now_ns);
        return;
    }
    pool_tick(replay->pool, TICK_NS);
    while ((waiter = pool_wakeup_pop(&replay->wakeup))) {
        dispatch(replay, (struct flight *)(void *)waiter, now_ns);
    }
}

static void process_event(struct replay *replay, const struct sim_event *event) {
    clock_set_fake_ns(event->at_ns);
    switch (event->kind) {
    case SIM_ARRIVAL:
        on_arrival(replay, event->index, event->at_ns);
        break;
    case SIM_END:
        on_engine(replay, event->index, event->at_ns);
        break;
    case SIM_SCRAPE:
        on_scrape(replay, event->index, event->at_ns);
        break;
    case SIM_GIVE_UP:
        on_give_up(replay, event->index, event->at_ns);
        break;
    case SIM_FIRST_TOKEN: /* of run.c only */
        break;
    }
    resume_waiting(replay, event->at_ns);
}

/* ---- the result ------------------------------------------------------------------------------ */

static double seconds_of(uint64_t ns) {
    return (double)ns / (double)SECOND_NS;
}

static void sum_times(const struct replay *replay, struct sim_replay_result *out) {
    uint64_t *times = calloc(replay->workload.n_turns + 1, sizeof(*times));
    double sum = 0;
    uint32_t n = 0;
    if (!times) {
        sim_no_memory();
    }
    for (uint32_t i = 0; i < replay->workload.n_turns; i++) {
        const struct flight *flight = &replay->flights[i];
        if (flight->first_ns > 0) {
            times[n] = flight->first_ns - flight->arrives_ns;
            sum += seconds_of(times[n++]);
        }
    }
    sim_sort_times(times, n);
    out->mean_s = n > 0 ? sum / n : 0;
    out->p50_s = seconds_of(times[n / 2]);
    out->p90_s = seconds_of(times[(uint64_t)n * 9 / 10]);
    out->p99_s = seconds_of(times[(uint64_t)n * 99 / 100]);
    free(times);
}

static bool is_clean(const struct replay *replay) {
    if (replay->rival) {
        return true;
    }
    const struct pool_snapshot *snapshot = pool_reader_refresh(replay->reader);
    for (uint32_t i = 0; i < snapshot->n_members; i++) {
        const struct endpoint *endpoint = snapshot->members[i].endpoint;
        if (endpoint_in_flight(endpoint) > 0 || endpoint_n_tokens(endpoint) > 0) {
            return false;
        }
    }
    return true;
}

static void sum_up(const struct replay *replay, uint64_t now_ns, struct sim_replay_result *out) {
    uint64_t n_prompt = 0, n_computed = 0, most = 0, n_jobs = 0;
    uint32_t n_engines = 0;
    *out = (struct sim_replay_result){
        .n = replay->workload.n_turns, .ends_s = seconds_of(now_ns), .is_clean = is_clean(replay)};
    for (uint32_t i = 0; i < replay->workload.n_turns; i++) {
        out->n_refused += replay->flights[i].refused;
        n_prompt += replay->flights[i].refused ? 0 : replay->workload.turns[i].n_prompt;
    }
    for (uint32_t i = 0; i < REPLAY_SERVERS; i++) {
        const struct sim_engine *engine = &replay->engines[i];
        out->n_of[i] = (uint32_t)engine->n_jobs;
        n_computed += engine->n_computed;
        if (replay->roles[i] >> STAGE_PREFILL & 1) {
            most = engine->n_jobs > most ? engine->n_jobs : most;
            n_jobs += engine->n_jobs;
            n_engines++;
        }
    }
    out->hits = n_prompt > 0 ? 1 - (double)n_computed / (double)n_prompt : 0;
    out->spread = n_jobs > 0 ? (double)most * n_engines / (double)n_jobs : 1;
    sum_times(replay, out);
}

void sim_replay_run(const struct sim_replay_setting *setting, struct sim_replay_result *out) {
    struct replay *replay = calloc(1, sizeof(*replay));
    struct sim_event event = {.at_ns = 1};
    uint64_t ends_ns = 0;
    if (!replay) {
        sim_no_memory();
    }
    replay->setting = setting;
    log_level_set(LOG_WARNING, false);
    log_level_set(LOG_INFO, false);
    clock_set_fake_ns(1);
    open_replay(replay);
    while (replay->n_ended < replay->workload.n_turns && sim_events_next(&replay->events, &event)) {
        process_event(replay, &event);
        ends_ns = event.at_ns;
    }
    assert(replay->n_ended == replay->workload.n_turns);
    sum_up(replay, ends_ns, out);
    close_replay(replay);
    free(replay);
    clock_set_fake_ns(0);
}
