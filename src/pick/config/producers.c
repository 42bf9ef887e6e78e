/* A plugin without a name has its type's: so the producers that plugins use where they name none
 * are those that are declared without a name, or else have the defaults. */
#include "pick/config/producers.h"

#include "codec/http1/cookie.h"
#include "core/base/suggest.h"
#include "pick/config/plugin_list.h"
#include "pick/pool/profile/session_token.h"

enum { MOST_BLOCK_TOKENS = PREFIX_MAX_BLOCK_BYTES / PROMPT_BYTES_PER_TOKEN };
enum { BLOCK_TOKENS_DEFAULT = 16 };

/* ---- approx-prefix-cache-producer ------------------------------------------------------------ */

static void check_block_tokens(struct doc_reader *reader, const struct doc_node *node,
                               void *object) {
    const struct prefix_producer_settings *settings = object;
    if (settings->block_tokens == 0 && !settings->auto_tune) {
        doc_reader_fail(reader, node, "expected 1 or more, as autoTune is false");
    }
}

#define SETTINGS struct prefix_producer_settings
const struct doc_member PICKER_PREFIX_PRODUCER[] = {
    {"autoTune", MEMBER_BOOL(SETTINGS, auto_tune), .preset = true,
     .help = "use the sizes of the cache and of its blocks that endpoints report"},
    {"blockSizeTokens", MEMBER_WHOLE(SETTINGS, block_tokens, 0, MOST_BLOCK_TOKENS),
     .preset = BLOCK_TOKENS_DEFAULT, .check = check_block_tokens,
     .help = "tokens of a block; less than 64 counts as 64"},
    {"blockSize", MEMBER_WHOLE(SETTINGS, block_chars, 0, MOST_BLOCK_TOKENS),
     .help = "an older name of `blockSizeTokens`"},
    {"maxPrefixTokensToMatch", MEMBER_WHOLE(SETTINGS, max_tokens, 0, INT32_MAX),
     .preset = PREFIX_TOKENS_DEFAULT,
     .help = "of the prompt's beginning; more than 1048576 counts as that; 0: "
             "`maxPrefixBlocksToMatch` counts"},
    {"maxPrefixBlocksToMatch", MEMBER_WHOLE(SETTINGS, max_blocks, 0, INT32_MAX), .preset = 2048,
     .help = "the same in blocks; 0: 1048576 tokens"},
    {"lruCapacityPerServer", MEMBER_WHOLE(SETTINGS, capacity, 0, INT32_MAX),
     .preset = PREFIX_CAPACITY_DEFAULT, .help = "blocks that an endpoint caches; 0: 31250"},
    {0}};
#undef SETTINGS

static struct prefix_producer producer_of(const struct declared_plugin *declared) {
    const struct prefix_producer_settings *settings = declared->settings;
    bool is_older = settings->block_chars > 0 && settings->block_tokens == BLOCK_TOKENS_DEFAULT;
    uint64_t n_tokens = is_older ? settings->block_chars : settings->block_tokens;
    n_tokens = n_tokens > PREFIX_BLOCK_TOKENS_MIN ? n_tokens : PREFIX_BLOCK_TOKENS_MIN;
    return (struct prefix_producer){
        .name = declared->name,
        .block_bytes = (uint32_t)n_tokens * PROMPT_BYTES_PER_TOKEN,
        .max_tokens = settings->max_tokens,
        .max_blocks = settings->max_blocks,
        .capacity = settings->capacity > 0 ? (uint32_t)settings->capacity
                                           : (uint32_t)PREFIX_CAPACITY_DEFAULT,
        .auto_capacity = settings->auto_tune,
        .auto_block = settings->auto_tune,
    };
}

/* ---- mm-embeddings-cache-producer ------------------------------------------------------------ */

/* Upstream takes the default for 0 and less. */
static void read_cache_mib(struct doc_reader *reader, const struct doc_node *node, void *out) {
    double n = 0;
    doc_reader_f64(reader, node, &n);
    if (!(n >= INT32_MIN && n <= INT32_MAX) || n != (double)(int64_t)n) {
        doc_reader_fail(reader, node, "expected a whole number up to %d", INT32_MAX);
        return;
    }
    uint64_t n_mib = n > 0 ? (uint64_t)n : MEDIA_CACHE_MIB_DEFAULT;
    uint64_t capacity = (n_mib << 20) / MEDIA_BYTES;
    *(uint32_t *)out = capacity > 0 ? (uint32_t)capacity : 1;
}

const struct doc_member PICKER_MEDIA_PRODUCER[] = {
    {"cacheSizeInMBPerServer",
     MEMBER_CUSTOM_FIELD(struct media_producer_settings, capacity, uint32_t, read_cache_mib),
     .form = "a number of MiB",
     .help = "of the cache that an endpoint has for pictures, sounds and videos, each of which "
             "takes 2 MiB; 0 or less: 4096"},
    {0}};

static struct prefix_producer media_producer_of(const struct declared_plugin *declared) {
    const struct media_producer_settings *settings = declared->settings;
    struct prefix_producer producer = MEDIA_PRODUCER_DEFAULT;
    producer.name = declared->name;
    producer.capacity = settings->capacity;
    return producer;
}

/* ---- burst-prefix-cache-producer ------------------------------------------------------------- */

static const char *const BALANCES[] = {"requests", "tokens", NULL};
enum { MOST_BURST_BLOCKS = 16384, BURST_BLOCKS_DEFAULT = 2048, MOST_WINDOW_MS = 10000 };
enum { BURST_BATCH_DEFAULT = 1000 };

/* -1: no limit, which is 0 in the field. */
static void read_limit(struct doc_reader *reader, const struct doc_node *node, void *out) {
    double n = -1;
    doc_reader_f64(reader, node, &n);
    bool is_whole = n >= -1 && n <= INT32_MAX && (int64_t)n != 0 && !(n > (double)(int64_t)n) &&
                    !(n < (double)(int64_t)n);
    if (!is_whole) {
        doc_reader_fail(reader, node, "expected -1, or a whole number from 1 to %d", INT32_MAX);
    } else if (node->val) {
        *(uint32_t *)out = n > 0 ? (uint32_t)n : 0;
    }
}

static void read_max_batch(struct doc_reader *reader, const struct doc_node *node, void *out) {
    *(uint32_t *)out = BURST_BATCH_DEFAULT;
    read_limit(reader, node, out);
}

static void check_max_tokens(struct doc_reader *reader, const struct doc_node *node, void *object) {
    const struct burst_producer_settings *settings = object;
    if (settings->max_tokens > 0 && settings->max_tokens < settings->block_tokens) {
        doc_reader_fail(reader, node, "expected 0, or blockSizeTokens (%llu) or more",
                        (unsigned long long)settings->block_tokens);
    }
}

#define SETTINGS struct burst_producer_settings
const struct doc_member PICKER_BURST_PRODUCER[] = {
    {"windowDurationMs", MEMBER_WHOLE(SETTINGS, window_ms, 1, MOST_WINDOW_MS), .preset = 100,
     .help = "milliseconds that requests are held, from the first one on"},
    {"maxPerReplica", MEMBER_CUSTOM_FIELD(SETTINGS, max_per_replica, uint32_t, read_limit),
     .form = "-1, or 1 or more",
     .help = "requests with one prompt at an endpoint; -1, the default, is no limit"},
    {"blockSizeTokens", MEMBER_WHOLE(SETTINGS, block_tokens, 1, MOST_BLOCK_TOKENS), .preset = 64,
     .help = "tokens of a block"},
    {"maxPrefixTokensToMatch", MEMBER_WHOLE(SETTINGS, max_tokens, 0, INT32_MAX),
     .check = check_max_tokens,
     .help = "of the prompt's beginning, at most 16384 blocks; 0: 2048 blocks"},
    {"minColocateBlocks", MEMBER_WHOLE(SETTINGS, min_blocks, 0, INT32_MAX),
     .help = "blocks that different prompts share which come together; 0: only equal ones do"},
    {"maxBatchSize", MEMBER_CUSTOM_FIELD(SETTINGS, max_batch, uint32_t, read_max_batch),
     .form = "-1, or 1 or more",
     .help = "requests that are held at a time, by default 1000, at most 2048: others are picked "
             "for at once"},
    {"balanceBy", MEMBER_WORD(SETTINGS, balance, BALANCES),
     .help = "what is spread over the endpoints: requests, or blocks of prompts that they do not "
             "have yet"},
    {0}};
#undef SETTINGS

static struct prefix_producer burst_producer_of(const struct declared_plugin *declared) {
    const struct burst_producer_settings *settings = declared->settings;
    uint64_t most = settings->max_tokens / settings->block_tokens;
    most = settings->max_tokens == 0 ? BURST_BLOCKS_DEFAULT : most;
    return (struct prefix_producer){
        .name = declared->name,
        .kind = PREFIX_BURST,
        .block_bytes = (uint32_t)settings->block_tokens * PROMPT_BYTES_PER_TOKEN,
        .max_blocks = most < MOST_BURST_BLOCKS ? most : MOST_BURST_BLOCKS,
        .capacity = 1};
}

static void set_burst_rules(struct doc_reader *reader, const struct declared_plugin *declared,
                            uint32_t index, struct pool_request_needs *needs) {
    const struct burst_producer_settings *settings = declared->settings;
    if (needs->burst.window_ns > 0) {
        doc_reader_fail(reader, &declared->item, "expected one %s: requests are held in one window",
                        BURST_PRODUCER_TYPE);
    }
    needs->burst_index = index;
    needs->burst = (struct burst_rules){.window_ns = settings->window_ms * 1000000,
                                        .max_per_replica = settings->max_per_replica,
                                        .min_blocks = settings->min_blocks,
                                        .max_batch = settings->max_batch > 0 ? settings->max_batch
                                                                             : UINT32_MAX,
                                        .by_tokens = settings->balance == 1};
}

/* ---- producers with an index ----------------------------------------------------------------- */

static bool is_of_type(const struct declared_plugin *declared, const struct doc_member *table) {
    return declared->type && declared->type->parameters == table && declared->settings;
}

static void declare_prefix_producers(struct doc_reader *reader, const struct plugin_list *list,
                                     struct pool_request_needs *needs) {
    needs->prefixes[0] = PREFIX_PRODUCER_DEFAULT;
    needs->n_prefixes = 1;
    for (size_t i = 0; i < list->n; i++) {
        const struct declared_plugin *declared = &list->items[i];
        bool is_text = is_of_type(declared, PICKER_PREFIX_PRODUCER);
        bool is_burst = is_of_type(declared, PICKER_BURST_PRODUCER);
        if (!is_text && !is_burst && !is_of_type(declared, PICKER_MEDIA_PRODUCER)) {
            continue;
        }
        struct prefix_producer producer = is_text    ? producer_of(declared)
                                          : is_burst ? burst_producer_of(declared)
                                                     : media_producer_of(declared);
        uint32_t index = needs->n_prefixes;
        if (is_burst) {
            set_burst_rules(reader, declared, index, needs);
        }
        if (is_text && str_is(declared->name, PREFIX_PRODUCER_DEFAULT_NAME)) {
            index = 0;
            needs->prefixes[0] = producer;
        } else if (needs->n_prefixes < PREFIX_MAX_INDEXES) {
            needs->prefixes[needs->n_prefixes++] = producer;
        } else {
            doc_reader_fail(reader, &declared->item,
                            "expected at most %d plugins \"%s\" with a name of their own, "
                            "\"%s\" and \"%s\" together",
                            PREFIX_MAX_INDEXES - 1, PREFIX_PRODUCER_DEFAULT_NAME,
                            MEDIA_PRODUCER_DEFAULT_NAME, BURST_PRODUCER_TYPE);
        }
        needs->declared_prefixes |= UINT32_C(1) << index;
    }
}

/* ---- p2p-source-producer --------------------------------------------------------------------- */

const struct doc_member PICKER_SOURCE_PRODUCER[] = {
    {"prefixMatchInfoProducerName", MEMBER_TEXT(struct source_producer_settings, prefix_producer),
     .form = "a name", .help = "of the producer that says what of the prompt an endpoint has"},
    {"minCachedTokenDelta", MEMBER_WHOLE(struct source_producer_settings, min_tokens, 1, INT32_MAX),
     .preset = 1,
     .help = "tokens that the named endpoint has more of than the one that computes the prompt"},
    {"prefillProfileName", MEMBER_TEXT(struct source_producer_settings, profile), .form = "a name",
     .help = "of the profile whose endpoint computes the prompt, where it runs, by default "
             "prefill; else the destination computes it"},
    {0}};

/* There is one header. */
static void declare_source_producer(struct doc_reader *reader, const struct plugin_list *list,
                                    struct pool_request_needs *needs) {
    for (size_t i = 0; i < list->n; i++) {
        const struct declared_plugin *declared = &list->items[i];
        const struct source_producer_settings *settings = declared->settings;
        struct error why;
        if (!is_of_type(declared, PICKER_SOURCE_PRODUCER)) {
            continue;
        }
        if (needs->source.on) {
            doc_reader_fail(reader, &declared->item,
                            "expected one p2p-source-producer: requests have one header for it");
        }
        needs->source = (struct source_producer){
            .on = true,
            .user = {.producer = settings->prefix_producer},
            .min_tokens = settings->min_tokens,
            .profile = settings->profile.len > 0 ? settings->profile : STR("prefill")};
        /* A name that none has is reported where references are checked. */
        (void)!pool_needs_use_prefix(needs, &needs->source.user, &why);
    }
}

/* ---- inflight-load-producer ------------------------------------------------------------------ */

/* 0 is a limit, too. */
static void read_max_output(struct doc_reader *reader, const struct doc_node *node, void *out) {
    uint64_t max_output = 0;
    doc_reader_u64(reader, node, 0, INT32_MAX, &max_output);
    *(uint64_t *)out = node->val ? max_output + 1 : 0;
}

#define SETTINGS struct load_producer_settings
const struct doc_member PICKER_LOAD_PRODUCER[] = {
    {"addEstimatedOutputTokens", MEMBER_BOOL(SETTINGS, adds_output),
     .help = "tokens in flight include the output, and count until the request ends; false: the "
             "prompt alone, until the response's body begins"},
    {"outputRatio", MEMBER_NUMBER(SETTINGS, output_ratio, 0, 1000000), .preset = 1.5,
     .help = "estimated tokens of the output for each of the prompt"},
    {"maxEstimatedOutputTokens",
     MEMBER_CUSTOM_FIELD(SETTINGS, max_output, uint64_t, read_max_output), .form = "a number",
     .help = "of the estimate; no limit but the request's `max_tokens`"},
    {"prefixMatchInfoProducerName", MEMBER_TEXT(SETTINGS, prefix_producer), .form = "a name",
     .help = "of the producer that says what of the prompt an endpoint has in its cache"},
    {"syncCrossReplicaState", MEMBER_BOOL(SETTINGS, syncs), .preset = true,
     .help = "no effect: replicas do not share state"},
    {0}};
#undef SETTINGS

static uint32_t find_prefix(const struct pool_request_needs *needs, struct str name) {
    uint32_t i = 0;
    while (name.len > 0 && i < needs->n_prefixes && !str_eq(needs->prefixes[i].name, name)) {
        i++;
    }
    return i < needs->n_prefixes ? i : 0;
}

static bool is_same_load(const struct load_producer *a, const struct load_producer *b) {
    return a->adds_output == b->adds_output && a->max_output == b->max_output &&
           !(a->output_ratio < b->output_ratio) && !(a->output_ratio > b->output_ratio) &&
           a->prefix == b->prefix;
}

/* Tokens in flight are counted once, so several producers must count alike. */
static void declare_load_producers(struct doc_reader *reader, const struct plugin_list *list,
                                   struct pool_request_needs *needs) {
    needs->load = LOAD_PRODUCER_DEFAULT;
    for (size_t i = 0; i < list->n; i++) {
        const struct declared_plugin *declared = &list->items[i];
        const struct load_producer_settings *settings = declared->settings;
        if (!declared->type || declared->type->parameters != PICKER_LOAD_PRODUCER || !settings) {
            continue;
        }
        struct load_producer load = {
            .adds_output = settings->adds_output,
            .output_ratio = settings->output_ratio,
            .max_output = settings->max_output > 0 ? settings->max_output - 1 : UINT64_MAX,
            .prefix = find_prefix(needs, settings->prefix_producer)};
        if (needs->tokens && !is_same_load(&load, &needs->load)) {
            doc_reader_fail(reader, &declared->item,
                            "expected the same parameters as of the other inflight-load-producer: "
                            "tokens in flight are counted once");
        }
        needs->load = load;
        needs->tokens = true;
    }
}

/* A concurrency-detector may count tokens; its parameters are checked where they are read. */
static void declare_detector(const struct plugin_list *list, struct pool_request_needs *needs) {
    for (size_t i = 0; i < list->n; i++) {
        const struct declared_plugin *declared = &list->items[i];
        struct doc_node mode = doc_get(&declared->parameters, "concurrencyMode");
        struct str word = {NULL, 0};
        if (declared->type && declared->type->kind == PICKER_PLUGIN_DETECTOR && mode.val &&
            doc_read_str(&mode, &word, NULL) == ST_OK && !str_is(word, "requests")) {
            pool_needs_tokens(needs);
        }
    }
}

/* ---- token-producer -------------------------------------------------------------------------- */

static const char *const PICTURE_MODES[] = {"dynamic", "static", NULL};
static const char *const FRAME_MODES[] = {"sampled", "strided", NULL};

/* `out`: a bool; the second word is true. */
static void read_mode(struct doc_reader *reader, const struct doc_node *node,
                      const char *const *words, bool *out) {
    unsigned word = *out;
    doc_reader_word(reader, node, words, NULL, &word);
    *out = word == 1;
}

static void read_picture_mode(struct doc_reader *reader, const struct doc_node *node, void *out) {
    read_mode(reader, node, PICTURE_MODES, out);
}

static void read_frame_mode(struct doc_reader *reader, const struct doc_node *node, void *out) {
    read_mode(reader, node, FRAME_MODES, out);
}

/* 0 leaves the default. */
static void read_positive(struct doc_reader *reader, const struct doc_node *node, void *out) {
    uint64_t *number = out, n = 0;
    doc_reader_u64(reader, node, 0, INT32_MAX, &n);
    *number = n > 0 ? n : *number;
}

static void read_positive_number(struct doc_reader *reader, const struct doc_node *node,
                                 void *out) {
    double *number = out, n = 0;
    doc_reader_f64(reader, node, &n);
    if (!(n >= 0 && n <= INT32_MAX)) {
        doc_reader_fail(reader, node, "expected a number from 0 to %d", INT32_MAX);
    }
    *number = n > 0 ? n : *number;
}

#define COUNT(type, field) MEMBER_CUSTOM_FIELD(type, field, uint64_t, read_positive)
#define NUMBER(type, field) MEMBER_CUSTOM_FIELD(type, field, double, read_positive_number)
#define PICTURE struct picture_tokens
static const struct doc_member RESOLUTION[] = {
    {"width", COUNT(PICTURE, width)}, {"height", COUNT(PICTURE, height)}, {0}};
static const struct doc_member DYNAMIC[] = {{"factor", COUNT(PICTURE, factor)}, {0}};
static const struct doc_member STATIC_IMAGE[] = {{"staticToken", COUNT(PICTURE, constant)}, {0}};
static const struct doc_member STATIC_FRAME[] = {{"numTokensPerFrame", COUNT(PICTURE, constant)},
                                                 {0}};
static const struct doc_member IMAGE[] = {
    {"mode", MEMBER_CUSTOM_FIELD(PICTURE, is_constant, bool, read_picture_mode)},
    {"defaultResolution", MEMBER_OBJECT(RESOLUTION)},
    {"static", MEMBER_OBJECT(STATIC_IMAGE)},
    {"dynamic", MEMBER_OBJECT(DYNAMIC)},
    {0}};
static const struct doc_member PER_FRAME[] = {
    {"mode", MEMBER_CUSTOM_FIELD(PICTURE, is_constant, bool, read_picture_mode)},
    {"static", MEMBER_OBJECT(STATIC_FRAME)},
    {"dynamic", MEMBER_OBJECT(DYNAMIC)},
    {0}};
#undef PICTURE
#define MEDIA struct media_estimate
static const struct doc_member SAMPLED[] = {
    {"sampleFPS", NUMBER(MEDIA, sampled_fps)}, {"temporalPatchSize", COUNT(MEDIA, patch)}, {0}};
static const struct doc_member STRIDED[] = {
    {"defaultSourceFPS", NUMBER(MEDIA, source_fps)}, {"frameStride", COUNT(MEDIA, stride)}, {0}};
static const struct doc_member FRAMES[] = {
    {"mode", MEMBER_CUSTOM_FIELD(MEDIA, is_strided, bool, read_frame_mode)},
    {"minFrames", COUNT(MEDIA, min_frames)},
    {"maxFrames", COUNT(MEDIA, max_frames)},
    {"sampled", MEMBER_OBJECT(SAMPLED)},
    {"strided", MEMBER_OBJECT(STRIDED)},
    {0}};
static const struct doc_member VIDEO[] = {
    {"defaultResolution", MEMBER_OBJECT(RESOLUTION), .offset = offsetof(MEDIA, frame)},
    {"defaultDuration", NUMBER(MEDIA, duration_s)},
    {"tokensPerFrame", MEMBER_OBJECT(PER_FRAME), .offset = offsetof(MEDIA, frame)},
    {"frames", MEMBER_OBJECT(FRAMES)},
    {"maxVideoTokens", COUNT(MEDIA, max_video_tokens)},
    {0}};
static const struct doc_member ESTIMATE[] = {
    {"image", MEMBER_OBJECT(IMAGE), .offset = offsetof(MEDIA, image)},
    {"video", MEMBER_OBJECT(VIDEO)},
    {0}};
#undef MEDIA
#undef COUNT
#undef NUMBER

#define NO_TOKENS                                                                                  \
    "prompts are not sent to an engine for their tokens; `estimate` counts four bytes as one"

static void read_estimate(struct doc_reader *reader, const struct doc_node *node, void *out) {
    struct media_estimate *media = out;
    *media = MEDIA_ESTIMATE_DEFAULT;
    if (doc_is_present(node)) {
        doc_reader_object(reader, node, ESTIMATE, media);
    }
}

const struct doc_member PICKER_TOKEN_PRODUCER[] = {
    {"estimate",
     MEMBER_CUSTOM_FIELD(struct token_producer_settings, media, struct media_estimate,
                         read_estimate),
     .members = ESTIMATE, .help = "how many tokens pictures and videos count"},
    {"vllm", MEMBER_REFUSED(NO_TOKENS)},
    {"modelName", MEMBER_REFUSED(NO_TOKENS)},
    {"udsTokenizerConfig", MEMBER_REFUSED(NO_TOKENS)},
    {0}};

/* ---- session-id-producer --------------------------------------------------------------------- */

/* As upstream, blanks around the names do not count. */
static void read_session_header(struct doc_reader *reader, const struct doc_node *node, void *out) {
    struct str text = STR(""), *header = out;
    doc_reader_view(reader, node, &text);
    text = str_trim(text);
    doc_reader_dup_lower(reader, text, header);
    if (doc_reader_ok(reader) && text.len > 0 && !pool_config_is_header(*header)) {
        doc_reader_fail(reader, node, "expected the name of a header, got \"%.*s\"", STR_ARG(text));
    }
}

static void read_session_cookie(struct doc_reader *reader, const struct doc_node *node,
                                void *object) {
    struct session_producer_settings *settings = object;
    struct str text = STR("");
    doc_reader_view(reader, node, &text);
    text = str_trim(text);
    if (text.len > 0 && !cookie_is_name(text)) {
        doc_reader_fail(reader, node, "expected the name of a cookie, got \"%.*s\"", STR_ARG(text));
    }
    doc_reader_dup(reader, text, &settings->cookie);
    if (doc_reader_ok(reader) && (text.len > 0) == (settings->header.len > 0)) {
        doc_reader_fail(reader, node->parent, "expected `headerName` or `cookieName`, got %s",
                        text.len > 0 ? "both" : "neither");
    }
}

const struct doc_member PICKER_SESSION_PRODUCER[] = {
    {"headerName",
     MEMBER_CUSTOM_FIELD(struct session_producer_settings, header, struct str, read_session_header),
     .form = "the name of a header", .help = "which has the session's id"},
    {"cookieName", MEMBER_CUSTOM(read_session_cookie), .form = "the name of a cookie",
     .help = "which has it; one of the two is given"},
    {0}};

/* Where the producer of a source finds the id. Fails at `parameters`, which are those of the plugin
 * with the source. */
static void resolve_session_source(struct doc_reader *reader, const struct plugin_list *list,
                                   const struct doc_node *parameters,
                                   struct session_id_source *source) {
    const struct declared_plugin *found = plugin_list_find(list, source->producer);
    struct suggestion suggestion = {0};
    char hint[SUGGEST_HINT_BYTES];
    if (found && is_of_type(found, PICKER_SESSION_PRODUCER)) {
        const struct session_producer_settings *settings = found->settings;
        source->header = settings->header;
        source->cookie = settings->cookie;
        return;
    }
    for (size_t i = 0; i < list->n; i++) {
        if (is_of_type(&list->items[i], PICKER_SESSION_PRODUCER)) {
            suggest_consider(&suggestion, source->producer, list->items[i].name);
        }
    }
    struct doc_node config = doc_get(parameters, "sessionIdConfig");
    struct doc_node sources = doc_get(&config, "sources");
    doc_reader_fail(reader, &sources, "no plugin \"session-id-producer\" has the name \"%.*s\"%s",
                    STR_ARG(source->producer), suggest_hint(&suggestion, hint));
}

static void resolve_session_sources(struct doc_reader *reader, const struct plugin_list *list) {
    for (size_t i = 0; i < list->n; i++) {
        const struct declared_plugin *declared = &list->items[i];
        struct session_parameters *parameters = declared->settings;
        bool has_sources = parameters && (declared->plugin == &plugin_session_affinity_filter ||
                                          declared->plugin == &plugin_session_affinity_scorer);
        for (size_t k = 0; has_sources && k < parameters->id.n_sources; k++) {
            if (parameters->id.sources[k].producer.len > 0) {
                resolve_session_source(reader, list, &declared->parameters,
                                       &parameters->id.sources[k]);
            }
        }
    }
}

/* ---- references ------------------------------------------------------------------------------ */

static void declare_token_producer(const struct plugin_list *list,
                                   struct pool_request_needs *needs) {
    for (size_t i = 0; i < list->n; i++) {
        const struct declared_plugin *declared = &list->items[i];
        if (declared->type && declared->type->parameters == PICKER_TOKEN_PRODUCER &&
            declared->settings) {
            needs->estimate = &((const struct token_producer_settings *)declared->settings)->media;
        }
    }
}

/* A plugin may refer to a type that is not declared: the producer has its defaults then. */
static void check_reference(struct doc_reader *reader, const struct plugin_list *list,
                            const struct declared_plugin *from, const char *member,
                            const char *type, const char *other) {
    struct doc_node node = doc_get(&from->parameters, member);
    struct str name = {NULL, 0};
    if (!doc_is_present(&node)) {
        return;
    }
    doc_reader_view(reader, &node, &name);
    const struct declared_plugin *found = plugin_list_find(list, name);
    bool is_right =
        found && found->type &&
        (strcmp(found->type->type, type) == 0 || (other && strcmp(found->type->type, other) == 0));
    if (found && !is_right) {
        doc_reader_fail(reader, &node, "\"%.*s\" is of another type than \"%s\"", STR_ARG(name),
                        type);
    } else if (!found && name.len > 0 && !str_is(name, type)) {
        struct suggestion suggestion = {0};
        char hint[SUGGEST_HINT_BYTES];
        for (size_t i = 0; i < list->n; i++) {
            if (list->items[i].type && strcmp(list->items[i].type->type, type) == 0) {
                suggest_consider(&suggestion, name, list->items[i].name);
            }
        }
        doc_reader_fail(reader, &node, "no plugin \"%s\" has the name \"%.*s\"%s", type,
                        STR_ARG(name), suggest_hint(&suggestion, hint));
    }
}

void picker_declare_producers(struct doc_reader *reader, const struct plugin_list *list,
                              struct pool_request_needs *needs) {
    declare_prefix_producers(reader, list, needs);
    declare_load_producers(reader, list, needs);
    declare_source_producer(reader, list, needs);
    declare_detector(list, needs);
    declare_token_producer(list, needs);
    resolve_session_sources(reader, list);
    for (size_t i = 0; i < list->n; i++) {
        check_reference(reader, list, &list->items[i], "prefixMatchInfoProducerName",
                        PREFIX_PRODUCER_DEFAULT_NAME, BURST_PRODUCER_TYPE);
        check_reference(reader, list, &list->items[i], "inFlightLoadProducerName",
                        "inflight-load-producer", NULL);
        check_reference(reader, list, &list->items[i], "producerName", MEDIA_PRODUCER_DEFAULT_NAME,
                        NULL);
    }
}
