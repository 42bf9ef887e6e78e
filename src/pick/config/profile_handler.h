/* The parameters of profile handlers and their deciders, and how they become the handler of a
 * pool's profiles (pick/pool/profile/handler.h). */
#ifndef SLUICE_PICK_CONFIG_PROFILE_HANDLER_H
#define SLUICE_PICK_CONFIG_PROFILE_HANDLER_H

#include "pick/config/plugin_list.h"
#include "pick/pool/profile/handler.h"

/* disagg-profile-handler and pd-profile-handler. */
struct picker_disagg {
    struct str profiles[N_STAGE_ROLES]; /* names; ptr NULL: the stage's own */
    struct str deciders[N_STAGE_ROLES]; /* names of plugins; ptr NULL: none */
    struct str prefill_decider;         /* the oldest parameter for it */
    bool prefill_first;
    unsigned missing; /* skip or refuse */
    uint16_t primary_port;
};
/* data-parallel-profile-handler */
struct picker_data_parallel {
    uint16_t primary_port;
};
/* header-profile-handler */
struct picker_by_header {
    struct str header, default_profile;
};
/* prefix-based-pd-decider */
struct picker_prefix_decider {
    uint32_t non_cached_tokens, prompt_tokens;
};
extern const struct doc_member PICKER_DISAGG[], PICKER_PD[], PICKER_DATA_PARALLEL[],
    PICKER_BY_HEADER[], PICKER_PREFIX_DECIDER[];

/* Makes the handler of the profiles, of which there is one at least, and collects their needs.
 * `node`: for errors. Returns: NULL where there is none, as for one profile, or after an error. */
struct profile_handler *pool_config_read_handler(struct doc_reader *reader,
                                                 const struct doc_node *node,
                                                 const struct plugin_list *list,
                                                 struct profile *profiles, size_t n);

#endif
