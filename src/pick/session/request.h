/* What a proxy says of a request at its headers, as far as it matters for the pick: one walk over
 * the headers, and the subset from the metadata. All of it are views of that message and of the
 * names in the pool's configuration, but the subsets, which are in the stream's arena. */
#ifndef SLUICE_PICK_SESSION_REQUEST_H
#define SLUICE_PICK_SESSION_REQUEST_H

#include "codec/ext_proc/request.h"
#include "codec/prompt/model_location.h"
#include "pick/pool/snapshot.h"
#include "pick/pool/subset.h"

/* ptr NULL: the request has no such header. Of one that repeats the first counts. */
struct pick_request {
    struct ext_proc_headers fields; /* all of them */
    struct str method, path;
    struct str content_type, content_length;
    struct str encoding;    /* content-encoding, unless it is identity */
    struct str model;       /* as a header names it, instead of path or body */
    struct str rewrite;     /* the model to ask for instead */
    struct str objective;   /* by name */
    struct str fairness_id; /* whose turn it is with others, where it has to wait */
    struct str session;     /* a value that requests of one session share */
    struct str id;          /* the proxy's number for it, which its own log has */
    struct subset hint;     /* of the proxy: Clause "Endpoint Subset" */
    struct subset selection;
    bool has_hint, has_selection;
};

/* Reads what the names in `protocol` say. Returns: ST_NO_MEMORY. */
enum status pick_request_read(struct arena *arena, const struct protocol *protocol,
                              const struct ext_proc_request *message, struct pick_request *out,
                              struct error *err) __attribute__((warn_unused_result));

/* The subset alone, of a message that says one. Returns: ST_NO_MEMORY. */
enum status pick_request_read_subset(struct arena *arena, const struct protocol *protocol,
                                     const struct ext_proc_request *message,
                                     struct pick_request *out, struct error *err)
    __attribute__((warn_unused_result));

/* A gRPC client asks: it is told of errors by grpc-status. */
bool pick_request_is_grpc(const struct pick_request *request);

#endif
