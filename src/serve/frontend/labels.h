/* The class labels of outputs: text files with one label per line, in the order of the output's
 * values. An empty line means that the value has no label. */
#ifndef SLUICE_SERVE_FRONTEND_LABELS_H
#define SLUICE_SERVE_FRONTEND_LABELS_H

#include <stddef.h>

#include "core/base/arena.h"
#include "core/base/status.h"
#include "core/base/str.h"
#include "serve/scheduler/model_version.h"

struct model_config;

struct labels {
    const struct str *items;
    size_t n;
};

/* Parses the text of a label file; `path` is its name in messages. UTF-8; lines end with LF or
 * CRLF; spaces around a label and empty lines at the end of the file are ignored. Returns:
 * ST_BAD_CONFIG with the line, ST_NO_MEMORY. Owns: in `arena`; the labels borrow from `text`. */
enum status labels_parse(struct arena *arena, const char *path, struct str text, struct labels *out,
                         struct error *err) SLUICE_MUST_USE;
/* Reads and parses a file of at most 16 MiB that `config` of the model in `directory` names
 * (model_file_open); `config` NULL: that the server's own settings name. Returns: as labels_parse;
 * ST_BAD_CONFIG when it cannot be read; ST_NOT_READY where the process lacks descriptors. */
enum status labels_load(struct arena *arena, const struct model_config *config,
                        struct str directory, const char *path, struct labels *out,
                        struct error *err) SLUICE_MUST_USE;

/* Loads the label files that the model's configuration names and attaches them to the version,
 * which is being opened. Returns: as labels_load. */
enum status model_labels_load(struct model_version *version, struct error *err) SLUICE_MUST_USE;
/* One element per output of the specification; an output without labels has n 0. Thread: any. */
const struct labels *model_labels(const struct model_version *version);

#endif
