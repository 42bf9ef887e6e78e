/* What a stream adds to its worker's statistics (pick/session/stats.h), from its pick or its wait
 * in the queue to its end. Names that clients choose become labels as far as there is place
 * (pick/session/label_names.h).
 *
 * Thread: the worker's. Internal to pick/stream. */
#ifndef SLUICE_PICK_STREAM_STREAM_STATS_H
#define SLUICE_PICK_STREAM_STREAM_STATS_H

#include "codec/prompt/usage_scan.h"
#include "pick/session/label_names.h"
#include "pick/session/session.h"
#include "pick/session/stats.h"

/* Per worker. */
struct stats_context {
    struct pick_stats stats;
    struct pick_label_names *models, *fairness_ids; /* of all workers */
};

/* What the response shows, where the proxy shows its body. */
struct response_meter {
    uint64_t first_ns, last_ns; /* of the pieces of the body; 0: none was received */
    uint64_t n_bytes;
    struct usage_scan *usage;  /* NULL: the body is not read */
    bool is_streamed;          /* events, of which each has about a token */
    enum prompt_format format; /* of the request's body */
    bool is_opaque;            /* compressed, or binary: the body has no counts to read */
    bool is_over;
};

/* Per stream. Zeroed memory is one that counts nothing yet. */
struct stream_stats {
    struct pick_stats_row *row;       /* NULL: not picked yet */
    struct pick_stats_row *queue_row; /* NULL: not queued */
    /* Flow control has decided on the request with the message that is processed: where its time
     * counts; NULL: it has not. */
    struct pick_stats_row *enqueued_row;
    enum pick_histogram enqueued;
    uint64_t n_queue_bytes;
    struct str unlabelled_model; /* picked for, and not a label yet; ptr NULL: none */
    bool was_queued;
    bool has_response; /* its first part was received */
    struct response_meter response;
};

/* `arena`: of the stream. */
void stream_stats_on_outcome(struct stream_stats *self, struct stats_context *context,
                             struct arena *arena, const struct pick_outcome *outcome);
void stream_stats_on_queue(struct stream_stats *self, struct stats_context *context,
                           const struct pick_queue_event *event);
/* When the request's headers were received, and the message that is processed. */
struct stream_times {
    uint64_t begun_ns, now_ns;
};
/* A message of the response of a picked request. `arena`: of the stream. */
void stream_stats_on_response(struct stream_stats *self, const struct stats_context *context,
                              struct arena *arena, const struct ext_proc_request *message,
                              const struct stream_times *times);
/* The stream has ended: `duration_ns` since its headers, and the bytes of the request's body. */
void stream_stats_end(struct stream_stats *self, uint64_t duration_ns, uint64_t n_body_bytes);

#endif
