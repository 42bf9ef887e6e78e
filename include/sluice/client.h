/* libsluice: a client of model servers. It implements KServe v2 (the Open Inference Protocol, OIP)
 * over HTTP and gRPC, with binary tensor data, and MIP (Model Invocation Protocol), over TCP, TLS
 * and Unix sockets.
 *
 *     sluice_client_options options = {.size = sizeof(options), .url = "http://127.0.0.1:8000"};
 *     sluice_client *client;
 *     sluice_client_error error = {.size = sizeof(error)};
 *     if (sluice_client_open(&options, &client, &error) != SLUICE_CLIENT_OK)
 *         …error.text…
 *
 * A call is an object. A blocking function returns when it is done; its sluice_client_start_…
 * returns at once. Started calls run side by side, in sluice_client_step, for event loops, or in
 * sluice_client_wait or sluice_call_wait. The results of a call are read with sluice_call_…, and
 * sluice_call_free ends it.
 *
 * Lifetimes:
 *   1. Arguments of a call (arrays, names, bytes) are borrowed until the call is done; the structs
 *      themselves and options are read at once.
 *   2. A call owns every pointer in its results: they are valid until sluice_call_free, also while
 *      other calls run. sluice_client_close frees the calls that are left.
 *   3. Inputs sent in binary or MIP are not copied, nor are outputs received in these forms over
 *      HTTP (except into a caller's buffer). The client reuses the memory of freed calls: over HTTP
 *      and MIP, calls no larger than before allocate nothing, except to reconnect.
 *
 * Memory layout: tensors are little-endian and row-major without padding. A BOOL element is one
 * byte, 0 or 1. A BYTES element is a 4-byte little-endian length followed by that many bytes. Text
 * is UTF-8, NUL-terminated. Times are nanoseconds.
 *
 * Threads: one thread at a time may use a client and its calls; different threads may use different
 * clients concurrently. The library has no other state, and no threads, signal handlers or locks.
 *
 * Connections: a client opens them when they are first needed, and keeps them while the server
 * allows. HTTP and MIP: up to max_connections; each runs one call at a time; further calls wait, in
 * the order in which they were started. gRPC: one, of which calls are streams, as many as the
 * server allows; after GOAWAY it finishes its calls while others start on the next. The client
 * sends a request again only if the connection was reused and closed before the first byte of an
 * answer (HTTP, MIP), or if the server did not begin it (gRPC: REFUSED_STREAM, GOAWAY), once. Names
 * of hosts are looked up without blocking, by c-ares. A library that was built without it looks
 * them up in functions that block only, not within a deadline.
 *
 * Versions: each struct begins with its size in bytes as the caller was compiled, also the elements
 * of arrays (all of one array have the same) and those that the library fills. The library reads
 * and writes no member past that size. A zero in a member selects its default: set a struct to zero
 * before its members, `reserved` included. A struct of a newer header is refused if it sets a
 * member that the library does not have. */
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

/* The version of this header, and of the library that was built with it: libsluice has a version of
 * its own, apart from that of the programs of Sluice. 1.x are compatible (docs/abi.md). */
#define SLUICE_VERSION_MAJOR 1
#define SLUICE_VERSION_MINOR 0
#define SLUICE_VERSION_PATCH 0
#define SLUICE_VERSION_NUMBER                                                                      \
    (SLUICE_VERSION_MAJOR * 1000000 + SLUICE_VERSION_MINOR * 1000 + SLUICE_VERSION_PATCH)

/* The version of the library in use, as text ("1.0.0") and as SLUICE_VERSION_NUMBER. Thread: any,
 * as the functions for statuses below. */
SLUICE_CLIENT_API const char *sluice_version(void);
SLUICE_CLIENT_API int32_t sluice_version_number(void);

/* ---- statuses and errors --------------------------------------------------------------------- */

/* Negative numbers are failures. After CONNECT, RESOLVE, TLS and INVALID the server did not get the
 * request; sluice_client_error.may_have_run answers that for each failure. */
typedef enum sluice_client_status SLUICE_32_BITS {
    SLUICE_CLIENT_OK = 0,
    SLUICE_CLIENT_PENDING = 1,            /* the call is not done */
    SLUICE_CLIENT_END = 2,                /* the stream has no more answers */
    SLUICE_CLIENT_INVALID = -1,           /* the arguments can't be sent */
    SLUICE_CLIENT_NO_MEMORY = -2,         /* no memory for the request or the answer */
    SLUICE_CLIENT_UNSUPPORTED = -3,       /* the URL's protocol, or this build, does not have it */
    SLUICE_CLIENT_CANCELLED = -4,         /* by the caller */
    SLUICE_CLIENT_TIMEOUT = -5,           /* a deadline passed */
    SLUICE_CLIENT_RESOLVE = -6,           /* the host's name has no address */
    SLUICE_CLIENT_CONNECT = -7,           /* no connection to any of its addresses */
    SLUICE_CLIENT_TLS = -8,               /* the handshake of TLS, or of a transport, failed */
    SLUICE_CLIENT_CLOSED = -9,            /* the connection ended before an answer began */
    SLUICE_CLIENT_PROTOCOL = -10,         /* the answer is truncated or violates the protocol */
    SLUICE_CLIENT_SERVER_ERROR = -11,     /* an error answer: the server's code and message */
    SLUICE_CLIENT_BUFFER_TOO_SMALL = -12, /* the caller's buffer; the text has the size needed */
    SLUICE_CLIENT_TOO_LARGE = -13,        /* the answer exceeds max_answer_bytes */
    SLUICE_CLIENT_NOT_FOUND = -14         /* the answer has no such output, parameter or index */
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
    int32_t grpc_status;  /* of the server's answer, 1 to 16; 0: none */
    int32_t mip_error;    /* the server's sluice_mip_error; -1: none */
    int32_t may_have_run; /* 1: bytes of the request were sent, so the server may have run it */
    int32_t reserved;     /* 0 */
    char text[512];       /* one sentence, NUL-terminated; the server's message if SERVER_ERROR */
} sluice_client_error;

typedef struct sluice_client sluice_client;

/* ---- a client -------------------------------------------------------------------------------- */

/* A transport layer over the socket, in place of the library's TLS, for another library or another
 * layer. libsluice connects the socket and calls these functions from the thread that calls the
 * client; none may block. If set, every connection uses it, with any URL scheme.
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

/* A header field of a request or an answer. */
typedef struct sluice_header {
    size_t size;
    const char *name; /* in any case */
    const char *value;
    size_t value_bytes; /* 0 in a request: the value ends at its NUL. In an answer: without it */
} sluice_header;

/* TLS of https:// and grpcs:// URLs, by OpenSSL: TLS 1.2 or later. Files are PEM and read by
 * sluice_client_open. */
typedef struct sluice_tls_options {
    size_t size;
    const char *ca_file;     /* trusted CAs; NULL: the system's */
    const char *cert_file;   /* client certificate with its chain; NULL: none */
    const char *key_file;    /* its private key, not encrypted; NULL: in cert_file */
    const char *server_name; /* in the server's certificate; NULL: the host of the URL */
    int32_t insecure;        /* 1: the server's certificate is not verified. For tests only */
    int32_t reserved;        /* 0 */
} sluice_tls_options;

/* When a call that failed is tried again. Off unless set, for a client or a call. A call is tried
 * again if its deadline allows and
 *   - it failed before the server could have got it: RESOLVE, CONNECT, a TIMEOUT of connecting;
 *   - the server's error has a status of the lists. List only those with which it says that it did
 *     not run the request, as 429 and 503, or 8 and 14 of gRPC, are for most servers;
 *   - with may_repeat also: it may have run, and ended without a whole answer (CLOSED, PROTOCOL, a
 *     TIMEOUT without a byte). */
typedef struct sluice_retry_policy {
    size_t size;
    uint32_t max_attempts; /* with the first one; 0: 3; 1: no other */
    /* Before the second attempt, doubled before each further one; a random part of up to a half is
     * subtracted. A Retry-After of the answer, in seconds, is waited for at least. */
    uint64_t backoff_ns;     /* 0: 100 ms */
    uint64_t max_backoff_ns; /* 0: 10 s */
    /* Of the client: retries that all of its calls may make at once; each call that succeeds allows
     * a tenth of one more, up to this. Without effect in a call's policy. 0: 10 */
    uint32_t budget;
    int32_t may_repeat; /* 1: the models may run a request twice */
    const int32_t *http_statuses;
    size_t n_http_statuses;
    const int32_t *grpc_statuses;
    size_t n_grpc_statuses;
} sluice_retry_policy;

typedef struct sluice_client_options {
    size_t size;
    /* KServe v2: http://HOST[:PORT][/BASE], https://HOST[:PORT][/BASE], http+unix:/path/to.sock for
     * a Unix socket; over gRPC: grpc://HOST:PORT, grpcs://HOST:PORT, grpc+unix:/path/to.sock. MIP:
     * tcp://HOST:PORT, unix:///path/to.sock, unix://relative/path. */
    const char *url;
    uint64_t connect_timeout_ns; /* to look up the name and connect, with a handshake; 0: 10 s */
    uint64_t timeout_ns;         /* for a whole call; 0: 60 s. Servers are told, see below */
    /* Limit of an answer's body, message or payload; 0: 1 GiB. JSON that is made of tiny values
     * takes up to 16 times its size in memory. */
    uint64_t max_answer_bytes;
    uint64_t idle_timeout_ns; /* connected, but no byte moves in either direction; 0: none */
    const sluice_client_transport *transport; /* copied; NULL: the plain socket, or TLS */
    /* Sent with each call, and copied. Not for MIP; not those that HTTP, gRPC or the library sets
     * itself (Host, Content-…, Transfer-Encoding, grpc-…). gRPC: at most 64, of ASCII; a name in
     * "-bin" has any bytes. */
    const sluice_header *headers;
    size_t n_headers;
    const char *bearer_token;      /* sent as "Authorization: Bearer …"; NULL: none */
    const sluice_tls_options *tls; /* for https and grpcs only; NULL: the defaults */
    /* HTTP and MIP: at once; further calls wait. 0: 8; 1 with a transport. gRPC has one. */
    uint32_t max_connections;
    const sluice_retry_policy *retry; /* copied; NULL: none */
} sluice_client_options;

/* Creates a client; the first call connects.
 * Returns: SLUICE_CLIENT_INVALID for an invalid URL. Owns: the caller, *client, until
 * sluice_client_close; NULL on failure. */
SLUICE_CLIENT_API sluice_client_status sluice_client_open(const sluice_client_options *options,
                                                          sluice_client **client,
                                                          sluice_client_error *error);
/* Closes the connection and frees the client with its results. NULL is allowed. */
SLUICE_CLIENT_API void sluice_client_close(sluice_client *client);

/* ---- calls ----------------------------------------------------------------------------------- */

typedef struct sluice_call sluice_call;

/* Called once for a call that is done, with its status and results readable, by the function that
 * runs calls (step or one of the waits); of a stream, answers may be left to take. It may start,
 * cancel and free calls, this one too, but not close the client. Not called for a call that the
 * caller cancels or frees before. */
typedef void sluice_done_fn(sluice_call *call, void *user);

/* Of any call; NULL where it is an argument: the client's defaults. */
typedef struct sluice_call_options {
    size_t size;
    /* For the whole call; 0: the client's. Servers are told: over gRPC by grpc-timeout; over HTTP
     * an inference has the parameter `timeout` (schedule policy extension), in microseconds, if a
     * timeout was set here or for the client, and the request has no such parameter. */
    uint64_t timeout_ns;
    /* Beside the client's, of which they replace those with the same name. */
    const sluice_header *headers;
    size_t n_headers;
    const char *bearer_token;         /* NULL: the client's */
    const char *traceparent;          /* of W3C Trace Context; NULL: none */
    sluice_done_fn *on_done;          /* NULL: none */
    void *user;                       /* for on_done and sluice_call_user */
    const sluice_retry_policy *retry; /* NULL: the client's */
    /* Of a stream: called as on_done, when an answer came that sluice_call_next can take; once for
     * several. NULL: none */
    sluice_done_fn *on_answer;
} sluice_call_options;

/* sluice_client_start_OP prepares a call and sends nothing. It fails, with *call NULL, if the
 * arguments can't be sent. sluice_client_OP also waits for it; other calls that are in progress
 * continue meanwhile. *call is not NULL once the call has started, also if it then
 * fails; whatever it returns, the caller frees the call. */

/* Returns: SLUICE_CLIENT_PENDING while the call is in progress, or a stream has answers that were
 * not taken; SLUICE_CLIENT_OK when its results can be read; else the reason of its failure, with
 * the error. */
SLUICE_CLIENT_API sluice_client_status sluice_call_status(const sluice_call *call,
                                                          sluice_client_error *error);
/* Blocks until the call is done; runs the client's other calls meanwhile. Of a stream the answers
 * that are left are dropped. Returns: as sluice_call_status. */
SLUICE_CLIENT_API sluice_client_status sluice_call_wait(sluice_call *call,
                                                        sluice_client_error *error);
/* Returns: `user` of the call's options. */
SLUICE_CLIENT_API void *sluice_call_user(const sluice_call *call);
/* Cancels a call in progress and closes its connection (gRPC: resets its stream); its status is
 * SLUICE_CLIENT_CANCELLED. A call that is done is not changed. */
SLUICE_CLIENT_API void sluice_call_cancel(sluice_call *call);
/* Cancels a call in progress, and frees it with its results. NULL is allowed. */
SLUICE_CLIENT_API void sluice_call_free(sluice_call *call);

/* The functions that read a result return SLUICE_CLIENT_INVALID if the call is not done or has no
 * such result, and for a struct without its size; SLUICE_CLIENT_NOT_FOUND for an index that is out
 * of range and for a name that the answer does not have. Other than with SLUICE_CLIENT_OK they
 * write nothing. */

/* Header fields of the answer, in the order received, and after them the trailers of gRPC; also of
 * an error answer, which makes the call fail; SLUICE_CLIENT_INVALID if there is no answer, or for
 * MIP. find: the first with that name, in any case. */
SLUICE_CLIENT_API sluice_client_status sluice_call_header(const sluice_call *call, size_t index,
                                                          sluice_header *out);
SLUICE_CLIENT_API sluice_client_status sluice_call_find_header(const sluice_call *call,
                                                               const char *name,
                                                               sluice_header *out);

/* ---- running calls --------------------------------------------------------------------------- */

/* For an event loop: wait until the descriptor is readable or the timeout is over, then step. The
 * descriptor stands for all connections of the client (it is an epoll set) and never changes: poll,
 * epoll and event libraries take it. The timeout, from now, changes with each step and each start
 * of a call; 0: step at once; UINT64_MAX: there is no call in progress. */
SLUICE_CLIENT_API int sluice_client_fd(const sluice_client *client);
SLUICE_CLIENT_API uint64_t sluice_client_timeout_ns(const sluice_client *client);
/* Advances all calls in progress without blocking. May be called at any time. */
SLUICE_CLIENT_API void sluice_client_step(sluice_client *client);

/* Blocks until a call is done, or a stream has another answer. Returns: SLUICE_CLIENT_OK;
 * SLUICE_CLIENT_PENDING when `timeout_ns` passed first; SLUICE_CLIENT_NOT_FOUND when no call is in
 * progress. */
SLUICE_CLIENT_API sluice_client_status sluice_client_wait(sluice_client *client,
                                                          uint64_t timeout_ns);
/* Returns: a call that is done, each once and in the order in which they ended, or NULL. Not those
 * that have on_done, or were waited for, cancelled or freed. */
SLUICE_CLIENT_API sluice_call *sluice_client_next_done(sluice_client *client);

/* ---- ping ------------------------------------------------------------------------------------ */

/* Checks that the server answers. MIP: a ping packet ("Ping"). HTTP: GET /v2/health/live, gRPC:
 * ServerLive; any answer succeeds. */
SLUICE_CLIENT_API sluice_client_status sluice_client_ping(sluice_client *client,
                                                          const sluice_call_options *options,
                                                          sluice_client_error *error);
SLUICE_CLIENT_API sluice_client_status sluice_client_start_ping(sluice_client *client,
                                                                const sluice_call_options *options,
                                                                sluice_call **call,
                                                                sluice_client_error *error);

/* ---- health (OIP, "Health") ------------------------------------------------------------------ */

/* Set *yes to 1 if the server answers 200 (gRPC: true), to 0 for another answer. `version` NULL:
 * the server chooses. */
SLUICE_CLIENT_API sluice_client_status sluice_client_is_live(sluice_client *client,
                                                             const sluice_call_options *options,
                                                             int32_t *yes,
                                                             sluice_client_error *error);
SLUICE_CLIENT_API sluice_client_status sluice_client_is_ready(sluice_client *client,
                                                              const sluice_call_options *options,
                                                              int32_t *yes,
                                                              sluice_client_error *error);
SLUICE_CLIENT_API sluice_client_status sluice_client_model_is_ready(
    sluice_client *client, const char *model, const char *version,
    const sluice_call_options *options, int32_t *yes, sluice_client_error *error);
SLUICE_CLIENT_API sluice_client_status
sluice_client_start_is_live(sluice_client *client, const sluice_call_options *options,
                            sluice_call **call, sluice_client_error *error);
SLUICE_CLIENT_API sluice_client_status
sluice_client_start_is_ready(sluice_client *client, const sluice_call_options *options,
                             sluice_call **call, sluice_client_error *error);
SLUICE_CLIENT_API sluice_client_status sluice_client_start_model_is_ready(
    sluice_client *client, const char *model, const char *version,
    const sluice_call_options *options, sluice_call **call, sluice_client_error *error);
/* The answer of one of these three. */
SLUICE_CLIENT_API sluice_client_status sluice_call_yes(const sluice_call *call, int32_t *yes);

/* ---- metadata (OIP, "Server Metadata", "Model Metadata") ------------------------------------- */

typedef struct sluice_server_metadata {
    size_t size;
    const char *name;
    const char *version;
    const char *const *extensions;
    size_t n_extensions;
} sluice_server_metadata;

typedef struct sluice_model_metadata {
    size_t size;
    const char *name;
    const char *version; /* the last one listed; "": none */
    const char *platform;
    size_t n_inputs, n_outputs;
} sluice_model_metadata;

/* An input or output in the model's metadata. */
typedef struct sluice_tensor_spec {
    size_t size;
    const char *name;
    sluice_datatype datatype;
    const int64_t *dims; /* -1: any size. Includes the batch dimension, if any */
    size_t rank;
} sluice_tensor_spec;

/* `version` NULL: the server chooses. */
SLUICE_CLIENT_API sluice_client_status
sluice_client_server_metadata(sluice_client *client, const sluice_call_options *options,
                              sluice_call **call, sluice_client_error *error);
SLUICE_CLIENT_API sluice_client_status sluice_client_model_metadata(
    sluice_client *client, const char *model, const char *version,
    const sluice_call_options *options, sluice_call **call, sluice_client_error *error);
SLUICE_CLIENT_API sluice_client_status
sluice_client_start_server_metadata(sluice_client *client, const sluice_call_options *options,
                                    sluice_call **call, sluice_client_error *error);
SLUICE_CLIENT_API sluice_client_status sluice_client_start_model_metadata(
    sluice_client *client, const char *model, const char *version,
    const sluice_call_options *options, sluice_call **call, sluice_client_error *error);
SLUICE_CLIENT_API sluice_client_status sluice_call_server(const sluice_call *call,
                                                          sluice_server_metadata *out);
SLUICE_CLIENT_API sluice_client_status sluice_call_model(const sluice_call *call,
                                                         sluice_model_metadata *out);
SLUICE_CLIENT_API sluice_client_status sluice_call_model_input(const sluice_call *call,
                                                               size_t index,
                                                               sluice_tensor_spec *out);
SLUICE_CLIENT_API sluice_client_status sluice_call_model_output(const sluice_call *call,
                                                                size_t index,
                                                                sluice_tensor_spec *out);

/* ---- documents (model configuration, statistics and model repository extensions) ------------- */

/* Each answers a JSON document, as the extension has it: of a model's configuration; of the
 * statistics of a model, or of all (`model` NULL); of the models in the repository. `version` NULL:
 * the server chooses, or all. Over gRPC the document is made of the message's fields that
 * proto/grpc_service.proto has. */
SLUICE_CLIENT_API sluice_client_status sluice_client_model_config(
    sluice_client *client, const char *model, const char *version,
    const sluice_call_options *options, sluice_call **call, sluice_client_error *error);
SLUICE_CLIENT_API sluice_client_status sluice_client_statistics(
    sluice_client *client, const char *model, const char *version,
    const sluice_call_options *options, sluice_call **call, sluice_client_error *error);
SLUICE_CLIENT_API sluice_client_status
sluice_client_repository_index(sluice_client *client, const sluice_call_options *options,
                               sluice_call **call, sluice_client_error *error);
SLUICE_CLIENT_API sluice_client_status sluice_client_start_model_config(
    sluice_client *client, const char *model, const char *version,
    const sluice_call_options *options, sluice_call **call, sluice_client_error *error);
SLUICE_CLIENT_API sluice_client_status sluice_client_start_statistics(
    sluice_client *client, const char *model, const char *version,
    const sluice_call_options *options, sluice_call **call, sluice_client_error *error);
SLUICE_CLIENT_API sluice_client_status
sluice_client_start_repository_index(sluice_client *client, const sluice_call_options *options,
                                     sluice_call **call, sluice_client_error *error);
/* The document of one of these three, valid JSON and NUL-terminated; n_bytes may be NULL. */
SLUICE_CLIENT_API sluice_client_status sluice_call_text(const sluice_call *call, const char **text,
                                                        size_t *n_bytes);

/* Load or unload a model; done when the server has done it. `config`: JSON that takes the place of
 * the model's configuration; NULL: that of the repository. */
SLUICE_CLIENT_API sluice_client_status sluice_client_load(sluice_client *client, const char *model,
                                                          const char *config,
                                                          const sluice_call_options *options,
                                                          sluice_client_error *error);
SLUICE_CLIENT_API sluice_client_status sluice_client_unload(sluice_client *client,
                                                            const char *model,
                                                            const sluice_call_options *options,
                                                            sluice_client_error *error);
SLUICE_CLIENT_API sluice_client_status sluice_client_start_load(
    sluice_client *client, const char *model, const char *config,
    const sluice_call_options *options, sluice_call **call, sluice_client_error *error);
SLUICE_CLIENT_API sluice_client_status sluice_client_start_unload(
    sluice_client *client, const char *model, const sluice_call_options *options,
    sluice_call **call, sluice_client_error *error);

/* ---- shared memory (system shared memory extension) ------------------------------------------ */

/* A shared memory object of this machine, mapped: tensors in it reach a server on the same machine
 * without being sent. A server registers it under a name of its own:
 *
 *     sluice_shm_create(NULL, n_bytes, &shm, &error)
 *     sluice_client_register_shm(client, "mine", sluice_shm_key(shm), 0, n_bytes, NULL, &error)
 *     …sluice_tensor.shm_region and sluice_wanted.shm_region: "mine"; sluice_shm_data(shm)…
 *     sluice_client_unregister_shm(client, "mine", NULL, &error)
 *     sluice_shm_free(shm)
 *
 * Thread: any, for create; else one at a time. */
typedef struct sluice_shm sluice_shm;

/* Makes an object of zeros that only the caller's user may open. `key`: its name, "/NAME"; NULL:
 * one that no other has. Returns: SLUICE_CLIENT_INVALID for a key that is in use or none;
 * SLUICE_CLIENT_NO_MEMORY. Owns: the caller, *shm, until sluice_shm_free; NULL on failure. */
SLUICE_CLIENT_API sluice_client_status sluice_shm_create(const char *key, size_t n_bytes,
                                                         sluice_shm **shm,
                                                         sluice_client_error *error);
SLUICE_CLIENT_API void *sluice_shm_data(const sluice_shm *shm);
SLUICE_CLIENT_API const char *sluice_shm_key(const sluice_shm *shm);
/* Unmaps the object and removes it; a server that has registered it keeps its own mapping. NULL is
 * allowed. */
SLUICE_CLIENT_API void sluice_shm_free(sluice_shm *shm);

/* The server opens the object `key`, of which `n_bytes` from `offset` on become the region `name`;
 * or it forgets a region, or all (`name` NULL). */
SLUICE_CLIENT_API sluice_client_status sluice_client_register_shm(
    sluice_client *client, const char *name, const char *key, uint64_t offset, uint64_t n_bytes,
    const sluice_call_options *options, sluice_client_error *error);
SLUICE_CLIENT_API sluice_client_status
sluice_client_unregister_shm(sluice_client *client, const char *name,
                             const sluice_call_options *options, sluice_client_error *error);
SLUICE_CLIENT_API sluice_client_status sluice_client_start_register_shm(
    sluice_client *client, const char *name, const char *key, uint64_t offset, uint64_t n_bytes,
    const sluice_call_options *options, sluice_call **call, sluice_client_error *error);
SLUICE_CLIENT_API sluice_client_status sluice_client_start_unregister_shm(
    sluice_client *client, const char *name, const sluice_call_options *options, sluice_call **call,
    sluice_client_error *error);

/* ---- inference (OIP, "Inference"; binary tensor data extension) ------------------------------ */

typedef struct sluice_tensor {
    size_t size;
    const char *name;
    sluice_datatype datatype;
    const int64_t *dims; /* each >= 0; 0: empty tensor */
    size_t rank;         /* up to 64 */
    const void *data;    /* outputs: the first binary one is aligned to 64 bytes, others may be not
                            aligned at all. NULL: in shared memory */
    size_t n_bytes;      /* must match datatype and dims */
    /* In shared memory that the server has registered by that name, in place of `data`; NULL:
     * not. */
    const char *shm_region;
    uint64_t shm_offset;
} sluice_tensor;

/* A named value in a request or answer. The member that `kind` names is valid. */
typedef struct sluice_parameter {
    size_t size;
    const char *name;
    sluice_param_kind kind;
    int32_t boolean;
    int64_t int64;
    uint64_t uint64;
    double number;
    const char *string;
    size_t string_bytes; /* the string may contain NULs */
} sluice_parameter;

/* Encoding of tensors in request and answer. Over gRPC: only binary. */
typedef enum sluice_form SLUICE_32_BITS {
    SLUICE_FORM_BINARY = 0, /* after the JSON: fastest, any datatype */
    SLUICE_FORM_JSON = 1,   /* in the JSON; BYTES must be UTF-8 */
    SLUICE_FORM_RAW = 2     /* only the bytes of the single input: no id, parameters, outputs or
                               names; a BYTES input has one element. The server infers the
                               rest */
} sluice_form;

/* An output that the caller wants, and the caller's memory for it. Either all of a request have
 * names, and the server sends only these outputs, or none has: then it sends all of its outputs,
 * and the element at an index is for the output at that index. n_classes and shm_region need a
 * name, and exclude each other. */
typedef struct sluice_wanted {
    size_t size;
    const char *name; /* NULL: by index */
    void *data;       /* receives the output, in any form; NULL: the call's memory */
    size_t n_bytes;   /* of `data`; too small: SLUICE_CLIENT_BUFFER_TOO_SMALL */
    /* The highest values of each row in place of the output, with their indexes and labels: a BYTES
     * tensor that sluice_classes_next reads (classification extension). 0: the output itself */
    uint32_t n_classes;
    /* The server writes the output there: the answer has its shape and no data. NULL: not. */
    const char *shm_region;
    uint64_t shm_offset, shm_bytes; /* shm_bytes: at least what the output needs */
} sluice_wanted;

typedef struct sluice_infer_request {
    size_t size;
    const char *model;
    const char *version; /* NULL: the server chooses */
    const char *id;      /* NULL: none */
    const sluice_tensor *inputs;
    size_t n_inputs;
    const sluice_wanted *wanted; /* none: all outputs, in the call's memory */
    size_t n_wanted;
    const sluice_parameter *params;
    size_t n_params;
    sluice_form form;
    int32_t reserved; /* 0 */
} sluice_infer_request;

typedef struct sluice_answer_info {
    size_t size;
    const char *id; /* "": none */
    const char *model;
    const char *version;
    size_t n_outputs, n_params;
} sluice_answer_info;

/* Return: SLUICE_CLIENT_INVALID, before sending, for sizes that do not match shapes and for content
 * the form can't carry. */
SLUICE_CLIENT_API sluice_client_status sluice_client_infer(sluice_client *client,
                                                           const sluice_infer_request *request,
                                                           const sluice_call_options *options,
                                                           sluice_call **call,
                                                           sluice_client_error *error);
SLUICE_CLIENT_API sluice_client_status sluice_client_start_infer(
    sluice_client *client, const sluice_infer_request *request, const sluice_call_options *options,
    sluice_call **call, sluice_client_error *error);
SLUICE_CLIENT_API sluice_client_status sluice_call_answer(const sluice_call *call,
                                                          sluice_answer_info *out);
SLUICE_CLIENT_API sluice_client_status sluice_call_output(const sluice_call *call, size_t index,
                                                          sluice_tensor *out);
SLUICE_CLIENT_API sluice_client_status sluice_call_find_output(const sluice_call *call,
                                                               const char *name,
                                                               sluice_tensor *out);
SLUICE_CLIENT_API sluice_client_status sluice_call_param(const sluice_call *call, size_t index,
                                                         sluice_parameter *out);
SLUICE_CLIENT_API sluice_client_status sluice_call_find_param(const sluice_call *call,
                                                              const char *name,
                                                              sluice_parameter *out);

/* ---- streams of answers ---------------------------------------------------------------------- */

/* A stream is a call with any number of answers, as a decoupled model gives them: the caller takes
 * one after the other and reads it as the result of a call, until it takes the next one.
 *
 *     while ((status = sluice_call_wait_next(call, &error)) == SLUICE_CLIENT_OK)
 *         …sluice_call_find_output(call, "OUT", &output)…
 *     …status is SLUICE_CLIENT_END, or the failure…
 *     sluice_call_free(call)
 *
 * Its deadline is that of the options of the call or client; without one it has none. It is not
 * tried again. Answers that the caller does not take hold up the server. */

/* Takes the next answer; what was read of the one before becomes invalid. Returns:
 * SLUICE_CLIENT_PENDING if it has not come (wait_next blocks until then); SLUICE_CLIENT_END after
 * the last one. SLUICE_CLIENT_SERVER_ERROR, while sluice_call_status is SLUICE_CLIENT_PENDING: the
 * server's error takes the place of this one answer, and there may be others. Else the failure of
 * the call. */
SLUICE_CLIENT_API sluice_client_status sluice_call_next(sluice_call *call,
                                                        sluice_client_error *error);
SLUICE_CLIENT_API sluice_client_status sluice_call_wait_next(sluice_call *call,
                                                             sluice_client_error *error);

/* gRPC (ModelStreamInfer): a stream to which requests are sent while it runs. Their answers come as
 * models give them, with the request's id. sluice_call_answer and its kin read one. With the
 * request's parameter `triton_enable_empty_final_response` (boolean) each request's last answer has
 * the parameter `triton_final_response`, and may have no outputs. */
SLUICE_CLIENT_API sluice_client_status
sluice_client_start_stream(sluice_client *client, const sluice_call_options *options,
                           sluice_call **call, sluice_client_error *error);
/* Queues a request, of which everything is copied. Sends nothing: the next step does, as far as the
 * server reads; unsent_bytes: what is left to send. Returns: SLUICE_CLIENT_INVALID for a request as
 * sluice_client_start_infer; SLUICE_CLIENT_UNSUPPORTED for a sluice_wanted with `data`;
 * SLUICE_CLIENT_END if the stream has ended, or its failure. */
SLUICE_CLIENT_API sluice_client_status sluice_call_send(sluice_call *call,
                                                        const sluice_infer_request *request,
                                                        sluice_client_error *error);
SLUICE_CLIENT_API size_t sluice_call_unsent_bytes(const sluice_call *call);
/* There are no more requests: the server ends the stream after the last answer. */
SLUICE_CLIENT_API void sluice_call_half_close(sluice_call *call);

/* HTTP (generate extension): the request and each answer are a flat JSON object, with inputs,
 * outputs and parameters as members. generate: exactly one answer. start_generate_stream: any
 * number, a stream. sluice_call_text reads an answer. */
typedef struct sluice_generate_request {
    size_t size;
    const char *model;
    const char *version; /* NULL: the server chooses */
    const char *json;
    size_t json_bytes; /* 0: it ends at its NUL */
} sluice_generate_request;

SLUICE_CLIENT_API sluice_client_status sluice_client_generate(
    sluice_client *client, const sluice_generate_request *request,
    const sluice_call_options *options, sluice_call **call, sluice_client_error *error);
SLUICE_CLIENT_API sluice_client_status sluice_client_start_generate(
    sluice_client *client, const sluice_generate_request *request,
    const sluice_call_options *options, sluice_call **call, sluice_client_error *error);
SLUICE_CLIENT_API sluice_client_status sluice_client_start_generate_stream(
    sluice_client *client, const sluice_generate_request *request,
    const sluice_call_options *options, sluice_call **call, sluice_client_error *error);

/* ---- tensors without ceremony ---------------------------------------------------------------- */

/* None of these functions uses a client. Thread: any. */

/* Returns: the number of elements; SIZE_MAX for a negative dimension, and when it overflows. */
SLUICE_CLIENT_API size_t sluice_n_elements(const int64_t *dims, size_t rank);

/* Tensors and parameters from values. These functions are compiled into the caller: they are not
 * part of the ABI. `data`, `name` and `dims` are borrowed, as in the structs.
 *
 * A tensor whose data has `element_bytes` for each element. If the size overflows, n_bytes is
 * SIZE_MAX, and a call with the tensor fails with SLUICE_CLIENT_INVALID. */
static inline sluice_tensor sluice_tensor_of(sluice_datatype datatype, size_t element_bytes,
                                             const char *name, const void *data,
                                             const int64_t *dims, size_t rank) {
    sluice_tensor tensor;
    size_t n = sluice_n_elements(dims, rank);
    tensor.size = sizeof(tensor);
    tensor.name = name;
    tensor.datatype = datatype;
    tensor.dims = dims;
    tensor.rank = rank;
    tensor.data = data;
    tensor.n_bytes = n > SIZE_MAX / element_bytes ? SIZE_MAX : n * element_bytes;
    tensor.shm_region = NULL;
    tensor.shm_offset = 0;
    return tensor;
}

#define SLUICE_DEFINE_TENSOR(suffix, type, datatype)                                               \
    static inline sluice_tensor sluice_tensor_##suffix(const char *name, const type *data,         \
                                                       const int64_t *dims, size_t rank) {         \
        return sluice_tensor_of(datatype, sizeof(type), name, data, dims, rank);                   \
    }
SLUICE_DEFINE_TENSOR(bool, uint8_t, SLUICE_BOOL)
SLUICE_DEFINE_TENSOR(u8, uint8_t, SLUICE_UINT8)
SLUICE_DEFINE_TENSOR(u16, uint16_t, SLUICE_UINT16)
SLUICE_DEFINE_TENSOR(u32, uint32_t, SLUICE_UINT32)
SLUICE_DEFINE_TENSOR(u64, uint64_t, SLUICE_UINT64)
SLUICE_DEFINE_TENSOR(i8, int8_t, SLUICE_INT8)
SLUICE_DEFINE_TENSOR(i16, int16_t, SLUICE_INT16)
SLUICE_DEFINE_TENSOR(i32, int32_t, SLUICE_INT32)
SLUICE_DEFINE_TENSOR(i64, int64_t, SLUICE_INT64)
SLUICE_DEFINE_TENSOR(f16, uint16_t, SLUICE_FP16) /* bit patterns: sluice_f16_from_f32 */
SLUICE_DEFINE_TENSOR(bf16, uint16_t, SLUICE_BF16)
SLUICE_DEFINE_TENSOR(f32, float, SLUICE_FP32)
SLUICE_DEFINE_TENSOR(f64, double, SLUICE_FP64)
#undef SLUICE_DEFINE_TENSOR

/* A BYTES tensor of elements that sluice_strings_pack has written. */
static inline sluice_tensor sluice_tensor_strings(const char *name, const void *packed,
                                                  size_t n_bytes, const int64_t *dims,
                                                  size_t rank) {
    sluice_tensor tensor = sluice_tensor_of(SLUICE_BYTES, 1, name, packed, dims, rank);
    tensor.n_bytes = n_bytes;
    return tensor;
}

static inline sluice_parameter sluice_parameter_of(const char *name, sluice_param_kind kind) {
    sluice_parameter parameter;
    parameter.size = sizeof(parameter);
    parameter.name = name;
    parameter.kind = kind;
    parameter.boolean = 0;
    parameter.int64 = 0;
    parameter.uint64 = 0;
    parameter.number = 0;
    parameter.string = NULL;
    parameter.string_bytes = 0;
    return parameter;
}

#define SLUICE_DEFINE_PARAMETER(suffix, type, kind, member)                                        \
    static inline sluice_parameter sluice_parameter_##suffix(const char *name, type value) {       \
        sluice_parameter parameter = sluice_parameter_of(name, kind);                              \
        parameter.member = value;                                                                  \
        return parameter;                                                                          \
    }
SLUICE_DEFINE_PARAMETER(bool, int32_t, SLUICE_PARAM_BOOL, boolean)
SLUICE_DEFINE_PARAMETER(int64, int64_t, SLUICE_PARAM_INT64, int64)
SLUICE_DEFINE_PARAMETER(uint64, uint64_t, SLUICE_PARAM_UINT64, uint64)
SLUICE_DEFINE_PARAMETER(double, double, SLUICE_PARAM_DOUBLE, number)
#undef SLUICE_DEFINE_PARAMETER

static inline sluice_parameter sluice_parameter_string(const char *name, const char *text) {
    sluice_parameter parameter = sluice_parameter_of(name, SLUICE_PARAM_STRING);
    parameter.string = text;
    while (text[parameter.string_bytes] != '\0') {
        parameter.string_bytes++;
    }
    return parameter;
}

/* Returns: "FP32", or "unknown"; bytes of an element, 0 for BYTES and unknown numbers. */
SLUICE_CLIENT_API const char *sluice_datatype_name(int32_t datatype);
SLUICE_CLIENT_API size_t sluice_datatype_bytes(int32_t datatype);

/* Copies `n` elements of a tensor to aligned memory of the caller, in the datatype that the caller
 * expects. Returns: SLUICE_CLIENT_INVALID if the tensor has another datatype or is BYTES;
 * SLUICE_CLIENT_BUFFER_TOO_SMALL if it has more than `n` elements, SLUICE_CLIENT_NOT_FOUND if it
 * has fewer. */
SLUICE_CLIENT_API sluice_client_status sluice_tensor_read(const sluice_tensor *tensor,
                                                          sluice_datatype datatype, void *out,
                                                          size_t n);

/* Strings to the elements of a BYTES tensor. `lengths` NULL: each text ends at its NUL; else it may
 * contain NULs. bytes: Returns: the size of all elements; SIZE_MAX if one has more than 2^32 - 1
 * bytes or the sum overflows. pack: writes them to `out`. Returns: SLUICE_CLIENT_BUFFER_TOO_SMALL
 * and SLUICE_CLIENT_INVALID for these; nothing is written then. */
SLUICE_CLIENT_API size_t sluice_strings_bytes(const char *const *texts, const size_t *lengths,
                                              size_t n);
SLUICE_CLIENT_API sluice_client_status sluice_strings_pack(const char *const *texts,
                                                           const size_t *lengths, size_t n,
                                                           void *out, size_t out_bytes);
/* The next element of a BYTES tensor; *at is 0 before the first. *text is in the tensor and does
 * not end with a NUL. Returns: SLUICE_CLIENT_NOT_FOUND after the last one, SLUICE_CLIENT_INVALID
 * for another datatype, SLUICE_CLIENT_PROTOCOL if the data end within an element. */
SLUICE_CLIENT_API sluice_client_status sluice_strings_next(const sluice_tensor *tensor, size_t *at,
                                                           const char **text, size_t *n_bytes);

/* An element of an output with n_classes: "VALUE:INDEX", or "VALUE:INDEX:LABEL" if the model has
 * labels. next: as sluice_strings_next, and SLUICE_CLIENT_PROTOCOL for another text. */
typedef struct sluice_class {
    size_t size;
    double value;
    uint64_t index;
    const char *label; /* in the tensor, without a NUL; NULL: none */
    size_t label_bytes;
} sluice_class;
SLUICE_CLIENT_API sluice_client_status sluice_classes_next(const sluice_tensor *tensor, size_t *at,
                                                           sluice_class *out);

/* FP16 and BF16 from and to float, `n` of them; the 16-bit side may be unaligned. To 16 bits:
 * rounded to nearest, ties to even; a NaN stays one; what is too large becomes infinity. */
SLUICE_CLIENT_API void sluice_f16_from_f32(void *out, const float *in, size_t n);
SLUICE_CLIENT_API void sluice_f16_to_f32(float *out, const void *in, size_t n);
SLUICE_CLIENT_API void sluice_bf16_from_f32(void *out, const float *in, size_t n);
SLUICE_CLIENT_API void sluice_bf16_to_f32(float *out, const void *in, size_t n);

#ifdef __cplusplus
}
#endif

#endif
