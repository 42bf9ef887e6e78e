/* The directory of one model: its configuration, its versions, and the file of each. */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "codec/kserve/repository.h"
#include "core/base/doc/doc.h"
#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/base/num.h"
#include "serve/config/fingerprint.h"
#include "serve/repository/checksum.h"
#include "serve/repository/model.h"
#include "serve/repository/override.h"

static bool path_exists(const char *path) {
    struct stat info;
    return stat(path, &info) == 0;
}

bool model_dir_exists(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

bool model_dir_version(const char *name, uint64_t *out) {
    return name[0] != '0' && num_parse_u64(str_of(name), out);
}

bool model_dir_is_model(const char *path) {
    char inner[PATH_MAX];
    uint64_t number;
    bool found = (size_t)snprintf(inner, sizeof(inner), "%s/config.pbtxt", path) < sizeof(inner) &&
                 path_exists(inner);
    DIR *dir = found ? NULL : opendir(path);
    if (!dir) {
        return found;
    }
    for (struct dirent *entry = readdir(dir); entry && !found; entry = readdir(dir)) {
        found =
            model_dir_version(entry->d_name, &number) &&
            (size_t)snprintf(inner, sizeof(inner), "%s/%s", path, entry->d_name) < sizeof(inner) &&
            model_dir_exists(inner);
    }
    closedir(dir);
    return found;
}

/* ---- configuration --------------------------------------------------------------------------- */

/* Compares with the last component of the directory's real path. */
static bool is_directory_name(const struct model *model, struct str name) {
    char *real = realpath(model->directory.ptr, NULL);
    const char *slash = real ? strrchr(real, '/') : NULL;
    bool same = slash && str_is(name, slash + 1);
    free(real);
    return same;
}

/* The file of the configuration: configs/NAME.pbtxt if it is there, else config.pbtxt. Returns:
 * NULL when out of memory. */
static const char *config_path(const struct model *model, const struct config_rules *rules,
                               struct stat *info, bool *found) {
    const char *directory = model->directory.ptr;
    struct str path = {NULL, 0};
    *found = false;
    if (rules->name) {
        path = arena_printf(model->arena, "%s/configs/%s.pbtxt", directory, rules->name);
        *found = path.ptr && stat(path.ptr, info) == 0;
    }
    if (!*found) {
        path = arena_printf(model->arena, "%s/config.pbtxt", directory);
        *found = path.ptr && stat(path.ptr, info) == 0;
    }
    return path.ptr;
}

/* Returns: ST_OK with *doc NULL when there is no configuration. */
static enum status open_config(struct model *model, const struct config_rules *rules,
                               struct doc **doc, struct error *err) {
    *doc = NULL;
    if (model->override_config.ptr) {
        struct str text;
        enum status st =
            model_config_json_rewrite(model->arena, model->override_config, &text, err);
        return st == ST_OK ? doc_parse(DOC_JSON, "the configuration given", text, doc, err) : st;
    }
    struct stat info;
    bool found;
    const char *path = config_path(model, rules, &info, &found);
    if (!path) {
        return error_no_memory(err, "the model's configuration");
    }
    if (!found) {
        return ST_OK;
    }
    return S_ISREG(info.st_mode)
               ? doc_load(DOC_PBTXT, path, doc, err)
               : error_set(err, ST_BAD_CONFIG, "%s: expected a regular file", path);
}

static enum status read_config(struct model *model, const struct config_rules *rules,
                               struct error *err) {
    struct doc *doc;
    enum status st = open_config(model, rules, &doc, err);
    if (st != ST_OK || !doc) {
        return st;
    }
    model->has_config = true;
    st = model_config_read(model->arena, doc, &rules->reading, &model->config, err);
    if (model->override_config.ptr && !model->temporary_directory.path) {
        model->config.files = model->file_backend ? MODEL_FILES_NONE : MODEL_FILES_PUBLIC;
    }
    struct str name = model->config.name;
    if (st == ST_OK && name.len > 0 && !str_eq(name, model->name) &&
        !is_directory_name(model, name)) {
        struct doc_node root = doc_root(doc);
        struct doc_node node = doc_get(&root, "name");
        st = doc_error(&node, err, "\"%.*s\" must be the name of the model's directory, \"%.*s\"",
                       STR_ARG(name), STR_ARG(model->name));
    }
    doc_free(doc);
    return st;
}

/* ---- versions -------------------------------------------------------------------------------- */

struct numbers {
    uint64_t *items;
    size_t n;
    size_t cap;
};

static bool numbers_add(struct arena *arena, struct numbers *numbers, uint64_t number) {
    if (numbers->n == numbers->cap) {
        size_t cap = numbers->cap * 2 + 8;
        uint64_t *items = arena_realloc(arena, numbers->items, numbers->cap * sizeof(*items),
                                        cap * sizeof(*items));
        if (!items) {
            return false;
        }
        numbers->items = items;
        numbers->cap = cap;
    }
    numbers->items[numbers->n++] = number;
    return true;
}

static int compare_numbers(const void *a, const void *b) {
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

/* All version directories, ascending. */
static enum status find_versions(struct arena *arena, const struct model *model,
                                 struct numbers *out, struct error *err) {
    DIR *dir = opendir(model->directory.ptr);
    enum status st = ST_OK;
    if (!dir) {
        return error_set(err, status_of_errno(errno, ST_BAD_MODEL), "%s: %s", model->directory.ptr,
                         strerror(errno));
    }
    for (struct dirent *entry = readdir(dir); entry && st == ST_OK; entry = readdir(dir)) {
        char path[PATH_MAX];
        uint64_t number;
        bool fits = (size_t)snprintf(path, sizeof(path), "%s/%s", model->directory.ptr,
                                     entry->d_name) < sizeof(path);
        if (entry->d_name[0] == '.' || !fits || !model_dir_exists(path)) {
            continue;
        }
        if (!model_dir_version(entry->d_name, &number)) {
            log_event(LOG_DEBUG, "not a version's directory: its name is not a number from 1 on",
                      LOG_CSTR("path", path));
        } else if (!numbers_add(arena, out, number)) {
            st = error_no_memory(err, "the model's versions");
        }
    }
    closedir(dir);
    if (out->n > 0) {
        qsort(out->items, out->n, sizeof(*out->items), compare_numbers);
    }
    return st;
}

static bool is_requested(const struct model *model, uint64_t number) {
    for (size_t i = 0; i < model->n_others; i++) {
        if (model->others[i] == number) {
            return true;
        }
    }
    return number == model->only_version;
}

/* Returns: whether the version policy, or a request, selects found version `i`. */
static bool is_chosen(const struct model *model, const struct numbers *found, size_t i) {
    if (model->only_version > 0) {
        return is_requested(model, found->items[i]);
    }
    switch (model->config.policy) {
    case VERSIONS_LATEST:
        return found->n - i <= model->config.latest_count;
    case VERSIONS_ALL:
        return true;
    case VERSIONS_SPECIFIC:
        for (size_t j = 0; j < model->config.n_specific; j++) {
            if (model->config.specific[j] == found->items[i]) {
                return true;
            }
        }
        break;
    }
    return false;
}

static enum status choose_versions(struct arena *arena, struct model *model,
                                   const struct numbers *found, struct error *err) {
    model->attempts = arena_calloc(arena, found->n, sizeof(*model->attempts));
    if (!model->attempts) {
        return error_no_memory(err, "the model's versions");
    }
    uint64_t only = model->only_version;
    if (only > 0 &&
        (found->n == 0 || !bsearch(&only, found->items, found->n, sizeof(only), compare_numbers))) {
        return error_set(err, ST_UNKNOWN_VERSION, "%s has no version %" PRIu64, model->source.ptr,
                         only);
    }
    for (size_t i = 0; only == 0 && i < model->config.n_specific; i++) {
        uint64_t number = model->config.specific[i];
        if (!found->n ||
            !bsearch(&number, found->items, found->n, sizeof(number), compare_numbers)) {
            log_event(LOG_WARNING, "version_policy names a version that is not there",
                      LOG_STR("model", model->name), LOG_U64("version", number));
        }
    }
    for (size_t i = 0; i < found->n; i++) {
        if (is_chosen(model, found, i)) {
            model->attempts[model->n_attempts++].number = found->items[i];
        }
    }
    if (model->n_attempts > 0) {
        return ST_OK;
    }
    if (found->n == 0) {
        return error_set(err, ST_BAD_MODEL,
                         "%s has no version: expected a directory named by a number from 1 on, "
                         "without leading zeros",
                         model->directory.ptr);
    }
    return error_set(
        err, ST_BAD_MODEL, "%s has none of the versions that version_policy names, but %s%" PRIu64,
        model->directory.ptr, found->n > 1 ? "others, up to " : "", found->items[found->n - 1]);
}

/* What is left out would be read from the model, which --disable-auto-complete-config excludes. */
static enum status check_complete(const struct model *model, struct error *err) {
    const struct model_config *config = &model->config;
    const char *missing = !model->has_config ? "a config.pbtxt"
                          : config->backend.len == 0 && config->platform.len == 0
                              ? "backend or platform"
                          : config->n_inputs == 0  ? "input"
                          : config->n_outputs == 0 ? "output"
                                                   : NULL;
    return missing ? error_set(err, ST_BAD_CONFIG,
                               "%s: expected %s, as --disable-auto-complete-config was given",
                               model->source.ptr, missing)
                   : ST_OK;
}

/* The server's own settings for the model override its config.pbtxt. */
static enum status merge_params(struct arena *arena, struct model *model, struct error *err) {
    enum status st = ST_OK;
    for (size_t i = 0; model->params && i < model->params->n && st == ST_OK; i++) {
        const struct repository_param *given = &model->params->items[i];
        struct model_config_param param = {given->name, given->value, true};
        st = model_config_set_param(arena, &model->config, &param, err);
    }
    return st == ST_BAD_CONFIG ? error_prefix(err, "the parameters that the server is given") : st;
}

static enum status inspect_model(struct model *model, const struct config_rules *rules,
                                 const atomic_bool *cancelled, struct error *err) {
    struct arena *arena = model->arena;
    struct numbers found = {0};
    enum status st = ST_OK;
    if (model->override_config.ptr || !model->file_backend) {
        st = read_config(model, rules, err);
    }
    if (st == ST_OK && rules->must_be_complete) {
        st = check_complete(model, err);
    }
    if (st == ST_OK && model->file_backend) {
        st = numbers_add(arena, &found, 1) ? ST_OK : error_no_memory(err, "the model's version");
    } else if (st == ST_OK) {
        st = find_versions(arena, model, &found, err);
    }
    if (st == ST_OK) {
        st = merge_params(arena, model, err);
    }
    if (st == ST_OK) {
        st = checksums_verify(model, cancelled, err);
    }
    if (st == ST_OK && model->config.written_for_gpus) {
        log_event(LOG_INFO, "model written for GPUs runs on CPUs (--gpu-models-on-cpu)",
                  LOG_STR("model", model->name));
    }
    return st == ST_OK ? choose_versions(arena, model, &found, err) : st;
}

/* The parts of a model's fingerprint. */
struct parts {
    struct model *model;
    struct part {
        uint64_t number, hash;
    } * items; /* of versions' directories */
    size_t n, cap;
    uint64_t common;
};

static void add_part(void *user, const char *name, uint64_t hash) {
    struct parts *parts = user;
    uint64_t number;
    if (!model_dir_version(name, &number)) {
        parts->common += hash;
        return;
    }
    if (parts->n == parts->cap) {
        size_t cap = parts->cap * 2 + 8;
        struct part *items = arena_realloc(parts->model->arena, parts->items,
                                           parts->cap * sizeof(*items), cap * sizeof(*items));
        if (!items) { /* of that version nothing is known: it is loaded again */
            return;
        }
        parts->items = items;
        parts->cap = cap;
    }
    parts->items[parts->n++] = (struct part){number, hash};
}

static void set_fingerprints(struct model *model, const struct parts *parts) {
    uint64_t config = fnv1a_of(model->override_config.ptr ? model->override_config : STR(""));
    model->common_fingerprint = parts->common ^ config;
    for (size_t i = 0; i < model->n_attempts; i++) {
        struct model_attempt *attempt = &model->attempts[i];
        attempt->fingerprint = model->file_backend ? model->fingerprint : 0;
        for (size_t j = 0; j < parts->n; j++) {
            if (parts->items[j].number == attempt->number) {
                attempt->fingerprint = parts->items[j].hash;
            }
        }
    }
}

void model_inspect(struct model *model, const struct config_rules *rules,
                   const atomic_bool *cancelled) {
    struct error err;
    struct parts parts = {.model = model};
    const struct fingerprint_entries entries = {add_part, &parts};
    model->config = (struct model_config){.policy = VERSIONS_LATEST, .latest_count = 1};
    if (fingerprint_take_entries(model->source.ptr, &entries, cancelled, &model->fingerprint,
                                 &err) != ST_OK ||
        inspect_model(model, rules, cancelled, &err) != ST_OK) {
        model->error = err;
    }
    set_fingerprints(model, &parts);
}

/* ---- creation -------------------------------------------------------------------------------- */

struct model *model_new(const struct model_origin *origin) {
    struct arena *arena = arena_new(NULL, 0);
    struct model *model = arena ? arena_calloc(arena, 1, sizeof(*model)) : NULL;
    if (!model) {
        arena_free(arena);
        return NULL;
    }
    model->arena = arena;
    model->name = arena_dup(arena, origin->name);
    model->source = arena_dup(arena, origin->path);
    model->directory = origin->file_backend ? STR("") : model->source;
    model->file_backend = origin->file_backend;
    model->params = origin->params;
    atomic_init(&model->refs, 1);
    if (!model->name.ptr || !model->source.ptr) {
        arena_free(arena);
        return NULL;
    }
    return model;
}

void model_remove_files(struct model *model) {
    if (model->temporary_directory.path) {
        override_remove(&model->temporary_directory);
        model->temporary_directory.path = NULL;
    }
}

static void model_unref(struct model *model) {
    if (atomic_fetch_sub_explicit(&model->refs, 1, memory_order_acq_rel) == 1) {
        arena_free(model->arena);
    }
}

void model_free(struct model *model) {
    if (model) {
        model_remove_files(model);
        for (size_t i = 0; i < model->n_attempts; i++) {
            if (model->attempts[i].home) {
                model_unref(model->attempts[i].home);
            }
        }
        model_unref(model);
    }
}

/* ---- model files ----------------------------------------------------------------------------- */

static struct str version_file_path(struct arena *arena, const struct model *model, uint64_t number,
                                    const char *name, const char *extension) {
    return arena_printf(arena, "%s/%" PRIu64 "/%s%s", model->directory.ptr, number, name,
                        extension);
}

/* For backends_find: is there a model file with this extension? The names are read before, without
 * the lock of the backends: a volume may hang. */
struct extension_guess {
    struct str filename; /* the configured one; empty: model.EXTENSION */
    struct str *names;   /* of the version's files that begin with "model." */
    size_t n, cap;
};

static bool has_default_file(void *user, const char *extension) {
    const struct extension_guess *guess = user;
    if (guess->filename.len > 0) {
        return str_ends_with(guess->filename, str_of(extension));
    }
    for (size_t i = 0; i < guess->n; i++) {
        if (str_is(str_make(guess->names[i].ptr + 5, guess->names[i].len - 5), extension)) {
            return true;
        }
    }
    return false;
}

static bool add_name(struct arena *arena, struct extension_guess *guess, const char *name) {
    if (guess->n == guess->cap) {
        size_t cap = guess->cap * 2 + 8;
        struct str *names =
            arena_realloc(arena, guess->names, guess->cap * sizeof(*names), cap * sizeof(*names));
        if (!names) {
            return false;
        }
        guess->names = names;
        guess->cap = cap;
    }
    guess->names[guess->n] = arena_dup(arena, str_of(name));
    return guess->names[guess->n++].ptr != NULL;
}

static enum status read_names(struct arena *arena, const struct model *model, uint64_t number,
                              struct extension_guess *guess, struct error *err) {
    struct str path = version_file_path(arena, model, number, "", "");
    DIR *dir = path.ptr ? opendir(path.ptr) : NULL;
    if (path.ptr && !dir && status_of_errno(errno, ST_OK) != ST_OK) {
        return error_set(err, ST_NOT_READY, "%s: %s", path.ptr, strerror(errno));
    }
    bool ok = path.ptr != NULL;
    for (struct dirent *entry = dir ? readdir(dir) : NULL; entry && ok; entry = readdir(dir)) {
        ok = strncmp(entry->d_name, "model.", 6) != 0 || add_name(arena, guess, entry->d_name);
    }
    if (dir) {
        closedir(dir);
    }
    return ok ? ST_OK : error_no_memory(err, "the model's files");
}

static enum status get_backend(struct backends *backends, struct lock *lock, struct str name,
                               const sluice_backend **out, struct error *err) {
    lock_acquire(lock);
    enum status st = backends_get(backends, name, out, err);
    lock_release(lock);
    return st;
}

static enum status find_backend(struct arena *arena, struct backends *backends, struct lock *lock,
                                const struct model *model, uint64_t number,
                                const sluice_backend **out, struct error *err) {
    if (model->config.backend.len > 0) {
        return get_backend(backends, lock, model->config.backend, out, err);
    }
    struct extension_guess guess = {.filename = model->config.default_filename};
    if (read_names(arena, model, number, &guess, err) != ST_OK) {
        return err->status;
    }
    lock_acquire(lock);
    *out = backends_find(backends, has_default_file, &guess);
    struct error failure;
    bool failed = !*out && backends_failure(backends, &failure);
    lock_release(lock);
    if (*out) {
        return ST_OK;
    }
    return error_set(err, failed ? failure.status : ST_BAD_MODEL,
                     "%s/%" PRIu64
                     " has no file that one of the installed backends (%s) would load "
                     "by itself, such as model.onnx; config.pbtxt can say `backend:` and "
                     "`default_model_filename:`%s%s",
                     model->directory.ptr, number, backends_list(backends),
                     failed ? "; could not be loaded: " : "", failed ? failure.text : "");
}

/* The first existing file with one of the backend's extensions; the version's directory for a
 * backend without extensions. */
static struct str default_file(struct arena *arena, const struct model *model, uint64_t number,
                               const sluice_backend *backend) {
    const char *const *extensions = backend->extensions;
    if (!extensions || !extensions[0]) {
        return version_file_path(arena, model, number, "", "");
    }
    for (const char *const *extension = extensions; *extension; extension++) {
        struct str path = version_file_path(arena, model, number, "model", *extension);
        if (!path.ptr || path_exists(path.ptr)) {
            return path;
        }
    }
    return version_file_path(arena, model, number, "model", extensions[0]);
}

/* Checked here for a clear message: a backend's library may report only a number, and would wait
 * for ever for a writer of a pipe. */
static enum status check_readable(const char *path, struct error *err) {
    struct stat info;
    if (stat(path, &info) != 0 || (!S_ISDIR(info.st_mode) && access(path, R_OK) != 0)) {
        return error_set(err, ST_BAD_MODEL, "%s: cannot be read: %s", path, strerror(errno));
    }
    return S_ISREG(info.st_mode) || S_ISDIR(info.st_mode)
               ? ST_OK
               : error_set(err, ST_BAD_MODEL, "%s: expected a regular file", path);
}

enum status model_find_file(struct backends *backends, struct lock *lock, const struct model *model,
                            uint64_t number, const sluice_backend **backend, struct str *path,
                            struct error *err) {
    struct arena *arena = model->arena;
    if (model->file_backend) {
        *backend = model->file_backend;
        *path = model->source;
        enum status named = model->config.backend.len > 0
                                ? get_backend(backends, lock, model->config.backend, backend, err)
                                : ST_OK;
        return named == ST_OK ? check_readable(path->ptr, err) : named;
    }
    enum status st = find_backend(arena, backends, lock, model, number, backend, err);
    if (st != ST_OK) {
        return st;
    }
    assert(*backend);
    struct str program = backends_program(backends, model->config.backend);
    if (program.ptr) {
        *path = program;
        return check_readable(path->ptr, err);
    }
    *path = model->config.default_filename.len > 0
                ? version_file_path(arena, model, number, model->config.default_filename.ptr, "")
                : default_file(arena, model, number, *backend);
    if (!path->ptr) {
        return error_no_memory(err, "the model's path");
    }
    if (!path_exists(path->ptr)) {
        return error_set(err, ST_BAD_MODEL,
                         "%s: %s (default_model_filename in config.pbtxt can name another file)",
                         path->ptr, strerror(errno));
    }
    return check_readable(path->ptr, err);
}
