/* Removes endpoints that have as many requests of ours in flight, or tokens of these, as their
 * limit. As the configuration's saturation detector it is read by pick/config/limits.c. */
#include "pick/pool/profile/detector.h"

#include "pick/pool/profile/plugin.h"

static const char *const MODES[] = {"requests", "tokens", "hybrid", NULL};

#define SETTINGS struct concurrency_settings
static const struct doc_member PARAMETERS[] = {
    {"maxConcurrency", MEMBER_WHOLE(SETTINGS, max_requests, 1, INT32_MAX), .preset = 100,
     .help = "requests in flight of each endpoint with which the pool is saturated"},
    {"concurrencyMode", MEMBER_WORD(SETTINGS, mode, MODES),
     .help = "what counts: requests, their tokens, or at each endpoint that of the two which is "
             "nearer to its limit; `requests`"},
    {"maxTokenConcurrency", MEMBER_WHOLE(SETTINGS, max_tokens, 1, INT64_C(1) << 40),
     .preset = 1000000, .help = "tokens in flight, likewise"},
    {"headroom", MEMBER_NUMBER(SETTINGS, headroom, 0, INT64_MAX), .text = "expected 0 or more",
     .help = "as a filter of a profile: the part by which an endpoint's limits are above these"},
    {"inFlightLoadProducerName", MEMBER_TEXT(SETTINGS, producer), .form = "a name",
     .help = "of an `inflight-load-producer`; all count the same requests"},
    {0}};
#undef SETTINGS

static enum status add_needs(void *parameters, struct pool_request_needs *needs,
                             struct error *err) {
    const struct concurrency_settings *settings = parameters;
    (void)err;
    if (settings->mode != CONCURRENCY_REQUESTS) {
        pool_needs_tokens(needs);
    }
    return ST_OK;
}

/* As upstream, in whole requests and tokens. */
static float limit_of(uint64_t most, double headroom) {
    return (float)floor((double)most * (1 + headroom));
}

static bool is_within(const struct concurrency_settings *settings, float in_flight,
                      float n_tokens) {
    bool has_requests = in_flight < limit_of(settings->max_requests, settings->headroom);
    bool has_tokens = n_tokens < limit_of(settings->max_tokens, settings->headroom);
    return (settings->mode == CONCURRENCY_TOKENS || has_requests) &&
           (settings->mode == CONCURRENCY_REQUESTS || has_tokens);
}

static bool is_below_limits(const void *parameters, const struct candidate_set *candidates,
                            uint32_t i) {
    return is_within(parameters, candidate_set_other_requests(candidates, i),
                     candidate_set_other_tokens(candidates, i));
}

static bool admits(const void *parameters, uint32_t in_flight, uint64_t n_tokens) {
    return is_within(parameters, (float)in_flight, (float)n_tokens);
}

static void filter(const void *parameters, struct candidate_set *candidates) {
    candidate_set_filter(candidates, parameters, is_below_limits);
}

const struct plugin plugin_concurrency_detector = {
    .type = "concurrency-detector",
    .kind = PLUGIN_FILTER,
    PLUGIN_PARAMETERS(struct concurrency_settings, PARAMETERS),
    .add_needs = add_needs,
    .filter = filter,
    .admits = admits};
