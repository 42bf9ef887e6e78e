/* Values are blocks of memory of their own: the backend's output is copied into a new one, because
 * its memory is the backend's, and the old one may be part of an answer. */
#include "serve/scheduler/sequence/state.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/checked.h"
#include "core/base/metric/metric.h"
#include "core/tensor/bytes.h"
#include "serve/scheduler/host_callbacks.h"
#include "serve/scheduler/sequence/sequence.h"
#include "serve/scheduler/version.h"

/* ---- values ---------------------------------------------------------------------------------- */

enum { ALIGNMENT = 64 };

/* In one block: this, the dimensions, the bytes at a multiple of ALIGNMENT. */
struct state_value {
    atomic_size_t refs;
    const struct shared_budget *budget; /* outlives the value */
    size_t n_counted;                   /* the block */
    struct shape shape;
    size_t n_bytes;
    unsigned char *bytes;
};

/* The bytes are not set. Returns: ST_OVERLOADED, ST_NO_MEMORY. */
static enum status state_value_new(const struct shared_budget *budget, struct shape shape,
                                   size_t n_bytes, struct state_value **out, struct error *err) {
    size_t head, n_counted;
    *out = NULL;
    bool possible =
        checked_round_up(sizeof(**out) + shape.rank * sizeof(*shape.dims), ALIGNMENT, &head) &&
        checked_add(head, n_bytes, &n_counted) &&
        checked_round_up(n_counted, ALIGNMENT, &n_counted);
    if (!possible || !shared_budget_take(budget, n_counted)) {
        return error_set(err, ST_OVERLOADED,
                         "%zu bytes do not fit into the memory that is left for states of "
                         "sequences, which counts as what clients hold (--client-memory)",
                         n_bytes);
    }
    struct state_value *value = aligned_alloc(ALIGNMENT, n_counted);
    if (!value) {
        shared_budget_give(budget, n_counted);
        return error_no_memory(err, "the state of a sequence");
    }
    int64_t *dims = (int64_t *)(void *)(value + 1);
    for (size_t i = 0; i < shape.rank; i++) {
        dims[i] = shape.dims[i];
    }
    *value = (struct state_value){.budget = budget,
                                  .n_counted = n_counted,
                                  .shape = {dims, shape.rank},
                                  .n_bytes = n_bytes,
                                  .bytes = (unsigned char *)value + head};
    atomic_init(&value->refs, 1);
    metric_add(METRIC_SEQUENCE_STATE_BYTES, (int64_t)n_counted);
    *out = value;
    return ST_OK;
}

struct state_value *state_value_ref(struct state_value *value) {
    atomic_fetch_add_explicit(&value->refs, 1, memory_order_relaxed);
    return value;
}

void state_value_unref(struct state_value *value) {
    if (value && atomic_fetch_sub_explicit(&value->refs, 1, memory_order_acq_rel) == 1) {
        metric_add(METRIC_SEQUENCE_STATE_BYTES, -(int64_t)value->n_counted);
        shared_budget_give(value->budget, value->n_counted);
        free(value);
    }
}

static struct state_value *state_value_replace(struct state_value **place,
                                               struct state_value *value) {
    struct state_value *before = *place;
    *place = value;
    return before;
}

/* ---- first values ---------------------------------------------------------------------------- */

static const size_t FIRST_VALUE_BYTES = (size_t)1 << 30; /* a larger one is a mistake in its dims */

/* The size of the file is `n_bytes`; BYTES: what it is. */
static enum status open_file(const struct model_version *version, const struct model_state *state,
                             const char *path, FILE **file, size_t *n_bytes, struct error *err) {
    const char *reason;
    struct stat info;
    *file = model_file_open(&version->config, version->directory, path, &reason);
    if (!*file || fstat(fileno(*file), &info) != 0) {
        return error_set(err, status_of_errno(errno, ST_IO), "cannot open %s: %s", path,
                         *file ? strerror(errno) : reason);
    }
    size_t size = (size_t)info.st_size;
    if (state->datatype != DT_BYTES && size != *n_bytes) {
        return error_set(err, ST_BAD_CONFIG, "%s has %zu bytes; expected %zu", path, size,
                         *n_bytes);
    }
    if (size > FIRST_VALUE_BYTES) {
        return error_set(err, ST_BAD_CONFIG, "%s has %zu bytes; at most %zu are allowed", path,
                         size, FIRST_VALUE_BYTES);
    }
    *n_bytes = size;
    return ST_OK;
}

static enum status read_value(struct model_version *version, const struct plan_state *plan,
                              uint64_t n_elements, size_t n_bytes, struct state_value **out,
                              struct error *err) {
    FILE *file = NULL;
    struct str path = arena_printf(version->arena, "%.*s/initial_state/%.*s",
                                   STR_ARG(version->directory), STR_ARG(plan->state->initial_file));
    if (!path.ptr) {
        return error_no_memory(err, "the first value of a state");
    }
    enum status st = open_file(version, plan->state, path.ptr, &file, &n_bytes, err);
    if (st == ST_OK) {
        st = state_value_new(version->budget, plan->first_shape, n_bytes, out, err);
    }
    if (st == ST_OK && fread((*out)->bytes, 1, n_bytes, file) != n_bytes) {
        st = error_set(err, ST_IO, "%s cannot be read", path.ptr);
    }
    if (st == ST_OK && plan->state->datatype == DT_BYTES &&
        bytes_check(str_make((const char *)(*out)->bytes, n_bytes), n_elements,
                    plan->state->input_name, err) != ST_OK) {
        err->status = ST_BAD_CONFIG;
        st = error_prefix(err, "%s", path.ptr);
    }
    if (file) {
        fclose(file);
    }
    return st;
}

static enum status first_value_new(struct model_version *version, const struct plan_state *plan,
                                   struct state_value **out, struct error *err) {
    size_t size = plan->state->datatype == DT_BYTES ? BYTES_LENGTH_BYTES
                                                    : datatype_size(plan->state->datatype);
    uint64_t n_elements;
    size_t n_bytes;
    if (!shape_elements(plan->first_shape, &n_elements) ||
        !checked_mul(n_elements, size, &n_bytes) || n_bytes > FIRST_VALUE_BYTES) {
        return error_set(err, ST_BAD_CONFIG, "its first value is larger than %zu bytes",
                         FIRST_VALUE_BYTES);
    }
    if (plan->state->initial_file.len > 0) {
        return read_value(version, plan, n_elements, n_bytes, out, err);
    }
    enum status st = state_value_new(version->budget, plan->first_shape, n_bytes, out, err);
    if (st == ST_OK) {
        memset((*out)->bytes, 0, n_bytes); /* BYTES: empty elements */
    }
    return st;
}

enum status states_open(struct model_version *version, struct error *err) {
    const struct model_plan *plan = &version->plan;
    if (plan->n_states == 0) {
        return ST_OK;
    }
    version->first_states =
        arena_calloc(version->arena, plan->n_states, sizeof(struct state_value *));
    if (!version->first_states) {
        return error_no_memory(err, "the model's states");
    }
    for (size_t i = 0; i < plan->n_states; i++) {
        if (first_value_new(version, &plan->states[i], &version->first_states[i], err) != ST_OK) {
            return error_prefix(err, "%.*s", STR_ARG(plan->states[i].state->origin));
        }
    }
    return ST_OK;
}

void states_close(struct model_version *version) {
    for (size_t i = 0; version->first_states && i < version->plan.n_states; i++) {
        state_value_unref(version->first_states[i]);
    }
    version->first_states = NULL;
}

/* ---- inputs and outputs of a call ------------------------------------------------------------ */

static void show(struct state_tensor *state, struct state_value *value) {
    state->bound = value;
    state->piece = (sluice_piece){value->bytes, value->n_bytes};
    state->input->dims = value->shape.dims;
    state->input->rank = value->shape.rank;
    state->input->n_bytes = value->n_bytes;
    state->input->n_pieces = value->n_bytes > 0 ? 1 : 0;
}

static sluice_input *find_input(sluice_input *inputs, size_t n, uint32_t index) {
    size_t i = 0;
    while (i < n && inputs[i].index != index) {
        i++;
    }
    assert(i < n);
    return &inputs[i];
}

bool call_states_add(struct call *call, sluice_input *inputs, size_t *n) {
    struct call_run *run = call->run;
    const struct model_plan *plan = &run->version->plan;
    run->states = arena_calloc(call->request->arena, plan->n_states, sizeof(*run->states));
    if (!run->states) {
        return false;
    }
    for (size_t i = 0; i < plan->n_states; i++) {
        const struct plan_state *state = &plan->states[i];
        size_t at = (*n)++;
        for (; at > 0 && inputs[at - 1].index > state->input; at--) {
            inputs[at] = inputs[at - 1];
        }
        inputs[at] = (sluice_input){.index = state->input,
                                    .datatype = (sluice_datatype)state->state->datatype,
                                    .name = state->state->input_name.ptr,
                                    .pieces = &run->states[i].piece};
    }
    for (size_t i = 0; i < plan->n_states; i++) {
        run->states[i].input = find_input(inputs, *n, plan->states[i].input);
        show(&run->states[i], run->version->first_states[i]);
    }
    return true;
}

/* An output that the client wants, too, is there once. */
bool call_states_want(struct call *call) {
    struct call_run *run = call->run;
    sluice_request *request = &run->backend_request;
    const struct model_plan *plan = &run->version->plan;
    uint32_t *wanted = arena_alloc_array(call->request->arena, request->n_wanted + plan->n_states,
                                         sizeof(*wanted));
    if (!wanted) {
        return false;
    }
    size_t n = request->n_wanted;
    if (n > 0) {
        memcpy(wanted, request->wanted, n * sizeof(*wanted));
    }
    for (size_t i = 0; i < plan->n_states; i++) {
        size_t at = 0;
        while (at < n && wanted[at] != plan->states[i].output) {
            at++;
        }
        wanted[at] = plan->states[i].output;
        n = at == n ? n + 1 : n;
        run->states[i].wanted = at;
    }
    request->wanted = wanted;
    request->n_wanted = n;
    return true;
}

/* ---- values of a sequence -------------------------------------------------------------------- */

bool sequence_states_init(struct sequence *sequence, size_t n_states) {
    sequence->n_states = n_states;
    sequence->states = n_states > 0 ? calloc(n_states, sizeof(struct state_value *)) : NULL;
    return n_states == 0 || sequence->states;
}

static void drop_values(struct sequence *sequence) {
    for (size_t i = 0; sequence->states && i < sequence->n_states; i++) {
        state_value_unref(state_value_replace(&sequence->states[i], NULL));
    }
}

void sequence_states_fini(struct sequence *sequence) {
    drop_values(sequence);
    free(sequence->states);
}

/* Whether the execution is the first of a sequence. */
static bool begins(const struct call_run *run) {
    return run->sequence_params.start && run->n_iterations == 0;
}

void call_states_bind(struct call *call, const struct sequence *sequence) {
    struct call_run *run = call->run;
    for (size_t i = 0; run->states && i < sequence->n_states; i++) {
        struct state_value *own = begins(run) ? NULL : sequence->states[i];
        show(&run->states[i], own ? own : run->version->first_states[i]);
    }
}

void call_states_start(struct call *call, struct sequence *sequence) {
    struct call_run *run = call->run;
    for (size_t i = 0; run->states && i < sequence->n_states; i++) {
        run->states[i].held = state_value_ref(run->states[i].bound);
    }
    if (begins(run)) {
        drop_values(sequence);
    }
}

void call_states_release(struct call *call) {
    struct call_run *run = call->run;
    for (size_t i = 0; run->states && i < run->version->plan.n_states; i++) {
        state_value_unref(state_value_replace(&run->states[i].held, NULL));
    }
}

bool call_states_hold(const struct call *call, struct arena *arena, struct state_value ***out) {
    const struct call_run *run = call->run;
    *out = NULL;
    if (!call_holds_states(run)) {
        return true;
    }
    struct state_value **held = arena_calloc(arena, run->version->plan.n_states, sizeof(*held));
    for (size_t i = 0; held && i < run->version->plan.n_states; i++) {
        held[i] = state_value_ref(run->states[i].held);
    }
    *out = held;
    return held != NULL;
}

void call_states_unhold(struct state_value **held, const struct model_version *version) {
    for (size_t i = 0; held && i < version->plan.n_states; i++) {
        state_value_unref(held[i]);
    }
}

/* ---- outputs --------------------------------------------------------------------------------- */

/* A tensor without dimensions is one element of whatever shape the state has. */
static enum status check_shape(const struct plan_state *plan, const sluice_output *output,
                               struct shape *shape, struct error *err) {
    *shape = (struct shape){output->dims, output->rank};
    bool is_scalar = output->rank == 0 || plan->spec.shape.rank == 0;
    uint64_t n_elements, n_first;
    if (is_scalar && shape_elements(*shape, &n_elements) && n_elements == 1 &&
        shape_elements(plan->first_shape, &n_first) && n_first == 1) {
        *shape = plan->first_shape;
        return ST_OK;
    }
    bool batches = plan->spec.shape.rank > plan->state->dims.rank;
    if (!shape_matches(*shape, plan->spec.shape) || (batches && shape->dims[0] != 1)) {
        char got[SHAPE_TEXT_BYTES], expected[SHAPE_TEXT_BYTES];
        return error_set(err, ST_BACKEND_FAILED, "its shape is %s, that of the state %s",
                         shape_print(*shape, got), shape_print(plan->spec.shape, expected));
    }
    return ST_OK;
}

static enum status value_of_output(const struct call *call, const struct plan_state *plan,
                                   const sluice_output *output, uint32_t wanted,
                                   struct state_value **out, struct error *err) {
    struct shape shape;
    enum status st = backend_output_check(output, wanted, &plan->spec, err);
    if (st == ST_OK) {
        st = check_shape(plan, output, &shape, err);
    }
    if (st == ST_OK) {
        st = state_value_new(call->run->version->budget, shape, output->n_bytes, out, err);
    }
    if (st != ST_OK) {
        char name[QUOTED_NAME_BYTES];
        return error_prefix(err, "state %s", quote_name(plan->spec.name, name));
    }
    assert(*out);
    if (output->n_bytes > 0) {
        memcpy((*out)->bytes, output->data, output->n_bytes);
        metric_add(METRIC_COPIED_BYTES_TOTAL, (int64_t)output->n_bytes);
    }
    return ST_OK;
}

/* What the last request of a sequence leaves is not kept. */
static bool is_kept(const struct call_run *run) {
    return run->sequence && (!run->sequence_params.end || run->version->config.sequences.iterative);
}

/* The output of a state. Returns: NULL: the model has left it out. */
static const sluice_output *find_output(const sluice_response *response, uint32_t index) {
    for (size_t i = 0; i < response->n_outputs; i++) {
        if (response->outputs[i].index == index) {
            return &response->outputs[i];
        }
    }
    return NULL;
}

/* Sets the next value of state `i`. */
static enum status take_state(struct call *call, const sluice_response *response, size_t i,
                              struct error *err) {
    struct call_run *run = call->run;
    const struct plan_state *plan = &run->version->plan.states[i];
    uint32_t wanted = run->backend_request.wanted[run->states[i].wanted];
    const sluice_output *output = find_output(response, wanted);
    if (!output) {
        char name[QUOTED_NAME_BYTES];
        return error_set(err, ST_BACKEND_FAILED, "state %s: the model has left out its output",
                         quote_name(plan->spec.name, name));
    }
    return value_of_output(call, plan, output, wanted, &run->states[i].next, err);
}

enum status call_states_update(struct call *call, const sluice_response *response,
                               struct error *err) {
    struct call_run *run = call->run;
    const struct model_plan *plan = &run->version->plan;
    enum status st = ST_OK;
    if (!run->states || !is_kept(run) || response->status != SLUICE_OK ||
        response->n_outputs == 0 || response->n_outputs > run->backend_request.n_wanted ||
        !response->outputs) {
        return ST_OK;
    }
    size_t n = 0;
    for (; n < plan->n_states && st == ST_OK; n++) {
        st = take_state(call, response, n, err);
    }
    for (size_t i = 0; i < n; i++) {
        struct state_value *next = state_value_replace(&run->states[i].next, NULL);
        state_value_unref(st == ST_OK ? state_value_replace(&run->sequence->states[i], next)
                                      : next);
    }
    return st;
}
