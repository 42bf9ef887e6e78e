/* The options of `sluice infer`, made from infer.def. */
#ifndef SLUICE_PROGRAM_REQUESTS_INFER_SETTINGS_H
#define SLUICE_PROGRAM_REQUESTS_INFER_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "client/connection/url.h"
#include "program/options/options.h"

enum infer_preset { INFER_PRESET_NONE, INFER_PRESET_IMAGENET };
enum infer_layout { INFER_LAYOUT_AUTO, INFER_LAYOUT_NCHW, INFER_LAYOUT_NHWC };
enum infer_format { INFER_FORMAT_JSON, INFER_FORMAT_NPY, INFER_FORMAT_RAW };

/* One member per row, named by its first column, and values derived from them. */
struct infer_settings {
#define OPTION(field, name, alias, type, ...) OPTION_STORE_##type field;
#include "program/requests/infer.def"
#undef OPTION
    struct client_url server; /* the parsed URL */
};

/* Parses the arguments, as serve_settings_read. Flags of a protocol that the URL does not name are
 * errors. */
int infer_settings_read(int argc, char **argv, struct arena *arena, struct infer_settings *out);

#endif
