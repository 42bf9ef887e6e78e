/* Decodes the responses of a Kubernetes API server: to a watch, a stream of JSON objects in chunks
 * that may be cut anywhere, of which only an incomplete event is buffered, up to a limit; to other
 * requests, one object. Sans I/O.
 *
 * Thread: one at a time. Clauses: Kubernetes API concepts, "Efficient detection of changes", "Watch
 * bookmarks". */
#ifndef SLUICE_CODEC_KUBE_STREAM_H
#define SLUICE_CODEC_KUBE_STREAM_H

#include <stdbool.h>
#include <stddef.h>

#include "codec/json/chunks.h"
#include "core/base/doc/doc.h"

/* The value of "type". A bookmark's object has only a resourceVersion, an error's is a Status. */
enum kube_watch_event_type {
    KUBE_WATCH_ADDED,
    KUBE_WATCH_MODIFIED,
    KUBE_WATCH_DELETED,
    KUBE_WATCH_BOOKMARK,
    KUBE_WATCH_ERROR,
};

struct kube_stream {
    size_t max_event_bytes; /* limit of one event; set by the caller */
    char *data;             /* buffered bytes of an incomplete event */
    size_t len, cap;
    struct json_skip skip;
    struct doc *doc; /* of the last event */
};

struct kube_stream_event {
    enum kube_watch_event_type type;
    struct doc_node root;   /* the root of `doc` */
    struct doc_node object; /* its parent is `root` */
    struct str version;     /* metadata.resourceVersion; empty: absent */
    bool complete;          /* an event was decoded */
};

/* Zeroed but for max_event_bytes, a stream is at its start; kube_stream_fini frees it and resets it
 * to that. */
void kube_stream_fini(struct kube_stream *stream);
/* Consumes bytes of `chunk` up to the end of an event, or all of them. `out` is valid until the
 * next call, and must not move until then. Returns: ST_BAD_ANSWER, ST_BODY_TOO_LARGE, ST_NO_MEMORY;
 * the stream cannot be decoded further then. */
enum status kube_stream_step(struct kube_stream *stream, struct str *chunk,
                             struct kube_stream_event *out, struct error *err) SLUICE_MUST_USE;

/* Parses a response that is one JSON object. Returns: ST_BAD_ANSWER, ST_NO_MEMORY. Owns: *out until
 * doc_free. */
enum status kube_object_parse(struct str text, struct doc **out, struct error *err) SLUICE_MUST_USE;

/* Returns: the member's text; empty when it is absent or no string. */
struct str kube_member_text(const struct doc_node *object, const char *key);
/* metadata.KEY, the same way. */
struct str kube_metadata_text(const struct doc_node *object, const char *key);

#endif
