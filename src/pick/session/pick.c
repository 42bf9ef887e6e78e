/* The pick of a session and the responses that carry it: the endpoint in header and metadata, the
 * new name of the model, or the refusal. The reader is not refreshed between the pick and the
 * response, so views of the pool's configuration stay valid. */
#include "pick/session/state.h"

#include "codec/protobuf/pb.h"
#include "core/base/hash.h"
#include "core/base/json_writer.h"
#include "core/base/log.h"
#include "core/base/num.h"

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

static struct pool_request make_pool_request(struct pick_session *session, struct str model,
                                             size_t n_fallbacks) {
    const struct pick_request *request = pick_session_request(session);
    bool wants_kind = pool_wants_clients(session->context.pool);
    return (struct pool_request){.model = model,
                                 .path_hash = wants_kind ? hash_path(request) : 0,
                                 .objective = request->objective,
                                 .session = request->session,
                                 .prompt = pick_session_get_prompt(session),
                                 .headers = {.find = find_header, .of = request},
                                 .n_tokens = pick_session_estimate_tokens(session),
                                 .subset = request->has_hint ? &request->hint : NULL,
                                 .selection = request->has_selection ? &request->selection : NULL,
                                 .n_fallbacks = n_fallbacks,
                                 .fairness_id = request->fairness_id};
}

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
    struct str sent = pick_session_request(session)->content_length;
    uint64_t length;
    if (pending->edits.growth == 0 || !num_parse_u64(sent, &length)) {
        return ST_OK;
    }
    length += (uint64_t)pending->edits.growth;
    pending->mutation.content_length =
        arena_printf(session->arena, "%llu", (unsigned long long)length);
    return pending->mutation.content_length.ptr ? ST_OK
                                                : error_no_memory(err, "the model's new name");
}

static enum status rename_body(struct pick_session *session, struct str name,
                               struct pick_pending_response *pending, struct error *err) {
    if (str_eq(name, pick_scan_name(session->scan))) {
        return ST_OK;
    }
    metric_add(METRIC_PICK_REWRITTEN_TOTAL, 1);
    enum status st = pick_scan_edit(session->scan, session->arena, name, &pending->edits, err);
    return st == ST_OK ? update_content_length(session, pending, err) : st;
}

/* `name`: ptr NULL: unchanged. */
static enum status rename_model(struct pick_session *session, struct str name,
                                struct pick_pending_response *pending, struct error *err) {
    if (!name.ptr) {
        return ST_OK;
    }
    if (session->model_path.kind == MODEL_LOCATION_PATH) {
        return rename_path(session, name, pending, err);
    }
    if (session->scan && !session->mode_overridden) {
        return rename_body(session, name, pending, err);
    }
    if (session->scan) { /* the body has not been received yet */
        session->target = arena_dup(session->arena, name);
        return session->target.ptr ? ST_OK : error_no_memory(err, "the model's new name");
    }
    return ST_OK;
}

/* The model that the endpoint is asked for: the configuration's target, or else the rewrite
 * header. */
static struct str target_model(const struct pick_session *session, const struct pool_pick *pick) {
    return pick->target.ptr ? pick->target : pick_session_request(session)->rewrite;
}

/* ---- the response with the pick -------------------------------------------------------------- */

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

/* Remembers the fallback endpoints that print_destination printed: a response may come from one. */
static enum status remember_fallbacks(struct pick_session *session, const struct pool_pick *pick,
                                      enum protocol_fallback fallback, struct error *err) {
    size_t n = fallback == FALLBACK_LIST  ? pick->n_endpoints - 1
               : fallback == FALLBACK_KEY ? pick->n_endpoints > 1
                                          : 0;
    session->n_fallbacks = 0;
    if (n > 0) {
        session->fallbacks = arena_alloc(session->arena, n * sizeof(*session->fallbacks));
        if (!session->fallbacks) {
            return error_no_memory(err, "the fallback endpoint");
        }
    }
    for (; session->n_fallbacks < n; session->n_fallbacks++) {
        session->fallbacks[session->n_fallbacks] =
            pick->endpoints[1 + session->n_fallbacks]->address;
    }
    return ST_OK;
}

/* Clause: "Destination Endpoint", 2, and "Destination endpoint fallback". Returns: the number of
 * entries. */
static size_t metadata_entries(const struct protocol *protocol,
                               const struct pick_destination *destination,
                               struct ext_proc_entry out[2]) {
    size_t n = 0;
    out[n++] =
        (struct ext_proc_entry){.key = protocol->destination_key, .text = destination->endpoint};
    if (destination->fallback.ptr) {
        out[n++] =
            (struct ext_proc_entry){.key = protocol->fallback_key, .text = destination->fallback};
    }
    return n;
}

static enum status send_mutation(struct pick_send_queue *send_queue,
                                 const struct protocol *protocol,
                                 const struct pick_mutation *mutation, struct error *err) {
    struct ext_proc_header set[3];
    struct ext_proc_entry entries[2];
    struct ext_proc_namespace space = {.name = protocol->destination_namespace, .entries = entries};
    struct ext_proc_response answer = {.kind = mutation->kind,
                                       .headers = {.set = set},
                                       .clear_route_cache =
                                           mutation->destination || mutation->path.ptr,
                                       .body = mutation->body,
                                       .n_body = mutation->n_body,
                                       .mode_override = mutation->modes};
    size_t n = 0;
    if (mutation->destination) { /* Clause: "Destination Endpoint", 1 */
        set[n++] =
            (struct ext_proc_header){protocol->destination_header, mutation->destination->endpoint};
        space.n_entries = metadata_entries(protocol, mutation->destination, entries);
        answer.metadata = &space;
        answer.n_metadata = 1;
    }
    if (mutation->path.ptr) {
        set[n++] = (struct ext_proc_header){STR(":path"), mutation->path};
    }
    if (mutation->content_length.ptr) {
        set[n++] = (struct ext_proc_header){STR("content-length"), mutation->content_length};
    }
    answer.headers.n_set = n;
    answer.body_mutation = mutation->body ? EXT_PROC_BODY_REPLACED : EXT_PROC_BODY_UNCHANGED;
    return pick_send_queue_push(send_queue, &answer, mutation->ref, err);
}

/* ---- picking --------------------------------------------------------------------------------- */

static bool is_headers_held(const struct pick_session *session) {
    return session->phase == PICK_HEADERS_HELD ||
           (session->phase == PICK_QUEUED &&
            session->queue_entry->reply_point == PICK_AT_HEADERS_HELD);
}

bool pick_session_pick_endpoint(struct pick_session *session, struct str model,
                                struct pick_pending_response *pending) {
    const struct pool_spec *spec = pick_session_spec(session);
    const struct protocol *protocol = &spec->protocol;
    enum protocol_fallback fallback = protocol->fallback;
    struct pool_request requested =
        make_pool_request(session, model, fallback == FALLBACK_NONE ? 0 : protocol->n_fallbacks);
    struct pool_pick pick;
    struct pool_trace trace = {.n = 0};
    struct error err;
    bool at_body = pending->mutation.kind == EXT_PROC_REQUEST_BODY || is_headers_held(session);
    session->body_model = model;
    requested.trace = log_enabled(LOG_DEBUG) ? &trace : NULL;
    enum status st = ST_OK;
    /* If flow control is enabled between this test and the pick, this request does not wait. */
    if (session->queue_entry || (session->context.wakeup && spec->flow_control.on)) {
        st = pick_queue_prepare(session, &requested, &err);
    }
    if (st == ST_OK) {
        st = pool_pick(session->context.reader, &requested, &pick, &err);
    }
    if (st == ST_OK && !pick.ticket.endpoint) {
        pick_queue_start_wait(session);
        return false;
    }
    if (st == ST_OK) {
        session->ticket = pick.ticket;
        if (pool_wants_clients(session->context.pool)) {
            session->client = hash_client(pick_session_request(session));
        }
        st = print_destination(session->arena, &pick, fallback, &pending->destination, &err);
    }
    if (st == ST_OK) {
        st = remember_fallbacks(session, &pick, fallback, &err);
    }
    if (st == ST_OK) {
        st = rename_model(session, target_model(session, &pick), pending, &err);
    }
    if (st != ST_OK) {
        pick_session_refuse(session, &err);
        return false;
    }
    pending->mutation.destination = &pending->destination;
    pick_session_report(session, &(struct pick_outcome){.model = model,
                                                        .target = target_model(session, &pick),
                                                        .pick = &pick,
                                                        .trace = requested.trace,
                                                        .at_body = at_body});
    pick_count_pick(at_body, pick.picked_by);
    if (model.ptr || !session->mode_overridden) {
        pick_count_model(session->model_source);
    }
    return true;
}

bool pick_session_check_model(struct pick_session *session, struct pick_pending_response *pending) {
    struct pool_pick pick = {.target = session->target};
    struct error err;
    enum status st = ST_OK;
    session->mode_overridden = false;
    session->body_model = pick_scan_name(session->scan);
    if (!session->requested.ptr) {
        struct pool_request requested =
            make_pool_request(session, pick_scan_name(session->scan), 0);
        st = pool_check_picked(session->context.reader, &requested, &session->ticket, &pick, &err);
        pick_count_model(PICK_MODEL_FROM_BODY);
    }
    if (st == ST_OK) {
        st = rename_model(session, target_model(session, &pick), pending, &err);
    }
    if (st != ST_OK) {
        pick_session_refuse(session, &err);
    }
    return st == ST_OK;
}

bool pick_session_send_response(struct pick_session *session,
                                const struct pick_pending_response *pending) {
    struct error err;
    enum status st = send_mutation(&session->send_queue, &pick_session_spec(session)->protocol,
                                   &pending->mutation, &err);
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
    if (pick_request_is_grpc(request)) {
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
        out[n++] = (struct ext_proc_header){STR("content-type"), STR("application/json")};
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
