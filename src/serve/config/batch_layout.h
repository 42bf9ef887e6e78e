/* How the requests of a batch become one request of the model where their shapes may differ: ragged
 * inputs (allow_ragged_batch), padded inputs (sluice.pad), inputs that the server makes from the
 * shapes (batch_input, masks, lengths), and how the outputs are divided again (batch_output,
 * sluice.pad_cut). A model without any of these has no layout: its batches have equal shapes and
 * each backend joins and divides them itself. */
#ifndef SLUICE_SERVE_CONFIG_BATCH_LAYOUT_H
#define SLUICE_SERVE_CONFIG_BATCH_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/arena.h"
#include "core/base/status.h"
#include "core/tensor/tensor.h"
#include "serve/config/config.h"
#include "sluice/backend.h"

struct model_plan;

enum input_layout {
    INPUT_ROWS,   /* rows of equal shapes, one after the other */
    INPUT_RAGGED, /* all elements in one dimension, without a batch dimension */
    INPUT_PADDED, /* rows that are filled up to the longest one in each free dimension */
};

/* What an input is when a request leaves it out. */
enum input_fill {
    FILL_NOTHING, /* the model gets none */
    FILL_MASK,    /* ones, as many as the source has in its free dimensions */
    FILL_LENGTH,  /* for each row, the sizes of the source's free dimensions */
};

enum { ELEMENT_MAX_BYTES = 8 /* of a number */ };

struct layout_input {
    enum input_layout kind;
    struct shape shape;                   /* as the model gets it; -1: free. Of INPUT_PADDED and of
                                             sources */
    unsigned char pad[ELEMENT_MAX_BYTES]; /* INPUT_PADDED: the element that fills rows */
    enum input_fill fill;
    uint32_t source; /* of `fill`: index into the model's inputs */
    bool alone;      /* it replaces a value of the model for the whole execution, so a request that
                        has it shares none */
};

/* An input that no client sends. */
struct layout_made {
    uint32_t index; /* into the model's inputs */
    enum model_batch_input_kind kind;
    enum datatype datatype;
    const char *name;
    uint32_t source; /* index into the model's inputs */
};

enum output_layout {
    OUTPUT_ROWS,      /* rows, as many as each request has */
    OUTPUT_SCATTERED, /* elements, as many as `shape` has with the sizes of the source */
    OUTPUT_CUT,       /* rows whose free dimensions are as long as the source's padded ones */
};

struct layout_output {
    enum output_layout kind;
    const char *name;
    struct shape shape; /* -1: free; the batch dimension among them */
    uint32_t source;    /* index into the model's inputs */
};

struct batch_layout {
    const struct layout_input *inputs; /* by index of the model's inputs */
    size_t n_inputs;
    const struct layout_made *made; /* by index, ascending */
    size_t n_made;
    const struct layout_output *outputs; /* by index of the model's outputs */
    size_t n_outputs;
    uint64_t pad_multiple; /* at least 1 */
};

/* Returns: whether the configuration needs a layout. */
bool batch_layout_is_needed(const struct model_config *config);
/* Returns: whether the model's input of that name is made by batch_input. */
bool batch_layout_makes_input(const struct model_config *config, const char *name);
/* Returns: the padding parameter of that kind for the input or output; NULL: none. */
const struct model_padding *model_padding_find(const struct model_config *config,
                                               enum model_padding_kind kind, struct str name);

/* Checks that the model, whose max_batch_size is known, can have the layout that the configuration
 * asks for, and has the inputs that the server makes. Returns: ST_BAD_MODEL. */
enum status batch_layout_check(struct arena *arena, const struct model_config *config,
                               const sluice_model_info *info, struct error *err) SLUICE_MUST_USE;
/* Makes plan->layout from the completed configuration. `specs`: those of plan->spec.inputs, of
 * which inputs that the server can fill become optional. Returns: ST_BAD_MODEL, ST_NO_MEMORY. Owns:
 * memory is in `arena`. */
enum status batch_layout_resolve(struct arena *arena, const struct model_config *config,
                                 const sluice_model_info *info, struct tensor_spec *specs,
                                 struct model_plan *plan, struct error *err) SLUICE_MUST_USE;

/* Writes `value` as an element of the datatype, a number. Returns: false when the datatype cannot
 * represent it exactly (floats: when it overflows), or is BYTES. */
bool element_put(enum datatype datatype, int64_t value, unsigned char out[ELEMENT_MAX_BYTES]);

#endif
