/* The repository: creation, lookup on every request, printing (`sluice serve --check`), and
 * shutdown.
 *
 * A lookup takes no lock: the name table and the views are immutable snapshots. A reader takes a
 * reference on the version it picks, and uses nothing else across loop iterations; names.c depends
 * on that.
 */
#include "serve/repository/repository.h"

#include <inttypes.h>
#include <stdlib.h>

#include "core/base/compiler.h"
#include "core/base/log.h"
#include "core/base/num.h"
#include "core/base/plural.h"
#include "core/must/must.h"
#include "serve/repository/internal.h"

/* ---- creation -------------------------------------------------------------------------------- */

static void repository_destroy(struct repository *repository) {
    struct arena *arena = repository->arena;
    retirement_free(repository);
    name_table_free((struct name_table *)repository_name_table(repository));
    arena_free(repository->list.arena);
    response_cache_free(repository->cache);
    backends_free(repository->list.backends);
    changes_fini(repository);
    lock_fini(&repository->backends_lock);
    lock_fini(&repository->lock);
    arena_free(arena);
}

static void repository_init(struct repository *repository, struct arena *arena,
                            const struct repository_options *options) {
    repository->arena = arena;
    repository->config_rules = (struct config_rules){
        .name = options->model_config_name,
        .must_be_complete = options->disable_auto_complete_config,
        .reading = {.gpu_models_on_cpu = options->gpu_models_on_cpu},
    };
    repository->op_library_dirs = options->op_library_dirs;
    repository->n_op_library_dirs = options->n_op_library_dirs;
    repository->model_load_retry_count = options->model_load_retry_count;
    repository->ensemble_ops = options->ensemble_ops;
    repository->backend_params = options->backend_params;
    repository->n_backend_params = options->n_backend_params;
    repository->default_max_batch_size = options->default_max_batch_size;
    repository->max_queue_size = options->max_queue_size;
    repository->max_output_size = options->max_output_size;
    repository->latencies = options->latencies;
    repository->host_policies = options->host_policies;
    repository->slow_reader_timeout_ns = options->slow_reader_timeout_ns;
    repository->strict_readiness = options->strict_readiness;
    repository->on_version_opened = options->on_version_opened;
    repository->on_version_opened_user = options->on_version_opened_user;
    repository->print_config = options->print_config;
    repository->programs_from_requests = options->programs_from_requests;
    repository->calls = options->calls;
    repository->on_scanned = options->on_scanned;
    repository->on_scanned_user = options->on_scanned_user;
    repository->on_state_changed = options->on_state_changed;
    repository->on_state_changed_user = options->on_state_changed_user;
    repository->model_control_mode = options->model_control_mode;
    repository->repository_poll_ns = options->repository_poll_ns;
    cpus_read(&repository->cpus);
    lock_init(&repository->lock);
    lock_init(&repository->backends_lock);
    TAILQ_INIT(&repository->running_loads);
    LIST_INIT(&repository->ensembles);
    changes_init(repository, options);
}

enum status repository_new(const struct repository_options *options, struct repository **out,
                           struct error *err) {
    struct arena *arena = must_arena_new("the table of models");
    struct repository *repository = arena_calloc(arena, 1, sizeof(*repository));
    repository_init(repository, arena, options);
    retirement_init(repository, options);
    enum status st = options->cache_size > 0
                         ? response_cache_new(options->cache_size, &repository->cache, err)
                         : ST_OK;
    repository->list.backends = must_have(
        backends_new(options->backend_dir, options->builtin, options->n_builtin), "the backends");
    if (st == ST_OK) {
        st = start_init(repository, options, err);
    }
    if (st != ST_OK) {
        retirement_stop(repository);
        repository_destroy(repository);
        return st;
    }
    *out = repository;
    return ST_OK;
}

/* ---- lookup ---------------------------------------------------------------------------------- */

/* These messages begin as the reference server's do: clients compare them. */
static enum status error_unknown_model(struct str name, const char *what, struct error *err) {
    char quoted[QUOTED_NAME_BYTES];
    return error_set(err, ST_UNKNOWN_MODEL, "Request for unknown model: %s %s",
                     quote_name_single(name, quoted), what);
}

static enum status error_not_served(struct str name, const struct published_view *view,
                                    struct error *err) {
    char quoted[QUOTED_NAME_BYTES];
    switch (view->phase) {
    case REPOSITORY_LOADING:
        return error_set(err, ST_NOT_READY, "model \"%.*s\" is still being loaded", STR_ARG(name));
    case REPOSITORY_FAILED:
        return error_set(err, ST_NOT_READY,
                         "Request for unknown model: %s has no available versions: it failed to "
                         "load: %s",
                         quote_name_single(name, quoted), view->reason);
    case REPOSITORY_UNLOADED:
    case REPOSITORY_UNLOADING:
        return error_unknown_model(name, "has no available versions: it is not loaded", err);
    case REPOSITORY_READY: /* never: the model serves nothing */
    case REPOSITORY_UNTOUCHED:
    case REPOSITORY_PHASES:
        break;
    }
    return error_unknown_model(name, "is not found", err);
}

/* Distinguishes a version that failed to load from an unknown one. */
static enum status error_unknown_version(struct str name, const struct published_view *view,
                                         struct str text, uint64_t number, struct error *err) {
    char served[SERVED_TEXT_BYTES], quoted[QUOTED_NAME_BYTES];
    quote_name_single(name, quoted);
    for (size_t i = 0; i < view->n_entries; i++) {
        const struct repository_entry *entry = &view->entries[i];
        if (number > 0 && entry->number == number && entry->phase == REPOSITORY_FAILED) {
            return error_set(err, ST_NOT_READY,
                             "Request for unknown model: %s version %" PRIu64
                             " is not at ready state: it failed to load: %s",
                             quoted, number, entry->reason);
        }
        if (number > 0 && entry->number == number && entry->phase != REPOSITORY_UNTOUCHED) {
            return error_set(err, ST_UNKNOWN_VERSION,
                             "Request for unknown model: %s version %" PRIu64
                             " is not at ready state; it serves %s",
                             quoted, number, ready_list_print(view->ready, served));
        }
    }
    return error_set(err, ST_UNKNOWN_VERSION,
                     "Request for unknown model: %s version %.*s is not found; it serves %s",
                     quoted, (int)(text.len > 40 ? 40 : text.len), text.ptr,
                     ready_list_print(view->ready, served));
}

/* `text` with ptr NULL: the highest. */
static struct model_version *pick_version(const struct ready_list *ready, struct str text,
                                          uint64_t *number) {
    *number = 0;
    if (!text.ptr) {
        return ready->versions[ready->n - 1];
    }
    if (text.len > 0 && text.ptr[0] != '0' && num_parse_u64(text, number)) {
        for (size_t i = 0; i < ready->n; i++) {
            if (ready->numbers[i] == *number) {
                return ready->versions[i];
            }
        }
    }
    return NULL;
}

enum status model_slot_pick(const struct model_slot *model_slot, struct str version_text,
                            struct model_version **out, struct error *err) {
    const struct published_view *view =
        atomic_load_explicit(&model_slot->view, memory_order_acquire);
    uint64_t number;
    if (!view->ready) {
        return error_not_served(model_slot->name, view, err);
    }
    if (view->missing) {
        return error_set(err, ST_NOT_READY, "ensemble \"%.*s\" is not ready: %s",
                         STR_ARG(model_slot->name), view->missing);
    }
    *out = pick_version(view->ready, version_text, &number);
    return *out ? ST_OK : error_unknown_version(model_slot->name, view, version_text, number, err);
}

enum status repository_find(struct repository *repository, struct str name, struct str version_text,
                            struct model_version **out, struct error *err) {
    /* A longer one would take its time to be hashed, and there is none. */
    enum { MAX_NAME_BYTES = 65536 };
    const struct model_slot *model_slot =
        name.len <= MAX_NAME_BYTES ? model_slot_find(repository_name_table(repository), name)
                                   : NULL;
    if (!model_slot) {
        return atomic_load_explicit(&repository->scanned, memory_order_acquire)
                   ? error_unknown_model(name, "is not found", err)
                   : error_set(err, ST_NOT_READY, "the model repositories are still being scanned");
    }
    struct model_version *version = NULL;
    enum status st = model_slot_pick(model_slot, version_text, &version, err);
    if (st != ST_OK) {
        return st;
    }
    if (atomic_load_explicit(&repository->stopping, memory_order_relaxed)) {
        return error_set(err, ST_NOT_READY, "the server is being stopped");
    }
    model_version_ref(version);
    *out = version;
    return ST_OK;
}

/* Snapshots and versions are retired with the lock held: what is published stays valid until then,
 * and a reference that was taken keeps the version. */
enum status repository_find_locked(struct repository *repository, struct str name,
                                   struct str version_text, struct model_version **out,
                                   struct error *err) {
    lock_acquire(&repository->lock);
    enum status st = repository_find(repository, name, version_text, out, err);
    lock_release(&repository->lock);
    return st;
}

bool repository_is_ready(const struct repository *repository) {
    return atomic_load_explicit(&repository->n_start_pending, memory_order_acquire) == 0 &&
           atomic_load_explicit(&repository->scanned, memory_order_relaxed) &&
           !atomic_load_explicit(&repository->stopping, memory_order_relaxed) &&
           (!repository->strict_readiness ||
            atomic_load_explicit(&repository->n_failed, memory_order_relaxed) == 0);
}

bool repository_start_failed(struct repository *repository, struct error *err) {
    lock_acquire(&repository->lock);
    *err = repository->start.error;
    lock_release(&repository->lock);
    return err->status != ST_OK;
}

/* The models that failed, and the others. */
struct failures {
    size_t n_failed, n_others;
    char names[256];
    size_t len; /* of all names; they may be cut */
};

static void add_failure(struct failures *failures, struct str name, const char *reason,
                        struct error *first) {
    size_t room = sizeof(failures->names);
    if (failures->n_failed++ == 0) {
        error_set(first, ST_BAD_MODEL, "%.*s: %s", STR_ARG(name), reason);
    }
    if (failures->len < room) {
        failures->len +=
            (size_t)snprintf(failures->names + failures->len, room - failures->len, "%s%.*s",
                             failures->n_failed > 1 ? ", " : "", STR_ARG(name));
    }
}

bool repository_has_failed(struct repository *repository, bool any, struct error *err) {
    struct failures failures = {0};
    const struct name_table *name_table = repository_name_table(repository);
    err->status = ST_OK;
    lock_acquire(&repository->lock);
    for (size_t i = 0; i < name_table->n; i++) {
        const struct model_slot *model_slot = name_table->model_slots[i];
        const struct model *model =
            model_slot->serving ? model_slot->serving : model_slot->inactive;
        bool failed = any ? model_slot->failed : !model_slot->serving && model;
        if (failed && model) {
            add_failure(&failures, model_slot->name, model->error.text, err);
        } else {
            failures.n_others++;
        }
    }
    lock_release(&repository->lock);
    if (failures.n_failed > 1) {
        error_set(err, ST_BAD_MODEL, "%zu failed, see above: %s%s", failures.n_failed,
                  failures.names, failures.len < sizeof(failures.names) ? "" : "…");
    }
    bool failed =
        failures.n_failed > 0 &&
        (any || (failures.n_others == 0 && repository->model_control_mode == REPOSITORY_FIXED));
    err->status = failed ? ST_BAD_MODEL : ST_OK;
    return failed;
}

size_t repository_count_unavailable(const struct repository *repository) {
    return (size_t)atomic_load_explicit(&repository->n_unavailable, memory_order_relaxed);
}

bool repository_is_busy(const struct repository *repository) {
    return atomic_load_explicit(&repository->n_start_pending, memory_order_acquire) > 0 ||
           atomic_load_explicit(&repository->n_busy, memory_order_acquire) > 0;
}

/* ---- printing -------------------------------------------------------------------------------- */

static void print_tensors(const char *label, const struct tensor_spec *specs, size_t n,
                          const struct model_config_tensor *tensors,
                          const struct plan_tensor *plans, struct buf *out) {
    for (size_t i = 0; i < n; i++) {
        char shape[SHAPE_TEXT_BYTES];
        buf_printf(out, "  %-10s %.*s  %s  %s", i == 0 ? label : "", STR_ARG(specs[i].name),
                   datatype_name(specs[i].datatype), shape_print(specs[i].shape, shape));
        if (plans[i].reshaped) {
            buf_printf(out, ", the model sees %s", shape_print(plans[i].reshape, shape));
        }
        if (specs[i].optional) {
            buf_printf(out, ", optional");
        }
        if (tensors[i].label_filename.len > 0) {
            buf_printf(out, ", labels in %.*s", STR_ARG(tensors[i].label_filename));
        }
        buf_add_char(out, '\n');
    }
}

static const char *run_on_text(const struct model_version *version) {
    switch (version->run_on) {
    case RUN_ON_WORKER:
        return "on the thread that read the request";
    case RUN_ON_INSTANCE:
        return "on threads of their own";
    case RUN_AUTO:
        break;
    }
    return "on threads of their own, or on the thread that read the request once measured to be "
           "fast";
}

static void print_batching(const struct model_config *config, struct buf *out) {
    if (config->max_batch_size == 0) {
        buf_printf(out, "  batching   no: %s\n", config->batch_reason);
        return;
    }
    buf_printf(out, "  batching   up to %" PRIu64 " in the first dimension: %s\n",
               config->max_batch_size, config->batch_reason);
    for (size_t i = 0; i < config->n_preferred; i++) {
        buf_printf(out, "%s%" PRIu64 "%s", i == 0 ? "  preferred  batches of " : ", ",
                   config->preferred_batch_sizes[i], i + 1 == config->n_preferred ? "\n" : "");
    }
    if (config->max_queue_delay_us > 0) {
        buf_printf(out, "  delay      up to %" PRIu64 " us, to fill batches\n",
                   config->max_queue_delay_us);
    }
}

static void print_queue(const struct model_config *config, struct buf *out) {
    if (config->priority_levels > 0) {
        buf_printf(out, "  priorities %" PRIu64 ", by default %" PRIu64 "\n",
                   config->priority_levels, config->default_priority);
    }
    if (config->queue.max_size > 0) {
        buf_printf(out, "  queue      at most %" PRIu64 " waiting%s\n", config->queue.max_size,
                   config->priority_levels > 1 ? " at each priority without a limit of its own"
                                               : "");
    }
    if (config->queue.timeout_us > 0) {
        buf_printf(out, "  timeout    %" PRIu64 " us in the queue, then %s\n",
                   config->queue.timeout_us,
                   config->queue.delay_on_timeout ? "moved to the end of its level" : "refused");
    }
    if (config->preserve_ordering) {
        buf_printf(out, "  order      answers leave in the order of their requests\n");
    }
    if (config->response_cache) {
        buf_printf(
            out, "  cache      equal requests are answered from the response cache, if enabled\n");
    }
    if (config->n_warmups > 0) {
        buf_printf(out, "  warm-up    %zu sample%s on each instance\n", config->n_warmups,
                   plural_s(config->n_warmups));
    }
}

static const char *control_text(enum model_control_kind kind) {
    switch (kind) {
    case CONTROL_START:
        return "whether a request begins its sequence";
    case CONTROL_READY:
        return "whether there is a request";
    case CONTROL_END:
        return "whether a request ends its sequence";
    case CONTROL_CORRID:
        break;
    }
    return "the sequence's identifier";
}

static void print_sequences(const struct model_version *version, struct buf *out) {
    const struct model_sequences *config = &version->config.sequences;
    if (config->strategy == SEQUENCES_NONE) {
        return;
    }
    buf_printf(out,
               "  sequences  %s: %zu per instance, closed after %" PRIu64 " us without a request\n",
               config->strategy == SEQUENCES_DIRECT ? "direct" : "oldest",
               version->scheduler.sequences->slots_per_instance, config->idle_us);
    for (size_t i = 0; i < config->n_controls; i++) {
        const struct model_control *control = &config->controls[i];
        buf_printf(out, "  %-10s %.*s  %s, %s\n", i == 0 ? "controls" : "", STR_ARG(control->name),
                   datatype_name(control->datatype), control_text(control->kind));
    }
    for (size_t i = 0; i < config->n_states; i++) {
        const struct plan_state *state = &version->plan.states[i];
        char dims[SHAPE_TEXT_BYTES];
        buf_printf(out, "  %-10s %.*s  %s %s, becomes %.*s\n", i == 0 ? "states" : "",
                   STR_ARG(state->spec.name), datatype_name(state->spec.datatype),
                   shape_print(state->spec.shape, dims), STR_ARG(state->state->input_name));
    }
}

static void print_steps(const struct model_ensemble *ensemble, struct buf *out) {
    for (size_t i = 0; i < ensemble->n_steps; i++) {
        buf_printf(out, "%s%.*s", i == 0 ? "  steps      " : ", ",
                   STR_ARG(ensemble->steps[i].model));
    }
    buf_add_char(out, '\n');
}

static void print_version(const struct model_version *version, struct buf *out) {
    const struct model_spec *spec = &version->plan.spec;
    const struct model_config *config = &version->config;
    buf_printf(out, "  version    %.*s: %.*s\n", STR_ARG(spec->version_text),
               STR_ARG(version->path));
    buf_printf(out, "  platform   %.*s (backend %s)\n", STR_ARG(spec->platform),
               version->backend->name);
    print_tensors("inputs", spec->inputs, spec->n_inputs, config->inputs, version->plan.inputs,
                  out);
    print_tensors("outputs", spec->outputs, spec->n_outputs, config->outputs, version->plan.outputs,
                  out);
    print_batching(config, out);
    print_queue(config, out);
    print_sequences(version, out);
    if (config->decoupled) {
        buf_printf(out, "  answers    any number to a request (decoupled)\n");
    }
    if (config->ensemble.n_steps > 0) {
        print_steps(&config->ensemble, out);
    } else {
        buf_printf(out, "  instances  %zu with %" PRIu32 " thread%s each%s, %s\n",
                   version->n_instances, version->n_threads, plural_s(version->n_threads),
                   version->may_spin ? " that may spin" : "", run_on_text(version));
    }
}

/* Prints the result of the only attempt: --check loads each model once. */
static void print_model(const struct model_slot *model_slot, struct buf *out) {
    const struct model *model = model_slot->serving    ? model_slot->serving
                                : model_slot->inactive ? model_slot->inactive
                                                       : model_slot->loading;
    const struct ready_list *ready = model_slot->serving ? model_slot->serving->ready : NULL;
    char served[SERVED_TEXT_BYTES];
    buf_printf(out, "%.*s  %s  %.*s%s\n", STR_ARG(model_slot->name),
               ready                  ? "ready"
               : model_slot->inactive ? "FAILED"
               : model                ? "loading"
                                      : "not loaded",
               STR_ARG(model_slot->origin.path),
               model && model->has_config ? " with config.pbtxt" : "");
    if (ready && ready->n > 1) {
        buf_printf(out, "  versions   %s\n", ready_list_print(ready, served));
    }
    for (size_t i = 0; ready && i < ready->n; i++) {
        print_version(ready->versions[i], out);
    }
    if (model && model->error.status != ST_OK && !model_slot->loading) {
        buf_printf(out, "  error      %s\n", model->error.text);
    }
}

void repository_print(struct repository *repository, struct buf *out) {
    const struct name_table *name_table = repository_name_table(repository);
    lock_acquire(&repository->lock);
    for (size_t i = 0; i < name_table->n; i++) {
        if (i > 0) {
            buf_add_char(out, '\n');
        }
        print_model(name_table->model_slots[i], out);
    }
    lock_release(&repository->lock);
    if (name_table->n == 0) {
        buf_printf(out, "no models\n");
    }
}

/* ---- shutdown -------------------------------------------------------------------------------- */

static void for_each_served(struct repository *repository, void (*act)(struct model_version *)) {
    const struct name_table *name_table = repository_name_table(repository);
    for (size_t i = 0; i < name_table->n; i++) {
        model_for_each_version(name_table->model_slots[i]->serving, act);
    }
}

void repository_drain(struct repository *repository) {
    atomic_store_explicit(&repository->draining, true, memory_order_seq_cst);
    changes_drain(repository);
    lock_acquire(&repository->lock);
    for_each_served(repository, version_end_delays);
    lock_release(&repository->lock);
}

void repository_stop(struct repository *repository) {
    atomic_store_explicit(&repository->stopping, true, memory_order_relaxed);
    repository_drain(repository);
    changes_stop(repository);
    if (!repository->stopped) {
        repository->stopped = true;
        retirement_stop(repository);
        for_each_served(repository, version_reject_calls);
        for_each_served(repository, version_stop);
    }
}

void repository_set_budgets(struct repository *repository, const struct shared_budget *cache,
                            const struct shared_budget *states) {
    if (repository->cache) {
        response_cache_set_budget(repository->cache, cache);
    }
    repository->state_budget = *states;
}

uint64_t repository_shrink_cache(struct repository *repository, uint64_t n_bytes) {
    return repository->cache ? response_cache_shrink(repository->cache, n_bytes) : 0;
}

void repository_free(struct repository *repository) {
    if (repository) {
        repository_stop(repository);
        for_each_served(repository, version_close);
        repository_destroy(repository);
    }
}
