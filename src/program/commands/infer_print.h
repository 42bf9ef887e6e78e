/* An answer as JSON that a person can read: one member a line, tensor data nested as its shape
 * says, with its innermost rows on one line each. A program can read it too. */
#ifndef SLUICE_PROGRAM_COMMANDS_INFER_PRINT_H
#define SLUICE_PROGRAM_COMMANDS_INFER_PRINT_H

#include "codec/kserve/response_decode.h"
#include "core/base/buf.h"

/* Returns: ST_BAD_DATA for a BYTES output that is not UTF-8, naming what to do instead. */
enum status infer_answer_print(struct buf *out, const struct v2_client_response *answer,
                               struct error *err) __attribute__((warn_unused_result));

/* Lays `flat`, the JSON array of a tensor's elements in order, out in rows and columns of `shape`;
 * continuation lines are indented by `indent`. */
void infer_data_print(struct buf *out, struct str flat, struct shape shape, unsigned indent);

#endif
