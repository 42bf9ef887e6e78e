/* The fields that say something of the prompt. */
#include "codec/prompt/prompt_grpc.h"

/* Messages. */
enum { REQUEST, TOKENIZED, SAMPLING, MEDIA_INPUTS };
/* Fields, for the callbacks. */
enum { TEXT, TOKEN, MAX_TOKENS, STREAMED, MEDIA_HASH, JSON };

static const struct grpc_walk_field GENERATE[] = {
    {REQUEST, GRPC_FIELD_MESSAGE, TOKENIZED, 2},    {REQUEST, GRPC_FIELD_BYTES, TEXT, 3},
    {REQUEST, GRPC_FIELD_MESSAGE, SAMPLING, 4},     {REQUEST, GRPC_FIELD_NUMBER, STREAMED, 5},
    {REQUEST, GRPC_FIELD_MESSAGE, MEDIA_INPUTS, 7}, {TOKENIZED, GRPC_FIELD_NUMBER, TOKEN, 2},
    {SAMPLING, GRPC_FIELD_NUMBER, MAX_TOKENS, 8},   {MEDIA_INPUTS, GRPC_FIELD_BYTES, MEDIA_HASH, 6},
};
static const struct grpc_walk_field EMBED[] = {
    {REQUEST, GRPC_FIELD_MESSAGE, TOKENIZED, 2},
    {TOKENIZED, GRPC_FIELD_NUMBER, TOKEN, 2},
};
enum { HTTP_BODY = 1 };
static const struct grpc_walk_field VERTEX[] = {
    {REQUEST, GRPC_FIELD_MESSAGE, HTTP_BODY, 2},
    {HTTP_BODY, GRPC_FIELD_BYTES, JSON, 2},
};

static const struct {
    const struct grpc_walk_field *fields;
    size_t n;
    const char *message;
} FORMATS[] = {
    [PROMPT_OF_VLLM_GENERATE] = {GENERATE, sizeof(GENERATE) / sizeof(*GENERATE), "GenerateRequest"},
    [PROMPT_OF_VLLM_EMBED] = {EMBED, sizeof(EMBED) / sizeof(*EMBED), "EmbedRequest"},
    [PROMPT_OF_VERTEX] = {VERTEX, sizeof(VERTEX) / sizeof(*VERTEX), "request with an HttpBody"},
};

void prompt_grpc_init(struct prompt_grpc *grpc, struct prompt_scan *scan, struct arena *arena) {
    *grpc = (struct prompt_grpc){.scan = scan};
    grpc_walk_init(&grpc->walk, FORMATS[scan->format].fields, FORMATS[scan->format].n, false);
    model_scan_init(&grpc->model, arena);
}

static void on_bytes(void *user, uint8_t id, struct str bytes, bool ended) {
    struct prompt_grpc *grpc = user;
    struct prompt_scan *scan = grpc->scan;
    switch (id) {
    case TEXT:
        grpc->has_input = true;
        prompt_scan_add_text(scan, bytes);
        break;
    case MEDIA_HASH:
        prompt_scan_add_hash(scan, bytes, ended);
        break;
    case JSON:
        grpc->has_input = true;
        (void)prompt_scan_feed(scan, bytes);
        (void)model_scan_feed(&grpc->model, bytes);
        break;
    default:
        break;
    }
}

static void on_number(void *user, uint8_t id, uint64_t number) {
    struct prompt_grpc *grpc = user;
    struct prompt_scan *scan = grpc->scan;
    switch (id) {
    case TOKEN:
        grpc->has_input = true;
        prompt_scan_add_token(scan, (uint32_t)number); /* as protobuf: the lower 32 bits */
        break;
    case MAX_TOKENS:
        scan->max_tokens = (uint32_t)number;
        break;
    case STREAMED:
        scan->is_streamed = number != 0;
        break;
    default:
        break;
    }
}

enum prompt_scan_result prompt_grpc_feed(struct prompt_grpc *grpc, struct str chunk) {
    struct prompt_scan *scan = grpc->scan;
    struct grpc_walk_callbacks callbacks = {on_bytes, on_number, grpc};
    if (grpc->walk.result != GRPC_WALK_MORE) {
        return scan->result;
    }
    enum grpc_walk_result result = grpc_walk_feed(&grpc->walk, chunk, &callbacks);
    if (scan->result == PROMPT_SCAN_MORE && result != GRPC_WALK_MORE) {
        bool is_whole = result == GRPC_WALK_END && scan->format != PROMPT_OF_VERTEX;
        scan->result = is_whole ? PROMPT_SCAN_END : PROMPT_SCAN_NONE;
    }
    return scan->result;
}

enum status prompt_grpc_check(const struct prompt_grpc *grpc, bool ended, struct error *err) {
    const struct grpc_walk *walk = &grpc->walk;
    const char *message = FORMATS[grpc->scan->format].message;
    bool is_vertex = grpc->scan->format == PROMPT_OF_VERTEX;
    if (walk->result == GRPC_WALK_COMPRESSED) {
        return error_set(err, ST_UNKNOWN_ENCODING,
                         "expected an uncompressed message: its prompt can't be read");
    }
    if (walk->result == GRPC_WALK_MALFORMED) {
        return error_set(err, ST_BAD_REQUEST, "this is not a %s: %s", message, walk->error_text);
    }
    if (walk->result == GRPC_WALK_MORE && ended) {
        return error_set(err, ST_BAD_REQUEST, "this is not a %s: it ends too early", message);
    }
    if (walk->result == GRPC_WALK_END && !grpc->has_input) {
        return error_set(err, ST_BAD_FIELD, "%s",
                         is_vertex ? "http_body: expected one with data, got none"
                         : grpc->scan->format == PROMPT_OF_VLLM_EMBED
                             ? "tokenized: expected token ids, got none"
                             : "input: expected text or token ids, got neither");
    }
    return is_vertex ? prompt_scan_check(grpc->scan, walk->result == GRPC_WALK_END, err) : ST_OK;
}
