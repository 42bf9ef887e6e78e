/* What the plugins of a profile need of requests, and the settings of what computes it. Upstream
 * calls that producers: plugins with a name, which other plugins refer to.
 *
 * Thread: any; a profile's needs are immutable. */
#ifndef SLUICE_PICK_POOL_PREFIX_PRODUCER_H
#define SLUICE_PICK_POOL_PREFIX_PRODUCER_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/metric/histogram.h"
#include "core/base/status.h"
#include "core/base/str.h"
#include "pick/pool/endpoint/attribute.h"
#include "pick/pool/prefix/burst_assign.h"
#include "pick/pool/prefix/chain.h"
#include "pick/pool/prefix/media.h"
#include "pick/pool/prefix/table.h"

/* No tokenizer runs here: sizes in tokens are estimated by this. */
enum { PROMPT_BYTES_PER_TOKEN = 4 };
/* The beginning of a prompt that is compared at most, and by default. */
enum { PREFIX_MAX_TEXT_BYTES = 4 << 20, PREFIX_TOKENS_DEFAULT = 131072 };
enum { PREFIX_BLOCK_TOKENS_MIN = 64, PREFIX_CAPACITY_DEFAULT = 31250 };
/* Of media: the part of a server's cache that each takes, and the cache. */
enum { MEDIA_BYTES = 2 << 20, MEDIA_CACHE_MIB_DEFAULT = 4096 };
enum { MEDIA_CAPACITY_DEFAULT = MEDIA_CACHE_MIB_DEFAULT / (MEDIA_BYTES >> 20) };

/* What a producer computes, with an index of its own in the prefix table. */
enum prefix_kind {
    PREFIX_TEXT,  /* how much of a prompt's beginning each endpoint was sent */
    PREFIX_MEDIA, /* which of a request's pictures, sounds and videos each endpoint was sent */
    PREFIX_BURST, /* which endpoint a prompt is sent to, with others that come with it (burst.h); no
                     table is used */
};

/* Without block sizes and lengths for PREFIX_MEDIA, of which each item is one block. */
struct prefix_producer {
    struct str name;
    enum prefix_kind kind;
    uint32_t block_bytes;
    uint64_t max_tokens; /* of the prompt's beginning; 0: max_blocks counts */
    uint64_t max_blocks; /* 0: no limit but PREFIX_MAX_TEXT_BYTES */
    uint32_t capacity;   /* blocks that an endpoint caches, where it does not report its cache
                            size */
    bool auto_capacity;  /* use the reported cache size */
    bool auto_block;     /* use the reported size of blocks, if it is PREFIX_BLOCK_TOKENS_MIN tokens
                            or more */
};

/* The one that plugins use which name none. */
extern const char PREFIX_PRODUCER_DEFAULT_NAME[];
extern const struct prefix_producer PREFIX_PRODUCER_DEFAULT;
/* The same of media. */
extern const char MEDIA_PRODUCER_DEFAULT_NAME[];
extern const struct prefix_producer MEDIA_PRODUCER_DEFAULT;
extern const char BURST_PRODUCER_TYPE[];
/* The plugin's type. */
const char *prefix_kind_type(enum prefix_kind kind);

/* The blocks of this size. */
struct prefix_blocks prefix_producer_blocks(const struct prefix_producer *producer,
                                            uint32_t block_bytes);
/* Hashes of producers with different names are unrelated. */
uint64_t prefix_producer_salt(const struct prefix_producer *producer);

/* What requests found in an index: of the picked endpoint's cache, which part of a prompt's
 * beginning it has by the index, how many bytes and tokens that is, and how many tokens the whole
 * prompt has. The bounds are upstream's. */
extern const struct metric_scale PREFIX_HIT_RATIOS, PREFIX_HIT_BYTES, PREFIX_TOKENS;
enum { PREFIX_HIT_RATIO_CELLS = 13, PREFIX_HIT_BYTES_CELLS = 16, PREFIX_TOKENS_CELLS = 21 };
struct prefix_hits {
    metric_cell ratios[PREFIX_HIT_RATIO_CELLS];
    metric_cell bytes[PREFIX_HIT_BYTES_CELLS];
    metric_cell cached_tokens[PREFIX_TOKENS_CELLS];
    metric_cell prompt_tokens[PREFIX_TOKENS_CELLS];
};
/* The ratio 1, for PREFIX_HIT_RATIOS. */
#define PREFIX_HIT_ALL UINT64_C(1000000000)
/* A copy of the counts, or the sum of several. */
struct prefix_hit_counts {
    uint64_t ratios[PREFIX_HIT_RATIO_CELLS];
    uint64_t bytes[PREFIX_HIT_BYTES_CELLS];
    uint64_t cached_tokens[PREFIX_TOKENS_CELLS];
    uint64_t prompt_tokens[PREFIX_TOKENS_CELLS];
};
/* A prompt of `n_blocks` blocks, and so many tokens by estimate, was sent to an endpoint that has
 * the first `n_hit` blocks. Thread: one at a time. */
void prefix_hits_add(struct prefix_hits *hits, uint32_t block_bytes, uint32_t n_hit,
                     uint32_t n_blocks, uint32_t n_tokens);
/* Adds the counts to `out`. Thread: any. */
void prefix_hits_read(const struct prefix_hits *hits, struct prefix_hit_counts *out);

/* How the tokens of a request count while it is in flight: those of the prompt that are not in the
 * endpoint's cache, until the first part of the response's body is seen; with its estimated output,
 * until the request ends. */
struct load_producer {
    bool adds_output;
    double output_ratio; /* estimated tokens of the output for each of the prompt */
    uint64_t max_output; /* of the estimate; UINT64_MAX: no limit but the request's */
    uint32_t prefix;     /* the producer that says what is in the cache, if it is used */
};

extern const struct load_producer LOAD_PRODUCER_DEFAULT;

/* A plugin's reference to a producer. */
struct prefix_user {
    struct str producer; /* its name; empty: the default */
    uint32_t index;
};

/* Upstream's p2p-source-producer (source.h). */
struct source_producer {
    bool on;
    struct prefix_user user; /* the producer that says what endpoints have */
    uint32_t min_tokens;     /* that the source has more than the endpoint that computes the
                                prompt */
    struct str profile;      /* of the stage that computes it, if it runs; else the destination
                                does */
};

/* A table of sessions (pick/pool/profile/session_id.h). */
struct session_id_parameters;
struct session_need {
    uint64_t owner;
    const struct session_id_parameters *parameters;
};
enum { SESSION_TABLES_MAX = 4 };

/* What a profile's plugins need of requests, and of endpoints. */
struct pool_request_needs {
    bool tokens;        /* tokens in flight, which a plugin or the configuration asks for */
    bool prompt;        /* the prompt's beginning, where the body is available anyway */
    bool body;          /* and the pick waits for the body, where the proxy sends it */
    bool media;         /* and for its pictures, sounds and videos: whether there are any */
    bool media_items;   /* and for all of them */
    bool cold_requests; /* which endpoints were sent requests whose prefix no endpoint had, by the
                           producer `cold_prefix` */
    bool latency;       /* response times */
    struct str session_token; /* a header of the response that names the endpoint
                                 (pick/pool/profile/session_token.h); ptr NULL: none */
    uint32_t cold_prefix;
    struct load_producer load;
    struct source_producer source;
    bool burst_on; /* a plugin uses the producer of the index */
    uint32_t burst_index;
    struct burst_rules burst;
    const struct media_estimate *estimate; /* of pictures and videos; NULL: the default */
    uint32_t n_prefixes;                   /* the producers that there are */
    uint32_t used_prefixes;                /* a bit for each that a plugin uses */
    uint32_t declared_prefixes; /* a bit for each that the configuration declares: tokens in flight
                                   use it even if no plugin does */
    struct prefix_producer prefixes[PREFIX_MAX_INDEXES];
    bool is_set;                          /* a prefix-cache-scorer has set parameters of the default
                                            producer */
    struct prefix_producer set_by_scorer; /* 0: not given */
    struct attribute_key attributes[ATTRIBUTES_MAX]; /* of endpoints, each once */
    uint32_t n_attributes;
    struct session_need sessions[SESSION_TABLES_MAX];
    uint32_t n_sessions;
};

static inline bool pool_needs_prefix(const struct pool_request_needs *needs, uint32_t i) {
    return needs->used_prefixes >> i & 1;
}

/* The plugin uses the producer: sets user->index. Returns: ST_BAD_CONFIG: there is none of this
 * name. */
enum status pool_needs_use_prefix(struct pool_request_needs *needs, struct prefix_user *user,
                                  struct error *err) SLUICE_MUST_USE;
/* The same of one of media, which is added where none has the default's name. */
enum status pool_needs_use_media(struct pool_request_needs *needs, struct prefix_user *user,
                                 struct error *err) SLUICE_MUST_USE;
/* Returns: n_attributes: no plugin reads it. */
uint32_t pool_needs_find_attribute(const struct pool_request_needs *needs,
                                   const struct attribute_key *key);
/* The plugin reads the attribute. Returns: ST_BAD_CONFIG: too many are read; its index. */
enum status pool_needs_use_attribute(struct pool_request_needs *needs,
                                     const struct attribute_key *key, uint32_t *index,
                                     struct error *err) SLUICE_MUST_USE;
/* The plugin reads the tokens in flight. */
void pool_needs_tokens(struct pool_request_needs *needs);
/* After those of all plugins: what tokens in flight need. */
void pool_needs_finish(struct pool_request_needs *needs);
/* The tokens that a request with these ones in its prompt counts at an endpoint that has so many of
 * the `n_blocks` blocks of the prompt. `max_output`: of the request; 0: none. */
uint64_t load_producer_count(const struct load_producer *load, uint64_t n_prompt,
                             uint64_t max_output, uint32_t block_bytes, uint32_t n_blocks,
                             uint32_t n_cached);
/* Bytes of the prompt's beginning that are needed. */
uint64_t pool_needs_window_bytes(const struct pool_request_needs *needs);

#endif
