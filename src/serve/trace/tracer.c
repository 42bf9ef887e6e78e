/* The settings of traces and who has them. There are few, so that looking one up is going through
 * them; it is done under a lock, but only while somebody's requests are traced. */
#include "serve/trace/tracer.h"

#include <stdlib.h>

#include "core/base/log.h"
#include "serve/trace/state.h"

enum { N_COLLECTOR_OPTIONS = 5 };

/* ---- looking up ------------------------------------------------------------------------------ */

/* Those of the model itself; NULL: it has none. */
static struct trace_setting *find_model_setting(const struct tracer_core *core, struct str model) {
    for (struct trace_setting *at = core->settings; at; at = at->next) {
        if (!at->replaced && at->model && str_eq(str_of(at->model), model)) {
            return at;
        }
    }
    return NULL;
}

struct trace_setting *tracer_setting_find(struct tracer_core *core, struct str model) {
    lock_assert_held(&core->lock);
    struct trace_setting *own = model.len > 0 ? find_model_setting(core, model) : NULL;
    return own ? own : core->server;
}

/* A collector's callers may have decided that a request is traced. */
static bool is_tracing(const struct tracer_core *core, const struct trace_setting *setting) {
    return setting->values.level != 0 && (setting->values.rate > 0 || core->collector);
}

static void update_is_on(struct tracer_core *core) {
    bool on = false;
    for (const struct trace_setting *at = core->settings; at; at = at->next) {
        on = on || (!at->replaced && is_tracing(core, at));
    }
    atomic_store_explicit(&core->tracer->on, on, memory_order_relaxed);
}

/* ---- changing -------------------------------------------------------------------------------- */

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

/* The value of a key. */
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

/* What applies after a change: what is set or was, else what it falls back on. Returns: whether
 * anything is its own. */
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

static void setting_free(struct trace_setting *setting) {
    arena_free(setting->arena);
    free(setting->model);
    free(setting);
}

/* It applies no more; NULL: there was none. The writer frees it when its traces are written. */
static void retire_setting(struct tracer_core *core, struct trace_setting *setting) {
    if (setting && core->writer) {
        setting->replaced = true;
        tracer_writer_wake(core);
    } else if (setting) {
        struct trace_setting **at = &core->settings;
        while (*at != setting) {
            at = &(*at)->next;
        }
        tracer_setting_remove(core, at);
    }
}

void tracer_setting_remove(struct tracer_core *core, struct trace_setting **at) {
    struct trace_setting *setting = *at;
    lock_assert_held(&core->lock);
    *at = setting->next;
    setting_free(setting);
}

/* Puts new settings in the place of `before`. */
static void replace_setting(struct tracer_core *core, struct trace_setting *before,
                            struct trace_setting *setting) {
    setting->next = core->settings;
    core->settings = setting;
    if (!setting->model) {
        core->server = setting;
    }
    retire_setting(core, before);
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

static enum status change(struct tracer_core *core, struct str model,
                          const struct v2_trace_update *wanted, bool checked, struct error *err) {
    struct trace_setting *before = model.len > 0 ? find_model_setting(core, model) : core->server;
    struct trace_setting made = {.next = NULL};
    bool any = merge_settings(before, wanted,
                              model.len > 0 ? &core->server->values : &core->defaults, &made);
    if (model.len > 0 && !any) {
        retire_setting(core, before);
        return ST_OK;
    }
    enum status st = checked ? check_setting(core, &made, err) : ST_OK;
    struct trace_setting *setting = st == ST_OK ? setting_new(&made, model) : NULL;
    if (st == ST_OK && !setting) {
        st = error_set(err, ST_NO_MEMORY, "no memory for trace settings");
    }
    if (st == ST_OK) {
        replace_setting(core, before, setting);
    }
    return st;
}

/* The server's have changed: models follow in what is not their own. */
static enum status update_model_settings(struct tracer_core *core, struct error *err) {
    static const struct v2_trace_update nothing = {.model = {NULL, 0}};
    enum status st = ST_OK;
    struct trace_setting *next;
    for (struct trace_setting *at = core->settings; at && st == ST_OK; at = next) {
        next = at->next; /* new ones are put in front */
        if (at->model && !at->replaced) {
            st = change(core, str_of(at->model), &nothing, false, err);
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
    enum status st = change(core, model, wanted, true, err);
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
    struct v2_trace_settings shown = {.values = tracer_setting_find(core, model)->values,
                                      .opentelemetry = core->collector != NULL,
                                      .file = core->file.path ? core->file.path : "",
                                      .options = core->shown,
                                      .n_options = core->n_shown};
    lock_release(&core->lock);
    return shown;
}

/* ---- beginning and end ----------------------------------------------------------------------- */

/* What clients are told: the settings in the reference's words. */
static enum status describe_collector(struct tracer_core *core,
                                      const struct trace_export_options *options,
                                      struct error *err) {
    struct arena *arena = core->shown_arena = arena_new(NULL, 0);
    struct v2_trace_option *shown =
        arena ? arena_calloc(arena, N_COLLECTOR_OPTIONS, sizeof(*shown)) : NULL;
    if (!shown) {
        return error_set(err, ST_NO_MEMORY, "no memory for traces");
    }
    struct buf resource;
    buf_init(&resource, arena, 256);
    for (size_t i = 0; i < options->n_resource; i++) {
        buf_printf(&resource, "%s%.*s=%.*s", i > 0 ? "," : "", STR_ARG(options->resource[i].key),
                   STR_ARG(options->resource[i].value));
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
        return error_set(err, ST_NO_MEMORY, "no memory for traces");
    }
    lock_init(&core->lock);
    core->tracer = tracer;
    core->defaults = server->values = options->values;
    core->server = core->settings = server;
    core->queue_end = &core->queue;
    trace_file_init(&core->file, options->file);
    tracer->core = core;
    enum status st = ST_OK;
    if (options->opentelemetry) {
        st = describe_collector(core, &options->collector, err);
    }
    if (st == ST_OK && (options->opentelemetry || options->file)) {
        st = tracer_writer_start(core, options->opentelemetry ? &options->collector : NULL, err);
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
    tracer_writer_stop(core);
    while (core->settings) {
        struct trace_setting *setting = core->settings;
        core->settings = setting->next;
        setting_free(setting);
    }
    arena_free(core->shown_arena);
    lock_fini(&core->lock);
    free(core);
    tracer->core = NULL;
}
