/* A public call of any kind, from start to result. sluice_client_step, _wait and _cancel drive
 * it; the functions in api*.c share it. A blocking call is start, run and take. */
#ifndef SLUICE_CLIENT_CALL_H
#define SLUICE_CLIENT_CALL_H

#include "client/client.h"
#include "client/convert.h"
#include "sluice/client.h"

struct client_call_kind {
    const char *name; /* the function that takes the result, for error texts */
    /* Reads the answer of the completed exchange into client->result. */
    enum status (*finish)(sluice_client *client, struct error *err);
};

enum client_call_state {
    CLIENT_CALL_NONE,    /* no call, or a failed one */
    CLIENT_CALL_RUNNING, /* its exchange is under way */
    CLIENT_CALL_DONE,    /* the result is ready */
};

struct sluice_client {
    struct client *client;
    struct arena_cache *cache;
    struct arena *arena; /* of the last call: request and results */
    enum client_call_state state;
    const struct client_call_kind *kind; /* of the last call */
    bool answered;                       /* its exchange completed */
    struct mip_infer mip_request;        /* MIP: the request */
    sluice_buffer answer_buffer;         /* MIP: the caller's buffer for the answer's payload */
    struct client_buffers buffers;       /* HTTP: the caller's buffers for outputs */
    union {
        int32_t yes;
        sluice_server_metadata server;
        sluice_model_metadata model;
        sluice_infer_answer infer;
        sluice_mip_answer mip;
    } result;
};

/* ---- a call ---------------------------------------------------------------------------------- */

/* Starts preparing a call; drops the last call's results. Returns: ST_BAD_FIELD when a call is
 * under way, which continues; ST_NO_MEMORY. */
enum status client_call_begin(sluice_client *client, const struct client_call_kind *kind,
                              struct error *err) SLUICE_MUST_USE;
/* Starts the exchange that is prepared in the session, or reports why preparing it failed:
 * `status` is its result, with `err`. */
sluice_client_status client_call_start(sluice_client *client, enum status status,
                                       const struct error *err, uint64_t timeout_ns,
                                       sluice_client_error *error);
/* Runs a started call to its end. Returns: `started` if that is not SLUICE_CLIENT_OK. */
sluice_client_status client_call_run(sluice_client *client, sluice_client_status started,
                                     sluice_client_error *error);
/* Checks that the caller's struct `out`, whose first member is its size, has a valid size. */
sluice_client_status client_call_check_out(const void *out, sluice_client_error *error);
/* Checks that the last call has this kind and is done. Returns: else SLUICE_CLIENT_INVALID. */
sluice_client_status client_call_check_done(const sluice_client *client,
                                            const struct client_call_kind *kind,
                                            sluice_client_error *error);
/* Checks both, and copies the result `made` to `out`. */
sluice_client_status client_call_take_result(const sluice_client *client,
                                             const struct client_call_kind *kind, void *out,
                                             const void *made, size_t n_bytes,
                                             sluice_client_error *error);

/* ---- structs with a size --------------------------------------------------------------------- */

/* Returns: ST_BAD_FIELD for a size smaller than the member `size`. */
enum status sized_struct_check(size_t n_given, struct error *err) SLUICE_MUST_USE;
/* Copies a caller's struct; members beyond its size are zero. Returns: as sized_struct_check. */
enum status sized_struct_read(void *out, size_t n_known, const void *from, size_t n_given,
                              struct error *err) SLUICE_MUST_USE;
/* Copies to a caller's struct as much as its size allows; its `size` member is unchanged. */
void sized_struct_write(void *out, size_t n_taken, const void *from, size_t n_known);

/* ---- errors ---------------------------------------------------------------------------------- */

/* Fills the caller's error, which may be NULL; `client` may be NULL too. Returns: the public
 * status. */
sluice_client_status client_call_set_error(const sluice_client *client, const struct error *err,
                                           sluice_client_error *error);

#endif
