/* Scanner for the model's name in a gRPC body: model_name, the first field of a
 * ModelInferRequest, after the length prefix of gRPC; chunks may be cut anywhere. Fields before
 * the name are skipped, bytes after it are not read.
 *
 * gRPC, "Length-Prefixed-Message"; proto/grpc_service.proto. */
#ifndef SLUICE_CODEC_PROMPT_MODEL_SCAN_GRPC_H
#define SLUICE_CODEC_PROMPT_MODEL_SCAN_GRPC_H

#include "codec/prompt/model_scan.h"

struct model_scan_grpc {
    enum model_scan_result result;  /* never MODEL_SCAN_NOT_OBJECT */
    struct buf name;                /* MODEL_SCAN_FOUND: valid UTF-8 */
    uint64_t field_at, field_bytes; /* position and size in the body of the whole field: tag, length
                                       and bytes */
    uint64_t message_at;            /* offset after the prefix; 0 without one */
    uint64_t message_bytes;         /* from the prefix; UINT64_MAX: no prefix */
    uint64_t at;                    /* bytes scanned */
    const char *error_text;         /* reason for MODEL_SCAN_MALFORMED */
    /* scan state */
    uint64_t value;  /* of the varint being read */
    uint64_t left;   /* bytes left of the current field */
    uint32_t number; /* number of the current field */
    uint8_t n_value; /* bytes of `value` read */
    uint8_t state;   /* enum state of model_scan_grpc.c */
};

/* Starts. The name grows in `arena`, which must outlive the scan. `prefixed` is false for a bare
 * message (ext-proc's mode GRPC). */
void model_scan_grpc_init(struct model_scan_grpc *scan, struct arena *arena, bool prefixed);
/* Starts a scan of the bytes after a name that was found; protobuf's readers take the last one. */
void model_scan_grpc_init_rest(struct model_scan_grpc *rest, const struct model_scan_grpc *scan);
/* Scans the next bytes. Returns: whether the message has another name. */
bool model_scan_grpc_feed_rest(struct model_scan_grpc *rest, struct str chunk);
/* As model_scan_feed, model_scan_finish and model_scan_check, but model_scan_grpc_check returns
 * ST_BAD_REQUEST for malformed messages, ST_UNKNOWN_ENCODING for compressed ones. */
enum model_scan_result model_scan_grpc_feed(struct model_scan_grpc *scan, struct str chunk);
enum model_scan_result model_scan_grpc_finish(struct model_scan_grpc *scan);
enum status model_scan_grpc_check(const struct model_scan_grpc *scan,
                                  struct error *err) SLUICE_MUST_USE;

#endif
