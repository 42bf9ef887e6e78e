/* The answer of a MIP server, as lines of JSON, or as files of its items. */
#ifndef SLUICE_PROGRAM_COMMANDS_INFER_MIP_ANSWER_H
#define SLUICE_PROGRAM_COMMANDS_INFER_MIP_ANSWER_H

#include "client/mip_convert.h"
#include "core/base/buf.h"
#include "program/requests/infer_settings.h"
#include "sluice/client_mip.h"

/* Appends a line for each batch element: its output as JSON, or an array of its outputs unless
 * there is exactly one. JSON keeps its numbers' text, TEXT is a string. Returns: ST_BAD_ANSWER for
 * an item without a JSON form (pictures, text that is not UTF-8, invalid JSON), with element,
 * output and remedy. */
enum status infer_items_print(struct buf *out, const struct client_mip_answer *answer,
                              struct error *err) SLUICE_MUST_USE;

/* --format raw: writes the only item to --output-file, or each to a file in --output-dir, named
 * ELEMENT-OUTPUT.SUFFIX and reported on standard error. Returns: ST_IO; ST_BAD_CONFIG when one file
 * would hold several items. */
enum status infer_items_save(struct arena *arena, const struct infer_settings *settings,
                             const struct client_mip_answer *answer,
                             struct error *err) SLUICE_MUST_USE;

/* The suffix for an item's bytes: "txt", "json", "jpg", "png", "webp", "gif" or "bin". */
const char *infer_item_suffix(const sluice_mip_item *item);

#endif
