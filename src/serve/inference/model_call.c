/* The life of a call: `start` copies what the backend has given, but for the tensors' bytes, and
 * posts a message to the worker, which starts the inference. Responses go to the backend on the
 * worker, and come back to it to be released. When all are released, the call has ended.
 *
 * References of a call: the backend's, and one until it has ended. */
#include "serve/inference/model_call.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/compiler.h"
#include "core/event/clock.h"
#include "serve/scheduler/backend.h"

/* What a worker's calls without a parent share. Thread: the worker's. */
struct model_calls_worker {
    struct worker *worker;
    struct net_budget *budget;
    struct memory_quota quota;
    struct memory_account *account; /* NULL: out of memory, and calls are refused */
    struct timer timer;             /* of quota */
    struct deferred_task task;      /* the same, at the end of the iteration */
};

/* In memory of its own, with its arrays; the last one in that of its call. */
struct response {
    sluice_call_response public;
    sluice_call *call;
    struct inner_response *inner;
    struct arena *arena; /* NULL: it has no arrays */
    struct worker_msg msg;
    bool last;
};

/* In its own arena, without a cache: any thread may free it. */
struct sluice_call {
    struct model_calls *all;
    struct arena *arena;
    struct worker *worker;
    struct inference *parent; /* NULL: none. Not used after the start */
    struct inner_inference *inference;
    struct memory_reservation inputs; /* their bytes */
    uint64_t input_bytes;
    struct worker_msg start_msg;
    atomic_size_t n_refs;
    void (*respond)(void *user, sluice_call_response *response);
    void (*ended)(void *user);
    void *user;
    /* of the worker */
    size_t n_unreleased;
    bool last_released;
    bool partial_lost; /* a response before the last was lost for lack of memory */
    struct response last;
};

/* ---- what is live ---------------------------------------------------------------------------- */

static void on_stopped(struct worker_msg *msg) {
    struct model_calls *self = CONTAINER_OF(msg, struct model_calls, stop_msg);
    self->stopped(self->user);
}

/* The lock is held. */
static void tell_stopped(struct model_calls *self) {
    if (self->n_live == 0 && self->stop_worker) {
        self->stop_msg = (struct worker_msg){.run = on_stopped};
        worker_post(self->stop_worker, &self->stop_msg);
    }
}

/* Returns: false when calls are not taken now. */
static bool add_live(struct model_calls *self, bool has_parent) {
    pthread_mutex_lock(&self->lock);
    bool taken = self->is_open && !self->stop_worker && (has_parent || !self->is_draining);
    self->n_live += taken;
    pthread_mutex_unlock(&self->lock);
    return taken;
}

static void remove_live(struct model_calls *self) {
    pthread_mutex_lock(&self->lock);
    self->n_live--;
    tell_stopped(self);
    pthread_mutex_unlock(&self->lock);
}

static sluice_status refuse(sluice_error *error) {
    (void)snprintf(error->text, sizeof(error->text),
                   "the server is starting or shutting down: models cannot be called now");
    return SLUICE_UNAVAILABLE;
}

static sluice_status no_memory(sluice_error *error) {
    (void)snprintf(error->text, sizeof(error->text), "out of memory for the call of a model");
    return SLUICE_NO_MEMORY;
}

/* Returns: what a backend knows of the reason. */
static sluice_status status_for_backend(enum status st) {
    if (st == ST_OK) {
        return SLUICE_OK;
    }
    if (st == ST_CANCELLED) {
        return SLUICE_CANCELLED;
    }
    if (st == ST_NO_MEMORY) {
        return SLUICE_NO_MEMORY;
    }
    if (st == ST_ALREADY_EXISTS) {
        return SLUICE_ALREADY_EXISTS;
    }
    if (st == ST_OUTPUT_TOO_LARGE) {
        return SLUICE_TOO_LARGE;
    }
    switch (status_http(st)) {
    case 404:
        return SLUICE_NOT_FOUND;
    case 501:
        return SLUICE_UNSUPPORTED;
    case 408: /* it took too long, here or there */
    case 429:
    case 503:
    case 504:
        return SLUICE_UNAVAILABLE;
    default:
        return status_http(st) < 500 ? SLUICE_INVALID_ARGUMENT : SLUICE_INTERNAL;
    }
}

/* ---- memory of calls without a parent -------------------------------------------------------- */

static void run_quota(struct model_calls_worker *own) {
    uint64_t due_ns = memory_quota_run(&own->quota, clock_now_ns());
    if (due_ns < UINT64_MAX) {
        timer_start(worker_timers(own->worker), &own->timer, due_ns);
    }
}

static void on_timer(struct timer *timer) {
    run_quota(CONTAINER_OF(timer, struct model_calls_worker, timer));
}

static bool on_task(struct deferred_task *task) {
    struct model_calls_worker *own = CONTAINER_OF(task, struct model_calls_worker, task);
    run_quota(own);
    return own->quota.scheduled;
}

static void on_schedule(void *user, uint64_t due_ns) {
    struct model_calls_worker *own = user;
    if (due_ns == 0) {
        loop_iteration_defer(worker_loop_iteration(own->worker), &own->task);
    } else {
        timer_start(worker_timers(own->worker), &own->timer, due_ns);
    }
}

static void on_relieve(void *user, uint64_t wanted) {
    const struct model_calls_worker *own = user;
    net_budget_relieve(own->budget, wanted);
}

/* Calls hold what backends need: none of it is given back early. */
static void relieve_none(struct net_budget_user *user) {
    (void)user;
}

/* Thread: any. */
static void add_use(const struct net_budget_user *user, struct net_budget_use *use) {
    const struct model_calls *self = CONTAINER_OF(user, struct model_calls, budget_user);
    for (size_t i = 0; i < self->n_workers; i++) {
        use->n_response_bytes +=
            atomic_load_explicit(&self->workers[i].quota.n_bytes, memory_order_relaxed);
    }
}

static void open_worker(void *arg) {
    struct model_calls_worker *own = arg;
    own->timer.on_expire = on_timer;
    own->task.run = on_task;
    memory_quota_init(&own->quota, &(struct memory_quota_options){.budget = own->budget,
                                                                  .now_ns = clock_now_ns,
                                                                  .schedule = on_schedule,
                                                                  .relieve = on_relieve,
                                                                  .user = own});
    own->account = memory_account_new(&own->quota, NULL);
}

static void close_worker(void *arg) {
    struct model_calls_worker *own = arg;
    memory_account_close(own->account);
    memory_quota_fini(&own->quota);
    timer_stop(worker_timers(own->worker), &own->timer);
}

/* ---- the end of a call ----------------------------------------------------------------------- */

static void call_unref(sluice_call *call) {
    if (atomic_fetch_sub_explicit(&call->n_refs, 1, memory_order_acq_rel) == 1) {
        struct model_calls *all = call->all;
        inner_inference_unref(call->inference);
        arena_free(call->arena); /* `call`, too */
        remove_live(all);
    }
}

/* Thread: the worker's. */
static void end_if_done(sluice_call *call) {
    if (call->last_released && call->n_unreleased == 0) {
        memory_release(&call->inputs, false);
        call->ended(call->user);
        call_unref(call);
    }
}

/* Thread: the worker's. */
static void release(struct response *response) {
    sluice_call *call = response->call;
    inner_response_release(response->inner);
    call->n_unreleased--;
    call->last_released = call->last_released || response->last;
    arena_free(response->arena); /* `response`, too */
    end_if_done(call);
}

static void on_release(struct worker_msg *msg) {
    release(CONTAINER_OF(msg, struct response, msg));
}

static void release_response(sluice_call_response *public) {
    struct response *response = CONTAINER_OF(public, struct response, public);
    struct worker *worker = response->call->worker;
    if (worker_is_current(worker)) {
        release(response);
        return;
    }
    response->msg = (struct worker_msg){.run = on_release};
    worker_post(worker, &response->msg);
}

/* ---- responses ------------------------------------------------------------------------------- */

static bool fill_output(struct arena *arena, const struct tensor *tensor, sluice_input *out) {
    struct str name = arena_dup(arena, tensor->name);
    sluice_piece *pieces = arena_calloc(arena, tensor->n_pieces, sizeof(*pieces));
    if (!name.ptr || !pieces) {
        return false;
    }
    for (size_t i = 0; i < tensor->n_pieces; i++) {
        pieces[i] = (sluice_piece){tensor->pieces[i].data, tensor->pieces[i].n_bytes};
    }
    *out = (sluice_input){.datatype = (sluice_datatype)tensor->datatype,
                          .name = name.ptr,
                          .dims = tensor->shape.dims,
                          .rank = tensor->shape.rank,
                          .n_bytes = tensor->n_bytes,
                          .pieces = pieces,
                          .n_pieces = tensor->n_pieces};
    return true;
}

static bool fill_response_params(struct response *response, struct params params) {
    sluice_param *items = arena_calloc(response->arena, params.n, sizeof(*items));
    for (size_t i = 0; items && i < params.n; i++) {
        if (!backend_param_fill(response->arena, &params.items[i], &items[i])) {
            return false;
        }
    }
    response->public.params = items;
    response->public.n_params = params.n;
    return items != NULL;
}

/* Returns: false when out of memory. */
static bool fill_response(struct response *response, const struct infer_response *from) {
    sluice_input *outputs = arena_calloc(response->arena, from->n_outputs, sizeof(*outputs));
    if (from->error.status != ST_OK) {
        response->public.status = status_for_backend(from->error.status);
        response->public.error = from->error.text;
        return true;
    }
    for (size_t i = 0; outputs && i < from->n_outputs; i++) {
        if (!fill_output(response->arena, &from->outputs[i], &outputs[i])) {
            return false;
        }
    }
    response->public.outputs = outputs;
    response->public.n_outputs = from->n_outputs;
    return outputs && fill_response_params(response, from->params);
}

static void set_no_memory(struct response *response) {
    response->public.status = SLUICE_NO_MEMORY;
    response->public.error = "out of memory for a response of the model that is called";
    response->public.n_outputs = response->public.n_params = 0;
}

/* Returns: NULL when out of memory for a response before the last. */
static struct response *response_new(sluice_call *call, struct inner_response *inner) {
    struct arena *arena = arena_new(NULL, 0);
    struct response *response = &call->last;
    if (!inner->last) {
        response = arena ? arena_calloc(arena, 1, sizeof(*response)) : NULL;
    }
    if (response) {
        *response =
            (struct response){.call = call, .inner = inner, .arena = arena, .last = inner->last};
        response->public.size = sizeof(response->public);
        response->public.final = inner->last;
    }
    if (response && (!arena || call->partial_lost || !fill_response(response, inner->response))) {
        if (!inner->last) {
            response = NULL;
        } else {
            set_no_memory(response);
        }
    }
    if (!response) {
        arena_free(arena);
    }
    return response;
}

/* Thread: the worker's. */
static void on_response(struct inner_response *inner, void *user) {
    sluice_call *call = user;
    struct response *response = response_new(call, inner);
    if (!response) { /* the others would be of no use */
        call->partial_lost = true;
        inner_response_release(inner);
        inner_inference_cancel(call->inference);
        return;
    }
    call->n_unreleased++;
    call->respond(call->user, &response->public);
}

/* ---- starting -------------------------------------------------------------------------------- */

static struct str dup_text(struct arena *arena, const char *text) {
    return arena_dup(arena, str_of(text));
}

static bool copy_input(struct arena *arena, const sluice_input *from, struct infer_input *to) {
    int64_t *dims = arena_alloc_array(arena, from->rank, sizeof(*dims));
    struct piece *pieces = arena_alloc_array(arena, from->n_pieces, sizeof(*pieces));
    struct str name = dup_text(arena, from->name);
    if (!dims || !pieces || !name.ptr) {
        return false;
    }
    for (size_t i = 0; i < from->rank; i++) {
        dims[i] = from->dims[i];
    }
    for (size_t i = 0; i < from->n_pieces; i++) {
        pieces[i] = (struct piece){from->pieces[i].data, from->pieces[i].n_bytes};
    }
    to->tensor = (struct tensor){.name = name,
                                 .datatype = (enum datatype)from->datatype,
                                 .shape = {dims, from->rank},
                                 .pieces = pieces,
                                 .n_pieces = from->n_pieces,
                                 .n_bytes = from->n_bytes};
    return true;
}

static bool copy_inputs(sluice_call *call, const sluice_call_args *args,
                        struct inner_options *options) {
    struct infer_input *inputs = arena_calloc(call->arena, args->n_inputs, sizeof(*inputs));
    for (size_t i = 0; inputs && i < args->n_inputs; i++) {
        if (!copy_input(call->arena, &args->inputs[i], &inputs[i])) {
            return false;
        }
        call->input_bytes += args->inputs[i].n_bytes;
    }
    options->inputs = inputs;
    options->n_inputs = args->n_inputs;
    return inputs != NULL;
}

static bool copy_wanted(sluice_call *call, const sluice_call_args *args,
                        struct inner_options *options) {
    struct infer_requested_output *wanted =
        arena_calloc(call->arena, args->n_wanted, sizeof(*wanted));
    for (size_t i = 0; wanted && i < args->n_wanted; i++) {
        wanted[i].name = dup_text(call->arena, args->wanted[i]);
        if (!wanted[i].name.ptr) {
            return false;
        }
    }
    options->wanted = wanted;
    options->n_wanted = args->n_wanted;
    return wanted != NULL;
}

enum { OWN_PARAMS = 4 }; /* sequence_id, sequence_start, sequence_end, timeout */

/* Returns: false when out of memory. */
static bool add_sequence_id(sluice_call *call, const sluice_call_args *args, struct param *items,
                            size_t *n) {
    struct param id = {.name = STR("sequence_id"), .kind = PARAM_STRING};
    if (args->sequence_name && args->sequence_name[0] != '\0') {
        id.string = dup_text(call->arena, args->sequence_name);
        if (!id.string.ptr) {
            return false;
        }
    } else if (args->sequence_id > 0) {
        id.kind = args->sequence_id > INT64_MAX ? PARAM_UINT64 : PARAM_INT64;
        id.int64 = (int64_t)args->sequence_id;
        id.uint64 = args->sequence_id;
    } else {
        return true;
    }
    items[(*n)++] = id;
    return true;
}

static void add_flag(struct str name, bool is_set, struct param *items, size_t *n) {
    if (is_set) {
        items[(*n)++] = (struct param){.name = name, .kind = PARAM_BOOL, .boolean = true};
    }
}

/* What the host interprets comes from members of `args` alone, and not from parameters. */
static bool copy_params(sluice_call *call, const sluice_call_args *args,
                        struct inner_options *options) {
    struct param *items = arena_calloc(call->arena, args->n_params + OWN_PARAMS, sizeof(*items));
    size_t n = 0;
    if (!items || !add_sequence_id(call, args, items, &n)) {
        return false;
    }
    add_flag(STR("sequence_start"), args->sequence_flags & SLUICE_SEQUENCE_START, items, &n);
    add_flag(STR("sequence_end"), args->sequence_flags & SLUICE_SEQUENCE_END, items, &n);
    if (args->timeout_us > 0 && args->timeout_us <= INT64_MAX) {
        items[n++] = (struct param){
            .name = STR("timeout"), .kind = PARAM_INT64, .int64 = (int64_t)args->timeout_us};
    }
    for (size_t i = 0; i < args->n_params; i++) {
        const sluice_param *from = &args->params[i];
        if (!param_is_reserved(str_make(from->name, from->name_bytes)) &&
            !backend_param_copy(call->arena, from, &items[n++])) {
            return false;
        }
    }
    options->params = (struct params){items, n};
    return true;
}

static bool copy_texts(sluice_call *call, const sluice_call_args *args,
                       struct inner_options *options) {
    options->model = dup_text(call->arena, args->model);
    options->version = dup_text(call->arena, args->version);
    options->id = dup_text(call->arena, args->id);
    return options->model.ptr && options->version.ptr && options->id.ptr;
}

/* Returns: when it is over, `timeout_us` from now; 0: never. */
static uint64_t deadline_of(uint64_t timeout_us) {
    uint64_t now_ns = clock_now_ns();
    return timeout_us > 0 && timeout_us < (UINT64_MAX - now_ns) / 1000 ? now_ns + timeout_us * 1000
                                                                       : 0;
}

/* Returns: the parent's, unless the call has one of its own. */
static uint64_t priority_of(const sluice_call_args *args) {
    return args->priority > 0 || !args->parent ? args->priority : args->parent->priority;
}

/* Thread: the worker's. */
static void on_start(struct worker_msg *msg) {
    sluice_call *call = CONTAINER_OF(msg, struct sluice_call, start_msg);
    struct inference *parent = call->parent;
    struct memory_account *account = inner_inference_base(call->inference)->account;
    /* Also so that the account outlives the parent. */
    if (account && (!parent || parent->state == INFERENCE_RUNNING)) {
        memory_hold(account, &call->inputs, call->input_bytes);
    }
    call->parent = NULL;
    inner_inference_start(call->inference);
}

static struct model_calls_worker *next_worker(struct model_calls *self) {
    size_t i = atomic_fetch_add_explicit(&self->next, 1, memory_order_relaxed);
    return &self->workers[i % self->n_workers];
}

static sluice_status call_new(struct model_calls *self, const sluice_call_args *args,
                              sluice_call **out, sluice_error *error) {
    struct arena *arena = arena_new(NULL, 0);
    sluice_call *call = arena ? arena_calloc(arena, 1, sizeof(*call)) : NULL;
    struct error err;
    if (!call) {
        arena_free(arena);
        return no_memory(error);
    }
    call->all = self;
    call->arena = arena;
    call->respond = args->respond;
    call->ended = args->ended;
    call->user = args->user;
    call->parent = args->parent ? inference_of_request(args->parent) : NULL;
    atomic_init(&call->n_refs, 2);
    struct inner_options options = {.services = &self->services,
                                    .parent = call->parent,
                                    .priority = priority_of(args),
                                    .deadline_ns = deadline_of(args->timeout_us),
                                    .carries_one = args->takes_many ? NULL : args->why,
                                    .holds_instance = args->waits != 0,
                                    .respond = on_response,
                                    .user = call};
    if (!call->parent) {
        const struct model_calls_worker *own = next_worker(self);
        options.worker = own->worker;
        options.account = own->account;
    }
    bool copied = copy_texts(call, args, &options) && copy_inputs(call, args, &options) &&
                  copy_wanted(call, args, &options) && copy_params(call, args, &options);
    enum status st = copied ? inner_inference_new(&options, &call->inference, &err)
                            : error_no_memory(&err, "the call of a model");
    if (st != ST_OK) {
        (void)snprintf(error->text, sizeof(error->text), "%.500s", err.text);
        arena_free(arena);
        return status_for_backend(st);
    }
    call->worker = inner_inference_base(call->inference)->call.worker;
    *out = call;
    return SLUICE_OK;
}

static struct model_calls *all_of(const sluice_calls *table) {
    return (struct model_calls *)CONTAINER_OF(table, struct model_calls, table);
}

static sluice_status start_call(const sluice_calls *table, const sluice_call_args *args,
                                sluice_call **out, sluice_error *error) {
    struct model_calls *self = all_of(table);
    *out = NULL;
    if (!add_live(self, args->parent != NULL)) {
        return refuse(error);
    }
    sluice_call *call = NULL;
    sluice_status status = call_new(self, args, &call, error);
    if (!call) { /* it failed */
        remove_live(self);
        return status;
    }
    *out = call;
    call->start_msg = (struct worker_msg){.run = on_start};
    worker_post(call->worker, &call->start_msg);
    return SLUICE_OK;
}

static void cancel_call(sluice_call *call) {
    inner_inference_cancel(call->inference);
}

/* ---- models ---------------------------------------------------------------------------------- */

static int is_ready(const sluice_calls *table, const char *model, const char *version_text) {
    struct model_calls *self = all_of(table);
    struct model_version *version;
    struct error err;
    struct str text = version_text[0] ? str_of(version_text) : str_make(NULL, 0);
    if (!add_live(self, true)) {
        return 0;
    }
    bool ready = repository_find_locked(self->services.repository, str_of(model), text, &version,
                                        &err) == ST_OK;
    if (ready) {
        ready = model_version_is_ready(version);
        model_version_unref(version);
    }
    remove_live(self);
    return ready;
}

struct change {
    struct repository_change base;
    struct model_calls *all;
    struct arena *arena;
    void (*done)(void *user, sluice_status status, const char *error);
    void *user;
};

static void on_changed(struct repository_change *base) {
    struct change *change = CONTAINER_OF(base, struct change, base);
    struct model_calls *all = change->all;
    change->done(change->user, status_for_backend(base->error.status), base->error.text);
    arena_free(change->arena); /* `change`, too */
    remove_live(all);
}

/* Returns: false when out of memory. */
static bool copy_files(struct change *change, const sluice_model_change *from) {
    struct repository_file *files = arena_calloc(change->arena, from->n_files, sizeof(*files));
    for (size_t i = 0; files && i < from->n_files; i++) {
        files[i].path = dup_text(change->arena, from->files[i].path);
        files[i].data =
            arena_dup(change->arena, str_make(from->files[i].data, from->files[i].n_bytes));
        if (!files[i].path.ptr || !files[i].data.ptr) {
            return false;
        }
    }
    change->base.files = files;
    change->base.n_files = from->n_files;
    return files != NULL;
}

/* Returns: NULL when out of memory. */
static struct change *change_new(struct model_calls *self, const sluice_model_change *from) {
    struct arena *arena = arena_new(NULL, 0);
    struct change *change = arena ? arena_calloc(arena, 1, sizeof(*change)) : NULL;
    if (!change) {
        arena_free(arena);
        return NULL;
    }
    change->all = self;
    change->arena = arena;
    change->done = from->done;
    change->user = from->user;
    change->base = (struct repository_change){
        .action = from->action == SLUICE_MODEL_LOAD ? REPOSITORY_LOAD : REPOSITORY_UNLOAD,
        .model = dup_text(arena, from->model),
        .config = from->config ? dup_text(arena, from->config) : str_make(NULL, 0),
        .unload_dependents = from->unload_dependents != 0,
        .worker = next_worker(self)->worker,
        .done = on_changed};
    if (!change->base.model.ptr || (from->config && !change->base.config.ptr) ||
        !copy_files(change, from)) {
        arena_free(arena);
        return NULL;
    }
    return change;
}

static sluice_status change_model(const sluice_calls *table, const sluice_model_change *from,
                                  sluice_error *error) {
    struct model_calls *self = all_of(table);
    if (!add_live(self, false)) {
        return refuse(error);
    }
    struct change *change = change_new(self, from);
    if (!change) {
        remove_live(self);
        return no_memory(error);
    }
    repository_change(self->services.repository, &change->base);
    return SLUICE_OK;
}

/* ---- life ------------------------------------------------------------------------------------ */

void model_calls_init(struct model_calls *self) {
    *self = (struct model_calls){.table = {.size = sizeof(self->table),
                                           .start = start_call,
                                           .cancel = cancel_call,
                                           .unref = call_unref,
                                           .release = release_response,
                                           .is_ready = is_ready,
                                           .change = change_model}};
    pthread_mutex_init(&self->lock, NULL);
}

enum status model_calls_open(struct model_calls *self, const struct model_calls_options *options,
                             struct error *err) {
    struct model_calls_worker *workers = calloc(options->n_workers, sizeof(*workers));
    if (!workers) {
        return error_no_memory(err, "calls of models by models");
    }
    self->services = options->services;
    self->budget = options->budget;
    self->budget_user =
        (struct net_budget_user){.protocol = "calls", .relieve = relieve_none, .add_use = add_use};
    self->workers = workers;
    self->n_workers = options->n_workers;
    for (size_t i = 0; i < options->n_workers; i++) {
        workers[i].worker = options->workers[i];
        workers[i].budget = options->budget;
        worker_call(workers[i].worker, open_worker, &workers[i]);
        if (!workers[i].account) {
            self->n_workers = i + 1;
            model_calls_close(self);
            return error_no_memory(err, "calls of models by models");
        }
    }
    net_budget_add_user(self->budget, &self->budget_user);
    pthread_mutex_lock(&self->lock);
    self->is_open = true;
    pthread_mutex_unlock(&self->lock);
    return ST_OK;
}

void model_calls_drain(struct model_calls *self) {
    pthread_mutex_lock(&self->lock);
    self->is_draining = true;
    pthread_mutex_unlock(&self->lock);
}

size_t model_calls_count(struct model_calls *self) {
    pthread_mutex_lock(&self->lock);
    size_t n = self->n_live;
    pthread_mutex_unlock(&self->lock);
    return n;
}

void model_calls_stop(struct model_calls *self, struct worker *worker, void (*stopped)(void *user),
                      void *user) {
    pthread_mutex_lock(&self->lock);
    assert(!self->stop_worker);
    self->stopped = stopped;
    self->user = user;
    self->stop_worker = worker;
    tell_stopped(self);
    pthread_mutex_unlock(&self->lock);
}

void model_calls_close(struct model_calls *self) {
    if (!self->budget) {
        return;
    }
    net_budget_remove_user(self->budget, &self->budget_user);
    self->budget = NULL;
    for (size_t i = 0; i < self->n_workers; i++) {
        worker_call(self->workers[i].worker, close_worker, &self->workers[i]);
    }
}

void model_calls_fini(struct model_calls *self) {
    assert(!self->budget && self->n_live == 0);
    free(self->workers); /* until then a page may be printed */
    pthread_mutex_destroy(&self->lock);
}
