/* The stages of a pick: what each asks the pool for, its choice, and the end of its ticket. */
#include "pick/session/stages.h"

#include <assert.h>

#include "codec/http1/cookie.h"
#include "core/base/hash.h"
#include "core/event/clock.h"
#include "pick/session/state.h"

bool pick_stages_init(struct pick_session *session) {
    static const struct pick_stage_plan destination = {.candidates = NULL};
    const struct pick_context *context = &session->context;
    struct pick_stages *stages = &session->stages;
    stages->n = 1;
    stages->items = &stages->first;
    stages->first.plan = &destination;
    if (context->n_stages == 0) {
        return true;
    }
    assert(context->n_stages <= PICK_MAX_STAGES);
    stages->n = context->n_stages;
    stages->items = arena_calloc(session->arena, stages->n, sizeof(*stages->items));
    for (size_t i = 0; stages->items && i < stages->n; i++) {
        stages->items[i].plan = &context->stages[i];
        stages->order[i] = (uint8_t)i;
    }
    return stages->items;
}

/* ---- by the profile handler ------------------------------------------------------------------ */

static const struct pick_stage_plan PLANS[N_STAGE_ROLES] = {
    [STAGE_DECODE] = {.role = STAGE_DECODE},
    [STAGE_ENCODE] = {.role = STAGE_ENCODE,
                      .header = STR("x-encoder-hosts-ports"),
                      .end = PICK_STAGE_LASTS_TO_RESPONSE},
    [STAGE_PREFILL] = {.role = STAGE_PREFILL,
                       .header = STR("x-prefiller-host-port"),
                       .end = PICK_STAGE_LASTS_TO_RESPONSE}};

bool pick_stages_plan(struct pick_session *session, const struct profile_handler *handler,
                      const struct pool_request_needs *needs) {
    struct pick_stages *stages = &session->stages;
    enum stage_role order[N_STAGE_ROLES];
    size_t n_ordered = 0;
    stages->removes_headers = needs->source.on;
    if (!handler || session->context.n_stages > 0) {
        return true;
    }
    stages->by_handler = stages->removes_headers = true;
    stages->is_disagg = handler->is_disagg;
    stages->primary_port = handler->primary_port;
    if (!handler->stages[STAGE_ENCODE].profile && !handler->stages[STAGE_PREFILL].profile) {
        return true;
    }
    struct pick_stage *items = arena_calloc(session->arena, N_STAGE_ROLES, sizeof(*items));
    if (!items) {
        return false;
    }
    profile_handler_order(handler, order);
    stages->items = items;
    for (size_t i = 0; i < N_STAGE_ROLES; i++) {
        size_t at = order[i] == STAGE_DECODE ? 0 : stages->n;
        if (handler->stages[order[i]].profile) {
            items[at].plan = &PLANS[order[i]];
            stages->n += at > 0;
            stages->order[n_ordered++] = (uint8_t)at;
        }
    }
    return true;
}

static bool is_destination(const struct pick_session *session, const struct pick_stage *stage) {
    return stage == session->stages.items;
}

static const struct pick_stage *find_stage(const struct pick_stages *stages, enum stage_role role) {
    for (size_t i = 0; i < stages->n; i++) {
        if (stages->items[i].plan->role == role) {
            return &stages->items[i];
        }
    }
    return NULL;
}

/* The endpoint of an earlier stage that this one works with. */
static const struct endpoint *find_peer(const struct pick_session *session,
                                        const struct pick_stage *stage) {
    enum stage_role role = stage->plan->role;
    if (!session->stages.by_handler || role == STAGE_ENCODE) {
        return NULL;
    }
    const struct pick_stage *peer =
        find_stage(&session->stages, role == STAGE_DECODE ? STAGE_PREFILL : STAGE_DECODE);
    return peer && peer != stage ? peer->ticket.endpoint : NULL;
}

/* Of the stages that hold a ticket, whichever; NULL: none does. */
static const struct endpoint *find_picked(const struct pick_session *session) {
    const struct pick_stages *stages = &session->stages;
    const struct endpoint *found = NULL;
    for (size_t i = 0; !found && i < stages->n; i++) {
        found = stages->items[i].ticket.endpoint;
    }
    return found;
}

static bool asks_for(struct pick_session *session, const struct pick_stage *stage) {
    const struct profile_handler *handler = pick_session_spec(session)->handler;
    const struct pick_stage *destination = &session->stages.items[0];
    uint32_t n_tokens = session->prompt ? pick_session_prompt_tokens(session) : 0;
    struct decider_input input = {.n_prompt_tokens = n_tokens,
                                  .n_cached_tokens = destination->n_cached_tokens,
                                  .has_peer = destination->ticket.endpoint,
                                  .has_media = pick_session_has_media(session)};
    return handler && stage_decider_says(&handler->stages[stage->plan->role].decider, &input);
}

/* Decided once: while the request waits the configuration may change. */
static void decide(struct pick_session *session, struct pick_stage *stage) {
    if (stage->result == PICK_STAGE_UNDECIDED) {
        bool is_wanted = !session->stages.by_handler || is_destination(session, stage) ||
                         asks_for(session, stage);
        stage->result = is_wanted ? PICK_STAGE_WANTED : PICK_STAGE_LEFT_OUT;
    }
}

/* Whether the request is sent on although the stage has no endpoint. */
static bool is_optional(struct pick_session *session, const struct pick_stage *stage) {
    const struct profile_handler *handler = pick_session_spec(session)->handler;
    return session->stages.by_handler && !is_destination(session, stage) &&
           !(handler && handler->refuses);
}

/* RFC 7240, "Prefer: if-available", as the upstream project's coordinator sends it: the request is
 * for a server that has the beginning of its prompt, and comes back otherwise. */
static bool prefers_available(const struct pick_session *session) {
    struct str list = ext_proc_header_find(&pick_session_request(session)->fields, STR("prefer"));
    while (list.len > 0) {
        struct str preference = str_cut(&list, ',');
        if (str_eq_nocase(str_trim(str_cut(&preference, ';')), STR("if-available"))) {
            return true;
        }
    }
    return false;
}

static enum status check_preference(const struct pick_session *session,
                                    const struct pool_pick *pick, struct error *err) {
    if (pick->n_cached_tokens > 0 || !prefers_available(session)) {
        return ST_OK;
    }
    return error_set(err, ST_PRECONDITION_FAILED,
                     "the endpoint %.*s has no prefix of the prompt in its cache (Prefer: "
                     "if-available)",
                     STR_ARG(endpoint_text(pick->ticket.endpoint)));
}

/* ---- the request to the pool ----------------------------------------------------------------- */

static struct str find_header(const void *of, struct str name) {
    const struct pick_request *request = of;
    return ext_proc_header_find(&request->fields, name);
}

/* In HTTP/2 each cookie may have a header of its own. */
static struct str find_cookie(const void *of, struct str name) {
    const struct pick_request *request = of;
    struct ext_proc_header_iter walk = ext_proc_header_iter(&request->fields);
    struct ext_proc_header header;
    struct str found = {NULL, 0};
    while (!found.ptr && ext_proc_header_next(&walk, &header)) {
        if (str_is(header.key, "cookie")) {
            found = cookie_find(header.value, name);
        }
    }
    return found;
}

static struct pool_headers headers_of(const struct pick_request *request) {
    return (struct pool_headers){.find = find_header, .cookie = find_cookie, .of = request};
}

/* By the address that the proxy itself has seen, the last of the list; clients write the others. */
static uint64_t hash_client(const struct pick_request *request) {
    struct str list = ext_proc_header_find(&request->fields, STR("x-forwarded-for"));
    struct str last = list;
    while (list.len > 0) {
        last = str_cut(&list, ',');
    }
    last = str_trim(last);
    return last.len > 0 ? hash_text(last, 1) : 0;
}

/* Without the query. */
static uint64_t hash_path(const struct pick_request *request) {
    struct str rest = request->path;
    struct str path = str_cut(&rest, '?');
    return path.len > 0 ? hash_text(path, 1) | 1 : 0;
}

struct pool_request pick_stage_request(const struct pick_session *session,
                                       const struct pick_stage *stage, struct str model) {
    const struct pick_request *request = pick_session_request(session);
    const struct subset *selection = request->has_selection ? &request->selection : NULL;
    bool wants_kind = pool_wants_clients(session->context.pool);
    return (struct pool_request){.model = model,
                                 .id = request->id,
                                 .path_hash = wants_kind ? hash_path(request) : 0,
                                 .objective = request->objective,
                                 .session = request->session,
                                 .prompt = pick_session_get_prompt(session, stage),
                                 .headers = headers_of(request),
                                 .n_tokens = pick_session_prompt_tokens(session),
                                 .max_output_tokens = pick_session_max_output_tokens(session),
                                 .subset = request->has_hint ? &request->hint : NULL,
                                 .selection =
                                     stage->plan->candidates ? stage->plan->candidates : selection,
                                 .fairness_id = request->fairness_id,
                                 .stage = stage->plan->role,
                                 .peer = find_peer(session, stage),
                                 .fellow = find_picked(session)};
}

/* ---- the choice ------------------------------------------------------------------------------ */

/* With another port, if `port` is not 0. */
static void print_endpoint(struct buf *out, const struct endpoint *endpoint, uint16_t port) {
    char text[ENDPOINT_TEXT_BYTES];
    struct endpoint_address address = endpoint->address;
    if (port == 0) {
        buf_add_str(out, endpoint_text(endpoint));
        return;
    }
    address.port = port;
    buf_add_str(out, endpoint_address_print(&address, text));
}

/* "A:1,B:2": endpoints from one index to before another. */
static struct str join_endpoints(struct arena *arena, const struct pool_pick *pick, size_t from,
                                 size_t to, uint16_t port) {
    struct buf out;
    buf_init(&out, arena, (to - from) * ENDPOINT_TEXT_BYTES);
    for (size_t i = from; i < to; i++) {
        if (i > from) {
            buf_add_char(&out, ',');
        }
        print_endpoint(&out, pick->endpoints[i], port);
    }
    return out.failed ? str_make(NULL, 0) : buf_str(&out);
}

/* `port`: of a handler that sends requests to another port of the endpoint; 0: to its own. */
static enum status print_destination(struct arena *arena, const struct pool_pick *pick,
                                     enum protocol_fallback fallback, uint16_t port,
                                     struct pick_destination *out, struct error *err) {
    size_t n = fallback == FALLBACK_LIST ? pick->n_endpoints : 1;
    struct str endpoint = endpoint_text(pick->ticket.endpoint);
    *out = (struct pick_destination){.endpoint = endpoint};
    if (port != 0) {
        out->rank = endpoint;
    }
    if (n > 1 || port != 0) {
        out->endpoint = join_endpoints(arena, pick, 0, n, port);
    }
    if (fallback == FALLBACK_KEY && pick->n_endpoints > 1) {
        out->fallback = join_endpoints(arena, pick, 1, 2, port);
        if (!out->fallback.ptr) {
            return error_no_memory(err, "the fallback endpoint");
        }
    }
    return out->endpoint.ptr ? ST_OK : error_no_memory(err, "the fallback endpoint");
}

/* The fallback endpoints that print_destination printed: a response may come from one. */
static enum status remember_fallbacks(struct arena *arena, const struct pool_pick *pick,
                                      enum protocol_fallback fallback, struct pick_stage *stage,
                                      struct error *err) {
    size_t n = fallback == FALLBACK_LIST  ? pick->n_endpoints - 1
               : fallback == FALLBACK_KEY ? pick->n_endpoints > 1
                                          : 0;
    stage->n_fallbacks = 0;
    if (n > 0) {
        stage->fallbacks = arena_alloc(arena, n * sizeof(*stage->fallbacks));
        if (!stage->fallbacks) {
            return error_no_memory(err, "the fallback endpoint");
        }
    }
    for (; stage->n_fallbacks < n; stage->n_fallbacks++) {
        stage->fallbacks[stage->n_fallbacks] = pick->endpoints[1 + stage->n_fallbacks]->address;
    }
    return ST_OK;
}

/* The next stage's pick ends the views of this one's. Returns: ST_NO_MEMORY. */
static enum status keep_pick(struct arena *arena, const struct pool_pick *pick,
                             struct pick_stage *stage, struct error *err) {
    stage->picked_by = pick->picked_by;
    stage->known_model = pick->known_model;
    stage->priority = pick->priority;
    stage->n_cached_tokens = pick->n_cached_tokens;
    if (pick->target.ptr) {
        stage->target = arena_dup(arena, pick->target);
        return stage->target.ptr ? ST_OK : error_no_memory(err, "the model's new name");
    }
    return ST_OK;
}

/* A bit for the profile that the stage runs. */
static uint16_t profile_bit(const struct pick_session *session,
                            const struct profile_handler *handler, enum stage_role role) {
    const struct pool_headers headers = headers_of(pick_session_request(session));
    size_t i = profile_handler_find(handler, role, &headers);
    return i < handler->n_profiles ? (uint16_t)(1u << i) : 0;
}

/* Whether the stage may wait while the request holds the tickets of others. Not where an endpoint
 * may be chosen for this stage and for one of these: requests would hold such endpoints and wait
 * for those of each other, or for their own. */
static bool may_wait(struct pick_session *session, const struct pick_stage *stage) {
    const struct pick_stages *stages = &session->stages;
    const struct pool_snapshot *snapshot = pool_reader_refresh(session->context.reader);
    const struct profile_handler *handler = snapshot->spec->handler;
    uint16_t held = 0;
    if (!stages->by_handler || !find_picked(session)) {
        return true;
    }
    for (size_t i = 0; handler && i < stages->n; i++) {
        if (stages->items[i].ticket.endpoint) {
            held |= profile_bit(session, handler, stages->items[i].plan->role);
        }
    }
    uint16_t own = handler ? profile_bit(session, handler, stage->plan->role) : 0;
    bool is_apart = handler != NULL;
    for (uint32_t i = 0; is_apart && i < snapshot->n_members; i++) {
        is_apart =
            !(snapshot->members[i].profiles & own) || !(snapshot->members[i].profiles & held);
    }
    return is_apart;
}

static void report_stage(const struct pick_session *session, const struct pick_stage_event *event) {
    const struct pick_callbacks *out = &session->send_queue.callbacks;
    out->on_stage(out->user, event);
}

/* A request that waited is picked for anew. Where the destination is named with another port than
 * that of its endpoint, as upstream has it, there are no scores. Returns: false when out of
 * memory. */
static bool make_scores(struct pick_session *session) {
    struct pick_stages *stages = &session->stages;
    if (stages->primary_port != 0) {
        return true;
    }
    if (!stages->scores) {
        stages->scores = arena_calloc(session->arena, 1, sizeof(*stages->scores));
    }
    if (stages->scores) {
        *stages->scores = (struct pool_scores){.arena = session->arena};
    }
    return stages->scores;
}

/* Once for a request, before its first stage. */
static bool may_hold(const struct pick_session *session, const struct pool_request *requested) {
    return requested->prompt && session->context.wakeup && session->stages.n_picked == 0 &&
           pool_request_needs(session->context.reader)->burst_on &&
           !(session->queue_entry && session->queue_entry->was_held);
}

/* Picks, or puts the request in the queue or the window of a burst: `pick->ticket` is empty then.
 * `has_flow_control`: the pool. If it is enabled between this test and the pick, this request does
 * not wait. */
static enum status pick_or_wait(struct pick_session *session, const struct pick_stage *stage,
                                bool has_flow_control, struct pool_request *requested,
                                struct pool_pick *pick, struct error *err) {
    enum status st = ST_OK;
    bool queues = session->queue_entry || (session->context.wakeup && has_flow_control);
    requested->may_hold = may_hold(session, requested);
    if ((queues && (session->stages.waits || may_wait(session, stage))) || requested->may_hold) {
        st = pick_queue_prepare(session, requested, err);
    }
    if (session->queue_entry) {
        session->queue_entry->is_queue |= has_flow_control;
    }
    if (st != ST_OK) {
        return st;
    }
    st = pool_pick(session->context.reader, requested, pick, err);
    if (st == ST_OK && pick->is_held && !pick_queue_hold(session, requested)) {
        requested->may_hold = false;
        st = pool_pick(session->context.reader, requested, pick, err);
    }
    session->stages.waits = st == ST_OK && !pick->ticket.endpoint;
    return st;
}

/* Picks for the stage. `pick->ticket` is empty where it has to wait. The configuration is read
 * before the pick, which may load another one; refreshing the reader afterwards would invalidate
 * the pick. */
static enum status run_stage(struct pick_session *session, struct pick_stage *stage,
                             struct str model, struct pool_pick *pick, struct pool_trace *trace,
                             struct error *err) {
    const struct pool_spec *spec = pick_session_spec(session);
    bool is_first = is_destination(session, stage), is_recorded = session->trace.is_recorded;
    bool refuses_uncached = is_first && (session->stages.by_handler || spec->refuses_uncached);
    enum protocol_fallback fallback = is_first ? spec->protocol.fallback : FALLBACK_NONE;
    struct pool_request requested = pick_stage_request(session, stage, model);
    requested.is_admitted = find_picked(session) != NULL;
    requested.n_fallbacks = fallback == FALLBACK_NONE ? 0 : spec->protocol.n_fallbacks;
    struct pool_trace own_trace;
    own_trace.n = 0;
    uint64_t begun_ns = is_recorded ? clock_read_ns() : 0;
    requested.trace = is_recorded ? &own_trace : trace;
    if (is_first && session->context.emits_scores && !make_scores(session)) {
        return error_no_memory(err, "the scores of endpoints");
    }
    requested.scores = is_first ? session->stages.scores : NULL;
    enum status st = pick_or_wait(session, stage, spec->flow_control.on, &requested, pick, err);
    if (st != ST_OK || !pick->ticket.endpoint) {
        return st;
    }
    stage->ticket = pick->ticket;
    stage->result = PICK_STAGE_PICKED;
    if (is_recorded) {
        report_stage(session, &(struct pick_stage_event){.role = stage->plan->role,
                                                         .model = model,
                                                         .endpoint = pick->ticket.endpoint,
                                                         .trace = &own_trace,
                                                         .begun_ns = begun_ns,
                                                         .ended_ns = clock_read_ns()});
        if (trace) {
            *trace = own_trace;
        }
    }
    session->stages.n_picked++;
    if (requested.scores && requested.scores->failed) {
        return error_no_memory(err, "the scores of endpoints");
    }
    if (is_first && pool_wants_clients(session->context.pool)) {
        session->client = hash_client(pick_session_request(session));
    }
    if (pick->is_list && stage->plan->role != STAGE_PREFILL) {
        fallback = FALLBACK_LIST;
    }
    st = refuses_uncached ? check_preference(session, pick, err) : ST_OK;
    if (st == ST_OK) {
        uint16_t port = is_first ? session->stages.primary_port : 0;
        st = print_destination(session->arena, pick, fallback, port, &stage->destination, err);
    }
    if (st == ST_OK && is_first && fallback != FALLBACK_NONE) {
        st = remember_fallbacks(session->arena, pick, fallback, stage, err);
    }
    return st == ST_OK && session->stages.n > 1 ? keep_pick(session->arena, pick, stage, err) : st;
}

/* Decides on the stage and picks for it. Returns: as run_stage. */
static enum status step(struct pick_session *session, struct pick_stage *stage, struct str model,
                        struct pool_pick *pick, struct pool_trace *trace, struct error *err) {
    struct pick_stages *stages = &session->stages;
    decide(session, stage);
    if (stage->result == PICK_STAGE_LEFT_OUT) {
        stages->n_picked++;
        return ST_OK;
    }
    enum status st = run_stage(session, stage, model, pick, trace, err);
    if (st == ST_NO_ENDPOINT && is_optional(session, stage)) {
        stage->result = PICK_STAGE_NO_ENDPOINT;
        stages->n_picked++;
        return ST_OK;
    }
    return st;
}

/* Which endpoint computes the prompt: that of the stage which runs the profile of this name, or
 * else the destination. */
static const struct endpoint *find_computing(const struct pick_stages *stages,
                                             const struct profile_handler *handler,
                                             struct str profile) {
    for (size_t i = 1; handler && i < stages->n; i++) {
        const struct pick_stage *stage = &stages->items[i];
        const struct profile *own = handler->stages[stage->plan->role].profile;
        if (stage->ticket.endpoint && own && str_eq(own->name, profile)) {
            return stage->ticket.endpoint;
        }
    }
    return stages->items[0].ticket.endpoint;
}

/* Names the endpoint that the one which computes the prompt may fetch its beginning from. With one
 * stage the reader is not refreshed: views of the pick are in use. */
static void find_source(struct pick_session *session) {
    const struct pick_stages *stages = &session->stages;
    const struct profile_handler *handler =
        stages->n > 1 ? pick_session_spec(session)->handler : NULL;
    const struct source_producer *rules = &pool_request_needs(session->context.reader)->source;
    const struct pool_prompt *prompt = stages->items[0].prompt;
    const struct endpoint *computing =
        rules->on ? find_computing(stages, handler, rules->profile) : NULL;
    if (prompt && computing) {
        session->stages.source =
            prefix_source_for(&prompt->text->source, computing, rules->min_tokens, session->arena);
    }
}

static void count_stages(const struct pick_stages *stages) {
    for (size_t i = 1; stages->by_handler && i < stages->n; i++) {
        pick_count_stage(stages->items[i].plan->role, stages->items[i].result);
    }
}

/* A trace has views of the pick: with several stages there is none. */
enum status pick_stages_run(struct pick_session *session, struct str model, struct pool_pick *pick,
                            struct pool_trace *trace, struct error *err) {
    struct pick_stages *stages = &session->stages;
    struct pool_pick other;
    while (!pick_stages_are_picked(stages)) {
        size_t at = stages->n_picked;
        struct pick_stage *stage = &stages->items[stages->order[at]];
        enum status st = step(session, stage, model, is_destination(session, stage) ? pick : &other,
                              stages->n == 1 ? trace : NULL, err);
        if (st == ST_OK && stages->n_picked == at) {
            pick_queue_start_wait(session, is_destination(session, stage) ? pick : &other);
        }
        if (st != ST_OK || stages->n_picked == at) {
            return st;
        }
    }
    if (stages->n > 1) {
        const struct pick_stage *destination = &stages->items[0];
        *pick = (struct pool_pick){.ticket = destination->ticket,
                                   .target = destination->target,
                                   .picked_by = destination->picked_by,
                                   .known_model = destination->known_model,
                                   .priority = destination->priority,
                                   .n_cached_tokens = destination->n_cached_tokens,
                                   .pool = pick_session_spec(session)->name};
        count_stages(stages);
    }
    if (stages->removes_headers) {
        find_source(session);
    }
    return ST_OK;
}

enum pick_decision pick_stages_decision(const struct pick_session *session) {
    const struct pick_stages *stages = &session->stages;
    unsigned decision = PICK_DECODE_ONLY;
    for (size_t i = 1; i < stages->n; i++) {
        if (stages->items[i].result == PICK_STAGE_PICKED) {
            decision |= stages->items[i].plan->role == STAGE_PREFILL ? PICK_PREFILL_DECODE
                                                                     : PICK_ENCODE_DECODE;
        }
    }
    return stages->is_disagg ? (enum pick_decision)decision : N_PICK_DECISIONS;
}

static struct str result_text(const struct pick_stage *stage) {
    return stage->result == PICK_STAGE_PICKED        ? stage->destination.endpoint
           : stage->result == PICK_STAGE_NO_ENDPOINT ? STR("no-endpoint")
                                                     : STR("left-out");
}

struct str pick_stages_print(const struct pick_session *session) {
    const struct pick_stages *stages = &session->stages;
    struct buf out;
    if (!stages->by_handler || stages->n == 1) {
        return str_make(NULL, 0);
    }
    buf_init(&out, session->arena, 0);
    for (size_t i = 1; i < stages->n; i++) {
        struct str text = result_text(&stages->items[i]);
        buf_printf(&out, "%s%s=%.*s", i > 1 ? " " : "",
                   stage_role_name(stages->items[i].plan->role), STR_ARG(text));
    }
    return out.failed ? str_make(NULL, 0) : buf_str(&out);
}

/* ---- the end --------------------------------------------------------------------------------- */

static void answer_prompt(const struct pick_session *session, struct pick_stage *stage,
                          bool taken) {
    if (stage->prompt) {
        pool_prompt_answered(session->context.reader, stage->prompt, stage->ticket.endpoint, taken);
        stage->prompt = NULL;
    }
}

static void report(const struct pick_session *session, const struct pick_stage *stage,
                   const struct pool_result *result) {
    const struct pool_ticket *ticket = &stage->ticket;
    struct pool_result own = *result;
    own.kind = ticket->kind;
    own.number = ticket->number;
    pool_report_result(session->context.pool, ticket->endpoint, &own);
}

/* The stage, of those that were not reported to yet, whose endpoint has failed most often in a
 * row. Returns: NULL: there are none. */
static const struct pick_stage *find_suspect(const struct pick_stages *stages, unsigned reported) {
    const struct pick_stage *found = NULL;
    for (size_t i = stages->n; i-- > 0;) {
        const struct pick_stage *stage = &stages->items[i];
        bool is_left = stage->ticket.endpoint && !(reported >> i & 1);
        if (is_left && (!found || endpoint_n_consecutive_5xx(stage->ticket.endpoint) >
                                      endpoint_n_consecutive_5xx(found->ticket.endpoint))) {
            found = stage;
        }
    }
    return found;
}

/* A server error may be that of any of the endpoints, and is passed on by the destination. It
 * counts for each of them, until one is ejected: the error was its. */
void pick_stages_report(struct pick_session *session, const struct pool_result *result,
                        bool is_answered) {
    const struct pick_stages *stages = &session->stages;
    bool is_good = result->outcome == POOL_OUTCOME_OK;
    bool is_shared = is_answered && (is_good || result->outcome == POOL_OUTCOME_5XX ||
                                     result->outcome == POOL_OUTCOME_GATEWAY_FAILURE);
    const struct pick_stage *stage = &stages->items[0];
    if (!is_shared || stages->n == 1) {
        if (stage->ticket.endpoint) {
            report(session, stage, result);
        }
        return;
    }
    for (unsigned reported = 0; (stage = find_suspect(stages, reported));
         reported |= 1u << (stage - stages->items)) {
        bool was_ejected = endpoint_is_ejected(stage->ticket.endpoint);
        report(session, stage, result);
        if (!is_good && !was_ejected && endpoint_is_ejected(stage->ticket.endpoint)) {
            return;
        }
    }
}

void pick_stages_response_started(struct pick_session *session, bool taken) {
    struct pick_stages *stages = &session->stages;
    answer_prompt(session, &stages->items[0], taken);
    for (size_t i = 1; i < stages->n; i++) {
        struct pick_stage *stage = &stages->items[i];
        answer_prompt(session, stage, taken);
        if (stage->plan->end == PICK_STAGE_LASTS_TO_RESPONSE) {
            pool_release_ticket(session->context.pool, &stage->ticket);
        }
    }
}

void pick_stages_body_started(struct pick_session *session) {
    for (size_t i = 0; i < session->stages.n; i++) {
        pool_ticket_end_prompt(session->context.pool, &session->stages.items[i].ticket);
    }
}

/* A prompt without a response is no longer in flight. */
void pick_stages_end(struct pick_session *session) {
    struct pick_stages *stages = &session->stages;
    for (size_t i = 0; i < stages->n; i++) {
        struct pick_stage *stage = &stages->items[i];
        if (stage->prompt && stage->ticket.endpoint) {
            pool_prompt_unanswered(session->context.reader, stage->prompt);
            stage->prompt = NULL;
        }
        pool_release_ticket(session->context.pool, &stage->ticket);
    }
}
