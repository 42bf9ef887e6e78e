/* The writer: a thread that takes ended traces off the queue and writes them. Nobody waits for it.
 * Traces of settings with a log frequency or a count are gathered until their file is full; the
 * others go to the file as they come. */
#include "core/base/metric/metric.h"
#include "serve/trace/state.h"

/* ---- files ----------------------------------------------------------------------------------- */

static bool is_buffered(const struct trace_setting *setting) {
    return setting->values.log_frequency > 0 || setting->values.count >= 0;
}

/* Writes what is gathered: into a file with a number, or behind the others. */
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

static bool init_text(struct trace_setting *setting) {
    if (!setting->arena) {
        setting->arena = arena_new(NULL, 0);
        if (setting->arena) {
            buf_init(&setting->text, setting->arena, 0);
        }
    }
    return setting->arena != NULL;
}

static void buffer_trace(struct tracer_core *core, struct trace *trace) {
    struct trace_setting *setting = trace->setting;
    struct buf text;
    buf_init(&text, trace->arena, 2048);
    trace_record_print(&text, &trace->record, trace->level & V2_TRACE_TIMESTAMPS);
    bool fits = !text.failed && init_text(setting);
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
    uint32_t frequency = setting->values.log_frequency; /* what changes of settings is the count */
    if (frequency > 0 && setting->n_buffered >= frequency) {
        write_buffered(core, setting, true);
    } else if (setting->text.len >= TRACE_MAX_TEXT_BYTES) {
        write_buffered(core, setting, frequency > 0);
    }
}

static void write_trace(struct tracer_core *core, struct trace *trace) {
    if (core->collector) {
        trace_export_add(core->collector, &trace->record, trace->has_parent ? &trace->parent : NULL,
                         trace->state);
    } else {
        buffer_trace(core, trace);
    }
}

/* ---- the queue ------------------------------------------------------------------------------- */

static struct trace *take_queue(struct tracer_core *core) {
    lock_acquire(&core->lock);
    struct trace *traces = core->queue;
    core->queue = NULL;
    core->queue_end = &core->queue;
    core->n_queued = 0;
    core->posted = false;
    lock_release(&core->lock);
    return traces;
}

static void write_queue(struct tracer_core *core) {
    struct trace *trace = take_queue(core);
    while (trace) {
        struct trace *next = trace->next;
        write_trace(core, trace);
        lock_acquire(&core->lock);
        trace->setting->n_unwritten--;
        lock_release(&core->lock);
        trace_free(trace);
        trace = next;
    }
}

/* Settings whose traces are all there, or that are gone. The lock is held: what is due is taken out
 * of their hands before it is written. */
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

/* The next settings behind `*at` that have something due; NULL: none. Those that are over are
 * dropped on the way. */
static struct trace_setting *next_due(struct tracer_core *core, enum due *due) {
    struct trace_setting **at = &core->settings;
    while (*at) {
        *due = setting_due(core, *at);
        if (*due != NOT_DUE) {
            return *at;
        }
        if ((*at)->replaced && (*at)->n_unwritten == 0) {
            tracer_setting_remove(core, at);
        } else {
            at = &(*at)->next;
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
        if (!setting) { /* only this thread frees settings: it stays until the next round */
            return;
        }
        write_buffered(core, setting, due == DUE_NUMBERED);
    }
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void on_sent(void *user) {
    struct tracer_core *core = user;
    worker_stop(core->writer);
}

static void on_wake(struct worker_msg *msg) {
    struct tracer_core *core =
        (struct tracer_core *)(void *)((char *)msg - offsetof(struct tracer_core, msg));
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

void tracer_writer_wake(struct tracer_core *core) {
    lock_assert_held(&core->lock);
    if (!core->posted && core->writer) {
        core->posted = true;
        worker_post(core->writer, &core->msg);
    }
}

enum status tracer_writer_start(struct tracer_core *core,
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

void tracer_writer_stop(struct tracer_core *core) {
    if (!core->writer) {
        return;
    }
    lock_acquire(&core->lock);
    core->ending = true;
    tracer_writer_wake(core);
    lock_release(&core->lock);
    worker_join(core->writer);
    worker_free(core->writer);
    core->writer = NULL;
    trace_export_free(core->collector);
    core->collector = NULL;
    trace_file_close(&core->file);
}
