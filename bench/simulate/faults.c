/* The servers are simple: slots, a constant time, and a queue. What is tried is the judgement. */
#include "faults.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "core/event/clock.h"
#include "events.h"

static const uint64_t SECOND_NS = 1000000000, MS_NS = 1000000;
/* A server's: requests at a time, and the time of each. A failure takes FAIL_NS, a request that
 * hangs is given up after HANG_NS. */
enum { SLOTS = 8, CLIENTS = 40, SECONDS = 20 };
static const uint64_t SERVICE_NS = 100000000, FAIL_NS = 1000000, HANG_NS = 2000000000,
                      SCRAPE_NS = 200000000, VALID_NS = 2000000000;

const struct sim_fault_scenario SIM_FAULT_SCENARIOS[] = {
    {.name = "all-503",
     .title = "all answer 503 for 1 s",
     .fault = SIM_FAILS,
     .outcome = POOL_OUTCOME_SHED,
     .everywhere = true,
     .from_ms = 5000,
     .until_ms = 6000,
     .load = 0.5},
    {.name = "all-refuse",
     .title = "all fail for 1 s",
     .fault = SIM_FAILS,
     .outcome = POOL_OUTCOME_GATEWAY_FAILURE,
     .everywhere = true,
     .from_ms = 5000,
     .until_ms = 6000,
     .load = 0.5},
    {.name = "one-500",
     .title = "one answers 500",
     .fault = SIM_FAILS,
     .outcome = POOL_OUTCOME_5XX,
     .from_ms = 5000,
     .until_ms = 12000,
     .load = 0.5},
    {.name = "one-404",
     .title = "one answers 404",
     .fault = SIM_FAILS,
     .outcome = POOL_OUTCOME_REJECTED,
     .from_ms = 5000,
     .until_ms = 12000,
     .load = 0.5},
    {.name = "one-429",
     .title = "one answers 429",
     .fault = SIM_FAILS,
     .outcome = POOL_OUTCOME_SHED,
     .from_ms = 5000,
     .until_ms = 12000,
     .load = 0.5},
    {.name = "one-hangs",
     .title = "one hangs, looks idle",
     .fault = SIM_HANGS,
     .from_ms = 5000,
     .until_ms = 12000,
     .load = 0.5,
     .scraped = true,
     .profile = "upstream"},
    {.name = "one-slow",
     .title = "one is ten times slower",
     .fault = SIM_IS_SLOW,
     .from_ms = 5000,
     .until_ms = 12000,
     .load = 0.5},
    {.name = "shedding",
     .title = "overload for 2 s, 503",
     .from_ms = 5000,
     .until_ms = 7000,
     .load = 0.7,
     .burst = 2.5,
     .shed_from = 4},
    {.name = "poison",
     .title = "one client's requests fail",
     .fault = SIM_NO_FAULT,
     .from_ms = 5000,
     .until_ms = 12000,
     .load = 0.4,
     .poison = 2},
    {.name = "dead-page",
     .title = "one metrics page is dead",
     .fault = SIM_DEAD_PAGE,
     .from_ms = 1,
     .until_ms = 20000,
     .load = 0.8,
     .scraped = true},
};

const size_t SIM_N_FAULT_SCENARIOS = sizeof(SIM_FAULT_SCENARIOS) / sizeof(*SIM_FAULT_SCENARIOS);

const struct sim_fault_scenario *sim_fault_scenario_find(const char *name) {
    for (size_t i = 0; i < SIM_N_FAULT_SCENARIOS; i++) {
        if (strcmp(SIM_FAULT_SCENARIOS[i].name, name) == 0) {
            return &SIM_FAULT_SCENARIOS[i];
        }
    }
    return NULL;
}

struct fault_request {
    uint64_t arrives_ns, ends_ns;
    uint32_t client; /* 0: the poisoned one */
    uint32_t server;
    enum pool_outcome outcome;
    bool runs; /* occupies a slot */
    struct pool_ticket ticket;
    struct fault_request *next; /* in the queue */
};

struct fault_server {
    uint32_t n_running, n_waiting, n_in_flight;
    struct fault_request *first, **last;
    /* Of Envoy's outlier detection. */
    uint32_t n_in_row, n_ejections;
    uint64_t ejected_until_ns;
};

struct fault_run {
    const struct sim_fault_scenario *scenario;
    enum sim_judge judge;
    uint32_t n_servers;
    struct pool *pool;
    struct pool_reader *reader;
    struct prng prng;
    struct sim_events events;
    struct fault_server servers[SIM_MOST_FAULT_SERVERS];
    struct fault_request *requests;
    uint32_t n_requests, n_ended;
    uint64_t limited_ns; /* when some server was last limited or ejected */
    uint32_t n_of_first;
};

static void check_status(enum status st, const struct error *err) {
    if (st != ST_OK) {
        fprintf(stderr, "simulate: %s\n", err->text);
        exit(1);
    }
}

/* ---- requests -------------------------------------------------------------------------------- */

static bool is_during_fault(const struct fault_run *run, uint64_t now_ns) {
    return now_ns >= run->scenario->from_ms * MS_NS && now_ns < run->scenario->until_ms * MS_NS;
}

static double rate_at(const struct fault_run *run, uint64_t now_ns) {
    const struct sim_fault_scenario *scenario = run->scenario;
    double capacity = (double)run->n_servers * SLOTS * 1e9 / (double)SERVICE_NS;
    bool bursts = scenario->burst > 0 && is_during_fault(run, now_ns);
    return capacity * (bursts ? scenario->burst : scenario->load);
}

static void make_requests(struct fault_run *run) {
    const struct sim_fault_scenario *scenario = run->scenario;
    double most = scenario->load > scenario->burst ? scenario->load : scenario->burst;
    size_t cap =
        (size_t)(run->n_servers * SLOTS * 10 * most * (1 + scenario->poison) * SECONDS * 2);
    run->requests = calloc(cap + 1000, sizeof(*run->requests));
    if (!run->requests) {
        sim_no_memory();
    }
    uint64_t now_ns = 1;
    while (run->n_requests < cap + 1000) {
        bool poisons = scenario->poison > 0 && is_during_fault(run, now_ns);
        double rate = rate_at(run, now_ns) * (poisons ? 1 + scenario->poison : 1);
        now_ns += (uint64_t)(-log(1 - prng_double(&run->prng)) * 1e9 / rate) + 1;
        if (now_ns >= SECONDS * SECOND_NS) {
            break;
        }
        struct fault_request *request = &run->requests[run->n_requests++];
        bool bad = poisons && prng_double(&run->prng) < scenario->poison / (1 + scenario->poison);
        request->arrives_ns = now_ns;
        request->client = bad ? 0 : 1 + prng_below(&run->prng, CLIENTS);
    }
}

/* ---- setup and teardown ---------------------------------------------------------------------- */

static void open_pool(struct fault_run *run) {
    struct pool_spec *spec;
    struct error err;
    check_status(pool_new(&run->pool, &err), &err);
    check_status(pool_spec_new(&spec, &err), &err);
    for (uint32_t i = 0; i < run->n_servers; i++) {
        struct pool_spec_endpoint wanted = {
            .address = {.family = 4, .port = 8000, .low = (10u << 24) + i}};
        check_status(pool_spec_add_endpoint(spec, &wanted, &err), &err);
    }
    const char *profile = run->scenario->profile ? run->scenario->profile : "default";
    check_status(sim_profile_make(sim_profile_find(profile), spec->arena, &spec->profile, &err),
                 &err);
    check_status(pool_update(run->pool, &spec, &err), &err);
    check_status(pool_reader_new(run->pool, 1, &run->reader, &err), &err);
}

static struct endpoint *endpoint_of(struct fault_run *run, uint32_t server) {
    return pool_reader_refresh(run->reader)->members[server].endpoint;
}

/* ---- picking --------------------------------------------------------------------------------- */

static bool is_faulty(const struct fault_run *run, uint32_t server, uint64_t now_ns) {
    return run->scenario->fault != SIM_NO_FAULT && (server == 0 || run->scenario->everywhere) &&
           is_during_fault(run, now_ns);
}

static bool is_avoided(const struct fault_run *run, uint32_t server, uint64_t now_ns) {
    if (run->judge == SIM_JUDGE_ORACLE) {
        return run->scenario->fault != SIM_DEAD_PAGE && is_faulty(run, server, now_ns);
    }
    return run->judge == SIM_JUDGE_ENVOY && run->servers[server].ejected_until_ns > now_ns;
}

/* The one with the fewest requests in flight, equal ones at random. */
static uint32_t pick_least(struct fault_run *run, uint64_t now_ns) {
    uint64_t best = UINT64_MAX;
    uint32_t found = 0;
    for (uint32_t i = 0; i < run->n_servers; i++) {
        uint64_t key = (uint64_t)is_avoided(run, i, now_ns) << 63 |
                       (uint64_t)run->servers[i].n_in_flight << 31 | prng_next(&run->prng) >> 34;
        found = key < best ? i : found;
        best = key < best ? key : best;
    }
    return found;
}

static uint32_t pick_server(struct fault_run *run, struct fault_request *request, uint64_t now_ns) {
    struct pool_request asked = {.model = {NULL, 0}};
    struct pool_pick pick;
    struct error err;
    if (run->judge != SIM_JUDGE_POOL) {
        return pick_least(run, now_ns);
    }
    check_status(pool_pick(run->reader, &asked, &pick, &err), &err);
    const struct pool_snapshot *snapshot = pool_reader_refresh(run->reader);
    request->ticket = pick.ticket;
    return (uint32_t)(pool_snapshot_find(snapshot, &pick.endpoints[0]->address) -
                      snapshot->members);
}

/* ---- servers --------------------------------------------------------------------------------- */

static void end_at(struct fault_run *run, struct fault_request *request, uint64_t at_ns,
                   enum pool_outcome outcome) {
    request->outcome = outcome;
    sim_events_add(&run->events, at_ns, SIM_END, (uint32_t)(request - run->requests));
}

static void start(struct fault_run *run, struct fault_request *request, uint64_t now_ns) {
    bool slow = run->scenario->fault == SIM_IS_SLOW && is_faulty(run, request->server, now_ns);
    run->servers[request->server].n_running++;
    request->runs = true;
    end_at(run, request, now_ns + SERVICE_NS * (slow ? 10 : 1), POOL_OUTCOME_OK);
}

static void take(struct fault_run *run, struct fault_request *request, uint64_t now_ns) {
    struct fault_server *server = &run->servers[request->server];
    bool faulty = is_faulty(run, request->server, now_ns);
    if (request->client == 0) {
        end_at(run, request, now_ns + FAIL_NS, POOL_OUTCOME_5XX);
    } else if (faulty && run->scenario->fault == SIM_FAILS) {
        end_at(run, request, now_ns + FAIL_NS, run->scenario->outcome);
    } else if (faulty && run->scenario->fault == SIM_HANGS) {
        end_at(run, request, now_ns + HANG_NS, POOL_OUTCOME_GATEWAY_FAILURE);
    } else if (server->n_running < SLOTS) {
        start(run, request, now_ns);
    } else if (run->scenario->shed_from > 0 && server->n_waiting >= run->scenario->shed_from) {
        end_at(run, request, now_ns + FAIL_NS, POOL_OUTCOME_SHED);
    } else {
        *(server->first ? server->last : &server->first) = request;
        server->last = &request->next;
        server->n_waiting++;
    }
}

static void start_next(struct fault_run *run, struct fault_server *server, uint64_t now_ns) {
    struct fault_request *next = server->first;
    if (next) {
        server->first = next->next;
        server->n_waiting--;
        start(run, next, now_ns);
    }
}

/* ---- outcomes -------------------------------------------------------------------------------- */

/* consecutive_5xx 5, base_ejection_time 30 s, max_ejection_percent 10, but always one. */
static void judge_as_envoy(struct fault_run *run, struct fault_server *server,
                           enum pool_outcome outcome, uint64_t now_ns) {
    bool is_5xx = outcome == POOL_OUTCOME_5XX || outcome == POOL_OUTCOME_GATEWAY_FAILURE ||
                  (outcome == POOL_OUTCOME_SHED && strcmp(run->scenario->name, "one-429") != 0);
    uint32_t n_ejected = 0, most = run->n_servers / 10 > 1 ? run->n_servers / 10 : 1;
    server->n_in_row = is_5xx ? server->n_in_row + 1 : 0;
    for (uint32_t i = 0; i < run->n_servers; i++) {
        n_ejected += run->servers[i].ejected_until_ns > now_ns;
    }
    if (server->n_in_row >= 5 && server->ejected_until_ns <= now_ns && n_ejected < most) {
        server->n_in_row = 0;
        server->ejected_until_ns = now_ns + 30 * SECOND_NS * ++server->n_ejections;
    }
}

static void report(struct fault_run *run, struct fault_request *request, uint64_t now_ns) {
    struct pool_result result = {.outcome = request->outcome, .client = 1000 + request->client};
    if (run->judge == SIM_JUDGE_POOL) {
        pool_report_result(run->pool, endpoint_of(run, request->server), &result);
        pool_release_ticket(run->pool, &request->ticket);
    } else if (run->judge == SIM_JUDGE_ENVOY) {
        judge_as_envoy(run, &run->servers[request->server], request->outcome, now_ns);
    }
}

static bool is_limited(struct fault_run *run, uint64_t now_ns) {
    for (uint32_t i = 0; i < run->n_servers; i++) {
        if (run->judge == SIM_JUDGE_POOL) {
            const struct endpoint *endpoint = endpoint_of(run, i);
            if (endpoint_avoidance(endpoint) != ENDPOINT_NOT_AVOIDED ||
                endpoint_window_size(endpoint) > 0) {
                return true;
            }
        } else if (run->servers[i].ejected_until_ns > now_ns) {
            return true;
        }
    }
    return false;
}

/* ---- events ---------------------------------------------------------------------------------- */

static void on_arrival(struct fault_run *run, uint32_t index, uint64_t now_ns) {
    struct fault_request *request = &run->requests[index];
    request->server = pick_server(run, request, now_ns);
    run->servers[request->server].n_in_flight++;
    run->n_of_first += request->server == 0 && request->client != 0 && is_during_fault(run, now_ns);
    take(run, request, now_ns);
    if (index + 1 < run->n_requests) {
        sim_events_add(&run->events, request[1].arrives_ns, SIM_ARRIVAL, index + 1);
    }
}

static void on_end(struct fault_run *run, uint32_t index, uint64_t now_ns) {
    struct fault_request *request = &run->requests[index];
    struct fault_server *server = &run->servers[request->server];
    request->ends_ns = now_ns;
    report(run, request, now_ns);
    server->n_in_flight--;
    if (request->runs) {
        server->n_running--;
        start_next(run, server, now_ns);
    }
    run->n_ended++;
}

/* The index is the server's. */
static void on_scrape(struct fault_run *run, uint32_t index, uint64_t now_ns) {
    const struct fault_server *server = &run->servers[index];
    const struct endpoint *endpoint = endpoint_of(run, index);
    struct endpoint_load load = {.asked_ns = now_ns,
                                 .until_ns = now_ns + VALID_NS,
                                 .in_flight = endpoint_in_flight(endpoint),
                                 .known = LOAD_WAITING | LOAD_RUNNING | LOAD_KV_CACHE,
                                 .n_waiting = server->n_waiting,
                                 .n_running = server->n_running,
                                 .kv_cache_used = (float)server->n_running / SLOTS};
    if (run->scenario->fault != SIM_DEAD_PAGE || !is_faulty(run, index, now_ns)) {
        pool_set_load(run->pool, endpoint, &load);
    }
    if (run->n_ended < run->n_requests) {
        sim_events_add(&run->events, now_ns + SCRAPE_NS, SIM_SCRAPE, index);
    }
}

static void process(struct fault_run *run, const struct sim_event *event) {
    clock_set_fake_ns(event->at_ns);
    if (event->kind == SIM_ARRIVAL) {
        on_arrival(run, event->index, event->at_ns);
    } else if (event->kind == SIM_SCRAPE) {
        on_scrape(run, event->index, event->at_ns);
    } else {
        on_end(run, event->index, event->at_ns);
    }
    if (event->at_ns >= run->scenario->until_ms * MS_NS && is_limited(run, event->at_ns)) {
        run->limited_ns = event->at_ns;
    }
}

/* ---- the result ------------------------------------------------------------------------------ */

static int compare_times(const void *a, const void *b) {
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

static double at_99_percent(const uint64_t *times, uint32_t n) {
    uint64_t i = (uint64_t)n * 99 / 100;
    return (double)times[i] / 1e9;
}

static void sum_up(const struct fault_run *run, struct sim_fault_result *out) {
    uint64_t *times = calloc(run->n_requests + 1, sizeof(*times));
    uint64_t until_ns = run->scenario->until_ms * MS_NS;
    if (!times) {
        sim_no_memory();
    }
    *out = (struct sim_fault_result){.n_of_first = run->n_of_first};
    for (uint32_t i = 0; i < run->n_requests; i++) {
        const struct fault_request *request = &run->requests[i];
        out->n += request->client != 0;
        if (request->client != 0 && request->outcome == POOL_OUTCOME_OK) {
            times[out->n_good++] = request->ends_ns - request->arrives_ns;
        }
    }
    qsort(times, out->n_good, sizeof(*times), compare_times);
    out->p99_s = out->n_good > 0 ? at_99_percent(times, out->n_good) : 0;
    out->back_s = run->limited_ns > until_ns ? (double)(run->limited_ns - until_ns) / 1e9 : 0;
    free(times);
}

void sim_faults_run(const struct sim_fault_scenario *scenario, enum sim_judge judge,
                    uint32_t n_servers, uint64_t seed, struct sim_fault_result *out) {
    struct fault_run *run = calloc(1, sizeof(*run));
    struct sim_event event;
    if (!run) {
        sim_no_memory();
    }
    assert(n_servers > 0 && n_servers <= SIM_MOST_FAULT_SERVERS);
    *run = (struct fault_run){
        .scenario = scenario, .judge = judge, .n_servers = n_servers, .prng = {seed}};
    log_level_set(LOG_WARNING, false);
    log_level_set(LOG_INFO, false);
    clock_set_fake_ns(1);
    make_requests(run);
    open_pool(run);
    sim_events_add(&run->events, run->requests[0].arrives_ns, SIM_ARRIVAL, 0);
    for (uint32_t i = 0; i < n_servers && scenario->scraped; i++) {
        sim_events_add(&run->events, 1 + SCRAPE_NS * i / n_servers, SIM_SCRAPE, i);
    }
    while (sim_events_next(&run->events, &event)) {
        process(run, &event);
    }
    assert(run->n_ended == run->n_requests);
    sum_up(run, out);
    sim_events_fini(&run->events);
    free(run->requests);
    pool_reader_unref(run->reader);
    pool_free(run->pool);
    free(run);
    clock_set_fake_ns(0);
}
