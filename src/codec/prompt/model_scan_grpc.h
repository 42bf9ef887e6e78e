/* Which model does a gRPC body name? The first field of a ModelInferRequest, model_name, behind the
 * prefix that gRPC puts before a message; chunks may be cut anywhere. Tensors are not looked at:
 * what comes before the name is jumped over, behind it nothing is read.
 *
 * gRPC, "Length-Prefixed-Message"; proto/grpc_service.proto. */
#ifndef SLUICE_CODEC_PROMPT_MODEL_SCAN_GRPC_H
#define SLUICE_CODEC_PROMPT_MODEL_SCAN_GRPC_H

#include "codec/prompt/model_scan.h"

struct model_scan_grpc {
    enum model_scan_result result;  /* never MODEL_SCAN_NOT_OBJECT */
    struct buf name;                /* MODEL_SCAN_FOUND: valid UTF-8 */
    uint64_t field_at, field_bytes; /* the whole field, in the body: its tag, length and bytes */
    uint64_t message_at;            /* behind the prefix, if there is one */
    uint64_t message_bytes;         /* as the prefix says; UINT64_MAX: there is none */
    uint64_t at;                    /* bytes looked at */
    const char *error_text;         /* MODEL_SCAN_MALFORMED: what is wrong */
    /* how far it is */
    uint64_t value;  /* of the number that comes */
    uint64_t left;   /* bytes of the field that comes */
    uint32_t number; /* of that field */
    uint8_t type;
    uint8_t n_value; /* bytes of `value` so far */
    uint8_t state;   /* enum state of model_scan_grpc.c */
};

/* Starts. The name grows in `arena`, which must outlive the scan. `prefixed` is false for a message
 * as it is (ext-proc's mode GRPC). */
void model_scan_grpc_init(struct model_scan_grpc *scan, struct arena *arena, bool prefixed);
/* As model_scan_feed, model_scan_finish and model_scan_check; the latter returns ST_BAD_REQUEST
 * where it is no such message, ST_UNKNOWN_ENCODING where it is compressed. */
enum model_scan_result model_scan_grpc_feed(struct model_scan_grpc *scan, struct str chunk);
enum model_scan_result model_scan_grpc_finish(struct model_scan_grpc *scan);
enum status model_scan_grpc_check(const struct model_scan_grpc *scan, struct error *err)
    __attribute__((warn_unused_result));

#endif
