/* The inputs of a joint request: those of the requests of a batch as one, by the model's layout
 * (serve/config/batch_layout.h). What is put together is copied once, into memory that belongs to
 * the joint request; a request that is alone is not copied unless it is padded. */
#ifndef SLUICE_SERVE_SCHEDULER_JOINT_JOINT_INPUTS_H
#define SLUICE_SERVE_SCHEDULER_JOINT_JOINT_INPUTS_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/arena.h"
#include "core/base/status.h"
#include "serve/config/batch_layout.h"
#include "serve/config/resolve_config.h"
#include "sluice/backend.h"

/* Padding and what the server makes may take so many bytes, and so many times the bytes that were
 * sent; a batch that would need more is executed in parts. */
enum { JOINT_EXTRA_BYTES = 16 << 20, JOINT_EXTRA_FACTOR = 4 };

/* Adds to the inputs of one request, in the model's order, those that the server fills because the
 * request leaves them out: their datatype, shape and size, without bytes. `inputs` has capacity for
 * them. Returns: false when out of memory, or a size overflows. */
bool joint_inputs_describe(struct arena *arena, const struct model_plan *plan, sluice_input *inputs,
                           size_t *n) SLUICE_MUST_USE;

/* Makes the inputs of the joint request, in the model's order, from those of `n` >= 1 requests,
 * which have the same inputs. Bytes that are not copied are those of the only request.
 * Returns: ST_BAD_SHAPE when a size is too large, for an input that the server makes or for memory:
 * fewer requests may do; ST_NO_MEMORY. Owns: memory is in `arena`. Thread: any. */
enum status joint_inputs_make(struct arena *arena, const struct batch_layout *layout,
                              const sluice_request *const *requests, size_t n, sluice_input **out,
                              size_t *n_out, struct error *err) SLUICE_MUST_USE;

/* Returns: the request's input of that index of the model's inputs, which it has. */
const sluice_input *joint_input_find(const sluice_request *request, uint32_t index);

/* Returns: the free dimension number `k` (from 0) of a shape, without the batch dimension; the
 * rank: none. */
size_t joint_free_dim(struct shape shape, size_t k);

#endif
