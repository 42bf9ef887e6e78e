/* Paths of libraries of operators, and the directories that they may be in. */
#include "serve/repository/op_library.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/os/shared_library.h"

/* Where a model's libraries may be. */
struct search {
    const struct model *model;
    const char **directories; /* without symbolic links */
    size_t n;
};

static enum status add_directory(struct search *search, const char *path, struct error *err) {
    char *real = realpath(path, NULL);
    if (!real) { /* no library is in it */
        return ST_OK;
    }
    struct str copy = arena_dup(search->model->arena, str_of(real));
    free(real);
    if (!copy.ptr) {
        return error_no_memory(err, "the path of a library");
    }
    search->directories[search->n++] = copy.ptr;
    return ST_OK;
}

static enum status add_directories(struct search *search, uint64_t version,
                                   const struct op_library_places *places, struct error *err) {
    const struct model *model = search->model;
    enum status st = ST_OK;
    search->directories =
        arena_calloc(model->arena, places->n_directories + 2, sizeof(*search->directories));
    if (!search->directories) {
        return error_no_memory(err, "the path of a library");
    }
    if (!model->override_config.ptr && model->directory.len > 0) {
        char path[PATH_MAX];
        snprintf(path, sizeof(path), "%s/%" PRIu64, model->directory.ptr, version);
        st = add_directory(search, path, err);
        if (st == ST_OK) {
            st = add_directory(search, model->directory.ptr, err);
        }
    }
    for (size_t i = 0; i < places->n_directories && st == ST_OK; i++) {
        st = add_directory(search, places->directories[i], err);
    }
    return st;
}

static bool is_inside(const struct search *search, const char *real) {
    for (size_t i = 0; i < search->n; i++) {
        size_t len = strcmp(search->directories[i], "/") == 0 ? 0 : strlen(search->directories[i]);
        if (strncmp(real, search->directories[i], len) == 0 && real[len] == '/') {
            return true;
        }
    }
    return false;
}

/* Returns: the file's path without symbolic links, allocated; NULL: there is none, and errno. */
static char *find_library(const struct search *search, struct str filename) {
    if (filename.ptr[0] == '/') {
        return realpath(filename.ptr, NULL);
    }
    errno = ENOENT;
    for (size_t i = 0; i < search->n; i++) {
        char path[PATH_MAX];
        int len = snprintf(path, sizeof(path), "%s/%s", search->directories[i], filename.ptr);
        char *real = len < PATH_MAX ? realpath(path, NULL) : NULL;
        if (real) {
            return real;
        }
    }
    return NULL;
}

static enum status check_library(const struct search *search,
                                 const struct model_config_library *library, const char *real,
                                 struct error *err) {
    struct stat info;
    if (!real) {
        return error_set(err, status_of_errno(errno, ST_BAD_MODEL), "%s: \"%.*s\": %s",
                         library->place.ptr, STR_ARG(library->filename), strerror(errno));
    }
    if (!is_inside(search, real)) {
        return error_set(err, ST_BAD_MODEL,
                         "%s: \"%.*s\" is %s, which is neither in the model's directory nor in "
                         "one of --op-library-dir",
                         library->place.ptr, STR_ARG(library->filename), real);
    }
    if (stat(real, &info) != 0 || !S_ISREG(info.st_mode)) {
        return error_set(err, ST_BAD_MODEL, "%s: %s: expected a regular file", library->place.ptr,
                         real);
    }
    return shared_library_check(real, err) == ST_OK ? ST_OK
                                                    : error_prefix(err, "%s", library->place.ptr);
}

enum status op_libraries_find(const struct model *model, uint64_t version,
                              const struct op_library_places *places, const char *const **out,
                              size_t *n, struct error *err) {
    const struct model_config *config = &model->config;
    struct search search = {.model = model};
    *out = NULL;
    *n = 0;
    if (config->n_libraries == 0) {
        return ST_OK;
    }
    enum status st = add_directories(&search, version, places, err);
    const char **paths = arena_calloc(model->arena, config->n_libraries, sizeof(*paths));
    for (size_t i = 0; st == ST_OK && paths && i < config->n_libraries; i++) {
        char *real = find_library(&search, config->libraries[i].filename);
        st = check_library(&search, &config->libraries[i], real, err);
        paths[i] = st == ST_OK ? arena_dup(model->arena, str_of(real)).ptr : NULL;
        free(real);
        if (st == ST_OK && !paths[i]) {
            paths = NULL;
        }
    }
    if (st == ST_OK && !paths) {
        return error_no_memory(err, "the path of a library");
    }
    *out = paths;
    *n = config->n_libraries;
    return st;
}
