/* Session tokens, as upstream's plugins of session affinity have them: a header of the response
 * names the endpoint in base64, NAMESPACE/POD, and the client sends it back in its next request. An
 * endpoint without a pod is named by its address.
 *
 * Thread: any. */
#ifndef SLUICE_PICK_POOL_PROFILE_SESSION_TOKEN_H
#define SLUICE_PICK_POOL_PROFILE_SESSION_TOKEN_H

#include "core/base/arena.h"
#include "pick/pool/profile/plugin.h"

enum { SESSION_TOKEN_MAX_BYTES = 1024 };

struct session_token_parameters {
    struct str header; /* in lower case */
};
extern const struct doc_member SESSION_TOKEN_PARAMETERS[];

/* `add_needs` of these plugins: the response's header is set. */
enum status session_token_add_needs(void *parameters, struct pool_request_needs *needs,
                                    struct error *err) SLUICE_MUST_USE;

/* Returns: the index of the candidate that the request's header names; candidates->n: none. */
uint32_t session_token_find(const struct session_token_parameters *parameters,
                            const struct candidate_set *candidates);
/* The token of an endpoint. Returns: ptr NULL when out of memory. Owns: in `arena`. */
struct str session_token_print(const struct pool_member *member, struct arena *arena);

#endif
