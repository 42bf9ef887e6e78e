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
static void count_where_served(struct pick_session *session, struct str served) {
    struct endpoint_address address;
    if (session->ticket.endpoint && endpoint_address_parse(str_trim(served), &address) &&
        pool_ticket_move(session->means.reader, &session->ticket, &address)) {
        metric_add(METRIC_PICK_MOVED_TOTAL, 1);
        pick_session_prompt_moved(session);
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
    return str_starts(details, STR("upstream_reset_before_response_started{")) &&
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
static bool is_good(const struct ext_proc_request *message) {
    struct str status = ext_proc_header_find(&message->fields, STR(":status"));
    return status.len == 3 && status.ptr[0] == '2';
}

/* What the first message of the answer says of the endpoint. */
static void learn(struct pick_session *session, const struct ext_proc_request *message) {
    const struct protocol *protocol = &pick_session_spec(session)->protocol;
    struct str served = find_served(protocol, message);
    struct str details = find_attribute(message, DETAILS);
    count_where_served(session, served.ptr ? served : find_attribute(message, UPSTREAM));
    struct endpoint *endpoint = session->ticket.endpoint;
    pool_ticket_begun(session->means.pool, &session->ticket, is_good(message));
    if (endpoint && was_refused(details)) {
        pool_refused(session->means.pool, endpoint);
        metric_add(METRIC_PICK_REFUSED_TOTAL, 1);
    } else if (endpoint && endpoint_is_refused(endpoint) && was_answered(details, message)) {
        pool_answered(session->means.pool, endpoint);
    }
}

/* ---- events ---------------------------------------------------------------------------------- */

/* Returns: false where it can't come now. An answer to a request that has none yet is the proxy's
 * own: then nobody waits for a pick any more. */
static bool begin(struct pick_session *session, const struct ext_proc_request *message,
                  bool again) {
    if (session->answer_ended || again) {
        pick_session_illegal(session, again ? "the answer's headers came twice, or behind its body"
                                            : "a part of the answer came behind its end");
        return false;
    }
    if (!session->answer_begun) {
        session->answer_begun = true;
        learn(session, message);
    }
    if (session->phase == PICK_HELD || session->phase == PICK_AWAITED ||
        session->phase == PICK_WAITING) {
        pick_session_stop_waiting(session, FLOW_ABORTED);
        pick_held_drop(&session->held);
        pick_session_drop_headers(session);
        pick_session_enter(session, PICK_PASSED);
    }
    return true;
}

static void end(struct pick_session *session, bool ended) {
    if (ended) {
        session->answer_ended = true;
        pool_ticket_done(&session->ticket);
        pick_session_give_back(session);
    }
}

/* Clause: the response header of the gateways' conformance suite. */
static void tell_served(struct pick_session *session, const struct protocol *protocol,
                        const struct ext_proc_request *message) {
    struct ext_proc_header header = {protocol->served_header, find_served(protocol, message)};
    struct ext_proc_answer answer = {.kind = EXT_PROC_RESPONSE_HEADERS,
                                     .headers = {.set = &header, .n_set = 1}};
    struct error err;
    if (!header.value.ptr) {
        header.value = ext_proc_metadata_has(message, protocol->destination_namespace)
                           ? STR("fail: missing destination endpoint served metadata")
                           : STR("fail: missing envoy lb metadata");
    }
    if (pick_outbox_answer(&session->outbox, &answer, NULL, &err) != ST_OK) {
        pick_session_break(session, &err);
    }
}

void pick_session_on_answer_headers(struct pick_session *session,
                                    const struct ext_proc_request *message) {
    if (!begin(session, message, session->answer_begun)) {
        return;
    }
    const struct protocol *protocol = &pick_session_spec(session)->protocol;
    if (protocol->conformance || protocol->tell_served) {
        tell_served(session, protocol, message);
    } else {
        pick_session_nod(session, EXT_PROC_RESPONSE_HEADERS);
    }
    end(session, message->end_of_stream);
}

void pick_session_on_answer_body(struct pick_session *session,
                                 const struct ext_proc_request *message) {
    if (!begin(session, message, false)) {
        return;
    }
    enum ext_proc_body_mode mode = session->config.response_body;
    if (pick_session_is_sent_back(session, mode, message)) {
        pick_session_send_back(session, message, mode, NULL);
    } else {
        pick_session_nod(session, EXT_PROC_RESPONSE_BODY);
    }
    end(session, message->end_of_stream || message->end_without_message);
}

void pick_session_on_answer_trailers(struct pick_session *session,
                                     const struct ext_proc_request *message) {
    if (begin(session, message, false)) {
        pick_session_nod(session, EXT_PROC_RESPONSE_TRAILERS);
        end(session, true);
    }
}
