/* The defaults are upstream's. */
#include "pick/pool/prefix/producer.h"

#include "core/base/hash.h"

/* Of profiles that count the tokens of prompts alone. */
enum { WINDOW_BYTES_DEFAULT = 16 << 10 };
enum { MOST_TOKENS = 1 << 30 }; /* of a request */

const char PREFIX_PRODUCER_DEFAULT_NAME[] = "approx-prefix-cache-producer";

const struct prefix_producer PREFIX_PRODUCER_DEFAULT = {.name = STR("approx-prefix-cache-producer"),
                                                        .block_bytes = PREFIX_BLOCK_TOKENS_MIN *
                                                                       PROMPT_BYTES_PER_TOKEN,
                                                        .max_tokens = PREFIX_TOKENS_DEFAULT,
                                                        .capacity = PREFIX_CAPACITY_DEFAULT,
                                                        .auto_capacity = true,
                                                        .auto_block = true};

const char MEDIA_PRODUCER_DEFAULT_NAME[] = "mm-embeddings-cache-producer";

const struct prefix_producer MEDIA_PRODUCER_DEFAULT = {.name = STR("mm-embeddings-cache-producer"),
                                                       .kind = PREFIX_MEDIA,
                                                       .capacity = MEDIA_CAPACITY_DEFAULT};

const char BURST_PRODUCER_TYPE[] = "burst-prefix-cache-producer";

const char *prefix_kind_type(enum prefix_kind kind) {
    return kind == PREFIX_TEXT    ? PREFIX_PRODUCER_DEFAULT_NAME
           : kind == PREFIX_MEDIA ? MEDIA_PRODUCER_DEFAULT_NAME
                                  : BURST_PRODUCER_TYPE;
}

const struct load_producer LOAD_PRODUCER_DEFAULT = {.output_ratio = 1.5, .max_output = UINT64_MAX};

/* ---- hits ------------------------------------------------------------------------------------ */

/* Ratios in millionths, as times in microseconds are. */
static const uint64_t RATIO_BOUNDS[] = {0,      100000, 200000, 300000, 400000, 500000,
                                        600000, 700000, 800000, 900000, 1000000};
static const uint64_t BYTES_BOUNDS[] = {0,    16,   32,   64,   128,   256,   512,
                                        1024, 2048, 4096, 8192, 16384, 32768, 65536};
/* As of tokens that responses count; 32778: so it is upstream. */
static const uint64_t TOKENS_BOUNDS[] = {1,     8,      16,     32,     64,     128,   256,
                                         512,   1024,   2048,   4096,   8192,   16384, 32778,
                                         65536, 131072, 262144, 524288, 1048576};
const struct metric_scale PREFIX_HIT_RATIOS = {METRIC_UNIT_SECONDS, 11, RATIO_BOUNDS};
const struct metric_scale PREFIX_HIT_BYTES = {METRIC_UNIT_ITEMS, 14, BYTES_BOUNDS};
const struct metric_scale PREFIX_TOKENS = {METRIC_UNIT_ITEMS, 19, TOKENS_BOUNDS};
_Static_assert(PREFIX_HIT_RATIO_CELLS == sizeof(RATIO_BOUNDS) / sizeof(RATIO_BOUNDS[0]) + 2, "");
_Static_assert(PREFIX_HIT_BYTES_CELLS == sizeof(BYTES_BOUNDS) / sizeof(BYTES_BOUNDS[0]) + 2, "");
_Static_assert(PREFIX_TOKENS_CELLS == sizeof(TOKENS_BOUNDS) / sizeof(TOKENS_BOUNDS[0]) + 2, "");

void prefix_hits_add(struct prefix_hits *hits, uint32_t block_bytes, uint32_t n_hit,
                     uint32_t n_blocks, uint32_t n_tokens) {
    metric_scale_add(&PREFIX_HIT_BYTES, hits->bytes, (uint64_t)n_hit * block_bytes);
    uint64_t n_cached = (uint64_t)n_hit * block_bytes / PROMPT_BYTES_PER_TOKEN;
    metric_scale_add(&PREFIX_TOKENS, hits->cached_tokens,
                     n_cached < n_tokens ? n_cached : n_tokens);
    metric_scale_add(&PREFIX_TOKENS, hits->prompt_tokens, n_tokens);
    if (n_blocks > 0) {
        metric_scale_add(&PREFIX_HIT_RATIOS, hits->ratios, PREFIX_HIT_ALL * n_hit / n_blocks);
    }
}

void prefix_hits_read(const struct prefix_hits *hits, struct prefix_hit_counts *out) {
    metric_scale_read(&PREFIX_HIT_RATIOS, hits->ratios, out->ratios);
    metric_scale_read(&PREFIX_HIT_BYTES, hits->bytes, out->bytes);
    metric_scale_read(&PREFIX_TOKENS, hits->cached_tokens, out->cached_tokens);
    metric_scale_read(&PREFIX_TOKENS, hits->prompt_tokens, out->prompt_tokens);
}

/* ---- needs ----------------------------------------------------------------------------------- */

struct prefix_blocks prefix_producer_blocks(const struct prefix_producer *producer,
                                            uint32_t block_bytes) {
    uint64_t limit = PREFIX_MAX_TEXT_BYTES / block_bytes, most = producer->max_blocks;
    if (producer->max_tokens > 0) {
        most =
            producer->max_tokens /
            (block_bytes / PROMPT_BYTES_PER_TOKEN > 0 ? block_bytes / PROMPT_BYTES_PER_TOKEN : 1);
    } else if (most == 0) {
        most = limit;
    }
    return (struct prefix_blocks){block_bytes, (uint32_t)(most < limit ? most : limit)};
}

uint64_t prefix_producer_salt(const struct prefix_producer *producer) {
    return str_is(producer->name, PREFIX_PRODUCER_DEFAULT_NAME) ? 0 : hash_text(producer->name, 0);
}

/* Returns: whether there is a producer of this kind and name. */
static bool use_producer(struct pool_request_needs *needs, enum prefix_kind kind, struct str name,
                         struct prefix_user *user) {
    for (uint32_t i = 0; i < needs->n_prefixes; i++) {
        bool is_media = needs->prefixes[i].kind == PREFIX_MEDIA;
        if (is_media == (kind == PREFIX_MEDIA) && str_eq(needs->prefixes[i].name, name)) {
            user->index = i;
            needs->burst_on |= needs->prefixes[i].kind == PREFIX_BURST;
            needs->used_prefixes |= UINT32_C(1) << i;
            needs->prompt = needs->body = true;
            return true;
        }
    }
    return false;
}

enum status pool_needs_use_prefix(struct pool_request_needs *needs, struct prefix_user *user,
                                  struct error *err) {
    struct str name =
        user->producer.len > 0 ? user->producer : str_of(PREFIX_PRODUCER_DEFAULT_NAME);
    if (use_producer(needs, PREFIX_TEXT, name, user)) {
        return ST_OK;
    }
    return error_set(err, ST_BAD_CONFIG, "no approx-prefix-cache-producer is called \"%.*s\"",
                     STR_ARG(name));
}

enum status pool_needs_use_media(struct pool_request_needs *needs, struct prefix_user *user,
                                 struct error *err) {
    struct str name = user->producer.len > 0 ? user->producer : str_of(MEDIA_PRODUCER_DEFAULT_NAME);
    needs->media_items = true;
    if (use_producer(needs, PREFIX_MEDIA, name, user)) {
        return ST_OK;
    }
    if (str_is(name, MEDIA_PRODUCER_DEFAULT_NAME) && needs->n_prefixes < PREFIX_MAX_INDEXES) {
        needs->prefixes[needs->n_prefixes++] = MEDIA_PRODUCER_DEFAULT;
        (void)use_producer(needs, PREFIX_MEDIA, name, user);
        return ST_OK;
    }
    return error_set(err, ST_BAD_CONFIG, "no mm-embeddings-cache-producer is called \"%.*s\"",
                     STR_ARG(name));
}

uint32_t pool_needs_find_attribute(const struct pool_request_needs *needs,
                                   const struct attribute_key *key) {
    uint32_t i = 0;
    while (i < needs->n_attributes && !attribute_key_equal(&needs->attributes[i], key)) {
        i++;
    }
    return i;
}

enum status pool_needs_use_attribute(struct pool_request_needs *needs,
                                     const struct attribute_key *key, uint32_t *index,
                                     struct error *err) {
    uint32_t i = pool_needs_find_attribute(needs, key);
    if (i == ATTRIBUTES_MAX) {
        return error_set(err, ST_BAD_CONFIG,
                         "expected plugins that read %d attributes of endpoints at most",
                         ATTRIBUTES_MAX);
    }
    if (i == needs->n_attributes) {
        needs->attributes[needs->n_attributes++] = *key;
    }
    *index = i;
    return ST_OK;
}

void pool_needs_tokens(struct pool_request_needs *needs) {
    needs->tokens = needs->prompt = needs->body = true;
}

void pool_needs_finish(struct pool_request_needs *needs) {
    uint32_t bit = UINT32_C(1) << needs->load.prefix;
    if (needs->tokens && needs->prompt && (needs->declared_prefixes & bit)) {
        needs->used_prefixes |= bit;
    }
}

/* As upstream: of the output the whole prompt decides, and of a prompt that is longer than what is
 * compared the rest counts. */
uint64_t load_producer_count(const struct load_producer *load, uint64_t n_prompt,
                             uint64_t max_output, uint32_t block_bytes, uint32_t n_blocks,
                             uint32_t n_cached) {
    uint64_t n_compared = (uint64_t)n_blocks * block_bytes / PROMPT_BYTES_PER_TOKEN;
    uint64_t n_hit = (uint64_t)n_cached * block_bytes / PROMPT_BYTES_PER_TOKEN;
    uint64_t n = n_compared - n_hit + (n_prompt > n_compared ? n_prompt - n_compared : 0);
    if (load->adds_output) {
        double estimate = (double)n_prompt * load->output_ratio + 0.5;
        uint64_t n_output = estimate < (double)MOST_TOKENS ? (uint64_t)estimate : MOST_TOKENS;
        n_output = max_output > 0 && max_output < n_output ? max_output : n_output;
        n += load->max_output < n_output ? load->max_output : n_output;
    }
    return n < MOST_TOKENS ? n : MOST_TOKENS;
}

uint64_t pool_needs_window_bytes(const struct pool_request_needs *needs) {
    uint64_t most = 0;
    for (uint32_t i = 0; i < needs->n_prefixes; i++) {
        const struct prefix_producer *producer = &needs->prefixes[i];
        if (pool_needs_prefix(needs, i) && producer->kind != PREFIX_MEDIA) {
            struct prefix_blocks blocks = prefix_producer_blocks(producer, producer->block_bytes);
            uint64_t n = (uint64_t)blocks.most * blocks.block_bytes;
            most = n > most ? n : most;
        }
    }
    return most > 0 ? most : WINDOW_BYTES_DEFAULT;
}
