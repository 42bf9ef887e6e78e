/* A state machine over the JSON grammar, with a small stack of the objects and lists that
 * contain prompt text. All other values are skipped. */
#include "codec/prompt/prompt_scan.h"

#include <string.h>

/* Written before a message, before its role and after a text of a list, and before a hash. */
static const char MESSAGE_MARK = '\x02', TEXT_MARK = '\x03', MEDIA_MARK = '\x04';

/* A picture takes hundreds of tokens of a model's context: this stands for it, and for each further
 * part of MEDIA_STEP_BYTES, so that a long one counts before it has ended. */
enum { MEDIA_TEXT_BYTES = 1024, MEDIA_STEP_BYTES = 128 << 10 };

enum state {
    BEFORE_OBJECT,
    FIRST_KEY, /* or the object's end */
    NEXT_KEY,
    IN_KEY,
    BEFORE_COLON,
    BEFORE_VALUE,
    FIRST_ITEM, /* or the list's end */
    IN_TEXT,
    IN_WORD,
    IN_OTHER, /* a skipped value */
    AFTER_VALUE,
};

/* The meaning of a value by its position; for an object or a list, that of its values. */
enum meaning {
    OTHER,
    BODY,
    PROMPT,
    MESSAGES,
    MESSAGE,
    CONTENT,
    PART,
    ROLE,
    TEXT,
    WANTED,
    SYSTEM,
    MEDIA,
    VLLM_BODY,
    SGLANG_BODY,
    SAMPLING,
    FEATURES,
    HASHES, /* an object of lists of hashes of media */
    HASH,
    SALT,
    STREAMED,
};

void prompt_scan_init(struct prompt_scan *scan, struct arena *arena, size_t max_bytes) {
    *scan = (struct prompt_scan){.result = PROMPT_SCAN_MORE,
                                 .max_bytes = max_bytes,
                                 .image_bytes = MEDIA_TEXT_BYTES,
                                 .video_bytes = MEDIA_TEXT_BYTES,
                                 .may_have_system = true};
    buf_init(&scan->system, arena, 0);
    buf_init(&scan->text, arena, 0);
}

static void fail_scan(struct prompt_scan *scan) {
    scan->result = PROMPT_SCAN_NONE;
}

/* ---- collected text -------------------------------------------------------------------------- */

static void append_bounded(struct prompt_scan *scan, const char *bytes, size_t n_bytes) {
    struct buf *to = scan->in_system ? &scan->system : &scan->text;
    size_t n_taken = scan->in_system ? scan->n_system : scan->n_text;
    size_t capacity = scan->max_bytes - n_taken - to->len;
    buf_add(to, bytes, n_bytes < capacity ? n_bytes : capacity);
    if (to->failed) {
        fail_scan(scan);
    }
}

struct str prompt_scan_take(struct prompt_scan *scan, bool system) {
    struct buf *of = system ? &scan->system : &scan->text;
    size_t *n_taken = system ? &scan->n_system : &scan->n_text;
    struct str taken = buf_str(of);
    *n_taken += of->len;
    of->len = 0;
    return taken;
}

/* Decodes bytes of a string as long as they are simple ones, and as far as text is collected.
 * Returns: the next byte to scan. */
static const char *append_run(struct prompt_scan *scan, const char *at, const char *end) {
    struct buf *to = scan->in_system ? &scan->system : &scan->text;
    size_t n_taken = scan->in_system ? scan->n_system : scan->n_text;
    size_t room = scan->max_bytes - n_taken - to->len, n = (size_t)(end - at);
    n = n < room ? n : room;
    char *out = n > 0 ? buf_reserve(to, n + JSON_RUN_SLACK) : NULL;
    if (!out) {
        scan->result = to->failed ? PROMPT_SCAN_NONE : scan->result;
        return at;
    }
    at = json_string_decode_run(at, at + n, out, &n);
    buf_advance(to, n);
    scan->n_bytes += n;
    scan->has_required |= scan->in_required && n > 0;
    return at;
}

static void append_text(struct prompt_scan *scan, const char *bytes, size_t n_bytes) {
    append_bounded(scan, bytes, n_bytes);
    scan->n_bytes += n_bytes;
}

/* ---- meanings -------------------------------------------------------------------------------- */

static uint8_t frame_of(const struct prompt_scan *scan) {
    return scan->depth > 0 ? scan->frames[scan->depth - 1] : OTHER;
}

/* By the key of a part, or of a list of hashes. */
static uint8_t media_kind_of(struct str key) {
    static const struct {
        const char *key;
        enum prompt_media kind;
    } rows[] = {{"image_url", PROMPT_MEDIA_IMAGE},   {"source", PROMPT_MEDIA_IMAGE},
                {"image", PROMPT_MEDIA_IMAGE},       {"video_url", PROMPT_MEDIA_VIDEO},
                {"video", PROMPT_MEDIA_VIDEO},       {"audio_url", PROMPT_MEDIA_AUDIO},
                {"input_audio", PROMPT_MEDIA_AUDIO}, {"audio", PROMPT_MEDIA_AUDIO}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        if (str_is(key, rows[i].key)) {
            return (uint8_t)rows[i].kind;
        }
    }
    return PROMPT_MEDIA_OTHER;
}

/* Of the object that has the URL or the data, as `{"url": …, "detail": "low"}`. */
static bool is_aside_key(struct str key) {
    return str_is(key, "detail") || str_is(key, "type") || str_is(key, "media_type") ||
           str_is(key, "filename");
}

static enum meaning meaning_of_key(struct prompt_scan *scan) {
    static const struct {
        enum meaning in;
        const char *key;
        enum meaning value;
    } rows[] = {{BODY, "prompt", PROMPT},
                {BODY, "messages", MESSAGES},
                {BODY, "input", MESSAGES},
                {BODY, "system", SYSTEM},
                {BODY, "instructions", SYSTEM},
                {BODY, "max_tokens", WANTED},
                {BODY, "max_completion_tokens", WANTED},
                {BODY, "max_output_tokens", WANTED},
                {BODY, "items", MESSAGES},
                {BODY, "stream", STREAMED},
                {BODY, "cache_salt", SALT},
                {VLLM_BODY, "token_ids", PROMPT},
                {VLLM_BODY, "sampling_params", SAMPLING},
                {VLLM_BODY, "features", FEATURES},
                {VLLM_BODY, "stream", STREAMED},
                {VLLM_BODY, "cache_salt", SALT},
                {SGLANG_BODY, "input_ids", PROMPT},
                {SGLANG_BODY, "sampling_params", SAMPLING},
                {SGLANG_BODY, "stream", STREAMED},
                {SGLANG_BODY, "extra_key", SALT},
                {SAMPLING, "max_tokens", WANTED},
                {SAMPLING, "max_new_tokens", WANTED},
                {FEATURES, "mm_hashes", HASHES},
                {MESSAGE, "role", ROLE},
                {MESSAGE, "content", CONTENT},
                {PART, "text", TEXT},
                {PART, "image_url", MEDIA},
                {PART, "source", MEDIA},
                {PART, "input_audio", MEDIA},
                {PART, "audio_url", MEDIA},
                {PART, "video_url", MEDIA},
                {PART, "image", MEDIA},
                {PART, "file", MEDIA},
                {PART, "file_id", MEDIA},
                {PART, "file_data", MEDIA},
                {PART, "file_url", MEDIA}};
    bool fits = scan->n_key <= sizeof(scan->key);
    struct str key = fits ? str_make(scan->key, scan->n_key) : STR(""); /* which is no row's */
    if (frame_of(scan) == MEDIA) {
        scan->is_aside = is_aside_key(key);
        return MEDIA;
    }
    scan->is_aside = false;
    if (frame_of(scan) == HASHES) {
        scan->media_kind = media_kind_of(scan->n_key <= sizeof(scan->key) ? key : STR(""));
        return HASH;
    }
    scan->in_required = frame_of(scan) == BODY && scan->required.ptr && str_eq(key, scan->required);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        if (rows[i].in == frame_of(scan) && str_is(key, rows[i].key)) {
            if (rows[i].value == MEDIA) {
                scan->media_kind = media_kind_of(key);
            }
            if (!scan->may_have_system) { /* `input` is that of embeddings */
                return rows[i].value == SYSTEM ? OTHER
                       : str_is(key, "input")  ? PROMPT
                                               : rows[i].value;
            }
            return rows[i].value;
        }
    }
    return OTHER;
}

/* The meaning of an item of the open list. */
static enum meaning meaning_of_item(const struct prompt_scan *scan) {
    uint8_t frame = frame_of(scan);
    switch ((int)frame) {
    case PROMPT:
    case HASH:
        return (enum meaning)frame;
    case MESSAGES:
        return MESSAGE;
    case CONTENT:
    case SYSTEM:
        return PART;
    default:
        return OTHER;
    }
}

static bool is_list(uint8_t frame) {
    return frame == PROMPT || frame == MESSAGES || frame == CONTENT || frame == SYSTEM ||
           frame == HASH;
}

/* ---- values ---------------------------------------------------------------------------------- */

static void push_frame(struct prompt_scan *scan, uint8_t frame) {
    scan->frames[scan->depth++] = frame;
    scan->state = is_list(frame) ? FIRST_ITEM : FIRST_KEY;
    if (frame == MESSAGE) {
        append_bounded(scan, &MESSAGE_MARK, 1);
        scan->n_role = 0;
    } else if (frame == PART) {
        scan->media_sum = scan->item_sum = 0;
    }
}

/* A text of `n_bytes`, of which what is beyond the limit is only counted. */
static void append_media(struct prompt_scan *scan, uint64_t hash, size_t n_bytes) {
    char text[MEDIA_TEXT_BYTES];
    size_t n_before =
        scan->in_system ? prompt_scan_system_bytes(scan) : prompt_scan_text_bytes(scan);
    if (n_before >= scan->max_bytes) {
        scan->n_bytes += n_bytes;
        return;
    }
    for (size_t i = 0; i < sizeof(text); i++) {
        text[i] = (char)(unsigned char)(hash >> i % sizeof(hash) * 8);
    }
    text[0] = MEDIA_MARK;
    scan->n_bytes += n_bytes;
    n_bytes = n_bytes < scan->max_bytes - n_before ? n_bytes : scan->max_bytes - n_before;
    for (; n_bytes > 0 && scan->result == PROMPT_SCAN_MORE;) {
        size_t n = n_bytes < sizeof(text) ? n_bytes : sizeof(text);
        append_bounded(scan, text, n);
        n_bytes -= n;
    }
}

/* ---- media ----------------------------------------------------------------------------------- */

static void list_item(struct prompt_scan *scan, uint64_t hash) {
    if (!scan->lists_items || hash == 0) {
        return;
    }
    for (uint32_t i = 0; i < scan->n_items; i++) {
        if (scan->items[i] == hash) {
            return;
        }
    }
    if (scan->n_items == scan->items_cap) {
        uint32_t cap = scan->items_cap > 0 ? scan->items_cap * 2 : 8;
        uint64_t *items = cap <= PROMPT_SCAN_MAX_ITEMS
                              ? arena_alloc_array(scan->text.arena, cap, sizeof(*items) + 1)
                              : NULL;
        if (!items) { /* the limit, or no memory: further ones do not count */
            return;
        }
        uint8_t *kinds = (uint8_t *)(items + cap);
        for (uint32_t i = 0; i < scan->n_items; i++) {
            items[i] = scan->items[i];
            kinds[i] = scan->item_kinds[i];
        }
        scan->items = items;
        scan->item_kinds = kinds;
        scan->items_cap = cap;
    }
    scan->item_kinds[scan->n_items] = scan->media_kind;
    scan->items[scan->n_items++] = hash;
}

static void pop_frame(struct prompt_scan *scan) {
    if (frame_of(scan) == MESSAGE) {
        /* after the content, wherever it was: the members of a message have no order */
        append_bounded(scan, &TEXT_MARK, 1);
        append_text(scan, scan->role, scan->n_role);
    } else if (frame_of(scan) == PART && scan->media_sum != 0) {
        uint8_t kind = scan->media_kind;
        append_media(scan, scan->media_sum,
                     kind == PROMPT_MEDIA_IMAGE   ? scan->image_bytes
                     : kind == PROMPT_MEDIA_VIDEO ? scan->video_bytes
                                                  : MEDIA_TEXT_BYTES);
        list_item(scan, scan->item_sum);
    }
    scan->depth--;
    scan->state = AFTER_VALUE;
    if (scan->depth == 0) {
        scan->result = PROMPT_SCAN_END;
    }
}

static const uint64_t MEDIA_SEED = UINT64_C(0xcbf29ce484222325);

static void begin_text(struct prompt_scan *scan, enum state state) {
    scan->string = (struct json_string_decoder){.code = 0};
    scan->n_key = 0;
    scan->state = (uint8_t)state;
    if (state == IN_TEXT && scan->value == ROLE) {
        scan->n_role = 0;
    }
    scan->has_media |= scan->value == MEDIA || scan->value == HASH;
    scan->media = MEDIA_SEED ^ scan->media_seed;
    scan->media_word = 0;
    scan->n_media = 0;
}

/* Eight bytes at a time, wherever the chunks are cut. */
static void add_media_word(struct prompt_scan *scan, uint64_t word) {
    uint64_t mixed = (scan->media ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    scan->media = mixed ^ mixed >> 29;
}

static void add_media_byte(struct prompt_scan *scan, char c) {
    scan->media_word = scan->media_word << 8 | (unsigned char)c;
    if (++scan->n_media % sizeof(scan->media_word) == 0) {
        add_media_word(scan, scan->media_word);
        scan->media_word = 0;
    }
    if (scan->n_media % MEDIA_STEP_BYTES == 0 && scan->value == MEDIA) {
        append_media(scan, scan->media, MEDIA_TEXT_BYTES);
    }
}

static void add_media(struct prompt_scan *scan, const char *bytes, size_t n_bytes) {
    size_t i = 0;
    while (i < n_bytes) {
        bool aligned = scan->n_media % sizeof(scan->media_word) == 0;
        uint64_t room = MEDIA_STEP_BYTES - scan->n_media % MEDIA_STEP_BYTES;
        size_t n = n_bytes - i < room - 1 ? n_bytes - i : (size_t)room - 1, before = i;
        for (; aligned && i + sizeof(uint64_t) <= before + n; i += sizeof(uint64_t)) {
            uint64_t word;
            memcpy(&word, bytes + i, sizeof(word));
            add_media_word(scan, __builtin_bswap64(word));
            scan->n_media += sizeof(word);
        }
        if (i < n_bytes) {
            add_media_byte(scan, bytes[i++]);
        }
    }
}

static bool is_text(uint8_t meaning) {
    return meaning == PROMPT || meaning == CONTENT || meaning == PART || meaning == ROLE ||
           meaning == TEXT || meaning == SYSTEM || meaning == MEDIA || meaning == MESSAGES ||
           meaning == HASH || meaning == SALT;
}

/* Only hashes of these strings are kept. */
static bool is_hashed(uint8_t meaning) {
    return meaning == MEDIA || meaning == HASH || meaning == SALT;
}

static bool is_scanned_container(const struct prompt_scan *scan, char c) {
    bool is_object = scan->value == MESSAGE || scan->value == PART || scan->value == MEDIA ||
                     scan->value == SAMPLING || scan->value == FEATURES || scan->value == HASHES;
    bool wanted = c == '[' ? is_list(scan->value) : is_object;
    return wanted && scan->depth < PROMPT_SCAN_MAX_DEPTH;
}

/* Is the literal an item of a token list? */
static bool is_token(const struct prompt_scan *scan) {
    return frame_of(scan) == PROMPT;
}

static void begin_word(struct prompt_scan *scan, char c) {
    scan->state = IN_WORD;
    scan->number = c >= '0' && c <= '9' ? (uint64_t)(c - '0') : UINT64_MAX;
    scan->is_true = c == 't';
}

/* ---- what servers refuse --------------------------------------------------------------------- */

static bool is_of_tokens(const struct prompt_scan *scan) {
    return scan->format == PROMPT_OF_VLLM_TOKENS || scan->format == PROMPT_OF_SGLANG_TOKENS;
}

static bool is_body(uint8_t frame) {
    return frame == BODY || frame == VLLM_BODY || frame == SGLANG_BODY;
}

static void set_error(struct prompt_scan *scan, const char *text) {
    scan->error_text = scan->error_text ? scan->error_text : text;
}

static const char *token_error(const struct prompt_scan *scan) {
    switch ((int)scan->format) {
    case PROMPT_OF_VLLM_TOKENS:
        return "token_ids: expected a list of whole numbers from 0 to 4294967295";
    case PROMPT_OF_SGLANG_TOKENS:
        return "input_ids: expected a list of whole numbers from 0 to 4294967295";
    default:
        return "prompt: expected a text, or a list of texts or of token ids";
    }
}

/* A value of the body, or an item of a list of tokens, begins with this character. */
static void check_begin(struct prompt_scan *scan, char c) {
    bool is_tokens = is_of_tokens(scan) && scan->value == PROMPT;
    if (is_tokens && (c != '[' || frame_of(scan) == PROMPT) && !json_is_literal_char(c)) {
        set_error(scan, token_error(scan));
    }
    if (is_tokens && is_body(frame_of(scan)) && json_is_literal_char(c) && c != 'n') {
        set_error(scan, token_error(scan));
    }
    if (scan->value == SALT && c != '"' && c != 'n') {
        set_error(scan, scan->format == PROMPT_OF_SGLANG_TOKENS ? "extra_key: expected a text"
                                                                : "cache_salt: expected a text");
    }
    /* an empty list or text of another member than "input" is none */
    scan->has_required |=
        scan->in_required && is_body(frame_of(scan)) && c != 'n' && str_is(scan->required, "input");
}

enum status prompt_scan_check(const struct prompt_scan *scan, bool ended, struct error *err) {
    const char *name = scan->format == PROMPT_OF_VLLM_TOKENS ? "token_ids" : "input_ids";
    if (scan->error_text) {
        return error_set(err, ST_BAD_FIELD, "%s", scan->error_text);
    }
    if (scan->result == PROMPT_SCAN_NONE || (scan->result == PROMPT_SCAN_MORE && ended)) {
        return error_set(err, ST_BAD_JSON,
                         "the request body is not a JSON object, or it is cut off");
    }
    if (scan->result == PROMPT_SCAN_END && is_of_tokens(scan) && scan->n_tokens == 0) {
        return error_set(err, ST_BAD_FIELD, "%s: expected a list of token ids, got none", name);
    }
    if (scan->result == PROMPT_SCAN_END && scan->required.ptr && !scan->has_required) {
        return error_set(err, ST_BAD_FIELD, "%.*s: expected a value, got none",
                         STR_ARG(scan->required));
    }
    return ST_OK;
}

static void begin_value(struct prompt_scan *scan, char c) {
    check_begin(scan, c);
    if (frame_of(scan) == BODY) {
        scan->in_system = scan->value == SYSTEM;
    }
    if (c == '"' && is_text(scan->value)) {
        begin_text(scan, IN_TEXT);
    } else if ((c == '{' || c == '[') && is_scanned_container(scan, c)) {
        push_frame(scan, scan->value);
    } else if (c == '"' || c == '{' || c == '[') {
        json_skip_init(&scan->skip, c);
        scan->state = IN_OTHER;
    } else if (json_is_literal_char(c)) {
        begin_word(scan, c);
    } else {
        fail_scan(scan);
    }
}

static void end_hash(struct prompt_scan *scan) {
    add_media_word(scan, scan->media_word);
    add_media_word(scan, scan->n_media);
}

static void end_text(struct prompt_scan *scan) {
    scan->state = AFTER_VALUE;
    if (is_hashed(scan->value)) {
        end_hash(scan);
    }
    if (scan->value == SALT) {
        scan->salt = scan->media;
    } else if (scan->value == HASH) {
        list_item(scan, scan->media);
    } else if (scan->value == MEDIA) {
        /* strings of a part have no order, either */
        scan->media_sum += scan->media;
        scan->item_sum += scan->is_aside ? 0 : scan->media;
    } else if (frame_of(scan) == PROMPT) {
        append_bounded(scan, &TEXT_MARK, 1);
    }
}

void prompt_scan_add_hash(struct prompt_scan *scan, struct str bytes, bool ended) {
    if (scan->value != HASH) {
        scan->value = HASH;
        scan->media_kind = PROMPT_MEDIA_IMAGE; /* the message has no other */
        begin_text(scan, IN_TEXT);
    }
    add_media(scan, bytes.ptr, bytes.len);
    if (ended) {
        end_hash(scan);
        list_item(scan, scan->media);
        scan->value = OTHER;
    }
}

void prompt_scan_add_text(struct prompt_scan *scan, struct str bytes) {
    append_text(scan, bytes.ptr, bytes.len);
}

/* ---- strings --------------------------------------------------------------------------------- */

static void add_to_key(struct prompt_scan *scan, const char *bytes, size_t n_bytes) {
    for (size_t i = 0; i < n_bytes && scan->n_key <= sizeof(scan->key); i++) {
        if (scan->n_key < sizeof(scan->key)) {
            scan->key[scan->n_key] = bytes[i];
        }
        scan->n_key++;
    }
}

static void add_to_text(struct prompt_scan *scan, const char *bytes, size_t n_bytes) {
    scan->has_required |= scan->in_required && n_bytes > 0;
    if (is_hashed(scan->value)) {
        add_media(scan, bytes, n_bytes);
    } else if (scan->value == ROLE) {
        size_t room = sizeof(scan->role) - scan->n_role;
        memcpy(scan->role + scan->n_role, bytes, n_bytes < room ? n_bytes : room);
        scan->n_role = (uint8_t)(scan->n_role + (n_bytes < room ? n_bytes : room));
    } else {
        append_text(scan, bytes, n_bytes);
    }
}

static void scan_string_byte(struct prompt_scan *scan, char c) {
    bool is_key = scan->state == IN_KEY;
    switch (json_string_decoder_feed(&scan->string, c)) {
    case JSON_STRING_BYTES:
        if (is_key) {
            add_to_key(scan, scan->string.out, scan->string.n_out);
        } else {
            add_to_text(scan, scan->string.out, scan->string.n_out);
        }
        break;
    case JSON_STRING_END:
        if (is_key) {
            scan->value = (uint8_t)meaning_of_key(scan);
            scan->state = BEFORE_COLON;
        } else {
            end_text(scan);
        }
        break;
    case JSON_STRING_INVALID:
        fail_scan(scan);
        break;
    }
}

/* ---- literals -------------------------------------------------------------------------------- */

static void scan_after_value(struct prompt_scan *scan, char c);

void prompt_scan_add_token(struct prompt_scan *scan, uint32_t id) {
    const char bytes[] = {(char)(unsigned char)id, (char)(unsigned char)(id >> 8),
                          (char)(unsigned char)(id >> 16), (char)(unsigned char)(id >> 24)};
    append_bounded(scan, bytes, sizeof(bytes));
    scan->n_tokens++;
}

/* Ends a literal: max_tokens, or a token id. */
static void end_word(struct prompt_scan *scan) {
    scan->state = AFTER_VALUE;
    if (is_token(scan) && scan->number <= UINT32_MAX) {
        prompt_scan_add_token(scan, (uint32_t)scan->number);
    } else if (is_token(scan)) {
        set_error(scan, token_error(scan));
    } else if (scan->value == STREAMED) {
        scan->is_streamed = scan->is_true;
    } else if (scan->value == WANTED && scan->number != UINT64_MAX) {
        scan->max_tokens = scan->number;
    }
}

static void scan_word_byte(struct prompt_scan *scan, char c) {
    if (!json_is_literal_char(c)) {
        end_word(scan);
        if (!json_is_blank(c)) {
            scan_after_value(scan, c);
        }
        return;
    }
    bool counts = c >= '0' && c <= '9' && scan->number < UINT32_MAX;
    scan->number = counts ? scan->number * 10 + (uint64_t)(c - '0') : UINT64_MAX;
}

/* ---- between values -------------------------------------------------------------------------- */

static void scan_key_start(struct prompt_scan *scan, char c) {
    if (c == '"') {
        begin_text(scan, IN_KEY);
    } else if (c == '}' && scan->state == FIRST_KEY) {
        pop_frame(scan);
    } else {
        fail_scan(scan);
    }
}

static void scan_after_value(struct prompt_scan *scan, char c) {
    bool in_list = is_list(frame_of(scan));
    if (frame_of(scan) == BODY) {
        scan->system_seen = scan->system_seen || scan->in_system;
        scan->in_system = false;
    }
    if (c == (in_list ? ']' : '}')) {
        pop_frame(scan);
    } else if (c != ',') {
        fail_scan(scan);
    } else if (in_list) {
        scan->value = (uint8_t)meaning_of_item(scan);
        scan->state = BEFORE_VALUE;
    } else {
        scan->state = NEXT_KEY;
    }
}

/* A byte between tokens that is not whitespace. */
static void scan_between_tokens(struct prompt_scan *scan, char c) {
    if (scan->state == BEFORE_OBJECT && c == '{') {
        push_frame(scan, scan->format == PROMPT_OF_VLLM_TOKENS     ? VLLM_BODY
                         : scan->format == PROMPT_OF_SGLANG_TOKENS ? SGLANG_BODY
                                                                   : BODY);
    } else if (scan->state == FIRST_KEY || scan->state == NEXT_KEY) {
        scan_key_start(scan, c);
    } else if (scan->state == BEFORE_COLON && c == ':') {
        scan->state = BEFORE_VALUE;
    } else if (scan->state == BEFORE_VALUE) {
        begin_value(scan, c);
    } else if (scan->state == FIRST_ITEM && c == ']') {
        pop_frame(scan);
    } else if (scan->state == FIRST_ITEM) {
        scan->has_required |= scan->in_required;
        scan->value = (uint8_t)meaning_of_item(scan);
        begin_value(scan, c);
    } else if (scan->state == AFTER_VALUE) {
        scan_after_value(scan, c);
    } else {
        fail_scan(scan);
    }
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static void scan_byte(struct prompt_scan *scan, char c) {
    if (scan->state == IN_KEY || scan->state == IN_TEXT) {
        scan_string_byte(scan, c);
    } else if (scan->state == IN_WORD) {
        scan_word_byte(scan, c);
    } else if (!json_is_blank(c)) {
        scan_between_tokens(scan, c);
    }
}

/* Handles a run of bytes at once. Returns: the next byte to scan, or `end`. */
static const char *run(struct prompt_scan *scan, const char *at, const char *end) {
    if (scan->state == IN_OTHER) {
        const char *after = json_skip_feed(&scan->skip, at, end);
        scan->state = after ? AFTER_VALUE : IN_OTHER;
        return after ? after : end;
    }
    if (scan->state == IN_TEXT && scan->string.escape == 0 && scan->string.high == 0) {
        if (!is_hashed(scan->value) && scan->value != ROLE) {
            at = append_run(scan, at, end);
        }
        const char *special = json_string_find_special(at, end);
        add_to_text(scan, at, (size_t)(special - at));
        return special;
    }
    return at;
}

enum prompt_scan_result prompt_scan_feed(struct prompt_scan *scan, struct str chunk) {
    const char *at = chunk.ptr, *end = chunk.len > 0 ? at + chunk.len : at;
    while (scan->result == PROMPT_SCAN_MORE && at < end) {
        at = run(scan, at, end);
        if (at < end && scan->result == PROMPT_SCAN_MORE) {
            scan_byte(scan, *at++);
        }
    }
    return scan->result;
}
