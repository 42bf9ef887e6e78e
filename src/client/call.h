/* A public call from its start to its result, whichever it is: what sluice_client_step, _wait and
 * _cancel drive, and what the functions of client_api_*.c have in common. A plain call is start,
 * run and take. */
#ifndef SLUICE_CLIENT_CALL_H
#define SLUICE_CLIENT_CALL_H

#include "client/client.h"
#include "client/convert.h"
#include "sluice/client.h"

struct client_call_kind {
    const char *name; /* of the function that takes the result, for messages */
    /* Reads the answer of the exchange that is done into client->result. */
    enum status (*finish)(sluice_client *client, struct error *err);
};

enum client_call_state {
    CLIENT_CALL_NONE,    /* none, or one that failed */
    CLIENT_CALL_RUNNING, /* its exchange is under way */
    CLIENT_CALL_DONE,    /* its result is there */
};

struct sluice_client {
    struct client *client;
    struct arena_cache *cache;
    struct arena *arena; /* of the last call: what is sent, and its results */
    enum client_call_state state;
    const struct client_call_kind *kind; /* of the last call */
    bool answered;                       /* its exchange came to an end */
    struct mip_infer mip_request;        /* of MIP: what is sent */
    sluice_buffer answer_buffer;         /* … and the caller's place for the answer's payload */
    struct client_buffers buffers;       /* of HTTP: the caller's places for outputs */
    union {
        int32_t yes;
        sluice_server_metadata server;
        sluice_model_metadata model;
        sluice_infer_answer infer;
        sluice_mip_answer mip;
    } result;
};

/* ---- a call ---------------------------------------------------------------------------------- */

/* Drops the last call's results. Returns: ST_BAD_FIELD when a call is under way, which goes on;
 * ST_NO_MEMORY. */
enum status client_call_begin(sluice_client *client, const struct client_call_kind *kind,
                              struct error *err) __attribute__((warn_unused_result));
/* Starts the exchange that was begun in the session, or tells why that came to nothing: `status` is
 * what preparing it returned, with `err`. */
sluice_client_status client_call_start(sluice_client *client, enum status status,
                                       const struct error *err, uint64_t timeout_ns,
                                       sluice_client_error *error);
/* Runs the call that `started` to its end; passes on why it did not. */
sluice_client_status client_call_run(sluice_client *client, sluice_client_status started,
                                     sluice_client_error *error);
/* Can the caller's struct `out`, whose first member is its size, be given a result? */
sluice_client_status client_call_check_out(const void *out, sluice_client_error *error);
/* Was the last call of this kind, and is it done? Returns: else SLUICE_CLIENT_INVALID. */
sluice_client_status client_call_check_done(const sluice_client *client,
                                            const struct client_call_kind *kind,
                                            sluice_client_error *error);
/* Both, and gives `out` the result `made`. */
sluice_client_status client_call_take_result(const sluice_client *client,
                                             const struct client_call_kind *kind, void *out,
                                             const void *made, size_t n_bytes,
                                             sluice_client_error *error);

/* ---- structs with a size --------------------------------------------------------------------- */

/* Returns: ST_BAD_FIELD for a size too small to hold itself. */
enum status sized_struct_check(size_t n_given, struct error *err)
    __attribute__((warn_unused_result));
/* Copies as much of a caller's struct as it has; what it lacks is zero. Returns: as above. */
enum status sized_struct_read(void *out, size_t n_known, const void *from, size_t n_given,
                              struct error *err) __attribute__((warn_unused_result));
/* The other way; the caller's `size` member stays as it is. */
void sized_struct_write(void *out, size_t n_taken, const void *from, size_t n_known);

/* ---- errors ---------------------------------------------------------------------------------- */

/* Fills the caller's error, which may be NULL, as may `client`. Returns: the public status. */
sluice_client_status client_call_set_error(const sluice_client *client, const struct error *err,
                                           sluice_client_error *error);

#endif
