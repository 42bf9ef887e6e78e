/* Encoding that requests and responses of KServe v2 have in common: parameters, the head of a
 * tensor, and the list of pieces that follow the JSON. */
#ifndef SLUICE_CODEC_KSERVE_ENCODE_H
#define SLUICE_CODEC_KSERVE_ENCODE_H

#include "core/base/json_writer.h"
#include "core/tensor/param.h"
#include "core/tensor/tensor.h"

/* Writes the value of a parameter, whose key was written. Returns: as v2_params_write. */
enum status v2_param_write(struct json_writer *json, const struct param *param,
                           struct error *err) SLUICE_MUST_USE;
/* Writes the members of `params`. Returns: ST_BAD_DATA for what JSON can't carry: text that is not
 * UTF-8, a number that is not finite. */
enum status v2_params_write(struct json_writer *json, struct params params,
                            struct error *err) SLUICE_MUST_USE;

/* Begins an object with the members "name", "datatype" and "shape"; the caller may add others, and
 * closes it. */
void v2_tensor_head_write(struct json_writer *json, const struct tensor *tensor);

/* Checks that the tensor, a `kind` of one ("input"), has as many bytes as its shape needs. The
 * framing of BYTES is not checked. Returns: ST_BAD_DATA. */
enum status v2_tensor_check_size(const char *kind, const struct tensor *tensor,
                                 struct error *err) SLUICE_MUST_USE;

/* An invalid output is not the client's fault: ST_BAD_DATA and ST_NOT_UTF8 become ST_BAD_OUTPUT, in
 * `err` too. Returns: the new status. */
enum status v2_output_error(enum status status, struct error *err);

/* The JSON and the tensors that follow it. */
struct v2_pieces {
    struct piece *items;
    size_t n;
    size_t max;
    uint64_t n_bytes;
};

/* Starts with the first slot reserved for the JSON, whose text is known last, and capacity for
 * `n_tensor_pieces` more. Returns: false when out of memory. */
bool v2_pieces_init(struct v2_pieces *pieces, struct arena *arena, size_t n_tensor_pieces);
/* Adds the non-empty pieces of `tensor`. */
void v2_pieces_add(struct v2_pieces *pieces, const struct tensor *tensor);
/* Puts the JSON into its slot, if it is not empty. Returns: the first of pieces->n pieces. */
const struct piece *v2_pieces_finish(struct v2_pieces *pieces, struct str json);

#endif
