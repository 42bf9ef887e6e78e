/* libsluice: a client of model servers that speak KServe v2 (the Open Inference Protocol) over
 * HTTP: Sluice's own, and others. Health, metadata, and inference in JSON, with binary tensor data,
 * and as raw binary requests.
 *
 *     sluice_client_options options = {.size = sizeof(options), .url = "http://127.0.0.1:8000"};
 *     sluice_client *client;
 *     sluice_client_error error;
 *     if (sluice_client_open(&options, &client, &error) != SLUICE_CLIENT_OK)
 *         …error.text…
 *
 * Lifetimes:
 *   1. What the caller gives is borrowed until the function returns; nothing of it is kept.
 *   2. What a call gives back (every pointer in its results) belongs to the client and lives until
 *      the next call with that client, or sluice_client_close.
 *   3. The bytes of inputs are not copied when they leave in binary, nor those of outputs when they
 *      come so. Memory is kept from call to call.
 *
 * Contents of memory: tensors are little-endian and row-major without padding. An element of BOOL
 * is one byte, 0 or 1. An element of BYTES is a 4-byte little-endian length and that many bytes.
 * Text is UTF-8 and ends with NUL. Times are nanoseconds.
 *
 * Threads: a client is used from one thread at a time; different clients at the same time from
 * different ones. There is no state besides them, and no thread, signal handler or lock of the
 * library's own.
 *
 * Connections: a client has at most one, made when first needed and kept while the server allows. A
 * request is sent a second time only when its connection had been used before and ended without one
 * byte of an answer. Finding a host's address is the C library's matter and is not covered by
 * deadlines.
 *
 * Versions: what is only added grows `size`: structs that may grow begin with their size in bytes
 * as the caller knew it, and the library looks at and writes no member past that size. A zero in a
 * member means its default. */
#ifndef SLUICE_CLIENT_H
#define SLUICE_CLIENT_H

#include <stddef.h>
#include <stdint.h>

#include "sluice/types.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define SLUICE_CLIENT_API __attribute__((visibility("default")))
#else
#define SLUICE_CLIENT_API
#endif

typedef struct sluice_client sluice_client;

typedef enum sluice_client_status {
    SLUICE_CLIENT_OK = 0,
    SLUICE_CLIENT_INVALID = 1,     /* what the caller gave can't be sent */
    SLUICE_CLIENT_UNREACHABLE = 2, /* no connection, or it failed before an answer */
    SLUICE_CLIENT_TIMEOUT = 3,     /* a deadline passed */
    SLUICE_CLIENT_BROKEN = 4,      /* the answer ended early, or is not what the protocol says */
    SLUICE_CLIENT_REFUSED = 5,     /* the server's own error: http_status and its message */
    SLUICE_CLIENT_NO_MEMORY = 6
} sluice_client_status;

/* Filled by whichever function returns something other than SLUICE_CLIENT_OK. May be NULL. */
typedef struct sluice_client_error {
    sluice_client_status status;
    int32_t http_status; /* of the server's answer; 0: there was none */
    char text[512];      /* one sentence, NUL-terminated; the server's own words when it refused */
} sluice_client_error;

/* ---- a client -------------------------------------------------------------------------------- */

typedef struct sluice_client_options {
    size_t size;
    /* http://HOST[:PORT][/BASE], or http+unix:/path/to.sock for a Unix socket. */
    const char *url;
    uint64_t connect_timeout_ns; /* 0: 10 s */
    uint64_t timeout_ns;         /* of a whole call; 0: 60 s */
    uint64_t max_answer_bytes;   /* the body of an answer; 0: 1 GiB */
} sluice_client_options;

/* Makes a client; connects when the first call needs it.
 * Returns: SLUICE_CLIENT_INVALID for a URL that is not understood. Owns: *client until
 * sluice_client_close; NULL on failure. */
SLUICE_CLIENT_API sluice_client_status sluice_client_open(const sluice_client_options *options,
                                                          sluice_client **client,
                                                          sluice_client_error *error);
/* Ends the connection and frees all results. NULL is allowed. */
SLUICE_CLIENT_API void sluice_client_close(sluice_client *client);

/* ---- health (OIP, "Health") ------------------------------------------------------------------ */

/* *yes is 1 when the server answered 200, 0 when it answered something else. */
SLUICE_CLIENT_API sluice_client_status sluice_client_is_live(sluice_client *client, int32_t *yes,
                                                             sluice_client_error *error);
SLUICE_CLIENT_API sluice_client_status sluice_client_is_ready(sluice_client *client, int32_t *yes,
                                                              sluice_client_error *error);
/* `version` NULL: the one the server chooses. */
SLUICE_CLIENT_API sluice_client_status sluice_client_model_is_ready(sluice_client *client,
                                                                    const char *model,
                                                                    const char *version,
                                                                    int32_t *yes,
                                                                    sluice_client_error *error);

/* ---- metadata (OIP, "Server Metadata", "Model Metadata") ------------------------------------- */

typedef struct sluice_server_metadata {
    size_t size;
    const char *name;
    const char *version;
    const char *const *extensions;
    size_t n_extensions;
} sluice_server_metadata;

/* `metadata->size` is set by the caller. */
SLUICE_CLIENT_API sluice_client_status sluice_client_server_metadata(
    sluice_client *client, sluice_server_metadata *metadata, sluice_client_error *error);

/* An input or output as the model's metadata says it. */
typedef struct sluice_tensor_spec {
    const char *name;
    sluice_datatype datatype;
    const int64_t *dims; /* -1: any size. With the batch dimension, if the model has one */
    size_t rank;
} sluice_tensor_spec;

typedef struct sluice_model_metadata {
    size_t size;
    const char *name;
    const char *version; /* the last that is listed; "": none is */
    const char *platform;
    const sluice_tensor_spec *inputs;
    size_t n_inputs;
    const sluice_tensor_spec *outputs;
    size_t n_outputs;
} sluice_model_metadata;

/* `metadata->size` is set by the caller. `version` NULL: the one the server chooses. */
SLUICE_CLIENT_API sluice_client_status sluice_client_model_metadata(sluice_client *client,
                                                                    const char *model,
                                                                    const char *version,
                                                                    sluice_model_metadata *metadata,
                                                                    sluice_client_error *error);

/* ---- inference (OIP, "Inference"; binary tensor data extension) ------------------------------ */

typedef struct sluice_tensor {
    const char *name;
    sluice_datatype datatype;
    const int64_t *dims; /* each >= 0; a 0 makes it empty */
    size_t rank;         /* up to 64 */
    const void *data;    /* of an output: not aligned beyond one byte, but for the first binary
                            one */
    size_t n_bytes;      /* what datatype and dims say */
} sluice_tensor;

/* How tensors travel, there and back. */
typedef enum sluice_form {
    SLUICE_FORM_BINARY = 0, /* behind the JSON: the fastest, any datatype */
    SLUICE_FORM_JSON = 1,   /* in the JSON; BYTES must be UTF-8 */
    SLUICE_FORM_RAW = 2     /* the bytes of the one input and nothing else: no id, parameters,
                               outputs or names; a BYTES input has one element. The server deduces
                               the rest */
} sluice_form;

typedef struct sluice_infer_request {
    size_t size;
    const char *model;
    const char *version; /* NULL: the one the server chooses */
    const char *id;      /* NULL: none */
    const sluice_tensor *inputs;
    size_t n_inputs;
    const char *const *outputs; /* names, in the order wanted; none: all */
    size_t n_outputs;
    const sluice_param *params;
    size_t n_params;
    sluice_form form;
    uint64_t timeout_ns; /* of this call; 0: the client's */
} sluice_infer_request;

typedef struct sluice_infer_answer {
    size_t size;
    const char *id; /* "": none */
    const char *model;
    const char *version;
    const sluice_tensor *outputs;
    size_t n_outputs;
    const sluice_param *params;
    size_t n_params;
} sluice_infer_answer;

/* Asks and waits. `answer->size` is set by the caller. Returns: SLUICE_CLIENT_INVALID, before
 * anything is sent, for sizes that do not fit shapes and what the form can't carry. */
SLUICE_CLIENT_API sluice_client_status sluice_client_infer(sluice_client *client,
                                                           const sluice_infer_request *request,
                                                           sluice_infer_answer *answer,
                                                           sluice_client_error *error);

#ifdef __cplusplus
}
#endif

#endif
