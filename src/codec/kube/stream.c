/* An event ends where its last bracket closes. It is buffered, unless a chunk contains all of it,
 * and then parsed as a whole: its size and depth are limited before. */
#include "codec/kube/stream.h"

#include <stdlib.h>

#include "codec/json/scan.h"

enum { MAX_DEPTH = 200, FIRST_BYTES = 16 << 10 };

static const char SERVER[] = "the API server's answer";

/* ---- one object ------------------------------------------------------------------------------ */

static enum status check_depth(struct str text, struct error *err) {
    struct json_scan scan;
    json_scan(text, &scan);
    return scan.depth > MAX_DEPTH
               ? error_set(err, ST_BAD_ANSWER, "sent JSON that is nested deeper than %d levels",
                           MAX_DEPTH)
               : ST_OK;
}

enum status kube_object_parse(struct str text, struct doc **out, struct error *err) {
    struct error why;
    struct doc *doc = NULL;
    enum status status = check_depth(text, err);
    if (status != ST_OK) {
        return status;
    }
    status = doc_parse_answer(SERVER, text, &doc, &why);
    if (status != ST_OK) {
        return status == ST_NO_MEMORY
                   ? error_no_memory(err, "an answer of %zu bytes", text.len)
                   : error_set(err, ST_BAD_ANSWER, "sent an answer that is not JSON: %s", why.text);
    }
    struct doc_node root = doc_root(doc);
    if (!doc_is_object(&root)) {
        doc_free(doc);
        return error_set(err, ST_BAD_ANSWER, "sent JSON that is no object");
    }
    *out = doc;
    return ST_OK;
}

struct str kube_member_text(const struct doc_node *object, const char *key) {
    struct str text = STR("");
    (void)json_get_string(json_member(object->val, key), &text);
    return text;
}

struct str kube_metadata_text(const struct doc_node *object, const char *key) {
    struct doc_node metadata = doc_get(object, "metadata");
    return kube_member_text(&metadata, key);
}

/* ---- events ---------------------------------------------------------------------------------- */

static const char *const EVENT_TYPE_NAMES[] = {
    [KUBE_WATCH_ADDED] = "ADDED",     [KUBE_WATCH_MODIFIED] = "MODIFIED",
    [KUBE_WATCH_DELETED] = "DELETED", [KUBE_WATCH_BOOKMARK] = "BOOKMARK",
    [KUBE_WATCH_ERROR] = "ERROR",
};

static enum status check_event(struct kube_stream_event *event, struct error *err) {
    struct str type = kube_member_text(&event->root, "type");
    size_t i = 0, n = sizeof(EVENT_TYPE_NAMES) / sizeof(EVENT_TYPE_NAMES[0]);
    while (i < n && !str_is(type, EVENT_TYPE_NAMES[i])) {
        i++;
    }
    if (i == n) {
        return error_set(err, ST_BAD_ANSWER, "sent an event of the unknown type \"%.*s\"",
                         STR_ARG(type));
    }
    event->type = (enum kube_watch_event_type)i;
    event->object = doc_get(&event->root, "object");
    if (!doc_is_object(&event->object)) {
        return error_set(err, ST_BAD_ANSWER, "sent an event (%s) without an object",
                         EVENT_TYPE_NAMES[i]);
    }
    event->version = kube_metadata_text(&event->object, "resourceVersion");
    if (event->version.len == 0 && event->type != KUBE_WATCH_ERROR) {
        return error_set(err, ST_BAD_ANSWER, "sent an event (%s) without a resourceVersion",
                         EVENT_TYPE_NAMES[i]);
    }
    event->complete = true;
    return ST_OK;
}

/* Buffers bytes of an event. */
static enum status buffer_bytes(struct kube_stream *stream, struct str bytes, struct error *err) {
    size_t cap = stream->cap > 0 ? stream->cap : FIRST_BYTES;
    while (cap < stream->len + bytes.len) {
        cap *= 2;
    }
    if (cap > stream->cap) {
        char *larger = realloc(stream->data, cap);
        if (!larger) {
            return error_no_memory(err, "an event");
        }
        stream->data = larger;
        stream->cap = cap;
    }
    memcpy(stream->data + stream->len, bytes.ptr, bytes.len);
    stream->len += bytes.len;
    return ST_OK;
}

/* `*at` is the start or the continuation of an event. `*text`: all of it, if it ends in this
 * chunk. */
static enum status gather_event(struct kube_stream *stream, const char **at, const char *end,
                                struct str *text, struct error *err) {
    const char *begin = *at, *from = begin;
    if (stream->len == 0) {
        json_skip_init(&stream->skip, *from++);
    }
    const char *stop = json_skip_feed(&stream->skip, from, end);
    struct str part = str_make(begin, (size_t)((stop ? stop : end) - begin));
    *at = part.ptr + part.len;
    if (part.len > stream->max_event_bytes - stream->len) {
        return error_set(err, ST_BODY_TOO_LARGE, "sent an event of more than %zu bytes",
                         stream->max_event_bytes);
    }
    if (stop && stream->len == 0) {
        *text = part;
        return ST_OK;
    }
    enum status status = buffer_bytes(stream, part, err);
    if (status == ST_OK && stop) {
        *text = str_make(stream->data, stream->len);
    }
    return status;
}

enum status kube_stream_step(struct kube_stream *stream, struct str *chunk,
                             struct kube_stream_event *out, struct error *err) {
    const char *at = chunk->ptr, *end = chunk->ptr + chunk->len;
    struct str text = {NULL, 0};
    enum status status = ST_OK;
    *out = (struct kube_stream_event){.complete = false};
    doc_free(stream->doc); /* of the last event */
    stream->doc = NULL;
    if (stream->len == 0 && stream->cap > FIRST_BYTES) { /* far more than most events need */
        free(stream->data);
        stream->data = NULL;
        stream->cap = 0;
    }
    while (stream->len == 0 && at < end && json_is_blank(*at)) {
        at++;
    }
    if (at < end && stream->len == 0 && *at != '{') {
        status = error_set(err, ST_BAD_ANSWER,
                           "sent data that is no event: it begins with "
                           "the byte 0x%02x",
                           (unsigned char)*at);
    } else if (at < end) {
        status = gather_event(stream, &at, end, &text, err);
    }
    *chunk = str_make(at, (size_t)(end - at));
    if (status != ST_OK || !text.ptr) {
        return status;
    }
    status = kube_object_parse(text, &stream->doc, err);
    if (status == ST_OK) {
        out->root = doc_root(stream->doc);
        status = check_event(out, err);
    }
    stream->len = 0;
    return status;
}

void kube_stream_fini(struct kube_stream *stream) {
    doc_free(stream->doc);
    free(stream->data);
    *stream = (struct kube_stream){.max_event_bytes = stream->max_event_bytes};
}
