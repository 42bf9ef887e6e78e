/* The run of a call through the graph of its ensemble.
 *
 * Values of tensors are in frames. The first frame has the values of the request, and those of all
 * steps up to a decoupled one; each response of a decoupled step has a frame of its own, in which
 * the steps after it run once. A call that has no decoupled member has one frame.
 *
 * A value is a view of a response of a member, or of the request. A response is held by the values
 * and by the steps that read it: it is released when the last of them has ended, which returns its
 * memory to the member. A member may pass on the bytes of its inputs as its outputs; then what it
 * has read is held until its own response is released. The response of a decoupled step is held
 * until the client has read what came of it, so that the member is slowed with the client.
 *
 * All of it is done on the call's worker, but for the release of the response, which may be called
 * on another thread and is posted to the worker then. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "core/base/compiler.h"
#include "core/event/worker.h"
#include "serve/config/config.h"
#include "serve/ensemble/ensemble.h"
#include "serve/ensemble/limit.h"
#include "serve/inference/inner.h"
#include "serve/repository/repository.h"

/* An ensemble that is open. */
struct ensemble {
    const struct model_config *config;
    const struct model_spec *spec;
    struct repository *repository; /* of the members */
    size_t *output_tensors;        /* by output of the ensemble */
    struct limit *limits;          /* one per step; NULL: no limits */
};

/* The parameters of a sequence, which a member's response may set for the steps after it. */
struct sequence_values {
    struct param id;
    bool start, end;
};

/* A response of a member. */
struct held {
    struct inner_response *response;
    struct step_run *step;
    size_t refs; /* values, step runs that read it, and the code that delivers it */
};

/* A tensor in a frame. */
struct value {
    const struct tensor *tensor; /* NULL: the request or a model leaves it out */
    struct held *held;           /* whose bytes it has; NULL: the request's */
    const struct sequence_values *sequence;
    size_t n_left;  /* steps that have not read it yet, and the response where it is an output */
    bool batches;   /* its shape begins with the batch dimension */
    uint64_t batch; /* of the request that made it */
};

struct frame {
    struct run *run;
    struct arena *arena; /* contains it; the first frame's contains the run */
    size_t refs;         /* step runs in it, a response that is not released, and its processing */
    struct value *values;
    size_t *n_missing; /* by step: inputs that are not there yet */
    size_t n_outputs_missing;
    struct held origin; /* the decoupled step's response; zeroed in the first frame */
    struct infer_response response;
    struct worker_msg msg;      /* the response was released on another thread */
    bool is_sent;               /* the client gets its outputs */
    bool is_dropped;            /* its values are not needed any more */
    TAILQ_ENTRY(frame) link;    /* in run->leaves */
    LIST_ENTRY(frame) run_link; /* in run->frames */
};

enum step_state { STEP_READY, STEP_WAITS, STEP_RUNS, STEP_ENDED };

/* A step in a frame, from when its inputs are there. */
struct step_run {
    struct frame *frame;
    size_t index;
    enum step_state state;
    struct inner_inference *inference; /* NULL: not started, or ended */
    struct infer_input *inputs;
    size_t n_inputs;
    struct infer_requested_output *wanted;
    size_t *tensors; /* of each of `wanted` */
    size_t n_wanted;
    struct held **reads; /* responses that its inputs are views of */
    size_t n_reads;
    const struct sequence_values *sequence;
    struct held held;    /* its response, unless it is decoupled */
    size_t n_unreleased; /* responses */
    bool keeps_inputs;   /* until its responses are released: they may be views of the inputs */
    bool is_cancelled;
    bool has_place; /* of the limit */
    struct limit_waiter waiter;
    LIST_ENTRY(step_run) link; /* in run->active: waits, or runs */
    STAILQ_ENTRY(step_run) ready_link;
};

struct run {
    struct frame first;
    struct call *call;
    struct inference *outer;
    const struct ensemble *ensemble;
    struct worker *worker;
    struct inner_services services;
    struct model_version **members; /* by step, a reference each; NULL: not needed */
    struct sequence_values sequence;
    struct statistics_compute compute;
    struct error error; /* the first one */
    bool failed;
    bool *wants;      /* by output of the ensemble */
    size_t n_tensors; /* of the ensemble, which may be closed before the response is released */
    bool ended;
    unsigned n_busy;  /* functions that have not returned, the outermost of which goes on */
    size_t leaf_step; /* the decoupled step whose frames have the outputs; SIZE_MAX: none */
    STAILQ_HEAD(, step_run) ready;
    LIST_HEAD(, step_run) active;
    LIST_HEAD(, frame) frames;  /* all */
    TAILQ_HEAD(, frame) leaves; /* frames of leaf_step that were not sent, in order */
};

static void respond(struct inner_response *response, void *user);
static void proceed(struct run *run);
static void fail(struct run *run, const struct error *why);

static const struct ensemble_step *step_at(const struct run *run, size_t i) {
    return &run->ensemble->config->ensemble.steps[i];
}

static const struct model_spec *member_at(const struct run *run, size_t i) {
    return model_version_spec(run->members[i]);
}

/* ---- references ------------------------------------------------------------------------------ */

static void frame_unref(struct frame *frame);

/* The responses that the step's inputs are views of are not needed any more. */
static void drop_reads(struct step_run *step);

/* Nothing of the step is needed any more. */
static void end_step_if_done(struct step_run *step) {
    if (step->state == STEP_ENDED && step->n_unreleased == 0) {
        drop_reads(step);
        frame_unref(step->frame);
    }
}

static void held_unref(struct held *held) {
    if (--held->refs == 0) {
        struct step_run *step = held->step;
        inner_response_release(held->response);
        step->n_unreleased--;
        end_step_if_done(step);
    }
}

static void drop_reads(struct step_run *step) {
    size_t n = step->n_reads;
    step->n_reads = 0;
    for (size_t i = 0; i < n; i++) {
        held_unref(step->reads[i]);
    }
}

static void value_use(struct value *value) {
    assert(value->n_left > 0);
    if (--value->n_left == 0 && value->held) {
        held_unref(value->held);
    }
}

static void drop_values(struct frame *frame) {
    for (size_t i = 0; i < frame->run->n_tensors; i++) {
        struct value *value = &frame->values[i];
        bool holds = value->n_left > 0 && value->held;
        value->n_left = 0;
        if (holds) {
            held_unref(value->held);
        }
    }
}

/* A frame that is freed releases the response that it was made for, and with that maybe the frame
 * of the decoupled step. */
static void frame_unref(struct frame *frame) {
    if (--frame->refs > 0) {
        return;
    }
    struct held origin = frame->origin;
    LIST_REMOVE(frame, run_link);
    arena_free(frame->arena);
    if (origin.response) {
        struct step_run *step = origin.step;
        inner_response_release(origin.response);
        step->n_unreleased--;
        end_step_if_done(step);
    }
}

/* ---- values ---------------------------------------------------------------------------------- */

static bool is_needed(const struct run *run, size_t step) {
    return run->members[step] != NULL;
}

static bool is_wanted(const struct run *run, const struct ensemble_tensor *tensor) {
    return tensor->output != SIZE_MAX && run->wants[tensor->output];
}

static void add_ready(struct frame *frame, size_t index) {
    struct run *run = frame->run;
    struct step_run *step = arena_calloc(frame->arena, 1, sizeof(*step));
    if (!step) {
        struct error err;
        error_no_memory(&err, "a step of the ensemble");
        fail(run, &err);
        return;
    }
    step->frame = frame;
    step->index = index;
    frame->refs++;
    STAILQ_INSERT_TAIL(&run->ready, step, ready_link);
}

/* Sets the value of a tensor in the frame, which may be what steps waited for. */
static void set_value(struct frame *frame, size_t index, const struct value *value) {
    struct run *run = frame->run;
    const struct ensemble_tensor *tensor = &run->ensemble->config->ensemble.tensors[index];
    struct value *to = &frame->values[index];
    bool is_output = is_wanted(run, tensor);
    *to = *value;
    to->n_left = is_output;
    frame->n_outputs_missing -= is_output;
    for (size_t i = 0; i < tensor->n_used_by; i++) {
        to->n_left += is_needed(run, tensor->used_by[i]);
    }
    if (to->held && to->n_left > 0) {
        to->held->refs++;
    }
    for (size_t i = 0; i < tensor->n_used_by; i++) {
        size_t step = tensor->used_by[i];
        if (is_needed(run, step) && --frame->n_missing[step] == 0) {
            add_ready(frame, step);
        }
    }
}

/* Returns: false when out of memory. */
static bool frame_init(struct frame *frame, struct run *run, struct arena *arena) {
    const struct model_ensemble *ensemble = &run->ensemble->config->ensemble;
    frame->run = run;
    frame->arena = arena;
    frame->refs = 1;
    frame->values = arena_calloc(arena, ensemble->n_tensors, sizeof(*frame->values));
    frame->n_missing = arena_alloc_array(arena, ensemble->n_steps, sizeof(*frame->n_missing));
    if (!frame->values || !frame->n_missing) {
        return false;
    }
    for (size_t i = 0; i < ensemble->n_steps; i++) {
        frame->n_missing[i] = ensemble->steps[i].n_inputs;
    }
    for (size_t i = 0; i < run->ensemble->spec->n_outputs; i++) {
        frame->n_outputs_missing += run->wants[i];
    }
    LIST_INSERT_HEAD(&run->frames, frame, run_link);
    return true;
}

/* ---- shapes between members that batch and members that do not ------------------------------- */

/* The shape in which a value goes to a place that batches, or does not, and has shape `wanted`:
 * as in Triton, one row without a batch dimension gets one, and a batch of one row loses it, where
 * that fits. Returns: false when out of memory. */
static bool adapt_shape(const struct value *value, struct shape wanted, bool batches,
                        struct arena *arena, struct shape *out) {
    struct shape shape = value->tensor->shape;
    *out = shape;
    if (batches == value->batches) {
        return true;
    }
    if (!batches) {
        if (!ensemble_shapes_agree(shape, wanted) && value->batch == 1 && shape.rank > 0) {
            *out = (struct shape){shape.dims + 1, shape.rank - 1};
        }
        return true;
    }
    struct shape row = {wanted.dims + 1, wanted.rank - 1};
    if (!ensemble_shapes_agree(shape, row)) {
        return true;
    }
    int64_t *dims = arena_alloc_array(arena, shape.rank + 1, sizeof(*dims));
    if (!dims) {
        return false;
    }
    dims[0] = 1;
    for (size_t i = 0; i < shape.rank; i++) {
        dims[i + 1] = shape.dims[i];
    }
    *out = (struct shape){dims, shape.rank + 1};
    return true;
}

/* ---- starting a step ------------------------------------------------------------------------- */

static bool is_read(const struct step_run *step, const struct held *held) {
    for (size_t i = 0; i < step->n_reads; i++) {
        if (step->reads[i] == held) {
            return true;
        }
    }
    return false;
}

/* A member's BYTES were checked when it gave them, what the request has when it came. Values of
 * BOOL that a member gives are not checked. */
static uint64_t count_checked(const struct value *value) {
    const struct tensor *tensor = value->tensor;
    uint64_t n = 0;
    bool checked =
        tensor->datatype == DT_BYTES || (tensor->datatype == DT_BOOL && value->held == NULL);
    return checked && shape_elements(tensor->shape, &n) ? n : 0;
}

/* Returns: false when out of memory. */
static bool add_input(struct step_run *step, const struct ensemble_map *entry) {
    struct frame *frame = step->frame;
    const struct model_spec *member = member_at(frame->run, step->index);
    struct value *value = &frame->values[entry->tensor];
    size_t at = tensor_spec_find(member->inputs, member->n_inputs, entry->name);
    if (!value->tensor) {
        return true; /* the member's input is optional, or the member says that it is missing */
    }
    struct infer_input *input = &step->inputs[step->n_inputs++];
    *input = (struct infer_input){.tensor = *value->tensor, .n_checked = count_checked(value)};
    input->tensor.name = entry->name;
    if (value->held && !is_read(step, value->held)) {
        step->reads[step->n_reads++] = value->held;
        value->held->refs++;
    }
    if (value->sequence) {
        step->sequence = value->sequence;
    }
    return at == SIZE_MAX ||
           adapt_shape(value, member->inputs[at].shape, member->max_batch_size > 0, frame->arena,
                       &input->tensor.shape);
}

static bool add_inputs(struct step_run *step) {
    struct frame *frame = step->frame;
    const struct ensemble_step *config = step_at(frame->run, step->index);
    bool good = true;
    step->sequence = &frame->run->sequence;
    step->inputs = arena_alloc_array(frame->arena, config->n_inputs, sizeof(*step->inputs));
    step->reads = arena_alloc_array(frame->arena, config->n_inputs, sizeof(*step->reads));
    if (!step->inputs || !step->reads) {
        return false;
    }
    for (size_t i = 0; i < config->n_inputs && good; i++) {
        good = add_input(step, &config->inputs[i]);
    }
    for (size_t i = 0; i < config->n_inputs; i++) { /* afterwards: it may free what was added */
        value_use(&frame->values[config->inputs[i].tensor]);
    }
    return good;
}

/* The outputs that other steps or the response need. */
static bool add_wanted(struct step_run *step) {
    struct frame *frame = step->frame;
    const struct run *run = frame->run;
    const struct ensemble_step *config = step_at(run, step->index);
    step->wanted = arena_alloc_array(frame->arena, config->n_outputs, sizeof(*step->wanted));
    step->tensors = arena_alloc_array(frame->arena, config->n_outputs, sizeof(*step->tensors));
    if (!step->wanted || !step->tensors) {
        return false;
    }
    for (size_t i = 0; i < config->n_outputs; i++) {
        size_t index = config->outputs[i].tensor;
        const struct ensemble_tensor *tensor = &run->ensemble->config->ensemble.tensors[index];
        bool wanted = is_wanted(run, tensor);
        for (size_t j = 0; j < tensor->n_used_by && !wanted; j++) {
            wanted = is_needed(run, tensor->used_by[j]);
        }
        if (wanted) {
            step->tensors[step->n_wanted] = index;
            step->wanted[step->n_wanted++] =
                (struct infer_requested_output){.name = config->outputs[i].name};
        }
    }
    return true;
}

static bool is_sequence_param(struct str name) {
    return str_is(name, "sequence_id") || str_is(name, "sequence_start") ||
           str_is(name, "sequence_end");
}

/* The request's parameters, with those of the sequence where a member has set others. */
static bool make_params(const struct step_run *step, struct params *out) {
    const struct run *run = step->frame->run;
    struct params params = run->call->request->params;
    const struct sequence_values *sequence = step->sequence;
    *out = params;
    if (sequence == &run->sequence) {
        return true;
    }
    struct param *items = arena_alloc_array(step->frame->arena, params.n + 3, sizeof(*items));
    size_t n = 0;
    for (size_t i = 0; items && i < params.n; i++) {
        if (!is_sequence_param(params.items[i].name)) {
            items[n++] = params.items[i];
        }
    }
    if (items) {
        items[n++] = sequence->id;
        items[n++] = (struct param){
            .name = STR("sequence_start"), .kind = PARAM_BOOL, .boolean = sequence->start};
        items[n++] = (struct param){
            .name = STR("sequence_end"), .kind = PARAM_BOOL, .boolean = sequence->end};
        *out = (struct params){items, n};
    }
    return items != NULL;
}

/* The error is one of the step's. Clients compare how the text begins with the reference
 * server's. */
static void fail_at(struct run *run, size_t index, const struct error *why) {
    struct error err;
    char ensemble[QUOTED_NAME_BYTES], model[QUOTED_NAME_BYTES];
    error_set(&err, why->status, "in ensemble %s, %s (step %zu, model %s)",
              quote_name_single(run->ensemble->spec->name, ensemble), why->text, index,
              quote_name(step_at(run, index)->model, model));
    fail(run, &err);
}

static void give_place(struct step_run *step) {
    if (step->has_place) {
        step->has_place = false;
        limit_give(&step->frame->run->ensemble->limits[step->index]);
    }
}

/* The step has ended, or was not started. */
static void end_step(struct step_run *step) {
    give_place(step);
    step->state = STEP_ENDED;
    if (!step->keeps_inputs) {
        drop_reads(step);
    }
    end_step_if_done(step);
}

static enum status make_inference(struct step_run *step, struct error *err) {
    struct run *run = step->frame->run;
    const struct infer_request *request = run->call->request;
    struct inner_options options = {
        .services = &run->services,
        .parent = run->outer,
        .model = member_at(run, step->index)->name,
        .version = member_at(run, step->index)->version_text,
        .found = run->members[step->index],
        .id = request->id,
        .params_are_opaque = request->params_are_opaque,
        .thread = INNER_ON_WORKER,
        .respond = respond,
        .user = step,
    };
    if (!add_inputs(step) || !add_wanted(step) || !make_params(step, &options.params)) {
        return error_no_memory(err, "a step of the ensemble");
    }
    options.inputs = step->inputs;
    options.n_inputs = step->n_inputs;
    options.wanted = step->wanted;
    options.n_wanted = step->n_wanted;
    return inner_inference_new(&options, &step->inference, err);
}

static void start_step(struct step_run *step) {
    struct run *run = step->frame->run;
    struct error err;
    if (run->failed) {
        end_step(step);
        return;
    }
    if (make_inference(step, &err) != ST_OK) {
        size_t index = step->index;
        end_step(step);
        fail_at(run, index, &err);
        return;
    }
    step->state = STEP_RUNS;
    LIST_INSERT_HEAD(&run->active, step, link);
    inner_inference_start(step->inference);
}

/* A step that waited has a place. */
static void on_place(struct worker_msg *msg) {
    struct step_run *step =
        CONTAINER_OF(CONTAINER_OF(msg, struct limit_waiter, msg), struct step_run, waiter);
    struct run *run = step->frame->run;
    step->has_place = true;
    LIST_REMOVE(step, link);
    run->n_busy++;
    start_step(step);
    run->n_busy--;
    proceed(run);
}

/* Returns: whether the step may start now. */
static bool take_place(struct step_run *step) {
    struct run *run = step->frame->run;
    if (!run->ensemble->limits || run->failed) {
        return true;
    }
    step->waiter.worker = run->worker;
    step->waiter.msg = (struct worker_msg){.run = on_place};
    step->state = STEP_WAITS;
    LIST_INSERT_HEAD(&run->active, step, link); /* before it can be told */
    step->has_place = limit_take(&run->ensemble->limits[step->index], &step->waiter);
    if (step->has_place) {
        LIST_REMOVE(step, link);
    }
    return step->has_place;
}

/* ---- responses of steps ---------------------------------------------------------------------- */

/* Returns: whether the first byte of an output is one of the piece. */
static bool begins_in(const struct piece *piece, const struct infer_response *response) {
    uintptr_t begin = (uintptr_t)piece->data;
    for (size_t i = 0; i < response->n_outputs; i++) {
        const struct tensor *output = &response->outputs[i];
        uintptr_t at = output->n_pieces > 0 ? (uintptr_t)output->pieces[0].data : 0;
        if (at >= begin && at < begin + piece->n_bytes) {
            return true;
        }
    }
    return false;
}

/* Returns: whether bytes of an output may be bytes of an input that is a view of a response. */
static bool is_view_of_inputs(const struct step_run *step, const struct infer_response *response) {
    enum { MAX_COMPARED = 256 };
    size_t n_compared = 0;
    for (size_t i = 0; i < step->n_inputs && step->n_reads > 0; i++) {
        const struct tensor *input = &step->inputs[i].tensor;
        n_compared += input->n_pieces * response->n_outputs;
        if (n_compared > MAX_COMPARED) {
            return true;
        }
        for (size_t j = 0; j < input->n_pieces; j++) {
            if (begins_in(&input->pieces[j], response)) {
                return true;
            }
        }
    }
    return false;
}

static bool read_bool_param(struct params params, const char *name, bool otherwise) {
    const struct param *param = params_find(params, name);
    return param && param->kind == PARAM_BOOL ? param->boolean : otherwise;
}

/* The sequence that a member's response sets; as in Triton, flags that it does not set are not
 * set then. Returns: the step's where it sets nothing. */
static const struct sequence_values *sequence_of(const struct step_run *step, struct params params,
                                                 struct arena *arena) {
    const struct param *id = params_find(params, "sequence_id");
    bool sets = id || params_find(params, "sequence_start") || params_find(params, "sequence_end");
    struct sequence_values *made = sets ? arena_calloc(arena, 1, sizeof(*made)) : NULL;
    if (!made) {
        return step->sequence;
    }
    made->id = step->sequence->id;
    if (id && id->kind == PARAM_STRING) {
        made->id.kind = PARAM_STRING;
        made->id.string = arena_dup(arena, id->string);
    } else if (id && (id->kind == PARAM_INT64 || id->kind == PARAM_UINT64)) {
        made->id = *id;
        made->id.name = STR("sequence_id");
    }
    made->start = read_bool_param(params, "sequence_start", false);
    made->end = read_bool_param(params, "sequence_end", false);
    return made->id.kind == PARAM_STRING && !made->id.string.ptr ? step->sequence : made;
}

/* Returns: whether the ensemble goes on without the tensor: it is no output, and the inputs that
 * read it are optional. */
static bool may_be_missing(const struct run *run, size_t index) {
    const struct ensemble_tensor *tensor = &run->ensemble->config->ensemble.tensors[index];
    bool may = !is_wanted(run, tensor);
    for (size_t i = 0; i < tensor->n_used_by && may; i++) {
        size_t reader = tensor->used_by[i];
        const struct ensemble_step *config = step_at(run, reader);
        for (size_t j = 0; is_needed(run, reader) && j < config->n_inputs && may; j++) {
            const struct model_spec *member = member_at(run, reader);
            size_t at = tensor_spec_find(member->inputs, member->n_inputs, config->inputs[j].name);
            may = config->inputs[j].tensor != index ||
                  (at != SIZE_MAX && member->inputs[at].optional);
        }
    }
    return may;
}

/* The model has left out the wanted output number `i`. Returns: false when the ensemble needs it,
 * and has failed. */
static bool take_missing(struct step_run *step, struct frame *frame, size_t i) {
    struct run *run = frame->run;
    size_t index = step->tensors[i];
    char output[QUOTED_NAME_BYTES], tensor[QUOTED_NAME_BYTES];
    struct error err;
    if (may_be_missing(run, index)) {
        set_value(frame, index, &(struct value){0});
        return true;
    }
    error_set(&err, ST_BACKEND_FAILED, "the model has left out output %s, which is tensor %s",
              quote_name(step->wanted[i].name, output),
              quote_name(run->ensemble->config->ensemble.tensors[index].name, tensor));
    fail_at(run, step->index, &err);
    return false;
}

/* The values of the response, in that frame. */
static void take_outputs(struct step_run *step, struct frame *frame, struct held *held) {
    struct run *run = frame->run;
    const struct infer_response *response = held->response->response;
    const struct call *call = &inner_inference_base(step->inference)->call;
    struct value value = {
        .held = held,
        .sequence = sequence_of(step, response->params, frame->arena),
        .batches = member_at(run, step->index)->max_batch_size > 0,
        .batch = call->request->batch,
    };
    size_t given = 0;
    for (size_t i = 0; i < step->n_wanted; i++) {
        if (given < response->n_outputs && infer_response_place(response, given) == i) {
            value.tensor = &response->outputs[given++];
            set_value(frame, step->tensors[i], &value);
        } else if (!take_missing(step, frame, i)) {
            return;
        }
    }
}

/* A response of a decoupled step. */
static void take_decoupled(struct step_run *step, struct inner_response *response) {
    struct run *run = step->frame->run;
    struct arena *arena = arena_new(worker_arenas(run->worker), 0);
    struct frame *frame = arena ? arena_calloc(arena, 1, sizeof(*frame)) : NULL;
    if (!frame || !frame_init(frame, run, arena)) {
        struct error err;
        arena_free(arena);
        inner_response_release(response);
        error_no_memory(&err, "a response of a step");
        fail_at(run, step->index, &err);
        return;
    }
    /* The frame itself holds it, until it is freed. */
    frame->origin = (struct held){.response = response, .step = step, .refs = 1};
    step->n_unreleased++;
    if (step->index == run->leaf_step) {
        TAILQ_INSERT_TAIL(&run->leaves, frame, link);
        frame->refs++;
    }
    take_outputs(step, frame, &frame->origin);
    frame_unref(frame);
}

static void take_response(struct step_run *step, struct inner_response *response) {
    struct run *run = step->frame->run;
    bool decoupled = member_at(run, step->index)->decoupled;
    if (run->failed || (decoupled && response->response->n_outputs == 0)) {
        inner_response_release(response);
    } else if (decoupled) {
        step->keeps_inputs = true;
        take_decoupled(step, response);
    } else {
        step->keeps_inputs = is_view_of_inputs(step, response->response);
        step->held = (struct held){.response = response, .step = step, .refs = 1};
        step->n_unreleased++;
        take_outputs(step, step->frame, &step->held);
    }
}

static void add_compute(struct run *run, const struct call *call) {
    if (call->started_ns > 0 && call->cached != CALL_CACHE_HIT) {
        struct statistics_compute compute = statistics_compute_of(call);
        run->compute.input_ns += compute.input_ns;
        run->compute.infer_ns += compute.infer_ns;
        run->compute.output_ns += compute.output_ns;
    }
}

static void respond(struct inner_response *response, void *user) {
    struct step_run *step = user;
    struct run *run = step->frame->run;
    struct inner_inference *inference = step->inference;
    bool last = response->last;
    run->n_busy++;
    if (last) {
        LIST_REMOVE(step, link);
    }
    if (response->response->error.status != ST_OK) {
        if (!run->failed) {
            fail_at(run, step->index, &response->response->error);
        }
        inner_response_release(response);
    } else {
        if (last) {
            add_compute(run, &inner_inference_base(inference)->call);
        }
        take_response(step, response);
    }
    if (last) {
        bool keeps = step->held.response != NULL;
        end_step(step);
        if (keeps) {
            held_unref(&step->held);
        }
        inner_inference_unref(inference);
    }
    run->n_busy--;
    proceed(run);
}

/* ---- the ensemble's response ----------------------------------------------------------------- */

/* The client has the frame's outputs. */
static void release_frame(struct frame *frame) {
    drop_values(frame);
    frame_unref(frame);
}

static void on_release(struct worker_msg *msg) {
    release_frame(CONTAINER_OF(msg, struct frame, msg));
}

/* Thread: any. */
static void release_outputs(void *cookie) {
    struct frame *frame = cookie;
    struct worker *worker = frame->run->worker;
    if (worker_is_current(worker)) {
        release_frame(frame);
        return;
    }
    frame->msg = (struct worker_msg){.run = on_release};
    worker_post(worker, &frame->msg);
}

static enum status fill_output(struct frame *frame, size_t i, struct tensor *to,
                               struct error *err) {
    const struct run *run = frame->run;
    const struct ensemble *ensemble = run->ensemble;
    size_t output = ensemble_call_output(run->call, i);
    const struct tensor_spec *spec = &ensemble->spec->outputs[output];
    const struct value *value = &frame->values[ensemble->output_tensors[output]];
    struct shape shape;
    *to = *value->tensor;
    to->name = spec->name;
    bool batches = ensemble->spec->max_batch_size > 0;
    if (!adapt_shape(value, ensemble_call_inner_shape(run->call, output), batches, frame->arena,
                     &shape)) {
        return error_no_memory(err, "the ensemble's answer");
    }
    return ensemble_call_shape(run->call, output, shape, frame->arena, &to->shape, err);
}

/* As Triton's ensembles, the response names the sequence of the step that made the outputs. */
static bool fill_params(struct frame *frame, const struct value *value) {
    struct param *items = arena_alloc_array(frame->arena, 3, sizeof(*items));
    const struct sequence_values *sequence =
        value->sequence ? value->sequence : &frame->run->sequence;
    if (!items) {
        return false;
    }
    items[0] = sequence->id;
    items[1] = (struct param){
        .name = STR("sequence_start"), .kind = PARAM_BOOL, .boolean = sequence->start};
    items[2] =
        (struct param){.name = STR("sequence_end"), .kind = PARAM_BOOL, .boolean = sequence->end};
    frame->response.params = (struct params){items, 3};
    return true;
}

/* Makes frame->response of its values. */
static enum status fill_response(struct frame *frame, struct error *err) {
    const struct run *run = frame->run;
    const struct model_ensemble *ensemble = &run->ensemble->config->ensemble;
    size_t n = ensemble_call_request(run->call)->n_wanted;
    struct tensor *outputs = arena_alloc_array(frame->arena, n, sizeof(*outputs));
    enum status st = ST_OK;
    if (!outputs) {
        return error_no_memory(err, "the ensemble's answer");
    }
    for (size_t i = 0; i < n && st == ST_OK; i++) {
        st = fill_output(frame, i, &outputs[i], err);
    }
    for (size_t t = 0; t < ensemble->n_tensors && st == ST_OK && !frame->response.params.n; t++) {
        if (is_wanted(run, &ensemble->tensors[t]) && !fill_params(frame, &frame->values[t])) {
            st = error_no_memory(err, "the ensemble's answer");
        }
    }
    frame->response.outputs = outputs;
    frame->response.n_outputs = n;
    return st;
}

static bool is_complete(const struct frame *frame) {
    return frame->n_outputs_missing == 0;
}

static bool is_idle(const struct run *run) {
    return STAILQ_EMPTY(&run->ready) && LIST_EMPTY(&run->active);
}

/* Sends the responses that are complete, in their order; the last one waits for the end of the
 * call, which it may be. */
static void send_leaves(struct run *run) {
    struct frame *frame;
    struct error err;
    while ((frame = TAILQ_FIRST(&run->leaves)) && is_complete(frame) && !run->failed) {
        if (!TAILQ_NEXT(frame, link) && is_idle(run)) {
            return;
        }
        TAILQ_REMOVE(&run->leaves, frame, link);
        if (fill_response(frame, &err) != ST_OK) {
            release_frame(frame);
            fail(run, &err);
            return;
        }
        frame->is_sent = true;
        frame->response.release = release_outputs;
        frame->response.user = frame;
        ensemble_call_send(run->call, &frame->response);
    }
}

static void drop_leaves(struct run *run) {
    struct frame *frame;
    while ((frame = TAILQ_FIRST(&run->leaves))) {
        TAILQ_REMOVE(&run->leaves, frame, link);
        release_frame(frame);
    }
}

static void release_members(struct run *run) {
    for (size_t i = 0; run->members && i < run->ensemble->config->ensemble.n_steps; i++) {
        if (run->members[i]) {
            model_version_unref(run->members[i]);
        }
    }
}

/* The frame whose outputs the last response has; NULL: it has none. */
static struct frame *take_last(struct run *run) {
    struct frame *frame = run->leaf_step == SIZE_MAX ? &run->first : TAILQ_FIRST(&run->leaves);
    if (frame && frame != &run->first) {
        TAILQ_REMOVE(&run->leaves, frame, link);
    } else if (frame) {
        frame->refs++;
    }
    return frame;
}

/* The values that no step will read. What the client gets keeps its own. */
static void drop_unsent(struct run *run) {
    struct frame *frame = LIST_FIRST(&run->frames);
    while (frame) {
        if (frame->is_sent || frame->is_dropped) {
            frame = LIST_NEXT(frame, run_link);
            continue;
        }
        frame->is_dropped = true;
        frame->refs++;
        drop_values(frame);
        frame_unref(frame);
        frame = LIST_FIRST(&run->frames); /* others may have been freed with it */
    }
}

/* Nothing runs any more: completes the call. */
static void end(struct run *run) {
    struct call *call = run->call;
    struct infer_response *response = &call->response;
    struct frame *last = run->failed ? NULL : take_last(run);
    struct error err;
    run->ended = true;
    if (last && !is_complete(last)) {
        char name[QUOTED_NAME_BYTES];
        error_set(&err, ST_BACKEND_FAILED, "not all outputs of ensemble %s were made",
                  quote_name(run->ensemble->spec->name, name));
        fail(run, &err);
    } else if (last && fill_response(last, &err) != ST_OK) {
        fail(run, &err);
    }
    if (run->failed && last) {
        release_frame(last);
        last = NULL;
    }
    if (run->failed) {
        response->error = run->error;
    } else if (last) {
        last->is_sent = true;
        response->outputs = last->response.outputs;
        response->n_outputs = last->response.n_outputs;
        response->params = last->response.params;
    }
    drop_leaves(run);
    drop_unsent(run);
    release_members(run);
    /* Where the inference is being cancelled, or its children are, its functions still use it. */
    bool later = run->outer->no_children || inference_was_cancelled(run->outer);
    ensemble_call_end(call, last ? release_outputs : NULL, last, &run->compute, later);
    frame_unref(&run->first);
}

/* ---- going on -------------------------------------------------------------------------------- */

/* Starts what is ready, sends what is complete, and ends the call when nothing is left. Within a
 * function that will go on itself it does nothing, so that steps that end at once do not nest. */
static void proceed(struct run *run) {
    struct step_run *step;
    if (run->n_busy > 0) {
        return;
    }
    run->n_busy++;
    do {
        while ((step = STAILQ_FIRST(&run->ready))) {
            STAILQ_REMOVE_HEAD(&run->ready, ready_link);
            if (take_place(step)) {
                start_step(step);
            }
        }
        send_leaves(run);
    } while (!STAILQ_EMPTY(&run->ready));
    run->n_busy--;
    if (is_idle(run)) {
        end(run);
    }
}

static struct step_run *first_not_cancelled(const struct run *run) {
    struct step_run *step;
    LIST_FOREACH(step, &run->active, link) {
        if (!step->is_cancelled) {
            return step;
        }
    }
    return NULL;
}

/* The first error is the call's. The other steps are cancelled, and waited for: they read what the
 * request holds. */
static void fail(struct run *run, const struct error *why) {
    struct step_run *step;
    if (run->failed) {
        return;
    }
    run->failed = true;
    run->error = *why;
    run->n_busy++;
    while ((step = first_not_cancelled(run))) {
        step->is_cancelled = true;
        if (step->state == STEP_RUNS) {
            inner_inference_cancel(step->inference);
        } else if (limit_cancel(&run->ensemble->limits[step->index], &step->waiter)) {
            LIST_REMOVE(step, link);
            end_step(step);
        } /* else it is told of its place */
    }
    run->n_busy--;
}

static void cancel_call(struct call *call) {
    struct run *run = ensemble_call_run(call);
    struct error why;
    error_set(&why, ST_CANCELLED, "the request was cancelled while the ensemble ran");
    fail(run, &why);
    proceed(run);
}

/* ---- beginning ------------------------------------------------------------------------------- */

static bool mark_needed(struct run *run, bool *needed) {
    const struct model_ensemble *ensemble = &run->ensemble->config->ensemble;
    size_t *todo = arena_alloc_array(run->first.arena, ensemble->n_steps, sizeof(*todo)), n = 0;
    for (size_t i = 0; todo && i < run->ensemble->spec->n_outputs; i++) {
        size_t made_by = ensemble->tensors[run->ensemble->output_tensors[i]].made_by;
        if (run->wants[i] && !needed[made_by]) {
            needed[made_by] = true;
            todo[n++] = made_by;
        }
    }
    while (n > 0) {
        const struct ensemble_step *step = &ensemble->steps[todo[--n]];
        for (size_t i = 0; i < step->n_inputs; i++) {
            size_t made_by = ensemble->tensors[step->inputs[i].tensor].made_by;
            if (made_by != SIZE_MAX && !needed[made_by]) {
                needed[made_by] = true;
                todo[n++] = made_by;
            }
        }
    }
    return todo != NULL;
}

/* A member stays the same version for all of the call, also when it is replaced meanwhile. */
static void find_members(struct run *run, const bool *needed) {
    const struct model_ensemble *ensemble = &run->ensemble->config->ensemble;
    struct error err;
    for (size_t i = 0; i < ensemble->n_steps && !run->failed; i++) {
        const struct ensemble_step *step = &ensemble->steps[i];
        if (!needed[i]) {
            continue;
        }
        if (repository_find(run->ensemble->repository, step->model, step->version, &run->members[i],
                            &err) != ST_OK) {
            run->members[i] = NULL;
            err.status = ST_NOT_READY;
            fail_at(run, i, &err);
        } else if (member_at(run, i)->decoupled && !run->ensemble->spec->decoupled) {
            error_set(&err, ST_NOT_READY,
                      "it is decoupled now, and was not when the ensemble was "
                      "loaded");
            fail_at(run, i, &err);
        }
    }
}

/* The decoupled step that the outputs come from. */
static size_t find_leaf_step(const struct run *run) {
    const struct model_ensemble *ensemble = &run->ensemble->config->ensemble;
    size_t output = 0;
    while (!run->wants[output]) {
        output++;
    }
    size_t step = ensemble->tensors[run->ensemble->output_tensors[output]].made_by;
    while (step != SIZE_MAX && !member_at(run, step)->decoupled) {
        step = ensemble->tensors[ensemble->steps[step].inputs[0].tensor].made_by;
    }
    return step;
}

/* The request's tensor that is that input, in the shape that the members see. Returns: NULL where
 * the request has none. */
static const struct tensor *find_input(const struct run *run, size_t index, bool *failed) {
    const struct infer_request *request = run->call->request;
    const sluice_request *seen = ensemble_call_request(run->call);
    const struct tensor *tensor = NULL;
    for (size_t i = 0; i < request->n_inputs && !tensor; i++) {
        tensor = request->inputs[i].spec == index ? &request->inputs[i].tensor : NULL;
    }
    if (!tensor || !run->ensemble->config->inputs[index].has_reshape) {
        return tensor;
    }
    struct tensor *reshaped = arena_alloc(run->first.arena, sizeof(*reshaped));
    for (size_t i = 0; reshaped && i < seen->n_inputs; i++) {
        if (seen->inputs[i].index == index) {
            *reshaped = *tensor;
            reshaped->shape = (struct shape){seen->inputs[i].dims, seen->inputs[i].rank};
        }
    }
    *failed = *failed || !reshaped;
    return reshaped;
}

static void set_inputs(struct run *run) {
    const struct model_ensemble *ensemble = &run->ensemble->config->ensemble;
    struct value value = {.batches = run->ensemble->spec->max_batch_size > 0,
                          .batch = run->call->request->batch};
    bool failed = false;
    for (size_t i = 0; i < ensemble->n_tensors; i++) {
        if (ensemble->tensors[i].input != SIZE_MAX) {
            value.tensor = find_input(run, ensemble->tensors[i].input, &failed);
            set_value(&run->first, i, &value);
        }
    }
    if (failed) {
        struct error err;
        error_no_memory(&err, "an input of the ensemble");
        fail(run, &err);
    }
}

static void read_sequence(struct run *run) {
    const struct infer_request *request = run->call->request;
    struct params params = request->params_are_opaque ? (struct params){NULL, 0} : request->params;
    const struct param *id = params_find(params, "sequence_id");
    run->sequence = (struct sequence_values){
        .id = id ? *id : (struct param){.name = STR("sequence_id"), .kind = PARAM_INT64},
        .start = read_bool_param(params, "sequence_start", false),
        .end = read_bool_param(params, "sequence_end", false),
    };
}

/* Returns: NULL when out of memory. */
static struct run *run_new(struct call *call, const struct ensemble *ensemble, bool **needed) {
    struct arena *arena = arena_new(worker_arenas(call->worker), 0);
    struct run *run = arena ? arena_calloc(arena, 1, sizeof(*run)) : NULL;
    if (!run) {
        arena_free(arena);
        return NULL;
    }
    size_t n_steps = ensemble->config->ensemble.n_steps;
    size_t n_wanted = ensemble_call_request(call)->n_wanted;
    run->call = call;
    run->ensemble = ensemble;
    run->outer = inference_of_call(call);
    run->worker = call->worker;
    run->n_tensors = ensemble->config->ensemble.n_tensors;
    run->services.helpers = call->helpers;
    run->leaf_step = SIZE_MAX;
    STAILQ_INIT(&run->ready);
    LIST_INIT(&run->active);
    LIST_INIT(&run->frames);
    TAILQ_INIT(&run->leaves);
    run->members = arena_calloc(arena, n_steps, sizeof(struct model_version *));
    run->wants = arena_calloc(arena, ensemble->spec->n_outputs, sizeof(*run->wants));
    *needed = arena_calloc(arena, n_steps, sizeof(**needed));
    run->first.arena = arena;
    if (!run->members || !run->wants || !*needed) {
        arena_free(arena);
        return NULL;
    }
    for (size_t i = 0; i < n_wanted; i++) {
        run->wants[ensemble_call_output(call, i)] = true;
    }
    if (!mark_needed(run, *needed) || !frame_init(&run->first, run, arena)) {
        arena_free(arena);
        return NULL;
    }
    return run;
}

/* The call cannot be run. */
static void refuse(struct call *call) {
    static const struct statistics_compute none = {0};
    ensemble_call_end(call, NULL, NULL, &none, false);
}

static void run_call(struct call *call, void *state) {
    bool *needed;
    if (!inference_of_call(call)) {
        error_set(&call->response.error, ST_UNSUPPORTED,
                  "an ensemble runs for requests of clients and of other models only");
        refuse(call);
        return;
    }
    struct run *run = run_new(call, state, &needed);
    if (!run) {
        error_no_memory(&call->response.error, "running an ensemble");
        refuse(call);
        return;
    }
    ensemble_call_set_run(call, run);
    run->n_busy++;
    read_sequence(run);
    find_members(run, needed);
    if (!run->failed) {
        run->leaf_step = run->ensemble->spec->decoupled ? find_leaf_step(run) : SIZE_MAX;
        set_inputs(run);
    }
    run->n_busy--;
    proceed(run);
}

/* ---- an ensemble ----------------------------------------------------------------------------- */

static void close_ensemble(void *state) {
    struct ensemble *ensemble = state;
    for (size_t i = 0; ensemble->limits && i < ensemble->config->ensemble.n_steps; i++) {
        limit_fini(&ensemble->limits[i]);
    }
    free(ensemble->limits);
    free(ensemble->output_tensors);
    free(ensemble);
}

static enum status open_ensemble(const struct model_version *version, void *user, void **state,
                                 struct error *err) {
    struct ensemble *ensemble = calloc(1, sizeof(*ensemble));
    const struct model_config *config = model_version_config(version);
    const struct model_ensemble *graph = &config->ensemble;
    if (ensemble) {
        ensemble->config = config;
        ensemble->spec = model_version_spec(version);
        ensemble->repository = user;
        ensemble->output_tensors = calloc(config->n_outputs + 1, sizeof(*ensemble->output_tensors));
    }
    if (ensemble && graph->max_inflight_requests > 0) {
        ensemble->limits = calloc(graph->n_steps, sizeof(*ensemble->limits));
    }
    if (!ensemble || !ensemble->output_tensors ||
        (graph->max_inflight_requests > 0 && !ensemble->limits)) {
        if (ensemble) {
            free(ensemble->output_tensors);
            free(ensemble);
        }
        return error_no_memory(err, "the ensemble");
    }
    for (size_t i = 0; i < graph->n_tensors; i++) {
        if (graph->tensors[i].output != SIZE_MAX) {
            ensemble->output_tensors[graph->tensors[i].output] = i;
        }
    }
    for (size_t i = 0; ensemble->limits && i < graph->n_steps; i++) {
        limit_init(&ensemble->limits[i], graph->max_inflight_requests);
    }
    *state = ensemble;
    return ST_OK;
}

const struct ensemble_ops ensemble_ops = {
    .open = open_ensemble,
    .close = close_ensemble,
    .run = run_call,
    .cancel = cancel_call,
};
