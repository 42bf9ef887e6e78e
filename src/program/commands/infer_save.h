/* Outputs into files: as .npy or as raw bytes. Names come from the server, and are made harmless
 * before they name a file. */
#ifndef SLUICE_PROGRAM_COMMANDS_INFER_SAVE_H
#define SLUICE_PROGRAM_COMMANDS_INFER_SAVE_H

#include "codec/kserve/response_decode.h"
#include "program/requests/infer_settings.h"

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
