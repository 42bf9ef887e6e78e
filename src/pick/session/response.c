/* The responses that carry a pick: the endpoints in headers and metadata, the new name of the
 * model, or the refusal. The reader is not refreshed between the pick and the response, so views of
 * the pool's configuration stay valid. */
#include "pick/session/state.h"

#include "codec/protobuf/pb.h"
#include "core/base/json_writer.h"
#include "core/base/log.h"
#include "core/base/num.h"

/* ---- the model's new name -------------------------------------------------------------------- */

enum { F_MODEL_NAME = 1, LENGTH_BYTES = 4 };

static void add_edit(struct pick_edits *edits, uint64_t at, uint64_t n_bytes, struct str with) {
    edits->items[edits->n++] = (struct pick_edit){at, n_bytes, with};
    edits->growth += (int64_t)with.len - (int64_t)n_bytes;
}

/* gRPC, "Length-Prefixed-Message": a big-endian length of four bytes. */
static enum status edit_length(const struct model_scan_grpc *scan, struct buf *length,
                               size_t n_field, struct pick_edits *out, struct error *err) {
    uint64_t n_bytes = scan->message_bytes - scan->field_bytes + n_field;
    if (n_bytes > UINT32_MAX) {
        return error_set(err, ST_BODY_TOO_LARGE,
                         "the message exceeds 2^32 - 1 bytes with the new model name");
    }
    for (int shift = 24; shift >= 0; shift -= 8) {
        buf_add_char(length, (char)(unsigned char)(n_bytes >> shift));
    }
    if (!length->failed) {
        add_edit(out, scan->message_at - LENGTH_BYTES, LENGTH_BYTES, buf_str(length));
    }
    return ST_OK;
}

static enum status edit_grpc(const struct model_scan_grpc *scan, struct arena *arena,
                             struct str model, struct pick_edits *out, struct error *err) {
    struct buf field, length;
    enum status st = ST_OK;
    buf_init(&field, arena, 0);
    buf_init(&length, arena, 0);
    pb_add_bytes(&field, F_MODEL_NAME, model);
    if (!field.failed && scan->message_bytes != UINT64_MAX) {
        st = edit_length(scan, &length, field.len, out, err);
    }
    if (st == ST_OK && (field.failed || length.failed)) {
        return error_no_memory(err, "the model's name");
    }
    if (st == ST_OK) {
        add_edit(out, scan->field_at, scan->field_bytes, buf_str(&field));
    }
    return st;
}

enum status pick_scan_edit(const struct pick_scan *scan, struct arena *arena, struct str model,
                           struct pick_edits *out, struct error *err) {
    struct buf value;
    *out = (struct pick_edits){.n = 0};
    if (scan->is_grpc) {
        return edit_grpc(&scan->of.grpc, arena, model, out, err);
    }
    buf_init(&value, arena, model.len + 2);
    json_string_print(&value, model);
    if (value.failed) {
        return error_no_memory(err, "the model's name");
    }
    add_edit(out, scan->of.json.value_at, scan->of.json.value_bytes, buf_str(&value));
    return ST_OK;
}

static enum status rename_path(struct pick_session *session, struct str name,
                               struct pick_pending_response *pending, struct error *err) {
    struct str old = pick_session_request(session)->path;
    struct buf path;
    if (str_eq(name, session->model_path.model)) {
        return ST_OK;
    }
    buf_init(&path, session->arena, old.len + name.len);
    model_location_print_path(&path, &session->model_path, old, name);
    pending->mutation.path = buf_str(&path);
    metric_add(METRIC_PICK_REWRITTEN_TOTAL, 1);
    return path.failed ? error_no_memory(err, "the model's new name") : ST_OK;
}

/* Corrects the client's content-length; none is added where the client sent none. */
static enum status update_content_length(struct pick_session *session,
                                         struct pick_pending_response *pending, struct error *err) {
    const struct pick_request *request = pick_session_request(session);
    if (pending->edits.growth == 0 || !request->has_length) {
        return ST_OK;
    }
    uint64_t length = request->n_body_bytes + (uint64_t)pending->edits.growth;
    pending->mutation.content_length =
        arena_printf(session->arena, "%llu", (unsigned long long)length);
    return pending->mutation.content_length.ptr ? ST_OK
                                                : error_no_memory(err, "the model's new name");
}

static enum status rename_body(struct pick_session *session, struct str name,
                               struct pick_pending_response *pending, struct error *err) {
    bool is_absent = !session->scan->is_grpc && session->scan->of.json.result != MODEL_SCAN_FOUND;
    if (is_absent || str_eq(name, pick_scan_name(session->scan))) {
        return ST_OK;
    }
    metric_add(METRIC_PICK_REWRITTEN_TOTAL, 1);
    enum status st = pick_scan_edit(session->scan, session->arena, name, &pending->edits, err);
    return st == ST_OK ? update_content_length(session, pending, err) : st;
}

static enum status rename_model(struct pick_session *session, struct str name,
                                struct pick_pending_response *pending, struct error *err) {
    if (session->model_path.kind == MODEL_LOCATION_PATH) {
        return rename_path(session, name, pending, err);
    }
    bool at_headers = pick_session_reply_state(session) == PICK_HEADERS_EXPECTED;
    if (session->scan && !at_headers) {
        return rename_body(session, name, pending, err);
    }
    if (session->scan) { /* the body has not been received yet */
        session->target = arena_dup(session->arena, name);
        return session->target.ptr ? ST_OK : error_no_memory(err, "the model's new name");
    }
    return ST_OK;
}

/* The model that the endpoint is asked for: the configuration's target (ptr NULL: none), or else
 * the rewrite header. */
static struct str target_model(const struct pick_session *session, struct str target) {
    return target.ptr ? target : pick_session_request(session)->rewrite;
}

/* ---- the response with the pick -------------------------------------------------------------- */

enum { MOST_ENTRIES = 3 };

/* Returns: `numbers` NULL: out of memory. */
static struct ext_proc_entry scores_entry(struct arena *arena, const struct pool_scores *scores) {
    struct ext_proc_number *numbers = arena_calloc(arena, scores->n, sizeof(*numbers));
    for (size_t i = 0; numbers && i < scores->n; i++) {
        numbers[i] =
            (struct ext_proc_number){scores->items[i].endpoint, (double)scores->items[i].score};
    }
    return (struct ext_proc_entry){.key = STR("x-gateway-destination-endpoint-scores"),
                                   .numbers = numbers,
                                   .n_list = scores->n};
}

/* Clause: "Destination Endpoint", 2, and "Destination endpoint fallback"; for the scores that of
 * the upstream project's picker. Returns: the number of entries. */
static size_t metadata_entries(const struct protocol *protocol,
                               const struct pick_destination *destination,
                               struct ext_proc_entry out[MOST_ENTRIES]) {
    size_t n = 0;
    out[n++] =
        (struct ext_proc_entry){.key = protocol->destination_key, .text = destination->endpoint};
    if (destination->fallback.ptr) {
        out[n++] =
            (struct ext_proc_entry){.key = protocol->fallback_key, .text = destination->fallback};
    }
    return n;
}

/* The headers by which the servers of a request are told of each other. A client's own would let it
 * choose with which server another one speaks. */
static const struct str SERVER_HEADERS[] = {
    STR("x-prefiller-host-port"), STR("x-encoder-hosts-ports"), STR("x-data-parallel-host-port"),
    STR("x-kv-cache-source-host-port")};
enum { N_SERVER_HEADERS = sizeof(SERVER_HEADERS) / sizeof(SERVER_HEADERS[0]) };

/* Returns: the number of headers. */
static size_t stage_headers(const struct protocol *protocol, const struct pick_stages *stages,
                            struct ext_proc_header out[PICK_MAX_STAGES + 2]) {
    size_t n = 0;
    for (size_t i = 0; i < stages->n; i++) {
        const struct pick_stage *stage = &stages->items[i];
        if (stage->destination.endpoint.ptr) {
            out[n++] = (struct ext_proc_header){i == 0 ? protocol->destination_header
                                                       : stage->plan->header,
                                                stage->destination.endpoint};
        }
    }
    if (stages->items[0].destination.rank.ptr) {
        out[n++] = (struct ext_proc_header){STR("x-data-parallel-host-port"),
                                            stages->items[0].destination.rank};
    }
    if (stages->source.ptr) {
        out[n++] = (struct ext_proc_header){STR("x-kv-cache-source-host-port"), stages->source};
    }
    return n;
}

/* Those of SERVER_HEADERS that are not set. Returns: their number. */
static size_t forged_headers(const struct ext_proc_header *set, size_t n_set,
                             struct str out[N_SERVER_HEADERS]) {
    size_t n = 0;
    for (size_t i = 0; i < N_SERVER_HEADERS; i++) {
        bool is_set = false;
        for (size_t k = 0; k < n_set; k++) {
            is_set = is_set || str_eq(set[k].key, SERVER_HEADERS[i]);
        }
        if (!is_set) {
            out[n++] = SERVER_HEADERS[i];
        }
    }
    return n;
}

static enum status send_mutation(struct pick_session *session, const struct pick_mutation *mutation,
                                 struct error *err) {
    const struct protocol *protocol = &pick_session_spec(session)->protocol;
    struct ext_proc_header set[PICK_MAX_STAGES + 5];
    struct str removed[N_SERVER_HEADERS];
    struct ext_proc_entry entries[MOST_ENTRIES];
    struct ext_proc_namespace space = {.name = protocol->destination_namespace, .entries = entries};
    struct ext_proc_response answer = {.kind = mutation->kind,
                                       .headers = {.set = set},
                                       .clear_route_cache = mutation->stages || mutation->path.ptr,
                                       .body = mutation->body,
                                       .n_body = mutation->n_body,
                                       .mode_override = mutation->modes};
    size_t n = 0;
    if (mutation->stages) { /* Clause: "Destination Endpoint", 1 */
        n = stage_headers(protocol, mutation->stages, set);
        if (mutation->stages->removes_headers) {
            answer.headers.remove = removed;
            answer.headers.n_remove = forged_headers(set, n, removed);
        }
        space.n_entries =
            metadata_entries(protocol, &mutation->stages->items[0].destination, entries);
        const struct pool_scores *scores = mutation->stages->scores;
        if (scores && scores->n > 0) {
            entries[space.n_entries] = scores_entry(session->arena, scores);
            if (!entries[space.n_entries++].numbers) {
                return error_no_memory(err, "the scores of endpoints");
            }
        }
        answer.metadata = &space;
        answer.n_metadata = 1;
        if (session->trace.traceparent.ptr) {
            set[n++] = (struct ext_proc_header){STR("traceparent"), session->trace.traceparent};
        }
    }
    if (mutation->path.ptr) {
        set[n++] = (struct ext_proc_header){STR(":path"), mutation->path};
    }
    if (mutation->content_length.ptr) {
        set[n++] = (struct ext_proc_header){STR("content-length"), mutation->content_length};
    }
    answer.headers.n_set = n;
    answer.body_mutation = mutation->body ? EXT_PROC_BODY_REPLACED : EXT_PROC_BODY_UNCHANGED;
    return pick_send_queue_push_edited(&session->send_queue, &answer, mutation->ref,
                                       mutation->edits, err);
}

/* ---- picking --------------------------------------------------------------------------------- */

bool pick_session_pick_endpoint(struct pick_session *session, struct str model,
                                struct pick_pending_response *pending) {
    bool at_headers = pick_session_reply_state(session) == PICK_HEADERS_EXPECTED;
    struct pool_pick pick;
    struct pool_trace trace;
    trace.n = 0; /* the rest is set where it counts, as this runs for each pick */
    struct error err;
    session->body_model = model;
    enum status st =
        pick_stages_run(session, model, &pick, log_enabled(LOG_DEBUG) ? &trace : NULL, &err);
    if (st == ST_OK && !pick_stages_are_picked(&session->stages)) {
        return false;
    }
    struct str target = st == ST_OK ? target_model(session, pick.target) : str_make(NULL, 0);
    if (st == ST_OK && target.ptr) {
        st = rename_model(session, target, pending, &err);
    }
    if (st != ST_OK) {
        pick_session_refuse(session, &err);
        return false;
    }
    pending->mutation.stages = &session->stages;
    struct str others = log_enabled(LOG_DEBUG) ? pick_stages_print(session) : str_make(NULL, 0);
    pick_session_report(session, model,
                        &(struct pick_outcome){.target = target,
                                               .pick = &pick,
                                               .stages = others,
                                               .decision = pick_stages_decision(session),
                                               .trace = trace.n > 0 ? &trace : NULL,
                                               .at_body = !at_headers});
    pick_count_pick(!at_headers, pick.picked_by);
    if (model.ptr || !at_headers || !session->scan) {
        pick_count_model(session->model_source);
    }
    pick_queue_hold_lease(session, pick.priority);
    return true;
}

bool pick_session_check_model(struct pick_session *session, struct pick_pending_response *pending) {
    const struct pick_stage *destination = &session->stages.items[0];
    struct pool_pick pick = {.target = session->target};
    struct error err;
    enum status st = ST_OK;
    pick_session_set_state(session, PICK_PICKED);
    session->body_model = pick_scan_name(session->scan);
    if (!session->requested.ptr) {
        struct pool_request requested =
            pick_stage_request(session, destination, pick_scan_name(session->scan));
        st = pool_check_picked(session->context.reader, &requested, &destination->ticket, &pick,
                               &err);
        pick_count_model(PICK_MODEL_FROM_BODY);
    }
    struct str target = target_model(session, pick.target);
    if (st == ST_OK && target.ptr) {
        st = rename_model(session, target, pending, &err);
    }
    if (st != ST_OK) {
        pick_session_refuse(session, &err);
    }
    return st == ST_OK;
}

bool pick_session_send_response(struct pick_session *session,
                                const struct pick_pending_response *pending) {
    struct error err;
    struct pick_mutation mutation = pending->mutation;
    if (session->context.proxy_keeps_body && pending->edits.n > 0) {
        mutation.edits = &pending->edits;
    }
    enum status st = send_mutation(session, &mutation, &err);
    if (st != ST_OK) {
        pick_session_abort(session, &err);
    }
    return st == ST_OK;
}

/* ---- refusals -------------------------------------------------------------------------------- */

/* Three kinds of clients read a refusal. The libraries for OpenAI's and Anthropic's APIs expect an
 * object "error", KServe's a string; gRPC clients get the text as grpc-message. */
/* Clause: the header in which neighbouring gateways give the reason for a dropped request. */
static struct str drop_reason(enum status status) {
    switch ((int)status) {
    case ST_NO_POOL:
        return STR("rejected-no-pool");
    case ST_NO_ENDPOINT:
        return STR("rejected-no-endpoints");
    case ST_SATURATED:
        return STR("rejected-saturated");
    case ST_EVICTED:
        return STR("evicted");
    case ST_WAIT_EXPIRED:
        return STR("rejected-ttl-expired");
    case ST_UNKNOWN_MODEL:
        return STR("rejected-unknown-model");
    case ST_REQUEST_TIMEOUT:
        return STR("rejected-timed-out");
    default:
        return status_http(status) < 500 ? STR("rejected-bad-request") : STR("rejected-failed");
    }
}

/* The type in both APIs. */
static const char *error_type(enum status status) {
    int http = status_http(status);
    if (http >= 500) {
        return "api_error";
    }
    return http == 404   ? "not_found_error"
           : http == 413 ? "request_too_large"
           : http == 429 ? "rate_limit_error"
                         : "invalid_request_error";
}

/* Whether the path belongs to OpenAI's or Anthropic's API, whatever the pool's paths are. */
static bool is_openai_path(struct arena *arena, const struct pick_request *request) {
    struct model_location where;
    enum status st =
        model_location_parse(arena, NULL, request->method, request->path, &where, NULL);
    return st == ST_OK && where.kind == MODEL_LOCATION_JSON_BODY;
}

static struct str print_error_body(struct arena *arena, const struct pick_request *request,
                                   const struct error *why) {
    struct buf out;
    struct json_writer json = {.out = &out};
    if (pick_request_is_grpc(request) || why->status == ST_EVICTED) {
        return str_of(why->text);
    }
    buf_init(&out, arena, 0);
    json_write_open(&json, JSON_ELEMENT, '{');
    if (is_openai_path(arena, request)) {
        json_write_string(&json, "type", STR("error"));
        json_write_open(&json, "error", '{');
        json_write_string(&json, "message", str_of(why->text));
        json_write_string(&json, "type", str_of(error_type(why->status)));
        json_write_string(&json, "code", str_of(status_name(why->status)));
        json_write_close(&json, '}');
    } else {
        json_write_string(&json, "error", str_of(why->text));
    }
    json_write_close(&json, '}');
    return buf_str(&out);
}

static size_t list_headers(struct arena *arena, const struct pool_spec *spec, bool is_grpc,
                           enum status status, struct ext_proc_header out[4]) {
    size_t n = 0;
    if (!is_grpc) {
        out[n++] = (struct ext_proc_header){STR("content-type"), status == ST_EVICTED
                                                                     ? STR("text/plain")
                                                                     : STR("application/json")};
    }
    out[n++] = (struct ext_proc_header){spec->protocol.reason_header, drop_reason(status)};
    if (status == ST_SATURATED || status == ST_WAIT_EXPIRED || status == ST_OVERLOADED) {
        struct str seconds = arena_printf(arena, "%llu", (unsigned long long)spec->retry_after_s);
        out[n++] = (struct ext_proc_header){STR("retry-after"), seconds};
    }
    if (status == ST_UNKNOWN_ENCODING && !is_grpc) {
        out[n++] = (struct ext_proc_header){STR("accept-encoding"), STR("identity")};
    }
    return n;
}

enum status pick_send_refusal(struct pick_send_queue *send_queue, struct arena *arena,
                              const struct pool_spec *spec, const struct pick_request *request,
                              const struct error *why, struct error *err) {
    bool is_grpc = pick_request_is_grpc(request);
    struct ext_proc_header headers[4];
    size_t n = list_headers(arena, spec, is_grpc, why->status, headers);
    struct ext_proc_immediate answer = {
        .http_status = (uint32_t)status_http(why->status),
        .grpc_status = is_grpc ? (uint32_t)status_grpc(why->status) : 0,
        .headers = {.set = headers, .n_set = n},
        .body = print_error_body(arena, request, why),
        .details = arena_printf(arena, "sluice{%s}", status_name(why->status)),
    };
    pick_count_refusal(why->status);
    return pick_send_queue_push_immediate(send_queue, &answer, err);
}
