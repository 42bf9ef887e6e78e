/* The simulation: time advances from event to event. */
#include "run.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/event/clock.h"
#include "events.h"
#include "pool.h"

static const uint64_t SECOND_NS = 1000000000, MS_NS = 1000000;

/* The picker's scrape interval for up to 100 endpoints, and how long a report is valid. */
static const uint64_t SCRAPE_NS = 200000000, COUNTS_NS = 2000000000;

/* The length of a prefix as text: blocks of 64 bytes of the prefix table. */
enum { PREFIX_BYTES = 1024, PREFIX_TABLE_BYTES = 16 << 20 };

static const double SLOW_SPEED = 0.25;

struct run {
    const struct sim_setting *setting;
    struct pool *pool;
    struct pool_reader *reader;
    struct arena *arena; /* of the prompts */
    struct pool_prompt prompt;
    char text[PREFIX_BYTES];
    struct prng prng;
    struct sim_events events;
    struct sim_server *servers; /* in the order of the snapshot's members */
    struct sim_request *requests;
    uint32_t n_requests, n_ended;
};

/* ---- setup and teardown ---------------------------------------------------------------------- */

static void open_pool(struct run *run) {
    struct pool_spec *spec = pool_spec_new();
    struct error err;
    for (uint32_t i = 0; i < run->setting->n_servers; i++) {
        struct pool_spec_endpoint wanted = {
            .address = {.family = 4, .port = 8000, .low = (10u << 24) + i}};
        pool_spec_add_endpoint(spec, &wanted);
    }
    sim_check(sim_profile_make(run->setting->profile, spec->arena, &spec->profile, &err), &err);
    sim_pool_open(spec, PREFIX_TABLE_BYTES, run->setting->seed, &run->pool, &run->reader);
}

static void open_run(struct run *run) {
    const struct sim_setting *setting = run->setting;
    clock_set_fake_ns(1);
    open_pool(run);
    run->prng.state = setting->seed + 1;
    run->arena = arena_new(NULL, 0);
    run->servers = calloc(setting->n_servers, sizeof(*run->servers));
    run->n_requests = sim_scenario_requests(setting->scenario, setting->n_servers, setting->seconds,
                                            setting->seed, &run->requests);
    if (!run->servers || !run->arena || run->n_requests == 0) {
        sim_no_memory();
    }
    for (uint32_t i = 0; i < setting->n_servers; i++) {
        run->servers[i].speed = i < setting->scenario->n_slow ? SLOW_SPEED : 1;
        sim_events_add(&run->events, 1 + SCRAPE_NS * i / setting->n_servers, SIM_SCRAPE, i);
    }
    sim_events_add(&run->events, run->requests[0].arrives_ns, SIM_ARRIVAL, 0);
}

static void close_run(struct run *run) {
    sim_events_fini(&run->events);
    free(run->requests);
    free(run->servers);
    arena_free(run->arena);
    pool_reader_unref(run->reader);
    pool_free(run->pool);
    clock_set_fake_ns(0);
}

/* ---- events ---------------------------------------------------------------------------------- */

static struct str text_of(struct run *run, uint32_t prefix) {
    struct prng prng = {prefix};
    for (size_t i = 0; i < sizeof(run->text); i += sizeof(uint64_t)) {
        uint64_t rolled = prng_next(&prng);
        memcpy(run->text + i, &rolled, sizeof(rolled));
    }
    return str_make(run->text, sizeof(run->text));
}

static void begin_all(struct run *run, struct sim_server *server, uint64_t now_ns) {
    struct sim_request *request;
    while ((request = sim_server_begin(server, now_ns)) != NULL) {
        uint32_t index = (uint32_t)(request - run->requests);
        sim_events_add(&run->events, request->first_ns, SIM_FIRST_TOKEN, index);
        sim_events_add(&run->events, request->end_ns, SIM_END, index);
    }
}

static void on_arrival(struct run *run, uint32_t index, uint64_t now_ns) {
    struct sim_request *request = &run->requests[index];
    struct pool_request asked = {.model = {NULL, 0}};
    struct pool_pick pick;
    struct error err;
    if (request->prefix != 0) {
        arena_free(run->arena);
        run->arena = arena_new(NULL, 0);
        asked.prompt = run->arena ? pool_prompt_init(&run->prompt, run->reader, run->arena,
                                                     text_of(run, request->prefix))
                                  : NULL;
        if (!asked.prompt) {
            sim_no_memory();
        }
    }
    sim_check(pool_pick(run->reader, &asked, &pick, &err), &err);
    if (asked.prompt) {
        pool_prompt_answered(run->reader, &run->prompt, pick.ticket.endpoint, true); /* at once */
    }
    const struct pool_snapshot *snapshot = pool_reader_refresh(run->reader);
    const struct pool_member *member = pool_snapshot_find(snapshot, &pick.endpoints[0]->address);
    request->ticket = pick.ticket;
    request->server = (uint32_t)(member - snapshot->members);
    sim_server_take(&run->servers[request->server], request);
    begin_all(run, &run->servers[request->server], now_ns);
    if (index + 1 < run->n_requests) {
        sim_events_add(&run->events, request[1].arrives_ns, SIM_ARRIVAL, index + 1);
    }
}

static void on_request_end(struct run *run, uint32_t index, uint64_t now_ns) {
    struct sim_request *request = &run->requests[index];
    struct sim_server *server = &run->servers[request->server];
    pool_ticket_response_ended(&request->ticket);
    pool_release_ticket(run->pool, &request->ticket);
    sim_server_end(server, request);
    begin_all(run, server, now_ns);
    run->n_ended++;
}

static void on_scrape(struct run *run, uint32_t index, uint64_t now_ns) {
    const struct pool_snapshot *snapshot = pool_reader_refresh(run->reader);
    const struct endpoint *endpoint = snapshot->members[index].endpoint;
    struct endpoint_load load = {.asked_ns = now_ns,
                                 .until_ns = now_ns + COUNTS_NS,
                                 .in_flight = endpoint_in_flight(endpoint)};
    sim_server_say(&run->servers[index], &load);
    pool_set_load(run->pool, endpoint, &load);
    if (run->n_ended < run->n_requests) {
        uint64_t jitter_ns = prng_next(&run->prng) % (SCRAPE_NS / 10);
        sim_events_add(&run->events, now_ns + SCRAPE_NS - SCRAPE_NS / 20 + jitter_ns, SIM_SCRAPE,
                       index);
    }
}

static void process_event(struct run *run, const struct sim_event *event) {
    clock_set_fake_ns(event->at_ns);
    switch (event->kind) {
    case SIM_ARRIVAL:
        on_arrival(run, event->index, event->at_ns);
        break;
    case SIM_FIRST_TOKEN:
        pool_ticket_response_started(run->pool, &run->requests[event->index].ticket, true);
        break;
    case SIM_END:
        on_request_end(run, event->index, event->at_ns);
        break;
    case SIM_SCRAPE:
        on_scrape(run, event->index, event->at_ns);
        break;
    case SIM_GIVE_UP: /* of faults.c only */
        break;
    }
}

/* ---- the result ------------------------------------------------------------------------------ */

static void sum_up(const struct run *run, struct sim_result *out) {
    uint64_t begin_ns = SECOND_NS + run->setting->seconds * 100 * MS_NS, n_hits = 0;
    uint64_t *waits = calloc(run->n_requests, sizeof(*waits));
    double sum = 0;
    if (!waits) {
        sim_no_memory();
    }
    *out = (struct sim_result){.n = 0};
    for (uint32_t i = 0; i < run->n_requests; i++) {
        const struct sim_request *request = &run->requests[i];
        out->n_of[request->server]++;
        if (request->arrives_ns >= begin_ns) {
            waits[out->n++] = request->first_ns - request->arrives_ns;
            sum += (double)(request->first_ns - request->arrives_ns) / 1e9;
        }
    }
    for (uint32_t i = 0; i < run->setting->n_servers; i++) {
        n_hits += run->servers[i].n_hits;
    }
    sim_sort_times(waits, out->n);
    out->mean_s = sum / out->n;
    out->p99_s = (double)waits[(uint64_t)out->n * 99 / 100] / 1e9;
    out->hits = (double)n_hits / run->n_requests;
    free(waits);
}

void sim_run(const struct sim_setting *setting, struct sim_result *out) {
    struct run run = {.setting = setting};
    struct sim_event event;
    assert(setting->n_servers > 0 && setting->n_servers <= SIM_MOST_SERVERS);
    open_run(&run);
    while (sim_events_next(&run.events, &event)) {
        process_event(&run, &event);
    }
    assert(run.n_ended == run.n_requests);
    sum_up(&run, out);
    close_run(&run);
}
