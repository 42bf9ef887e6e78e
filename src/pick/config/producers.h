/* Upstream's data producers: plugins with a name that compute what other plugins read of a request,
 * which refer to them by their names. */
#ifndef SLUICE_PICK_CONFIG_PRODUCERS_H
#define SLUICE_PICK_CONFIG_PRODUCERS_H

#include "pick/config/reader.h"
#include "pick/pool/prefix/producer.h"

/* Parameters of an approx-prefix-cache-producer. */
struct prefix_producer_settings {
    bool auto_tune;
    uint64_t block_tokens, block_chars, max_tokens, max_blocks, capacity;
};

/* Of an inflight-load-producer. */
struct load_producer_settings {
    bool adds_output;
    double output_ratio;
    uint64_t max_output; /* plus one; 0: no limit */
    struct str prefix_producer;
    bool syncs;
};

/* Of a p2p-source-producer. */
struct source_producer_settings {
    struct str prefix_producer, profile;
    uint32_t min_tokens;
};

/* Of a burst-prefix-cache-producer. */
struct burst_producer_settings {
    uint64_t window_ms, block_tokens, max_tokens;
    uint32_t max_per_replica, min_blocks, max_batch; /* 0: no limit, of the first and last */
    unsigned balance;
};

/* Of an mm-embeddings-cache-producer. */
struct media_producer_settings {
    uint32_t capacity;
};

/* Of a token-producer. */
struct token_producer_settings {
    struct media_estimate media;
};

/* Of a session-id-producer. */
struct session_producer_settings {
    struct str header; /* in lower case */
    struct str cookie;
};

extern const struct doc_member PICKER_SESSION_PRODUCER[], PICKER_PREFIX_PRODUCER[],
    PICKER_LOAD_PRODUCER[], PICKER_TOKEN_PRODUCER[], PICKER_MEDIA_PRODUCER[],
    PICKER_SOURCE_PRODUCER[], PICKER_BURST_PRODUCER[];

struct plugin_list;

/* Says where sources of sessions find their ids, and sets the producers of `needs`: the default
 * one, then the others that the list declares. Fails where a plugin refers to a producer that the
 * list does not have, or that is of another type. */
void picker_declare_producers(struct doc_reader *reader, const struct plugin_list *list,
                              struct pool_request_needs *needs);

#endif
