/* Conversion between the public structs of sluice/client.h and the internal ones: texts,
 * tensors, parameters. */
#ifndef SLUICE_CLIENT_CONVERT_H
#define SLUICE_CLIENT_CONVERT_H

#include "client/v2.h"
#include "sluice/client.h"

/* The caller's memory for outputs: all elements have names, or each is for the output at its
 * index. An output without an element, or whose element has no data, stays where it is. */
struct client_buffers {
    const sluice_wanted *items; /* of full size */
    size_t n;
    bool has_shm; /* one is in shared memory */
};

/* Converts a public request (of full size), and copies its outputs to *buffers. `timeout_us`: the
 * parameter `timeout` that is added, unless it is there; 0: none. Returns:
 * ST_BAD_FIELD for a NULL where a value is needed and for a struct without its size;
 * ST_BAD_DATATYPE. Owns: in `arena`; texts and data are the caller's. */
enum status client_infer_import(struct arena *arena, const sluice_infer_request *request,
                                uint64_t timeout_us, struct client_infer *out,
                                struct client_buffers *buffers, struct error *err) SLUICE_MUST_USE;

/* Results, as public structs of full size. */
struct client_answer {
    sluice_answer_info info;
    const sluice_tensor *outputs;
    const sluice_parameter *params;
};

struct client_model {
    sluice_model_metadata info;
    const sluice_tensor_spec *inputs, *outputs;
};

/* Convert answers. Returns: ST_NO_MEMORY; ST_BAD_ANSWER
 * for a name with a NUL in it; ST_NO_ROOM for a buffer that is too small. Owns: in `arena`; the
 * tensors' bytes stay where they are, or are in the caller's buffers. */
enum status client_answer_export(struct arena *arena, const struct v2_client_response *answer,
                                 struct client_buffers buffers, struct client_answer *out,
                                 struct error *err) SLUICE_MUST_USE;
enum status client_model_export(struct arena *arena, const struct model_spec *model,
                                struct client_model *out, struct error *err) SLUICE_MUST_USE;
enum status client_server_export(struct arena *arena, const struct v2_server_metadata *server,
                                 sluice_server_metadata *out, struct error *err) SLUICE_MUST_USE;

#endif
