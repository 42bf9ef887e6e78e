/* A trace while its request runs. It has an arena of its own, which goes to the writer's thread
 * with it; bytes of tensors are copied, as the request's are gone when the writer comes to them. */
#include "serve/trace/trace.h"

#include "core/base/checked.h"
#include "core/base/metric/metric.h"
#include "core/event/clock.h"
#include "core/tensor/tensor.h"
#include "serve/trace/state.h"

/* ---- beginning and end ----------------------------------------------------------------------- */

/* Clause: trace extension, trace_rate and trace_count. Of a request whose caller has decided, that
 * decides (`caller` NULL: nobody has). */
static bool is_sampled(struct trace_setting *setting, const struct traceparent *caller) {
    struct v2_trace_values *values = &setting->values;
    if (values->level > 0 && caller) {
        return caller->sampled;
    }
    if (values->level == 0 || values->rate == 0 || values->count == 0) {
        return false;
    }
    if (++setting->n_requests % values->rate != 0) {
        return false;
    }
    values->count -= values->count > 0;
    return true;
}

static struct trace *trace_new(struct tracer_core *core, struct trace_setting *setting,
                               const struct model_spec *spec) {
    struct arena *arena = arena_new(NULL, 0); /* it ends on another thread */
    struct trace *trace = arena ? arena_calloc(arena, 1, sizeof(*trace)) : NULL;
    if (trace) {
        trace->core = core;
        trace->setting = setting;
        trace->arena = arena;
        trace->record.model = arena_dup(arena, spec->name);
        trace->record.version = spec->version;
    }
    if (!trace || !trace->record.model.ptr) {
        arena_free(arena);
        return NULL;
    }
    return trace;
}

/* The lock is held. */
static void count_dropped(struct tracer_core *core, struct trace_setting *setting) {
    setting->n_unwritten--;
    metric_add(METRIC_TRACES_DROPPED, 1);
    tracer_writer_wake(core);
}

/* A caller's trace counts where traces of several servers come together.
 * Clause: W3C Trace Context, 3.2: what is malformed is passed over. */
static bool read_trace_context(const struct tracer_core *core, const struct trace_context *caller,
                               struct traceparent *out) {
    return core->collector && caller->n_parents == 1 && traceparent_parse(caller->parent, out);
}

static void store_trace_context(struct trace *trace, const struct traceparent *parent,
                                struct str state) {
    trace->has_parent = true;
    trace->parent = *parent;
    if (tracestate_is_valid(state)) {
        trace->state = arena_dup(trace->arena, state);
        trace->incomplete = !trace->state.ptr;
    }
}

struct trace *trace_sample(struct tracer *tracer, const struct model_spec *spec,
                           const struct trace_context *caller) {
    struct tracer_core *core = tracer->core;
    struct traceparent parent;
    bool has_parent = read_trace_context(core, caller, &parent);
    lock_acquire(&core->lock);
    struct trace_setting *setting = tracer_setting_find(core, spec->name);
    bool sampled = is_sampled(setting, has_parent ? &parent : NULL);
    uint32_t level = setting->values.level;
    uint64_t id = sampled ? ++core->last_id : 0;
    setting->n_unwritten += sampled;
    lock_release(&core->lock);
    if (!sampled) {
        return NULL;
    }
    struct trace *trace = trace_new(core, setting, spec);
    if (!trace) {
        lock_acquire(&core->lock);
        count_dropped(core, setting);
        lock_release(&core->lock);
        return NULL;
    }
    trace->level = level;
    trace->record.id = id;
    if (has_parent) {
        store_trace_context(trace, &parent, caller->state);
    }
    return trace;
}

struct trace *trace_sample_http(struct tracer *tracer, const struct model_spec *spec,
                                const struct http_head *head) {
    struct trace_context caller = {.parent = {NULL, 0}};
    caller.n_parents = http_head_find(head, "traceparent", &caller.parent);
    if (caller.n_parents > 0 && http_head_find(head, "tracestate", &caller.state) != 1) {
        caller.state = STR("");
    }
    return trace_sample(tracer, spec, &caller);
}

struct trace *trace_sample_grpc(struct tracer *tracer, const struct model_spec *spec,
                                const struct grpc_call *call) {
    struct trace_context caller;
    size_t n_states;
    caller.parent = grpc_find_field(call, "traceparent", &caller.n_parents);
    caller.state = grpc_find_field(call, "tracestate", &n_states);
    caller.state = n_states == 1 ? caller.state : STR("");
    return trace_sample(tracer, spec, &caller);
}

void trace_free(struct trace *trace) {
    struct tracer_core *core = trace->core;
    lock_acquire(&core->lock);
    core->n_bytes -= trace->n_bytes;
    lock_release(&core->lock);
    arena_free(trace->arena);
}

void trace_submit(struct trace *trace) {
    struct tracer_core *core = trace->core;
    lock_acquire(&core->lock);
    bool dropped = trace->incomplete || core->n_queued >= TRACE_MAX_QUEUED;
    if (dropped) {
        count_dropped(core, trace->setting);
    } else {
        *core->queue_end = trace;
        core->queue_end = &trace->next;
        core->n_queued++;
        tracer_writer_wake(core);
    }
    lock_release(&core->lock);
    if (dropped) {
        trace_free(trace);
    }
}

/* ---- times ----------------------------------------------------------------------------------- */

void trace_timestamp_record(struct trace *trace, enum trace_timestamp mark) {
    trace->record.ns[mark] = clock_now_ns();
}

/* Where the backend does not say when it computed, all of it was computing. */
static void set_compute_timestamps(struct trace *trace, const struct call *call) {
    uint64_t *ns = trace->record.ns;
    bool said = call->compute_start_ns >= call->started_ns &&
                call->compute_end_ns >= call->compute_start_ns &&
                call->finished_ns >= call->compute_end_ns;
    ns[TRACE_COMPUTE_START] = call->started_ns;
    ns[TRACE_COMPUTE_INPUT_END] = said ? call->compute_start_ns : call->started_ns;
    ns[TRACE_COMPUTE_OUTPUT_START] = said ? call->compute_end_ns : call->finished_ns;
    ns[TRACE_COMPUTE_END] = call->finished_ns;
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* Room for the bytes of a tensor. Returns: false when too many wait to be written. */
static bool reserve_tensor_bytes(struct trace *trace, size_t n_bytes) {
    struct tracer_core *core = trace->core;
    lock_acquire(&core->lock);
    bool fits =
        n_bytes <= TRACE_MAX_TENSOR_BYTES && core->n_bytes <= TRACE_MAX_TENSOR_BYTES - n_bytes;
    if (fits) {
        core->n_bytes += n_bytes;
        trace->n_bytes += n_bytes;
    }
    lock_release(&core->lock);
    return fits;
}

static char *bytes_copy(struct arena *arena, const struct tensor *tensor) {
    char *data = arena_alloc(arena, tensor->n_bytes);
    if (data) {
        size_t n_bytes = pieces_copy(tensor->pieces, tensor->n_pieces, data, tensor->n_bytes);
        metric_add(METRIC_COPIED_BYTES_TOTAL, (int64_t)n_bytes);
    }
    return data;
}

static bool tensor_copy(struct trace *trace, const struct tensor *from, struct tensor *to) {
    struct arena *arena = trace->arena;
    size_t rank = from->shape.rank;
    struct piece *piece = arena_alloc(arena, sizeof(*piece));
    int64_t *dims = arena_calloc(arena, rank, sizeof(*dims));
    *to = *from;
    to->name = arena_dup(arena, from->name);
    if (!piece || !dims || !to->name.ptr || !reserve_tensor_bytes(trace, from->n_bytes)) {
        return false;
    }
    if (rank > 0) {
        memcpy(dims, from->shape.dims, rank * sizeof(*dims));
    }
    *piece = (struct piece){bytes_copy(arena, from), from->n_bytes};
    to->shape = (struct shape){dims, rank};
    to->pieces = piece;
    to->n_pieces = 1;
    return piece->data != NULL;
}

static void add_tensor(struct trace *trace, const struct tensor *tensor, bool is_output) {
    size_t n = trace->record.n_tensors;
    struct trace_tensor *grown = trace->incomplete
                                     ? NULL
                                     : arena_realloc(trace->arena, trace->tensors,
                                                     n * sizeof(*grown), (n + 1) * sizeof(*grown));
    if (!grown) {
        trace->incomplete = true;
        return;
    }
    trace->record.tensors = trace->tensors = grown;
    grown[n].is_output = is_output;
    if (tensor_copy(trace, tensor, &grown[n].tensor)) {
        trace->record.n_tensors++;
    } else {
        trace->incomplete = true;
    }
}

/* ---- what happens to it ---------------------------------------------------------------------- */

void trace_add_request_copy(struct trace *trace, const struct infer_request *request) {
    trace_timestamp_record(trace, TRACE_REQUEST_START);
    if (request->id.len > 0) {
        trace->record.request_id = arena_dup(trace->arena, request->id);
        trace->incomplete = trace->incomplete || !trace->record.request_id.ptr;
    }
    for (size_t i = 0; trace->level & V2_TRACE_TENSORS && i < request->n_inputs; i++) {
        add_tensor(trace, &request->inputs[i].tensor, false);
    }
}

void trace_add_partial_response_copy(struct trace *trace, const struct infer_response *response) {
    bool has = response->error.status == ST_OK && (trace->level & V2_TRACE_TENSORS);
    for (size_t i = 0; has && i < response->n_outputs; i++) {
        add_tensor(trace, &response->outputs[i], true);
    }
}

void trace_add_response_copy(struct trace *trace, const struct call *call) {
    trace->record.ns[TRACE_QUEUE_START] = call->queued_ns;
    if (call->started_ns > 0) {
        set_compute_timestamps(trace, call);
    }
    if (call->response.error.status == ST_OK) {
        trace->record.ns[TRACE_INFER_RESPONSE_COMPLETE] = call->finished_ns;
    } else {
        trace->record.failure = arena_dup(trace->arena, str_of(call->response.error.text));
    }
    trace_add_partial_response_copy(trace, &call->response);
    trace_timestamp_record(trace, TRACE_REQUEST_END);
}
