/* Loads models: at start, on request, and when polling finds changed files. All versions of a model
 * are loaded first and then replace the served ones in one step, so that "the highest version" does
 * not change during a load. A failure is recorded with its reason and does not affect other models.
 *
 * Polling compares fingerprints that are taken before the files are read: files that are written
 * meanwhile have another fingerprint in the next poll, and are loaded again. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/log.h"
#include "core/base/num.h"
#include "core/event/clock.h"
#include "core/must/must.h"
#include "serve/config/fingerprint.h"
#include "serve/repository/internal.h"
#include "serve/repository/kept_versions.h"
#include "serve/repository/op_library.h"
#include "serve/repository/override.h"

const char *ready_list_print(const struct ready_list *ready, char out[SERVED_TEXT_BYTES]) {
    size_t len = 0;
    out[0] = '\0';
    for (size_t i = 0; i < ready->n && len < SERVED_TEXT_BYTES - 1; i++) {
        bool last_room = len > SERVED_TEXT_BYTES - 28;
        int wrote = last_room ? snprintf(out + len, SERVED_TEXT_BYTES - len, ", ...")
                              : snprintf(out + len, SERVED_TEXT_BYTES - len, "%s%" PRIu64,
                                         i > 0 ? ", " : "", ready->numbers[i]);
        len = last_room ? SERVED_TEXT_BYTES : len + (size_t)wrote;
    }
    return out;
}

/* ---- one version ----------------------------------------------------------------------------- */

/* Of the parameters that the server's settings give to the backend, those that the model lacks. */
static enum status add_backend_params(const struct repository *repository, struct str backend,
                                      struct arena *arena, struct model_config *config,
                                      struct version_options *options, struct error *err) {
    enum status st = ST_OK;
    for (size_t i = 0; i < repository->n_backend_params && st == ST_OK; i++) {
        const struct repository_backend_param *given = &repository->backend_params[i];
        if (!str_eq(given->backend, backend)) {
            continue;
        }
        if (str_is(given->param.name, "default-max-batch-size")) {
            st = num_parse_u64(given->param.value, &options->default_max_batch_size)
                     ? ST_OK
                     : error_set(err, ST_BAD_CONFIG, "default-max-batch-size: expected a number");
        } else if (!model_config_has_param(config, given->param.name)) {
            struct model_config_param param = {given->param.name, given->param.value, false};
            st = model_config_set_param(arena, config, &param, err);
        }
    }
    return st == ST_OK ? st : error_prefix(err, "--backend-config");
}

static enum status load_version(struct repository *repository, struct model *model,
                                struct model_attempt *attempt) {
    struct version_options options = {
        .config = &model->config,
        .name = model->name,
        .version = attempt->number,
        .directory = model->directory,
        .default_max_batch_size = repository->default_max_batch_size,
        .max_queue_size = repository->max_queue_size,
        .max_output_size = repository->max_output_size,
        .latencies = repository->latencies,
        .slow_reader_timeout_ns = repository->slow_reader_timeout_ns,
        .is_complete = repository->config_rules.must_be_complete,
        .print_config = repository->print_config,
        .calls = repository->calls,
        .from_request = model->override_config.ptr != NULL && !repository->programs_from_requests,
        .usable_cpus = repository->cpus.usable,
        .host_policies = repository->host_policies,
        .avoid_spinning = repository->cpus.quota_below_affinity,
        .cache = repository->cache,
        .state_budget = &repository->state_budget,
        .ensemble_ops = repository->ensemble_ops,
        .ensemble_user = repository,
        .on_version_opened = repository->on_version_opened,
        .on_version_opened_user = repository->on_version_opened_user,
    };
    enum status st =
        model_find_file(repository->list.backends, &repository->backends_lock, model,
                        attempt->number, &options.backend, &options.path, &attempt->error);
    struct model_config config = model->config;
    if (st == ST_OK && config.ensemble.n_steps > 0) {
        st = ensemble_complete(repository, model, &config, &attempt->error);
    }
    if (st == ST_OK) {
        struct str own = str_of(options.backend->name), name = own;
        if (backends_program(repository->list.backends, config.backend).ptr) {
            name = config.backend;
            st = add_backend_params(repository, name, model->arena, &config, &options,
                                    &attempt->error);
        }
        config.backend = name;
        options.config = &config;
        if (st == ST_OK) {
            st = add_backend_params(repository, own, model->arena, &config, &options,
                                    &attempt->error);
        }
    }
    if (st == ST_OK) {
        const struct op_library_places places = {
            .directories = repository->op_library_dirs,
            .n_directories = repository->n_op_library_dirs,
        };
        st = op_libraries_find(model, attempt->number, &places, &options.op_libraries,
                               &options.n_op_libraries, &attempt->error);
    }
    if (st == ST_OK) {
        st = version_open(&options, &attempt->version, &attempt->error);
    }
    return st;
}

static bool is_given_up(struct repository *repository, const struct model *model) {
    lock_acquire(&repository->lock);
    bool abandoned = model->abandoned;
    lock_release(&repository->lock);
    return abandoned || atomic_load_explicit(&repository->stopping, memory_order_relaxed);
}

static void try_version(struct repository *repository, struct model *model,
                        struct model_attempt *attempt) {
    uint64_t began_ns = clock_now_ns();
    struct running_load running = {.model = model, .number = attempt->number, .began_ns = began_ns};
    lock_acquire(&repository->lock);
    TAILQ_INSERT_TAIL(&repository->running_loads, &running, link);
    lock_release(&repository->lock);
    enum status st = load_version(repository, model, attempt);
    for (uint64_t i = 0; st != ST_OK && i < repository->model_load_retry_count; i++) {
        if (is_given_up(repository, model)) {
            break;
        }
        log_event(LOG_WARNING, "model failed to load, and is tried again",
                  LOG_STR("model", model->name), LOG_U64("version", attempt->number),
                  LOG_CSTR("reason", attempt->error.text));
        st = load_version(repository, model, attempt);
    }
    if (st == ST_OK) {
        attempt->error = (struct error){0};
    }
    lock_acquire(&repository->lock);
    TAILQ_REMOVE(&repository->running_loads, &running, link);
    lock_release(&repository->lock);
    if (st != ST_OK) {
        log_event(LOG_ERROR, "model failed to load", LOG_STR("model", model->name),
                  LOG_U64("version", attempt->number), LOG_CSTR("reason", attempt->error.text));
        return;
    }
    struct model_version *version = attempt->version;
    version->statistics.loaded_ns = clock_now_ns() - began_ns;
    uint64_t loaded_ms = version->statistics.loaded_ns / 1000000;
    log_event(LOG_INFO, "model loaded", LOG_STR("model", model->name),
              LOG_U64("version", attempt->number), LOG_CSTR("backend", version->backend->name),
              LOG_U64("max_batch_size", version->config.max_batch_size),
              LOG_U64("instances", version->n_instances), LOG_U64("threads", version->n_threads),
              LOG_F64("seconds", (double)loaded_ms / 1e3));
}

void repository_get_loads(struct repository *repository, struct repository_loads *out) {
    lock_acquire(&repository->lock);
    *out = (struct repository_loads){.n_start = repository->n_start};
    size_t n_pending = atomic_load_explicit(&repository->n_start_pending, memory_order_relaxed);
    out->n_start_done = out->n_start > n_pending ? out->n_start - n_pending : 0;
    const struct running_load *load;
    TAILQ_FOREACH(load, &repository->running_loads, link) {
        if (!load->model->abandoned && out->n++ == 0) {
            snprintf(out->model, sizeof(out->model), "%.*s", STR_ARG(load->model->name));
            out->version = load->number;
            out->began_ns = load->began_ns;
        }
    }
    lock_release(&repository->lock);
}

static void try_versions(struct repository *repository, struct model *model) {
    bool stopping = atomic_load_explicit(&repository->stopping, memory_order_relaxed);
    if (stopping && model->error.status == ST_OK) {
        error_set(&model->error, ST_NOT_READY, "the server is being stopped");
    } else if (model->error.status != ST_OK) {
        log_event(LOG_ERROR, "model failed to load", LOG_STR("model", model->name),
                  LOG_CSTR("reason", model->error.text));
    } else {
        for (size_t i = 0; i < model->n_attempts; i++) {
            if (!model->attempts[i].kept) {
                try_version(repository, model, &model->attempts[i]);
            }
        }
    }
}

/* ---- one model ------------------------------------------------------------------------------- */

static bool has_served(const struct model *served, uint64_t number) {
    for (size_t i = 0; i < served->ready->n; i++) {
        if (served->ready->numbers[i] == number) {
            return true;
        }
    }
    return false;
}

/* The list of loaded versions; NULL when there are none or memory is out. */
static struct ready_list *ready_list_new(struct model *model) {
    struct arena *arena = model->arena;
    struct ready_list *ready = arena_calloc(arena, 1, sizeof(*ready));
    if (!ready) {
        return NULL;
    }
    ready->versions = arena_calloc(arena, model->n_attempts, sizeof(struct model_version *));
    ready->numbers = arena_calloc(arena, model->n_attempts, sizeof(*ready->numbers));
    if (!ready->versions || !ready->numbers) {
        return NULL;
    }
    for (size_t i = 0; i < model->n_attempts; i++) {
        if (model->attempts[i].version) {
            ready->versions[ready->n] = model->attempts[i].version;
            ready->numbers[ready->n++] = model->attempts[i].number;
        }
    }
    ready->siblings = (struct version_numbers){ready->n, ready->numbers};
    for (size_t i = 0; i < model->n_attempts; i++) {
        if (model->attempts[i].version && !model->attempts[i].kept) {
            atomic_init(&model->attempts[i].version->siblings, &ready->siblings);
        }
    }
    return ready->n > 0 ? ready : NULL;
}

/* Combines the versions' errors into the model's error. */
static void collect_failures(struct model *model) {
    char text[sizeof(model->error.text)], version[40] = "";
    size_t len = 0;
    enum status status = ST_OK;
    for (size_t i = 0; i < model->n_attempts && len < sizeof(text); i++) {
        const struct model_attempt *attempt = &model->attempts[i];
        if (!attempt->version) {
            status = status == ST_OK ? attempt->error.status : status;
            if (!model->file_backend) { /* which has one version */
                snprintf(version, sizeof(version), "%sversion %" PRIu64 ": ", len > 0 ? "; " : "",
                         attempt->number);
            }
            len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%s", version,
                                    attempt->error.text);
        }
    }
    if (model->error.status == ST_OK && status != ST_OK) {
        error_set(&model->error, status, "%s", text);
    }
}

/* Closes the versions of a model that will not be served. */
static void close_opened_versions(struct model *model) {
    for (size_t i = 0; i < model->n_attempts; i++) {
        struct model_attempt *attempt = &model->attempts[i];
        if (attempt->kept) { /* it is the served model's */
            attempt->kept = false;
        } else if (attempt->version) {
            version_stop(attempt->version);
            version_close(attempt->version);
        } else {
            continue;
        }
        attempt->version = NULL;
        error_set(&attempt->error, ST_BAD_MODEL, "not served: another version failed to load");
    }
    model->ready = NULL;
    model_remove_files(model);
}

/* Updates n_failed for a load at start, and for a later load that repairs such a failure. */
static void count_failure(struct repository *repository, struct model_slot *model_slot,
                          bool failed) {
    bool counts = failed && !model_origin_is_ambiguous(&model_slot->origin);
    if (counts && !model_slot->counted) {
        atomic_fetch_add_explicit(&repository->n_failed, 1, memory_order_relaxed);
    } else if (!counts && model_slot->counted) {
        atomic_fetch_sub_explicit(&repository->n_failed, 1, memory_order_relaxed);
    }
    model_slot->counted = counts;
    model_slot->failed = failed;
}

/* Serves the model. Returns: false, with nothing changed, when memory is out. */
static bool model_slot_swap_in(struct repository *repository, struct model_slot *model_slot,
                               struct model *model) {
    struct model *served = model_slot->serving, *inactive = model_slot->inactive,
                 *loading = model_slot->loading;
    model_slot->serving = model;
    model_slot->inactive = NULL;
    model_slot->loading = NULL;
    if (served) {
        versions_take_over(model, served);
        retire_model(repository, model_slot, served);
    }
    if (model_slot_publish(repository, model_slot)) {
        versions_set_siblings(model);
        retire_inactive(repository, inactive);
        return true;
    }
    if (served) {
        retire_cancel(repository, served);
        versions_give_back(model, served);
    }
    model_slot->serving = served;
    model_slot->inactive = inactive;
    model_slot->loading = loading;
    error_no_memory(&model->error, "the table of models");
    return false;
}

/* A load that failed for want of threads or descriptors is tried again by the next poll, not only
 * when the files change: nearly all fingerprints are different from this one, as is 0, that of no
 * files. */
static void retry_if_not_ready(struct model_slot *model_slot, const struct model *model) {
    for (size_t i = 0; model->attempts && i < model->n_attempts; i++) {
        if (!model->attempts[i].version && model->attempts[i].error.status == ST_NOT_READY) {
            model_slot->tried_fingerprint = UINT64_MAX;
        }
    }
    if (model->error.status == ST_NOT_READY) {
        model_slot->tried_fingerprint = UINT64_MAX;
    }
}

/* Records the failure; the current model is served on. Owns: takes `model` when it returns true;
 * false: memory is out. */
static bool record_failure(struct repository *repository, struct model_slot *model_slot,
                           struct model *model) {
    retry_if_not_ready(model_slot, model);
    struct model *inactive = model_slot->inactive;
    model_slot->loading = NULL;
    model_slot->inactive = model;
    bool published = model_slot_publish(repository, model_slot);
    if (published) {
        retire_inactive(repository, inactive);
    } else {
        model_slot->inactive = inactive;
    }
    return published;
}

static void notify_state_changed(struct repository *repository) {
    if (repository->on_state_changed) {
        repository->on_state_changed(repository->on_state_changed_user);
    }
}

/* Which versions are not loaded again: "1, 3". */
static const char *print_kept(const struct model *model, char out[SERVED_TEXT_BYTES]) {
    struct ready_list kept = *model->ready;
    uint64_t numbers[SERVED_TEXT_BYTES];
    kept.n = 0;
    kept.numbers = numbers;
    for (size_t i = 0; i < model->n_attempts && kept.n < SERVED_TEXT_BYTES; i++) {
        if (model->attempts[i].kept) {
            numbers[kept.n++] = model->attempts[i].number;
        }
    }
    return ready_list_print(&kept, out);
}

/* Publishes a model whose versions are loaded. Owns: takes `model` when it returns true. */
static bool publish_model(struct repository *repository, struct model *model,
                          enum load_occasion occasion) {
    lock_acquire(&repository->lock);
    if (model->abandoned) {
        lock_release(&repository->lock);
        return false;
    }
    struct model_slot *model_slot = model_slot_get(repository, model->name);
    char kept[SERVED_TEXT_BYTES];
    print_kept(model, kept);
    bool published = model_slot && model_slot_swap_in(repository, model_slot, model);
    bool failed = model->error.status != ST_OK;
    if (published) {
        retry_if_not_ready(model_slot, model);
    }
    if (published && kept[0]) {
        log_event(LOG_INFO, "model versions that did not change are served on",
                  LOG_STR("model", model->name), LOG_CSTR("versions", kept));
    }
    if (published && (!failed || occasion == LOAD_AT_START)) {
        count_failure(repository, model_slot, failed);
    } else if (!model_slot) {
        error_no_memory(&model->error, "the table of models");
    }
    lock_release(&repository->lock);
    return published;
}

/* Keeps the model as its slot's failed one, or frees it: without the lock, as it may have files to
 * be removed. */
static void discard_model(struct repository *repository, struct model **owned,
                          enum load_occasion occasion) {
    struct model *model = *owned;
    close_opened_versions(model);
    lock_acquire(&repository->lock);
    struct model_slot *model_slot = model_slot_find(repository_name_table(repository), model->name);
    bool kept = false;
    if (model->abandoned) {
        log_event(LOG_INFO, "model discarded: its load was cancelled or took too long",
                  LOG_STR("model", model->name));
    } else if (model_slot) {
        if (occasion == LOAD_AT_START) {
            count_failure(repository, model_slot, true);
        }
        kept = record_failure(repository, model_slot, model);
    }
    if (!kept) {
        *owned = NULL;
    }
    lock_release(&repository->lock);
    if (!kept) {
        model_free(model);
    }
}

/* Publishes that the model is loading. Returns: whether a model of that name is served
 * meanwhile. */
static bool publish_loading(struct repository *repository, struct model *model, bool *abandoned) {
    lock_acquire(&repository->lock);
    struct model_slot *model_slot = model_slot_find(repository_name_table(repository), model->name);
    *abandoned = model->abandoned;
    if (model_slot && !model_slot->loading && !model->abandoned) {
        model_slot->loading = model;
        if (!model_slot_publish(repository, model_slot)) {
            model_slot->loading = NULL; /* not published as loading; it is loaded all the same */
        }
    }
    bool served = model_slot && model_slot->serving;
    lock_release(&repository->lock);
    return served;
}

/* The served versions, beside which one is loaded. */
struct others {
    uint64_t *numbers;
    size_t n;
};

/* Of the files of a model that is in two directories: which of them is meant is not known. */
static const uint64_t AMBIGUOUS_FINGERPRINT = UINT64_MAX - 1;

/* Makes a model from that origin, the rules and `override` (NULL: none), whose directory becomes
 * the model's.
 * Returns: NULL when out of memory; else the model, whose `error` is set if it cannot be loaded. */
static struct model *model_prepare(const struct model_origin *origin,
                                   const struct config_rules *rules,
                                   const struct load_override *override,
                                   const struct others *others, const atomic_bool *cancelled,
                                   struct error *err) {
    struct model *model = model_new(origin);
    bool kept = model != NULL;
    if (kept && others->n > 0) {
        model->others = others->numbers;
        model->n_others = others->n;
    }
    if (kept && override && override->config.ptr) {
        model->override_config = arena_dup(model->arena, override->config);
        kept = model->override_config.ptr != NULL;
    }
    if (kept && override && override->directory.path) {
        struct str directory = arena_dup(model->arena, str_of(override->directory.path));
        model->source = model->directory = directory;
        model->file_backend = NULL;
        kept = directory.ptr != NULL;
    }
    if (!kept) {
        model_free(model);
        error_no_memory(err, "the model");
        return NULL;
    }
    model->only_version = override ? override->version : 0;
    model->by_version = model->only_version > 0;
    if (override && override->directory.path) {
        model->temporary_directory = override->directory;
        model->temporary_directory.path = model->directory.ptr;
    } else if (model_origin_is_ambiguous(origin)) {
        log_event(LOG_ERROR, "model is in two repositories", LOG_STR("model", model->name),
                  LOG_STR("path", origin->path), LOG_STR("other", origin->other));
        error_set(&model->error, ST_BAD_MODEL, MODEL_IS_AMBIGUOUS);
        model->fingerprint = AMBIGUOUS_FINGERPRINT;
        return model;
    }
    model_inspect(model, rules, cancelled);
    return model;
}

/* Returns: whether the model cannot be loaded, or the server lacks what it takes now. */
static enum status load_status(enum status why) {
    return why == ST_NOT_READY || why == ST_NO_MEMORY || why == ST_OVERLOADED ? why : ST_BAD_MODEL;
}

enum status load_model(struct repository *repository, struct model **owned,
                       enum load_occasion occasion, struct error *err) {
    struct model *model = *owned;
    bool abandoned, served = publish_loading(repository, model, &abandoned);
    if (!abandoned) {
        try_versions(repository, model);
    }
    collect_failures(model);
    bool in_part = occasion != LOAD_REQUESTED && !served;
    model->ready = model->error.status == ST_OK || in_part ? ready_list_new(model) : NULL;
    if (!model->ready && model->error.status == ST_OK) {
        error_no_memory(&model->error, "the table of versions");
    }
    struct error why = model->error;
    if (!model->ready || !publish_model(repository, model, occasion)) {
        why = model->error;
        discard_model(repository, owned, occasion);
    }
    notify_state_changed(repository);
    bool stopping = atomic_load_explicit(&repository->stopping, memory_order_relaxed);
    return why.status == ST_OK
               ? ST_OK
               : error_set(err, stopping ? ST_NOT_READY : load_status(why.status), "%s", why.text);
}

void load_abandon(struct repository *repository, struct str name, struct model *model,
                  enum load_occasion occasion, bool unloaded, const struct error *why) {
    lock_assert_held(&repository->lock);
    struct model_slot *model_slot = model_slot_find(repository_name_table(repository), name);
    if (model && model_slot && model_slot->serving == model) {
        return; /* it is served already */
    }
    if (model) {
        model->abandoned = true;
    }
    if (!model_slot) {
        return;
    }
    if (occasion == LOAD_AT_START) {
        count_failure(repository, model_slot, true);
    }
    if (model_slot->loading == model) {
        model_slot->loading = NULL;
    }
    struct model_origin origin = model_slot->origin;
    origin.name = model_slot->name;
    struct model *failed = model_new(&origin); /* the loading thread still uses `model` */
    if (failed) {
        size_t n = model ? model->n_attempts : 0; /* it has the same version numbers */
        failed->attempts = n > 0 ? arena_calloc(failed->arena, n, sizeof(*failed->attempts)) : NULL;
        for (size_t i = 0; failed->attempts && i < n; i++) {
            failed->attempts[failed->n_attempts++].number = model->attempts[i].number;
        }
        failed->error = *why;
        failed->unloaded = unloaded;
        if (!record_failure(repository, model_slot, failed)) {
            model_free(failed);
        }
    }
}

/* A failure is not reported any more when its files were removed. */
static void clear_failure(struct repository *repository, struct model_slot *model_slot) {
    struct model *inactive = model_slot->inactive;
    if (!inactive || inactive->unloaded ||
        atomic_load_explicit(&model_slot->listed, memory_order_relaxed)) {
        return;
    }
    model_slot->inactive = NULL;
    if (model_slot_publish(repository, model_slot)) {
        retire_inactive(repository, inactive);
    } else {
        model_slot->inactive = inactive;
    }
}

void unload_model_slot(struct repository *repository, struct model_slot *model_slot) {
    lock_assert_held(&repository->lock);
    struct model *model = model_slot->serving, *inactive = model_slot->inactive;
    if (!model) {
        count_failure(repository, model_slot, false);
        clear_failure(repository, model_slot);
        return;
    }
    model->unloaded = true;
    model_slot->serving = NULL;
    model_slot->inactive = NULL;
    retire_model(repository, model_slot, model);
    if (!model_slot_publish(repository, model_slot)) {
        retire_cancel(repository, model);
        model->unloaded = false;
        model_slot->serving = model;
        model_slot->inactive = inactive;
        return;
    }
    retire_inactive(repository, inactive);
    count_failure(repository, model_slot, false);
    model_slot_note_unused(repository, model_slot);
    log_event(LOG_INFO, "model unloaded", LOG_STR("model", model_slot->name));
}

bool unload_model_version(struct repository *repository, struct model_slot *model_slot,
                          uint64_t number) {
    lock_assert_held(&repository->lock);
    struct model *served = model_slot->serving;
    if (!served || !has_served(served, number)) {
        return true;
    }
    if (served->ready->n == 1) {
        unload_model_slot(repository, model_slot);
        return true;
    }
    struct model *rest = versions_without(served, number);
    if (rest) {
        rest->ready = ready_list_new(rest);
    }
    if (!rest || !rest->ready || !model_slot_swap_in(repository, model_slot, rest)) {
        model_free(rest);
        return false;
    }
    log_event(LOG_INFO, "model version unloaded", LOG_STR("model", model_slot->name),
              LOG_U64("version", number));
    return true;
}

/* ---- directories ----------------------------------------------------------------------------- */

/* Marks the found models as listed; new names get a slot. */
static void mark_found_listed(struct repository *repository, const struct model_list *found) {
    repository->n_scans++;
    for (size_t i = 0; i < found->n; i++) {
        struct model_slot *model_slot = model_slot_get(repository, found->items[i].name);
        if (model_slot) {
            model_slot->found_by = repository->n_scans;
        }
        if (model_slot && !model_slot->origin.pinned) { /* a model given by path keeps its origin */
            bool was_ambiguous = model_origin_is_ambiguous(&model_slot->origin);
            (void)model_slot_set_origin(model_slot, &found->items[i]);
            if (was_ambiguous != model_origin_is_ambiguous(&model_slot->origin)) {
                (void)model_slot_publish(repository, model_slot);
            }
        }
    }
}

/* Marks models that were not found as unlisted. After mark_found_listed, under the same lock. */
static void mark_missing_unlisted(struct repository *repository) {
    const struct name_table *name_table = repository_name_table(repository);
    for (size_t i = 0; i < name_table->n; i++) {
        struct model_slot *model_slot = name_table->model_slots[i];
        bool there = model_slot->origin.pinned || model_slot->found_by == repository->n_scans;
        if (!there && atomic_exchange(&model_slot->listed, false)) {
            model_slot_note_unused(repository, model_slot);
        }
    }
    forget_names(repository);
}

uint64_t root_device(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 ? (uint64_t)info.st_dev : 0;
}

static const uint64_t UNAVAILABLE_LOG_NS = UINT64_C(60000000000);

/* Returns: whether the model is served and was found in the directory. */
static bool is_served_from(const struct model_slot *model_slot, struct str root) {
    struct str path = model_slot->origin.path;
    return model_slot->serving && !model_slot->origin.pinned && path.len > root.len &&
           memcmp(path.ptr, root.ptr, root.len) == 0 && path.ptr[root.len] == '/';
}

/* Counts the served models that were found in the directory, and those of them that `found` has. */
static void count_served(struct repository *repository, struct str root,
                         const struct model_list *found, size_t *n_served, size_t *n_found) {
    *n_served = *n_found = 0;
    lock_acquire(&repository->lock);
    const struct name_table *name_table = repository_name_table(repository);
    for (size_t i = 0; i < name_table->n; i++) {
        *n_served += is_served_from(name_table->model_slots[i], root);
    }
    for (size_t i = 0; i < found->n; i++) {
        const struct model_slot *model_slot = model_slot_find(name_table, found->items[i].name);
        *n_found += model_slot && is_served_from(model_slot, root);
    }
    lock_release(&repository->lock);
}

/* Logs and counts that the directory became unavailable, is it still, or is back. */
static void set_unavailable(struct repository *repository, size_t i, const char *reason) {
    struct root_state *root = &repository->roots[i];
    struct str path = repository->list.roots[i].path;
    lock_acquire(&repository->lock);
    bool was = root->unavailable;
    root->unavailable = reason != NULL;
    if (was != root->unavailable) {
        atomic_fetch_add(&repository->n_unavailable, was ? -1 : 1);
    }
    uint64_t now_ns = clock_now_ns();
    bool log = reason && (!was || now_ns >= root->log_next_ns);
    if (log) {
        root->log_next_ns = now_ns + UNAVAILABLE_LOG_NS;
    }
    lock_release(&repository->lock);
    if (log) {
        log_event(LOG_ERROR, "model repository unavailable: its models are kept",
                  LOG_STR("path", path), LOG_CSTR("reason", reason));
    } else if (was && !reason) {
        log_event(LOG_INFO, "model repository available again", LOG_STR("path", path));
    }
}

/* Lists the models of a directory, in the arena of `found`. A volume that was unmounted leaves an
 * empty directory, or one of another device with other contents. Returns: NULL, or why the models
 * that are missing are not taken for removed. */
static const char *scan_one_root(struct repository *repository, size_t i, struct model_list *found,
                                 struct error *err) {
    struct str path = repository->list.roots[i].path;
    uint64_t device = root_device(path.ptr);
    if (scan_root(found, &repository->list.roots[i], err) != ST_OK) {
        return err->text;
    }
    size_t n_served, n_found;
    count_served(repository, path, found, &n_served, &n_found);
    if (n_served > 0 && found->n == 0) {
        return "it is empty";
    }
    if (n_served > 0 && n_found == 0 && device != repository->roots[i].device) {
        return "it is on another device and has none of the models";
    }
    repository->roots[i].device = device;
    return NULL;
}

/* Scans each directory. Returns: false when missing models may be there still. */
static bool scan_all_roots(struct repository *repository, struct model_list *found) {
    bool all = true;
    for (size_t i = 0; i < repository->list.n_roots; i++) {
        struct model_list one = {.arena = found->arena,
                                 .backends = repository->list.backends,
                                 .backends_lock = &repository->backends_lock};
        struct error err;
        const char *reason = scan_one_root(repository, i, &one, &err);
        set_unavailable(repository, i, reason);
        all = all && !reason;
        for (size_t j = 0; j < one.n; j++) {
            all = model_list_merge(found, &one.items[j]) && all;
        }
    }
    return all;
}

/* Returns: false when missing models may be there still. */
static bool scan_and_list(struct repository *repository) {
    struct arena *arena = arena_new(NULL, 0);
    struct model_list found = {.arena = arena};
    bool all = arena && scan_all_roots(repository, &found);
    lock_acquire(&repository->lock);
    mark_found_listed(repository, &found);
    if (all) {
        mark_missing_unlisted(repository);
    }
    lock_release(&repository->lock);
    arena_free(arena);
    return all;
}

void poll_scan(struct repository *repository) {
    scan_and_list(repository);
}

/* Finds where a model of that name is now. Returns: false when there is none. */
static bool find_origin(struct repository *repository, struct str name, struct model_origin *out,
                        struct arena *arena) {
    *out = (struct model_origin){.name = name, .path = STR("")};
    lock_acquire(&repository->lock);
    const struct model_slot *model_slot = model_slot_find(repository_name_table(repository), name);
    if (model_slot && model_slot->origin.pinned) {
        *out = model_slot->origin;
        out->path = arena_dup(arena, model_slot->origin.path);
        out->other = STR("");
    }
    lock_release(&repository->lock);
    if (out->pinned) {
        struct stat info;
        return out->path.ptr && stat(out->path.ptr, &info) == 0;
    }
    for (size_t i = 0; i < repository->list.n_roots && model_name_is_valid(name); i++) {
        struct str path =
            arena_printf(arena, "%s/%.*s", repository->list.roots[i].path.ptr, STR_ARG(name));
        if (path.ptr && name.ptr[0] != '.' && model_dir_exists(path.ptr)) {
            *(out->path.len > 0 ? &out->other : &out->path) = path;
        }
    }
    return out->path.len > 0;
}

/* Returns: whether the served model has the directory's current fingerprint and no override; for a
 * load of one version, whether it has that. */
static bool is_unchanged(struct repository *repository, const struct model *model) {
    lock_acquire(&repository->lock);
    const struct model_slot *model_slot =
        model_slot_find(repository_name_table(repository), model->name);
    const struct model *served = model_slot ? model_slot->serving : NULL;
    const struct published_view *view =
        model_slot ? atomic_load_explicit(&model_slot->view, memory_order_relaxed) : NULL;
    bool misses_members = view && view->missing; /* they are loaded, too */
    bool same = model->error.status == ST_OK && served &&
                served->fingerprint == model->fingerprint && !misses_members &&
                served->error.status == ST_OK && str_eq(served->source, model->source);
    same = model->only_version > 0
               ? same && served->common_fingerprint == model->common_fingerprint &&
                     has_served(served, model->only_version)
               : same && !served->by_version && !served->override_config.ptr &&
                     !model->override_config.ptr;
    lock_release(&repository->lock);
    return same;
}

/* Finds a requested model, and records where. */
static enum status find_requested(struct repository *repository, struct str name, bool has_files,
                                  struct model_origin *out, struct arena *arena,
                                  struct error *err) {
    bool there = find_origin(repository, name, out, arena), kept = true;
    if (!there && !has_files) {
        char quoted[QUOTED_NAME_BYTES];
        return error_set(err, ST_UNKNOWN_MODEL,
                         "failed to load %s, failed to poll from model repository: model not found "
                         "in any model repository",
                         quote_name_single(name, quoted));
    }
    if (there && !out->pinned) {
        lock_acquire(&repository->lock);
        struct model_slot *model_slot = model_slot_get(repository, name);
        kept = model_slot && model_slot_set_origin(model_slot, out);
        lock_release(&repository->lock);
    }
    return kept ? ST_OK : error_no_memory(err, "the table of models");
}

/* The origin that the latest scan found. */
static enum status find_scanned(struct repository *repository, struct str name,
                                struct model_origin *out, struct arena *arena, struct error *err) {
    lock_acquire(&repository->lock);
    *out = model_slot_find(repository_name_table(repository), name)->origin;
    out->path = arena_dup(arena, out->path);
    out->other = arena_dup(arena, out->other);
    lock_release(&repository->lock);
    return out->path.ptr && out->other.ptr ? ST_OK : error_no_memory(err, "the model");
}

/* For a load of one version: which others are served, and the configuration that a request gave for
 * them. Returns: ST_BAD_FIELD. Owns: in `arena`. */
static enum status find_others(struct repository *repository, struct str name, struct arena *arena,
                               struct load_override *override, struct others *out,
                               struct error *err) {
    enum status st = ST_OK;
    lock_acquire(&repository->lock);
    const struct model_slot *model_slot = model_slot_find(repository_name_table(repository), name);
    const struct model *served = model_slot ? model_slot->serving : NULL;
    if (served && served->temporary_directory.path) {
        st = error_set(err, ST_BAD_FIELD,
                       "\"%.*s\" is served with the files of a request, which are all its versions",
                       STR_ARG(name));
    } else if (served) {
        out->numbers = arena_calloc(arena, served->ready->n, sizeof(*out->numbers));
        for (size_t i = 0; out->numbers && i < served->ready->n; i++) {
            out->numbers[out->n++] = served->ready->numbers[i];
        }
        bool copied = out->numbers != NULL;
        if (served->override_config.ptr) {
            override->config = arena_dup(arena, served->override_config);
            copied = copied && override->config.ptr;
        }
        st = copied ? ST_OK : error_no_memory(err, "the model");
    }
    lock_release(&repository->lock);
    return st;
}

enum status load_prepare(struct repository *repository, struct str name,
                         const struct load_override *override, enum load_occasion occasion,
                         const atomic_bool *cancelled, struct model **out, bool *unchanged,
                         struct error *err) {
    struct arena *arena = arena_new(NULL, 0);
    struct model_origin origin = {.path = STR("")};
    struct others others = {NULL, 0};
    bool requested = occasion == LOAD_REQUESTED;
    struct load_override given = override ? *override : (struct load_override){.version = 0};
    *out = NULL;
    *unchanged = false;
    enum status st = !arena ? error_no_memory(err, "the model")
                     : requested
                         ? find_requested(repository, name, override->directory.path != NULL,
                                          &origin, arena, err)
                         : find_scanned(repository, name, &origin, arena, err);
    if (st == ST_OK && given.version > 0) {
        st = find_others(repository, name, arena, &given, &others, err);
    }
    struct model *model = st == ST_OK ? model_prepare(&origin, &repository->config_rules, &given,
                                                      &others, cancelled, err)
                                      : NULL;
    arena_free(arena);
    if (!model) {
        return err->status;
    }
    model->others = NULL;
    model->n_others = 0;
    if (model->error.status == ST_UNKNOWN_VERSION) {
        *err = model->error;
        model_free(model);
        return err->status;
    }
    if (requested && is_unchanged(repository, model)) {
        *unchanged = true;
        model_free(model);
        return ST_OK;
    }
    lock_acquire(&repository->lock);
    struct model_slot *model_slot = model_slot_find(repository_name_table(repository), name);
    if (!requested) {
        model_slot->tried_fingerprint = model->fingerprint;
    }
    if (model_slot) {
        versions_keep(model, model_slot->serving);
    }
    lock_release(&repository->lock);
    *out = model;
    return ST_OK;
}

/* ---- polling --------------------------------------------------------------------------------- */

/* The result of a scan for one name. */
struct finding {
    struct model_origin origin; /* its path is in the scan's arena */
    uint64_t tried_fingerprint;
    bool listed;
    bool served;
    bool walking; /* by an abandoned poll */
};

static bool read_model_slot(struct repository *repository, size_t i, struct arena *arena,
                            struct finding *out) {
    lock_acquire(&repository->lock);
    const struct name_table *name_table = repository_name_table(repository);
    bool there = i < name_table->n;
    if (there) {
        const struct model_slot *model_slot = name_table->model_slots[i];
        *out = (struct finding){
            .origin = model_slot->origin,
            .tried_fingerprint = model_slot->tried_fingerprint,
            .listed = atomic_load_explicit(&model_slot->listed, memory_order_relaxed),
            .served = model_slot->serving != NULL,
            .walking = model_slot->walking,
        };
        out->origin.name = arena_dup(arena, model_slot->name);
        out->origin.path = arena_dup(arena, model_slot->origin.path);
        out->origin.other = arena_dup(arena, model_slot->origin.other);
        there = out->origin.name.ptr && out->origin.path.ptr && out->origin.other.ptr;
    }
    lock_release(&repository->lock);
    return there;
}

enum { POLLS_UNTIL_REMOVED = 2 };

/* Returns: whether the path does not exist, as opposed to an I/O error or a file system that does
 * not answer. */
static bool is_absent(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 || errno == ENOENT || errno == ENOTDIR;
}

/* The fingerprint counts as tried from here on, so that a load that is given up is not begun again
 * before the files change. */
static void load_changed(struct repository *repository, struct str name, uint64_t fingerprint) {
    lock_acquire(&repository->lock);
    if (changes_load_found(repository, name)) {
        model_slot_find(repository_name_table(repository), name)->tried_fingerprint = fingerprint;
    }
    lock_release(&repository->lock);
}

/* Counts polls in a row that miss the model. Returns: how many. */
static unsigned count_missing(struct repository *repository, struct str name, bool missing) {
    lock_acquire(&repository->lock);
    struct model_slot *model_slot = model_slot_find(repository_name_table(repository), name);
    unsigned n = missing ? model_slot->n_missing + 1 : 0;
    model_slot->n_missing = n;
    lock_release(&repository->lock);
    return n;
}

/* A model that two directories have now is no longer served; its load records why. */
static void unload_ambiguous(struct repository *repository, struct str name) {
    lock_acquire(&repository->lock);
    changes_unload(repository, name);
    lock_release(&repository->lock);
    load_changed(repository, name, AMBIGUOUS_FINGERPRINT);
    notify_state_changed(repository);
}

/* `gone`: all directories were read, so a missing model was removed. It is unloaded when two polls
 * in a row miss it: its directory may be about to be replaced. */
static void check_model(struct repository *repository, const struct finding *finding, bool gone) {
    struct str name = finding->origin.name;
    bool there = finding->listed || finding->origin.pinned;
    uint64_t now = 0;
    struct error err;
    if (there && model_origin_is_ambiguous(&finding->origin)) {
        if (finding->tried_fingerprint != AMBIGUOUS_FINGERPRINT) {
            unload_ambiguous(repository, name);
        }
        return;
    }
    enum status st =
        there ? fingerprint_take(finding->origin.path.ptr, &repository->draining, &now, &err)
              : ST_OK;
    if (st != ST_OK && st != ST_BAD_MODEL) { /* of too many files the load says so */
        return;
    }
    bool stays = now == 0 && finding->served; /* removed while it was being loaded again */
    bool missing = now == 0 && gone && is_absent(finding->origin.path.ptr);
    unsigned n_missing = count_missing(repository, name, missing);
    if ((now == finding->tried_fingerprint && !stays) ||
        (now == 0 && n_missing < POLLS_UNTIL_REMOVED)) {
        return;
    }
    if (now == 0) {
        log_event(LOG_INFO, "model files removed", LOG_STR("model", name));
        lock_acquire(&repository->lock);
        changes_unload(repository, name);
        model_slot_find(repository_name_table(repository), name)->tried_fingerprint = 0;
        lock_release(&repository->lock);
        notify_state_changed(repository);
    } else {
        load_changed(repository, name, now);
    }
}

static bool is_ending(struct repository *repository) {
    return atomic_load_explicit(&repository->draining, memory_order_seq_cst);
}

/* Records that the model's files are, or are no longer, looked at: meanwhile its slot stays.
 * *goes_on: false when the poll was abandoned. Returns: false when the slot was removed before. */
static bool set_walking(struct repository *repository, const struct poll_watch *watch,
                        struct str name, bool walking, bool *goes_on) {
    lock_acquire(&repository->lock);
    struct model_slot *model_slot = model_slot_find(repository_name_table(repository), name);
    if (model_slot) {
        model_slot->walking = walking;
        *goes_on = watch->on_model(watch->user, walking ? name : (struct str){NULL, 0});
    }
    lock_release(&repository->lock);
    return model_slot != NULL;
}

void poll_models(struct repository *repository, const struct poll_watch *watch) {
    bool gone = scan_and_list(repository);
    bool more = true;
    for (size_t i = 0; more && !is_ending(repository); i++) {
        struct arena *arena = arena_new(NULL, 0);
        struct finding finding;
        more = arena && read_model_slot(repository, i, arena, &finding);
        if (more && !finding.walking) {
            struct str name = finding.origin.name;
            if (set_walking(repository, watch, name, true, &more)) {
                check_model(repository, &finding, gone);
                (void)set_walking(repository, watch, name, false, &more);
            }
        }
        arena_free(arena);
    }
}

/* ---- start ----------------------------------------------------------------------------------- */

/* Returns: false after the last slot; *out is the slot's model if it is to be loaded at start, else
 * NULL. */
static bool next_load_at_start(struct repository *repository, size_t i, struct model **out) {
    *out = NULL;
    lock_acquire(&repository->lock);
    const struct name_table *name_table = repository_name_table(repository);
    bool there = i < name_table->n;
    if (there && name_table->model_slots[i]->load_at_start) {
        struct model_slot *model_slot = name_table->model_slots[i];
        model_slot->load_at_start = false;
        *out = model_slot->loading;
    }
    lock_release(&repository->lock);
    return there;
}

void load_replace_start(struct repository *repository, struct model **loading,
                        struct model *prepared) {
    lock_assert_held(&repository->lock);
    struct model *old = *loading;
    struct model_slot *model_slot = model_slot_find(repository_name_table(repository), old->name);
    *loading = prepared;
    if (model_slot->loading == old) {
        model_slot->loading = prepared;
        (void)model_slot_publish(repository, model_slot); /* else the old view stays */
    }
    model_free(old); /* views do not refer to a loading model */
}

/* Returns: ST_OK with *model the prepared one. */
static enum status prepare_start(struct repository *repository, struct model **model,
                                 struct error *err) {
    struct model *prepared = NULL;
    bool unchanged;
    enum status st = load_prepare(repository, (*model)->name, NULL, LOAD_AT_START, NULL, &prepared,
                                  &unchanged, err);
    if (st == ST_OK && prepared) {
        lock_acquire(&repository->lock);
        load_replace_start(repository, model, prepared);
        lock_release(&repository->lock);
    } else {
        (*model)->error = *err;
    }
    return st;
}

static bool load_at_start(struct repository *repository, struct model *model) {
    struct error err;
    bool loaded = load_model(repository, &model, LOAD_AT_START, &err) == ST_OK;
    atomic_fetch_sub_explicit(&repository->n_start_pending, 1, memory_order_release);
    return loaded;
}

static bool has_waiting_member(const struct model *ensemble, struct model *const *waiting,
                               size_t n) {
    for (size_t i = 0; i < ensemble->config.ensemble.n_steps; i++) {
        for (size_t j = 0; j < n; j++) {
            if (waiting[j] != ensemble &&
                str_eq(waiting[j]->name, ensemble->config.ensemble.steps[i].model)) {
                return true;
            }
        }
    }
    return false;
}

/* Loads ensembles after those that are their members. Returns: how many failed. */
static size_t load_ensembles(struct repository *repository, struct model **waiting, size_t n) {
    size_t n_failed = 0;
    while (n > 0) {
        size_t i = 0;
        while (i < n && has_waiting_member(waiting[i], waiting, n)) {
            i++;
        }
        i = i < n ? i : 0; /* a circle: each of them says what it lacks */
        struct model *next = waiting[i];
        memmove(&waiting[i], &waiting[i + 1], (--n - i) * sizeof(*waiting));
        n_failed += !load_at_start(repository, next);
    }
    return n_failed;
}

/* Loads the models of the start on the calling thread, by name, and ensembles after the others. */
static void load_all(struct repository *repository, size_t *n, size_t *n_failed) {
    struct model **ensembles = must_have(
        calloc(repository_name_table(repository)->n + 1, sizeof(*ensembles)), "the ensembles");
    struct model *model;
    struct error err;
    size_t n_ensembles = 0;
    *n = *n_failed = 0;
    for (size_t i = 0; next_load_at_start(repository, i, &model); i++) {
        if (!model) {
            continue;
        }
        ++*n;
        (void)prepare_start(repository, &model, &err); /* load_model fails otherwise */
        if (model->config.ensemble.n_steps > 0) {
            ensembles[n_ensembles++] = model;
        } else {
            *n_failed += !load_at_start(repository, model);
        }
    }
    *n_failed += load_ensembles(repository, ensembles, n_ensembles);
    free(ensembles);
}

enum status repository_load(struct repository *repository, struct error *err) {
    size_t n, n_failed;
    load_all(repository, &n, &n_failed);
    return n_failed == 0
               ? ST_OK
               : error_set(err, ST_BAD_MODEL, "%zu of %zu models could not be loaded", n_failed, n);
}
