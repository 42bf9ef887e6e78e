/* Conversion between the public structs of MIP and its packets, and the result of an exchange. */
#ifndef SLUICE_CLIENT_MIP_CONVERT_H
#define SLUICE_CLIENT_MIP_CONVERT_H

#include "client/connection/mip_session.h"
#include "codec/mip/packet.h"
#include "core/base/arena.h"
#include "sluice/client_mip.h"

/* An answer: batch x n_outputs items, of full size. */
struct client_mip_answer {
    const sluice_mip_item *items;
    uint32_t n_inputs, n_outputs, batch;
};

/* Converts a public request (of full size); *n_bytes: the size of its payload. Returns:
 * ST_BAD_FIELD for a NULL where a value is needed and for counts and types out of range,
 * ST_BODY_TOO_LARGE. Owns: in `arena`; the bytes of items are the caller's. */
enum status client_mip_import(struct arena *arena, const sluice_mip_request *request,
                              struct mip_infer *out, uint32_t *n_bytes,
                              struct error *err) SLUICE_MUST_USE;

/* Checks the outcome of the exchange. Returns: ST_REFUSED with the error's code in words,
 * ST_NO_ROOM for an answer larger than the caller's buffer of `buffer_bytes`. (MIP, "Errors") */
enum status client_mip_check(const struct mip_session *session, size_t buffer_bytes,
                             struct error *err) SLUICE_MUST_USE;
/* Converts the answer to `request`. Returns: ST_BAD_ANSWER if payload and counts do not match each
 * other or the request. Owns: in `arena`; the bytes of items are views of `payload`. (MIP,
 * "Inference") */
enum status client_mip_export(struct arena *arena, struct str payload,
                              const struct mip_infer *request, struct client_mip_answer *out,
                              struct error *err) SLUICE_MUST_USE;

#endif
