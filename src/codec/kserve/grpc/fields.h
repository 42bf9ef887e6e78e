/* Parts that several messages of inference.GRPCInferenceService have in common: field paths,
 * parameters, shapes, typed contents. Internal to codec/kserve. */
#ifndef SLUICE_CODEC_KSERVE_GRPC_FIELDS_H
#define SLUICE_CODEC_KSERVE_GRPC_FIELDS_H

#include "codec/kserve/grpc/v2_grpc.h"
#include "codec/kserve/request.h"
#include "codec/protobuf/pb.h"
#include "core/tensor/infer.h"
#include "core/tensor/tensor.h"

/* The prefix of a field's path in error texts: "inputs[3].name". */
struct v2_grpc_path_prefix {
    const char *list; /* "inputs"; NULL: the message itself */
    size_t index;
};

enum { V2_GRPC_PATH_BYTES = 64 };
/* Prints the path of `field`. Returns: `out`. */
const char *v2_grpc_path_print(struct v2_grpc_path_prefix prefix, const char *field,
                               char out[V2_GRPC_PATH_BYTES]);

/* Read a string, a nested message. Returns: ST_BAD_FIELD with the path. */
enum status v2_grpc_get_string(const struct pb_field *field, struct v2_grpc_path_prefix prefix,
                               const char *name, struct str *out,
                               struct error *err) SLUICE_MUST_USE;
enum status v2_grpc_get_message(const struct pb_field *field, struct v2_grpc_path_prefix prefix,
                                const char *name, struct str *out,
                                struct error *err) SLUICE_MUST_USE;
/* Reads an entry of a map from string to message; `name` is the map's field. An omitted key or
 * value becomes "". Returns: ST_BAD_FIELD, ST_BAD_REQUEST. */
enum status v2_grpc_get_map_entry(const struct pb_field *field, const char *name, struct str *key,
                                  struct str *value, struct error *err) SLUICE_MUST_USE;

/* The only reserved parameter that a request may have. */
static const struct str V2_GRPC_EMPTY_FINAL = {"triton_enable_empty_final_response", 34};
/* The parameter of a request that chooses enum v2_grpc_contents. */
static const struct str V2_GRPC_OUTPUT_CONTENTS = {"output_contents", 15};

/* Parses "raw", "typed" or "same". Returns: V2_GRPC_CONTENTS_DEFAULT for any other text. */
enum v2_grpc_contents v2_grpc_contents_parse(struct str text);

enum v2_grpc_params_of { V2_GRPC_OF_REQUEST, V2_GRPC_OF_TENSOR, V2_GRPC_OF_RESPONSE };

/* Reads the map<string, InferParameter> in field `number` of `message`, `n` entries; of equal
 * keys the last counts, as in every protobuf map. `of` decides which keys are reserved. Returns:
 * ST_BAD_FIELD for an entry without a value and for reserved keys. Owns: in `arena`, strings in
 * the message. */
enum status v2_grpc_params_read(struct arena *arena, struct str message, uint32_t number, size_t n,
                                enum v2_grpc_params_of of, struct v2_grpc_path_prefix prefix,
                                struct params *out, struct error *err) SLUICE_MUST_USE;
/* Reads the shared-memory region in the parameters of a tensor; none: name.ptr is NULL. Returns:
 * ST_BAD_FIELD. */
enum status v2_grpc_region_read(struct params params, struct v2_grpc_path_prefix prefix,
                                struct infer_region *out, struct error *err) SLUICE_MUST_USE;
void v2_grpc_params_encode(struct buf *out, uint32_t number, struct params params);
void v2_grpc_param_bool_encode(struct buf *out, uint32_t number, struct str name, bool value);

/* Reads the repeated int64 in field `number` of `message`, packed or not. `least`: the smallest
 * valid dimension. Returns: ST_BAD_SHAPE for smaller dimensions and too many of them. Owns: in
 * `arena`. */
enum status v2_grpc_shape_read(struct arena *arena, struct str message, uint32_t number,
                               struct v2_grpc_path_prefix prefix, int64_t least, struct shape *out,
                               struct error *err) SLUICE_MUST_USE;

/* Reads the InferTensorContents in field `number` of `message` (all of them, if it is repeated)
 * as the bytes of `tensor`, whose datatype and shape are set. *present: whether there was one.
 * Returns: ST_BAD_FIELD for a list of another datatype and for a value out of range,
 * ST_TOO_MANY_ELEMENTS, ST_NO_MEMORY. Owns: in `arena`. */
enum status v2_grpc_contents_read(struct arena *arena, struct str message, uint32_t number,
                                  const struct json_limits *limits,
                                  struct v2_grpc_path_prefix prefix, struct tensor *tensor,
                                  bool *present, struct error *err) SLUICE_MUST_USE;

/* Returns: whether a datatype has a list in InferTensorContents: all but FP16 and BF16. */
bool v2_grpc_contents_have(enum datatype datatype);
/* Returns: whether the elements of that list are the bytes of the tensor. */
bool v2_grpc_contents_are_bytes(enum datatype datatype);
/* Encodes the elements of `tensor`, whose bytes were checked. *payload: their pieces as they are
 * sent, after the *n_head bytes of `head`. Without elements both are empty. Returns: ST_NO_MEMORY,
 * ST_BAD_OUTPUT. Owns: in `arena`, or the tensor's own bytes. */
enum { V2_GRPC_LIST_HEAD_BYTES = 16 };
enum status v2_grpc_contents_encode(struct arena *arena, const struct tensor *tensor,
                                    char head[V2_GRPC_LIST_HEAD_BYTES], size_t *n_head,
                                    struct tensor *payload, struct error *err) SLUICE_MUST_USE;

/* Field numbers of ModelInferRequest and ModelInferResponse, which differ in two. */
enum {
    V2_GRPC_MODEL_NAME = 1,
    V2_GRPC_MODEL_VERSION = 2,
    V2_GRPC_ID = 3,
    V2_GRPC_PARAMETERS = 4,
    V2_GRPC_INPUTS = 5,
    V2_GRPC_OUTPUTS = 6, /* of a request */
    V2_GRPC_RAW_INPUTS = 7,
    V2_GRPC_RESPONSE_OUTPUTS = 5,
    V2_GRPC_RAW_OUTPUTS = 6,
    /* of a tensor, input or output */
    V2_GRPC_TENSOR_NAME = 1,
    V2_GRPC_TENSOR_DATATYPE = 2,
    V2_GRPC_TENSOR_SHAPE = 3,
    V2_GRPC_TENSOR_PARAMETERS = 4,
    V2_GRPC_TENSOR_CONTENTS = 5,
    /* of a requested output */
    V2_GRPC_REQUESTED_OUTPUT_NAME = 1,
    V2_GRPC_REQUESTED_OUTPUT_PARAMETERS = 2,
    /* of ModelStreamInferResponse */
    V2_GRPC_STREAM_ERROR = 1,
    V2_GRPC_STREAM_RESPONSE = 2,
};

#endif
