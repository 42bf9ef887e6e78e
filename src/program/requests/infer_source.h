/* The source of an input's data: the text after `--input NAME=`, read into bytes of a known kind.
 * infer_tensor.h determines datatype and shape. */
#ifndef SLUICE_PROGRAM_REQUESTS_INFER_SOURCE_H
#define SLUICE_PROGRAM_REQUESTS_INFER_SOURCE_H

#include "core/base/arena.h"
#include "core/base/status.h"
#include "core/base/str.h"

/* The default of --max-input-size, for commands without it. */
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

/* The file that `text` names: "@FILE" is FILE; "-" and "@-" are standard input. Returns: "FILE" or
 * "-" within `text`; NULL when the text is the data itself. */
const char *infer_source_path(const char *text);

/* Parses "NAME=SOURCE", and reads the file, of at most `max_bytes`, if it names one. Returns:
 * ST_BAD_CONFIG for another form; the errors of file_read. */
enum status infer_source_read(struct arena *arena, const char *argument, uint64_t max_bytes,
                              struct infer_source *out, struct error *err) SLUICE_MUST_USE;

#endif
