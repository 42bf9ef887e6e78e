/* Conversion between the public structs of sluice/client.h and the internal ones: texts,
 * tensors, parameters. */
#ifndef SLUICE_CLIENT_CONVERT_H
#define SLUICE_CLIENT_CONVERT_H

#include "client/v2.h"
#include "sluice/client.h"

/* Converts a public request (of full size). Returns: ST_BAD_FIELD for a NULL where a value is
 * needed; ST_BAD_DATATYPE. Owns: in `arena`; texts and data are the caller's. */
enum status client_infer_import(struct arena *arena, const sluice_infer_request *request,
                                struct client_infer *out, struct error *err) SLUICE_MUST_USE;

/* The caller's buffers: output i is copied to items[i], unless its data is NULL. */
struct client_buffers {
    const sluice_buffer *items;
    size_t n;
};

/* Convert answers; every member of `out` but `size` is set. Returns: ST_NO_MEMORY; ST_BAD_ANSWER
 * for a name with a NUL in it; ST_NO_ROOM for a buffer that is too small. Owns: in `arena`; the
 * tensors' bytes stay where they are, or are in the caller's buffers. */
enum status client_answer_export(struct arena *arena, const struct v2_client_response *answer,
                                 struct client_buffers buffers, sluice_infer_answer *out,
                                 struct error *err) SLUICE_MUST_USE;
enum status client_model_export(struct arena *arena, const struct model_spec *model,
                                sluice_model_metadata *out, struct error *err) SLUICE_MUST_USE;
enum status client_server_export(struct arena *arena, const struct v2_server_metadata *server,
                                 sluice_server_metadata *out, struct error *err) SLUICE_MUST_USE;

#endif
