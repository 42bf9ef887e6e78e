/* The part of a request's headers and metadata that matters for the pick. All texts are views of
 * the message and of the pool's configuration; the subsets are in the stream's arena. */
#ifndef SLUICE_PICK_SESSION_REQUEST_H
#define SLUICE_PICK_SESSION_REQUEST_H

#include "codec/ext_proc/request.h"
#include "codec/prompt/model_location.h"
#include "pick/pool/snapshot.h"
#include "pick/pool/subset.h"

/* ptr NULL: the request has no such header. Of repeated headers the first counts. */
struct pick_request {
    struct ext_proc_headers fields; /* all headers */
    struct str method, path;
    struct str content_type;
    uint64_t n_body_bytes;  /* content-length, with has_length */
    struct str encoding;    /* content-encoding, unless it is identity */
    struct str model;       /* from the model header */
    struct str rewrite;     /* the model to ask the endpoint for instead */
    struct str objective;   /* name of the objective */
    struct str fairness_id; /* for round robin among fairness ids in the queue */
    struct str session;     /* the session that the request belongs to, from a header or a cookie */
    struct str id;          /* the request id, as in the proxy's log */
    struct subset hint;     /* of the proxy; Clause "Endpoint Subset" */
    struct subset selection;
    bool has_hint, has_selection;
    bool has_length; /* there is a content-length, and it is a number */
};

/* Reads the headers named in `protocol`, and the subset. Returns: ST_NO_MEMORY. */
enum status pick_request_read(struct arena *arena, const struct protocol *protocol,
                              const struct ext_proc_request *message, struct pick_request *out,
                              struct error *err) SLUICE_MUST_USE;

/* Reads the subset only; none in the metadata leaves `out` unchanged. Returns: ST_NO_MEMORY. */
enum status pick_request_read_subset(struct arena *arena, const struct protocol *protocol,
                                     const struct ext_proc_request *message,
                                     struct pick_request *out, struct error *err) SLUICE_MUST_USE;

/* Where a request names its model, by the paths of its pool. Returns: as model_location_parse. */
enum status pick_request_find_model(struct arena *arena, const struct pool_spec *spec,
                                    struct str method, struct str path, struct model_location *out,
                                    struct error *err) SLUICE_MUST_USE;

/* Whether the client speaks gRPC: it gets errors as grpc-status. */
bool pick_request_is_grpc(const struct pick_request *request);

#endif
