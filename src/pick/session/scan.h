/* Where in a request's body its model is, for both sorts of bodies, and what has to be changed
 * there to name another. */
#ifndef SLUICE_PICK_SESSION_SCAN_H
#define SLUICE_PICK_SESSION_SCAN_H

#include "codec/prompt/model_scan_grpc.h"

struct pick_scan {
    bool is_grpc;
    union {
        struct model_scan json;
        struct model_scan_grpc grpc;
    } of;
};

/* `prefixed`: as model_scan_grpc_init. */
void pick_scan_init(struct pick_scan *scan, struct arena *arena, bool is_grpc, bool prefixed);
/* The next bytes; `is_compressed`: as ext-proc says it of a gRPC message. Returns: it is known now
 * what the body names, if anything. */
bool pick_scan_feed(struct pick_scan *scan, struct str bytes, bool is_compressed);
/* No more bytes come. */
void pick_scan_end(struct pick_scan *scan);
/* What a client is told where no model was found. Returns: as model_scan_check. */
enum status pick_scan_check(const struct pick_scan *scan, struct error *err)
    __attribute__((warn_unused_result));
/* The model. */
struct str pick_scan_name(const struct pick_scan *scan);

/* `n_bytes` of the body at `at` become `with`. */
struct pick_edit {
    uint64_t at, n_bytes;
    struct str with;
};
/* In the order of the bytes. */
struct pick_edits {
    struct pick_edit items[2];
    size_t n;
    int64_t growth; /* bytes that the body has more, or less */
};

/* What makes a body whose model was found name `model`. Returns: ST_NO_MEMORY; ST_BODY_TOO_LARGE,
 * where a gRPC message would be over 2^32 - 1 bytes. Owns: in `arena`. */
enum status pick_scan_edit(const struct pick_scan *scan, struct arena *arena, struct str model,
                           struct pick_edits *out, struct error *err)
    __attribute__((warn_unused_result));

#endif
