/* A public call of any kind, from start to results. The functions in api*.c start calls, results.c
 * reads them; a blocking function is start and wait. */
#ifndef SLUICE_CLIENT_CALL_H
#define SLUICE_CLIENT_CALL_H

#include <sys/queue.h>

#include "client/answer_block.h"
#include "client/client.h"
#include "client/convert.h"
#include "client/mip.h"
#include "sluice/client.h"

/* What a call answers; the member of `result` with the same name is valid when it is done. */
enum client_result {
    CLIENT_RESULT_NONE,
    CLIENT_RESULT_YES,
    CLIENT_RESULT_SERVER,
    CLIENT_RESULT_MODEL,
    CLIENT_RESULT_ANSWER,
    CLIENT_RESULT_MIP,
};

struct client_call_kind {
    enum client_result result;
    /* Reads the answer of the completed exchange into call->result. */
    enum status (*finish)(sluice_call *call, struct error *err);
};

enum client_call_state {
    CLIENT_CALL_PREPARED, /* its exchange is not started */
    CLIENT_CALL_RUNNING,  /* its exchange is under way */
    CLIENT_CALL_DONE,     /* the result is ready */
    CLIENT_CALL_FAILED,   /* `error` has the reason */
};

struct sluice_call {
    sluice_client *client;
    LIST_ENTRY(sluice_call) link; /* in the client's `calls` or `spare` */
    enum client_call_state state;
    const struct client_call_kind *kind;
    struct arena *arena;           /* of the request and the results */
    struct answer_block block;     /* the bytes of the answer */
    bool answered;                 /* the exchange completed */
    struct mip_infer mip_request;  /* MIP: the request */
    size_t mip_buffer_bytes;       /* MIP: of the caller's buffer for the answer's payload */
    struct client_buffers buffers; /* HTTP: the caller's buffers for outputs */
    struct client_headers headers; /* to send: the client's and the call's */
    uint64_t timeout_ns;           /* 0: the client's */
    /* HTTP: of the answer, of full size */
    const sluice_header *answer_headers;
    size_t n_answer_headers;
    sluice_client_error error;
    union {
        int32_t yes;
        sluice_server_metadata server;
        struct client_model model;
        struct client_answer answer;
        struct client_mip_answer mip;
    } result;
};

LIST_HEAD(client_call_list, sluice_call);

struct sluice_client {
    struct client *client;
    struct arena_cache *cache;
    struct arena *arena;    /* of what the client's options have */
    struct client_tls *tls; /* NULL: none, or the caller's transport */
    struct client_headers headers;
    sluice_call *running; /* NULL: none */
    struct client_call_list calls;
    struct client_call_list spare; /* freed calls, for their memory */
    size_t n_spare;
};

/* Makes a call with the caller's options, to be prepared in its arena and in the client's session.
 * Returns: ST_BAD_FIELD for the options, and when a call is under way, which continues;
 * ST_UNSUPPORTED for headers over MIP; ST_NO_MEMORY. Owns: *out until client_call_start. */
enum status client_call_new(sluice_client *client, const struct client_call_kind *kind,
                            const sluice_call_options *options, sluice_call **out,
                            struct error *err) SLUICE_MUST_USE;
/* Starts the exchange that is prepared in the session and gives `call` to the caller; or frees it
 * (NULL is allowed) and reports why preparing it failed: `status` with `err`. */
sluice_client_status client_call_start(sluice_call *call, enum status status,
                                       const struct error *err, sluice_call **out,
                                       sluice_client_error *error);
/* Waits for a started call. Returns: `started` if that is not SLUICE_CLIENT_OK. */
sluice_client_status client_call_run(sluice_call *call, sluice_client_status started,
                                     sluice_client_error *error);
/* Frees all calls of a client, and the spare ones. */
void client_call_free_all(sluice_client *client);

/* Fills the caller's error, which may be NULL. Returns: the public status of an error before a call
 * has started. */
sluice_client_status client_start_error(const struct error *err, sluice_client_error *error);

#endif
