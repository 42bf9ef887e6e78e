/* The answer of `sluice infer` over HTTP and gRPC: printed as JSON, or saved as files. */
#ifndef SLUICE_PROGRAM_COMMANDS_INFER_ANSWER_H
#define SLUICE_PROGRAM_COMMANDS_INFER_ANSWER_H

#include "codec/kserve/response_decode.h"
#include "core/base/json_writer.h"
#include "program/requests/infer_settings.h"

/* infer_print.c: appends a response as readable JSON: one member per line, tensor data nested by
 * its shape, the innermost rows on one line each. Returns: ST_NOT_UTF8 for a BYTES output that is
 * not UTF-8, with the remedy. */
enum status infer_answer_print(struct buf *out, const struct v2_client_response *answer,
                               struct error *err) SLUICE_MUST_USE;

/* Writes `flat`, the JSON array of a tensor's elements, in rows and columns of `shape`. The
 * writer's layout is JSON_LINES. */
void infer_data_write(struct json_writer *json, struct str flat, struct shape shape);

/* infer_save.c: writes the outputs as --format (.npy or raw bytes), --output-file and --output-dir
 * require, and reports the files on standard error. Names come from the server and are sanitized
 * for file names. Returns: ST_IO; ST_BAD_CONFIG when one file would hold several outputs;
 * ST_BAD_DATATYPE. */
enum status infer_answer_save(struct arena *arena, const struct infer_settings *settings,
                              const struct v2_client_response *answer,
                              struct error *err) SLUICE_MUST_USE;

/* Creates the folder, unless it exists. Returns: ST_IO. */
enum status infer_output_dir_create(const char *dir, struct error *err) SLUICE_MUST_USE;
/* The file of an output in `dir`: DIR/NAME.SUFFIX, where every character except letters, digits,
 * '-', '_' and '.' after the first character is replaced by '_'. */
const char *infer_output_path(struct arena *arena, const char *dir, struct str name,
                              const char *suffix);

/* infer_top.c: appends the answer: with --top a line for each class, from the classification
 * extension (VALUE, INDEX, and the label of --labels or of the server), else as JSON. Returns: as
 * infer_answer_print; ST_BAD_ANSWER when the server did not classify; the errors of file_read. */
enum status infer_top_or_all_print(const struct infer_settings *settings,
                                   const struct v2_client_response *answer, struct buf *out,
                                   struct error *err) SLUICE_MUST_USE;

#endif
