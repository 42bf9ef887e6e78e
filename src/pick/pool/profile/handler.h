/* A profile handler: which of a pool's profiles a request runs. Most pools have one profile and no
 * handler. A handler with stages runs a profile for each server that shares the work on a request:
 * the one that decodes, to which the request is sent, and those that encode pictures and that
 * prefill, which deciders may leave out. Another handler runs the profile that a header names.
 * Names and meaning are those of the upstream project.
 *
 * Thread: any; a handler is immutable. */
#ifndef SLUICE_PICK_POOL_PROFILE_HANDLER_H
#define SLUICE_PICK_POOL_PROFILE_HANDLER_H

#include "pick/pool/profile/profile.h"

/* The stages of a request. The first is the destination. */
enum stage_role { STAGE_DECODE, STAGE_ENCODE, STAGE_PREFILL, N_STAGE_ROLES };

/* Which stages a request has, where a profile handler decides on them. */
enum pick_decision {
    PICK_DECODE_ONLY,
    PICK_PREFILL_DECODE,
    PICK_ENCODE_DECODE,
    PICK_ENCODE_PREFILL_DECODE,
    N_PICK_DECISIONS, /* none decides */
};

enum decider_kind {
    DECIDER_NEVER, /* there is none */
    DECIDER_ALWAYS,
    DECIDER_MULTIMODAL, /* the prompt has pictures, sound or video */
    DECIDER_PREFIX,     /* a long part of the prompt is not in the decoding server's cache */
};

struct stage_decider {
    enum decider_kind kind;
    uint32_t non_cached_tokens; /* the least number that is not in the cache; 0: never */
    uint32_t prompt_tokens;     /* the least number in the prompt */
};

/* What a decider knows of a request. */
struct decider_input {
    uint32_t n_prompt_tokens; /* estimate; 0: unknown */
    uint32_t n_cached_tokens; /* at the peer */
    bool has_peer;            /* the decoding server is known */
    bool has_media;
};

/* Whether the stage runs. */
bool stage_decider_says(const struct stage_decider *decider, const struct decider_input *input);

enum { HANDLER_MOST_PROFILES = 16 };

struct handler_stage {
    const struct profile *profile; /* of the handler's profiles; NULL: there is no such stage */
    struct stage_decider decider;  /* not of STAGE_DECODE */
};

struct profile_handler {
    struct str type;                /* "disagg-profile-handler" */
    struct str name;                /* of the plugin */
    bool is_disagg;                 /* it decides on stages */
    const struct profile *profiles; /* at most HANDLER_MOST_PROFILES */
    size_t n_profiles;
    struct handler_stage stages[N_STAGE_ROLES]; /* STAGE_DECODE has a profile */
    bool prefill_first; /* prefill, encode, decode; else decode, encode, prefill */
    bool refuses;       /* a request whose stage has no endpoint is refused; else it does without */
    /* The header of the request that names the profile, and the name where it does not; ptr NULL:
     * no header does. */
    struct str header, default_profile;
    uint16_t primary_port; /* requests are sent to this port of the picked endpoint; 0: to its
                              own */
};

/* The stages in the order of their picks. */
void profile_handler_order(const struct profile_handler *handler,
                           enum stage_role order[N_STAGE_ROLES]);
/* "prefill" */
const char *stage_role_name(enum stage_role role);
/* "if the prompt has media" */
const char *decider_kind_name(enum decider_kind kind);

/* The profile that a stage of the request runs. Returns: its index; n_profiles: there is none. */
size_t profile_handler_find(const struct profile_handler *handler, enum stage_role role,
                            const struct pool_headers *headers);

/* Of its name; never 0. */
uint64_t profile_name_hash(const struct profile *profile);
/* A bit for each profile whose filters may keep an endpoint with these labels. Without a handler
 * all. */
uint16_t profile_handler_allows(const struct profile_handler *handler, struct pool_labels labels);

/* Collects what the plugins of all profiles need, in all of them: a request is read once. It begins
 * with the needs of the first, which has the producers. Returns: ST_BAD_CONFIG when the needs
 * conflict. */
enum status profile_handler_collect_needs(struct profile *profiles, size_t n,
                                          struct error *err) SLUICE_MUST_USE;

#endif
