/* Sessions, as upstream's plugins of session affinity have them. By the one strategy a header of
 * the response is a token that names the endpoint in base64, NAMESPACE/POD, and the client sends it
 * back in its next request; an endpoint without a pod is named by its address. By the other one the
 * client has an id for its session, and the endpoint is remembered (session_id.h).
 *
 * Thread: any. */
#ifndef SLUICE_PICK_POOL_PROFILE_SESSION_TOKEN_H
#define SLUICE_PICK_POOL_PROFILE_SESSION_TOKEN_H

#include "core/base/arena.h"
#include "pick/pool/profile/session_id.h"

enum { SESSION_TOKEN_MAX_BYTES = 1024 };

struct session_parameters {
    bool by_id;
    struct str header; /* of the token, in lower case */
    struct session_id_parameters id;
};
extern const struct doc_member SESSION_PARAMETERS[];

/* `add_needs` of the plugin of this type. */
enum status session_add_needs(struct session_parameters *parameters, const char *type,
                              struct pool_request_needs *needs, struct error *err) SLUICE_MUST_USE;

/* Returns: the index of the candidate that the request's session is to go to; candidates->n:
 * none. */
uint32_t session_find(const struct session_parameters *parameters,
                      struct candidate_set *candidates);
/* The token of an endpoint. Returns: ptr NULL when out of memory. Owns: in `arena`. */
struct str session_token_print(const struct pool_member *member, struct arena *arena);

#endif
