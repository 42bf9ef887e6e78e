/* The prompt of a request, for profiles that want to know how it begins. What is seen of a body for
 * its model is looked at for the prompt as well; only where a profile asks for it is a body waited
 * for that nobody else needs. It never refuses anything: a request without a prompt that can be
 * read is picked for without it. */
#include "codec/prompt/prompt_scan.h"
#include "core/base/num.h"
#include "pick/session/state.h"

struct pick_prompt {
    struct prompt_scan scan;
    struct pool_prompt of_pool;
    bool waits;      /* the pick does, for it */
    uint64_t n_seen; /* bytes of the body */
};

enum {
    BYTES_PER_TOKEN = 4,
    MAX_TOKENS = 1 << 30,
    MAX_BYTES_HELD_FOR_PROMPT = 1 << 20, /* of a body that is held for its prompt's sake alone */
};

/* ---- headers --------------------------------------------------------------------------------- */

/* One that is looked into for the prompt alone is not looked into past the limit. */
static bool is_within_body_limit(const struct pick_session *session) {
    uint64_t length;
    return !num_parse_u64(pick_session_request(session)->content_length, &length) ||
           length <= session->context.limits.max_body_size;
}

/* Nobody else may have looked at the path. What is wrong with it is for its server to say. */
static bool has_prompt_path(const struct pick_session *session) {
    const struct pick_request *request = pick_session_request(session);
    struct model_location where;
    struct error err;
    return session->model_path.kind == MODEL_LOCATION_JSON_BODY ||
           (session->model_path.kind == MODEL_LOCATION_NONE &&
            model_location_parse(session->arena, request->method, request->path, &where, &err) ==
                ST_OK &&
            where.kind == MODEL_LOCATION_JSON_BODY);
}

bool pick_session_start_prompt_scan(struct pick_session *session) {
    const struct pool_request_needs *needs = pool_request_needs(session->context.reader);
    enum ext_proc_body_mode mode = session->config.request_body;
    bool is_shown = pick_mode_is_duplex(mode) || pick_mode_is_buffered(mode);
    bool waits = needs->body && (mode != EXT_PROC_BODY_BUFFERED || is_within_body_limit(session));
    if (!needs->prompt || !is_shown || session->request_ended ||
        pick_session_request(session)->encoding.ptr || !(waits || session->needs_model) ||
        !has_prompt_path(session)) {
        return false;
    }
    session->prompt = arena_calloc(session->arena, 1, sizeof(*session->prompt));
    if (session->prompt) {
        session->prompt->waits = waits;
        session->prompt->of_pool.arena = session->arena;
        prompt_scan_init(&session->prompt->scan, session->arena,
                         (size_t)needs->blocks.block_bytes * needs->blocks.most);
    }
    return session->prompt && waits;
}

/* ---- the body -------------------------------------------------------------------------------- */

bool pick_session_scan_prompt(struct pick_session *session, struct str bytes) {
    struct pick_prompt *prompt = session->prompt;
    if (!prompt) {
        return true;
    }
    bool more = prompt_scan_feed(&prompt->scan, bytes) == PROMPT_SCAN_MORE;
    prompt->n_seen += bytes.len;
    return !prompt->waits || !more || prompt_scan_is_full(&prompt->scan);
}

bool pick_session_is_prompt_limit_reached(const struct pick_session *session) {
    const struct pick_prompt *prompt = session->prompt;
    return prompt && !session->needs_model && prompt->n_seen >= MAX_BYTES_HELD_FOR_PROMPT;
}

/* ---- the pick -------------------------------------------------------------------------------- */

struct pool_prompt *pick_session_get_prompt(struct pick_session *session) {
    struct pick_prompt *prompt = session->prompt;
    if (!prompt || prompt->scan.result == PROMPT_SCAN_NONE) {
        return NULL;
    }
    prompt->of_pool.system = buf_str(&prompt->scan.system);
    prompt->of_pool.text = buf_str(&prompt->scan.text);
    return &prompt->of_pool;
}

uint64_t pick_session_prompt_bytes(const struct pick_session *session) {
    const struct pick_prompt *prompt = session->prompt;
    return prompt ? prompt->scan.system.cap + prompt->scan.text.cap +
                        prompt->of_pool.cap * sizeof(*prompt->of_pool.hashes)
                  : 0;
}

void pick_session_record_moved_prompt(struct pick_session *session) {
    if (session->prompt) {
        pool_prompt_record_moved(session->context.reader, &session->prompt->of_pool,
                                 session->ticket.endpoint);
    }
}

/* Of a prompt that was not seen to its end the body's length says more. Tokens of lists have some
 * four digits as well. */
uint32_t pick_session_estimate_tokens(const struct pick_session *session) {
    const struct prompt_scan *scan = session->prompt ? &session->prompt->scan : NULL;
    bool is_all = scan && scan->result == PROMPT_SCAN_END;
    uint64_t length, n = scan ? scan->n_bytes / BYTES_PER_TOKEN + scan->n_tokens : 0;
    if (!is_all && num_parse_u64(pick_session_request(session)->content_length, &length)) {
        n = length / BYTES_PER_TOKEN > n ? length / BYTES_PER_TOKEN : n;
    }
    n += scan ? scan->max_tokens : 0;
    return (uint32_t)(n < MAX_TOKENS ? n : MAX_TOKENS);
}
