/* The outputs of a joint request, divided between the requests of its batch by the model's layout
 * (serve/config/batch_layout.h). A part is a view of the output, or a copy where the elements that
 * a request gets do not follow each other. */
#ifndef SLUICE_SERVE_SCHEDULER_JOINT_JOINT_OUTPUTS_H
#define SLUICE_SERVE_SCHEDULER_JOINT_JOINT_OUTPUTS_H

#include <stddef.h>

#include "core/base/arena.h"
#include "core/base/status.h"
#include "serve/config/batch_layout.h"
#include "sluice/backend.h"

/* `joint`: the joint request of the `n` >= 1 requests. `response`: with outputs, whose
 * datatypes, shapes and sizes were checked. *parts: of request i and output k at
 * i * response->n_outputs + k.
 * Returns: ST_BACKEND_FAILED when an output cannot be divided; ST_NO_MEMORY. Owns: memory is in
 * `arena`. Thread: any. */
enum status joint_outputs_divide(struct arena *arena, const struct batch_layout *layout,
                                 const sluice_request *joint, const sluice_request *const *requests,
                                 size_t n, const sluice_response *response, sluice_output **parts,
                                 struct error *err) SLUICE_MUST_USE;

#endif
