/* Opens and closes a model version, in steps that are undone in reverse. */
#include "serve/scheduler/version.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/base/log.h"
#include "serve/config/config_add.h"
#include "serve/scheduler/backend.h"
#include "serve/scheduler/ensemble_call.h"
#include "serve/scheduler/sequence/state.h"
#include "serve/scheduler/warmup/warmup.h"

enum { STOP_POLL_NS = 1000000 };

/* ---- opening --------------------------------------------------------------------------------- */

static void add_param(sluice_param *params, size_t *n, struct str name, struct str value) {
    params[(*n)++] = (sluice_param){
        .name = name.ptr,
        .name_bytes = name.len,
        .kind = SLUICE_PARAM_STRING,
        .string = value.ptr,
        .string_bytes = value.len,
    };
}

/* The configuration's `parameters`, and of its other fields those that backends get as one. */
static sluice_param *params_for_backend(struct arena *arena, const struct model_config *config,
                                        size_t *n) {
    static const char *const levels[] = {"-1", "0", "1", "2"};
    const struct str level = STR("optimization.graph.level");
    sluice_param *params = arena_calloc(arena, config->n_params + 1, sizeof(*params));
    *n = 0;
    for (size_t i = 0; params && i < config->n_params; i++) {
        if (model_config_param_is_for_backend(&config->params[i])) {
            add_param(params, n, config->params[i].name, config->params[i].value);
        }
    }
    if (params && config->graph_level != 0 && !model_config_has_param(config, level)) {
        add_param(params, n, level, str_of(levels[config->graph_level - GRAPH_LEVEL_MIN]));
    }
    return params;
}

/* Backends that were compiled before a member was there have shorter tables. */
#define HAS(backend, member)                                                                       \
    ((backend)->size >= offsetof(sluice_backend, member) + sizeof((backend)->member) &&            \
     (backend)->member)

static bool wants_config(const struct model_version *version,
                         const struct version_options *options) {
    return options->print_config && HAS(version->backend, model_configured);
}

static enum status tell_config(struct model_version *version, const struct version_options *options,
                               struct error *err) {
    struct str json;
    if (!wants_config(version, options)) {
        return ST_OK;
    }
    enum status st = options->print_config(version->arena, &version->config, &json, err);
    if (st != ST_OK) {
        return st;
    }
    sluice_error reason = {{0}};
    const sluice_model_config config = {
        .size = sizeof(config),
        .json = json.ptr,
        .json_bytes = json.len,
        .max_batch_size = version->config.max_batch_size,
        .decoupled = version->config.decoupled,
    };
    sluice_status status = version->backend->model_configured(version->model, &config, &reason);
    return status == SLUICE_OK ? ST_OK : backend_error(err, version->backend, status, reason.text);
}

static enum status open_model(struct model_version *version, const struct version_options *options,
                              struct error *err) {
    sluice_error reason = {{0}};
    size_t n_params;
    sluice_param *params = params_for_backend(version->arena, options->config, &n_params);
    sluice_model_args args = {
        .size = sizeof(args),
        .name = options->name.ptr,
        .version = options->version,
        .path = options->path.ptr,
        .directory = options->directory.ptr,
        .max_batch_size =
            options->config->has_max_batch_size ? options->config->max_batch_size : UINT64_MAX,
        .n_threads = version->n_threads,
        .may_spin = version->may_spin,
        .params = params,
        .n_params = n_params,
        .max_output_bytes = options->max_output_size,
        .op_libraries = options->op_libraries,
        .n_op_libraries = options->n_op_libraries,
        .from_request = options->from_request,
        .is_complete = options->is_complete,
        .calls = options->calls,
    };
    if (!args.params) {
        return error_no_memory(err, "the model's parameters");
    }
    if (wants_config(version, options)) {
        struct str json;
        enum status st = options->print_config(version->arena, &version->config, &json, err);
        if (st != ST_OK) {
            return st;
        }
        args.config_json = json.ptr;
        args.config_json_bytes = json.len;
    }
    sluice_status status = version->backend->model_open(&args, &version->model, &reason);
    return status == SLUICE_OK ? ST_OK : backend_error(err, version->backend, status, reason.text);
}

static enum status describe_model(struct model_version *version,
                                  const struct version_options *options, sluice_model_info *info,
                                  struct error *err) {
    sluice_error reason = {{0}};
    *info = (sluice_model_info){.size = sizeof(*info)};
    sluice_status status = version->backend->model_describe(version->model, info, &reason);
    if (status != SLUICE_OK) {
        return backend_error(err, version->backend, status, reason.text);
    }
    enum status st = model_info_check(info, err);
    if (st != ST_OK) {
        return error_prefix(err, "backend %s", version->backend->name);
    }
    if (version->config.sequences.iterative && !info->iterative) {
        return error_set(err, ST_BAD_CONFIG,
                         "sequence_batching.iterative_sequence: backend %s does not ask to run "
                         "requests of this model again; leave it out",
                         version->backend->name);
    }
    if (info->adds_config) {
        st = config_add(version->arena, &version->config, info, err);
        if (st != ST_OK) {
            return error_prefix(err, "what the model adds to its configuration");
        }
    }
    st = resolve_config(version->arena, &version->config, info, options->version,
                        options->default_max_batch_size, &version->plan, err);
    return st == ST_OK ? states_open(version, err) : st;
}

/* The number of instances and the threads per instance. One instance by default: it may use all
 * CPUs for a request, and requests that wait meanwhile can be batched. */
static void divide_cpus(struct model_version *version, const struct version_options *options) {
    uint64_t n = options->config->instance_count;
    version->n_instances = n > 0 ? (size_t)n : 1;
    placement_init(version, options->host_policies);
    version->n_threads = placement_count_threads(version, options->usable_cpus);
    /* Workers need CPUs too: threads that spin between requests would starve them on a small
     * machine. */
    version->may_spin = !options->avoid_spinning && version->n_threads >= VERSION_SPIN_CPUS;
}

/* The directory of the model; "." or the file's directory for a model that is a single file. */
static struct str directory_of(const struct version_options *options) {
    if (options->directory.len > 0) {
        return options->directory;
    }
    size_t len = options->path.len;
    while (len > 0 && options->path.ptr[len - 1] != '/') {
        len--;
    }
    return len == 0 ? STR(".") : str_make(options->path.ptr, len > 1 ? len - 1 : len);
}

static const struct shared_budget no_limit = {0};

/* Of a batch, that is not counted: small ones don't share a counter. */
enum { JOINT_UNCOUNTED_BYTES = 64 << 10 };

static bool take_for_joint(void *user, size_t n_bytes, size_t n_counted) {
    (void)n_counted;
    return shared_budget_take(user, n_bytes);
}

static void give_from_joint(void *user, size_t n_bytes) {
    shared_budget_give(user, n_bytes);
}

static struct model_version *version_alloc(const struct version_options *options,
                                           struct error *err) {
    struct arena *arena = arena_new(NULL, 0);
    struct model_version *version =
        arena ? arena_alloc_aligned(arena, sizeof(*version), CACHE_LINE_BYTES) : NULL;
    if (!version) {
        arena_free(arena);
        error_no_memory(err, "the model");
        return NULL;
    }
    *version = (struct model_version){
        .arena = arena,
        .config = *options->config,
        .backend = options->backend,
        .path = options->path,
        .directory = directory_of(options),
        .max_output_size = options->max_output_size,
        .slow_reader_timeout_ns = options->slow_reader_timeout_ns,
        .budget = options->state_budget ? options->state_budget : &no_limit,
    };
    version->joint_budget = (struct arena_budget){.take = take_for_joint,
                                                  .give = give_from_joint,
                                                  .user = (void *)version->budget,
                                                  .n_uncounted = JOINT_UNCOUNTED_BYTES};
    lock_init(&version->streams_lock);
    TAILQ_INIT(&version->streams);
    version->config.name = options->name;
    size_t n = options->name.len < LOOP_WORK_BYTES ? options->name.len : LOOP_WORK_BYTES - 1;
    memcpy(version->work_name, options->name.ptr, n);
    snprintf(version->work_text, sizeof(version->work_text), "model %.*s", (int)n,
             options->name.ptr);
    scheduler_init(&version->scheduler);
    statistics_recent_init(&version->statistics.recent);
    if (options->config->response_cache && !options->cache) {
        log_event(LOG_WARNING,
                  "response_cache has no effect: the server's cache is disabled (--cache-size)",
                  LOG_STR("model", options->name));
    }
    cache_scope_open(&version->cache, options->config->response_cache ? options->cache : NULL);
    atomic_flag_clear(&version->shape_reported);
    atomic_init(&version->refs, 1);
    atomic_init(&version->n_in_flight, 0);
    atomic_init(&version->stopping, false);
    return version;
}

static void version_free(struct model_version *version) {
    if (version->ensemble) {
        version->ensemble_ops->close(version->ensemble);
    }
    if (version->model) {
        version->backend->model_close(version->model);
    }
    scheduler_fini(&version->scheduler);
    states_close(version);
    lock_fini(&version->streams_lock);
    statistics_recent_fini(&version->statistics.recent);
    statistics_fini(&version->statistics);
    per_worker_table_fini(&version->inline_queues);
    cache_scope_close(&version->cache);
    arena_free(version->arena);
}

/* Returns: whether the shapes of all requests are the same, but for the batch dimension. */
static bool has_fixed_shapes(const struct model_spec *spec) {
    for (size_t i = 0; i < spec->n_inputs; i++) {
        const struct tensor_spec *input = &spec->inputs[i];
        for (size_t d = spec->max_batch_size > 0 ? 1 : 0; d < input->shape.rank; d++) {
            if (input->shape.dims[d] <= 0) {
                return false;
            }
        }
        if (input->optional) {
            return false;
        }
    }
    return true;
}

/* Returns: whether measured times tell how long the next execution with the same shapes takes.
 * Work on texts depends on their lengths and content. */
static bool times_tell(const struct model_version *version, const sluice_model_info *info) {
    const struct model_spec *spec = &version->plan.spec;
    for (size_t i = 0; i < spec->n_inputs; i++) {
        if (spec->inputs[i].datatype == DT_BYTES) {
            return false;
        }
    }
    return info->time_follows_shapes && !info->data_dependent;
}

/* Decides where the version runs. Only instances can preserve ordering, because a worker does not
 * know the calls of another worker. */
static enum status choose_run_on(struct model_version *version, const sluice_model_info *info,
                                 struct error *err) {
    version->run_on = version->config.run_on;
    bool has_sequences = version->config.sequences.strategy != SEQUENCES_NONE;
    if (has_sequences && version->run_on == RUN_ON_WORKER) {
        return error_set(err, ST_BAD_CONFIG,
                         "sequence batching needs instance threads: sluice.run_on must not be "
                         "worker");
    }
    if (version->config.preserve_ordering && version->run_on == RUN_ON_WORKER) {
        return error_set(err, ST_BAD_CONFIG,
                         "preserve_ordering needs instance threads: sluice.run_on must not "
                         "be worker");
    }
    if (version->config.decoupled && version->run_on == RUN_ON_WORKER) {
        return error_set(err, ST_BAD_CONFIG,
                         "a decoupled model needs instance threads, which may block for slow "
                         "readers: sluice.run_on must not be worker");
    }
    if (version->placement.any && version->run_on == RUN_ON_WORKER) {
        return error_set(err, ST_BAD_CONFIG,
                         "a host policy (--host-policy) needs instance threads: sluice.run_on must "
                         "not be worker");
    }
    /* Batches wait for more requests, which a worker cannot do. */
    bool waits = version->config.max_batch_size > 0 && version->config.max_queue_delay_us > 0;
    if (version->run_on == RUN_ON_WORKER && waits) {
        log_event(LOG_WARNING,
                  "max_queue_delay_microseconds has no effect on requests that run on the worker "
                  "that read them (sluice.run_on)",
                  LOG_STR("model", version->config.name));
    } else if (version->config.preserve_ordering || version->config.decoupled || has_sequences ||
               version->placement.any || (version->run_on == RUN_AUTO && waits)) {
        version->run_on = RUN_ON_INSTANCE;
    } else if (version->run_on == RUN_AUTO && version->plan.layout) {
        version->run_on = RUN_ON_INSTANCE; /* a batch takes as long as its longest request */
    } else if (version->run_on == RUN_AUTO && info->cheap) {
        version->run_on = RUN_ON_WORKER;
    } else if (version->run_on == RUN_AUTO && !times_tell(version, info)) {
        version->run_on = RUN_ON_INSTANCE;
    }
    if (version->run_on != RUN_AUTO) {
        return ST_OK;
    }
    return shape_times_init(&version->shape_times, version->arena,
                            has_fixed_shapes(&version->plan.spec),
                            version->plan.spec.max_batch_size > 0, err);
}

static bool is_ensemble(const struct model_version *version) {
    return version->config.ensemble.n_steps > 0;
}

/* An ensemble has no instances: its calls are run by what its members are called with. */
static enum status open_ensemble(struct model_version *version,
                                 const struct version_options *options, struct error *err) {
    if (!options->ensemble_ops) {
        return error_set(err, ST_UNSUPPORTED, "ensembles are not run here");
    }
    version->ensemble_ops = options->ensemble_ops;
    version->run_on = RUN_ON_INSTANCE; /* not on a worker as a whole */
    enum status st = statistics_init(&version->statistics, version->arena, 0,
                                     version->config.max_batch_size, err);
    return st == ST_OK ? version->ensemble_ops->open(version, options->ensemble_user,
                                                     &version->ensemble, err)
                       : st;
}

static enum status open_instances(struct model_version *version, const sluice_model_info *info,
                                  struct error *err) {
    enum status st = choose_run_on(version, info, err);
    if (st != ST_OK) {
        return st;
    }
    version->instances =
        arena_calloc(version->arena, version->n_instances, sizeof(*version->instances));
    if (!version->instances) {
        return error_no_memory(err, "%zu instances", version->n_instances);
    }
    st = statistics_init(&version->statistics, version->arena, version->n_instances,
                         version->config.max_batch_size, err);
    if (st == ST_OK) {
        st = instances_open(version, err);
    }
    if (st != ST_OK) {
        return st;
    }
    st = warmup_run(version, err);
    if (st == ST_OK) {
        st = instances_start(version, err);
    }
    if (st != ST_OK) {
        instances_close(version);
    }
    statistics_recent_begin(&version->statistics.recent);
    return st;
}

enum status version_open(const struct version_options *options, struct model_version **out,
                         struct error *err) {
    sluice_model_info info;
    struct model_version *version = version_alloc(options, err);
    if (!version) {
        return ST_NO_MEMORY;
    }
    divide_cpus(version, options);
    latency_init(&version->statistics.latency, options->latencies,
                 options->config->first_response_bounds, options->config->n_first_response_bounds);
    enum status st = placement_enter_all(version, err);
    if (st == ST_OK) {
        st = open_model(version, options, err);
    }
    if (st == ST_OK) {
        st = describe_model(version, options, &info, err);
    }
    if (st == ST_OK && info.cheap && options->config->instance_count == 0 &&
        options->config->sequences.strategy == SEQUENCES_NONE && !version->placement.any) {
        version->n_instances = options->usable_cpus; /* one per worker that may run it */
    }
    if (is_ensemble(version)) {
        version->n_instances = 0;
    }
    version->config.instance_count = version->n_instances; /* reported as resolved */
    if (st == ST_OK) {
        st = scheduler_configure(&version->scheduler, version->arena, &version->config,
                                 options->max_queue_size, err);
    }
    if (st == ST_OK && options->on_version_opened) {
        st = options->on_version_opened(options->on_version_opened_user, version, err);
    }
    if (st == ST_OK) {
        st = tell_config(version, options, err);
    }
    if (st == ST_OK) {
        st = is_ensemble(version) ? open_ensemble(version, options, err)
                                  : open_instances(version, &info, err);
    }
    placement_leave(version);
    if (st != ST_OK) {
        version_free(version);
        return st;
    }
    *out = version;
    return ST_OK;
}

/* ---- serving --------------------------------------------------------------------------------- */

bool version_enter(struct model_version *version, struct error *err) {
    /* Sequentially consistent with version_stop: either it sees this call, or this call sees the
     * stop. */
    atomic_fetch_add_explicit(&version->n_in_flight, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&version->stopping, memory_order_seq_cst)) {
        version_leave(version);
        char name[QUOTED_NAME_BYTES];
        error_set(err, ST_NOT_READY, "model %s is being stopped",
                  quote_name(version->plan.spec.name, name));
        return false;
    }
    return true;
}

void version_leave(struct model_version *version) {
    atomic_fetch_sub_explicit(&version->n_in_flight, 1, memory_order_release);
}

void model_version_ref(struct model_version *version) {
    atomic_fetch_add_explicit(&version->refs, 1, memory_order_relaxed);
}

void model_version_unref(struct model_version *version) {
    size_t before = atomic_fetch_sub_explicit(&version->refs, 1, memory_order_release);
    assert(before > 1); /* the repository holds the first reference until version_close */
}

const struct model_spec *model_version_spec(const struct model_version *version) {
    return &version->plan.spec;
}

const uint64_t *model_version_siblings(const struct model_version *version, size_t *n) {
    const struct version_numbers *siblings =
        atomic_load_explicit(&version->siblings, memory_order_acquire);
    *n = siblings->n;
    return siblings->numbers;
}

const struct model_config *model_version_config(const struct model_version *version) {
    return &version->config;
}

bool model_version_is_ready(const struct model_version *version) {
    return !HAS(version->backend, model_is_ready) ||
           version->backend->model_is_ready(version->model) != 0;
}

struct str model_version_directory(const struct model_version *version) {
    return version->directory;
}

struct arena *model_version_arena(struct model_version *version) {
    return version->arena;
}

void model_version_note_failing_host(struct model_version *version, uint64_t host,
                                     uint64_t until_ns) {
    failing_hosts_note(&version->failing_hosts, host, until_ns);
}

bool model_version_has_failing_host(const struct model_version *version, uint64_t host,
                                    uint64_t now_ns) {
    return failing_hosts_has(&version->failing_hosts, host, now_ns);
}

uint64_t model_version_response_bytes(const struct model_version *version) {
    return atomic_load_explicit(&version->response_bytes, memory_order_relaxed);
}

/* Stored only where it has changed by a quarter, so that the workers seldom write one cache
 * line. */
void model_version_note_response_bytes(struct model_version *version, uint64_t n_bytes) {
    uint64_t known = model_version_response_bytes(version);
    if (n_bytes > known + known / 4 || n_bytes < known - known / 4) {
        atomic_store_explicit(&version->response_bytes, n_bytes, memory_order_relaxed);
    }
}

void model_version_set_user_data(struct model_version *version, enum model_version_slot slot,
                                 const void *data) {
    version->user_data[slot] = data;
}

const void *model_version_user_data(const struct model_version *version,
                                    enum model_version_slot slot) {
    return version->user_data[slot];
}

/* ---- stopping and closing -------------------------------------------------------------------- */

void version_reject_calls(struct model_version *version) {
    atomic_store_explicit(&version->stopping, true, memory_order_seq_cst);
}

void version_end_delays(struct model_version *version) {
    scheduler_end_delays(&version->scheduler);
}

void version_stop(struct model_version *version) {
    version_reject_calls(version);
    /* Polled instead of signalled: the thread that ends the last call must not use the version
     * after its decrement, and serving pays nothing for an event that happens once. The calls of an
     * ensemble end on their workers, which may have ended; its members are waited for. */
    while (!version->ensemble_ops &&
           atomic_load_explicit(&version->n_in_flight, memory_order_acquire) > 0) {
        nanosleep(&(struct timespec){.tv_nsec = STOP_POLL_NS}, NULL);
    }
    instances_stop(version);
}

void version_close(struct model_version *version) {
    size_t held = atomic_load_explicit(&version->refs, memory_order_acquire) - 1;
    if (held > 0) {
        /* A holder of a reference or of an answer's bytes would use freed memory, so the version is
         * leaked. */
        log_event(LOG_ERROR, "model not freed: requests still reference it",
                  LOG_STR("model", version->plan.spec.name), LOG_U64("requests", held));
        return;
    }
    instances_close(version);
    version_free(version);
}
