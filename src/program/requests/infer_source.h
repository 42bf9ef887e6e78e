/* Where the data of an input comes from: the text behind `--input NAME=`, read into bytes of a
 * known kind. What datatype and shape they have is infer_tensor's business. */
#ifndef SLUICE_PROGRAM_REQUESTS_INFER_SOURCE_H
#define SLUICE_PROGRAM_REQUESTS_INFER_SOURCE_H

#include "core/base/arena.h"
#include "core/base/status.h"
#include "core/base/str.h"

/* For commands without --max-input-size: its default. */
#define INFER_MAX_INPUT_BYTES (UINT64_C(1) << 30)

enum infer_source_kind {
    INFER_SOURCE_INLINE, /* the text of the argument: JSON, or the text of a BYTES element */
    INFER_SOURCE_JSON,   /* from a file */
    INFER_SOURCE_NPY,
    INFER_SOURCE_RAW,
};

struct infer_source {
    struct str name; /* of the input */
    enum infer_source_kind kind;
    struct str bytes;
    const char *file; /* for messages: the file's name, "standard input", or the input's name */
};

/* Which file does `text` name? "@FILE" names FILE; "-" and "@-" standard input. Returns: "FILE" or
 * "-" within `text`; NULL when the text is no name but the data itself. */
const char *infer_source_path(const char *text);

/* Reads "NAME=SOURCE", and the file, of at most `max_bytes`, where it names one. Returns:
 * ST_BAD_CONFIG for another form; what file_read returns. */
enum status infer_source_read(struct arena *arena, const char *argument, uint64_t max_bytes,
                              struct infer_source *out, struct error *err)
    __attribute__((warn_unused_result));

#endif
