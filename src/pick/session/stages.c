/* The stages of a pick: what each asks the pool for, its choice, and the end of its ticket. */
#include "pick/session/stages.h"

#include <assert.h>

#include "core/base/hash.h"
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
    }
    return stages->items;
}

/* ---- the request to the pool ----------------------------------------------------------------- */

static struct str find_header(const void *of, struct str name) {
    const struct pick_request *request = of;
    return ext_proc_header_find(&request->fields, name);
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
                                 .path_hash = wants_kind ? hash_path(request) : 0,
                                 .objective = request->objective,
                                 .session = request->session,
                                 .prompt = pick_session_get_prompt(session, stage),
                                 .headers = {.find = find_header, .of = request},
                                 .n_tokens = pick_session_estimate_tokens(session),
                                 .subset = request->has_hint ? &request->hint : NULL,
                                 .selection =
                                     stage->plan->candidates ? stage->plan->candidates : selection,
                                 .fairness_id = request->fairness_id};
}

/* ---- the choice ------------------------------------------------------------------------------ */

/* "A:1,B:2" */
static struct str join_endpoints(struct arena *arena, const struct pool_pick *pick) {
    struct buf out;
    buf_init(&out, arena, pick->n_endpoints * ENDPOINT_TEXT_BYTES);
    for (size_t i = 0; i < pick->n_endpoints; i++) {
        if (i > 0) {
            buf_add_char(&out, ',');
        }
        buf_add_str(&out, endpoint_text(pick->endpoints[i]));
    }
    return out.failed ? str_make(NULL, 0) : buf_str(&out);
}

static enum status print_destination(struct arena *arena, const struct pool_pick *pick,
                                     enum protocol_fallback fallback, struct pick_destination *out,
                                     struct error *err) {
    *out = (struct pick_destination){.endpoint = endpoint_text(pick->ticket.endpoint)};
    if (pick->n_endpoints < 2 || fallback == FALLBACK_NONE) {
        return ST_OK;
    }
    struct str *slot = fallback == FALLBACK_LIST ? &out->endpoint : &out->fallback;
    *slot = fallback == FALLBACK_LIST ? join_endpoints(arena, pick)
                                      : arena_dup(arena, endpoint_text(pick->endpoints[1]));
    return slot->ptr ? ST_OK : error_no_memory(err, "the fallback endpoint");
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
    if (pick->target.ptr) {
        stage->target = arena_dup(arena, pick->target);
        return stage->target.ptr ? ST_OK : error_no_memory(err, "the model's new name");
    }
    return ST_OK;
}

/* Picks for the stage. `pick->ticket` is empty where it has to wait. */
static enum status run_stage(struct pick_session *session, struct pick_stage *stage,
                             struct str model, struct pool_pick *pick, struct pool_trace *trace,
                             struct error *err) {
    const struct pool_spec *spec = pick_session_spec(session);
    bool is_destination = stage == session->stages.items;
    enum protocol_fallback fallback = is_destination ? spec->protocol.fallback : FALLBACK_NONE;
    struct pool_request requested = pick_stage_request(session, stage, model);
    enum status st = ST_OK;
    requested.n_fallbacks = fallback == FALLBACK_NONE ? 0 : spec->protocol.n_fallbacks;
    requested.trace = trace;
    /* If flow control is enabled between this test and the pick, this request does not wait. */
    if (session->queue_entry || (session->context.wakeup && spec->flow_control.on)) {
        st = pick_queue_prepare(session, &requested, err);
    }
    if (st == ST_OK) {
        st = pool_pick(session->context.reader, &requested, pick, err);
    }
    if (st != ST_OK || !pick->ticket.endpoint) {
        return st;
    }
    stage->ticket = pick->ticket;
    session->stages.n_picked++;
    if (is_destination && pool_wants_clients(session->context.pool)) {
        session->client = hash_client(pick_session_request(session));
    }
    st = print_destination(session->arena, pick, fallback, &stage->destination, err);
    if (st == ST_OK && fallback != FALLBACK_NONE) {
        st = remember_fallbacks(session->arena, pick, fallback, stage, err);
    }
    return st == ST_OK && session->stages.n > 1 ? keep_pick(session->arena, pick, stage, err) : st;
}

/* A trace has views of the pick: with several stages there is none. */
enum status pick_stages_run(struct pick_session *session, struct str model, struct pool_pick *pick,
                            struct pool_trace *trace, struct error *err) {
    struct pick_stages *stages = &session->stages;
    while (!pick_stages_are_picked(stages)) {
        size_t at = stages->n_picked;
        enum status st =
            run_stage(session, &stages->items[at], model, pick, stages->n == 1 ? trace : NULL, err);
        if (st == ST_OK && stages->n_picked == at) {
            pick_queue_start_wait(session, pick);
        }
        if (st != ST_OK || stages->n_picked == at) {
            return st;
        }
    }
    if (stages->n > 1) {
        const struct pick_stage *destination = &stages->items[0];
        pick->ticket = destination->ticket;
        pick->target = destination->target;
        pick->picked_by = destination->picked_by;
        pick->known_model = destination->known_model;
    }
    return ST_OK;
}

/* ---- the end --------------------------------------------------------------------------------- */

static void answer_prompt(const struct pick_session *session, struct pick_stage *stage,
                          bool taken) {
    if (stage->prompt) {
        pool_prompt_answered(session->context.reader, stage->prompt, stage->ticket.endpoint, taken);
        stage->prompt = NULL;
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
