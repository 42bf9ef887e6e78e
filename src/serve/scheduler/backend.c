/* Finds and loads backends. */
#include "serve/scheduler/backend.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include "core/base/arena.h"
#include "core/base/buf.h"
#include "core/base/log.h"
#include "core/event/clock.h"
#include "core/os/shared_library.h"
#include "serve/config/config.h"
#include "serve/scheduler/host_callbacks.h"
#include "serve/scheduler/statistics/custom_metrics.h"

/* ---- host functions -------------------------------------------------------------------------- */

static void host_log(sluice_log_level level, const char *model, const char *text) {
    static const enum log_level levels[] = {
        [SLUICE_LOG_ERROR] = LOG_ERROR,
        [SLUICE_LOG_WARNING] = LOG_WARNING,
        [SLUICE_LOG_INFO] = LOG_INFO,
        [SLUICE_LOG_DEBUG] = LOG_DEBUG,
    };
    bool known = (unsigned)level < sizeof(levels) / sizeof(levels[0]);
    enum log_level ours = known ? levels[level] : LOG_INFO;
    if (!model || model[0] == '\0') { /* an error of the backend as a whole */
        log_event(ours, "backend", LOG_CSTR("text", text ? text : ""));
        return;
    }
    log_event(ours, "backend", LOG_CSTR("model", model), LOG_CSTR("text", text ? text : ""));
}

const sluice_host *backend_host(void) {
    static const sluice_host host = {
        .size = sizeof(host),
        .abi = SLUICE_BACKEND_ABI,
        .respond = host_respond,
        .is_cancelled = host_is_cancelled,
        .log = host_log,
        .now_ns = clock_now_ns,
        .computed = host_computed,
        .metric_family_open = custom_family_open,
        .metric_family_close = custom_family_close,
        .metric_open = custom_metric_open,
        .metric_close = custom_metric_close,
        .metric_change = custom_metric_change,
        .metric_value = custom_metric_value,
    };
    return &host;
}

enum status backend_error(struct error *err, const sluice_backend *backend, sluice_status status,
                          const char *text) {
    static const enum status ours[] = {
        [SLUICE_OK] = ST_BACKEND_FAILED,          [SLUICE_INVALID_ARGUMENT] = ST_BAD_REQUEST,
        [SLUICE_NOT_FOUND] = ST_NOT_FOUND,        [SLUICE_UNAVAILABLE] = ST_NOT_READY,
        [SLUICE_UNSUPPORTED] = ST_UNSUPPORTED,    [SLUICE_CANCELLED] = ST_CANCELLED,
        [SLUICE_NO_MEMORY] = ST_NO_MEMORY,        [SLUICE_INTERNAL] = ST_BACKEND_FAILED,
        [SLUICE_TOO_LARGE] = ST_OUTPUT_TOO_LARGE, [SLUICE_ALREADY_EXISTS] = ST_ALREADY_EXISTS,
    };
    bool known = (unsigned)status < sizeof(ours) / sizeof(ours[0]);
    enum status st = known ? ours[status] : ST_BACKEND_FAILED;
    if (!text || text[0] == '\0') {
        return error_set(err, st, "backend %s failed without a reason", backend->name);
    }
    return error_set(err, st, "%s", text);
}

/* ---- parameters ------------------------------------------------------------------------------ */

bool backend_param_fill(struct arena *arena, const struct param *param, sluice_param *out) {
    static const sluice_param_kind kinds[] = {
        [PARAM_BOOL] = SLUICE_PARAM_BOOL,     [PARAM_INT64] = SLUICE_PARAM_INT64,
        [PARAM_UINT64] = SLUICE_PARAM_UINT64, [PARAM_DOUBLE] = SLUICE_PARAM_DOUBLE,
        [PARAM_STRING] = SLUICE_PARAM_STRING,
    };
    struct str name = backend_text(arena, param->name);
    struct str string = backend_text(arena, param->string);
    *out = (sluice_param){
        .name = name.ptr,
        .name_bytes = name.len,
        .kind = kinds[param->kind],
        .boolean = param->boolean,
        .int64 = param->int64,
        .uint64 = param->uint64,
        .number = param->number,
        .string = string.ptr,
        .string_bytes = string.len,
    };
    return name.ptr && string.ptr;
}

bool backend_param_copy(struct arena *arena, const sluice_param *param, struct param *out) {
    static const enum param_kind kinds[] = {
        [SLUICE_PARAM_BOOL] = PARAM_BOOL,     [SLUICE_PARAM_INT64] = PARAM_INT64,
        [SLUICE_PARAM_UINT64] = PARAM_UINT64, [SLUICE_PARAM_DOUBLE] = PARAM_DOUBLE,
        [SLUICE_PARAM_STRING] = PARAM_STRING,
    };
    bool is_string = param->kind == SLUICE_PARAM_STRING;
    *out = (struct param){
        .name = arena_dup(arena, str_make(param->name, param->name_bytes)),
        .kind = kinds[param->kind],
        .boolean = param->boolean != 0,
        .int64 = param->int64,
        .uint64 = param->uint64,
        .number = param->number,
        .string =
            arena_dup(arena, is_string ? str_make(param->string, param->string_bytes) : STR("")),
    };
    return out->name.ptr && out->string.ptr;
}

/* ---- function table -------------------------------------------------------------------------- */

enum status backend_check(const sluice_backend *backend, struct str name, struct error *err) {
    if (!backend) {
        return error_set(err, ST_BAD_MODEL, "its entry function returned no table (see the log)");
    }
    if (backend->abi != SLUICE_BACKEND_ABI) {
        return error_set(err, ST_BAD_MODEL,
                         "it was made for version %" PRIu32
                         " of the backend interface, this server "
                         "has version %u",
                         backend->abi, SLUICE_BACKEND_ABI);
    }
    size_t least = offsetof(sluice_backend, model_configured); /* what follows came later */
    if (backend->size < least) {
        return error_set(err, ST_BAD_MODEL, "its table is %zu bytes, expected at least %zu",
                         backend->size, least);
    }
    if (!backend->model_open || !backend->model_describe || !backend->model_close ||
        !backend->instance_open || !backend->instance_close || !backend->execute) {
        return error_set(err, ST_BAD_MODEL, "a function is missing in its table");
    }
    if (!backend->name || !str_is(name, backend->name)) {
        return error_set(err, ST_BAD_MODEL, "it calls itself \"%s\"",
                         backend->name ? backend->name : "");
    }
    return ST_OK;
}

/* ---- installed backends ---------------------------------------------------------------------- */

struct installed_backend {
    struct str name;
    struct str path;    /* of the file; empty until it is tried */
    struct str program; /* of a backend in Python; ptr NULL: a library */
    bool is_in_directory;
    bool tried;
    const sluice_backend *backend; /* NULL: loading failed */
    struct error error;
};

struct backends {
    struct arena *arena;
    struct str directory;
    struct installed_backend *items; /* sorted by name */
    size_t n;
    size_t cap;
    struct str list;
};

static const struct str file_prefix = {"libsluice_", 10};
static const struct str file_suffix = {".so", 3};

static int compare_names(const void *a, const void *b) {
    const struct installed_backend *left = a, *right = b;
    return strcmp(left->name.ptr, right->name.ptr);
}

static struct installed_backend *find_installed(const struct backends *backends, struct str name) {
    for (size_t i = 0; i < backends->n; i++) {
        if (str_eq(backends->items[i].name, name)) {
            return &backends->items[i];
        }
    }
    return NULL;
}

/* Returns: NULL when out of memory. */
static struct installed_backend *add_installed(struct backends *backends, struct str name) {
    if (backends->n == backends->cap) {
        size_t cap = backends->cap * 2 + 8;
        struct installed_backend *items = arena_realloc(
            backends->arena, backends->items, backends->cap * sizeof(*items), cap * sizeof(*items));
        if (!items) {
            return NULL;
        }
        backends->items = items;
        backends->cap = cap;
    }
    struct installed_backend *item = &backends->items[backends->n];
    *item = (struct installed_backend){.name = arena_dup(backends->arena, name)};
    backends->n += item->name.ptr ? 1 : 0;
    return item->name.ptr ? item : NULL;
}

static bool add_file(struct backends *backends, struct str file) {
    if (!str_starts_with(file, file_prefix) || !str_ends_with(file, file_suffix)) {
        return true;
    }
    struct str name =
        str_make(file.ptr + file_prefix.len, file.len - file_prefix.len - file_suffix.len);
    if (!backend_name_is_valid(name)) {
        return true;
    }
    struct installed_backend *item = find_installed(backends, name);
    item = item ? item : add_installed(backends, name);
    if (item) {
        item->is_in_directory = true;
    }
    return item != NULL;
}

/* A directory with a program. A library of the same name counts more. */
static bool add_program(struct backends *backends, struct str name) {
    struct str python = STR("python");
    if (!backend_name_is_valid(name) || str_eq(name, python) || find_installed(backends, name)) {
        return true;
    }
    struct str program =
        arena_printf(backends->arena, "%s/%.*s/model.py", backends->directory.ptr, STR_ARG(name));
    if (program.ptr && access(program.ptr, F_OK) != 0) {
        return true;
    }
    struct installed_backend *item = program.ptr ? add_installed(backends, name) : NULL;
    if (item) {
        item->is_in_directory = true;
        item->program = program;
    }
    return item != NULL;
}

static bool add_builtin(struct backends *backends, const sluice_backend *backend) {
    struct installed_backend *item = add_installed(backends, str_of(backend->name));
    if (!item) {
        return false;
    }
    item->tried = true;
    if (backend_check(backend, item->name, &item->error) == ST_OK) {
        item->backend = backend;
    }
    return true;
}

/* For messages. `reason`: the errno with which the directory could not be read; 0: it was read. */
static bool build_name_list(struct backends *backends, int reason) {
    struct buf list;
    buf_init(&list, backends->arena, 64);
    for (size_t i = 0; i < backends->n; i++) {
        if (backends->items[i].is_in_directory) {
            buf_printf(&list, "%s%s", list.len > 0 ? ", " : "", backends->items[i].name.ptr);
        }
    }
    if (list.len == 0) {
        buf_printf(&list, "none");
    }
    if (reason != 0) {
        buf_printf(&list, "; %s: %s", backends->directory.ptr, strerror(reason));
    }
    buf_add_char(&list, '\0');
    backends->list = str_make(list.data, list.len);
    return !list.failed;
}

static bool scan_directory(struct backends *backends) {
    bool wanted = backends->directory.ptr != NULL;
    DIR *dir = wanted ? opendir(backends->directory.ptr) : NULL;
    int reason = wanted && !dir ? errno : 0;
    bool ok = true;
    if (dir) {
        for (struct dirent *entry = readdir(dir); entry && ok; entry = readdir(dir)) {
            ok = add_file(backends, str_of(entry->d_name));
        }
        rewinddir(dir);
        for (struct dirent *entry = readdir(dir); entry && ok; entry = readdir(dir)) {
            ok = add_program(backends, str_of(entry->d_name));
        }
        closedir(dir);
    }
    if (ok && backends->n > 0) {
        qsort(backends->items, backends->n, sizeof(*backends->items), compare_names);
    }
    return ok && build_name_list(backends, reason);
}

struct backends *backends_new(const char *directory, const sluice_backend *const *builtin,
                              size_t n_builtin) {
    struct arena *arena = arena_new(NULL, 0);
    struct backends *backends = arena ? arena_calloc(arena, 1, sizeof(*backends)) : NULL;
    if (!backends) {
        arena_free(arena);
        return NULL;
    }
    backends->arena = arena;
    if (directory) {
        backends->directory = arena_dup(arena, str_of(directory));
    }
    bool ok = !directory || backends->directory.ptr;
    for (size_t i = 0; i < n_builtin && ok; i++) {
        ok = add_builtin(backends, builtin[i]);
    }
    if (!ok || !scan_directory(backends)) {
        arena_free(arena);
        return NULL;
    }
    return backends;
}

void backends_free(struct backends *backends) {
    if (backends) {
        arena_free(backends->arena);
    }
}

const char *backends_list(const struct backends *backends) {
    return backends->list.ptr;
}

/* Returns: whether the error may pass: the backend is tried again. */
static bool may_pass(const struct error *err) {
    return err->status == ST_NOT_READY || err->status == ST_NO_MEMORY;
}

bool backends_failure(const struct backends *backends, struct error *out) {
    const struct error *found = NULL;
    for (size_t i = 0; i < backends->n; i++) {
        const struct installed_backend *item = &backends->items[i];
        bool failed = item->tried && !item->backend;
        if (failed && (!found || (may_pass(&item->error) && !may_pass(found)))) {
            found = &item->error;
        }
    }
    if (found) {
        *out = *found;
    }
    return found != NULL;
}

/* ---- loading --------------------------------------------------------------------------------- */

/* The loader tells errno only as text. */
static enum status dlerror_status(const char *text) {
    static const int reasons[] = {EMFILE, ENFILE, ENOMEM};
    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
        if (strstr(text, strerror(reasons[i]))) {
            return status_of_errno(reasons[i], ST_BAD_MODEL);
        }
    }
    return ST_BAD_MODEL;
}

static enum status load_library(const char *path, struct str name, const sluice_backend **out,
                                struct error *err) {
    uv_lib_t lib;
    const sluice_backend *(*entry)(const sluice_host *host);
    void *symbol = NULL;
    enum status st = shared_library_check(path, err);
    if (st != ST_OK) {
        return error_prefix(err, "backend %.*s", STR_ARG(name));
    }
    if (uv_dlopen(path, &lib) != 0 || uv_dlsym(&lib, "sluice_backend_entry", &symbol) != 0) {
        st = error_set(err, dlerror_status(uv_dlerror(&lib)), "%s", uv_dlerror(&lib));
        uv_dlclose(&lib);
    } else {
        memcpy(&entry, &symbol, sizeof(entry)); /* ISO C forbids the cast from an object pointer
                                                   to a function pointer */
        const sluice_backend *backend = entry(backend_host());
        st = backend_check(backend, name, err);
        *out = st == ST_OK ? backend : NULL;
    }
    if (st != ST_OK) {
        error_prefix(err, "backend %.*s (%s)", STR_ARG(name), path);
    }
    return st;
}

static enum status load_once(struct backends *backends, struct installed_backend *item,
                             struct error *err) {
    if (!item->tried || (!item->backend && may_pass(&item->error))) {
        item->tried = true;
        if (!item->path.ptr) {
            item->path = arena_printf(backends->arena, "%s/%s%s%s", backends->directory.ptr,
                                      file_prefix.ptr, item->name.ptr, file_suffix.ptr);
        }
        if (!item->path.ptr) {
            error_no_memory(&item->error, "a backend's path");
        } else if (load_library(item->path.ptr, item->name, &item->backend, &item->error) ==
                   ST_OK) {
            const char *version = item->backend->version;
            log_event(LOG_DEBUG, "backend loaded", LOG_STR("backend", item->name),
                      LOG_CSTR("version", version ? version : ""), LOG_STR("file", item->path));
        }
    }
    if (!item->backend) {
        *err = item->error;
        return err->status;
    }
    return ST_OK;
}

enum status backends_get(struct backends *backends, struct str name, const sluice_backend **out,
                         struct error *err) {
    if (!backend_name_is_valid(name)) {
        return error_set(err, ST_BAD_MODEL,
                         "\"%.*s\" is not the name of a backend: those are made of a-z, 0-9, _ "
                         "and -",
                         STR_ARG(name));
    }
    struct installed_backend *item = find_installed(backends, name);
    if (item && item->program.ptr) {
        item = find_installed(backends, STR("python"));
        if (!item) {
            return error_set(err, ST_BAD_MODEL,
                             "backend %.*s is a program in Python, and the backend python is not "
                             "installed in %s (--backend-dir)",
                             STR_ARG(name), backends->directory.ptr);
        }
    }
    if (item) {
        enum status st = load_once(backends, item, err);
        *out = item->backend;
        return st;
    }
    bool somewhere = backends->directory.ptr != NULL;
    return error_set(err, ST_BAD_MODEL,
                     "no backend %.*s is installed%s%s (--backend-dir); installed: %s",
                     STR_ARG(name), somewhere ? " in " : "",
                     somewhere ? backends->directory.ptr : "", backends->list.ptr);
}

struct str backends_program(const struct backends *backends, struct str name) {
    const struct installed_backend *item = find_installed(backends, name);
    return item ? item->program : str_make(NULL, 0);
}

const sluice_backend *backends_find(struct backends *backends,
                                    bool (*accepts)(void *user, const char *extension),
                                    void *user) {
    for (size_t i = 0; i < backends->n; i++) {
        struct installed_backend *item = &backends->items[i];
        bool first = !item->tried;
        struct error err;
        if (item->program.ptr) {
            continue; /* its models name it */
        }
        if (load_once(backends, item, &err) != ST_OK) {
            if (first) {
                log_event(LOG_WARNING, "a backend could not be loaded",
                          LOG_CSTR("reason", err.text));
            }
            continue;
        }
        const char *const *extension = item->backend->extensions;
        for (; extension && *extension; extension++) {
            if (accepts(user, *extension)) {
                return item->backend;
            }
        }
    }
    return NULL;
}
