/* An input of `sluice infer` that is a picture: decoded here, and made into the tensor that the
 * model takes. */
#ifndef SLUICE_PROGRAM_COMMANDS_INFER_PICTURE_H
#define SLUICE_PROGRAM_COMMANDS_INFER_PICTURE_H

#include "program/requests/infer_settings.h"
#include "program/requests/infer_source.h"
#include "program/requests/infer_tensor.h"
#include "serve/config/config.h"

/* Returns: whether an input of the flags may be a picture that is decoded here, so that the model's
 * configuration is of use. */
bool infer_picture_may_be(const struct infer_settings *settings, const struct model_spec *model);

/* Returns: whether the source is a picture file, by its name, and the model takes pixels: numbers
 * of rank 3 or 4. Bytes for a model that decodes pictures itself are sent as they are. */
bool infer_picture_is(const struct infer_source *source, const struct infer_known *known);

/* The model, as its server describes it. */
struct infer_model {
    const struct model_spec *spec;     /* its metadata; NULL: not requested */
    const struct model_config *config; /* infer_config.h; NULL: not requested, or not to be had */
};

/* Decodes, resizes and normalises: by --preset; else by the model's own settings for MIP
 * (serve/frontend/mip/settings.h); without any as values from 0 to 1. --size, --mean, --std and
 * --layout replace one of these each. Returns: ST_BAD_SHAPE and ST_BAD_CONFIG, naming the flag;
 * ST_BAD_PICTURE; ST_BODY_TOO_LARGE; ST_UNSUPPORTED when pictures cannot be decoded here. Owns: in
 * `arena`. */
enum status infer_picture_read(struct arena *arena, const struct infer_settings *settings,
                               const struct infer_source *source, const struct infer_known *known,
                               const struct infer_model *model, struct tensor *out,
                               struct error *err) SLUICE_MUST_USE;

#endif
