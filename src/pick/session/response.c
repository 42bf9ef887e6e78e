/* The answer: who served it, what it says of the endpoint, and its end. */
#include "pick/session/state.h"

static const struct str ATTRIBUTES = {"envoy.filters.http.ext_proc", 27};
static const struct str DETAILS = {"response.code_details", 21};
static const struct str UPSTREAM = {"upstream.address", 16};

/* ---- who served ------------------------------------------------------------------------------ */

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

/* From now on the request counts for whom the proxy sent it to, if it says so. */
static void move_ticket_to_served(struct pick_session *session, struct str served) {
    struct endpoint_address address;
    if (session->ticket.endpoint && endpoint_address_parse(str_trim(served), &address) &&
        pool_ticket_move(session->context.reader, &session->ticket, &address)) {
        metric_add(METRIC_PICK_MOVED_TOTAL, 1);
        pick_session_record_moved_prompt(session);
    }
}

/* ---- what became of the connection ----------------------------------------------------------- */

static bool contains(struct str text, struct str part) {
    for (size_t at = 0; at + part.len <= text.len; at++) {
        if (memcmp(text.ptr + at, part.ptr, part.len) == 0) {
            return true;
        }
    }
    return false;
}

/* Observed: of an upstream that can't be connected to, Envoy's details are
 * "upstream_reset_before_response_started{remote_connection_failure|…}". */
static bool was_refused(struct str details) {
    return str_starts_with(details, STR("upstream_reset_before_response_started{")) &&
           contains(details, STR("connection_failure"));
}

/* The router's own header is there where an upstream has answered, and not in local replies. */
static bool was_answered(struct str details, const struct ext_proc_request *message) {
    return details.ptr
               ? str_is(details, "via_upstream")
               : ext_proc_header_find(&message->fields, STR("x-envoy-upstream-service-time")).ptr !=
                     NULL;
}

/* The status is 200 to 299. One that fails fast is not fast. */
static bool is_success(const struct ext_proc_request *message) {
    struct str status = ext_proc_header_find(&message->fields, STR(":status"));
    return status.len == 3 && status.ptr[0] == '2';
}

/* What the first message of the answer says of the endpoint. */
static void record_endpoint_result(struct pick_session *session,
                                   const struct ext_proc_request *message) {
    const struct protocol *protocol = &pick_session_spec(session)->protocol;
    struct str served = find_served(protocol, message);
    struct str details = find_attribute(message, DETAILS);
    move_ticket_to_served(session, served.ptr ? served : find_attribute(message, UPSTREAM));
    struct endpoint *endpoint = session->ticket.endpoint;
    pool_ticket_response_started(session->context.pool, &session->ticket, is_success(message));
    if (endpoint && was_refused(details)) {
        pool_report_refused(session->context.pool, endpoint);
        metric_add(METRIC_PICK_REFUSED_TOTAL, 1);
    } else if (endpoint && endpoint_is_refused(endpoint) && was_answered(details, message)) {
        pool_report_answered(session->context.pool, endpoint);
    }
}

/* ---- events ---------------------------------------------------------------------------------- */

/* Returns: false where it can't come now. An answer to a request that has none yet is the proxy's
 * own: then nobody waits for a pick any more. */
static bool begin_message(struct pick_session *session, const struct ext_proc_request *message,
                          bool again) {
    if (session->response_ended || again) {
        pick_session_protocol_error(session,
                                    again ? "the answer's headers came twice, or behind its body"
                                          : "a part of the answer came behind its end");
        return false;
    }
    if (!session->response_started) {
        session->response_started = true;
        record_endpoint_result(session, message);
    }
    if (session->phase == PICK_HEADERS_HELD || session->phase == PICK_BODY_PENDING ||
        session->phase == PICK_QUEUED) {
        pick_queue_stop_wait(session, FLOW_ABORTED);
        pick_body_buffer_clear(&session->body_buffer);
        pick_session_release_headers(session);
        pick_session_set_phase(session, PICK_LOCAL_REPLY);
    }
    return true;
}

static void end_message(struct pick_session *session, bool ended) {
    if (ended) {
        session->response_ended = true;
        pool_ticket_response_ended(&session->ticket);
        pick_session_release_ticket(session);
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

void pick_session_on_response_headers(struct pick_session *session,
                                      const struct ext_proc_request *message) {
    if (!begin_message(session, message, session->response_started)) {
        return;
    }
    const struct protocol *protocol = &pick_session_spec(session)->protocol;
    if (protocol->conformance || protocol->send_served_header) {
        send_served_header(session, protocol, message);
    } else {
        pick_session_send_continue(session, EXT_PROC_RESPONSE_HEADERS);
    }
    end_message(session, message->end_of_stream);
}

void pick_session_on_response_body(struct pick_session *session,
                                   const struct ext_proc_request *message) {
    if (!begin_message(session, message, false)) {
        return;
    }
    enum ext_proc_body_mode mode = session->config.response_body;
    if (pick_session_needs_echo(session, mode, message)) {
        pick_session_echo_body(session, message, mode, NULL);
    } else {
        pick_session_send_continue(session, EXT_PROC_RESPONSE_BODY);
    }
    end_message(session, message->end_of_stream || message->end_without_message);
}

void pick_session_on_response_trailers(struct pick_session *session,
                                       const struct ext_proc_request *message) {
    if (begin_message(session, message, false)) {
        pick_session_send_continue(session, EXT_PROC_RESPONSE_TRAILERS);
        end_message(session, true);
    }
}
