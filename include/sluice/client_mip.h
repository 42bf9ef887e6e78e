/* libsluice: inference over MIP (Model Invocation Protocol, "Inference", "Errors"), for a client
 * whose URL is tcp:// or unix://. sluice_client_ping of sluice/client.h is MIP's ping there; what
 * that header says about structs, lifetimes and threads holds here. */
#ifndef SLUICE_CLIENT_MIP_H
#define SLUICE_CLIENT_MIP_H

#include "sluice/client.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum sluice_mip_type SLUICE_32_BITS {
    SLUICE_MIP_TEXT = 1, /* UTF-8 */
    SLUICE_MIP_JSON = 2, /* one JSON value */
    SLUICE_MIP_IMAGE = 3 /* an image file: JPEG, PNG, WebP or GIF */
} sluice_mip_type;

typedef enum sluice_mip_error SLUICE_32_BITS {
    SLUICE_MIP_PROTOCOL = 0,
    SLUICE_MIP_SUBTYPE = 1,
    SLUICE_MIP_METHOD = 2,
    SLUICE_MIP_MEMORY = 3,
    SLUICE_MIP_SHAPE = 4,
    SLUICE_MIP_INTERNAL = 5
} sluice_mip_error;

typedef struct sluice_mip_item {
    size_t size;
    sluice_mip_type type; /* in an answer: as received, maybe an unknown value */
    const void *data;
    size_t n_bytes;
} sluice_mip_item;

typedef struct sluice_mip_request {
    size_t size;
    const sluice_mip_item *items; /* batch x n_inputs: inputs of element 0, then of element 1, … */
    uint32_t n_inputs;            /* 1 to 255 */
    uint32_t batch;               /* 1 to 65535 */
    /* Destination of the answer's payload: 4 bytes, plus 8 and the content per item. NULL: the
     * call's memory. Too small: SLUICE_CLIENT_BUFFER_TOO_SMALL. */
    void *buffer;
    size_t buffer_bytes;
} sluice_mip_request;

typedef struct sluice_mip_answer {
    size_t size;
    uint32_t n_inputs;
    uint32_t n_outputs;
    uint32_t batch; /* equals the request's, else SLUICE_CLIENT_PROTOCOL */
    uint32_t reserved;
} sluice_mip_answer;

/* Return: SLUICE_CLIENT_INVALID for counts out of range or more than 2^32 - 1 bytes;
 * SLUICE_CLIENT_UNSUPPORTED for an HTTP client; SLUICE_CLIENT_SERVER_ERROR with mip_error. */
SLUICE_CLIENT_API sluice_client_status sluice_client_mip_infer(sluice_client *client,
                                                               const sluice_mip_request *request,
                                                               const sluice_call_options *options,
                                                               sluice_call **call,
                                                               sluice_client_error *error);
SLUICE_CLIENT_API sluice_client_status sluice_client_start_mip_infer(
    sluice_client *client, const sluice_mip_request *request, const sluice_call_options *options,
    sluice_call **call, sluice_client_error *error);
SLUICE_CLIENT_API sluice_client_status sluice_call_mip_answer(const sluice_call *call,
                                                              sluice_mip_answer *out);
/* `index`: of batch x n_outputs items, in the order of the request. */
SLUICE_CLIENT_API sluice_client_status sluice_call_mip_item(const sluice_call *call, size_t index,
                                                            sluice_mip_item *out);

#ifdef __cplusplus
}
#endif

#endif
