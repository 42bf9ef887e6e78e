/* The temporary directory of a model whose files came with a request. */
#include "serve/repository/override.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/log.h"
#include "serve/repository/model.h"

enum { PATH_PARTS_MOST = 16, OPEN_DIRECTORIES = 16 };

/* ---- names ----------------------------------------------------------------------------------- */

/* VERSION/FILE, possibly with directories between: no component is empty, "." or "..", or contains
 * a NUL. */
static bool is_inside(struct str path) {
    struct str rest = path;
    char version[24];
    size_t n = 0;
    for (; rest.ptr; n++) {
        struct str part = str_cut(&rest, '/');
        uint64_t number;
        if (!model_name_is_valid(part) || n == PATH_PARTS_MOST) {
            return false;
        }
        if (n == 0) {
            snprintf(version, sizeof(version), "%.*s", STR_ARG(part));
            if (part.len >= sizeof(version) || !model_dir_version(version, &number)) {
                return false;
            }
        }
    }
    return n >= 2;
}

static enum status check_names(const struct repository_file *files, size_t n, struct error *err) {
    for (size_t i = 0; i < n; i++) {
        if (!is_inside(files[i].path)) {
            char quoted[TENSOR_NAME_TEXT_BYTES];
            return error_set(err, ST_BAD_FIELD,
                             "%s does not name a file of the model: expected "
                             "file:VERSION/NAME, VERSION being a number from 1 on, without steps "
                             "such as \"..\"",
                             tensor_name_print(files[i].path, quoted));
        }
    }
    return ST_OK;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Makes the parent directories of `path`, which is below `root` and NUL-terminated. */
static bool make_directories(char *path, size_t root_len) {
    for (char *slash = strchr(path + root_len + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        bool made = mkdir(path, 0700) == 0 || errno == EEXIST;
        *slash = '/';
        if (!made) {
            return false;
        }
    }
    return true;
}

static bool write_all(int fd, struct str data) {
    while (data.len > 0) {
        ssize_t wrote = write(fd, data.ptr, data.len);
        if (wrote < 0 && errno != EINTR) {
            return false;
        }
        size_t n = wrote > 0 ? (size_t)wrote : 0;
        data = str_make(data.ptr + n, data.len - n);
    }
    return true;
}

static enum status write_file(struct arena *arena, const char *root,
                              const struct repository_file *file, struct error *err) {
    struct str path = arena_printf(arena, "%s/%.*s", root, STR_ARG(file->path));
    if (!path.ptr) {
        return error_no_memory(err, "the files of a model");
    }
    int fd = make_directories((char *)path.ptr, strlen(root))
                 ? open(path.ptr, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)
                 : -1;
    bool ok = fd >= 0 && write_all(fd, file->data);
    int why = errno;
    if (fd >= 0 && close(fd) != 0 && ok) {
        ok = false;
        why = errno;
    }
    return ok ? ST_OK
              : error_set(err, ST_IO, "file:%.*s cannot be written: %s", STR_ARG(file->path),
                          strerror(why));
}

enum status override_write(struct arena *arena, const struct repository_file *files, size_t n,
                           const char **directory, struct error *err) {
    const char *tmp = getenv("TMPDIR");
    struct str made = arena_printf(arena, "%s/sluice-model-XXXXXX", tmp && tmp[0] ? tmp : "/tmp");
    enum status st = check_names(files, n, err);
    if (st != ST_OK) {
        return st;
    }
    if (!made.ptr) {
        return error_no_memory(err, "a directory");
    }
    if (!mkdtemp((char *)made.ptr)) {
        return error_set(err, ST_IO, "temporary directory for the files of a model: %s",
                         strerror(errno));
    }
    for (size_t i = 0; i < n && st == ST_OK; i++) {
        st = write_file(arena, made.ptr, &files[i], err);
    }
    if (st != ST_OK) {
        override_remove(made.ptr);
        return st;
    }
    *directory = made.ptr;
    return ST_OK;
}

/* ---- removing -------------------------------------------------------------------------------- */

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *at) {
    (void)info, (void)kind, (void)at;
    return remove(path);
}

void override_remove(const char *directory) {
    if (nftw(directory, remove_one, OPEN_DIRECTORIES, FTW_DEPTH | FTW_PHYS) != 0) {
        log_event(LOG_WARNING, "temporary files of a model cannot be removed",
                  LOG_CSTR("path", directory), LOG_CSTR("reason", strerror(errno)));
    }
}
