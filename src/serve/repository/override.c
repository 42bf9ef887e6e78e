/* The temporary directory of a model whose files came with a request. */
#include "serve/repository/override.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/log.h"
#include "serve/repository/model.h"

enum { PATH_PARTS_MOST = 16, OPEN_DIRECTORIES = 16 };

static const char PREFIX[] = "sluice-model-";

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
            char quoted[QUOTED_NAME_BYTES];
            return error_set(err, ST_BAD_FIELD,
                             "%s does not name a file of the model: expected "
                             "file:VERSION/NAME, VERSION being a number from 1 on, without steps "
                             "such as \"..\"",
                             quote_name(files[i].path, quoted));
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

/* Is it the names of the request that no file system could have: one twice, or one that is a file
 * and another's directory? */
static bool is_error_of_names(int why) {
    return why == EEXIST || why == ENOTDIR || why == EISDIR || why == ENAMETOOLONG;
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
              : error_set(err, is_error_of_names(why) ? ST_BAD_FIELD : status_of_errno(why, ST_IO),
                          "file:%.*s cannot be written: %s", STR_ARG(file->path), strerror(why));
}

static const char *temporary_root(void) {
    const char *tmp = getenv("TMPDIR");
    return tmp && tmp[0] ? tmp : "/tmp";
}

/* Renames the directory from its first name, under which it is not locked yet, to the one that
 * override_remove_stale looks for. */
static bool lock_and_rename(const char *first, const char *path, int *lock) {
    *lock = open(first, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (*lock < 0) {
        return false;
    }
    (void)flock(*lock, LOCK_EX | LOCK_NB); /* where there are no locks, nothing is stale */
    return rename(first, path) == 0;
}

static enum status make_directory(struct arena *arena, struct override_directory *out,
                                  struct error *err) {
    struct str first = arena_printf(arena, "%s/sluice-new-XXXXXX", temporary_root());
    if (!first.ptr) {
        return error_no_memory(err, "a directory");
    }
    *out = (struct override_directory){.lock = -1};
    bool made = mkdtemp((char *)first.ptr) != NULL;
    const char *unique = first.ptr + first.len - 6;
    struct str path = arena_printf(arena, "%s/%s%s", temporary_root(), PREFIX, unique);
    if (made && path.ptr && lock_and_rename(first.ptr, path.ptr, &out->lock)) {
        out->path = path.ptr;
        return ST_OK;
    }
    error_set(err, status_of_errno(errno, ST_IO),
              "temporary directory for the files of a model: %s", strerror(errno));
    if (made) {
        rmdir(first.ptr);
    }
    if (out->lock >= 0) {
        close(out->lock);
    }
    return err->status;
}

enum status override_write(struct arena *arena, const struct repository_file *files, size_t n,
                           struct override_directory *out, struct error *err) {
    enum status st = check_names(files, n, err);
    if (st == ST_OK) {
        st = make_directory(arena, out, err);
    }
    if (st != ST_OK) {
        return st;
    }
    for (size_t i = 0; i < n && st == ST_OK; i++) {
        st = write_file(arena, out->path, &files[i], err);
    }
    if (st != ST_OK) {
        override_remove(out);
        out->path = NULL;
    }
    return st;
}

/* ---- removing -------------------------------------------------------------------------------- */

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *at) {
    (void)info, (void)kind, (void)at;
    return remove(path);
}

void override_remove(const struct override_directory *directory) {
    if (nftw(directory->path, remove_one, OPEN_DIRECTORIES, FTW_DEPTH | FTW_PHYS) != 0) {
        log_event(LOG_WARNING, "temporary files of a model cannot be removed",
                  LOG_CSTR("path", directory->path), LOG_CSTR("reason", strerror(errno)));
    }
    close(directory->lock);
}

/* Returns: whether it is a directory of this user that no process has locked; then it is locked. */
static bool lock_stale(const char *path, int *lock) {
    struct stat info;
    *lock = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (*lock < 0) {
        return false;
    }
    if (fstat(*lock, &info) == 0 && info.st_uid == geteuid() &&
        flock(*lock, LOCK_EX | LOCK_NB) == 0) {
        return true;
    }
    close(*lock);
    return false;
}

void override_remove_stale(void) {
    DIR *dir = opendir(temporary_root());
    for (struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir)) {
        char path[PATH_MAX];
        struct override_directory directory = {.path = path};
        bool named = strncmp(entry->d_name, PREFIX, strlen(PREFIX)) == 0 &&
                     (size_t)snprintf(path, sizeof(path), "%s/%s", temporary_root(),
                                      entry->d_name) < sizeof(path);
        if (named && lock_stale(path, &directory.lock)) {
            log_event(LOG_INFO, "temporary files of a server that was killed are removed",
                      LOG_CSTR("path", path));
            override_remove(&directory);
        }
    }
    if (dir) {
        closedir(dir);
    }
}
