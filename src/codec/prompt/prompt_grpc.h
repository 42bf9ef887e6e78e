/* The prompt in a gRPC body: of vLLM's engine (VllmEngine/Generate and Embed) and of Google's
 * PredictionService, whose HttpBody has the JSON of OpenAI's API. It fills in a struct prompt_scan
 * (prompt_scan.h) of one of these formats.
 *
 * vllm/grpc/engine (vllm_engine.proto); google/cloud/aiplatform/v1beta1 (prediction_service.proto);
 * google/api/httpbody.proto. */
#ifndef SLUICE_CODEC_PROMPT_PROMPT_GRPC_H
#define SLUICE_CODEC_PROMPT_PROMPT_GRPC_H

#include "codec/prompt/grpc_walk.h"
#include "codec/prompt/model_scan.h"
#include "codec/prompt/prompt_scan.h"

struct prompt_grpc {
    struct grpc_walk walk;
    struct prompt_scan *scan; /* whose `format` is set */
    bool has_input;           /* a field with the prompt */
    struct model_scan model;  /* PROMPT_OF_VERTEX: the member "model" of the JSON */
};

static inline bool prompt_format_is_grpc(enum prompt_format format) {
    return format >= PROMPT_OF_VLLM_GENERATE;
}

/* Starts. `arena` is that of the scan. */
void prompt_grpc_init(struct prompt_grpc *grpc, struct prompt_scan *scan, struct arena *arena);
/* Scans the next bytes of the body, length prefix included. Returns: scan->result. */
enum prompt_scan_result prompt_grpc_feed(struct prompt_grpc *grpc, struct str chunk);
/* As prompt_scan_check. Returns: also ST_BAD_REQUEST, ST_UNKNOWN_ENCODING. */
enum status prompt_grpc_check(const struct prompt_grpc *grpc, bool ended,
                              struct error *err) SLUICE_MUST_USE;

#endif
