/* What an endpoint does where several share a request: to take in pictures and sounds, to read the
 * prompt, to make tokens. It says so by its label "llm-d.ai/role", whose values are the upstream
 * project's. */
#ifndef SLUICE_PICK_POOL_PROFILE_ROLE_H
#define SLUICE_PICK_POOL_PROFILE_ROLE_H

#include "pick/pool/profile/plugin.h"

enum role { ROLE_ENCODE = 1, ROLE_PREFILL = 2, ROLE_DECODE = 4 };

/* Does the endpoint have it? One without the label only decodes. */
bool labels_have_role(struct pool_labels labels, enum role role);

#endif
