/* The request's headers: what is known of its model there, and whether the body has to be looked
 * into at all. */
#include "core/base/num.h"
#include "pick/session/state.h"

enum { MAX_LINE_PART_BYTES = 160 }; /* of a method and of a path, for people */

/* "POST /v2/models/digits/infer"; what does not fit is cut. For each request: no printf. */
static struct str print_request_line(struct arena *arena, const struct pick_request *request) {
    struct str method = request->method, path = request->path;
    size_t n_method = method.len < MAX_LINE_PART_BYTES ? method.len : MAX_LINE_PART_BYTES;
    size_t n_path = path.len < MAX_LINE_PART_BYTES ? path.len : MAX_LINE_PART_BYTES;
    size_t n = n_method + 1 + n_path;
    char *line = n > 1 ? arena_alloc(arena, n) : NULL;
    if (!line) {
        return STR("");
    }
    memcpy(line, method.ptr ? method.ptr : "", n_method);
    line[n_method] = ' ';
    memcpy(line + n_method + 1, path.ptr ? path.ptr : "", n_path);
    return str_make(line, n);
}

/* ---- what has to be known -------------------------------------------------------------------- */

/* Finds out where the model is, if it makes a difference. A header that names it counts only where
 * the path does not; a header that names another one to ask for counts where there is one to be
 * replaced. Returns: as model_location_parse. */
static enum status find_model(struct pick_session *session, const struct pool_snapshot *snapshot,
                              struct error *err) {
    struct pick_request *request = session->request;
    session->model_source = PICK_MODEL_FROM_NONE;
    if (!snapshot->models_matter && request->rewrite.len == 0) {
        return ST_OK;
    }
    enum status st =
        model_location_parse_cached(session->context.last_path, session->arena, request->method,
                                    request->path, &session->model_path, err);
    if (session->model_path.kind == MODEL_LOCATION_NONE || request->rewrite.len == 0) {
        request->rewrite = str_make(NULL, 0);
    }
    if (session->model_path.kind == MODEL_LOCATION_PATH) {
        session->model_source = PICK_MODEL_FROM_PATH;
        session->requested = session->model_path.model;
    } else if (request->model.len > 0) {
        session->model_source = PICK_MODEL_FROM_HEADER;
        session->requested = request->model;
    }
    if (request->rewrite.ptr) {
        session->model_source =
            session->requested.ptr ? session->model_source : PICK_MODEL_FROM_HEADER;
        session->requested = request->rewrite;
    }
    return st;
}

/* The body is needed where only it names the model, or where it has to name another. */
static bool needs_body(const struct pick_session *session, const struct pool_snapshot *snapshot) {
    enum model_location_kind kind = session->model_path.kind;
    bool names = kind == MODEL_LOCATION_JSON_BODY || kind == MODEL_LOCATION_GRPC_BODY;
    return names && (!session->requested.ptr || session->request->rewrite.ptr ||
                     pool_snapshot_renames_model(snapshot, session->requested));
}

/* A body that is to come whole and is too large is refused before it comes: the proxy need not
 * gather it, and its message might be larger than any that we take. */
static enum status check_length(const struct pick_session *session, struct error *err) {
    uint64_t length, max_bytes = session->context.limits.max_body_size;
    enum ext_proc_body_mode mode = session->config.request_body;
    bool raises = !pick_mode_is_buffered(mode) && !pick_mode_is_duplex(mode) &&
                  !session->config.send_body_without_waiting;
    bool whole = mode == EXT_PROC_BODY_BUFFERED || raises;
    if (!whole || !num_parse_u64(session->request->content_length, &length) ||
        length <= max_bytes) {
        return ST_OK;
    }
    return pick_body_too_large(length, max_bytes, err);
}

/* Returns: ST_UNKNOWN_ENCODING, ST_BODY_TOO_LARGE. */
static enum status check_body(const struct pick_session *session, struct error *err) {
    if (session->request->encoding.ptr) {
        return error_set(err, ST_UNKNOWN_ENCODING,
                         "content-encoding: expected none, as the body names the model, got "
                         "\"%.*s\"",
                         STR_ARG(session->request->encoding));
    }
    return check_length(session, err);
}

/* Where nobody needs the model it is looked for all the same, for who likes to know it. Returns: as
 * check_body; ST_NO_MEMORY; and why an empty body names nothing. */
static enum status start_model_scan(struct pick_session *session, struct error *err) {
    enum status st = session->needs_model ? check_body(session, err) : ST_OK;
    if (st != ST_OK || (!session->needs_model && session->requested.ptr)) {
        return st;
    }
    session->scan = arena_alloc(session->arena, sizeof(*session->scan));
    if (!session->scan) {
        return error_set(err, ST_NO_MEMORY, "no memory to look for the model");
    }
    pick_scan_init(session->scan, session->arena,
                   session->model_path.kind == MODEL_LOCATION_GRPC_BODY, true);
    if (session->request_ended) {
        pick_scan_end(session->scan);
        return pick_scan_check(session->scan, err);
    }
    return ST_OK;
}

/* ---- what is said ---------------------------------------------------------------------------- */

/* Clause: ext-proc, mode_override. Observed: modes of headers and trailers that are not said stay
 * as they are configured, those of bodies do not. */
static struct ext_proc_processing_mode overridden_modes(const struct pick_session *session) {
    enum ext_proc_body_mode response = session->config.response_body;
    return (struct ext_proc_processing_mode){
        .request_body = EXT_PROC_BODY_BUFFERED,
        .response_body = response == EXT_PROC_BODY_OTHER ? EXT_PROC_BODY_NONE : response};
}

void pick_session_pick_at_headers(struct pick_session *session) {
    struct ext_proc_processing_mode modes = overridden_modes(session);
    struct pick_pending_response pending = {.mutation = {.kind = EXT_PROC_REQUEST_HEADERS}};
    session->mode_overridden = session->scan != NULL;
    if (session->mode_overridden && !session->config.send_body_without_waiting) {
        pending.mutation.modes = &modes;
    }
    if (pick_session_pick_endpoint(session, session->requested, &pending) &&
        pick_session_send_response(session, &pending)) {
        pick_session_set_phase(session, PICK_PICKED);
    }
}

/* The body is to be looked into. */
static void wait_for_body(struct pick_session *session) {
    struct error err;
    if (start_model_scan(session, &err) != ST_OK) {
        pick_session_refuse(session, &err);
        return;
    }
    struct pick_message_ref *message_ref = pick_session_ref_message(session);
    if (!message_ref) {
        return;
    }
    message_ref->n_refs++;
    session->headers = message_ref;
    if (pick_mode_is_duplex(session->config.request_body)) {
        pick_session_set_phase(session, PICK_HEADERS_HELD);
    } else if (pick_mode_is_buffered(session->config.request_body)) {
        pick_session_set_phase(session, PICK_BODY_PENDING);
        pick_session_send_continue(session, EXT_PROC_REQUEST_HEADERS);
    } else {
        pick_session_pick_at_headers(session);
    }
}

/* Returns: ST_NO_MEMORY. */
static enum status read_request(struct pick_session *session, const struct protocol *protocol,
                                const struct ext_proc_request *message, struct error *err) {
    struct pick_request *request = arena_alloc(session->arena, sizeof(*request));
    if (!request) {
        return error_set(err, ST_NO_MEMORY, "no memory for a request's headers");
    }
    enum status st = pick_request_read(session->arena, protocol, message, request, err);
    if (st == ST_OK) {
        session->request = request;
        session->is_not_grpc = !pick_request_is_grpc(request);
        session->request_line = print_request_line(session->arena, request);
    }
    return st;
}

void pick_session_on_headers(struct pick_session *session, const struct ext_proc_request *message) {
    struct error err, no_pool;
    if (session->phase != PICK_HEADERS_EXPECTED || session->response_started) {
        pick_session_protocol_error(session, session->response_started
                                                 ? "the request's headers came behind the answer's"
                                                 : "the request's headers came twice");
        return;
    }
    session->request_ended = message->end_of_stream;
    enum status found = pick_session_select_pool(session, message, &no_pool);
    const struct pool_snapshot *snapshot = pool_reader_refresh(session->context.reader);
    if (read_request(session, &snapshot->spec->protocol, message, &err) != ST_OK) {
        pick_session_abort(session, &err);
        return;
    }
    if (found != ST_OK) {
        pick_session_refuse(session, &no_pool);
    } else if (find_model(session, snapshot, &err) != ST_OK) {
        pick_session_refuse(session, &err);
    } else {
        session->needs_model = needs_body(session, snapshot);
        if (pick_session_start_prompt_scan(session) || session->needs_model) {
            wait_for_body(session);
        } else {
            pick_session_pick_at_headers(session);
        }
    }
    if (!session->headers) { /* they are not kept: they end with this message */
        pick_session_release_headers(session);
    }
}
