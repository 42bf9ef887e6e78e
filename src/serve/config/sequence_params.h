/* A request's sequence parameters (KServe's sequence extension): `sequence_id`, `sequence_start`
 * and `sequence_end`, and the control inputs, which carry them to the model. */
#ifndef SLUICE_SERVE_CONFIG_SEQUENCE_PARAMS_H
#define SLUICE_SERVE_CONFIG_SEQUENCE_PARAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/status.h"
#include "core/base/str.h"
#include "core/tensor/infer.h"
#include "serve/config/resolve_config.h"
#include "sluice/backend.h"

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
    bool iterative;  /* the only one, executed until the backend is done */
};

/* For a model with sequence batching. In an iterative sequence each request is a sequence of its
 * own, which gets the next number of *n_made as its identifier where it has none. Returns:
 * ST_BAD_SEQUENCE when the identifier is missing or cannot be passed to the model, or when the
 * request has more than one row; ST_BAD_FIELD. */
enum status sequence_params_parse(const struct model_config *config,
                                  const struct infer_request *request, _Atomic uint64_t *n_made,
                                  struct sequence_params *out, struct error *err) SLUICE_MUST_USE;

enum { SEQUENCE_ID_TEXT_BYTES = SEQUENCE_ID_BYTES + 3 };
/* Prints the number, or the text in quotes, for messages. Returns: `out`. */
const char *sequence_id_print(const struct sequence_id *id, char out[SEQUENCE_ID_TEXT_BYTES]);

/* Returns: the control at that index of the model's inputs; NULL: a client's input. */
const struct plan_control *control_find(const struct model_plan *plan, uint32_t index);
/* Adds the control inputs to `inputs`, which has capacity for them, in the model's order. `params`
 * NULL: for a padding request. Returns: false when out of memory. */
bool controls_fill(struct arena *arena, const struct model_plan *plan,
                   const struct sequence_params *params, sluice_input *inputs,
                   size_t *n) SLUICE_MUST_USE;
/* Sets the START input of `inputs`, which controls_fill has made, to false. */
void controls_set_continued(const struct model_plan *plan, const sluice_input *inputs, size_t n);

#endif
