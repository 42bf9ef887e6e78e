/* The labels of an output: a text file with one on each line, in the order of the output's values.
 * They become the keys of a JSON object, so no two may be equal: labels that are in the file more
 * than once get their line's index behind them, "crane (134)" and "crane (517)". */
#ifndef SLUICE_SERVE_MIP_LABELS_H
#define SLUICE_SERVE_MIP_LABELS_H

#include <stddef.h>

#include "base/arena.h"
#include "base/status.h"
#include "base/str.h"

struct mip_labels {
    const struct str *items;
    size_t n;
};

/* Makes labels of the text of a file, which `path` names in messages: UTF-8, lines end with LF or
 * CRLF, empty lines at the end don't count. Returns: ST_BAD_CONFIG with the line, ST_NO_MEMORY.
 * Owns: in `arena`, which `text` has to outlive. */
enum status mip_labels_parse(struct arena *arena, const char *path, struct str text,
                             struct mip_labels *out, struct error *err)
    __attribute__((warn_unused_result));
/* The same of a file, of at most 16 MiB. Returns: also ST_BAD_CONFIG when it can't be read. */
enum status mip_labels_load(struct arena *arena, const char *path, struct mip_labels *out,
                            struct error *err) __attribute__((warn_unused_result));

#endif
