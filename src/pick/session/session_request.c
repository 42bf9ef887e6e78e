/* The request side of a session: its headers, body and trailers, in each mode that proxies send
 * bodies in; the model and the prompt in the body. */
#include "pick/session/state.h"

#include <assert.h>
#include <inttypes.h>

#include "codec/prompt/prompt_grpc.h"
#include "core/base/num.h"
#include "core/base/utf8.h"
#include "core/event/clock.h"

/* The least that a proxy's buffer for bodies takes: what Envoy reads from a connection at once. */
enum { MIN_BUFFER_BYTES = 16 << 10 };

enum { MAX_LINE_PART_BYTES = 160 }; /* of the method and of the path in a request line */

enum { PREFIX_BYTES = 5, MAX_PREFIXES = 1024 /* of a body that are looked at */ };

struct pick_prompt {
    struct prompt_scan scan;
    struct prompt_grpc *grpc; /* fills in `scan`; NULL: the body is JSON */
    bool is_checked;          /* a body that can't be read is refused */
    struct prompt_text text;
    bool waits;       /* the pick waits for the prompt */
    bool wants_media; /* and for the first of its pictures, sounds or videos */
    bool wants_items; /* and for all of them */
    uint64_t limit;   /* bytes of the body that are scanned at most */
    uint64_t n_seen;  /* bytes of the body scanned */
};

/* At the slowest, ten nanoseconds a byte, a slice takes less than a tenth of a millisecond. */
enum { SLICE_BYTES = 8 << 10 };

enum {
    MAX_TOKENS = 1 << 30,
    MAX_BYTES_FOR_PROMPT =
        1 << 20, /* of a body that are scanned for the prompt, or twice its window,
                                       if that is more; as many are buffered for it at most */
};

/* ---- the model in the body ------------------------------------------------------------------- */

void pick_scan_init(struct pick_scan *scan, struct arena *arena, bool is_grpc, bool prefixed) {
    scan->is_grpc = is_grpc;
    scan->is_repeated = false;
    if (is_grpc) {
        model_scan_grpc_init(&scan->of.grpc, arena, prefixed);
    } else {
        model_scan_init(&scan->of.json, arena);
    }
}

/* Also looks for another name after the first: a list of models must not be passed by naming a
 * model that is on it first. */
static void scan_json(struct pick_scan *scan, struct str bytes) {
    struct model_scan *json = &scan->of.json;
    enum model_scan_result before = json->result;
    uint64_t start = json->at;
    if (model_scan_feed(json, bytes) == MODEL_SCAN_FOUND) {
        if (before != MODEL_SCAN_FOUND) {
            model_scan_init_rest(&scan->rest.json, json->name.arena);
        }
        size_t n_scanned = (size_t)(json->at - start);
        struct str rest = str_make(bytes.ptr + n_scanned, bytes.len - n_scanned);
        scan->is_repeated = model_scan_feed_rest(&scan->rest.json, rest);
    }
}

static void scan_grpc(struct pick_scan *scan, struct str bytes) {
    struct model_scan_grpc *grpc = &scan->of.grpc;
    enum model_scan_result before = grpc->result;
    uint64_t start = grpc->at;
    if (model_scan_grpc_feed(grpc, bytes) == MODEL_SCAN_FOUND) {
        if (before != MODEL_SCAN_FOUND) {
            model_scan_grpc_init_rest(&scan->rest.grpc, grpc);
        }
        size_t n_scanned = (size_t)(grpc->at - start);
        struct str rest = str_make(bytes.ptr + n_scanned, bytes.len - n_scanned);
        scan->is_repeated = model_scan_grpc_feed_rest(&scan->rest.grpc, rest);
    }
}

static enum model_scan_result scan_result(const struct pick_scan *scan) {
    return scan->is_grpc ? scan->of.grpc.result : scan->of.json.result;
}

bool pick_scan_feed(struct pick_scan *scan, struct str bytes, bool is_compressed) {
    if (!scan->is_grpc) {
        scan_json(scan, bytes);
    } else if (is_compressed && scan->of.grpc.result == MODEL_SCAN_MORE) {
        scan->of.grpc.result = MODEL_SCAN_COMPRESSED;
    } else {
        scan_grpc(scan, bytes);
    }
    return scan_result(scan) != MODEL_SCAN_MORE;
}

/* Whether further bytes are not read, neither for the name nor for another one after it. */
static bool is_scan_over(const struct pick_scan *scan) {
    enum model_scan_result result = scan_result(scan);
    return result == MODEL_SCAN_FOUND ? (scan->is_grpc ? scan->rest.grpc.result
                                                       : scan->rest.json.result) != MODEL_SCAN_MORE
                                      : result != MODEL_SCAN_MORE;
}

static void pick_scan_end(struct pick_scan *scan) {
    if (scan->is_grpc) {
        model_scan_grpc_finish(&scan->of.grpc);
    } else {
        model_scan_finish(&scan->of.json);
    }
}

static enum status pick_scan_check(const struct pick_scan *scan, struct error *err) {
    assert(scan); /* the phases that check a name have a scan */
    if (scan->is_optional && scan_result(scan) == MODEL_SCAN_ABSENT) {
        return ST_OK;
    }
    if (scan->is_repeated) {
        return error_set(err, ST_BAD_FIELD,
                         "%s: expected one that names the model, got another one after it",
                         scan->is_grpc ? "model_name" : "model");
    }
    return scan->is_grpc ? model_scan_grpc_check(&scan->of.grpc, err)
                         : model_scan_check(&scan->of.json, err);
}

struct str pick_scan_name(const struct pick_scan *scan) {
    struct str name = buf_str(scan->is_grpc ? &scan->of.grpc.name : &scan->of.json.name);
    return name.ptr ? name : STR("");
}

/* ---- the prompt ------------------------------------------------------------------------------ */

/* A body that is buffered for its prompt only must be within the limit; larger ones are not waited
 * for. */
static bool is_within_body_limit(const struct pick_session *session) {
    const struct pick_request *request = pick_session_request(session);
    return !request->has_length || request->n_body_bytes <= session->context.limits.max_body_size;
}

/* The path may not have been parsed yet. A path that cannot be parsed is left to the server. */
static bool find_prompt(struct pick_session *session, struct model_location *out) {
    const struct pick_request *request = pick_session_request(session);
    struct error err;
    *out = session->model_path;
    if (out->kind == MODEL_LOCATION_NONE &&
        pick_request_find_model(session->arena, pick_session_spec(session), request->method,
                                request->path, out, &err) != ST_OK) {
        return false;
    }
    return out->has_prompt;
}

static double find_number(const struct pick_request *request, struct str name) {
    double number = 0;
    struct str text = str_trim(ext_proc_header_find(&request->fields, name));
    return num_parse_decimal(text, &number) && number > 0 ? number : 0;
}

/* "1280x720" */
static void find_resolution(const struct pick_request *request, struct video_size *out) {
    enum { MOST_PIXELS = 1 << 16 };
    struct str height = ext_proc_header_find(&request->fields, STR("x-llm-d-video-resolution"));
    struct str width = str_cut(&height, 'x');
    uint64_t w, h;
    if (height.ptr && num_parse_u64(str_trim(width), &w) && num_parse_u64(str_trim(height), &h) &&
        w <= MOST_PIXELS && h <= MOST_PIXELS) {
        out->width = w;
        out->height = h;
    }
}

/* The configuration's estimate; the request's headers say more of its videos. */
static void set_media_sizes(struct pick_session *session, const struct media_estimate *estimate) {
    const struct pick_request *request = pick_session_request(session);
    struct prompt_scan *scan = &session->prompt->scan;
    struct video_size size = {.width = 0};
    if (estimate) {
        size.duration_s = find_number(request, STR("x-llm-d-video-duration-seconds"));
        size.fps = find_number(request, STR("x-llm-d-video-fps"));
        find_resolution(request, &size);
        scan->image_bytes = (size_t)media_image_tokens(estimate) * PROMPT_BYTES_PER_TOKEN;
        scan->video_bytes = (size_t)media_video_tokens(estimate, &size) * PROMPT_BYTES_PER_TOKEN;
    }
}

/* Pictures are wherever they are in the body, and longer than any text. */
static uint64_t scan_limit(const struct pick_session *session) {
    uint64_t window = (uint64_t)session->prompt->scan.max_bytes * 2;
    uint64_t limit = window > MAX_BYTES_FOR_PROMPT ? window : MAX_BYTES_FOR_PROMPT;
    uint64_t most = session->context.limits.max_body_size;
    return session->prompt->wants_items && most > limit ? most : limit;
}

/* Returns: false when out of memory. */
static bool set_format(struct pick_session *session, const struct model_location *location) {
    struct pick_prompt *prompt = session->prompt;
    prompt->scan.may_have_system = location->may_have_system;
    prompt->scan.format = location->format;
    prompt->scan.required = location->required;
    if (!prompt_format_is_grpc(location->format)) {
        return true;
    }
    prompt->grpc = arena_alloc(session->arena, sizeof(*prompt->grpc));
    if (prompt->grpc) {
        prompt_grpc_init(prompt->grpc, &prompt->scan, session->arena);
    }
    return prompt->grpc != NULL;
}

/* `needs`: of the reader's snapshot. Returns: whether the pick waits for the prompt. */
static bool start_prompt_scan(struct pick_session *session,
                              const struct pool_request_needs *needs) {
    struct model_location location;
    enum ext_proc_body_mode mode = session->config.request_body;
    bool is_shown = pick_mode_is_duplex(mode) || pick_mode_is_buffered(mode);
    bool waits = needs->body && (mode != EXT_PROC_BODY_BUFFERED || is_within_body_limit(session));
    if (!needs->prompt || !is_shown || session->request_half == PICK_HALF_ENDED ||
        pick_session_request(session)->encoding.ptr || !(waits || session->needs_model) ||
        !find_prompt(session, &location)) {
        return false;
    }
    bool is_checked = pick_session_spec(session)->parsers != 0;
    needs = pool_request_needs(session->context.reader); /* there may be a new snapshot */
    if (!needs->prompt) {
        return false;
    }
    struct pool_prompt *prompts = arena_calloc(session->arena, session->stages.n, sizeof(*prompts));
    session->prompt = prompts ? arena_calloc(session->arena, 1, sizeof(*session->prompt)) : NULL;
    if (session->prompt) {
        session->prompt->waits = waits;
        session->prompt->wants_media = needs->media;
        session->prompt->wants_items = needs->media_items;
        for (size_t i = 0; i < session->stages.n; i++) {
            prompts[i].text = &session->prompt->text;
            session->stages.items[i].prompt = &prompts[i];
        }
        prompt_text_init(&session->prompt->text, session->context.reader, session->arena);
        prompt_scan_init(&session->prompt->scan, session->arena,
                         (size_t)pool_needs_window_bytes(needs));
        session->prompt->is_checked = is_checked;
        if (!set_format(session, &location)) {
            session->prompt->scan.result = PROMPT_SCAN_NONE;
            session->prompt->is_checked = false;
        }
        session->prompt->scan.lists_items = needs->media_items;
        session->prompt->scan.media_seed = prompt_text_media_seed(session->context.reader);
        session->prompt->limit = scan_limit(session);
        set_media_sizes(session, needs->estimate);
    }
    return session->prompt && waits;
}

/* ---- the prompt: scanning the body ----------------------------------------------------------- */

_Static_assert((int)PROMPT_MEDIA_IMAGE == (int)MEDIA_IMAGE, "kinds of media are passed on");
_Static_assert((int)PROMPT_MEDIA_AUDIO == (int)MEDIA_AUDIO, "kinds of media are passed on");
_Static_assert((int)PROMPT_MEDIA_VIDEO == (int)MEDIA_VIDEO, "kinds of media are passed on");
_Static_assert((int)N_PROMPT_MEDIA == (int)N_MEDIA_KINDS, "kinds of media are passed on");

/* The text is hashed, and not kept. */
static void hash_prompt(struct pick_prompt *prompt) {
    struct prompt_scan *scan = &prompt->scan;
    bool ended = scan->result == PROMPT_SCAN_END;
    prompt->text.media = scan->items;
    prompt->text.media_kinds = scan->item_kinds;
    prompt->text.n_media = scan->n_items;
    prompt->text.salt = scan->salt;
    prompt_text_add(&prompt->text, true, prompt_scan_take(scan, true));
    prompt_text_add(&prompt->text, false, prompt_scan_take(scan, false));
    if (scan->system_seen) {
        prompt_text_end(&prompt->text, true);
    }
    if (ended) {
        prompt_text_end(&prompt->text, false);
    }
}

/* Bytes after the limit do not count, however the body was cut. */
static void scan_prompt(struct pick_prompt *prompt, struct str bytes) {
    uint64_t room = prompt->n_seen < prompt->limit ? prompt->limit - prompt->n_seen : 0;
    struct str seen = str_make(bytes.ptr, bytes.len < room ? bytes.len : (size_t)room);
    if (prompt->grpc) {
        (void)prompt_grpc_feed(prompt->grpc, seen);
    } else {
        (void)prompt_scan_feed(&prompt->scan, seen);
    }
    prompt->n_seen += bytes.len;
    hash_prompt(prompt);
}

/* Further bytes are not read. */
static bool is_prompt_scan_over(const struct pick_prompt *prompt) {
    return prompt->scan.result != PROMPT_SCAN_MORE || prompt->n_seen >= prompt->limit;
}

static bool waits_for_prompt(const struct pick_prompt *prompt) {
    return prompt && prompt->waits && !is_prompt_scan_over(prompt) &&
           !(prompt_scan_is_full(&prompt->scan) && !prompt->wants_items &&
             (!prompt->wants_media || prompt->scan.has_media));
}

static bool is_prompt_limit_reached(const struct pick_session *session) {
    const struct pick_prompt *prompt = session->prompt;
    return prompt && !session->needs_model && prompt->n_seen >= prompt->limit;
}

/* ---- the prompt: for the pick ---------------------------------------------------------------- */

/* The messages are known, and what is placed before them may follow. */
static bool may_lack_beginning(const struct pick_prompt *prompt) {
    const struct prompt_scan *scan = &prompt->scan;
    return scan->result == PROMPT_SCAN_MORE && prompt_scan_text_bytes(scan) > 0 &&
           scan->may_have_system && !scan->system_seen &&
           prompt_scan_system_bytes(scan) < scan->max_bytes && prompt->n_seen < prompt->limit;
}

struct pool_prompt *pick_session_get_prompt(const struct pick_session *session,
                                            const struct pick_stage *stage) {
    const struct pick_prompt *prompt = session->prompt;
    if (!stage->prompt || prompt->scan.result == PROMPT_SCAN_NONE || may_lack_beginning(prompt)) {
        return NULL;
    }
    return stage->prompt;
}

uint64_t pick_session_prompt_bytes(const struct pick_session *session) {
    const struct pick_prompt *prompt = session->prompt;
    return prompt ? prompt->scan.system.cap + prompt->scan.text.cap +
                        prompt->scan.items_cap * sizeof(uint64_t) + prompt_text_bytes(&prompt->text)
                  : 0;
}

bool pick_session_asks_for_stream(const struct pick_session *session) {
    return session->prompt && session->prompt->scan.is_streamed;
}

bool pick_session_has_media(const struct pick_session *session) {
    return session->prompt && session->prompt->scan.has_media;
}

/* For a prompt that was cut off, content-length is the better estimate, or else what was received.
 * Token ids in lists have about four digits too. */
static uint64_t estimate_prompt_tokens(const struct pick_session *session) {
    const struct prompt_scan *scan = session->prompt ? &session->prompt->scan : NULL;
    const struct pick_request *request = pick_session_request(session);
    bool is_all = scan && scan->result == PROMPT_SCAN_END;
    uint64_t n = 0;
    if (scan) {
        n = (scan->n_bytes + PROMPT_BYTES_PER_TOKEN - 1) / PROMPT_BYTES_PER_TOKEN + scan->n_tokens;
    }
    if (!is_all) {
        uint64_t length = request->has_length ? request->n_body_bytes
                          : session->prompt   ? session->prompt->n_seen
                                              : 0;
        n = length / PROMPT_BYTES_PER_TOKEN > n ? length / PROMPT_BYTES_PER_TOKEN : n;
    }
    return n;
}

uint32_t pick_session_prompt_tokens(const struct pick_session *session) {
    uint64_t n = estimate_prompt_tokens(session);
    return (uint32_t)(n < MAX_TOKENS ? n : MAX_TOKENS);
}

uint32_t pick_session_max_output_tokens(const struct pick_session *session) {
    uint64_t n = session->prompt ? session->prompt->scan.max_tokens : 0;
    return (uint32_t)(n < MAX_TOKENS ? n : MAX_TOKENS);
}

/* ---- request line ---------------------------------------------------------------------------- */

/* "POST /v2/models/digits/infer"; longer parts are cut. Runs for each request, so without
 * printf. */
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

/* ---- headers: the model ---------------------------------------------------------------------- */

/* Finds where the model is named, if models make a difference. A model header counts only where the
 * path names no model; a rewrite header counts only where there is a name to replace. Returns: as
 * model_location_parse. */
static enum status find_model(struct pick_session *session, const struct pool_snapshot *snapshot,
                              struct error *err) {
    struct pick_request *request = session->request;
    session->model_source = PICK_MODEL_FROM_NONE;
    if (!snapshot->models_matter && request->rewrite.len == 0) {
        return ST_OK;
    }
    enum status st = pick_request_find_model(session->arena, snapshot->spec, request->method,
                                             request->path, &session->model_path, err);
    if (session->model_path.kind == MODEL_LOCATION_NONE || request->rewrite.len == 0) {
        request->rewrite = str_make(NULL, 0);
    }
    if (!utf8_is_valid(request->rewrite.ptr, request->rewrite.len)) {
        return error_set(err, ST_BAD_REQUEST, "the header with the model's new name is not UTF-8");
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

/* The body is needed where only the body names the model, or where the name in it is replaced. */
static bool needs_body(const struct pick_session *session, const struct pool_snapshot *snapshot) {
    enum model_location_kind kind = session->model_path.kind;
    bool names = kind == MODEL_LOCATION_JSON_BODY || kind == MODEL_LOCATION_GRPC_BODY;
    return names && (!session->requested.ptr || session->request->rewrite.ptr ||
                     pool_snapshot_renames_model(snapshot, session->requested));
}

static enum status body_too_large_error(uint64_t n_bytes, uint64_t max_bytes, struct error *err) {
    return error_set(err, ST_BODY_TOO_LARGE,
                     "request body too large: %" PRIu64 " bytes, at most %" PRIu64
                     " where the body names the model (--max-body-size)",
                     n_bytes, max_bytes);
}

/* A buffered body that is too large is refused at the headers: the proxy need not buffer it, and
 * its message could exceed the message size limit. */
static enum status check_length(const struct pick_session *session, struct error *err) {
    const struct pick_request *request = session->request;
    uint64_t max_bytes = session->context.limits.max_body_size;
    enum ext_proc_body_mode mode = session->config.request_body;
    bool raises = !pick_mode_is_buffered(mode) && !pick_mode_is_duplex(mode) &&
                  !session->config.send_body_without_waiting;
    bool whole = mode == EXT_PROC_BODY_BUFFERED || raises;
    if (!whole || !request->has_length || request->n_body_bytes <= max_bytes) {
        return ST_OK;
    }
    return body_too_large_error(request->n_body_bytes, max_bytes, err);
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

/* A model that is not needed is searched for as well, for the log and statistics. Returns: as
 * check_body; ST_NO_MEMORY; the scan's error where the request has no body. */
static enum status start_model_scan(struct pick_session *session, struct error *err) {
    enum status st = session->needs_model ? check_body(session, err) : ST_OK;
    if (st != ST_OK || (!session->needs_model && session->requested.ptr)) {
        return st;
    }
    session->scan = arena_alloc(session->arena, sizeof(*session->scan));
    if (!session->scan) {
        return error_no_memory(err, "the model scan");
    }
    session->scan->is_optional = session->model_path.is_model_optional;
    pick_scan_init(session->scan, session->arena,
                   session->model_path.kind == MODEL_LOCATION_GRPC_BODY, true);
    if (session->request_half == PICK_HALF_ENDED) {
        pick_scan_end(session->scan);
        return pick_scan_check(session->scan, err);
    }
    return ST_OK;
}

/* ---- headers: the response ------------------------------------------------------------------- */

/* Clause: ext-proc, mode_override. Observed: modes of headers and trailers that are not set stay as
 * configured, those of bodies do not. */
static struct ext_proc_processing_mode overridden_modes(const struct pick_session *session) {
    enum ext_proc_body_mode response = session->config.response_body;
    return (struct ext_proc_processing_mode){
        .request_body = EXT_PROC_BODY_BUFFERED,
        .response_body = response == EXT_PROC_BODY_OTHER ? EXT_PROC_BODY_NONE : response};
}

void pick_session_pick_at_headers(struct pick_session *session) {
    struct ext_proc_processing_mode modes = overridden_modes(session);
    struct pick_pending_response pending;
    pick_pending_init(&pending, EXT_PROC_REQUEST_HEADERS);
    if (session->scan && !session->config.send_body_without_waiting) {
        pending.mutation.modes = &modes;
    }
    if (pick_session_pick_endpoint(session, session->requested, &pending) &&
        pick_session_send_response(session, &pending)) {
        pick_session_set_state(session, session->scan ? PICK_UNCHECKED : PICK_PICKED);
    }
}

/* The pick may need the body: searches it. */
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
        session->answer_until_ns = clock_now_ns() + session->context.limits.answer_timeout_ns;
        pick_session_set_state(session, PICK_HEADERS_HELD);
    } else if (pick_mode_is_buffered(session->config.request_body)) {
        pick_session_set_state(session, PICK_BODY_PENDING);
        pick_session_send_continue(session, EXT_PROC_REQUEST_HEADERS);
    } else {
        pick_session_pick_at_headers(session);
    }
}

/* Without a list of parsers every path is passed on. Returns: ST_BAD_REQUEST where none of the list
 * reads the bodies of the path; as model_location_parse. */
static enum status check_parsers(struct pick_session *session, const struct pool_spec *spec,
                                 struct error *err) {
    const struct pick_request *request = session->request;
    struct model_location location;
    if (spec->parsers == 0 || spec->parsers == MODEL_PARSERS_DEFAULT) {
        return ST_OK;
    }
    enum status st = pick_request_find_model(session->arena, spec, request->method, request->path,
                                             &location, err);
    session->body_format = location.format;
    if (st == ST_OK && location.is_unclaimed && session->request_half != PICK_HALF_ENDED) {
        return error_set(err, ST_BAD_REQUEST,
                         "no parser of the picker's configuration reads requests to this path "
                         "(requestHandler.parsers; passthrough-parser passes them on)");
    }
    return st;
}

/* Returns: ST_NO_MEMORY. */
static enum status read_request(struct pick_session *session, const struct protocol *protocol,
                                const struct ext_proc_request *message, struct error *err) {
    struct pick_request *request = arena_alloc(session->arena, sizeof(*request));
    if (!request) {
        return error_no_memory(err, "a request's headers");
    }
    enum status st = pick_request_read(session->arena, protocol, message, request, err);
    if (st == ST_OK) {
        session->request = request;
        session->n_body_bytes = request->has_length ? request->n_body_bytes : 0;
        session->is_not_grpc = !pick_request_is_grpc(request);
        session->request_line = print_request_line(session->arena, request);
    }
    return st;
}

void pick_session_on_headers(struct pick_session *session, const struct ext_proc_request *message) {
    struct error err, no_pool;
    bool late = session->response_half != PICK_HALF_EXPECTED;
    if (session->state != PICK_HEADERS_EXPECTED || late) {
        pick_session_protocol_error(session,
                                    late ? "received the request's headers after the response's"
                                         : "received the request's headers twice");
        return;
    }
    pick_half_advance(&session->request_half,
                      message->end_of_stream ? PICK_HALF_ENDED : PICK_HALF_STARTED);
    const struct pick_callbacks *out = &session->send_queue.callbacks;
    if (out->on_request) {
        session->trace = out->on_request(out->user, &message->fields);
    }
    enum status found = pick_session_select_pool(session, message, &no_pool);
    const struct pool_snapshot *snapshot = pool_reader_refresh(session->context.reader);
    if (read_request(session, &snapshot->spec->protocol, message, &err) != ST_OK) {
        pick_session_abort(session, &err);
        return;
    }
    if (found != ST_OK) {
        pick_session_refuse(session, &no_pool);
    } else if (find_model(session, snapshot, &err) != ST_OK ||
               check_parsers(session, snapshot->spec, &err) != ST_OK) {
        pick_session_refuse(session, &err);
    } else {
        const struct pool_request_needs *needs = pool_request_needs(session->context.reader);
        session->needs_model = needs_body(session, snapshot);
        if (!pick_stages_plan(session, snapshot->spec->handler, needs)) {
            error_no_memory(&err, "the stages of a request");
            pick_session_abort(session, &err);
            return;
        }
        if (start_prompt_scan(session, needs) || session->needs_model) {
            wait_for_body(session);
        } else {
            pick_session_pick_at_headers(session);
        }
    }
    if (!session->headers) { /* no reference was taken: the bytes end with this message */
        pick_session_release_headers(session);
    }
}

/* ---- body modes ------------------------------------------------------------------------------ */

/* How a piece of a body is answered depends on its mode, and with mode GRPC on its bytes.
 *
 * Clause: ext-proc, mode GRPC. A proxy that implements the mode sends each gRPC message without its
 * prefix and expects it back. Observed: Envoy 1.40 accepts the setting, and then behaves as with
 * BUFFERED: it waits, and sends any body, prefixes included. */
/* gRPC, "Length-Prefixed-Message": 0 or 1, and a big-endian length of four bytes. No protobuf
 * message starts with either: its first byte is a field tag. */
static bool is_prefixed(struct str body) {
    const unsigned char *bytes = (const unsigned char *)body.ptr;
    size_t at = 0, n_messages = 0;
    while (body.len - at >= PREFIX_BYTES && bytes[at] <= 1) {
        if (++n_messages > MAX_PREFIXES) {
            return true;
        }
        uint64_t n = (uint64_t)bytes[at + 1] << 24 | (uint64_t)bytes[at + 2] << 16 |
                     (uint64_t)bytes[at + 3] << 8 | bytes[at + 4];
        at += PREFIX_BYTES;
        if (n > body.len - at) {
            return false;
        }
        at += (size_t)n;
    }
    return at > 0 && at == body.len;
}

bool pick_session_needs_echo(const struct pick_session *session, enum ext_proc_body_mode mode,
                             const struct ext_proc_request *message) {
    if (session->context.proxy_keeps_body) {
        return false;
    }
    if (mode != EXT_PROC_BODY_GRPC) {
        return pick_mode_is_duplex(mode);
    }
    return !session->is_not_grpc && !is_prefixed(message->body);
}

bool pick_session_echo_body(struct pick_session *session, const struct ext_proc_request *message,
                            enum ext_proc_body_mode mode, const struct pick_edits *edits) {
    struct pick_message_ref *message_ref =
        message->body.len > 0 ? pick_session_ref_message(session) : NULL;
    struct pick_body_chunk chunk = pick_body_chunk_of(message, message_ref);
    struct error err;
    if (session->state == PICK_ENDED) {
        return false;
    }
    if (pick_body_chunk_send(&session->send_queue, message->kind, &chunk, 0, edits,
                             mode == EXT_PROC_BODY_GRPC, &err) != ST_OK) {
        pick_session_abort(session, &err);
        return false;
    }
    return true;
}

/* ---- body: scanning -------------------------------------------------------------------------- */

/* Scans the next slice of the message. Returns: whether that was the last one. */
static bool scan_slice(struct pick_session *session, const struct ext_proc_request *message) {
    struct pick_body_scan *scan = &session->body_scan;
    bool is_over = (!scan->for_model || is_scan_over(session->scan)) &&
                   (!scan->for_prompt || is_prompt_scan_over(session->prompt));
    size_t n_left = message->body.len - scan->at;
    size_t n = is_over || n_left < SLICE_BYTES ? n_left : SLICE_BYTES;
    struct str slice = str_make(message->body.ptr + scan->at, n);
    if (scan->for_model && !message->end_without_message) {
        (void)pick_scan_feed(session->scan, slice, message->is_compressed);
    }
    if (scan->for_prompt) {
        scan_prompt(session->prompt, slice);
    }
    scan->at += n;
    return scan->at == message->body.len;
}

/* The message was scanned. `is_all`: it is the end of the body. Returns: whether the search is over
 * for both model and prompt. */
static bool end_scan(struct pick_session *session, bool is_all) {
    bool is_named = !session->scan || scan_result(session->scan) != MODEL_SCAN_MORE;
    if (!is_named && is_all) {
        pick_scan_end(session->scan);
    }
    return is_all || (is_named && !waits_for_prompt(session->prompt)) ||
           is_prompt_limit_reached(session);
}

/* Returns: false when the body has to name a model and does not; the request was refused. */
static bool check_model_name(struct pick_session *session) {
    struct error err;
    if (session->needs_model && pick_scan_check(session->scan, &err) != ST_OK) {
        pick_session_refuse(session, &err);
        return false;
    }
    return true;
}

bool pick_session_can_pick(const struct pick_session *session) {
    struct error err;
    return !session->needs_model || pick_scan_check(session->scan, &err) == ST_OK;
}

/* The model to match, as far as the body was scanned. */
static struct str known_model_of(struct pick_session *session) {
    const struct prompt_grpc *grpc = session->prompt ? session->prompt->grpc : NULL;
    struct error err;
    if (!session->requested.ptr && grpc && grpc->model.result == MODEL_SCAN_FOUND) {
        session->model_source = PICK_MODEL_FROM_BODY;
        return buf_str(&grpc->model.name);
    }
    if (session->requested.ptr || !session->scan ||
        scan_result(session->scan) == MODEL_SCAN_ABSENT ||
        pick_scan_check(session->scan, &err) != ST_OK) {
        return session->requested;
    }
    session->model_source = PICK_MODEL_FROM_BODY;
    return pick_scan_name(session->scan);
}

/* A body that the pool's parsers can't read is refused, as far as it was read. The whole was read
 * where nothing of it was left out for its size. */
static bool check_prompt(struct pick_session *session) {
    const struct pick_prompt *prompt = session->prompt;
    struct error err;
    if (!prompt || !prompt->is_checked) {
        return true;
    }
    bool ended = session->request_half == PICK_HALF_ENDED &&
                 prompt->n_seen == session->n_body_received && prompt->n_seen <= prompt->limit;
    enum status st = prompt->grpc ? prompt_grpc_check(prompt->grpc, ended, &err)
                                  : prompt_scan_check(&prompt->scan, ended, &err);
    if (st != ST_OK) {
        pick_session_refuse(session, &err);
    }
    return st == ST_OK;
}

/* A whole body is limited as a buffered one. Returns: as check_model_name. */
static bool check_size(struct pick_session *session, const struct ext_proc_request *message) {
    struct error err;
    uint64_t max_bytes = session->context.limits.max_body_size;
    if (message->body.len <= max_bytes) {
        return true;
    }
    (void)body_too_large_error(message->body.len, max_bytes, &err);
    pick_session_refuse(session, &err);
    return false;
}

/* ---- body: FULL_DUPLEX ----------------------------------------------------------------------- */

/* The response to the headers is sent before the buffered body. */
void pick_session_pick_and_flush(struct pick_session *session) {
    struct pick_pending_response pending;
    pick_pending_init(&pending, EXT_PROC_REQUEST_HEADERS);
    struct error err;
    if (!check_prompt(session) || !check_model_name(session) ||
        !pick_session_pick_endpoint(session, known_model_of(session), &pending) ||
        !pick_session_send_response(session, &pending)) {
        return;
    }
    pick_session_set_state(session, PICK_PICKED);
    pick_session_release_headers(session);
    if (session->context.proxy_keeps_body) {
        return; /* the edits were in the response */
    }
    if (pick_body_buffer_flush(&session->body_buffer, &session->send_queue, EXT_PROC_REQUEST_BODY,
                               &pending.edits, &err) != ST_OK) {
        pick_session_abort(session, &err);
    }
}

/* Returns: ST_NO_MEMORY. Where there is none for a reference, the stream has ended. */
static enum status hold_body(struct pick_session *session, const struct ext_proc_request *message,
                             struct error *err) {
    bool is_nothing = message->body.len == 0 && session->request_half != PICK_HALF_ENDED;
    bool copied = pick_body_buffer_would_copy(&session->body_buffer, message->body.len);
    if (session->context.proxy_keeps_body) {
        pick_body_buffer_count(&session->body_buffer, message->body.len);
        return ST_OK;
    }
    struct pick_message_ref *message_ref =
        is_nothing || copied ? NULL : pick_session_ref_message(session);
    if (!message_ref && (is_nothing || !copied)) {
        return ST_OK;
    }
    struct pick_body_chunk chunk = pick_body_chunk_of(message, message_ref);
    return pick_body_buffer_append(&session->body_buffer, &session->send_queue, &chunk, err);
}

static void buffer_body(struct pick_session *session, const struct ext_proc_request *message) {
    bool known = end_scan(session, session->request_half == PICK_HALF_ENDED);
    struct error err;
    enum status st = hold_body(session, message, &err);
    if (session->state != PICK_HEADERS_HELD) {
        return; /* the stream has ended: out of memory */
    }
    if (st == ST_OK && !known) {
        st = pick_body_buffer_check_limit(&session->body_buffer, &err);
        known = st != ST_OK && pick_session_can_pick(session);
        st = known ? ST_OK : st;
    }
    if (st != ST_OK) {
        pick_session_refuse(session, &err);
    } else if (known) {
        pick_session_pick_and_flush(session);
    }
}

/* ---- body: BUFFERED, BUFFERED_PARTIAL -------------------------------------------------------- */

/* Sends the pending response for this body message, with the edited body. */
static bool send_with_body(struct pick_session *session, const struct ext_proc_request *message,
                           struct pick_pending_response *pending) {
    struct piece pieces[PICK_MAX_PIECES];
    if (pending->edits.n > 0) {
        struct pick_body_chunk chunk =
            pick_body_chunk_of(message, pick_session_ref_message(session));
        if (!chunk.ref) {
            return false;
        }
        pending->mutation.body = pieces;
        pending->mutation.n_body = pick_body_chunk_pieces(&chunk, 0, &pending->edits, pieces);
        pending->mutation.ref = chunk.ref;
    }
    bool told = pick_session_send_response(session, pending);
    pending->mutation.body = NULL; /* `pieces` is on this stack */
    return told;
}

/* BUFFERED_PARTIAL: a proxy whose buffer is full sends the body so far, without end_of_stream. */
static void refuse_partial(struct pick_session *session, const struct ext_proc_request *message) {
    struct error err;
    error_set(&err, ST_BODY_TOO_LARGE,
              "the proxy's buffer is too small: the first %zu bytes of the body do not contain the "
              "model's name (per_connection_buffer_limit_bytes)",
              message->body.len);
    pick_session_refuse(session, &err);
}

void pick_session_pick_at_body(struct pick_session *session,
                               const struct ext_proc_request *message) {
    struct pick_pending_response pending;
    pick_pending_init(&pending, EXT_PROC_REQUEST_BODY);
    if (check_prompt(session) && check_model_name(session) &&
        pick_session_pick_endpoint(session, known_model_of(session), &pending) &&
        send_with_body(session, message, &pending)) {
        pick_session_set_state(session, PICK_PICKED);
        pick_session_release_headers(session);
    }
}

/* BUFFERED_PARTIAL: a body without end_of_stream is cut off, or whole and followed by trailers. */
static bool is_cut_off(const struct pick_session *session, const struct ext_proc_request *message) {
    const struct pick_request *request = pick_session_request(session);
    if (session->config.request_body != EXT_PROC_BODY_BUFFERED_PARTIAL ||
        session->request_half == PICK_HALF_ENDED) {
        return false;
    }
    return request->has_length ? request->n_body_bytes > message->body.len
                               : message->body.len >= MIN_BUFFER_BYTES;
}

static void pick_at_buffered_body(struct pick_session *session,
                                  const struct ext_proc_request *message) {
    bool partial = is_cut_off(session, message);
    if (message->body.len <= session->context.limits.max_body_size &&
        !end_scan(session, !partial) && !pick_session_can_pick(session)) {
        refuse_partial(session, message);
        return;
    }
    pick_session_pick_at_body(session, message);
}

/* ---- body: mode overridden from NONE, STREAMED or GRPC --------------------------------------- */

/* In mode GRPC the first message is a whole message, and names the model. */
static bool is_body_whole(const struct pick_session *session) {
    enum ext_proc_body_mode mode = session->config.request_body;
    bool at_once =
        mode == EXT_PROC_BODY_GRPC || (mode == EXT_PROC_BODY_NONE && session->configured);
    return session->state == PICK_UNCHECKED &&
           (session->request_half == PICK_HALF_ENDED || at_once);
}

/* The model cannot be replaced in a body of which earlier pieces were already sent. The first piece
 * may be the whole body: one that is followed by trailers has no end_of_stream. Observed: with
 * STREAMED Envoy 1.40 removes content-length, so that a piece may change its length. */
static bool check_can_rename(struct pick_session *session,
                             const struct pick_pending_response *pending) {
    struct error err;
    if (pending->edits.n == 0 || session->body_scan.is_first) {
        return true;
    }
    error_set(&err, ST_INTERNAL,
              "cannot replace the model's name in a body that the proxy sends in pieces: the proxy "
              "must allow mode_override (allow_mode_override: true)");
    pick_session_refuse(session, &err);
    return false;
}

/* Clause: ext-proc, mode_override: a proxy that does not allow it continues as configured: with
 * NONE without the body; with STREAMED pieces arrive, each of which is answered; with GRPC messages
 * arrive. Returns: as check_model_name. */
static bool begin_overridden_body(struct pick_session *session,
                                  const struct ext_proc_request *message) {
    enum ext_proc_body_mode mode = session->config.request_body;
    bool whole = is_body_whole(session);
    pool_note_requested_body(session->context.pool);
    session->body_scan.is_first = session->state == PICK_UNCHECKED;
    if (whole && !check_size(session, message)) {
        return false;
    }
    if (!whole && session->state == PICK_UNCHECKED) {
        pick_session_set_state(session, PICK_CHECKING);
    }
    if (pick_session_needs_echo(session, mode, message)) { /* mode GRPC as specified: messages have
                                                              no prefix */
        pick_scan_init(session->scan, session->arena,
                       session->model_path.kind == MODEL_LOCATION_GRPC_BODY, false);
    }
    return true;
}

static void inspect_overridden_body(struct pick_session *session,
                                    const struct ext_proc_request *message) {
    enum ext_proc_body_mode mode = session->config.request_body;
    bool back = pick_session_needs_echo(session, mode, message);
    bool is_all = session->state == PICK_UNCHECKED || session->request_half == PICK_HALF_ENDED;
    struct pick_pending_response pending;
    pick_pending_init(&pending, EXT_PROC_REQUEST_BODY);
    if (!end_scan(session, is_all)) {
        pick_session_send_continue(session, EXT_PROC_REQUEST_BODY);
        return;
    }
    if (check_model_name(session) && pick_session_check_model(session, &pending) &&
        check_can_rename(session, &pending) &&
        (back ? pick_session_echo_body(session, message, mode, &pending.edits)
              : send_with_body(session, message, &pending))) {
        pick_session_release_headers(session);
    }
}

/* A piece after the one that named the model. Returns: false when it names another one; the
 * request was refused. */
static bool check_rest(struct pick_session *session) {
    struct error err;
    if (!session->body_scan.for_model || !session->scan->is_repeated) {
        return true;
    }
    (void)!pick_scan_check(session->scan, &err);
    pick_session_refuse(session, &err);
    return false;
}

static void on_body_after_pick(struct pick_session *session,
                               const struct ext_proc_request *message) {
    enum ext_proc_body_mode mode = session->config.request_body;
    if (!check_rest(session)) {
        return;
    }
    if (pick_session_needs_echo(session, mode, message)) {
        pick_session_echo_body(session, message, mode, NULL);
    } else {
        pick_session_send_continue(session, EXT_PROC_REQUEST_BODY);
    }
}

/* ---- body: in slices ------------------------------------------------------------------------- */

/* Decides what the message is scanned for. Returns: as check_model_name. */
static bool begin_scan(struct pick_session *session, const struct ext_proc_request *message) {
    bool is_limited = message->body.len <= session->context.limits.max_body_size;
    bool for_model = true, for_prompt = true;
    switch (session->state) {
    case PICK_HEADERS_HELD:
        break;
    case PICK_BODY_PENDING:
        if (session->needs_model && !check_size(session, message)) {
            return false;
        }
        for_model = for_prompt = is_limited;
        break;
    case PICK_UNCHECKED:
    case PICK_CHECKING:
        if (!begin_overridden_body(session, message)) {
            return false;
        }
        break;
    case PICK_PICKED: /* only for another name; in mode GRPC the message was scanned whole */
        for_model = session->config.request_body != EXT_PROC_BODY_GRPC;
        for_prompt = false;
        break;
    case PICK_HEADERS_EXPECTED:
    case PICK_OBSERVED:
    case PICK_QUEUED:
    case PICK_LOCAL_REPLY:
    case PICK_ENDED:
        for_model = for_prompt = false;
        break;
    }
    session->body_scan.at = 0;
    session->body_scan.for_model = for_model && session->scan;
    session->body_scan.for_prompt = for_prompt && session->prompt;
    return true;
}

static void on_scanned_body(struct pick_session *session, const struct ext_proc_request *message) {
    switch (session->state) {
    case PICK_HEADERS_HELD:
        buffer_body(session, message);
        break;
    case PICK_BODY_PENDING:
        pick_at_buffered_body(session, message);
        break;
    case PICK_UNCHECKED:
    case PICK_CHECKING:
        inspect_overridden_body(session, message);
        break;
    case PICK_PICKED:
        on_body_after_pick(session, message);
        break;
    case PICK_HEADERS_EXPECTED:
    case PICK_OBSERVED:
    case PICK_QUEUED:
    case PICK_LOCAL_REPLY: /* the proxy's own reply is on its way */
    case PICK_ENDED:
        break;
    }
}

void pick_session_scan_body(struct pick_session *session, const struct ext_proc_request *message) {
    bool is_all = scan_slice(session, message);
    while (!is_all && session->context.proxy_keeps_body) { /* its parts are small */
        is_all = scan_slice(session, message);
    }
    if (is_all) {
        on_scanned_body(session, message);
        return;
    }
    struct pick_message_ref *message_ref = pick_session_ref_message(session);
    if (message_ref) {
        message_ref->n_refs++;
        session->body_scan.message_ref = message_ref;
    }
}

/* ---- body and trailers ----------------------------------------------------------------------- */

/* Returns: false when the message is out of order; the stream has ended. */
static bool check_order(struct pick_session *session, const char *ended) {
    if (session->state == PICK_HEADERS_EXPECTED) {
        pick_session_protocol_error(session, "the request's headers must be sent first: the picker "
                                             "needs them (request_header_mode: SEND)");
    } else if (session->request_half == PICK_HALF_ENDED) {
        pick_session_protocol_error(session, ended);
    }
    return session->state != PICK_ENDED;
}

/* Clause: "Endpoint Subset". The subset of the first message holds for the stream. Where the first
 * message has none, a later one counts until the pick. Returns: false when out of memory. */
static bool read_late_subset(struct pick_session *session, const struct ext_proc_request *message) {
    bool late = session->state == PICK_HEADERS_HELD || session->state == PICK_BODY_PENDING;
    struct error err;
    if (!late || session->request->has_hint || message->metadata.len == 0) {
        return true;
    }
    if (pick_request_read_subset(session->arena, &pick_session_spec(session)->protocol, message,
                                 session->request, &err) != ST_OK) {
        pick_session_abort(session, &err);
        return false;
    }
    return true;
}

static void end_request(struct pick_session *session) {
    pick_half_advance(&session->request_half, PICK_HALF_ENDED);
    pool_ticket_request_ended(&session->stages.items[0].ticket);
}

void pick_session_on_body(struct pick_session *session, const struct ext_proc_request *message) {
    if (session->state == PICK_QUEUED) {
        pick_queue_push_message(session);
        return;
    }
    if (!check_order(session, "received a part of the request's body after its end")) {
        return;
    }
    if (message->end_of_stream || message->end_without_message) {
        end_request(session);
    }
    session->n_body_received += message->body.len;
    if (read_late_subset(session, message) && begin_scan(session, message)) {
        pick_session_scan_body(session, message);
    }
}

/* Trailers without the buffered body: a response to trailers cannot carry the pick. */
static void refuse_missing_body(struct pick_session *session) {
    struct error err;
    enum status st = session->scan ? pick_scan_check(session->scan, &err) : ST_OK;
    if (st == ST_OK) {
        error_set(&err, ST_BAD_REQUEST, "the proxy sent the request's trailers without its body");
    }
    pick_session_refuse(session, &err);
}

/* Trailers also end a body that has no end_of_stream. Without a body message there may have been no
 * body; in mode NONE that is unknown. */
void pick_session_on_trailers(struct pick_session *session) {
    if (session->state == PICK_QUEUED) {
        pick_queue_push_message(session);
        return;
    }
    if (!check_order(session, "received the request's trailers after its end")) {
        return;
    }
    if (session->scan && (session->state == PICK_HEADERS_HELD ||
                          session->state == PICK_BODY_PENDING || session->state == PICK_CHECKING)) {
        pick_scan_end(session->scan);
    }
    if (session->state == PICK_HEADERS_HELD) {
        pick_session_pick_and_flush(session);
    } else if (session->state == PICK_CHECKING) {
        check_model_name(session);
    } else if (session->state == PICK_BODY_PENDING) {
        refuse_missing_body(session);
    }
    if (session->state == PICK_QUEUED) { /* they are answered after the headers */
        pick_queue_push_message(session);
        return;
    }
    end_request(session);
    if (pick_session_is_picked(session)) {
        pick_session_send_continue(session, EXT_PROC_REQUEST_TRAILERS);
    }
}
