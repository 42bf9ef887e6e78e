/* What an API server of Kubernetes answers a watch with: JSON objects one behind the other, read as
 * they come; chunks may be cut anywhere. Of what is not complete as many bytes are kept as an event
 * may have, and nothing of what was told. And any other answer of it, which is one object. Sans
 * I/O.
 *
 * Thread: one at a time. Clauses: Kubernetes API concepts, "Efficient detection of changes", "Watch
 * bookmarks". */
#ifndef SLUICE_CODEC_KUBE_STREAM_H
#define SLUICE_CODEC_KUBE_STREAM_H

#include <stdbool.h>
#include <stddef.h>

#include "codec/json/skip.h"
#include "core/base/doc/doc.h"

/* As "type" says. A bookmark's object is nothing but a resourceVersion, an error's is a Status. */
enum kube_watch_event_type {
    KUBE_WATCH_ADDED,
    KUBE_WATCH_MODIFIED,
    KUBE_WATCH_DELETED,
    KUBE_WATCH_BOOKMARK,
    KUBE_WATCH_ERROR,
};

struct kube_stream {
    size_t max_event_bytes; /* of one event; the caller's */
    char *data;             /* of an event that is not complete */
    size_t len, cap;
    struct json_skip skip;
    struct doc *doc; /* of the last event */
};

struct kube_stream_event {
    enum kube_watch_event_type type;
    struct doc_node root;   /* the whole of it */
    struct doc_node object; /* its parent is `root` */
    struct str version;     /* metadata.resourceVersion; empty: it has none */
    bool complete;          /* there is an event at all */
};

/* Zeroed but for most_bytes, it is a beginning; kube_stream_fini ends it, and leaves one. */
void kube_stream_fini(struct kube_stream *stream);
/* Takes bytes from the front of `chunk` up to the end of an event, or all of them. `out` is valid
 * until the next call, and must stay where it is as long. Returns: ST_BAD_ANSWER,
 * ST_BODY_TOO_LARGE, ST_NO_MEMORY; nothing can be read from this stream any more then. */
enum status kube_stream_step(struct kube_stream *stream, struct str *chunk,
                             struct kube_stream_event *out, struct error *err)
    __attribute__((warn_unused_result));

/* An answer that is one JSON object. Returns: ST_BAD_ANSWER, ST_NO_MEMORY. Owns: *out until
 * doc_free. */
enum status kube_object_parse(struct str text, struct doc **out, struct error *err)
    __attribute__((warn_unused_result));

/* The member as text. Returns: empty when it is not there, or no text. */
struct str kube_member_text(const struct doc_node *object, const char *key);
/* metadata.KEY, the same way. */
struct str kube_metadata_text(const struct doc_node *object, const char *key);

#endif
