/* The stages of a handler, their deciders, and the profile of a stage. */
#include "pick/pool/profile/handler.h"

#include "core/base/hash.h"

const char *stage_role_name(enum stage_role role) {
    static const char *const names[N_STAGE_ROLES] = {
        [STAGE_DECODE] = "decode", [STAGE_ENCODE] = "encode", [STAGE_PREFILL] = "prefill"};
    return names[role];
}

const char *decider_kind_name(enum decider_kind kind) {
    static const char *const names[] = {
        [DECIDER_NEVER] = "never",
        [DECIDER_ALWAYS] = "always",
        [DECIDER_MULTIMODAL] = "if the prompt has pictures, sound or video",
        [DECIDER_PREFIX] = "if much of the prompt is not in the cache of the decoding server"};
    return names[kind];
}

bool stage_decider_says(const struct stage_decider *decider, const struct decider_input *input) {
    uint32_t n = input->n_prompt_tokens, least = decider->non_cached_tokens;
    switch (decider->kind) {
    case DECIDER_NEVER:
        break;
    case DECIDER_ALWAYS:
        return true;
    case DECIDER_MULTIMODAL:
        return input->has_media;
    case DECIDER_PREFIX:
        return least > 0 && input->has_peer && n >= decider->prompt_tokens && n >= least &&
               input->n_cached_tokens <= n - least;
    }
    return false;
}

void profile_handler_order(const struct profile_handler *handler,
                           enum stage_role order[N_STAGE_ROLES]) {
    order[0] = handler->prefill_first ? STAGE_PREFILL : STAGE_DECODE;
    order[1] = STAGE_ENCODE;
    order[2] = handler->prefill_first ? STAGE_DECODE : STAGE_PREFILL;
}

/* With one profile there is nothing to choose. */
static size_t find_named(const struct profile_handler *handler,
                         const struct pool_headers *headers) {
    struct str name = {NULL, 0};
    size_t i = 0;
    if (handler->n_profiles == 1) {
        return 0;
    }
    if (headers->find) {
        name = str_trim(headers->find(headers->of, handler->header));
    }
    name = name.len > 0 ? name : handler->default_profile;
    while (i < handler->n_profiles && !str_eq(handler->profiles[i].name, name)) {
        i++;
    }
    return i;
}

size_t profile_handler_find(const struct profile_handler *handler, enum stage_role role,
                            const struct pool_headers *headers) {
    if (role == STAGE_DECODE && handler->header.ptr) {
        return find_named(handler, headers);
    }
    const struct profile *profile = handler->stages[role].profile;
    return profile ? (size_t)(profile - handler->profiles) : handler->n_profiles;
}

uint64_t profile_name_hash(const struct profile *profile) {
    return hash_text(profile->name, 1) | 1;
}

static bool profile_allows(const struct profile *profile, struct pool_labels labels) {
    for (size_t i = 0; i < profile->n_filters; i++) {
        const struct profile_step *step = &profile->filters[i];
        if (step->plugin->allows && !step->plugin->allows(step->parameters, labels)) {
            return false;
        }
    }
    return true;
}

uint16_t profile_handler_allows(const struct profile_handler *handler, struct pool_labels labels) {
    unsigned bits = 0;
    if (!handler) {
        return UINT16_MAX;
    }
    for (size_t i = 0; i < handler->n_profiles; i++) {
        bits |= profile_allows(&handler->profiles[i], labels) ? 1u << i : 0;
    }
    return (uint16_t)bits;
}

enum status profile_handler_collect_needs(struct profile *profiles, size_t n, struct error *err) {
    struct pool_request_needs needs = profiles->needs;
    enum status st = ST_OK;
    for (size_t i = 0; i < n && st == ST_OK; i++) {
        st = profile_add_needs(&profiles[i], &needs, err);
    }
    pool_needs_finish(&needs);
    for (size_t i = 0; i < n && st == ST_OK; i++) {
        profiles[i].needs = needs;
    }
    return st;
}
