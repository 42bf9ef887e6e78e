/* As upstream, where a prompt that many endpoints have would otherwise be fetched from one of them
 * by all others. */
#include "pick/pool/prefix/source.h"

#include "pick/pool/state.h"

/* From 0 to 1, the same for the same id: the 32-bit FNV-1a of the id. */
static double share_of(struct pool_reader *reader, struct str id) {
    uint32_t hash = UINT32_C(0x811c9dc5);
    if (id.len == 0) {
        return prng_double(&reader->prng);
    }
    for (size_t i = 0; i < id.len; i++) {
        hash = (hash ^ (unsigned char)id.ptr[i]) * UINT32_C(0x01000193);
    }
    return (double)hash / 4294967296.0;
}

static uint32_t tokens_of(const struct prefix_matches *found, uint32_t i) {
    uint64_t n_bytes = (uint64_t)found->hits[i].n_blocks * found->block_bytes;
    return (uint32_t)(n_bytes / PROMPT_BYTES_PER_TOKEN);
}

/* What an endpoint's queue leaves of its share; 0: it is no candidate. */
static double weight_of(const struct candidate_set *candidates, uint32_t member) {
    uint32_t i = candidate_set_index_of(candidates, member);
    if (i == candidates->n) {
        return 0;
    }
    bool is_known = (candidates->columns->known[i] & LOAD_WAITING) != 0;
    return 1 / (1 + (is_known ? (double)candidates->columns->n_waiting[i] : 0));
}

void prefix_source_choose(struct pool_reader *reader, const struct pool_request_needs *needs,
                          const struct pool_request *request,
                          const struct candidate_set *candidates) {
    struct prefix_source *source = &request->prompt->text->source;
    const struct prefix_matches *found = &reader->prefixes[needs->source.user.index];
    uint32_t n_block = found->block_bytes / PROMPT_BYTES_PER_TOKEN, most = 0;
    double weights[PREFIX_MAX_HOSTS] = {0}, sum = 0;
    *source = (struct prefix_source){.n_hits = found->n};
    for (uint32_t i = 0; i < found->n; i++) {
        const struct pool_member *member = &reader->snapshot->members[found->hits[i].member];
        source->hits[i].host = member->endpoint->host;
        source->hits[i].n_tokens = tokens_of(found, i);
        weights[i] = weight_of(candidates, found->hits[i].member);
        if (weights[i] > 0 && source->hits[i].n_tokens > most) {
            most = source->hits[i].n_tokens;
        }
    }
    for (uint32_t i = 0; i < found->n; i++) {
        weights[i] = source->hits[i].n_tokens + n_block < most ? 0 : weights[i];
        sum += weights[i];
    }
    double at = sum > 0 ? share_of(reader, request->id) * sum : 0;
    for (uint32_t i = 0; i < found->n && at >= 0; i++) {
        if (weights[i] > 0) {
            at -= weights[i];
            source->is_chosen = true;
            source->address = reader->snapshot->members[found->hits[i].member].endpoint->address;
            source->n_tokens = source->hits[i].n_tokens;
        }
    }
}

struct str prefix_source_for(const struct prefix_source *source, const struct endpoint *endpoint,
                             uint32_t min_tokens, struct arena *arena) {
    uint32_t n_own = 0;
    char text[ENDPOINT_TEXT_BYTES];
    for (uint32_t i = 0; i < source->n_hits; i++) {
        n_own = source->hits[i].host == endpoint->host ? source->hits[i].n_tokens : n_own;
    }
    if (!source->is_chosen || endpoint_address_equal(&source->address, &endpoint->address) ||
        source->n_tokens < (uint64_t)n_own + min_tokens) {
        return str_make(NULL, 0);
    }
    return arena_dup(arena, endpoint_address_print(&source->address, text));
}
