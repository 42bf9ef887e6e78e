/* An input of `sluice infer` that is a picture: decoded here, and made into the tensor that the
 * model takes. */
#ifndef SLUICE_PROGRAM_COMMANDS_INFER_PICTURE_H
#define SLUICE_PROGRAM_COMMANDS_INFER_PICTURE_H

#include "program/requests/infer_settings.h"
#include "program/requests/infer_source.h"
#include "program/requests/infer_tensor.h"

/* Returns: whether the source is a picture file, by its name, and the model takes pixels: numbers
 * of rank 3 or 4. Bytes for a model that decodes pictures itself are sent as they are. */
bool infer_picture_is(const struct infer_source *source, const struct infer_known *known);

/* Decodes, resizes and normalises as --preset, --size, --mean, --std and --layout say, or the
 * model's shape. Returns: ST_BAD_SHAPE and ST_BAD_CONFIG, naming the flag; ST_BAD_PICTURE;
 * ST_UNSUPPORTED when pictures cannot be decoded here. Owns: in `arena`. */
enum status infer_picture_read(struct arena *arena, const struct infer_settings *settings,
                               const struct infer_source *source, const struct infer_known *known,
                               struct tensor *out, struct error *err) SLUICE_MUST_USE;

#endif
