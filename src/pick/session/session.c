/* The session: messages are dispatched by kind, the pool is selected, the response is observed, and
 * the stream ends here. */
#include "pick/session/state.h"

#include <assert.h>

#include "core/base/num.h"
#include "core/base/transition.h"
#include "core/event/clock.h"
#include "pick/pool/no_endpoint.h"
#include "pick/pool/profile/session_token.h"
#include "pick/pool/snapshot.h"
#include "pick/session/attempt.h"

static const struct str ATTRIBUTES = {"envoy.filters.http.ext_proc", 27};
static const struct str DETAILS = {"response.code_details", 21};
static const struct str FLAGS = {"response.flags", 14};
static const struct str UPSTREAM = {"upstream.address", 16};
static const struct str ATTEMPTS = {"upstream.request_attempt_count", 30};

/* ---- states ---------------------------------------------------------------------------------- */

#define TO(state) STATE_SET(PICK_##state)

bool pick_state_follows(enum pick_state from, enum pick_state to) {
    static const uint32_t NEXT[] = {
        [PICK_HEADERS_EXPECTED] = TO(OBSERVED) | TO(HEADERS_HELD) | TO(BODY_PENDING) | TO(QUEUED) |
                                  TO(UNCHECKED) | TO(PICKED) | TO(ENDED),
        [PICK_OBSERVED] = TO(ENDED),
        [PICK_HEADERS_HELD] = TO(QUEUED) | TO(PICKED) | TO(LOCAL_REPLY) | TO(ENDED),
        [PICK_BODY_PENDING] = TO(QUEUED) | TO(PICKED) | TO(LOCAL_REPLY) | TO(ENDED),
        [PICK_QUEUED] = TO(UNCHECKED) | TO(PICKED) | TO(LOCAL_REPLY) | TO(ENDED),
        [PICK_UNCHECKED] = TO(CHECKING) | TO(PICKED) | TO(ENDED),
        [PICK_CHECKING] = TO(PICKED) | TO(ENDED),
        [PICK_PICKED] = TO(ENDED),
        [PICK_LOCAL_REPLY] = TO(ENDED),
        [PICK_ENDED] = 0,
    };
    return transition_is_legal(NEXT, from, to);
}

/* A queued request holds its reader's place among the pools that requests wait for. */
void pick_session_set_state(struct pick_session *session, enum pick_state to) {
    enum pick_state from = session->state;
    assert(pick_state_follows(from, to));
    if (from == PICK_QUEUED) {
        pick_queue_report_end(session, to == PICK_UNCHECKED || to == PICK_PICKED ? FLOW_DISPATCHED
                                                                                 : FLOW_ABORTED);
    }
    session->state = to;
    if (to == PICK_QUEUED && session->context.waited) {
        pool_waited_add(session->context.waited, session->context.reader);
    } else if (from == PICK_QUEUED && session->context.waited) {
        pool_waited_remove(session->context.reader);
    }
}

void pick_half_advance(enum pick_half *half, enum pick_half to) {
    assert(to > *half);
    *half = to;
}

const struct pool_spec *pick_session_spec(struct pick_session *session) {
    return pool_reader_refresh(session->context.reader)->spec;
}

void pick_session_release_headers(struct pick_session *session) {
    if (session->headers) {
        pick_message_unref(session->headers);
        session->headers = NULL;
    }
    session->requested = session->body_model = str_make(NULL, 0);
    session->request = NULL;
}

static int64_t objective_priority(const struct pool_snapshot *snapshot, struct str name) {
    const struct pool_objective *objective =
        name.len > 0 ? pool_snapshot_find_objective(snapshot, name) : NULL;
    return objective ? objective->priority : 0;
}

/* Refreshing the reader would invalidate the pick. */
struct pick_counted pick_session_counted(struct pick_session *session, struct str model,
                                         const struct pool_pick *pick) {
    const struct pick_request *request = pick_session_request(session);
    struct pick_counted counted = {.pool = pool_name(session->context.pool),
                                   .model = model,
                                   .fairness_id = request->fairness_id,
                                   .is_queue =
                                       session->queue_entry && session->queue_entry->is_queue};
    if (pick) {
        counted.known = pick->known_model;
        counted.target = pick->target;
        counted.priority = pick->priority;
        counted.pool = counted.pool.len > 0 ? counted.pool : pick->pool;
    } else {
        const struct pool_snapshot *snapshot = pool_reader_refresh(session->context.reader);
        counted.known = model.ptr && pool_snapshot_find_name(snapshot, model);
        counted.priority = objective_priority(snapshot, request->objective);
        counted.pool = counted.pool.len > 0 ? counted.pool : snapshot->spec->name;
    }
    return counted;
}

void pick_session_report(struct pick_session *session, struct str model,
                         struct pick_outcome *outcome) {
    const struct pick_callbacks *out = &session->send_queue.callbacks;
    if (out->on_outcome) {
        outcome->request_line = session->request_line;
        outcome->id = pick_session_request(session)->id;
        outcome->counted = pick_session_counted(session, model, outcome->pick);
        outcome->endpoint = session->stages.items[0].ticket.endpoint;
        outcome->format = session->body_format;
        outcome->is_streamed = pick_session_asks_for_stream(session);
        out->on_outcome(out->user, outcome);
    }
}

uint64_t pick_session_body_bytes(const struct pick_session *session) {
    return session->n_body_bytes > session->n_body_received ? session->n_body_bytes
                                                            : session->n_body_received;
}

/* For the outcome of a request that gets no endpoint. */
static struct str last_known_model(const struct pick_session *session) {
    return session->body_model.ptr ? session->body_model : session->requested;
}

/* ---- ending the stream ----------------------------------------------------------------------- */

/* The proxy was asked for the body (mode_override), and did not send it: it does not allow that, or
 * sends in mode GRPC what it has at once. */
static bool lacks_requested_body(const struct pick_session *session) {
    return session->state == PICK_UNCHECKED && session->needs_model;
}

static void note_unchecked_model(struct pick_session *session) {
    if (lacks_requested_body(session)) {
        metric_add(METRIC_PICK_MODELS_UNCHECKED_TOTAL, 1);
        pool_note_unchecked_model(session->context.pool);
    }
}

/* Without the responses' headers (response_header_mode: SKIP) the end of a picked request looks
 * like a client that has disconnected; where the proxy has never shown more of a request than this,
 * it is not that. */
static void note_end_of_picked(struct pick_session *session) {
    if (session->response_half == PICK_HALF_EXPECTED &&
        pool_is_proxy_silent(session->context.pool)) {
        note_unchecked_model(session);
    }
    metric_add(session->response_has_headers ? METRIC_PICK_RESPONSES_WITH_HEADERS
                                             : METRIC_PICK_RESPONSES_WITHOUT_HEADERS,
               1);
}

/* The response has ended, or the session without it: the proxy did not show the end, or the client
 * left. A request counts once. */
static void count_service(struct pick_session *session) {
    struct pool_ticket *ticket = &session->stages.items[0].ticket;
    if (pick_session_is_picked(session)) {
        pool_count_service(session->context.pool, ticket, session->usage.n_prompt,
                           session->usage.n_output);
    }
}

/* Nothing is sent after this. */
static void end_session(struct pick_session *session, enum flow_outcome outcome) {
    if (pick_session_is_picked(session)) {
        note_end_of_picked(session);
    }
    count_service(session);
    pick_queue_end_lease(session);
    pick_queue_stop_wait(session, outcome);
    if (session->body_scan.message_ref) {
        pick_message_unref(session->body_scan.message_ref);
        session->body_scan.message_ref = NULL;
    }
    pick_session_set_state(session, PICK_ENDED);
    pick_body_buffer_clear(&session->body_buffer);
    pick_session_release_headers(session);
    pick_stages_end(session);
}

void pick_session_abort(struct pick_session *session, const struct error *why) {
    if (session->state != PICK_ENDED) {
        if (why) {
            pick_session_report(session, last_known_model(session),
                                &(struct pick_outcome){.why = why});
        }
        end_session(session, FLOW_REFUSED);
        pick_send_queue_finish(&session->send_queue, why);
    }
}

/* The stream has ended before the session: the proxy may still wait for a response. */
static void end_unanswered(struct pick_session *session) {
    if (session->state == PICK_HEADERS_HELD || session->state == PICK_QUEUED) {
        pick_count_unanswered();
    }
    end_session(session, FLOW_ABORTED);
}

void pick_session_cancel(struct pick_session *session, const struct error *why) {
    if (session->state != PICK_ENDED) {
        end_unanswered(session);
        pick_send_queue_finish(&session->send_queue, why);
    }
}

bool pick_session_has_ended(const struct pick_session *session) {
    return session->state == PICK_ENDED;
}

bool pick_session_is_queued(const struct pick_session *session) {
    return session->state == PICK_QUEUED;
}

bool pick_session_may_resume(const struct pick_session *session) {
    return session->state == PICK_QUEUED || pick_session_is_response_pending(session) ||
           (session->queue_entry && session->queue_entry->waiter.lease.is_held);
}

void pick_session_protocol_error(struct pick_session *session, const char *what) {
    struct error err;
    error_set(&err, ST_BAD_REQUEST, "%s", what);
    metric_add(METRIC_PICK_ILLEGAL_TOTAL, 1);
    pick_session_abort(session, &err);
}

/* The headers are released after the pick, but not whether the client speaks gRPC. */
static const struct pick_request *refused_request(const struct pick_session *session) {
    static const struct pick_request of_grpc = {.content_type = STR("application/grpc")};
    bool released = pick_session_is_picked(session) && !session->request;
    return released && !session->is_not_grpc ? &of_grpc : pick_session_request(session);
}

void pick_session_refuse(struct pick_session *session, const struct error *why) {
    struct error err;
    pick_session_report(session, last_known_model(session), &(struct pick_outcome){.why = why});
    enum status st =
        pick_send_refusal(&session->send_queue, session->arena, pick_session_spec(session),
                          refused_request(session), why, &err);
    end_session(session, FLOW_REFUSED);
    pick_send_queue_finish(&session->send_queue, st == ST_OK ? NULL : &err);
}

static enum status send_continue(struct pick_send_queue *send_queue, enum ext_proc_kind kind,
                                 struct error *err) {
    struct ext_proc_response answer = {.kind = kind};
    return pick_send_queue_push(send_queue, &answer, NULL, err);
}

void pick_session_send_continue(struct pick_session *session, enum ext_proc_kind kind) {
    struct error err;
    if (send_continue(&session->send_queue, kind, &err) != ST_OK) {
        pick_session_abort(session, &err);
    }
}

/* ---- the pool -------------------------------------------------------------------------------- */

/* Pools match few header names; the first header of a name counts. */
static void read_match_headers(const struct pool_index *index,
                               const struct ext_proc_headers *fields,
                               struct pool_match_input *out) {
    struct ext_proc_header_iter walk = ext_proc_header_iter(fields);
    struct ext_proc_header header;
    while (ext_proc_header_next(&walk, &header)) {
        struct str value = header.value.ptr ? header.value : STR("");
        if (!out->authority.ptr && str_is(header.key, ":authority")) {
            out->authority = value;
        } else if (!out->path.ptr && str_is(header.key, ":path")) {
            out->path = value;
        }
        for (size_t i = 0; i < index->headers.n; i++) {
            if (!out->headers[i].ptr && str_eq(index->headers.items[i].name, header.key)) {
                out->headers[i] = value;
            }
        }
    }
}

static void read_match_metadata(const struct pool_index *index,
                                const struct ext_proc_request *message,
                                struct pool_match_input *out) {
    for (size_t i = 0; i < index->metadata.n; i++) {
        const struct pool_match_name *wanted = &index->metadata.items[i];
        struct ext_proc_value value = ext_proc_metadata_find(message, wanted->space, wanted->name);
        if (value.kind == EXT_PROC_STRING) {
            out->metadata[i] = value.text.ptr ? value.text : STR("");
        }
    }
}

/* `*authority`: for the error text. */
static size_t find_pool(const struct pool_index *index, const struct ext_proc_request *message,
                        struct str *authority) {
    struct pool_match_input input = {.authority = {NULL, 0}};
    read_match_headers(index, &message->fields, &input);
    read_match_metadata(index, message, &input);
    *authority = input.authority;
    return pool_index_find(index, &input);
}

static enum status no_pool_error(const struct pool_list *list, struct str authority,
                                 struct error *err) {
    enum { MOST_BYTES = 200 };
    size_t n = authority.len < MOST_BYTES ? authority.len : MOST_BYTES;
    if (list->n == 0) {
        return error_set(err, ST_NO_POOL, "no pool is configured yet");
    }
    return error_set(err, ST_NO_POOL,
                     "none of the %zu pools matches this request to \"%.*s\" (`match` in the "
                     "picker's configuration)",
                     list->n, STR_ARG(str_make(authority.ptr, n)));
}

static void use_reader(struct pick_session *session, struct pool_reader *reader) {
    struct pool_reader *old = session->context.reader;
    if (reader == old) {
        return;
    }
    session->context.reader = pool_reader_ref(reader);
    session->context.pool = pool_reader_pool(reader);
    pool_reader_unref(old);
}

static void init_pool(struct pick_session *session) {
    struct pool_set_reader *pools = session->context.pools;
    if (!pools) {
        pool_reader_ref(session->context.reader);
        return;
    }
    const struct pool_list *list = pool_set_reader_refresh(pools);
    struct pool_reader *reader =
        list->index.is_single_catch_all
            ? pool_set_reader_get(pools, &list->entries[list->index.catch_all])
            : NULL;
    session->context.reader = NULL;
    use_reader(session, reader ? reader : pool_set_reader_get_empty(pools));
}

enum status pick_session_select_pool(struct pick_session *session,
                                     const struct ext_proc_request *message, struct error *err) {
    struct pool_set_reader *pools = session->context.pools;
    struct str authority = {NULL, 0};
    if (!pools) {
        return ST_OK;
    }
    const struct pool_list *list = pool_set_reader_refresh(pools);
    size_t found = list->index.is_single_catch_all ? list->index.catch_all
                                                   : find_pool(&list->index, message, &authority);
    if (found == SIZE_MAX) {
        use_reader(session, pool_set_reader_get_empty(pools));
        return no_pool_error(list, authority, err);
    }
    struct pool_reader *reader = pool_set_reader_get(pools, &list->entries[found]);
    if (!reader) {
        return error_no_memory(err, "reading a pool");
    }
    use_reader(session, reader);
    return ST_OK;
}

/* The status is 200 to 299. Errors are left out of the response times: they are often fast. */
static bool is_success(const struct ext_proc_request *message) {
    struct str status = ext_proc_header_find(&message->fields, STR(":status"));
    return status.len == 3 && status.ptr[0] == '2';
}

/* ---- response: the endpoint that served ------------------------------------------------------ */

/* Clause: "x-gateway-destination-endpoint-served", of the protocol's later versions: a text, or the
 * first of a list. */
static struct str find_served(const struct protocol *protocol,
                              const struct ext_proc_request *message) {
    struct ext_proc_value item,
        value =
            ext_proc_metadata_find(message, protocol->destination_namespace, protocol->served_key);
    if (value.kind == EXT_PROC_LIST) {
        struct pb_reader list = pb_read(value.list);
        if (ext_proc_list_next(&list, &item)) {
            value = item;
        }
    }
    return value.kind == EXT_PROC_STRING ? value.text : str_make(NULL, 0);
}

static struct str find_attribute(const struct ext_proc_request *message, struct str key) {
    struct ext_proc_value value = ext_proc_attribute_find(message, ATTRIBUTES, key);
    return value.kind == EXT_PROC_STRING ? value.text : str_make(NULL, 0);
}

/* How many attempts the proxy made before the one that is reported; 0: it does not say. */
static size_t find_n_failed_attempts(const struct ext_proc_request *message) {
    struct ext_proc_value value = ext_proc_attribute_find(message, ATTRIBUTES, ATTEMPTS);
    return value.kind == EXT_PROC_NUMBER && value.number > 1 && value.number < UINT32_MAX
               ? (size_t)value.number - 1
               : 0;
}

/* How many of the endpoints that the proxy was to try, in order, did not serve the request, given
 * that another than the first one did. If that is none of ours, the proxy may not have tried them
 * at all: then only its number of attempts counts. */
static size_t count_unserved(const struct pick_session *session,
                             const struct ext_proc_request *message,
                             const struct endpoint_address *served) {
    const struct pick_stage *stage = &session->stages.items[0];
    for (size_t i = 0; i < stage->n_fallbacks; i++) {
        if (endpoint_address_equal(&stage->fallbacks[i], served)) {
            return 1 + i;
        }
    }
    size_t n_failed = find_n_failed_attempts(message);
    return n_failed < 1 + stage->n_fallbacks ? n_failed : 1 + stage->n_fallbacks;
}

/* Counts the request at the endpoint that the proxy sent it to, if the proxy reports one. Those
 * that it tried before did not serve it: they count as failed where the last one answered with
 * success. A proxy retries for many reasons; where the last attempt failed as well, the reason may
 * be the request. */
static void move_ticket_to_served(struct pick_session *session,
                                  const struct ext_proc_request *message, struct str served) {
    struct pick_stage *stage = &session->stages.items[0];
    struct endpoint_address address, picked;
    if (!stage->ticket.endpoint || stage->destination.rank.ptr ||
        !endpoint_address_parse(str_trim(served), &address)) {
        return;
    }
    picked = stage->ticket.endpoint->address;
    if (!pool_ticket_move(session->context.reader, &stage->ticket, &address)) {
        return;
    }
    metric_add(METRIC_PICK_MOVED_TOTAL, 1);
    size_t n_unserved = is_success(message) ? count_unserved(session, message, &address) : 0;
    for (size_t i = 0; i < n_unserved; i++) {
        if (pool_report_unserved(session->context.reader,
                                 i == 0 ? &picked : &stage->fallbacks[i - 1])) {
            metric_add(METRIC_PICK_REFUSED_TOTAL, 1);
        }
    }
}

/* ---- response: the endpoint's state ---------------------------------------------------------- */

/* What became of the request at its endpoint. Without the details the flags show failures, and a
 * header that the router adds to responses of an upstream, and not to local replies, the rest. */
static enum pick_attempt find_attempt(const struct ext_proc_request *message) {
    struct str details = find_attribute(message, DETAILS);
    if (details.ptr) {
        return pick_attempt_of_details(details);
    }
    struct ext_proc_value flags = ext_proc_attribute_find(message, ATTRIBUTES, FLAGS);
    enum pick_attempt attempt = PICK_ATTEMPT_UNKNOWN;
    if (flags.kind == EXT_PROC_NUMBER && flags.number >= 1 && flags.number < UINT32_MAX) {
        attempt = pick_attempt_of_flags((uint64_t)flags.number);
    }
    bool answered =
        ext_proc_header_find(&message->fields, STR("x-envoy-upstream-service-time")).ptr != NULL;
    return attempt == PICK_ATTEMPT_UNKNOWN && answered ? PICK_ATTEMPT_ANSWERED : attempt;
}

/* Seconds; a date counts as absent. */
static uint64_t read_retry_after_ns(const struct ext_proc_request *message) {
    enum { MOST_S = 60 };
    struct str text = str_trim(ext_proc_header_find(&message->fields, STR("retry-after")));
    uint64_t seconds = 0;
    if (!text.ptr || !num_parse_u64(text, &seconds)) {
        return 0;
    }
    return (seconds < MOST_S ? seconds : MOST_S) * UINT64_C(1000000000);
}

/* Reports the outcome to outlier detection, unless the proxy replied itself. */
static void report_outcome(struct pick_session *session, const struct ext_proc_request *message,
                           enum pick_attempt attempt) {
    struct pool_result result = {.outcome = POOL_OUTCOME_GATEWAY_FAILURE,
                                 .client = session->client};
    if (attempt == PICK_ATTEMPT_ANSWERED) {
        struct str status = ext_proc_header_find(&message->fields, STR(":status"));
        struct str grpc_status = ext_proc_header_find(&message->fields, STR("grpc-status"));
        result.outcome =
            grpc_status.ptr ? pool_outcome_of_grpc(grpc_status) : pool_outcome_of_http(status);
        if (result.outcome == POOL_OUTCOME_SHED) {
            result.retry_after_ns = read_retry_after_ns(message);
        }
    } else if (attempt == PICK_ATTEMPT_UNKNOWN) {
        return;
    }
    pick_stages_report(session, &result, attempt == PICK_ATTEMPT_ANSWERED);
}

/* What the first message of the response shows about the endpoint. */
static void record_endpoint_result(struct pick_session *session,
                                   const struct ext_proc_request *message) {
    const struct protocol *protocol = &pick_session_spec(session)->protocol;
    struct str served = find_served(protocol, message);
    enum pick_attempt attempt = find_attempt(message);
    move_ticket_to_served(session, message,
                          served.ptr ? served : find_attribute(message, UPSTREAM));
    struct pool_ticket *ticket = &session->stages.items[0].ticket;
    struct endpoint *endpoint = ticket->endpoint;
    if (attempt == PICK_ATTEMPT_ANSWERED) {
        note_unchecked_model(session);
    }
    /* A body without headers, which the proxy does not show: the status is unknown. */
    bool taken = message->kind != EXT_PROC_RESPONSE_HEADERS || is_success(message);
    pool_ticket_response_started(session->context.pool, ticket, is_success(message));
    if (endpoint && attempt == PICK_ATTEMPT_NOT_CONNECTED) {
        pool_report_refused(session->context.pool, endpoint);
        metric_add(METRIC_PICK_REFUSED_TOTAL, 1);
    } else if (endpoint && endpoint_is_refused(endpoint) && attempt == PICK_ATTEMPT_ANSWERED) {
        pool_report_answered(session->context.pool, endpoint);
    }
    if (endpoint) {
        report_outcome(session, message, attempt);
    }
    pick_stages_response_started(session, taken);
}

/* For statistics. */
static void report_response(const struct pick_session *session,
                            const struct ext_proc_request *message) {
    const struct pick_callbacks *out = &session->send_queue.callbacks;
    if (out->on_response && pick_session_is_picked(session)) {
        out->on_response(out->user, message);
    }
}

/* ---- response messages ----------------------------------------------------------------------- */

/* A response before the pick is a local reply of the proxy: the request needs no endpoint any more.
 * Returns: false when the message is out of order. */
static bool begin_response_message(struct pick_session *session,
                                   const struct ext_proc_request *message, bool again) {
    if (session->response_half == PICK_HALF_ENDED || again) {
        pick_session_protocol_error(
            session, again ? "received the response's headers twice, or after its body"
                           : "received a part of the response after its end");
        return false;
    }
    if (session->state == PICK_HEADERS_HELD || session->state == PICK_BODY_PENDING ||
        session->state == PICK_QUEUED) {
        pick_queue_stop_wait(session, FLOW_ABORTED);
        pick_body_buffer_clear(&session->body_buffer);
        pick_session_release_headers(session);
        pick_session_set_state(session, PICK_LOCAL_REPLY);
        pick_stages_end(session);
    }
    if (session->response_half == PICK_HALF_EXPECTED) {
        pick_half_advance(&session->response_half, PICK_HALF_STARTED);
        record_endpoint_result(session, message);
    }
    report_response(session, message);
    return true;
}

void pick_session_note_usage(struct pick_session *session, const struct pick_usage *usage) {
    session->usage = *usage;
}

static void end_response_message(struct pick_session *session, bool ended) {
    if (ended) {
        pick_half_advance(&session->response_half, PICK_HALF_ENDED);
        pool_ticket_response_ended(&session->stages.items[0].ticket);
        count_service(session);
        pick_queue_end_lease(session);
        pick_stages_end(session);
    }
}

/* Clause: the response header of the gateways' conformance suite. */
static void send_served_header(struct pick_session *session, const struct protocol *protocol,
                               const struct ext_proc_request *message) {
    struct ext_proc_header header = {protocol->served_header, find_served(protocol, message)};
    struct ext_proc_response answer = {.kind = EXT_PROC_RESPONSE_HEADERS,
                                       .headers = {.set = &header, .n_set = 1}};
    struct error err;
    if (!header.value.ptr) {
        header.value = ext_proc_metadata_has(message, protocol->destination_namespace)
                           ? STR("fail: missing destination endpoint served metadata")
                           : STR("fail: missing envoy lb metadata");
    }
    if (pick_send_queue_push(&session->send_queue, &answer, NULL, &err) != ST_OK) {
        pick_session_abort(session, &err);
    }
}

/* A session's token. A response without an endpoint of the pool has none. */
static void send_session_token(struct pick_session *session) {
    const struct endpoint *endpoint = session->stages.items[0].ticket.endpoint;
    const struct pool_snapshot *snapshot = pool_reader_refresh(session->context.reader);
    struct str name = pool_request_needs(session->context.reader)->session_token;
    const struct pool_member *member =
        endpoint ? pool_snapshot_find(snapshot, &endpoint->address) : NULL;
    struct ext_proc_header header = {.key = name};
    struct ext_proc_response answer = {.kind = EXT_PROC_RESPONSE_HEADERS,
                                       .headers = {.set = &header, .n_set = 1}};
    struct error err;
    if (!member || !name.ptr) {
        pick_session_send_continue(session, EXT_PROC_RESPONSE_HEADERS);
        return;
    }
    header.value = session_token_print(member, session->arena);
    enum status st = header.value.ptr
                         ? pick_send_queue_push(&session->send_queue, &answer, NULL, &err)
                         : error_no_memory(&err, "a response");
    if (st != ST_OK) {
        pick_session_abort(session, &err);
    }
}

static void on_response_headers(struct pick_session *session,
                                const struct ext_proc_request *message) {
    bool again = session->response_half != PICK_HALF_EXPECTED;
    if (!begin_response_message(session, message, again)) {
        return;
    }
    const struct protocol *protocol = &pick_session_spec(session)->protocol;
    session->response_has_headers = true;
    if (protocol->conformance || protocol->send_served_header) {
        send_served_header(session, protocol, message);
    } else if (pool_request_needs(session->context.reader)->session_token.ptr &&
               pick_session_is_picked(session)) {
        send_session_token(session);
    } else {
        pick_session_send_continue(session, EXT_PROC_RESPONSE_HEADERS);
    }
    end_response_message(session, message->end_of_stream);
}

static void on_response_body(struct pick_session *session, const struct ext_proc_request *message) {
    if (!begin_response_message(session, message, false)) {
        return;
    }
    enum ext_proc_body_mode mode = session->config.response_body;
    bool ended = message->end_of_stream || message->end_without_message;
    if (message->body.len > 0) {
        pick_stages_body_started(session);
    }
    if (ended) {
        pick_session_report_usage(session);
    }
    if (pick_session_needs_echo(session, mode, message)) {
        pick_session_echo_body(session, message, mode, NULL);
    } else {
        pick_session_send_continue(session, EXT_PROC_RESPONSE_BODY);
    }
    end_response_message(session, ended);
}

static void on_response_trailers(struct pick_session *session,
                                 const struct ext_proc_request *message) {
    if (begin_response_message(session, message, false)) {
        pick_session_report_usage(session);
        pick_session_send_continue(session, EXT_PROC_RESPONSE_TRAILERS);
        end_response_message(session, true);
    }
}

/* ---- messages -------------------------------------------------------------------------------- */

struct pick_message_ref *pick_session_ref_message(struct pick_session *session) {
    if (!session->message_ref) {
        session->message_ref = pick_message_ref_new(&session->send_queue, session->message);
    }
    if (!session->message_ref) {
        struct error err;
        error_no_memory(&err, "a message of the proxy");
        pick_session_abort(session, &err);
    }
    return session->message_ref;
}

/* Clause: ext-proc, ProcessingRequest: messages of unknown kinds are ignored. */
static void dispatch_message(struct pick_session *session, const struct ext_proc_request *message) {
    switch (message->kind) {
    case EXT_PROC_NONE:
        break;
    case EXT_PROC_REQUEST_HEADERS:
        pick_session_on_headers(session, message);
        break;
    case EXT_PROC_REQUEST_BODY:
        pick_session_on_body(session, message);
        break;
    case EXT_PROC_REQUEST_TRAILERS:
        pick_session_on_trailers(session);
        break;
    case EXT_PROC_RESPONSE_HEADERS:
        on_response_headers(session, message);
        break;
    case EXT_PROC_RESPONSE_BODY:
        on_response_body(session, message);
        break;
    case EXT_PROC_RESPONSE_TRAILERS:
        on_response_trailers(session, message);
        break;
    }
}

/* protocol_config is in the first message, of whatever kind. */
static void set_config(struct pick_session *session, const struct ext_proc_request *message) {
    if (message->has_config && !session->configured) {
        session->config = message->config;
        session->configured = true;
    }
}

static void take_part(struct pick_session *session, const struct ext_proc_request *part) {
    if (part->observability_mode && session->state == PICK_HEADERS_EXPECTED) {
        pick_session_set_state(session, PICK_OBSERVED);
        metric_add(METRIC_PICK_OBSERVED_TOTAL, 1);
    }
    if (!part->observability_mode && session->state != PICK_OBSERVED) {
        set_config(session, part);
        dispatch_message(session, part);
    }
}

void pick_session_step(struct pick_session *session, struct str data) {
    struct ext_proc_request message;
    struct error err;
    if (ext_proc_request_decode(data, &message, &err) != ST_OK) {
        metric_add(METRIC_PICK_ILLEGAL_TOTAL, 1);
        pick_session_abort(session, &err);
        return;
    }
    take_part(session, &message);
}

static void begin_message(struct pick_session *session, const struct pick_message *message) {
    assert(!pick_session_has_more(session));
    session->message = message;
}

/* A reference that was taken may be kept. */
static void end_message(struct pick_session *session) {
    const struct pick_message *message = session->message;
    if (session->message_ref) {
        pick_message_unref(session->message_ref);
    } else if (message->release) {
        message->release(message->user);
    }
    session->message = NULL;
    session->message_ref = NULL;
}

void pick_session_on_message(struct pick_session *session, const struct pick_message *message) {
    begin_message(session, message);
    if (session->state != PICK_ENDED) {
        pick_session_step(session, message->data);
    }
    end_message(session);
}

void pick_session_on_part(struct pick_session *session, const struct ext_proc_request *part,
                          const struct pick_message *message) {
    begin_message(session, message);
    if (session->state != PICK_ENDED) {
        take_part(session, part);
    }
    end_message(session);
}

static bool is_scanning(const struct pick_session *session) {
    return session->body_scan.message_ref != NULL;
}

bool pick_session_has_more(const struct pick_session *session) {
    return is_scanning(session) || pick_queue_is_replaying(session);
}

/* The message was decoded before. */
static void scan_on(struct pick_session *session) {
    struct ext_proc_request message;
    struct error err;
    pick_session_set_message(session, session->body_scan.message_ref);
    session->body_scan.message_ref = NULL;
    if (ext_proc_request_decode(session->message->data, &message, &err) == ST_OK) {
        pick_session_scan_body(session, &message);
    }
    pick_session_clear_message(session);
    if (!is_scanning(session) && session->body_scan.timed_out) {
        session->body_scan.timed_out = false;
        if (pick_session_is_response_pending(session)) { /* not if the request was queued */
            pick_session_on_timeout(session);
        }
    }
}

/* A replay of buffered messages waits for the scan of one of them. */
void pick_session_go_on(struct pick_session *session) {
    if (is_scanning(session)) {
        scan_on(session);
    }
    if (!is_scanning(session) && pick_queue_is_replaying(session)) {
        pick_queue_replay(session);
    }
}

void pick_session_half_close(struct pick_session *session) {
    pick_session_abort(session, NULL);
}

/* The first message is the request's headers, and before the request's body has ended another is a
 * piece of it; later it could be one of the response, which the client is already receiving. Not so
 * while the request is queued: no endpoint has received it. */
void pick_session_on_message_rejected(struct pick_session *session, const struct error *why) {
    bool awaited = session->state == PICK_HEADERS_EXPECTED || session->state == PICK_HEADERS_HELD ||
                   session->state == PICK_BODY_PENDING || session->state == PICK_UNCHECKED ||
                   session->state == PICK_CHECKING;
    bool is_whole = session->request_half == PICK_HALF_ENDED && !is_scanning(session);
    bool refuses = session->state == PICK_QUEUED || (awaited && !is_whole);
    if (refuses && session->response_half == PICK_HALF_EXPECTED) {
        pick_session_refuse(session, why);
    } else {
        pick_session_abort(session, why);
    }
}

/* ---- time ------------------------------------------------------------------------------------ */

bool pick_session_is_response_pending(const struct pick_session *session) {
    return session->state == PICK_HEADERS_HELD;
}

bool pick_session_scans_body(const struct pick_session *session) {
    return session->state == PICK_HEADERS_HELD ||
           (session->state == PICK_PICKED && session->scan); /* for another name */
}

uint64_t pick_session_deadline_ns(const struct pick_session *session) {
    if (session->state == PICK_QUEUED) {
        const struct pick_queue_entry *entry = session->queue_entry;
        uint64_t until_ns = entry->waiter.until_ns, hold_ns = entry->hold_until_ns;
        if (!entry->is_held) {
            return until_ns;
        }
        until_ns = entry->waiter.notified ? until_ns : 0; /* it keeps a slot that it waited for */
        return until_ns == 0 || (hold_ns > 0 && hold_ns < until_ns) ? hold_ns : until_ns;
    }
    return pick_session_is_response_pending(session) && !session->body_scan.timed_out
               ? session->answer_until_ns
               : 0;
}

/* Returns: ST_WAIT_EXPIRED; ST_NO_ENDPOINT when no endpoint is ready any more. */
static enum status queue_timeout_error(struct pick_session *session,
                                       const struct pool_wait_expiry *expiry, struct error *err) {
    unsigned long long ms = expiry->waited_ns / 1000000;
    struct pool_stats pool_counts;
    pool_get_stats(session->context.pool, &pool_counts);
    if (pool_counts.n_ready + pool_counts.n_unchecked == 0) {
        return pool_no_endpoint_error(
            &(struct pool_no_endpoint){.n_endpoints = pool_counts.n_endpoints,
                                       .waited_ms = ms,
                                       .wait_limit = expiry->limit == POOL_WAIT_NO_ENDPOINT
                                                         ? "no_endpoint_wait"
                                                         : "max_wait"},
            err);
    }
    return error_set(
        err, ST_WAIT_EXPIRED,
        "queue deadline exceeded: no endpoint had capacity for %llu ms (flow_control.max_wait)",
        ms);
}

static void expire_wait(struct pick_session *session) {
    struct pool_wait_expiry expiry;
    struct error err;
    if (!pool_waiter_has_expired(session->context.pool, &session->queue_entry->waiter, &expiry)) {
        return;
    }
    (void)queue_timeout_error(session, &expiry, &err);
    pick_queue_stop_wait(session, FLOW_EXPIRED);
    pick_session_refuse(session, &err);
}

static bool is_hold_over(const struct pick_queue_entry *entry) {
    return entry->is_held && entry->hold_until_ns > 0 && entry->hold_until_ns <= clock_now_ns();
}

void pick_session_on_timeout(struct pick_session *session) {
    struct error err;
    if (is_scanning(session)) {
        session->body_scan.timed_out = true; /* the rest may name the model, or another one */
    } else if (session->state == PICK_QUEUED && is_hold_over(session->queue_entry)) {
        session->queue_entry->hold_until_ns = 0;
        burst_seal(session->context.pool, &session->queue_entry->burst);
    } else if (session->state == PICK_QUEUED) {
        expire_wait(session);
    } else if (pick_session_is_response_pending(session) && pick_session_can_pick(session)) {
        pick_session_pick_and_flush(session);
    } else if (pick_session_is_response_pending(session)) {
        error_set(&err, ST_REQUEST_TIMEOUT,
                  "timeout waiting for the model's name: after %llu ms the first %llu bytes of the "
                  "body do not contain it (--answer-timeout)",
                  (unsigned long long)(session->context.limits.answer_timeout_ns / 1000000),
                  (unsigned long long)session->body_buffer.n_bytes);
        pick_session_refuse(session, &err);
    }
}

/* ---- new, free ------------------------------------------------------------------------------- */

struct pick_session *pick_session_new(struct arena *arena, const struct pick_context *context,
                                      const struct pick_callbacks *out) {
    struct pick_session *session = arena_alloc(arena, sizeof(*session));
    if (session) {
        *session = (struct pick_session){.arena = arena, .context = *context};
        session->config.request_body = session->config.response_body = EXT_PROC_BODY_STREAMED;
        pick_send_queue_init(&session->send_queue, arena, out);
        pick_body_buffer_init(&session->body_buffer, context->limits.max_body_size);
        if (!pick_stages_init(session)) {
            return NULL;
        }
        init_pool(session);
        pick_count_stream_start();
    }
    return session;
}

void pick_session_free(struct pick_session *session) {
    if (session) {
        if (session->state != PICK_ENDED) {
            end_unanswered(session);
        }
        pick_count_stream_end();
        pick_send_queue_fini(&session->send_queue);
        pool_reader_unref(session->context.reader);
    }
}

/* ---- describe -------------------------------------------------------------------------------- */

static const char *state_text(const struct pick_session *session) {
    switch (session->state) {
    case PICK_HEADERS_EXPECTED:
        return "waiting for the headers";
    case PICK_OBSERVED:
        return "observed";
    case PICK_HEADERS_HELD:
    case PICK_BODY_PENDING:
        return is_scanning(session) ? "searching the body for the model's name"
                                    : "waiting for the model's name in the body";
    case PICK_QUEUED:
        return "queued until an endpoint has capacity";
    case PICK_UNCHECKED:
    case PICK_CHECKING:
    case PICK_PICKED:
        return session->response_half == PICK_HALF_ENDED     ? "answered"
               : session->response_half == PICK_HALF_STARTED ? "in the response"
                                                             : "in the request";
    case PICK_LOCAL_REPLY:
        return "replied to by the proxy";
    case PICK_ENDED:
        break;
    }
    return "ended";
}

void pick_session_describe(const struct pick_session *session, struct buf *out) {
    const struct endpoint *endpoint = session->stages.items[0].ticket.endpoint;
    buf_add_str(out, session->request_line);
    if (endpoint) {
        buf_printf(out, " → %.*s", STR_ARG(endpoint_text(endpoint)));
    }
    buf_printf(out, "%s%s", session->request_line.len > 0 ? ", " : "", state_text(session));
}
