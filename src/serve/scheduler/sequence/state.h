/* States: tensors that the server keeps from one request of a sequence to the next
 * (sequence_batching.state). The model's output becomes the input of the next request; a request
 * that starts a sequence gets the first value. A value does not change once it is made, so that
 * answers may refer to it while they are sent; an execution that fails makes none. */
#ifndef SLUICE_SERVE_SCHEDULER_SEQUENCE_STATE_H
#define SLUICE_SERVE_SCHEDULER_SEQUENCE_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"
#include "serve/scheduler/call_run.h"
#include "sluice/backend.h"

struct sequence;

/* The value of one state: shape and bytes, with a count of references. */
struct state_value;

struct state_value *state_value_ref(struct state_value *value);
/* NULL is allowed. Thread: any. */
void state_value_unref(struct state_value *value);

/* A state in a call. */
struct state_tensor {
    sluice_input *input;       /* of backend_request */
    sluice_piece piece;        /* its bytes */
    size_t wanted;             /* the position of its output in backend_request.wanted */
    struct state_value *bound; /* what the input shows */
    struct state_value *held;  /* the same with a reference, from the start of the execution until
                                  the answer is released */
    struct state_value *next;  /* while an answer is taken */
};

/* Makes the first values of the version, whose plan is complete, from zeros or files. Returns:
 * ST_BAD_CONFIG with the place in the configuration, the error of a file, ST_OVERLOADED when the
 * budget is used up. Owns: until states_close, also after an error. */
enum status states_open(struct model_version *version, struct error *err) SLUICE_MUST_USE;
void states_close(struct model_version *version);

/* Adds the inputs to `inputs`, which has capacity for them, in the model's order, with the first
 * values; and the outputs to backend_request.wanted. Memory is in the request's arena. Returns:
 * false when out of memory. Thread: the worker's. */
bool call_states_add(struct call *call, sluice_input *inputs, size_t *n) SLUICE_MUST_USE;
bool call_states_want(struct call *call) SLUICE_MUST_USE;

/* Shows the call what it would start with as the next one of its sequence. */
void call_states_bind(struct call *call, const struct sequence *sequence);
/* The call starts with what it is shown; a start drops the values of its sequence. */
void call_states_start(struct call *call, struct sequence *sequence);
/* Takes the outputs of an answer without an error as the values of the call's sequence: all, or
 * none with an error. Returns: ST_BACKEND_FAILED with the defect, ST_OVERLOADED, ST_NO_MEMORY.
 * Thread: the backend's. */
enum status call_states_update(struct call *call, const sluice_response *response,
                               struct error *err) SLUICE_MUST_USE;
/* The answer no longer refers to the inputs. */
void call_states_release(struct call *call);
/* References to the inputs for an answer that may outlive the execution, in `arena`; *out NULL:
 * there are none. Returns: false when out of memory. Owns: until call_states_unhold. */
bool call_states_hold(const struct call *call, struct arena *arena,
                      struct state_value ***out) SLUICE_MUST_USE;
void call_states_unhold(struct state_value **held, const struct model_version *version);
static inline bool call_holds_states(const struct call_run *run) {
    return run->states && run->states[0].held;
}

/* The values of a sequence. Returns: false when out of memory. */
bool sequence_states_init(struct sequence *sequence, size_t n_states) SLUICE_MUST_USE;
void sequence_states_fini(struct sequence *sequence);

#endif
