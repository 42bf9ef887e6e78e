/* Trace settings, the traces of requests, and the writer thread. Settings are few, so that a lookup
 * is a linear search; it takes the lock, but only while some setting has tracing on. A trace has an
 * arena of its own, which is handed to the writer thread with it; tensor bytes are copied, because
 * the request may have ended when they are written. */
#include "serve/trace/tracer.h"

#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "codec/trace/trace_record.h"
#include "core/base/checked.h"
#include "core/base/compiler.h"
#include "core/base/log.h"
#include "core/base/metric/metric.h"
#include "core/base/random.h"
#include "core/event/clock.h"
#include "core/event/lock.h"
#include "core/event/worker.h"
#include "core/tensor/tensor.h"
#include "serve/trace/trace.h"
#include "telemetry/trace/file.h"

enum { N_COLLECTOR_OPTIONS = 5 };

enum {
    TRACE_MAX_QUEUED = 8192,
    TRACE_MAX_TENSOR_BYTES = 64 * 1024 * 1024, /* tensor bytes in traces that are not written yet */
    TRACE_MAX_TEXT_BYTES = 16 * 1024 * 1024,   /* buffered text of one file */
};

/* One generation of settings. A change makes a new generation; the old one is freed when the last
 * trace that was sampled under it has been written. */
struct trace_setting {
    struct v2_trace_values values; /* count: traces still to sample */
    bool is_set[V2_TRACE_KEYS];    /* set here, not inherited */
    bool replaced;
    char *model;         /* NULL: the server's */
    uint64_t n_requests; /* requests seen under this generation */
    size_t n_unwritten;  /* traces that are neither written nor dropped */
    LIST_ENTRY(trace_setting) link;
    /* used by the writer only */
    struct arena *arena; /* of `text`; NULL: no text buffered */
    struct buf text;     /* traces buffered for the next file */
    uint64_t n_buffered;
};

STAILQ_HEAD(trace_queue, trace);

struct tracer_core {
    struct tracer *tracer;
    struct lock lock;
    struct v2_trace_values defaults; /* the server settings' defaults */
    struct trace_setting *server;
    LIST_HEAD(, trace_setting) settings; /* all generations, replaced ones included */
    struct trace_queue queue;            /* ended traces, not yet written */
    size_t n_queued;
    size_t n_bytes; /* of copied tensors in traces that are not written yet */
    uint64_t last_id;
    struct prng prng; /* of the ids for a collector */
    bool posted;      /* a wake-up message is on its way to the writer */
    bool ending;
    struct worker_msg msg;
    struct worker *writer;          /* NULL: no file and no collector */
    struct trace_file file;         /* used by the writer only */
    struct trace_export *collector; /* instead of the file; used by the writer only */
    struct arena *shown_arena;
    struct v2_trace_option *shown; /* the collector options that the extension reports */
    size_t n_shown;
};

/* Lives in its own arena. */
struct trace {
    struct trace_record record;
    struct trace_tensor *tensors; /* backs record.tensors */
    struct tracer_core *core;
    struct trace_setting *setting; /* the generation it was sampled under */
    uint32_t level;
    struct arena *arena;
    size_t n_bytes;  /* of copied tensors */
    bool incomplete; /* out of memory for a part: the trace is dropped */
    bool is_ensemble;
    struct otlp_ids ids; /* with a collector */
    STAILQ_ENTRY(trace) link;
};

static void trace_free(struct trace *trace) {
    struct tracer_core *core = trace->core;
    lock_acquire(&core->lock);
    core->n_bytes -= trace->n_bytes;
    lock_release(&core->lock);
    arena_free(trace->arena);
}

static void setting_free(struct trace_setting *setting) {
    arena_free(setting->arena);
    free(setting->model);
    free(setting);
}

/* Unlinks and frees the setting. The lock is held. */
static void remove_setting(struct tracer_core *core, struct trace_setting *setting) {
    lock_assert_held(&core->lock);
    LIST_REMOVE(setting, link);
    setting_free(setting);
}

/* ---- the writer: files ----------------------------------------------------------------------- */

static bool is_buffered(const struct trace_setting *setting) {
    return setting->values.log_frequency > 0 || setting->values.count >= 0;
}

/* Writes the buffered traces: to the next numbered file, or appended to the main one. */
static void write_buffered(struct tracer_core *core, struct trace_setting *setting, bool numbered) {
    if (setting->n_buffered > 0) {
        struct str text = buf_str(&setting->text);
        if (numbered) {
            trace_file_write_next(&core->file, text, setting->n_buffered);
        } else {
            trace_file_append(&core->file, text, setting->n_buffered);
        }
    }
    arena_free(setting->arena);
    setting->arena = NULL;
    setting->n_buffered = 0;
}

static void buffer_trace(struct tracer_core *core, struct trace *trace) {
    struct trace_setting *setting = trace->setting;
    struct buf text;
    buf_init(&text, trace->arena, 2048);
    trace_record_print(&text, &trace->record, trace->level & V2_TRACE_TIMESTAMPS);
    if (!setting->arena && (setting->arena = arena_new(NULL, 0))) {
        buf_init(&setting->text, setting->arena, 0);
    }
    bool fits = !text.failed && setting->arena;
    size_t before = setting->text.len;
    if (fits) {
        if (setting->n_buffered > 0) {
            buf_add_char(&setting->text, ',');
        }
        buf_add_str(&setting->text, buf_str(&text));
        fits = !setting->text.failed;
    }
    if (!fits) {
        metric_add(METRIC_TRACES_DROPPED, 1);
        if (setting->arena) {
            setting->text.len = before;
            setting->text.failed = false;
        }
        return;
    }
    setting->n_buffered++;
    uint32_t frequency = setting->values.log_frequency; /* constant during a generation */
    if (frequency > 0 && setting->n_buffered >= frequency) {
        write_buffered(core, setting, true);
    } else if (setting->text.len >= TRACE_MAX_TEXT_BYTES) {
        write_buffered(core, setting, frequency > 0);
    }
}

/* ---- the writer: the queue ------------------------------------------------------------------- */

static void write_queue(struct tracer_core *core) {
    struct trace_queue traces;
    struct trace *trace;
    lock_acquire(&core->lock);
    STAILQ_INIT(&traces);
    STAILQ_CONCAT(&traces, &core->queue);
    core->n_queued = 0;
    core->posted = false;
    lock_release(&core->lock);
    while ((trace = STAILQ_FIRST(&traces))) {
        STAILQ_REMOVE_HEAD(&traces, link);
        if (core->collector) {
            trace_export_add(core->collector, &trace->record, &trace->ids);
        } else {
            buffer_trace(core, trace);
        }
        lock_acquire(&core->lock);
        trace->setting->n_unwritten--;
        lock_release(&core->lock);
        trace_free(trace);
    }
}

/* What a generation has to write: nothing, an append to the main file, or a numbered file. The lock
 * is held. */
enum due { NOT_DUE, DUE_APPEND, DUE_NUMBERED };

static enum due setting_due(const struct tracer_core *core, const struct trace_setting *setting) {
    bool over = setting->n_unwritten == 0 && (setting->replaced || core->ending);
    if (setting->n_buffered == 0) {
        return NOT_DUE;
    }
    if (!is_buffered(setting)) {
        return DUE_APPEND;
    }
    if (setting->values.count == 0 && setting->n_unwritten == 0) {
        return DUE_NUMBERED; /* Clause: trace extension, trace_count: regardless of log_frequency */
    }
    return !over ? NOT_DUE : setting->values.log_frequency > 0 ? DUE_NUMBERED : DUE_APPEND;
}

/* Returns: the next generation with text to write; NULL: none. Replaced generations without
 * unwritten traces are freed on the way. */
static struct trace_setting *next_due(struct tracer_core *core, enum due *due) {
    struct trace_setting *at = LIST_FIRST(&core->settings), *next;
    for (; at; at = next) {
        next = LIST_NEXT(at, link);
        *due = setting_due(core, at);
        if (*due != NOT_DUE) {
            return at;
        }
        if (at->replaced && at->n_unwritten == 0) {
            remove_setting(core, at);
        }
    }
    return NULL;
}

static void write_due_files(struct tracer_core *core) {
    enum due due;
    for (;;) {
        lock_acquire(&core->lock);
        struct trace_setting *setting = next_due(core, &due);
        lock_release(&core->lock);
        if (!setting) { /* stays valid: freed by this thread only */
            return;
        }
        write_buffered(core, setting, due == DUE_NUMBERED);
    }
}

/* ---- the writer: the thread ------------------------------------------------------------------ */

static void on_sent(void *user) {
    struct tracer_core *core = user;
    worker_stop(core->writer);
}

static void on_wake(struct worker_msg *msg) {
    struct tracer_core *core = CONTAINER_OF(msg, struct tracer_core, msg);
    write_queue(core);
    write_due_files(core);
    lock_acquire(&core->lock);
    bool ending = core->ending;
    lock_release(&core->lock);
    if (ending && core->collector) {
        trace_export_stop(core->collector, on_sent, core);
    } else if (ending) {
        worker_stop(core->writer);
    }
}

static void wake_writer(struct tracer_core *core) {
    lock_assert_held(&core->lock);
    if (!core->posted && core->writer) {
        core->posted = true;
        worker_post(core->writer, &core->msg);
    }
}

static enum status writer_start(struct tracer_core *core,
                                const struct trace_export_options *collector, struct error *err) {
    struct worker *writer;
    core->msg.run = on_wake;
    enum status st = worker_new("traces", &writer, err);
    if (st != ST_OK) {
        return st;
    }
    if (collector) {
        st = trace_export_new(writer, collector, &core->collector, err);
    }
    if (st == ST_OK) {
        st = worker_start(writer, err);
    }
    if (st == ST_OK) {
        core->writer = writer;
    } else {
        worker_free(writer);
    }
    return st;
}

static void writer_stop(struct tracer_core *core) {
    if (!core->writer) {
        return;
    }
    lock_acquire(&core->lock);
    core->ending = true;
    wake_writer(core);
    lock_release(&core->lock);
    worker_join(core->writer);
    worker_free(core->writer);
    core->writer = NULL;
    trace_export_free(core->collector);
    core->collector = NULL;
    trace_file_close(&core->file);
}

/* ---- settings: lookup ------------------------------------------------------------------------ */

/* The model's own settings. Returns: NULL when it has none. */
static struct trace_setting *find_model_setting(const struct tracer_core *core, struct str model) {
    struct trace_setting *at;
    LIST_FOREACH(at, &core->settings, link) {
        if (!at->replaced && at->model && str_eq(str_of(at->model), model)) {
            return at;
        }
    }
    return NULL;
}

static struct trace_setting *find_setting(struct tracer_core *core, struct str model) {
    lock_assert_held(&core->lock);
    struct trace_setting *own = model.len > 0 ? find_model_setting(core, model) : NULL;
    return own ? own : core->server;
}

/* With a collector, a caller's traceparent may request a trace at rate 0. */
static bool is_tracing(const struct tracer_core *core, const struct trace_setting *setting) {
    return setting->values.level != 0 && (setting->values.rate > 0 || core->collector);
}

static void update_is_on(struct tracer_core *core) {
    bool on = false;
    const struct trace_setting *at;
    LIST_FOREACH(at, &core->settings, link) {
        on = on || (!at->replaced && is_tracing(core, at));
    }
    atomic_store_explicit(&core->tracer->on, on, memory_order_relaxed);
}

/* ---- settings: changes ----------------------------------------------------------------------- */

static enum status check_setting(const struct tracer_core *core,
                                 const struct trace_setting *setting, struct error *err) {
    if (setting->values.level == 0) {
        return ST_OK;
    }
    if (!core->writer) {
        return error_set(err, ST_BAD_FIELD,
                         "trace_level: there is no file for traces (--trace-config "
                         "triton,file=FILE)");
    }
    if (core->collector) {
        return setting->values.level & V2_TRACE_TENSORS
                   ? error_set(err, ST_BAD_FIELD, "trace_level: a collector takes no TENSORS")
                   : ST_OK;
    }
    return setting->values.rate > 0
               ? ST_OK
               : error_set(err, ST_BAD_FIELD, "trace_rate: expected at least 1");
}

/* Copies the value of one key. */
static void copy_value(enum v2_trace_key key, const struct v2_trace_values *from,
                       struct v2_trace_values *to) {
    switch (key) {
    case V2_TRACE_LEVEL:
        to->level = from->level;
        break;
    case V2_TRACE_RATE:
        to->rate = from->rate;
        break;
    case V2_TRACE_COUNT:
        to->count = from->count;
        break;
    case V2_TRACE_FREQUENCY:
        to->log_frequency = from->log_frequency;
        break;
    case V2_TRACE_FILE:
    case V2_TRACE_KEYS:
        break;
    }
}

/* Computes the settings after a change: the new value, else the previous one, else the fallback.
 * Returns: whether any value is the own one. */
static bool merge_settings(const struct trace_setting *before, const struct v2_trace_update *wanted,
                           const struct v2_trace_values *fallback, struct trace_setting *out) {
    bool any = false;
    out->values = *fallback;
    for (size_t i = 0; i < V2_TRACE_KEYS; i++) {
        enum v2_trace_key key = (enum v2_trace_key)i;
        bool set = wanted->change[i] == V2_TRACE_SET;
        bool had = before && before->is_set[i] && wanted->change[i] != V2_TRACE_CLEAR;
        out->is_set[i] = set || had;
        any = any || out->is_set[i];
        if (set) {
            copy_value(key, &wanted->values, &out->values);
        } else if (had) {
            copy_value(key, &before->values, &out->values);
        }
    }
    return any;
}

/* Retires a generation (NULL: none). The writer frees it when its traces are written. */
static void retire_setting(struct tracer_core *core, struct trace_setting *setting) {
    if (setting && core->writer) {
        setting->replaced = true;
        wake_writer(core);
    } else if (setting) {
        remove_setting(core, setting);
    }
}

static struct trace_setting *setting_new(const struct trace_setting *like, struct str model) {
    struct trace_setting *setting = calloc(1, sizeof(*setting));
    if (!setting) {
        return NULL;
    }
    *setting = *like;
    if (model.len > 0) {
        setting->model = str_dup(model);
        if (!setting->model) {
            free(setting);
            return NULL;
        }
    }
    return setting;
}

static enum status change_setting(struct tracer_core *core, struct str model,
                                  const struct v2_trace_update *wanted, bool checked,
                                  struct error *err) {
    struct trace_setting *before = model.len > 0 ? find_model_setting(core, model) : core->server;
    struct trace_setting made = {.model = NULL};
    bool any = merge_settings(before, wanted,
                              model.len > 0 ? &core->server->values : &core->defaults, &made);
    if (model.len > 0 && !any) {
        retire_setting(core, before);
        return ST_OK;
    }
    enum status st = checked ? check_setting(core, &made, err) : ST_OK;
    struct trace_setting *setting = st == ST_OK ? setting_new(&made, model) : NULL;
    if (st == ST_OK && !setting) {
        st = error_no_memory(err, "trace settings");
    }
    if (st == ST_OK) {
        LIST_INSERT_HEAD(&core->settings, setting, link);
        if (!setting->model) {
            core->server = setting;
        }
        retire_setting(core, before);
    }
    return st;
}

/* The server settings changed: models inherit the values that they have not set. */
static enum status update_model_settings(struct tracer_core *core, struct error *err) {
    static const struct v2_trace_update nothing = {.model = {NULL, 0}};
    enum status st = ST_OK;
    struct trace_setting *next;
    for (struct trace_setting *at = LIST_FIRST(&core->settings); at && st == ST_OK; at = next) {
        next = LIST_NEXT(at, link); /* new generations are linked at the front */
        if (at->model && !at->replaced) {
            st = change_setting(core, str_of(at->model), &nothing, false, err);
        }
    }
    return st;
}

static bool changes_anything(const struct v2_trace_update *wanted) {
    for (size_t i = 0; i < V2_TRACE_KEYS; i++) {
        if (wanted->change[i] != V2_TRACE_KEEP) {
            return true;
        }
    }
    return false;
}

enum status tracer_change_settings(struct tracer *tracer, struct str model,
                                   const struct v2_trace_update *wanted, struct error *err) {
    struct tracer_core *core = tracer->core;
    if (!changes_anything(wanted)) {
        return ST_OK;
    }
    lock_acquire(&core->lock);
    enum status st = change_setting(core, model, wanted, true, err);
    if (st == ST_OK && model.len == 0) {
        st = update_model_settings(core, err);
    }
    update_is_on(core);
    lock_release(&core->lock);
    if (st == ST_OK) {
        struct v2_trace_settings now = tracer_get_settings(tracer, model);
        log_event(LOG_INFO, "trace settings changed", LOG_STR("model", model),
                  LOG_U64("timestamps", (now.values.level & V2_TRACE_TIMESTAMPS) != 0),
                  LOG_U64("tensors", (now.values.level & V2_TRACE_TENSORS) != 0),
                  LOG_U64("rate", now.values.rate), LOG_I64("count", now.values.count));
    }
    return st;
}

struct v2_trace_settings tracer_get_settings(struct tracer *tracer, struct str model) {
    struct tracer_core *core = tracer->core;
    lock_acquire(&core->lock);
    struct v2_trace_settings shown = {.values = find_setting(core, model)->values,
                                      .opentelemetry = core->collector != NULL,
                                      .file = core->file.path ? core->file.path : "",
                                      .options = core->shown,
                                      .n_options = core->n_shown};
    lock_release(&core->lock);
    return shown;
}

enum status trace_model_check(struct repository *repository, struct str model, struct error *err) {
    struct model_version *version = NULL;
    if (model.len == 0) {
        return ST_OK;
    }
    enum status st = repository_find(repository, model, str_make(NULL, 0), &version, err);
    if (st == ST_OK) {
        model_version_unref(version);
    }
    if (st == ST_UNKNOWN_MODEL) { /* here the reference server writes it so, and clients compare */
        return error_set(err, st, "Request for unknown model : %.*s", STR_ARG(model));
    }
    return st == ST_NOT_READY ? (err->status = ST_BAD_REQUEST) : st;
}

/* ---- sampling and ending a trace ------------------------------------------------------------- */

/* Clause: trace extension, trace_rate and trace_count. A sampled flag of the caller (`parent`)
 * takes precedence; NULL: there is none. */
static bool is_sampled(struct trace_setting *setting, const struct traceparent *parent) {
    struct v2_trace_values *values = &setting->values;
    if (values->level > 0 && parent) {
        return parent->sampled;
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
    struct arena *arena = arena_new(NULL, 0); /* freed on the writer thread */
    struct trace *trace = arena ? arena_calloc(arena, 1, sizeof(*trace)) : NULL;
    if (trace) {
        trace->core = core;
        trace->setting = setting;
        trace->arena = arena;
        trace->record.model = arena_dup(arena, spec->name);
        trace->record.version = spec->version;
        trace->is_ensemble = spec->is_ensemble;
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
    wake_writer(core);
}

/* Makes it a part of the trace of a caller, or of the inference that it runs inside of. */
static void store_trace_context(struct trace *trace, const unsigned char trace_id[TRACE_ID_BYTES],
                                const unsigned char parent[SPAN_ID_BYTES], struct str state) {
    memcpy(trace->ids.trace, trace_id, TRACE_ID_BYTES);
    memcpy(trace->ids.parent, parent, SPAN_ID_BYTES);
    trace->ids.has_parent = true;
    if (tracestate_is_valid(state)) {
        trace->ids.state = arena_dup(trace->arena, state);
        trace->incomplete = !trace->ids.state.ptr;
    }
}

/* Of a request that is counted in n_unwritten. */
static struct trace *trace_begin_sampled(struct tracer_core *core, struct trace_setting *setting,
                                         uint32_t level, uint64_t id,
                                         const struct model_spec *spec) {
    struct trace *trace = trace_new(core, setting, spec);
    if (!trace) {
        lock_acquire(&core->lock);
        count_dropped(core, setting);
        lock_release(&core->lock);
        return NULL;
    }
    trace->level = level;
    trace->record.id = id;
    if (core->collector) {
        lock_acquire(&core->lock);
        trace_id_fill(&core->prng, trace->ids.trace, sizeof(trace->ids.trace));
        trace_id_fill(&core->prng, (unsigned char *)trace->ids.spans, sizeof(trace->ids.spans));
        lock_release(&core->lock);
    }
    return trace;
}

struct trace *trace_sample(struct tracer *tracer, const struct model_spec *spec,
                           const struct trace_context *context) {
    struct tracer_core *core = tracer->core;
    struct traceparent parent;
    /* The caller's trace context is used with a collector only, where traces of several servers are
     * joined. Clause: W3C Trace Context, 3.2: a malformed traceparent is ignored. */
    bool has_parent =
        core->collector && context->n_parents == 1 && traceparent_parse(context->parent, &parent);
    lock_acquire(&core->lock);
    struct trace_setting *setting = find_setting(core, spec->name);
    bool sampled = is_sampled(setting, has_parent ? &parent : NULL);
    uint32_t level = setting->values.level;
    uint64_t id = sampled ? ++core->last_id : 0;
    setting->n_unwritten += sampled;
    lock_release(&core->lock);
    if (!sampled) {
        return NULL;
    }
    struct trace *trace = trace_begin_sampled(core, setting, level, id, spec);
    if (trace && has_parent) {
        store_trace_context(trace, parent.trace, parent.span, context->state);
    }
    return trace;
}

struct trace *trace_sample_inside(struct trace *parent, const struct model_spec *spec) {
    struct tracer_core *core = parent->core;
    lock_acquire(&core->lock);
    uint64_t id = ++core->last_id;
    parent->setting->n_unwritten++;
    lock_release(&core->lock);
    struct trace *trace = trace_begin_sampled(core, parent->setting, parent->level, id, spec);
    if (trace) {
        trace->record.parent_id = parent->record.id;
        if (core->collector) {
            store_trace_context(trace, parent->ids.trace, parent->ids.spans[OTLP_MODEL_SPAN],
                                parent->ids.state);
        }
    }
    return trace;
}

struct trace *trace_sample_http(struct tracer *tracer, const struct model_spec *spec,
                                const struct http_head *head) {
    struct trace_context context = {.parent = {NULL, 0}};
    context.n_parents = http_head_find(head, STR("traceparent"), &context.parent);
    if (context.n_parents > 0 && http_head_find(head, STR("tracestate"), &context.state) != 1) {
        context.state = STR("");
    }
    return trace_sample(tracer, spec, &context);
}

struct trace *trace_sample_grpc(struct tracer *tracer, const struct model_spec *spec,
                                const struct grpc_call *call) {
    struct trace_context context;
    size_t n_states;
    context.parent = grpc_find_field(call, "traceparent", &context.n_parents);
    context.state = grpc_find_field(call, "tracestate", &n_states);
    context.state = n_states == 1 ? context.state : STR("");
    return trace_sample(tracer, spec, &context);
}

void trace_submit(struct trace *trace) {
    struct tracer_core *core = trace->core;
    lock_acquire(&core->lock);
    bool dropped = trace->incomplete || core->n_queued >= TRACE_MAX_QUEUED;
    if (dropped) {
        count_dropped(core, trace->setting);
    } else {
        STAILQ_INSERT_TAIL(&core->queue, trace, link);
        core->n_queued++;
        wake_writer(core);
    }
    lock_release(&core->lock);
    if (dropped) {
        trace_free(trace);
    }
}

/* ---- timestamps ------------------------------------------------------------------------------ */

void trace_timestamp_record(struct trace *trace, enum trace_timestamp mark) {
    trace->record.ns[mark] = clock_now_ns();
}

/* Without compute times of the backend, the whole execution counts as compute. */
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

/* ---- copies of tensors ----------------------------------------------------------------------- */

/* Reserves memory for tensor bytes. Returns: false when the unwritten traces hold too many. */
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
    char *data = arena_alloc(arena, from->n_bytes);
    if (data) {
        size_t n_bytes = pieces_copy(from->pieces, from->n_pieces, data, from->n_bytes);
        metric_add(METRIC_COPIED_BYTES_TOTAL, (int64_t)n_bytes);
    }
    *piece = (struct piece){data, from->n_bytes};
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

/* ---- records of a request -------------------------------------------------------------------- */

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
    if (call->started_ns > 0 && !trace->is_ensemble) { /* its steps compute */
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

/* ---- open and close ----------------------------------------------------------------------- */

/* Prepares the collector settings that the trace extension reports, with the reference's names. */
static enum status describe_collector(struct tracer_core *core,
                                      const struct trace_export_options *options,
                                      struct error *err) {
    struct arena *arena = core->shown_arena = arena_new(NULL, 0);
    struct v2_trace_option *shown =
        arena ? arena_calloc(arena, N_COLLECTOR_OPTIONS, sizeof(*shown)) : NULL;
    if (!shown) {
        return error_no_memory(err, "traces");
    }
    struct buf resource;
    buf_init(&resource, arena, 256);
    for (size_t i = 0; i < options->n_resource; i++) {
        buf_printf(&resource, "%s%.*s=%.*s", i > 0 ? "," : "", STR_ARG(options->resource[i].key),
                   STR_ARG(options->resource[i].text));
    }
    buf_add_char(&resource, '\0');
    shown[0] = (struct v2_trace_option){"url", options->url};
    shown[1] = (struct v2_trace_option){"resource", resource.failed ? "" : resource.data};
    shown[2] = (struct v2_trace_option){"bsp_max_queue_size",
                                        arena_printf(arena, "%u", options->max_queue).ptr};
    shown[3] = (struct v2_trace_option){"bsp_max_export_batch_size",
                                        arena_printf(arena, "%u", options->max_batch).ptr};
    shown[4] = (struct v2_trace_option){"bsp_schedule_delay",
                                        arena_printf(arena, "%u", options->delay_ms).ptr};
    core->shown = shown;
    core->n_shown = N_COLLECTOR_OPTIONS;
    return ST_OK;
}

enum status tracer_open(struct tracer *tracer, const struct tracer_options *options,
                        struct error *err) {
    struct tracer_core *core = calloc(1, sizeof(*core));
    struct trace_setting *server = calloc(1, sizeof(*server));
    if (!core || !server) {
        free(core);
        free(server);
        return error_no_memory(err, "traces");
    }
    lock_init(&core->lock);
    random_fill(&core->prng.state, sizeof(core->prng.state));
    core->tracer = tracer;
    core->defaults = server->values = options->values;
    core->server = server;
    LIST_INSERT_HEAD(&core->settings, server, link);
    STAILQ_INIT(&core->queue);
    trace_file_init(&core->file, options->file, options->max_size);
    tracer->core = core;
    enum status st = ST_OK;
    if (options->opentelemetry) {
        st = describe_collector(core, &options->collector, err);
    }
    if (st == ST_OK && (options->opentelemetry || options->file)) {
        st = writer_start(core, options->opentelemetry ? &options->collector : NULL, err);
    }
    if (st == ST_OK && check_setting(core, server, err) != ST_OK) {
        st = err->status = ST_BAD_CONFIG;
    }
    if (st != ST_OK) {
        tracer_close(tracer);
        return st;
    }
    update_is_on(core);
    return ST_OK;
}

void tracer_close(struct tracer *tracer) {
    struct tracer_core *core = tracer->core;
    if (!core) {
        return;
    }
    atomic_store_explicit(&tracer->on, false, memory_order_relaxed);
    writer_stop(core);
    struct trace_setting *setting;
    while ((setting = LIST_FIRST(&core->settings))) {
        LIST_REMOVE(setting, link);
        setting_free(setting);
    }
    arena_free(core->shown_arena);
    lock_fini(&core->lock);
    free(core);
    tracer->core = NULL;
}
