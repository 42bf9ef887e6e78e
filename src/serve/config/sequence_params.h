/* A request's sequence parameters (KServe's sequence extension): `sequence_id`, `sequence_start`
 * and `sequence_end`. */
#ifndef SLUICE_SERVE_CONFIG_SEQUENCE_PARAMS_H
#define SLUICE_SERVE_CONFIG_SEQUENCE_PARAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/status.h"
#include "core/base/str.h"
#include "core/tensor/infer.h"

struct model_config;

enum { SEQUENCE_ID_BYTES = 128 /* of a text identifier, at most */ };

/* A number or a text; the number 7 and the text "7" are different. */
struct sequence_id {
    bool is_text;
    uint64_t number;
    struct str text; /* borrowed */
};

struct sequence_params {
    struct sequence_id id;
    bool start, end; /* first and last request of the sequence */
};

/* For a model with sequence batching. Returns: ST_BAD_SEQUENCE when the identifier is missing or
 * cannot be passed to the model, or when the request has more than one row; ST_BAD_FIELD. */
enum status sequence_params_parse(const struct model_config *config,
                                  const struct infer_request *request, struct sequence_params *out,
                                  struct error *err) SLUICE_MUST_USE;

enum { SEQUENCE_ID_TEXT_BYTES = SEQUENCE_ID_BYTES + 3 };
/* Prints the number, or the text in quotes, for messages. Returns: `out`. */
const char *sequence_id_print(const struct sequence_id *id, char out[SEQUENCE_ID_TEXT_BYTES]);

#endif
