/* libsluice: a client of model servers. It implements KServe v2 (the Open Inference Protocol, OIP)
 * over HTTP, with binary tensor data, and MIP (Model Invocation Protocol) over TCP and Unix
 * sockets.
 *
 *     sluice_client_options options = {.size = sizeof(options), .url = "http://127.0.0.1:8000"};
 *     sluice_client *client;
 *     sluice_client_error error = {.size = sizeof(error)};
 *     if (sluice_client_open(&options, &client, &error) != SLUICE_CLIENT_OK)
 *         …error.text…
 *
 * Two ways to call. A blocking call returns when it is done. In an event loop, start a call with
 * sluice_client_start_…, run sluice_client_step when the descriptor of sluice_client_wait is ready
 * or its timeout expires, and fetch the result with sluice_client_take_…. A blocking call does
 * these three. A client runs one call at a time.
 *
 * Lifetimes:
 *   1. Arguments are borrowed until the call is done.
 *   2. The client owns every pointer in a call's results; they are valid until the next call with
 *      that client starts, or sluice_client_close.
 *   3. Inputs sent in binary or MIP are not copied, nor are outputs received in these forms
 *      (except, in KServe v2, into a caller's buffer). The client reuses its memory: calls no
 *      larger than before allocate nothing, except to reconnect.
 *
 * Memory layout: tensors are little-endian and row-major without padding. A BOOL element is one
 * byte, 0 or 1. A BYTES element is a 4-byte little-endian length followed by that many bytes. Text
 * is UTF-8, NUL-terminated. Times are nanoseconds.
 *
 * Threads: one thread at a time may use a client; different threads may use different clients
 * concurrently. The library has no other state, and no threads, signal handlers or locks.
 *
 * Connections: a client has at most one, opened when first needed and kept open while the server
 * allows. The client resends a request only if the connection was reused and closed before the
 * first byte of an answer. The C library's address lookup blocks and no deadline covers it.
 *
 * Versions: an addition grows `size`: structs that may grow begin with their size in bytes as the
 * caller was compiled, and the library reads and writes no member past that size. A zero in a
 * member selects its default. */
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

/* ---- versions -------------------------------------------------------------------------------- */

/* The version of this header. */
#define SLUICE_VERSION_MAJOR 0
#define SLUICE_VERSION_MINOR 1
#define SLUICE_VERSION_PATCH 0
#define SLUICE_VERSION_NUMBER                                                                      \
    (SLUICE_VERSION_MAJOR * 1000000 + SLUICE_VERSION_MINOR * 1000 + SLUICE_VERSION_PATCH)

/* The version of the library in use, as text ("0.1.0") and as SLUICE_VERSION_NUMBER. Thread: any,
 * as the functions for statuses below. */
SLUICE_CLIENT_API const char *sluice_version(void);
SLUICE_CLIENT_API int32_t sluice_version_number(void);

/* ---- statuses and errors --------------------------------------------------------------------- */

/* Negative numbers are failures. After CONNECT, RESOLVE, TLS and INVALID the server did not get the
 * request; sluice_client_error.may_have_run answers that for each failure. */
typedef enum sluice_client_status {
    SLUICE_CLIENT_OK = 0,
    SLUICE_CLIENT_PENDING = 1,            /* the call is not done */
    SLUICE_CLIENT_INVALID = -1,           /* the arguments can't be sent */
    SLUICE_CLIENT_NO_MEMORY = -2,         /* no memory for the request or the answer */
    SLUICE_CLIENT_UNSUPPORTED = -3,       /* the URL's protocol, or this build, does not have it */
    SLUICE_CLIENT_TIMEOUT = -5,           /* a deadline passed */
    SLUICE_CLIENT_RESOLVE = -6,           /* the host's name has no address */
    SLUICE_CLIENT_CONNECT = -7,           /* no connection to any of its addresses */
    SLUICE_CLIENT_TLS = -8,               /* the handshake of TLS, or of a transport, failed */
    SLUICE_CLIENT_CLOSED = -9,            /* the connection ended before an answer began */
    SLUICE_CLIENT_PROTOCOL = -10,         /* the answer is truncated or violates the protocol */
    SLUICE_CLIENT_SERVER_ERROR = -11,     /* an error answer: the server's code and message */
    SLUICE_CLIENT_BUFFER_TOO_SMALL = -12, /* the caller's buffer; the text has the size needed */
    SLUICE_CLIENT_TOO_LARGE = -13         /* the answer exceeds max_answer_bytes */
} sluice_client_status;

/* Returns: one sentence about a status, and its name ("SLUICE_CLIENT_TIMEOUT"); for another number
 * "unknown status". Never NULL; the texts stay. */
SLUICE_CLIENT_API const char *sluice_strerror(int32_t status);
SLUICE_CLIENT_API const char *sluice_status_name(int32_t status);

/* Filled by a function that returns a status other than SLUICE_CLIENT_OK, as far as `size` goes,
 * which the caller sets. The pointer may be NULL. */
typedef struct sluice_client_error {
    size_t size;
    sluice_client_status status;
    int32_t http_status;  /* of the server's answer; 0: none */
    int32_t mip_error;    /* the server's sluice_mip_error; -1: none */
    int32_t may_have_run; /* 1: bytes of the request were sent, so the server may have run it */
    char text[512];       /* one sentence, NUL-terminated; the server's message if SERVER_ERROR */
} sluice_client_error;

typedef struct sluice_client sluice_client;

/* ---- a client -------------------------------------------------------------------------------- */

/* A transport layer over the socket, for TLS with a library of the caller's choice. libsluice
 * connects the socket and calls these functions from the thread that calls the client; none may
 * block. If set, every connection uses it, with any URL scheme; https requires it.
 * examples/client has one for OpenSSL. */
enum {
    SLUICE_TRANSPORT_WANT_READ = -1,  /* no byte moved; call again when the socket is readable */
    SLUICE_TRANSPORT_WANT_WRITE = -2, /* … writable */
    SLUICE_TRANSPORT_FAILED = -3      /* `reason` has the text */
};

typedef struct sluice_client_transport {
    size_t size;
    void *context;
    /* Starts a connection to `host` on the connected, non-blocking socket `fd`. `read` and `write`
     * do the handshake; until one of them moves a byte, the client counts as connecting.
     * Returns: 0, or SLUICE_TRANSPORT_FAILED, after which only `reason` is called. */
    int32_t (*start)(void *context, int fd, const char *host);
    /* Returns: bytes moved (> 0); 0 (`read` only: the peer closed the connection cleanly); or a
     * code above. Both may return either WANT code at any time; a write is then repeated with the
     * same bytes at the same address. `read` is repeated until it returns a WANT code, so it may
     * buffer bytes. After SLUICE_TRANSPORT_FAILED only `reason` and `stop` are called. */
    int64_t (*read)(void *context, void *data, size_t n_bytes);
    int64_t (*write)(void *context, const void *data, size_t n_bytes);
    /* Ends the connection; then the client closes the socket. May be NULL. */
    void (*stop)(void *context);
    /* Returns: why the last function failed; valid until the next call. May be NULL. */
    const char *(*reason)(void *context);
} sluice_client_transport;

typedef struct sluice_client_options {
    size_t size;
    /* KServe v2: http://HOST[:PORT][/BASE], http+unix:/path/to.sock for a Unix socket, and with a
     * transport https://HOST[:PORT][/BASE]. MIP: tcp://HOST:PORT, unix:///path/to.sock,
     * unix://relative/path. */
    const char *url;
    uint64_t connect_timeout_ns; /* to connect, including a transport's handshake; 0: 10 s */
    uint64_t timeout_ns;         /* for a whole call; 0: 60 s */
    uint64_t max_answer_bytes;   /* limit of an answer's body or payload; 0: 1 GiB */
    uint64_t idle_timeout_ns;    /* connected, but no byte moves in either direction; 0: none */
    const sluice_client_transport *transport; /* copied; NULL: the plain socket */
} sluice_client_options;

/* Creates a client; the first call connects.
 * Returns: SLUICE_CLIENT_INVALID for an invalid URL. Owns: the caller, *client, until
 * sluice_client_close; NULL on failure. */
SLUICE_CLIENT_API sluice_client_status sluice_client_open(const sluice_client_options *options,
                                                          sluice_client **client,
                                                          sluice_client_error *error);
/* Closes the connection and frees the client with its results. NULL is allowed. */
SLUICE_CLIENT_API void sluice_client_close(sluice_client *client);

/* ---- non-blocking calls ---------------------------------------------------------------------- */

/* sluice_client_start_… prepares a call and sends nothing. It fails if the arguments can't be sent,
 * and with SLUICE_CLIENT_INVALID while another call is in progress, which continues.
 * sluice_client_take_… returns the result of a completed call of its kind, any number of times
 * until the next call starts. */

/* What a started call waits for. */
typedef struct sluice_client_waiting {
    size_t size;
    int32_t fd;          /* -1: none, only the timeout applies. A step may change it */
    int32_t read, write; /* readiness to wait for */
    uint64_t timeout_ns; /* from now: latest time of the next step. 0: now */
} sluice_client_waiting;

/* Fills *waiting; the caller sets its size. Between calls fd is -1, timeout_ns UINT64_MAX. */
SLUICE_CLIENT_API void sluice_client_wait(const sluice_client *client,
                                          sluice_client_waiting *waiting);
/* Advances the started call without blocking. May be called at any time, even if the descriptor is
 * not ready. Returns: SLUICE_CLIENT_PENDING while it is not done; SLUICE_CLIENT_OK when its result
 * can be taken; else the reason of its failure, and the client is ready for another call. */
SLUICE_CLIENT_API sluice_client_status sluice_client_step(sluice_client *client,
                                                          sluice_client_error *error);
/* Cancels the started call and closes its connection. If the call is done, only drops its result.
 * The client is ready for another call. */
SLUICE_CLIENT_API void sluice_client_cancel(sluice_client *client);

/* ---- ping ------------------------------------------------------------------------------------ */

/* Checks that the server answers. MIP: a ping packet ("Ping"). HTTP: GET /v2/health/live; any
 * answer succeeds. */
SLUICE_CLIENT_API sluice_client_status sluice_client_ping(sluice_client *client,
                                                          sluice_client_error *error);
SLUICE_CLIENT_API sluice_client_status sluice_client_start_ping(sluice_client *client,
                                                                sluice_client_error *error);

/* ---- health (OIP, "Health") ------------------------------------------------------------------ */

/* Sets *yes to 1 if the server answers 200, to 0 for another status. */
SLUICE_CLIENT_API sluice_client_status sluice_client_is_live(sluice_client *client, int32_t *yes,
                                                             sluice_client_error *error);
SLUICE_CLIENT_API sluice_client_status sluice_client_is_ready(sluice_client *client, int32_t *yes,
                                                              sluice_client_error *error);
/* `version` NULL: the server chooses. */
SLUICE_CLIENT_API sluice_client_status sluice_client_model_is_ready(sluice_client *client,
                                                                    const char *model,
                                                                    const char *version,
                                                                    int32_t *yes,
                                                                    sluice_client_error *error);
SLUICE_CLIENT_API sluice_client_status sluice_client_start_is_live(sluice_client *client,
                                                                   sluice_client_error *error);
SLUICE_CLIENT_API sluice_client_status sluice_client_start_is_ready(sluice_client *client,
                                                                    sluice_client_error *error);
SLUICE_CLIENT_API sluice_client_status sluice_client_start_model_is_ready(
    sluice_client *client, const char *model, const char *version, sluice_client_error *error);
/* Sets *yes to the result of one of these three calls. */
SLUICE_CLIENT_API sluice_client_status sluice_client_take_yes(sluice_client *client, int32_t *yes,
                                                              sluice_client_error *error);

/* ---- metadata (OIP, "Server Metadata", "Model Metadata") ------------------------------------- */

typedef struct sluice_server_metadata {
    size_t size;
    const char *name;
    const char *version;
    const char *const *extensions;
    size_t n_extensions;
} sluice_server_metadata;

/* Fills *metadata; the caller sets its size. */
SLUICE_CLIENT_API sluice_client_status sluice_client_server_metadata(
    sluice_client *client, sluice_server_metadata *metadata, sluice_client_error *error);

/* An input or output in the model's metadata. */
typedef struct sluice_tensor_spec {
    const char *name;
    sluice_datatype datatype;
    const int64_t *dims; /* -1: any size. Includes the batch dimension, if any */
    size_t rank;
} sluice_tensor_spec;

typedef struct sluice_model_metadata {
    size_t size;
    const char *name;
    const char *version; /* the last one listed; "": none */
    const char *platform;
    const sluice_tensor_spec *inputs;
    size_t n_inputs;
    const sluice_tensor_spec *outputs;
    size_t n_outputs;
} sluice_model_metadata;

/* Fills *metadata; the caller sets its size. `version` NULL: the server chooses. */
SLUICE_CLIENT_API sluice_client_status sluice_client_model_metadata(sluice_client *client,
                                                                    const char *model,
                                                                    const char *version,
                                                                    sluice_model_metadata *metadata,
                                                                    sluice_client_error *error);
SLUICE_CLIENT_API sluice_client_status
sluice_client_start_server_metadata(sluice_client *client, sluice_client_error *error);
SLUICE_CLIENT_API sluice_client_status sluice_client_take_server_metadata(
    sluice_client *client, sluice_server_metadata *metadata, sluice_client_error *error);
SLUICE_CLIENT_API sluice_client_status sluice_client_start_model_metadata(
    sluice_client *client, const char *model, const char *version, sluice_client_error *error);
SLUICE_CLIENT_API sluice_client_status sluice_client_take_model_metadata(
    sluice_client *client, sluice_model_metadata *metadata, sluice_client_error *error);

/* ---- inference (OIP, "Inference"; binary tensor data extension) ------------------------------ */

typedef struct sluice_tensor {
    const char *name;
    sluice_datatype datatype;
    const int64_t *dims; /* each >= 0; 0: empty tensor */
    size_t rank;         /* up to 64 */
    const void *data;    /* outputs, except the first binary one, may be unaligned */
    size_t n_bytes;      /* must match datatype and dims */
} sluice_tensor;

/* Encoding of tensors in request and answer. */
typedef enum sluice_form {
    SLUICE_FORM_BINARY = 0, /* after the JSON: fastest, any datatype */
    SLUICE_FORM_JSON = 1,   /* in the JSON; BYTES must be UTF-8 */
    SLUICE_FORM_RAW = 2     /* only the bytes of the single input: no id, parameters, outputs or
                               names; a BYTES input has one element. The server infers the
                               rest */
} sluice_form;

/* The caller's memory for one output of the answer. */
typedef struct sluice_buffer {
    void *data;
    size_t n_bytes;
} sluice_buffer;

typedef struct sluice_infer_request {
    size_t size;
    const char *model;
    const char *version; /* NULL: the server chooses */
    const char *id;      /* NULL: none */
    const sluice_tensor *inputs;
    size_t n_inputs;
    const char *const *outputs; /* names, in the requested order; none: all */
    size_t n_outputs;
    const sluice_param *params;
    size_t n_params;
    sluice_form form;
    uint64_t timeout_ns; /* for this call; 0: the client's default */
    /* Destination of outputs, in any form: buffers[i] receives the answer's output i, whose `data`
     * then is that buffer. A buffer with `data` NULL, or an output past the last: the client's own
     * memory. A buffer too small: SLUICE_CLIENT_BUFFER_TOO_SMALL. */
    const sluice_buffer *buffers;
    size_t n_buffers;
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

/* Runs an inference; blocks. The caller sets `answer->size`. Returns: SLUICE_CLIENT_INVALID, before
 * sending, for sizes that do not match shapes and for content the form can't carry. */
SLUICE_CLIENT_API sluice_client_status sluice_client_infer(sluice_client *client,
                                                           const sluice_infer_request *request,
                                                           sluice_infer_answer *answer,
                                                           sluice_client_error *error);
SLUICE_CLIENT_API sluice_client_status sluice_client_start_infer(
    sluice_client *client, const sluice_infer_request *request, sluice_client_error *error);
SLUICE_CLIENT_API sluice_client_status sluice_client_take_infer(sluice_client *client,
                                                                sluice_infer_answer *answer,
                                                                sluice_client_error *error);

/* ---- MIP (Model Invocation Protocol, "Inference", "Errors") ---------------------------------- */

typedef enum sluice_mip_type {
    SLUICE_MIP_TEXT = 1, /* UTF-8 */
    SLUICE_MIP_JSON = 2, /* one JSON value */
    SLUICE_MIP_IMAGE = 3 /* an image file: JPEG, PNG, WebP or GIF */
} sluice_mip_type;

typedef enum sluice_mip_error {
    SLUICE_MIP_PROTOCOL = 0,
    SLUICE_MIP_SUBTYPE = 1,
    SLUICE_MIP_METHOD = 2,
    SLUICE_MIP_MEMORY = 3,
    SLUICE_MIP_SHAPE = 4,
    SLUICE_MIP_INTERNAL = 5
} sluice_mip_error;

typedef struct sluice_mip_item {
    sluice_mip_type type; /* in an answer: as received, maybe an unknown value */
    const void *data;
    size_t n_bytes;
} sluice_mip_item;

typedef struct sluice_mip_request {
    size_t size;
    const sluice_mip_item *items; /* batch x n_inputs: inputs of element 0, then of element 1, … */
    uint32_t n_inputs;            /* 1 to 255 */
    uint32_t batch;               /* 1 to 65535 */
    uint64_t timeout_ns;          /* for this call; 0: the client's default */
    /* Destination of the answer's payload: 4 bytes, plus 8 and the content per item. `data` NULL:
     * the client's own memory. Too small: SLUICE_CLIENT_BUFFER_TOO_SMALL. */
    sluice_buffer buffer;
} sluice_mip_request;

typedef struct sluice_mip_answer {
    size_t size;
    const sluice_mip_item *items; /* batch x n_outputs */
    uint32_t n_inputs;
    uint32_t n_outputs;
    uint32_t batch; /* equals the request's, else SLUICE_CLIENT_PROTOCOL */
} sluice_mip_answer;

/* Runs an inference; blocks. The caller sets `answer->size`. Returns: SLUICE_CLIENT_INVALID for
 * counts out of range or more than 2^32 - 1 bytes; SLUICE_CLIENT_UNSUPPORTED for an HTTP client;
 * SLUICE_CLIENT_SERVER_ERROR with mip_error. */
SLUICE_CLIENT_API sluice_client_status sluice_client_mip_infer(sluice_client *client,
                                                               const sluice_mip_request *request,
                                                               sluice_mip_answer *answer,
                                                               sluice_client_error *error);
SLUICE_CLIENT_API sluice_client_status sluice_client_start_mip_infer(
    sluice_client *client, const sluice_mip_request *request, sluice_client_error *error);
SLUICE_CLIENT_API sluice_client_status sluice_client_take_mip_infer(sluice_client *client,
                                                                    sluice_mip_answer *answer,
                                                                    sluice_client_error *error);

#ifdef __cplusplus
}
#endif

#endif
