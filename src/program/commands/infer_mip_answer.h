/* The answer of a MIP server: as lines of JSON, or its items' bytes in files. */
#ifndef SLUICE_PROGRAM_COMMANDS_INFER_MIP_ANSWER_H
#define SLUICE_PROGRAM_COMMANDS_INFER_MIP_ANSWER_H

#include "core/base/buf.h"
#include "program/requests/infer_settings.h"
#include "sluice/client.h"

/* Appends a line for each element of the batch: its output as JSON, or an array of its outputs
 * where it has not one. JSON keeps its numbers' text, TEXT is a string. Returns: ST_BAD_ANSWER for
 * what has no JSON (pictures, text that is not UTF-8, items said to be JSON that are not), naming
 * element and output and what to do instead. */
enum status infer_items_print(struct buf *out, const sluice_mip_answer *answer, struct error *err)
    __attribute__((warn_unused_result));

/* --format raw: the one item to --output-file, or each to a file of its own in --output-dir, named
 * ELEMENT-OUTPUT.SUFFIX and told on standard error. Returns: ST_IO; ST_BAD_CONFIG when one file is
 * to hold several items. */
enum status infer_items_save(struct arena *arena, const struct infer_settings *settings,
                             const sluice_mip_answer *answer, struct error *err)
    __attribute__((warn_unused_result));

/* The suffix of a file with these bytes: "txt", "json", "jpg", "png", "webp", "gif" or "bin". */
const char *infer_item_suffix(const sluice_mip_item *item);

#endif
