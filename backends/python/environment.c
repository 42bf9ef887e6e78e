/* The name of an environment in the cache is made of the archive's path, and of its size and times:
 * one that changes gets another directory, and the old one is removed when no server uses it. A
 * file beside each directory is the lock: shared while it is used, exclusive while it is written. A
 * directory without its mark is of a server that ended meanwhile, and is made again. */
#include "python/environment.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/text.h"
#include "python/process.h"
#include "python/unpack.h"

enum {
    FIX_TIMEOUT_S = 600, /* of conda-unpack */
    RETRY_MS = 20,       /* for the lock */
};

static const char mark[] = ".sluice-complete";

int environment_is_packed(const char *path) {
    static const char *const endings[] = {".tar",    ".tar.gz", ".tgz",     ".tar.bz2", ".tbz2",
                                          ".tar.xz", ".txz",    ".tar.zst", ".zip"};
    size_t n = strlen(path);
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
        size_t n_ending = strlen(endings[i]);
        if (n > n_ending && strcmp(path + n - n_ending, endings[i]) == 0) {
            return 1;
        }
    }
    return 0;
}

/* ---- the cache ------------------------------------------------------------------------------- */

/* Makes the directory and those above it. */
static int make_directories(char *path) {
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        int made = mkdir(path, 0700) == 0 || errno == EEXIST;
        *slash = '/';
        if (!made) {
            return 0;
        }
    }
    return mkdir(path, 0700) == 0 || errno == EEXIST;
}

/* Returns: whether it is a directory of the user's, which others cannot write to. */
static int is_own(const char *path) {
    struct stat info;
    return lstat(path, &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid() &&
           !(info.st_mode & 022);
}

/* The directory of all environments. Programs of it are run, so it must be the user's own. */
static sluice_status open_cache(const char *cache, char out[PATH_MAX], sluice_error *error) {
    const char *xdg = process_getenv("XDG_CACHE_HOME"), *home = process_getenv("HOME");
    char of_tmp[64] = "";
    int n;
    if (cache && cache[0]) {
        n = snprintf(out, PATH_MAX, "%s", cache);
    } else if (xdg && xdg[0] == '/') {
        n = snprintf(out, PATH_MAX, "%s/sluice/python-environments", xdg);
    } else if (home && home[0] == '/' && access(home, W_OK) == 0) {
        n = snprintf(out, PATH_MAX, "%s/.cache/sluice/python-environments", home);
    } else {
        snprintf(of_tmp, sizeof(of_tmp), "/tmp/sluice-%u", (unsigned)geteuid());
        n = snprintf(out, PATH_MAX, "%s/python-environments", of_tmp);
    }
    if (n < 0 || n >= PATH_MAX - 64 || !make_directories(out)) {
        return error_set(error, SLUICE_INTERNAL,
                         "the cache of Python environments, %.200s, cannot be made: %s (parameter "
                         "env_cache)",
                         out, strerror(n < PATH_MAX - 64 ? errno : ENAMETOOLONG));
    }
    if (!is_own(out) || (of_tmp[0] && !is_own(of_tmp))) {
        return error_set(error, SLUICE_INVALID_ARGUMENT,
                         "the cache of Python environments, %.200s, can be written by other users, "
                         "or is another user's (parameter env_cache)",
                         out);
    }
    return SLUICE_OK;
}

/* FNV-1a. */
static uint64_t hash_add(uint64_t hash, const void *bytes, size_t n) {
    const unsigned char *at = bytes;
    for (size_t i = 0; i < n; i++) {
        hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

/* "PATH-VERSION", of which the first part is the same for all versions of the archive. */
static sluice_status name_archive(const char *path, char name[64], sluice_error *error) {
    char real[PATH_MAX];
    struct stat info;
    if (!realpath(path, real) || stat(real, &info) != 0) {
        return error_set(error, SLUICE_INVALID_ARGUMENT, "%.300s: %s", path, strerror(errno));
    }
    if (!S_ISREG(info.st_mode)) {
        return error_set(error, SLUICE_INVALID_ARGUMENT, "%.300s: expected a file", path);
    }
    uint64_t basis = UINT64_C(0xcbf29ce484222325), of_path = hash_add(basis, real, strlen(real));
    uint64_t of_version = hash_add(basis, &info.st_size, sizeof(info.st_size));
    of_version = hash_add(of_version, &info.st_mtim, sizeof(info.st_mtim));
    of_version = hash_add(of_version, &info.st_ctim, sizeof(info.st_ctim));
    of_version = hash_add(of_version, &info.st_ino, sizeof(info.st_ino));
    snprintf(name, 64, "%016llx-%016llx", (unsigned long long)of_path,
             (unsigned long long)of_version);
    return SLUICE_OK;
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *place) {
    (void)info, (void)place;
    return type == FTW_DP || type == FTW_DNR ? rmdir(path) : unlink(path);
}

static int remove_tree(const char *path) {
    return nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) == 0 || errno == ENOENT;
}

/* Removes other versions of the archive that no server uses. */
static void remove_old(const char *cache, const char *name) {
    DIR *listing = opendir(cache);
    struct dirent *item;
    char path[PATH_MAX + 300];
    while (listing && (item = readdir(listing))) {
        size_t n = strlen(item->d_name);
        if (strncmp(item->d_name, name, 17) != 0 || strncmp(item->d_name, name, 33) == 0 ||
            n != 38 || strcmp(item->d_name + 33, ".lock") != 0) {
            continue;
        }
        snprintf(path, sizeof(path), "%s/%s", cache, item->d_name);
        int lock = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        if (lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) == 0) {
            path[strlen(path) - 5] = '\0';
            (void)remove_tree(path);
        } /* the file remains: another server may be about to lock it */
        if (lock >= 0) {
            close(lock);
        }
    }
    if (listing) {
        closedir(listing);
    }
}

/* ---- conda-unpack ---------------------------------------------------------------------------- */

/* Runs a program with one argument, and keeps the beginning of what it writes. Returns: its wait
 * status; -1: it did not start, or not end in time. */
static int run(const char *program, const char *argument, char *out, size_t n_bytes) {
    int ends[2], status = -1;
    size_t n = 0;
    pid_t pid = 0;
    char *argv[] = {(char *)program, (char *)argument, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    out[0] = '\0';
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return -1;
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setpgroup(&attributes, 0);
    int failed = posix_spawn(&pid, program, &actions, &attributes, argv, process_environment());
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    time_t until = time(NULL) + FIX_TIMEOUT_S;
    while (!failed && time(NULL) < until) {
        struct pollfd ready = {.fd = ends[0], .events = POLLIN};
        char bytes[4096];
        if (poll(&ready, 1, 1000) <= 0) {
            continue;
        }
        ssize_t got = read(ends[0], bytes, sizeof(bytes));
        if (got <= 0) {
            break;
        }
        size_t keep = n_bytes - 1 - n < (size_t)got ? n_bytes - 1 - n : (size_t)got;
        memcpy(out + n, bytes, keep);
        n += keep;
        out[n] = '\0';
    }
    close(ends[0]);
    if (!failed) {
        int in_time = time(NULL) < until;
        if (!in_time) {
            kill(-pid, SIGKILL);
        }
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
        }
        status = in_time ? status : -1;
    }
    return status;
}

static size_t skip_nothing(const char *text) {
    (void)text;
    return 0;
}

/* conda-unpack is a program in Python, whose first line names an interpreter of PATH. */
static sluice_status correct_paths(const char *path, const char *directory, sluice_error *error) {
    char program[PATH_MAX + 32], python[PATH_MAX + 32], said[1024], line[300];
    snprintf(program, sizeof(program), "%s/bin/conda-unpack", directory);
    snprintf(python, sizeof(python), "%s/bin/python3", directory);
    if (access(program, R_OK) != 0) {
        return SLUICE_OK;
    }
    if (access(python, X_OK) != 0) {
        return error_set(error, SLUICE_INVALID_ARGUMENT, "%.300s: it has no bin/python3", path);
    }
    int status = run(python, program, said, sizeof(said));
    if (status == 0) {
        return SLUICE_OK;
    }
    text_one_line(said, skip_nothing, line, sizeof(line));
    return error_set(error, SLUICE_INVALID_ARGUMENT, "%.200s: its bin/conda-unpack has failed%s%s",
                     path, line[0] ? ": " : "", line);
}

/* ---- unpacking ------------------------------------------------------------------------------- */

static int is_complete(const char *directory) {
    char path[PATH_MAX + 32];
    snprintf(path, sizeof(path), "%s/%s", directory, mark);
    return access(path, F_OK) == 0;
}

/* The lock is held, exclusive. */
static sluice_status make(const char *path, const char *directory, uint64_t max_bytes,
                          sluice_error *error) {
    char text[PATH_MAX + 32];
    int top = -1;
    if (remove_tree(directory) && mkdir(directory, 0700) == 0) {
        top = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    if (top < 0) {
        return error_set(error, SLUICE_INTERNAL, "%.200s cannot be unpacked into %.200s: %s", path,
                         directory, strerror(errno));
    }
    sluice_status status = unpack_archive(path, top, max_bytes, error);
    close(top);
    status = status == SLUICE_OK ? correct_paths(path, directory, error) : status;
    if (status == SLUICE_OK) {
        snprintf(text, sizeof(text), "%s/%s", directory, mark);
        int fd = open(text, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0) {
            status = error_set(error, SLUICE_INTERNAL, "%.300s: %s", text, strerror(errno));
        } else {
            close(fd);
        }
    }
    if (status != SLUICE_OK) {
        (void)remove_tree(directory);
    }
    return status;
}

static int take(int lock, int operation) {
    int rc;
    while ((rc = flock(lock, operation)) != 0 && errno == EINTR) {
    }
    return rc == 0;
}

/* The directory is complete, and the lock shared, when it returns SLUICE_OK. */
static sluice_status make_shared(const char *path, const char *directory, int lock,
                                 uint64_t max_bytes, sluice_error *error) {
    sluice_status status = SLUICE_OK;
    while (status == SLUICE_OK) {
        if (take(lock, LOCK_SH) && is_complete(directory)) {
            return SLUICE_OK;
        }
        /* It gives up the shared lock first, and does not wait: another one that has made the
         * directory meanwhile keeps its lock for as long as it uses it. */
        if (take(lock, LOCK_EX | LOCK_NB)) {
            status = is_complete(directory) ? SLUICE_OK : make(path, directory, max_bytes, error);
        } else if (errno == EWOULDBLOCK) {
            poll(NULL, 0, RETRY_MS);
        } else {
            return error_set(error, SLUICE_INTERNAL, "%.300s cannot be locked: %s", directory,
                             strerror(errno));
        }
    }
    return status;
}

sluice_status environment_unpack(const char *path, const char *cache, uint64_t max_bytes,
                                 char *directory, size_t n_bytes, int *lock, sluice_error *error) {
    char folder[PATH_MAX], name[64], file[PATH_MAX + 80];
    *lock = -1;
    sluice_status status = open_cache(cache, folder, error);
    status = status == SLUICE_OK ? name_archive(path, name, error) : status;
    if (status != SLUICE_OK) {
        return status;
    }
    if (snprintf(directory, n_bytes, "%s/%s", folder, name) >= (int)n_bytes) {
        return error_set(error, SLUICE_INTERNAL, "%.300s: the name is too long", folder);
    }
    snprintf(file, sizeof(file), "%s/%s.lock", folder, name);
    *lock = open(file, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (*lock < 0) {
        return error_set(error, SLUICE_INTERNAL, "%.300s: %s", file, strerror(errno));
    }
    status = make_shared(path, directory, *lock, max_bytes, error);
    if (status != SLUICE_OK) {
        close(*lock);
        *lock = -1;
        return status;
    }
    remove_old(folder, name);
    return SLUICE_OK;
}
