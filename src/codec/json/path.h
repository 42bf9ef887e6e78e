/* Where in a JSON text is a value, and what is it? The words with which readers of a tree refuse:
 * "inputs[0].shape[1]: expected a whole number, got a string \"4\"". Paths are found when they are
 * needed, by walking the tree; readers carry none along. */
#ifndef SLUICE_CODEC_JSON_PATH_H
#define SLUICE_CODEC_JSON_PATH_H

#include "codec/json/tree.h"

/* Room for any path's text; longer ones are cut. */
enum { JSON_PATH_BYTES = 160 };

/* Prints the path of `val`, a value of the tree, NUL-terminated; tree->what for the root.
 * Returns: `out`. */
const char *json_path_print(const struct json_tree *tree, yyjson_val *val,
                            char out[JSON_PATH_BYTES]);

/* Fills `err` with "PATH: " and the formatted sentence. Returns: `status`. */
enum status json_error(const struct json_tree *tree, yyjson_val *val, enum status status,
                       struct error *err, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* The same with ", got …" and what `val` is behind it. */
enum status json_error_got(const struct json_tree *tree, yyjson_val *val, enum status status,
                           struct error *err, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* "PATH.key: missing; expected …". Returns: ST_BAD_FIELD. */
enum status json_error_missing(const struct json_tree *tree, yyjson_val *object, const char *key,
                               const char *expected, struct error *err);

#endif
