/* The servers are simple: slots, a constant time, and a queue. What is tried is the judgement. */
#include "faults.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "core/event/clock.h"
#include "events.h"
#include "pool.h"

static const uint64_t SECOND_NS = 1000000000, MS_NS = 1000000;
/* A server's: requests at a time, and the time of each. A failure takes FAIL_NS, a request that
 * hangs is given up after HANG_NS. */
enum { SLOTS = 8, CLIENTS = 40, SECONDS = 20 };
static const uint64_t SERVICE_NS = 100000000, FAIL_NS = 1000000, HANG_NS = 2000000000,
                      SCRAPE_NS = 200000000, SCRAPE_LLM_D_NS = 50000000, VALID_NS = 2000000000,
                      RETRY_NS = 20000000;
/* Of the queue, in a flood; and the length of a hot prompt. */
static const uint64_t MAX_WAIT_NS = 2000000000, TICK_NS = 100000000;
enum { MAX_WAITING_PER_SERVER = 20, PROMPT_BYTES = 4096, PREFIX_TABLE_BYTES = 16 << 20 };

/* The status of a request that gets no response. */
static const char NO_RESPONSE[] = "";

/* One of the servers fails fast, with this status. */
#define ONE_ANSWERS(code)                                                                          \
    {                                                                                              \
        .name = "one-" code, .title = "one answers " code, .fault = SIM_FAILS, .status = code,     \
        .from_ms = 5000, .until_ms = 12000, .load = 0.5                                            \
    }

const struct sim_fault_scenario SIM_FAULT_SCENARIOS[] = {
    {.name = "all-503",
     .title = "all answer 503 for 1 s",
     .fault = SIM_FAILS,
     .status = "503",
     .everywhere = true,
     .from_ms = 5000,
     .until_ms = 6000,
     .load = 0.5},
    {.name = "all-refuse",
     .title = "all fail for 1 s",
     .fault = SIM_FAILS,
     .status = NO_RESPONSE,
     .everywhere = true,
     .from_ms = 5000,
     .until_ms = 6000,
     .load = 0.5},
    ONE_ANSWERS("500"),
    ONE_ANSWERS("502"),
    ONE_ANSWERS("503"),
    ONE_ANSWERS("401"),
    ONE_ANSWERS("403"),
    ONE_ANSWERS("404"),
    {.name = "one-lacks-model",
     .title = "one answers 404 for one model",
     .fault = SIM_LACKS_MODEL,
     .status = "404",
     .from_ms = 5000,
     .until_ms = 12000,
     .load = 0.5},
    {.name = "most-500",
     .title = "two of three answer 500",
     .fault = SIM_FAILS,
     .status = "500",
     .share = 0.67,
     .from_ms = 5000,
     .until_ms = 12000,
     .load = 0.2},
    ONE_ANSWERS("429"),
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
    {.name = "slow-start",
     .title = "one comes back, slow at first",
     .fault = SIM_WARMS_UP,
     .status = NO_RESPONSE,
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
    {.name = "retries",
     .title = "the same, clients try 4 times",
     .from_ms = 5000,
     .until_ms = 7000,
     .load = 0.7,
     .burst = 2.5,
     .shed_from = 4,
     .n_retries = 3},
    {.name = "poison",
     .title = "one client's requests fail",
     .fault = SIM_NO_FAULT,
     .from_ms = 5000,
     .until_ms = 12000,
     .load = 0.4,
     .poison = 2},
    {.name = "poison-many",
     .title = "many clients' requests fail",
     .from_ms = 5000,
     .until_ms = 12000,
     .load = 0.4,
     .poison = 1,
     .by_many = true},
    {.name = "flood",
     .title = "a flood of low priority",
     .from_ms = 5000,
     .until_ms = 12000,
     .load = 0.4,
     .poison = 6,
     .flood = true,
     .shed_from = 16},
    {.name = "hot-prefix",
     .title = "all prompts begin alike",
     .from_ms = 5000,
     .until_ms = 12000,
     .load = 0.5,
     .hot_prefix = true,
     .scraped = true,
     .profile = "prompt-first"},
    {.name = "dead-page",
     .title = "one metrics page is dead",
     .fault = SIM_DEAD_PAGE,
     .from_ms = 5000,
     .until_ms = 12000,
     .load = 0.8,
     .scraped = true},
};

const size_t SIM_N_FAULT_SCENARIOS = sizeof(SIM_FAULT_SCENARIOS) / sizeof(*SIM_FAULT_SCENARIOS);

const struct sim_fault_scenario *sim_fault_scenario_find(const char *name) {
    return sim_find(SIM_FAULT_SCENARIOS, SIM_N_FAULT_SCENARIOS, sizeof(*SIM_FAULT_SCENARIOS), name);
}

struct fault_request {
    struct pool_waiter waiter; /* first: a waiter is cast to its request */
    uint64_t arrives_ns, ends_ns;
    uint32_t client; /* 0: the one that poisons or floods */
    uint32_t server;
    const char *status; /* of its response */
    uint32_t n_tries;
    bool runs;  /* occupies a slot */
    bool waits; /* in the picker's queue */
    struct pool_ticket ticket;
    struct fault_request *next; /* in the server's queue */
};

static bool is_answered(const struct fault_request *request) {
    return strcmp(request->status, "200") == 0;
}

struct fault_server {
    uint32_t n_running, n_waiting, n_in_flight;
    struct fault_request *first, **last;
    /* Of llm-d: the page as it was scraped, and that the hot prompt was sent there. */
    uint32_t n_running_scraped, n_waiting_scraped;
    bool has_prompt;
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
    struct pool_wakeup wakeup;
    struct arena *arena; /* of the prompt */
    struct pool_prompt prompt;
    struct prng prng;
    struct sim_events events;
    struct fault_server servers[SIM_MOST_FAULT_SERVERS];
    struct fault_request *requests;
    uint32_t n_requests, n_ended;
    uint64_t limited_ns; /* when some server was last limited or ejected */
    uint32_t n_of_first;
};

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

/* Requests of all clients while one adds its own. */
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

static void set_profile(const struct sim_fault_scenario *scenario, struct pool_spec *spec) {
    const char *name = scenario->profile ? scenario->profile : "default";
    struct error err;
    spec->profile = scenario->made_profile;
    if (!spec->profile) {
        sim_check(sim_profile_make(sim_profile_find(name), spec->arena, &spec->profile, &err),
                  &err);
    }
}

static void set_flow_control(const struct fault_run *run, struct pool_spec *spec) {
    static const struct pool_objective low = {STR("low"), 0}, high = {STR("high"), 100};
    pool_spec_add_objective(spec, &low);
    pool_spec_add_objective(spec, &high);
    spec->max_in_flight = SLOTS;
    spec->flow_control.on = true;
    spec->flow_control.max_wait_ns = MAX_WAIT_NS;
    spec->flow_control.limits.max_requests = (uint64_t)MAX_WAITING_PER_SERVER * run->n_servers;
}

static void open_arena(struct fault_run *run) {
    run->arena = arena_new(NULL, 0);
    if (!run->arena) {
        sim_no_memory();
    }
}

/* The same prompt in all hot requests. */
static struct pool_prompt *hot_prompt(struct fault_run *run) {
    char text[PROMPT_BYTES];
    if (run->prompt.text) {
        return &run->prompt;
    }
    memset(text, 'a', sizeof(text));
    struct pool_prompt *prompt =
        pool_prompt_init(&run->prompt, run->reader, run->arena, str_make(text, sizeof(text)));
    if (!prompt) {
        sim_no_memory();
    }
    return prompt;
}

static void open_pool(struct fault_run *run) {
    struct pool_spec *spec = pool_spec_new();
    for (uint32_t i = 0; i < run->n_servers; i++) {
        static const struct pool_label zone = {STR("zone"), STR("a")};
        struct pool_spec_endpoint wanted = {
            .address = {.family = 4, .port = 8000, .low = (10u << 24) + i}, .labels = {&zone, 1}};
        pool_spec_add_endpoint(spec, &wanted);
    }
    set_profile(run->scenario, spec);
    if (run->scenario->flood) {
        set_flow_control(run, spec);
    }
    sim_pool_open(spec, PREFIX_TABLE_BYTES, 1, &run->pool, &run->reader);
}

static struct endpoint *endpoint_of(struct fault_run *run, uint32_t server) {
    return pool_reader_refresh(run->reader)->members[server].endpoint;
}

/* ---- picking: the others --------------------------------------------------------------------- */

static bool is_faulty(const struct fault_run *run, uint32_t server, uint64_t now_ns) {
    const struct sim_fault_scenario *scenario = run->scenario;
    bool chosen = server == 0 || scenario->everywhere ||
                  server < (uint32_t)(scenario->share * run->n_servers);
    return scenario->fault != SIM_NO_FAULT && chosen && is_during_fault(run, now_ns);
}

/* From 8 at one second to 1 at the end. */
static double slowness_at(const struct fault_run *run, uint64_t now_ns) {
    double begun = (double)run->scenario->from_ms * 1e6 + 1e9;
    double ends = (double)run->scenario->until_ms * 1e6;
    double share = ((double)now_ns - begun) / (ends - begun);
    return 8 - 7 * (share < 0 ? 0 : share);
}

/* Of SIM_WARMS_UP: in the first second. */
static bool is_down(const struct fault_run *run, uint64_t now_ns) {
    return now_ns < run->scenario->from_ms * MS_NS + SECOND_NS;
}

static bool is_known_to_fail(const struct fault_run *run, uint32_t server, uint64_t now_ns) {
    enum sim_fault fault = run->scenario->fault;
    return is_faulty(run, server, now_ns) && fault != SIM_DEAD_PAGE &&
           (fault != SIM_WARMS_UP || is_down(run, now_ns));
}

static bool is_avoided(const struct fault_run *run, uint32_t server, uint64_t now_ns) {
    if (run->judge == SIM_JUDGE_ORACLE) {
        return is_known_to_fail(run, server, now_ns);
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

static bool is_hot(const struct fault_run *run, uint64_t now_ns) {
    return run->scenario->hot_prefix && is_during_fault(run, now_ns);
}

/* The highest sum of three scores, equal ones at random. */
static uint32_t pick_as_llm_d(struct fault_run *run, uint64_t now_ns) {
    uint32_t least = UINT32_MAX, most = 0, found = 0;
    double best = -1;
    for (uint32_t i = 0; i < run->n_servers; i++) {
        uint32_t n_waiting = run->servers[i].n_waiting_scraped;
        least = n_waiting < least ? n_waiting : least;
        most = n_waiting > most ? n_waiting : most;
    }
    for (uint32_t i = 0; i < run->n_servers; i++) {
        const struct fault_server *server = &run->servers[i];
        double queue =
            most > least ? (double)(most - server->n_waiting_scraped) / (most - least) : 1;
        double cache = 1 - (double)server->n_running_scraped / SLOTS;
        double prompt = is_hot(run, now_ns) && server->has_prompt;
        double sum = 2 * queue + 2 * cache + 3 * prompt + 1e-9 * prng_double(&run->prng);
        found = sum > best ? i : found;
        best = sum > best ? sum : best;
    }
    run->servers[found].has_prompt = run->servers[found].has_prompt || is_hot(run, now_ns);
    return found;
}

/* The oracle refuses the flood what would make others wait. */
static bool pick_other(struct fault_run *run, struct fault_request *request, uint64_t now_ns) {
    request->server =
        run->judge == SIM_JUDGE_LLM_D ? pick_as_llm_d(run, now_ns) : pick_least(run, now_ns);
    return run->judge != SIM_JUDGE_ORACLE || !run->scenario->flood || request->client != 0 ||
           run->servers[request->server].n_in_flight < SLOTS;
}

/* ---- picking --------------------------------------------------------------------------------- */

/* How a pick ends. */
enum picked { IS_SENT, IS_QUEUED, IS_REFUSED };

static enum picked pick_from_pool(struct fault_run *run, struct fault_request *request,
                                  uint64_t now_ns) {
    bool is_other = (request - run->requests) % 5 == 0;
    struct pool_request asked = {.model = is_other ? STR("other") : STR("main"), .path_hash = 1};
    struct pool_pick pick;
    struct error err;
    if (is_hot(run, now_ns)) {
        asked.prompt = hot_prompt(run);
        asked.session = STR("hot");
    }
    if (run->scenario->flood) {
        request->waiter.wakeup = &run->wakeup;
        asked.waiter = &request->waiter;
        asked.objective = request->client == 0 ? STR("low") : STR("high");
    }
    if (pool_pick(run->reader, &asked, &pick, &err) != ST_OK) {
        return IS_REFUSED;
    }
    if (asked.prompt) {
        pool_prompt_answered(run->reader, &run->prompt, pick.ticket.endpoint, true); /* at once */
    }
    if (!pick.ticket.endpoint) {
        return IS_QUEUED;
    }
    const struct pool_snapshot *snapshot = pool_reader_refresh(run->reader);
    request->ticket = pick.ticket;
    request->server =
        (uint32_t)(pool_snapshot_find(snapshot, &pick.endpoints[0]->address) - snapshot->members);
    return IS_SENT;
}

static enum picked pick_server(struct fault_run *run, struct fault_request *request,
                               uint64_t now_ns) {
    if (run->judge == SIM_JUDGE_POOL) {
        return pick_from_pool(run, request, now_ns);
    }
    return pick_other(run, request, now_ns) ? IS_SENT : IS_REFUSED;
}

/* ---- servers --------------------------------------------------------------------------------- */

static void end_at(struct fault_run *run, struct fault_request *request, uint64_t at_ns,
                   const char *status) {
    request->status = status;
    sim_events_add(&run->events, at_ns, SIM_END, (uint32_t)(request - run->requests));
}

static void start(struct fault_run *run, struct fault_request *request, uint64_t now_ns) {
    bool faulty = is_faulty(run, request->server, now_ns);
    double times = 1;
    if (faulty && run->scenario->fault == SIM_IS_SLOW) {
        times = 10;
    } else if (faulty && run->scenario->fault == SIM_WARMS_UP) {
        times = slowness_at(run, now_ns);
    }
    run->servers[request->server].n_running++;
    request->runs = true;
    end_at(run, request, now_ns + (uint64_t)((double)SERVICE_NS * times), "200");
}

static void take(struct fault_run *run, struct fault_request *request, uint64_t now_ns) {
    struct fault_server *server = &run->servers[request->server];
    bool faulty = is_faulty(run, request->server, now_ns);
    bool is_missing = run->scenario->fault == SIM_LACKS_MODEL && (request - run->requests) % 5 == 0;
    bool down = run->scenario->fault == SIM_FAILS || is_missing ||
                (run->scenario->fault == SIM_WARMS_UP && is_down(run, now_ns));
    if (request->client == 0 && !run->scenario->flood) {
        end_at(run, request, now_ns + FAIL_NS, "500");
    } else if (faulty && down) {
        end_at(run, request, now_ns + FAIL_NS, run->scenario->status);
    } else if (faulty && run->scenario->fault == SIM_HANGS) {
        uint64_t hang_ns = run->scenario->hang_ms * MS_NS;
        end_at(run, request, now_ns + (hang_ns > 0 ? hang_ns : HANG_NS), NO_RESPONSE);
    } else if (server->n_running < SLOTS) {
        start(run, request, now_ns);
    } else if (run->scenario->shed_from > 0 && server->n_waiting >= run->scenario->shed_from) {
        end_at(run, request, now_ns + FAIL_NS, "503");
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
static void judge_as_envoy(struct fault_run *run, struct fault_server *server, const char *status,
                           uint64_t now_ns) {
    bool is_5xx = status[0] == '5' || status == NO_RESPONSE;
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

static enum pool_outcome outcome_of(const struct fault_request *request) {
    return request->status == NO_RESPONSE ? POOL_OUTCOME_GATEWAY_FAILURE
                                          : pool_outcome_of_http(str_of(request->status));
}

static void report(struct fault_run *run, struct fault_request *request, uint64_t now_ns) {
    struct pool_result result = {.outcome = outcome_of(request),
                                 .client = 1000 + request->client,
                                 .kind = request->ticket.kind,
                                 .number = request->ticket.number};
    if (request->client == 0 && run->scenario->by_many) {
        result.client = 1000000 + (uint64_t)(request - run->requests);
    }
    if (run->judge == SIM_JUDGE_POOL) {
        pool_report_result(run->pool, endpoint_of(run, request->server), &result);
        pool_release_ticket(run->pool, &request->ticket);
    } else if (run->judge == SIM_JUDGE_ENVOY) {
        judge_as_envoy(run, &run->servers[request->server], request->status, now_ns);
    }
}

static bool is_limited(struct fault_run *run, uint64_t now_ns) {
    struct pool_stats stats;
    pool_get_stats(run->pool, &stats);
    if (stats.n_avoided_kinds > 0) {
        return true;
    }
    for (uint32_t i = 0; i < run->n_servers; i++) {
        if (run->judge == SIM_JUDGE_POOL) {
            const struct endpoint *endpoint = endpoint_of(run, i);
            if (endpoint_avoidance(endpoint) != ENDPOINT_NOT_AVOIDED ||
                endpoint_window_size(endpoint) > 0 || endpoint_debt(endpoint) > SLOTS / 2) {
                return true;
            }
        } else if (run->servers[i].ejected_until_ns > now_ns) {
            return true;
        }
    }
    return false;
}

/* ---- events ---------------------------------------------------------------------------------- */

static void finish(struct fault_run *run, struct fault_request *request, uint64_t now_ns) {
    bool again = request->client != 0 && !is_answered(request) &&
                 request->n_tries <= run->scenario->n_retries;
    request->ends_ns = now_ns;
    if (again) {
        uint64_t delay_ns = RETRY_NS << (request->n_tries - 1);
        sim_events_add(&run->events, now_ns + delay_ns, SIM_ARRIVAL,
                       (uint32_t)(request - run->requests));
    }
    run->n_ended += !again;
}

/* A new request, one that was notified, or another try. */
static void dispatch(struct fault_run *run, struct fault_request *request, uint64_t now_ns) {
    enum picked picked = pick_server(run, request, now_ns);
    request->waits = picked == IS_QUEUED;
    if (picked == IS_REFUSED) {
        request->status = "503";
        finish(run, request, now_ns);
    } else if (picked == IS_SENT) {
        run->servers[request->server].n_in_flight++;
        run->n_of_first +=
            request->server == 0 && request->client != 0 && is_during_fault(run, now_ns);
        request->runs = false;
        take(run, request, now_ns);
    }
}

static void on_arrival(struct fault_run *run, uint32_t index, uint64_t now_ns) {
    struct fault_request *request = &run->requests[index];
    bool is_first = request->n_tries++ == 0;
    dispatch(run, request, now_ns);
    if (request->waits) {
        sim_events_add(&run->events, now_ns + MAX_WAIT_NS, SIM_GIVE_UP, index);
    }
    if (is_first && index + 1 < run->n_requests) {
        sim_events_add(&run->events, request[1].arrives_ns, SIM_ARRIVAL, index + 1);
    }
}

static void on_end(struct fault_run *run, uint32_t index, uint64_t now_ns) {
    struct fault_request *request = &run->requests[index];
    struct fault_server *server = &run->servers[request->server];
    report(run, request, now_ns);
    server->n_in_flight--;
    if (request->runs) {
        server->n_running--;
        start_next(run, server, now_ns);
    }
    finish(run, request, now_ns);
}

/* The queue's deadline. */
static void on_give_up(struct fault_run *run, uint32_t index, uint64_t now_ns) {
    struct fault_request *request = &run->requests[index];
    if (request->waits) {
        pool_dequeue(run->pool, &request->waiter, FLOW_EXPIRED);
        request->waits = false;
        request->status = "503";
        finish(run, request, now_ns);
    }
}

static void resume_notified(struct fault_run *run, uint64_t now_ns) {
    struct pool_waiter *waiter;
    if (run->scenario->flood) {
        pool_tick(run->pool, TICK_NS);
    }
    while ((waiter = pool_wakeup_pop(&run->wakeup))) {
        dispatch(run, (struct fault_request *)(void *)waiter, now_ns);
    }
}

static void set_load(struct fault_run *run, uint32_t index, uint64_t now_ns) {
    const struct fault_server *server = &run->servers[index];
    const struct endpoint *endpoint = endpoint_of(run, index);
    struct endpoint_load load = {.asked_ns = now_ns,
                                 .until_ns = now_ns + VALID_NS,
                                 .in_flight = endpoint_in_flight(endpoint),
                                 .known = LOAD_WAITING | LOAD_RUNNING | LOAD_KV_CACHE,
                                 .n_waiting = server->n_waiting,
                                 .n_running = server->n_running,
                                 .kv_cache_used = (float)server->n_running / SLOTS};
    pool_set_load(run->pool, endpoint, &load);
}

/* The index is the server's. */
static void on_scrape(struct fault_run *run, uint32_t index, uint64_t now_ns) {
    struct fault_server *server = &run->servers[index];
    uint64_t every_ns = run->judge == SIM_JUDGE_LLM_D ? SCRAPE_LLM_D_NS : SCRAPE_NS;
    if (run->scenario->fault != SIM_DEAD_PAGE || !is_faulty(run, index, now_ns)) {
        server->n_running_scraped = server->n_running;
        server->n_waiting_scraped = server->n_waiting;
        set_load(run, index, now_ns);
    }
    if (run->n_ended < run->n_requests) {
        sim_events_add(&run->events, now_ns + every_ns, SIM_SCRAPE, index);
    }
}

static void process(struct fault_run *run, const struct sim_event *event) {
    clock_set_fake_ns(event->at_ns);
    switch (event->kind) {
    case SIM_ARRIVAL:
        on_arrival(run, event->index, event->at_ns);
        break;
    case SIM_SCRAPE:
        on_scrape(run, event->index, event->at_ns);
        break;
    case SIM_END:
        on_end(run, event->index, event->at_ns);
        break;
    case SIM_GIVE_UP:
        on_give_up(run, event->index, event->at_ns);
        break;
    case SIM_FIRST_TOKEN: /* of run.c only */
        break;
    }
    resume_notified(run, event->at_ns);
    if (event->at_ns >= run->scenario->until_ms * MS_NS && is_limited(run, event->at_ns)) {
        run->limited_ns = event->at_ns;
    }
}

/* ---- the result ------------------------------------------------------------------------------ */

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
        if (request->client != 0 && is_answered(request)) {
            times[out->n_good++] = request->ends_ns - request->arrives_ns;
        }
    }
    sim_sort_times(times, out->n_good);
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
    open_arena(run);
    sim_wakeup_init(&run->wakeup);
    open_pool(run);
    sim_events_add(&run->events, run->requests[0].arrives_ns, SIM_ARRIVAL, 0);
    bool scraped = scenario->scraped || judge == SIM_JUDGE_LLM_D;
    for (uint32_t i = 0; i < n_servers && scraped; i++) {
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
    pool_wakeup_fini(&run->wakeup);
    arena_free(run->arena);
    free(run);
    clock_set_fake_ns(0);
}
