/* A state machine with one state for each place in the object's grammar. Runs of irrelevant
 * bytes are skipped at once. */
#include "codec/prompt/model_scan.h"

#include <inttypes.h>

#include "core/base/utf8.h"

static const struct str KEY = {"model", 5};

enum state {
    BEFORE_OBJECT,
    FIRST_KEY, /* or the object's end */
    NEXT_KEY,
    IN_KEY,       /* it may be "model" */
    IN_OTHER_KEY, /* a key other than "model" */
    BEFORE_COLON,
    BEFORE_VALUE,
    IN_MODEL,  /* the string value of "model" */
    IN_STRING, /* another string */
    IN_WORD,   /* a number, true, false, null */
    IN_NESTED, /* an object or array */
    AFTER_VALUE,
};

void model_scan_init(struct model_scan *scan, struct arena *arena) {
    *scan = (struct model_scan){.result = MODEL_SCAN_MORE, .state = BEFORE_OBJECT};
    buf_init(&scan->name, arena, 0);
}

static void fail_scan(struct model_scan *scan, const char *why) {
    scan->error_text = why;
    scan->result = MODEL_SCAN_MALFORMED;
}

/* ---- the key and the name -------------------------------------------------------------------- */

/* Compares decoded bytes with "model". After a mismatch the rest of the key is skipped. */
static void match_key(struct model_scan *scan, struct str bytes) {
    for (size_t i = 0; i < bytes.len; i++) {
        if (scan->n_matched == KEY.len || KEY.ptr[scan->n_matched] != bytes.ptr[i]) {
            scan->is_model = false;
            scan->state = IN_OTHER_KEY;
            json_skip_init(&scan->skip, '"');
            return;
        }
        scan->n_matched++;
    }
}

static void add_to_name(struct model_scan *scan, struct str bytes) {
    if (scan->name.len + bytes.len > MODEL_SCAN_MAX_BYTES) {
        scan->result = MODEL_SCAN_TOO_LONG;
        return;
    }
    buf_add_str(&scan->name, bytes);
    if (scan->name.failed) {
        scan->result = MODEL_SCAN_NO_MEMORY;
    }
}

/* A byte of a key that may be "model", or of the model's name. */
static void scan_string_byte(struct model_scan *scan, char c) {
    bool is_key = scan->state == IN_KEY;
    struct json_string_decoder *text = &scan->text;
    switch (json_string_decoder_feed(text, c)) {
    case JSON_STRING_BYTES:
        if (is_key) {
            match_key(scan, str_make(text->out, text->n_out));
        } else {
            add_to_name(scan, str_make(text->out, text->n_out));
        }
        break;
    case JSON_STRING_END:
        if (is_key) {
            scan->is_model = scan->n_matched == KEY.len;
            scan->state = BEFORE_COLON;
        } else {
            scan->value_bytes = scan->at - scan->value_at;
            scan->result = MODEL_SCAN_FOUND;
            if (!utf8_is_valid(scan->name.data, scan->name.len)) {
                fail_scan(scan, "a string that is not UTF-8");
            }
        }
        break;
    case JSON_STRING_INVALID:
        fail_scan(scan, text->error_text);
        break;
    }
}

/* ---- the object ------------------------------------------------------------------------------ */

static void begin_text(struct model_scan *scan, enum state state) {
    scan->text = (struct json_string_decoder){.code = 0};
    scan->n_matched = 0;
    scan->state = (uint8_t)state;
}

static void begin_value(struct model_scan *scan, char c) {
    bool nested = c == '{' || c == '[';
    if (c != '"' && !nested && !json_is_literal_char(c)) {
        fail_scan(scan, "a value is missing");
    } else if (scan->is_model && c != '"') {
        scan->result = MODEL_SCAN_OTHER_TYPE;
    } else if (c == '"') {
        scan->value_at = scan->at - 1;
        begin_text(scan, scan->is_model ? IN_MODEL : IN_STRING);
    } else {
        scan->state = nested ? IN_NESTED : IN_WORD;
    }
    json_skip_init(&scan->skip, c);
}

static void scan_key_start(struct model_scan *scan, char c) {
    if (c == '"') {
        begin_text(scan, IN_KEY);
    } else if (c == '}' && scan->state == FIRST_KEY) {
        scan->result = MODEL_SCAN_ABSENT;
    } else {
        fail_scan(scan, "a key is missing");
    }
}

static void scan_after_value(struct model_scan *scan, char c) {
    scan->state = NEXT_KEY;
    if (c == '}') {
        scan->result = MODEL_SCAN_ABSENT;
    } else if (c != ',') {
        fail_scan(scan, "a comma is missing");
    }
}

/* A byte between tokens that is not whitespace. */
static void scan_between_tokens(struct model_scan *scan, char c) {
    if (scan->state == BEFORE_OBJECT) {
        scan->state = FIRST_KEY;
        scan->result = c == '{' ? MODEL_SCAN_MORE : MODEL_SCAN_NOT_OBJECT;
    } else if (scan->state == FIRST_KEY || scan->state == NEXT_KEY) {
        scan_key_start(scan, c);
    } else if (scan->state == BEFORE_COLON) {
        scan->state = BEFORE_VALUE;
        if (c != ':') {
            fail_scan(scan, "a colon is missing");
        }
    } else if (scan->state == BEFORE_VALUE) {
        begin_value(scan, c);
    } else {
        scan_after_value(scan, c);
    }
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static void scan_byte(struct model_scan *scan, char c) {
    scan->at++;
    if (scan->state == IN_KEY || scan->state == IN_MODEL) {
        scan_string_byte(scan, c);
    } else if (scan->state == IN_WORD && json_is_blank(c)) {
        scan->state = AFTER_VALUE;
    } else if (scan->state == IN_WORD && !json_is_literal_char(c)) {
        scan_after_value(scan, c);
    } else if (scan->state != IN_WORD && !json_is_blank(c)) {
        scan_between_tokens(scan, c);
    }
}

/* Skips irrelevant bytes. Returns: the next byte to scan, or `end`. */
static const char *skip(struct model_scan *scan, const char *at, const char *end) {
    if (scan->state != IN_OTHER_KEY && scan->state != IN_STRING && scan->state != IN_NESTED) {
        return at;
    }
    const char *after = json_skip_feed(&scan->skip, at, end);
    if (!after) {
        return end;
    }
    scan->state = scan->state == IN_OTHER_KEY ? BEFORE_COLON : AFTER_VALUE;
    return after;
}

enum model_scan_result model_scan_feed(struct model_scan *scan, struct str chunk) {
    const char *at = chunk.ptr, *end = chunk.len > 0 ? at + chunk.len : at;
    while (scan->result == MODEL_SCAN_MORE && at < end) {
        const char *next = skip(scan, at, end);
        scan->at += (uint64_t)(next - at);
        at = next;
        if (at < end) {
            scan_byte(scan, *at++);
        }
    }
    return scan->result;
}

enum model_scan_result model_scan_finish(struct model_scan *scan) {
    if (scan->result == MODEL_SCAN_MORE && scan->state == BEFORE_OBJECT) {
        scan->result = MODEL_SCAN_NOT_OBJECT;
    } else if (scan->result == MODEL_SCAN_MORE) {
        fail_scan(scan, "it ends too early");
    }
    return scan->result;
}

void model_scan_init_rest(struct model_scan *rest, struct arena *arena) {
    model_scan_init(rest, arena);
    rest->state = AFTER_VALUE;
}

bool model_scan_feed_rest(struct model_scan *rest, struct str chunk) {
    enum model_scan_result result = model_scan_feed(rest, chunk);
    return result == MODEL_SCAN_FOUND || result == MODEL_SCAN_OTHER_TYPE ||
           result == MODEL_SCAN_TOO_LONG || result == MODEL_SCAN_NO_MEMORY;
}

enum status model_scan_check(const struct model_scan *scan, struct error *err) {
    switch (scan->result) {
    case MODEL_SCAN_FOUND:
        return ST_OK;
    case MODEL_SCAN_MORE:
    case MODEL_SCAN_ABSENT:
        return error_set(err, ST_BAD_FIELD,
                         "model: expected a member that names the model, got an object without it");
    case MODEL_SCAN_OTHER_TYPE:
        return error_set(err, ST_BAD_FIELD,
                         "model: expected a string, got another type at byte %" PRIu64,
                         scan->at - 1);
    case MODEL_SCAN_TOO_LONG:
        return error_set(err, ST_BAD_FIELD, "model: expected a name of at most %d bytes, got more",
                         (int)MODEL_SCAN_MAX_BYTES);
    case MODEL_SCAN_NOT_OBJECT:
        return scan->at == 0
                   ? error_set(err, ST_BAD_JSON, "expected a JSON object, got an empty body")
                   : error_set(err, ST_BAD_JSON, "expected a JSON object, got something else");
    case MODEL_SCAN_MALFORMED:
        return error_set(err, ST_BAD_JSON, "expected JSON, but %s, at byte %" PRIu64,
                         scan->error_text, scan->at);
    case MODEL_SCAN_COMPRESSED: /* never from JSON */
    case MODEL_SCAN_NO_MEMORY:
        break;
    }
    return error_no_memory(err, "the model's name");
}
