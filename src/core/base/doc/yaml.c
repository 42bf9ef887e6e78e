/* Parses YAML with libyaml. Plain scalars are resolved by YAML 1.2's core schema (section 10.3), so
 * "yes", "on" and "012" differ from YAML 1.1. Anchors, aliases, tags and keys that are no text are
 * errors, as are several documents in a file without DOC_YAML_MULTI. */
#include <math.h>
#include <yaml.h>

#include "core/base/doc/build.h"
#include "core/base/hex.h"
#include "core/base/num.h"

struct yaml_frame {
    struct doc_value *container;
    struct str key; /* ptr NULL: in an object whose next key was not read yet */
    unsigned key_line;
};

struct yaml_reader {
    const struct doc_source *source;
    yaml_parser_t parser;
    struct yaml_frame frames[DOC_MAX_DEPTH];
    size_t depth;
    struct doc_value *root;
    bool multi; /* the root is a list of documents */
    bool seen_document;
    bool done;
};

/* ---- plain scalars --------------------------------------------------------------------------- */

static bool is_one_of(struct str text, const char *const *words) {
    while (*words && !str_is(text, *words)) {
        words++;
    }
    return *words != NULL;
}

/* "0o17" and "0x1f": digits of 3 or 4 bits each. */
static bool parse_based(struct str text, uint64_t *out) {
    unsigned bits = str_starts_with(text, STR("0o")) ? 3 : str_starts_with(text, STR("0x")) ? 4 : 0;
    uint64_t value = 0;
    if (bits == 0 || text.len < 3) {
        return false;
    }
    for (size_t i = 2; i < text.len; i++) {
        int digit = hex_value(text.ptr[i]);
        if (digit < 0 || digit >= 1 << bits || value >> (64 - bits) != 0) {
            return false;
        }
        value = value << bits | (unsigned)digit;
    }
    *out = value;
    return true;
}

static bool resolve_whole(struct str text, struct doc_value *value) {
    struct str digits =
        str_starts_with(text, STR("+")) ? str_make(text.ptr + 1, text.len - 1) : text;
    if (parse_based(text, &value->uint) || num_parse_u64(digits, &value->uint)) {
        value->kind = DOC_UINT;
        return true;
    }
    if (num_parse_i64(text, &value->sint)) {
        value->kind = value->sint < 0 ? DOC_SINT : DOC_UINT; /* "-0" is 0 */
        return true;
    }
    return false;
}

static bool resolve_real(struct str text, struct doc_value *value) {
    static const char *const infinities[] = {".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF", 0};
    static const char *const negative[] = {"-.inf", "-.Inf", "-.INF", 0};
    static const char *const nans[] = {".nan", ".NaN", ".NAN", 0};
    double real;
    if (is_one_of(text, infinities)) {
        real = (double)INFINITY;
    } else if (is_one_of(text, negative)) {
        real = (double)-INFINITY;
    } else if (is_one_of(text, nans)) {
        real = (double)NAN;
    } else if (!num_parse_decimal(text, &real)) {
        return false;
    }
    value->kind = DOC_REAL;
    value->real = real;
    return true;
}

static void resolve_plain(struct str text, struct doc_value *value) {
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL", 0};
    static const char *const trues[] = {"true", "True", "TRUE", 0};
    static const char *const falses[] = {"false", "False", "FALSE", 0};
    if (is_one_of(text, nulls)) {
        value->kind = DOC_NULL;
    } else if (is_one_of(text, trues) || is_one_of(text, falses)) {
        value->kind = DOC_BOOL;
        value->boolean = is_one_of(text, trues);
    } else if (!resolve_whole(text, value) && !resolve_real(text, value)) {
        value->kind = DOC_STR;
        value->text = text;
    }
}

/* ---- events ---------------------------------------------------------------------------------- */

static unsigned event_line(const yaml_event_t *event) {
    return (unsigned)event->start_mark.line + 1;
}

static enum status reject_anchor_and_tag(struct yaml_reader *reader, const yaml_event_t *event,
                                         const yaml_char_t *anchor, const yaml_char_t *tag) {
    if (anchor) {
        return doc_parse_error(reader->source, event_line(event),
                               "anchors (\"&%s\") are not supported", (const char *)anchor);
    }
    if (tag) {
        return doc_parse_error(reader->source, event_line(event),
                               "tags (\"%s\") are not supported; put text into quotes",
                               (const char *)tag);
    }
    return ST_OK;
}

/* Adds a finished scalar or a new container to the container at hand. */
static enum status add_value(struct yaml_reader *reader, struct doc_value *value) {
    if (!value) {
        return doc_no_memory(reader->source);
    }
    if (reader->depth == 0 && reader->multi) {
        doc_value_append(reader->root, value);
        return ST_OK;
    }
    if (reader->depth == 0) {
        reader->root = value;
        return ST_OK;
    }
    struct yaml_frame *frame = &reader->frames[reader->depth - 1];
    if (frame->container->kind == DOC_OBJECT) {
        value->key = frame->key;
        value->key_line = frame->key_line;
        frame->key = str_make(NULL, 0);
    }
    doc_value_append(frame->container, value);
    return ST_OK;
}

static bool expects_key(const struct yaml_reader *reader) {
    if (reader->depth == 0) {
        return false;
    }
    const struct yaml_frame *frame = &reader->frames[reader->depth - 1];
    return frame->container->kind == DOC_OBJECT && !frame->key.ptr;
}

static enum status on_scalar(struct yaml_reader *reader, const yaml_event_t *event) {
    const char *bytes = (const char *)event->data.scalar.value;
    struct str text = arena_dup(reader->source->arena, str_make(bytes, event->data.scalar.length));
    enum status status =
        reject_anchor_and_tag(reader, event, event->data.scalar.anchor, event->data.scalar.tag);
    if (status != ST_OK) {
        return status;
    }
    if (!text.ptr) {
        return doc_no_memory(reader->source);
    }
    if (expects_key(reader)) {
        reader->frames[reader->depth - 1].key = text;
        reader->frames[reader->depth - 1].key_line = event_line(event);
        return ST_OK;
    }
    struct doc_value *value = doc_value_new(reader->source->arena, DOC_STR, event_line(event));
    if (value && event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE) {
        resolve_plain(text, value);
    } else if (value) {
        value->text = text;
    }
    return add_value(reader, value);
}

static enum status on_start(struct yaml_reader *reader, const yaml_event_t *event,
                            enum doc_kind kind) {
    const yaml_char_t *anchor =
        kind == DOC_OBJECT ? event->data.mapping_start.anchor : event->data.sequence_start.anchor;
    const yaml_char_t *tag =
        kind == DOC_OBJECT ? event->data.mapping_start.tag : event->data.sequence_start.tag;
    enum status status = reject_anchor_and_tag(reader, event, anchor, tag);
    if (status != ST_OK) {
        return status;
    }
    if (expects_key(reader)) {
        return doc_parse_error(reader->source, event_line(event), "expected text as a key, got %s",
                               kind == DOC_OBJECT ? "an object" : "a list");
    }
    if (reader->depth == DOC_MAX_DEPTH) {
        return doc_parse_error(reader->source, event_line(event), "nested deeper than %d",
                               DOC_MAX_DEPTH);
    }
    struct doc_value *value = doc_value_new(reader->source->arena, kind, event_line(event));
    status = add_value(reader, value);
    if (status == ST_OK) {
        reader->frames[reader->depth++] = (struct yaml_frame){.container = value};
    }
    return status;
}

static enum status on_event(struct yaml_reader *reader, const yaml_event_t *event) {
    switch (event->type) {
    case YAML_SCALAR_EVENT:
        return on_scalar(reader, event);
    case YAML_SEQUENCE_START_EVENT:
        return on_start(reader, event, DOC_ARRAY);
    case YAML_MAPPING_START_EVENT:
        return on_start(reader, event, DOC_OBJECT);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        reader->depth--;
        return ST_OK;
    case YAML_ALIAS_EVENT:
        return doc_parse_error(reader->source, event_line(event),
                               "aliases (\"*%s\") are not supported",
                               (const char *)event->data.alias.anchor);
    case YAML_DOCUMENT_START_EVENT:
        if (reader->seen_document && !reader->multi) {
            return doc_parse_error(reader->source, event_line(event),
                                   "expected one document in the file, got a second");
        }
        reader->seen_document = true;
        return ST_OK;
    case YAML_STREAM_END_EVENT:
        reader->done = true;
        return ST_OK;
    case YAML_NO_EVENT:
    case YAML_STREAM_START_EVENT:
    case YAML_DOCUMENT_END_EVENT:
        return ST_OK;
    }
    return ST_OK;
}

static enum status parser_error(const struct yaml_reader *reader) {
    const yaml_parser_t *parser = &reader->parser;
    if (parser->error == YAML_MEMORY_ERROR) {
        return doc_no_memory(reader->source);
    }
    const char *problem = parser->problem ? parser->problem : "cannot be parsed";
    if (parser->error == YAML_READER_ERROR) { /* has an offset instead of a mark */
        return doc_parse_error(reader->source, (unsigned)parser->mark.line + 1, "not YAML: %s",
                               problem);
    }
    return doc_parse_error(reader->source, (unsigned)parser->problem_mark.line + 1,
                           "not YAML: %s%s%s", problem, parser->context ? ", " : "",
                           parser->context ? parser->context : "");
}

static enum status read_events(struct yaml_reader *reader) {
    enum status status = ST_OK;
    while (status == ST_OK && !reader->done) {
        yaml_event_t event;
        if (!yaml_parser_parse(&reader->parser, &event)) {
            return parser_error(reader);
        }
        status = on_event(reader, &event);
        yaml_event_delete(&event);
    }
    return status;
}

enum status doc_yaml_parse(const struct doc_source *source, bool multi, struct doc_value **root) {
    struct yaml_reader reader = {.source = source, .multi = multi};
    reader.root = multi ? doc_value_new(source->arena, DOC_ARRAY, 1) : NULL;
    if (multi && !reader.root) {
        return doc_no_memory(source);
    }
    if (!yaml_parser_initialize(&reader.parser)) {
        return doc_no_memory(source);
    }
    const char *text = source->text.ptr ? source->text.ptr : "";
    yaml_parser_set_encoding(&reader.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&reader.parser, (const unsigned char *)text, source->text.len);
    enum status status = read_events(&reader);
    yaml_parser_delete(&reader.parser);
    if (status == ST_OK && !reader.root) { /* a file of comments only: no settings */
        reader.root = doc_value_new(source->arena, DOC_OBJECT, 1);
        status = reader.root ? ST_OK : doc_no_memory(source);
    }
    *root = reader.root;
    return status;
}
