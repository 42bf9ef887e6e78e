/* The labels of an output: a text file with one on each line, in the order of the output's values.
 * A line may be empty: that value has no label. */
#ifndef SLUICE_SERVE_FRONTEND_LABELS_H
#define SLUICE_SERVE_FRONTEND_LABELS_H

#include <stddef.h>

#include "core/base/arena.h"
#include "core/base/status.h"
#include "core/base/str.h"
#include "serve/scheduler/model_version.h"

struct labels {
    const struct str *items;
    size_t n;
};

/* Makes labels of the text of a file, which `path` names in messages: UTF-8, lines end with LF or
 * CRLF, space around a label and empty lines at the end don't count. Returns: ST_BAD_CONFIG with
 * the line, ST_NO_MEMORY. Owns: in `arena`, which `text` has to outlive. */
enum status labels_parse(struct arena *arena, const char *path, struct str text, struct labels *out,
                         struct error *err) __attribute__((warn_unused_result));
/* The same of a file, of at most 16 MiB. Returns: also ST_BAD_CONFIG when it can't be read. */
enum status labels_load(struct arena *arena, const char *path, struct labels *out,
                        struct error *err) __attribute__((warn_unused_result));

/* The class labels of a served version's outputs: read when the version is opened, never
 * changed. */
/* Reads the label files that the configuration names and adds them to the version, which is being
 * opened. Returns: ST_BAD_CONFIG, ST_NO_MEMORY. */
enum status model_labels_load(struct model_version *version, struct error *err)
    __attribute__((warn_unused_result));
/* One per output of the specification; one without labels has n 0. Thread: any. */
const struct labels *model_labels(const struct model_version *version);

#endif
