/* Between the public structs of MIP and its packets: what is asked, and what came of it. It refuses
 * to talk to a server. */
#ifndef SLUICE_CLIENT_MIP_H
#define SLUICE_CLIENT_MIP_H

#include "client/mip_session.h"
#include "codec/mip/packet.h"
#include "core/base/arena.h"
#include "sluice/client.h"

/* Makes an inference of a public request (of full size), whose payload has `n_bytes`. Returns:
 * ST_BAD_FIELD for a NULL where something must be and for counts and types out of range,
 * ST_BODY_TOO_LARGE. Owns: in `arena`; the bytes of items are the caller's. */
enum status client_mip_import(struct arena *arena, const sluice_mip_request *request,
                              struct mip_infer *out, uint32_t *n_bytes, struct error *err)
    __attribute__((warn_unused_result));

/* What came of the exchange? Returns: ST_REFUSED with the error's code in words, ST_NO_ROOM in a
 * buffer of `buffer_bytes`. (MIP, "Errors") */
enum status client_mip_check(const struct mip_session *session, size_t buffer_bytes,
                             struct error *err) __attribute__((warn_unused_result));
/* The answer to `asked`; `out` gets every member but `size`. Returns: ST_BAD_ANSWER where payload
 * and counts disagree with each other or with what was asked. Owns: in `arena`; the bytes of items
 * are views of `payload`. (MIP, "Inference") */
enum status client_mip_export(struct arena *arena, struct str payload,
                              const struct mip_infer *request, sluice_mip_answer *out,
                              struct error *err) __attribute__((warn_unused_result));

#endif
