/* libsluice: a client of model servers. It speaks KServe v2 (the Open Inference Protocol) over
 * HTTP, with binary tensor data, and MIP, the Model Invocation Protocol, over TCP and Unix sockets.
 *
 *     sluice_client_options options = {.size = sizeof(options), .url = "http://127.0.0.1:8000"};
 *     sluice_client *client;
 *     sluice_client_error error;
 *     if (sluice_client_open(&options, &client, &error) != SLUICE_CLIENT_OK)
 *         …error.text…
 *
 * Two ways to call. A plain call waits until it is done. A call of an event loop is begun with
 * sluice_client_start_…, driven with sluice_client_step when the descriptor of sluice_client_wait
 * is ready or its time has come, and its result is fetched with sluice_client_take_…. A plain call
 * is these three. A client does one call at a time.
 *
 * Lifetimes:
 *   1. What the caller gives is borrowed until the call is done; nothing of it is kept after.
 *   2. What a call gives back (every pointer in its results) belongs to the client and lives until
 *      the next call with that client begins, or sluice_client_close.
 *   3. The bytes of inputs are not copied when they leave in binary or in MIP, nor those of outputs
 *      when they come so (but, in KServe v2, into a buffer of the caller's). Memory is kept from
 *      call to call: once calls have grown no larger nothing is allocated (but for connecting
 *      again).
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
 * byte of an answer. Finding a host's address is the C library's matter: it blocks and is not
 * covered by deadlines.
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
    SLUICE_CLIENT_UNREACHABLE = 2, /* no connection, or it ended before an answer began */
    SLUICE_CLIENT_TIMEOUT = 3,     /* a deadline passed */
    SLUICE_CLIENT_BROKEN = 4,      /* the answer ended early, or is not what the protocol says */
    SLUICE_CLIENT_REFUSED = 5,     /* the server's own error: its code and message */
    SLUICE_CLIENT_NO_MEMORY = 6,
    SLUICE_CLIENT_NO_ROOM = 7, /* a buffer of the caller's is too small; text says what it takes */
    SLUICE_CLIENT_AGAIN = 8    /* sluice_client_step only: not done yet */
} sluice_client_status;

/* Filled by whichever function returns something other than SLUICE_CLIENT_OK. May be NULL. */
typedef struct sluice_client_error {
    sluice_client_status status;
    int32_t http_status; /* of the server's answer; 0: there was none */
    int32_t mip_error;   /* a sluice_mip_error the server answered; -1: it did not */
    char text[512];      /* one sentence, NUL-terminated; the server's own words when it refused */
} sluice_client_error;

/* ---- a client -------------------------------------------------------------------------------- */

/* How the bytes of a connection travel, where the socket alone is not enough: TLS, by a library of
 * the caller's choice. The library connects the socket and calls these, from the thread that calls
 * the client; none may block. With a transport every connection is made over it, whatever the URL's
 * scheme; https can't do without. examples/client has one made with OpenSSL. */
enum {
    SLUICE_TRANSPORT_WANT_READ = -1,  /* nothing moved; call again when the socket can be read */
    SLUICE_TRANSPORT_WANT_WRITE = -2, /* … can be written */
    SLUICE_TRANSPORT_FAILED = -3      /* `reason` says why */
};

typedef struct sluice_client_transport {
    size_t size;
    void *context;
    /* A connection to `host` begins on the connected, non-blocking socket `fd`. Handshakes happen
     * within `read` and `write`; until one of them has moved a byte, the client is connecting.
     * Returns: 0, or SLUICE_TRANSPORT_FAILED, after which only `reason` is called. */
    int32_t (*start)(void *context, int fd, const char *host);
    /* Each returns the bytes moved (> 0), 0 (`read` only: the peer ended the connection cleanly),
     * or one of the above. Either may want either, at any time. To a write that wanted something
     * the same bytes come again, from the same address. `read` is called until it wants something:
     * it may keep bytes back. After SLUICE_TRANSPORT_FAILED only `reason` and `stop` are called. */
    int64_t (*read)(void *context, void *data, size_t n_bytes);
    int64_t (*write)(void *context, const void *data, size_t n_bytes);
    /* The connection ends; the socket is closed after this. May be NULL. */
    void (*stop)(void *context);
    /* Why the last function failed; valid until the next one is called. May be NULL. */
    const char *(*reason)(void *context);
} sluice_client_transport;

typedef struct sluice_client_options {
    size_t size;
    /* KServe v2: http://HOST[:PORT][/BASE], http+unix:/path/to.sock for a Unix socket, and with a
     * transport https://HOST[:PORT][/BASE]. MIP: tcp://HOST:PORT, unix:///path/to.sock,
     * unix://relative/path. */
    const char *url;
    uint64_t connect_timeout_ns; /* of connecting, a transport's handshake included; 0: 10 s */
    uint64_t timeout_ns;         /* of a whole call; 0: 60 s */
    uint64_t max_answer_bytes;   /* the body or payload of an answer; 0: 1 GiB */
    uint64_t idle_timeout_ns;    /* once connected, without a byte moving either way; 0: none */
    const sluice_client_transport *transport; /* copied; NULL: the socket itself */
} sluice_client_options;

/* Makes a client; connects when the first call needs it.
 * Returns: SLUICE_CLIENT_INVALID for a URL that is not understood. Owns: *client until
 * sluice_client_close; NULL on failure. */
SLUICE_CLIENT_API sluice_client_status sluice_client_open(const sluice_client_options *options,
                                                          sluice_client **client,
                                                          sluice_client_error *error);
/* Ends the connection and frees all results. NULL is allowed. */
SLUICE_CLIENT_API void sluice_client_close(sluice_client *client);

/* ---- calls of an event loop ------------------------------------------------------------------ */

/* sluice_client_start_… prepares a call and sends nothing: it fails for what can't be sent, and
 * with SLUICE_CLIENT_INVALID while another call is under way, which goes on. sluice_client_take_…
 * gives the result of a call of its kind that is done, any number of times until the next one
 * begins. */

/* What a call that was begun waits for. */
typedef struct sluice_client_waiting {
    size_t size;
    int32_t fd;          /* -1: none, the time alone counts. May be another one after a step */
    int32_t read, write; /* which readiness */
    uint64_t timeout_ns; /* from now: step then at the latest. 0: at once */
} sluice_client_waiting;

/* `waiting->size` is set by the caller. Between calls fd is -1 and timeout_ns UINT64_MAX. */
SLUICE_CLIENT_API void sluice_client_wait(const sluice_client *client,
                                          sluice_client_waiting *waiting);
/* Goes on with the call that was begun, as far as that is possible without waiting; at any time,
 * not only when something is ready. Returns: SLUICE_CLIENT_AGAIN while it is not done;
 * SLUICE_CLIENT_OK when its result can be taken; else why it failed, and the client is ready for
 * another call. */
SLUICE_CLIENT_API sluice_client_status sluice_client_step(sluice_client *client,
                                                          sluice_client_error *error);
/* Gives up a call that was begun; its connection is closed. Of one that is done only the result is
 * dropped. The client is ready for another. */
SLUICE_CLIENT_API void sluice_client_cancel(sluice_client *client);

/* ---- ping ------------------------------------------------------------------------------------ */

/* Does the server answer? MIP: a ping packet ("Ping"). HTTP: GET /v2/health/live; any answer will
 * do. */
SLUICE_CLIENT_API sluice_client_status sluice_client_ping(sluice_client *client,
                                                          sluice_client_error *error);
SLUICE_CLIENT_API sluice_client_status sluice_client_start_ping(sluice_client *client,
                                                                sluice_client_error *error);

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
SLUICE_CLIENT_API sluice_client_status sluice_client_start_is_live(sluice_client *client,
                                                                   sluice_client_error *error);
SLUICE_CLIENT_API sluice_client_status sluice_client_start_is_ready(sluice_client *client,
                                                                    sluice_client_error *error);
SLUICE_CLIENT_API sluice_client_status sluice_client_start_model_is_ready(
    sluice_client *client, const char *model, const char *version, sluice_client_error *error);
/* The result of these three. */
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
    const int64_t *dims; /* each >= 0; a 0 makes it empty */
    size_t rank;         /* up to 64 */
    const void *data;    /* of an output: not aligned beyond one byte, but for the first binary
                            one */
    size_t n_bytes;      /* what datatype and dims say */
} sluice_tensor;

/* How tensors travel, there and back. */
typedef enum sluice_form {
    SLUICE_FORM_BINARY = 0, /* after the JSON: the fastest, any datatype */
    SLUICE_FORM_JSON = 1,   /* in the JSON; BYTES must be UTF-8 */
    SLUICE_FORM_RAW = 2     /* the bytes of the one input and nothing else: no id, parameters,
                               outputs or names; a BYTES input has one element. The server deduces
                               the rest */
} sluice_form;

/* Memory of the caller's for one output of the answer. */
typedef struct sluice_buffer {
    void *data;
    size_t n_bytes;
} sluice_buffer;

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
    /* Where the bytes of outputs go, in whatever form they come: buffers[i] for the answer's output
     * i, whose `data` then is that buffer; a NULL in `data` or an output past the last: the
     * client's own memory. One that is too small: SLUICE_CLIENT_NO_ROOM. */
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

/* Asks and waits. `answer->size` is set by the caller. Returns: SLUICE_CLIENT_INVALID, before
 * anything is sent, for sizes that do not fit shapes and what the form can't carry. */
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
    SLUICE_MIP_IMAGE = 3 /* a picture file: JPEG, PNG, WebP or GIF */
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
    sluice_mip_type type; /* of an answer: as it came, whether it is one of these or not */
    const void *data;
    size_t n_bytes;
} sluice_mip_item;

typedef struct sluice_mip_request {
    size_t size;
    const sluice_mip_item
        *items;          /* batch x n_inputs: all inputs of element 0, then of element 1, … */
    uint32_t n_inputs;   /* 1 to 255 */
    uint32_t batch;      /* 1 to 65535 */
    uint64_t timeout_ns; /* of this call; 0: the client's */
    /* Where the answer's payload goes: 4 bytes, and for each item 8 and its own. `data` NULL: the
     * client's own memory. Too small: SLUICE_CLIENT_NO_ROOM. */
    sluice_buffer buffer;
} sluice_mip_request;

typedef struct sluice_mip_answer {
    size_t size;
    const sluice_mip_item *items; /* batch x n_outputs */
    uint32_t n_inputs;
    uint32_t n_outputs;
    uint32_t batch; /* the request's: another one is SLUICE_CLIENT_BROKEN */
} sluice_mip_answer;

/* Asks and waits. `answer->size` is set by the caller. Returns: SLUICE_CLIENT_INVALID for counts
 * out of range, more than 2^32 - 1 bytes, or a client of HTTP; SLUICE_CLIENT_REFUSED with
 * mip_error. */
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
