/* Finds models from paths. A file is a model; a directory is a model's, a directory of models or
 * one of model files, decided by its contents. A directory that is neither is an error that names
 * what was expected. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "core/base/log.h"
#include "core/base/suggest.h"
#include "core/base/utf8.h"
#include "serve/repository/model.h"

enum { MODEL_NAME_MAX = 255 };

bool model_name_is_valid(struct str name) {
    if (name.len == 0 || name.len > MODEL_NAME_MAX || str_is(name, ".") || str_is(name, "..") ||
        !utf8_is_valid(name.ptr, name.len)) {
        return false;
    }
    for (size_t i = 0; i < name.len; i++) {
        unsigned char c = (unsigned char)name.ptr[i];
        if (c == '/' || c < 0x20 || c == 0x7f) {
            return false;
        }
    }
    return true;
}

/* ---- list ------------------------------------------------------------------------------------ */

static enum status check_name(struct str name, const char *path, struct error *err) {
    if (!model_name_is_valid(name)) {
        return error_set(
            err, ST_BAD_CONFIG,
            "%s: \"%.*s\" cannot be the name of a model: it must be UTF-8 text of 1 to "
            "%d bytes without '/' and control characters, and not \".\" or \"..\"",
            path, STR_ARG(name), MODEL_NAME_MAX);
    }
    return ST_OK;
}

static struct model_origin *find_name(const struct model_list *list, struct str name) {
    for (size_t i = 0; i < list->n; i++) {
        if (str_eq(list->items[i].name, name)) {
            return &list->items[i];
        }
    }
    return NULL;
}

bool model_list_add(struct model_list *list, const struct model_origin *origin) {
    if (list->n == list->cap) {
        size_t cap = list->cap * 2 + 8;
        struct model_origin *items = arena_realloc(
            list->arena, list->items, list->cap * sizeof(*items), cap * sizeof(*items));
        if (!items) {
            return false;
        }
        list->items = items;
        list->cap = cap;
    }
    list->items[list->n++] = *origin;
    return true;
}

bool model_list_merge(struct model_list *list, const struct model_origin *origin) {
    struct model_origin *first = find_name(list, origin->name);
    if (!first) {
        return model_list_add(list, origin);
    }
    if (!model_origin_is_ambiguous(first)) {
        first->other = arena_dup(list->arena, origin->path);
    }
    return first->other.ptr != NULL;
}

/* Remembers a directory of models to scan again. */
static enum status add_root(struct model_list *list, const char *path, bool has_files,
                            struct error *err) {
    struct model_root *roots =
        arena_realloc(list->arena, list->roots, list->n_roots * sizeof(*roots),
                      (list->n_roots + 1) * sizeof(*roots));
    struct str root = roots ? arena_dup(list->arena, str_of(path)) : (struct str){NULL, 0};
    if (!root.ptr) {
        return error_no_memory(err, "looking for models");
    }
    list->roots = roots;
    list->roots[list->n_roots++] = (struct model_root){.path = root, .has_files = has_files};
    return ST_OK;
}

/* Returns: whether the directory has been added, by this path or another one. */
static bool has_root(const struct model_list *list, const char *path) {
    struct stat one, other;
    for (size_t i = 0; i < list->n_roots && stat(path, &one) == 0; i++) {
        if (stat(list->roots[i].path.ptr, &other) == 0 && one.st_dev == other.st_dev &&
            one.st_ino == other.st_ino) {
            log_event(LOG_WARNING, "a directory of models is given twice", LOG_CSTR("path", path));
            return true;
        }
    }
    return false;
}

/* The path being scanned. */
struct scan_source {
    const char *path;
    struct str name;                        /* from the argument; ptr NULL: none */
    const struct repository_params *params; /* NULL: none */
    bool pinned;                            /* given by path, not found in a directory of models */
};

/* `backend`: for a single file. */
static enum status add_model(struct model_list *list, struct str name,
                             const struct scan_source *source, const sluice_backend *backend,
                             struct error *err) {
    const char *path = source->path;
    enum status st = check_name(name, path, err);
    if (st != ST_OK) {
        return st;
    }
    const struct model_origin *first = find_name(list, name);
    if (first && (first->pinned || source->pinned)) {
        return error_set(err, ST_BAD_CONFIG,
                         "two models are called \"%.*s\": %s and %s; give one another name with "
                         "NAME=PATH",
                         STR_ARG(name), first->path.ptr, path);
    }
    struct model_origin origin = {.name = arena_dup(list->arena, name),
                                  .path = arena_dup(list->arena, str_of(path)),
                                  .file_backend = backend,
                                  .params = source->params,
                                  .pinned = source->pinned};
    bool added = origin.name.ptr && origin.path.ptr && model_list_merge(list, &origin);
    return added ? ST_OK : error_no_memory(err, "looking for models");
}

/* ---- files ----------------------------------------------------------------------------------- */

/* A file name split at the longest extension that a backend accepts. */
struct file_name {
    struct str name;
    struct str extension;
};

static bool file_has_extension(void *user, const char *extension) {
    struct file_name *file = user;
    file->extension = str_of(extension);
    return file->name.len > file->extension.len && str_ends_with(file->name, file->extension);
}

static struct str base_name(struct str path) {
    struct str part = path;
    while (path.ptr) {
        part = str_cut(&path, '/');
    }
    return part;
}

/* What people have of other frameworks, and how it becomes ONNX. */
static const struct {
    const char *extension, *hint;
} FOREIGN[] = {
    {".pt", "a PyTorch file: export the model with torch.onnx.export"},
    {".pth", "a PyTorch file: export the model with torch.onnx.export"},
    {".pt2", "a PyTorch file: export the model with torch.onnx.export"},
    {".ckpt", "a checkpoint: load it in its framework and export the model to ONNX"},
    {".safetensors", "a file of weights: export the model to ONNX (optimum-cli export onnx)"},
    {".gguf", "a file of llama.cpp: such models are served by other servers"},
    {".h5", "a Keras file: convert the model with tf2onnx"},
    {".keras", "a Keras file: convert the model with tf2onnx"},
    {".pb", "a TensorFlow file: convert the model with tf2onnx"},
    {".tflite", "a TensorFlow Lite file: convert the model with tf2onnx"},
    {".pkl", "a Python pickle: convert the model with skl2onnx"},
    {".joblib", "a Python pickle: convert the model with skl2onnx"},
    {".py", "a Python program, and the backend of models in Python is not in --backend-dir"},
};

static enum status error_unknown_kind(const struct model_list *list, const char *path,
                                      struct error *err) {
    for (size_t i = 0; i < sizeof(FOREIGN) / sizeof(*FOREIGN); i++) {
        if (str_ends_with(str_of(path), str_of(FOREIGN[i].extension))) {
            return error_set(err, ST_BAD_CONFIG, "%s is %s", path, FOREIGN[i].hint);
        }
    }
    return error_set(err, ST_BAD_CONFIG,
                     "%s: no installed backend knows files of this kind (installed in "
                     "--backend-dir: %s)",
                     path, backends_list(list->backends));
}

/* The lock is held for this only: a volume may hang. Returns: NULL: none; *failure then says why a
 * backend was not loaded, ST_OK: all were. */
static const sluice_backend *find_backend(const struct model_list *list, struct file_name *file,
                                          struct error *failure) {
    if (list->backends_lock) {
        lock_acquire(list->backends_lock);
    }
    const sluice_backend *backend = backends_find(list->backends, file_has_extension, file);
    failure->status = ST_OK;
    if (!backend) {
        (void)backends_failure(list->backends, failure);
    }
    if (list->backends_lock) {
        lock_release(list->backends_lock);
    }
    return backend;
}

static enum status add_file(struct model_list *list, const struct scan_source *source,
                            const struct file_name *file, const sluice_backend *backend,
                            struct error *err) {
    struct str stem = str_make(file->name.ptr, file->name.len - file->extension.len);
    return add_model(list, source->name.ptr ? source->name : stem, source, backend, err);
}

static enum status scan_file(struct model_list *list, const struct scan_source *source,
                             struct error *err) {
    struct file_name file = {.name = base_name(str_of(source->path))};
    struct error failure;
    const sluice_backend *backend = find_backend(list, &file, &failure);
    if (failure.status != ST_OK) {
        return error_set(err, ST_BAD_CONFIG,
                         "%s needs a backend, and none that was loaded knows files of this kind; "
                         "could not be loaded: %s",
                         source->path, failure.text);
    }
    if (!backend) {
        return error_unknown_kind(list, source->path, err);
    }
    return add_file(list, source, &file, backend, err);
}

/* ---- directories ----------------------------------------------------------------------------- */

/* What a directory contains. */
struct contents {
    bool config;          /* config.pbtxt */
    bool versions;        /* directories named by a number */
    bool model_in_number; /* one of them is a model's directory itself */
    bool models;          /* directories of models */
    bool directories;
    bool other; /* files */
};

static void inspect_entry(const char *directory, const char *name, struct contents *out) {
    char path[PATH_MAX];
    uint64_t number;
    if ((size_t)snprintf(path, sizeof(path), "%s/%s", directory, name) >= sizeof(path)) {
        return;
    }
    if (!model_dir_exists(path)) {
        out->config = out->config || strcmp(name, "config.pbtxt") == 0;
        out->other = true;
        return;
    }
    bool is_model = model_dir_is_model(path);
    bool is_version = model_dir_version(name, &number);
    out->directories = true;
    out->versions = out->versions || is_version;
    out->models = out->models || is_model;
    out->model_in_number = out->model_in_number || (is_version && is_model);
}

static enum status open_directory(const char *path, DIR **out, struct error *err) {
    *out = opendir(path);
    return *out ? ST_OK : error_set(err, ST_BAD_CONFIG, "%s: %s", path, strerror(errno));
}

static enum status inspect_directory(const char *path, struct contents *out, struct error *err) {
    DIR *dir;
    *out = (struct contents){0};
    enum status st = open_directory(path, &dir, err);
    if (st != ST_OK) {
        return st;
    }
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
        if (entry->d_name[0] != '.') {
            inspect_entry(path, entry->d_name, out);
        }
    }
    closedir(dir);
    return ST_OK;
}

static enum status scan_entry(struct model_list *list, const char *directory, const char *name,
                              struct error *err) {
    char path[PATH_MAX];
    bool fits = (size_t)snprintf(path, sizeof(path), "%s/%s", directory, name) < sizeof(path);
    if (name[0] == '.' || !fits || !model_dir_exists(path)) {
        return ST_OK;
    }
    if (!model_name_is_valid(str_of(name))) {
        log_event(LOG_WARNING, "a directory whose name cannot be a model's is left out",
                  LOG_CSTR("path", path));
        return ST_OK;
    }
    return add_model(list, str_of(name), &(struct scan_source){.path = path}, NULL, err);
}

/* Calls `scan` for each entry of a directory. */
static enum status scan_entries(struct model_list *list, const char *path,
                                enum status (*scan)(struct model_list *list, const char *directory,
                                                    const char *name, struct error *err),
                                struct error *err) {
    DIR *dir;
    enum status st = open_directory(path, &dir, err);
    if (st != ST_OK) {
        return st;
    }
    errno = 0;
    for (struct dirent *entry = readdir(dir); entry && st == ST_OK; entry = readdir(dir)) {
        st = scan(list, path, entry->d_name, err);
        errno = 0;
    }
    if (st == ST_OK && errno != 0) { /* the volume fails: models are missing in the list */
        st = error_set(err, ST_BAD_CONFIG, "%s: %s", path, strerror(errno));
    }
    closedir(dir);
    return st;
}

static enum status scan_models(struct model_list *list, const char *path, struct error *err) {
    return scan_entries(list, path, scan_entry, err);
}

static enum status error_not_a_repository(const char *path, struct error *err) {
    return error_set(
        err, ST_BAD_CONFIG,
        "%s: neither a model nor a directory of models; expected %s/MODEL.onnx, "
        "%s/MODEL/VERSION/model.onnx or %s/VERSION/model.onnx, VERSION being a number from 1 on, "
        "with a config.pbtxt in the model's directory where one is needed",
        path, path, path, path);
}

static enum status scan_model_dir(struct model_list *list, const struct scan_source *source,
                                  struct error *err) {
    if (source->name.ptr) {
        return add_model(list, source->name, source, NULL, err);
    }
    char *real = realpath(source->path, NULL); /* "." needs a name too */
    if (!real) {
        return error_set(err, ST_BAD_CONFIG, "%s: %s", source->path, strerror(errno));
    }
    enum status st = add_model(list, base_name(str_of(real)), source, NULL, err);
    free(real);
    return st;
}

/* A program in a directory of files can be anything, such as what has made the models there: it is
 * a model only where a path names it. */
static bool is_program(const char *name) {
    return str_ends_with(str_of(name), STR(".py"));
}

/* A model file of a directory of files. */
static enum status scan_file_entry(struct model_list *list, const char *directory, const char *name,
                                   struct error *err) {
    struct str path = arena_printf(list->arena, "%s/%s", directory, name);
    struct file_name file = {.name = str_of(name)};
    struct error failure;
    if (!path.ptr) {
        return error_no_memory(err, "looking for models");
    }
    if (name[0] == '.' || is_program(name) || model_dir_exists(path.ptr)) {
        return ST_OK;
    }
    const sluice_backend *backend = find_backend(list, &file, &failure);
    const struct scan_source source = {.path = path.ptr, .pinned = true};
    return backend ? add_file(list, &source, &file, backend, err) : ST_OK;
}

/* Adds each model file of a directory under its own name. */
static enum status scan_files(struct model_list *list, const char *path, struct error *err) {
    return scan_entries(list, path, scan_file_entry, err);
}

/* At the start: a directory without any model file is a mistake. */
static enum status scan_file_root(struct model_list *list, const char *path, struct error *err) {
    size_t before = list->n;
    enum status st = scan_files(list, path, err);
    if (st != ST_OK) {
        return st;
    }
    return list->n == before ? error_not_a_repository(path, err) : add_root(list, path, true, err);
}

/* What a directory has that could be a model. */
struct only_model {
    struct model_list *list;
    char path[PATH_MAX]; /* of the first */
    bool is_directory;
    size_t n;
    char names[160]; /* of all, which may be cut */
    size_t len;
};

static bool is_model_entry(struct only_model *only, const char *path, const char *name,
                           bool *is_directory) {
    struct file_name file = {.name = str_of(name)};
    struct error failure;
    *is_directory = model_dir_exists(path);
    return *is_directory ? model_dir_is_model(path)
                         : !is_program(name) && find_backend(only->list, &file, &failure) != NULL;
}

static void consider_entry(struct only_model *only, const char *directory, const char *name) {
    char path[PATH_MAX];
    bool is_directory;
    if (name[0] == '.' ||
        (size_t)snprintf(path, sizeof(path), "%s/%s", directory, name) >= sizeof(path) ||
        !is_model_entry(only, path, name, &is_directory)) {
        return;
    }
    if (only->n++ == 0) {
        memcpy(only->path, path, sizeof(path));
        only->is_directory = is_directory;
    }
    if (only->len < sizeof(only->names)) {
        only->len += (size_t)snprintf(only->names + only->len, sizeof(only->names) - only->len,
                                      "%s%s", only->n > 1 ? ", " : "", name);
    }
}

/* NAME=PATH: the only model in the directory, a file or a model's directory, whatever else is
 * there, as a storage initializer leaves it. */
static enum status scan_only_model(struct model_list *list, const struct scan_source *source,
                                   struct error *err) {
    struct only_model only = {.list = list};
    DIR *dir;
    enum status st = open_directory(source->path, &dir, err);
    if (st != ST_OK) {
        return st;
    }
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
        consider_entry(&only, source->path, entry->d_name);
    }
    closedir(dir);
    if (only.n != 1) {
        return error_set(err, ST_BAD_CONFIG, "%s: NAME=PATH is for one model, and there %s%s%s%s",
                         source->path, only.n == 0 ? "is none" : "are several: ", only.names,
                         only.len < sizeof(only.names) ? "" : "…",
                         only.n == 0 ? "; expected PATH/MODEL.onnx, PATH/VERSION/model.onnx or "
                                       "PATH/MODEL/VERSION/model.onnx"
                                     : "");
    }
    struct scan_source found = *source;
    found.path = only.path;
    return only.is_directory ? scan_model_dir(list, &found, err) : scan_file(list, &found, err);
}

static enum status scan_dir(struct model_list *list, const struct scan_source *source,
                            struct error *err) {
    const char *path = source->path;
    struct contents contents;
    enum status st = inspect_directory(path, &contents, err);
    if (st != ST_OK) {
        return st;
    }
    if (contents.config || (contents.versions && !contents.model_in_number)) {
        return scan_model_dir(list, source, err);
    }
    if (source->name.ptr) {
        return scan_only_model(list, source, err);
    }
    if (source->params && source->params->n > 0) {
        return error_set(err, ST_BAD_CONFIG,
                         "%s: a directory of models has no parameters of its own; they are for one "
                         "model",
                         path);
    }
    if (has_root(list, path)) {
        return ST_OK;
    }
    if (!contents.models) {
        return scan_file_root(list, path, err);
    }
    enum status added = add_root(list, path, false, err);
    return added == ST_OK ? scan_models(list, path, err) : added;
}

/* ---- arguments ------------------------------------------------------------------------------- */

/* `path` cannot be found; names a similar one beside it. */
static enum status error_no_path(const char *argument, const char *path, struct error *err) {
    if (path[0] == '\0') {
        return error_set(err, ST_BAD_CONFIG, "%s: no path after the =", argument);
    }
    const char *reason = strerror(errno);
    if (strstr(path, "://")) {
        return error_set(err, ST_BAD_CONFIG,
                         "%s: a URL is no path: download the model, and name the file", path);
    }
    struct str name = base_name(str_of(path));
    struct str directory = str_make(path, (size_t)(name.ptr - path));
    char text[PATH_MAX], hint[SUGGEST_HINT_BYTES];
    snprintf(text, sizeof(text), "%.*s", STR_ARG(directory));
    struct suggestion suggestion = {0};
    DIR *dir = opendir(text[0] ? text : ".");
    for (struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir)) {
        suggest_consider(&suggestion, name, str_of(entry->d_name));
        if (suggestion.best.ptr == entry->d_name) { /* which the next readdir overwrites */
            snprintf(text, sizeof(text), "%s", entry->d_name);
            suggestion.best = str_of(text);
        }
    }
    error_set(err, ST_BAD_CONFIG, "%s: %s%s", path, reason, suggest_hint(&suggestion, hint));
    if (dir) {
        closedir(dir);
    }
    return err->status;
}

enum status scan_path(struct model_list *list, const char *argument,
                      const struct repository_params *params, struct error *err) {
    struct scan_source source = {.path = argument, .params = params, .pinned = true};
    struct str rest = str_of(argument);
    struct str name = str_cut(&rest, '=');
    if (rest.ptr && !memchr(name.ptr, '/', name.len)) {
        source.name = name;
        source.path = rest.ptr;
    }
    struct stat info;
    if (source.path[0] == '\0' || stat(source.path, &info) != 0) {
        return error_no_path(argument, source.path, err);
    }
    return S_ISDIR(info.st_mode) ? scan_dir(list, &source, err) : scan_file(list, &source, err);
}

enum status scan_named(struct model_list *list, struct str name, const char *path,
                       struct error *err) {
    struct scan_source source = {.path = path, .name = name, .pinned = true};
    struct stat info;
    if (stat(path, &info) != 0) {
        return error_set(err, ST_BAD_CONFIG, "%s: %s", path, strerror(errno));
    }
    return S_ISDIR(info.st_mode) ? scan_dir(list, &source, err) : scan_file(list, &source, err);
}

enum status scan_root(struct model_list *list, const struct model_root *root, struct error *err) {
    return root->has_files ? scan_files(list, root->path.ptr, err)
                           : scan_models(list, root->path.ptr, err);
}

enum status scan_repository(struct model_list *list, const char *path, struct error *err) {
    struct contents contents;
    enum status st = inspect_directory(path, &contents, err);
    if (st == ST_OK && has_root(list, path)) {
        return ST_OK;
    }
    if (st == ST_OK && !contents.models && contents.other) {
        return scan_file_root(list, path, err);
    }
    if (st == ST_OK) {
        st = add_root(list, path, false, err);
    }
    if (st != ST_OK) {
        return st;
    }
    if (!contents.directories && !contents.other) {
        log_event(LOG_WARNING, "the model repository is empty", LOG_CSTR("path", path));
        return ST_OK;
    }
    return contents.models ? scan_models(list, path, err) : error_not_a_repository(path, err);
}
