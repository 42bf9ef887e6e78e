/* The answer of `sluice infer` over HTTP and gRPC: printed as JSON, or saved as files. */
#ifndef SLUICE_PROGRAM_COMMANDS_INFER_ANSWER_H
#define SLUICE_PROGRAM_COMMANDS_INFER_ANSWER_H

#include "codec/kserve/response_decode.h"
#include "core/base/buf.h"
#include "program/requests/infer_settings.h"

/* infer_print.c: An answer as JSON that a person can read: one member a line, tensor data nested as
 * its shape says, with its innermost rows on one line each. A program can read it too. */
/* Returns: ST_BAD_DATA for a BYTES output that is not UTF-8, naming what to do instead. */
enum status infer_answer_print(struct buf *out, const struct v2_client_response *answer,
                               struct error *err) __attribute__((warn_unused_result));

/* Lays `flat`, the JSON array of a tensor's elements in order, out in rows and columns of `shape`;
 * continuation lines are indented by `indent`. */
void infer_data_print(struct buf *out, struct str flat, struct shape shape, unsigned indent);

/* infer_save.c: Outputs into files: as .npy or as raw bytes. Names come from the server, and are
 * made harmless before they name a file. */
/* Writes what --format, --output-file and --output-dir say; what it wrote is told on standard
 * error.
 * Returns: ST_IO; ST_BAD_CONFIG when one file is to hold several outputs; ST_BAD_DATATYPE. */
enum status infer_answer_save(struct arena *arena, const struct infer_settings *settings,
                              const struct v2_client_response *answer, struct error *err)
    __attribute__((warn_unused_result));

/* Makes the folder, unless it is there. Returns: ST_IO. */
enum status infer_output_dir_create(const char *dir, struct error *err)
    __attribute__((warn_unused_result));
/* The file of an output in `dir`: DIR/NAME.SUFFIX, with everything but letters, digits, '-', '_'
 * and '.' behind the first character replaced by '_'. Returns: NULL when out of memory. */
const char *infer_output_path(struct arena *arena, const char *dir, struct str name,
                              const char *suffix);

#endif
