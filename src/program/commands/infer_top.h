/* The answer of `sluice infer --top N`: the largest values, with names. */
#ifndef SLUICE_PROGRAM_COMMANDS_INFER_TOP_H
#define SLUICE_PROGRAM_COMMANDS_INFER_TOP_H

#include "codec/kserve/response_decode.h"
#include "core/base/buf.h"
#include "program/requests/infer_settings.h"

/* Appends the answer: with --top a line for each class, from the classification extension (VALUE,
 * INDEX, and the label of --labels or of the server), else as JSON. Returns: as infer_answer_print;
 * ST_BAD_ANSWER when the server did not classify; the errors of file_read. */
enum status infer_top_or_all_print(const struct infer_settings *settings,
                                   const struct v2_client_response *answer, struct buf *out,
                                   struct error *err) SLUICE_MUST_USE;

#endif
