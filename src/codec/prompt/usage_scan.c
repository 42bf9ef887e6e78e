/* The search for the key skips by memmem; only the objects are read byte by byte. */
#include "codec/prompt/usage_scan.h"

#include <string.h>

enum state {
    SEARCH, /* for the key */
    COLON,  /* after the key */
    VALUE,  /* after the colon */
    OBJECT,
};

enum {
    MAX_OBJECT_BYTES = 4096, /* a longer object is something else */
};
static const uint64_t MAX_NUMBER = UINT64_C(1) << 40;

/* ---- the key --------------------------------------------------------------------------------- */

static struct str needle_of(const struct usage_scan *scan) {
    return scan->format == PROMPT_OF_SGLANG_TOKENS ? STR("\"meta_info\"") : STR("\"usage\"");
}

/* The only border of the key is its quote. */
static uint8_t match_byte(struct str needle, uint8_t n_matched, char c) {
    if (n_matched < needle.len && c == needle.ptr[n_matched]) {
        return (uint8_t)(n_matched + 1);
    }
    return c == '"';
}

/* Returns: the number of bytes up to the end of the key, or all of them where there is none. */
static size_t find_key(struct usage_scan *scan, struct str bytes) {
    size_t at = 0;
    struct str needle = needle_of(scan);
    while (at < bytes.len && scan->n_matched > 0 && scan->n_matched < needle.len) {
        scan->n_matched = match_byte(needle, scan->n_matched, bytes.ptr[at++]);
    }
    if (scan->n_matched == 0 && at < bytes.len) {
        const char *found = memmem(bytes.ptr + at, bytes.len - at, needle.ptr, needle.len);
        if (found) {
            scan->n_matched = (uint8_t)needle.len;
            at = (size_t)(found - bytes.ptr) + needle.len;
        } else {
            at = bytes.len - at < needle.len ? at : bytes.len - needle.len + 1;
            while (at < bytes.len) {
                scan->n_matched = match_byte(needle, scan->n_matched, bytes.ptr[at++]);
            }
        }
    }
    if (scan->n_matched == needle.len) {
        scan->n_matched = 0;
        scan->state = COLON;
    }
    return at;
}

/* ---- the object ------------------------------------------------------------------------------ */

static bool key_is(const struct usage_scan *scan, const char *name) {
    size_t n = strlen(name);
    return scan->n_key == n && memcmp(scan->key, name, n) == 0;
}

static void take_number(struct usage_scan *scan) {
    bool is_own = scan->depth == 1;
    if (is_own && (key_is(scan, "prompt_tokens") || key_is(scan, "input_tokens"))) {
        scan->n_input = scan->number > 0 ? scan->number : scan->n_input;
    } else if (is_own && (key_is(scan, "completion_tokens") || key_is(scan, "output_tokens"))) {
        scan->n_output = scan->number > 0 ? scan->number : scan->n_output;
    } else if (key_is(scan, "cached_tokens") || key_is(scan, "cache_read_input_tokens")) {
        scan->n_cached = scan->number;
        scan->has_cached = true;
    }
    scan->in_number = false;
    scan->n_key = 0;
}

static void scan_string(struct usage_scan *scan, char c) {
    if (scan->is_escaped) {
        scan->is_escaped = false;
    } else if (c == '\\') {
        scan->is_escaped = true;
    } else if (c == '"') {
        scan->in_string = false;
        return;
    }
    if (scan->n_key < USAGE_KEY_BYTES) {
        scan->key[scan->n_key++] = c;
    } else {
        scan->n_key = USAGE_KEY_BYTES + 1;
    }
}

static void scan_number(struct usage_scan *scan, char c) {
    if (!scan->in_number) {
        scan->in_number = true;
        scan->number = 0;
    }
    if (scan->number < MAX_NUMBER) {
        scan->number = scan->number * 10 + (uint64_t)(c - '0');
    }
}

static void scan_object(struct usage_scan *scan, char c) {
    if (scan->in_string) {
        scan_string(scan, c);
        return;
    }
    if (c >= '0' && c <= '9') {
        scan_number(scan, c);
        return;
    }
    if (scan->in_number) {
        take_number(scan);
    }
    if (c == '"') {
        scan->in_string = true;
        scan->n_key = 0;
    } else if (c == '{' || c == '[') {
        scan->depth++;
    } else if (c == '}' || c == ']') {
        scan->depth--;
    }
    if (scan->depth == 0) {
        scan->state = SEARCH;
    }
}

/* ---- vLLM's gRPC responses ------------------------------------------------------------------- */

enum { RESPONSE, STREAM_CHUNK, COMPLETE };           /* messages */
enum { INPUT_TOKENS, OUTPUT_TOKENS, CACHED_TOKENS }; /* fields */

static const struct grpc_walk_field GENERATE[] = {
    {RESPONSE, GRPC_FIELD_MESSAGE, STREAM_CHUNK, 1},
    {RESPONSE, GRPC_FIELD_MESSAGE, COMPLETE, 2},
    {STREAM_CHUNK, GRPC_FIELD_NUMBER, INPUT_TOKENS, 2},
    {STREAM_CHUNK, GRPC_FIELD_NUMBER, OUTPUT_TOKENS, 3},
    {STREAM_CHUNK, GRPC_FIELD_NUMBER, CACHED_TOKENS, 4},
    {COMPLETE, GRPC_FIELD_NUMBER, INPUT_TOKENS, 3},
    {COMPLETE, GRPC_FIELD_NUMBER, OUTPUT_TOKENS, 4},
    {COMPLETE, GRPC_FIELD_NUMBER, CACHED_TOKENS, 5},
};
static const struct grpc_walk_field EMBED[] = {{RESPONSE, GRPC_FIELD_NUMBER, INPUT_TOKENS, 2}};

static void on_number(void *user, uint8_t id, uint64_t number) {
    struct usage_scan *scan = user;
    number = number < MAX_NUMBER ? number : MAX_NUMBER;
    if (id == CACHED_TOKENS) {
        scan->n_cached = number;
        scan->has_cached = true;
    } else if (id == INPUT_TOKENS && number > 0) {
        scan->n_input = number;
        scan->has_cached |= scan->format == PROMPT_OF_VLLM_GENERATE; /* 0 is not sent */
    } else if (id == OUTPUT_TOKENS && number > 0) {
        scan->n_output = number;
    }
}

static void feed_grpc(struct usage_scan *scan, struct str bytes) {
    const struct grpc_walk_callbacks callbacks = {.on_number = on_number, .user = scan};
    if (!scan->walk.fields) {
        bool is_embed = scan->format == PROMPT_OF_VLLM_EMBED;
        grpc_walk_init(&scan->walk, is_embed ? EMBED : GENERATE,
                       is_embed ? 1 : sizeof(GENERATE) / sizeof(*GENERATE), true);
    }
    (void)grpc_walk_feed(&scan->walk, bytes, &callbacks);
}

/* ---- chunks ---------------------------------------------------------------------------------- */

static bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void begin_object(struct usage_scan *scan) {
    scan->state = OBJECT;
    scan->depth = 1;
    scan->n_scanned = scan->n_key = 0;
    scan->in_string = scan->is_escaped = scan->in_number = false;
}

/* A byte after the key. */
static void scan_byte(struct usage_scan *scan, char c) {
    if (scan->state == OBJECT) {
        scan_object(scan, c);
        if (++scan->n_scanned >= MAX_OBJECT_BYTES) {
            scan->state = SEARCH;
        }
    } else if (scan->state == COLON && c == ':') {
        scan->state = VALUE;
    } else if (scan->state == VALUE && c == '{') {
        begin_object(scan);
    } else if (!is_space(c)) {
        scan->state = SEARCH;
    }
}

void usage_scan_feed(struct usage_scan *scan, struct str bytes) {
    size_t at = 0;
    if (scan->format == PROMPT_OF_VLLM_GENERATE || scan->format == PROMPT_OF_VLLM_EMBED) {
        feed_grpc(scan, bytes);
        return;
    }
    if (bytes.len > USAGE_SCAN_BYTES) {
        at = bytes.len - USAGE_SCAN_BYTES;
        scan->state = SEARCH;
        scan->n_matched = 0;
    }
    while (at < bytes.len) {
        if (scan->state == SEARCH) {
            at += find_key(scan, str_make(bytes.ptr + at, bytes.len - at));
        } else {
            scan_byte(scan, bytes.ptr[at++]);
        }
    }
}
