/* libarchive reads the archive, and this file writes what is in it. Each entry's directory is
 * opened from the top, name by name and without following links, so that an entry cannot be
 * written through a link that an earlier one has made. */
#include "python/unpack.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/text.h"

enum {
    MAX_NAME_BYTES = 4096, /* of an entry, and of a link's target */
    COPY_BYTES = 1 << 18,
};

/* What an entry becomes. */
enum kind { KIND_FILE, KIND_DIRECTORY, KIND_SYMBOLIC_LINK, KIND_HARD_LINK, KIND_OTHER };

struct unpacker {
    const char *path;
    struct archive *archive;
    struct archive_entry *entry;
    enum kind kind;
    char name[MAX_NAME_BYTES], link[MAX_NAME_BYTES]; /* of the entry */
    int directory;
    uint64_t left_bytes, max_bytes;
    size_t n_entries;
    char *buffer; /* COPY_BYTES */
    sluice_error *error;
};

/* ---- errors ---------------------------------------------------------------------------------- */

static sluice_status refuse(struct unpacker *unpacker, const char *why) {
    return error_set(unpacker->error, SLUICE_INVALID_ARGUMENT, "%.200s: entry \"%.120s\": %s",
                     unpacker->path, unpacker->name, why);
}

static sluice_status refuse_size(struct unpacker *unpacker) {
    return error_set(unpacker->error, SLUICE_INVALID_ARGUMENT,
                     "%.200s: it has more than %llu MiB unpacked (parameter env_max_mb)",
                     unpacker->path, (unsigned long long)unpacker->max_bytes >> 20);
}

static sluice_status fail(struct unpacker *unpacker, int number) {
    return error_set(unpacker->error, SLUICE_INTERNAL,
                     "%.200s: entry \"%.120s\" cannot be written: %s", unpacker->path,
                     unpacker->name, strerror(number));
}

/* What libarchive cannot read. */
static sluice_status fail_to_read(struct unpacker *unpacker) {
    const char *text = archive_error_string(unpacker->archive);
    return error_set(unpacker->error, SLUICE_INVALID_ARGUMENT,
                     "%.200s: it cannot be unpacked: %.200s", unpacker->path,
                     text ? text : "unknown error");
}

/* ---- names ----------------------------------------------------------------------------------- */

/* Opens the directory of `name`, of which *last is the last part; directories that are not there
 * are made. Returns: -1 with *status. */
static int open_parent(struct unpacker *unpacker, char *name, char **last, sluice_status *status) {
    int at = dup(unpacker->directory);
    char *rest = name;
    *status = SLUICE_OK;
    for (char *slash; at >= 0 && (slash = strchr(rest, '/')); rest = slash + 1) {
        *slash = '\0';
        if (rest[0] && strcmp(rest, ".") != 0) {
            if (mkdirat(at, rest, 0755) != 0 && errno != EEXIST) {
                *status = fail(unpacker, errno);
            }
            int next = openat(at, rest, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            if (next < 0 && *status == SLUICE_OK) {
                *status = errno == ELOOP || errno == ENOTDIR
                              ? refuse(unpacker, "its directory is a link, or a file")
                              : fail(unpacker, errno);
            }
            close(at);
            at = next;
        }
        *slash = '/';
    }
    if (at < 0 && *status == SLUICE_OK) {
        *status = fail(unpacker, errno);
    }
    *last = rest;
    return at;
}

/* Returns: whether the name stays within the directory: relative, and without "..". */
static int is_inside(const char *name) {
    if (name[0] == '\0' || name[0] == '/') {
        return 0;
    }
    for (const char *at = name; at; at = strchr(at, '/') ? strchr(at, '/') + 1 : NULL) {
        if (strncmp(at, "..", 2) == 0 && (at[2] == '/' || at[2] == '\0')) {
            return 0;
        }
    }
    return 1;
}

/* Returns: whether a symbolic link at `name`, which is tidy, stays within, going by its text. ".."
 * is allowed at its beginning alone, where it is of a real directory: after a name, it could be of
 * another link's target. */
static int link_is_inside(const char *name, const char *target) {
    long depth = 0;
    int has_names = 0;
    if (target[0] == '\0' || target[0] == '/') {
        return 0;
    }
    for (const char *slash = strchr(name, '/'); slash; slash = strchr(slash + 1, '/')) {
        depth++;
    }
    for (const char *at = target; at; at = strchr(at, '/') ? strchr(at, '/') + 1 : NULL) {
        size_t n = strcspn(at, "/");
        if (n == 2 && at[0] == '.' && at[1] == '.') {
            if (has_names || --depth < 0) {
                return 0;
            }
        } else if (n > 0 && !(n == 1 && at[0] == '.')) {
            has_names = 1;
        }
    }
    return 1;
}

/* Removes "./", "//" and a slash at the end. */
static void tidy(char *name) {
    char *to = name;
    for (const char *at = name; *at;) {
        size_t n = strcspn(at, "/");
        if (n > 0 && !(n == 1 && at[0] == '.')) {
            if (to > name) {
                *to++ = '/';
            }
            memmove(to, at, n);
            to += n;
        }
        at += n + (at[n] == '/');
    }
    *to = '\0';
}

/* ---- writing --------------------------------------------------------------------------------- */

static sluice_status write_bytes(struct unpacker *unpacker, int fd, size_t n) {
    size_t wrote = 0;
    while (wrote < n) {
        ssize_t got = write(fd, unpacker->buffer + wrote, n - wrote);
        if (got < 0 && errno != EINTR) {
            return fail(unpacker, errno);
        }
        wrote += got > 0 ? (size_t)got : 0;
    }
    return SLUICE_OK;
}

/* The size that the entry says was checked, but in a zip file it need not be right, or there. */
static sluice_status write_contents(struct unpacker *unpacker, int fd) {
    sluice_status status = SLUICE_OK;
    la_ssize_t n = 1;
    while (status == SLUICE_OK && n > 0) {
        n = archive_read_data(unpacker->archive, unpacker->buffer, COPY_BYTES);
        if (n < 0) {
            status = fail_to_read(unpacker);
        } else if ((uint64_t)n > unpacker->left_bytes) {
            status = refuse_size(unpacker);
        } else {
            unpacker->left_bytes -= (uint64_t)n;
            status = write_bytes(unpacker, fd, (size_t)n);
        }
    }
    return status;
}

static sluice_status write_file(struct unpacker *unpacker, int parent, const char *last) {
    mode_t mode = archive_entry_perm(unpacker->entry);
    int fd = openat(parent, last, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                    (mode & 0777) | 0600);
    if (fd < 0) {
        return fail(unpacker, errno);
    }
    sluice_status status = write_contents(unpacker, fd);
    if (status == SLUICE_OK) { /* compiled files are compared with the time of their source */
        const struct timespec time = {.tv_sec = archive_entry_mtime(unpacker->entry),
                                      .tv_nsec = archive_entry_mtime_nsec(unpacker->entry)};
        const struct timespec times[2] = {time, time};
        if (fchmod(fd, (mode & 0755) | 0600) != 0 || futimens(fd, times) != 0) {
            status = fail(unpacker, errno);
        }
    }
    close(fd);
    return status;
}

static sluice_status make_hard_link(struct unpacker *unpacker, int parent, const char *last) {
    sluice_status status;
    char *target;
    if (!is_inside(unpacker->link)) {
        return refuse(unpacker, "it is a link out of the archive");
    }
    tidy(unpacker->link);
    int from = open_parent(unpacker, unpacker->link, &target, &status);
    if (from < 0) {
        return status;
    }
    if (linkat(from, target, parent, last, 0) != 0) {
        status = fail(unpacker, errno);
    }
    close(from);
    return status;
}

static sluice_status write_entry(struct unpacker *unpacker, int parent, const char *last) {
    if (unpacker->kind == KIND_DIRECTORY) {
        return mkdirat(parent, last, 0755) == 0 || errno == EEXIST ? SLUICE_OK
                                                                   : fail(unpacker, errno);
    }
    if (unlinkat(parent, last, 0) != 0 && errno != ENOENT) { /* the later one of a name counts */
        return fail(unpacker, errno);
    }
    switch (unpacker->kind) {
    case KIND_FILE:
        return write_file(unpacker, parent, last);
    case KIND_HARD_LINK:
        return make_hard_link(unpacker, parent, last);
    case KIND_SYMBOLIC_LINK:
        if (!link_is_inside(unpacker->name, unpacker->link)) {
            return refuse(unpacker, "it is a link out of the archive");
        }
        return symlinkat(unpacker->link, parent, last) == 0 ? SLUICE_OK : fail(unpacker, errno);
    case KIND_DIRECTORY:
    case KIND_OTHER:
        break;
    }
    return refuse(unpacker, "it is neither a file nor a directory nor a link");
}

/* ---- reading --------------------------------------------------------------------------------- */

static enum kind kind_of(struct archive_entry *entry) {
    if (archive_entry_hardlink(entry) || archive_entry_hardlink_utf8(entry)) {
        return KIND_HARD_LINK;
    }
    switch (archive_entry_filetype(entry)) {
    case AE_IFREG:
        return KIND_FILE;
    case AE_IFDIR:
        return KIND_DIRECTORY;
    case AE_IFLNK:
        return KIND_SYMBOLIC_LINK;
    default:
        return KIND_OTHER;
    }
}

/* One of the two is NULL where the locale lacks a character (a system without C.UTF-8).
 * Returns: 0 when it is too long. */
static int copy_name(char to[MAX_NAME_BYTES], const char *bytes, const char *utf8) {
    const char *name = bytes ? bytes : utf8;
    return snprintf(to, MAX_NAME_BYTES, "%s", name ? name : "") < MAX_NAME_BYTES;
}

/* Takes the entry whose header was read. */
static sluice_status take_entry(struct unpacker *unpacker) {
    struct archive_entry *entry = unpacker->entry;
    sluice_status status;
    char *last;
    unpacker->kind = kind_of(entry);
    unpacker->link[0] = '\0';
    int fits = copy_name(unpacker->name, archive_entry_pathname(entry),
                         archive_entry_pathname_utf8(entry));
    if (unpacker->kind == KIND_HARD_LINK) {
        fits &= copy_name(unpacker->link, archive_entry_hardlink(entry),
                          archive_entry_hardlink_utf8(entry));
    } else if (unpacker->kind == KIND_SYMBOLIC_LINK) {
        fits &= copy_name(unpacker->link, archive_entry_symlink(entry),
                          archive_entry_symlink_utf8(entry));
    }
    if (!fits) {
        return refuse(unpacker, "a name is too long");
    }
    if (!is_inside(unpacker->name)) {
        return refuse(unpacker, "its name leads out of the archive");
    }
    if (archive_entry_size_is_set(entry) &&
        (uint64_t)archive_entry_size(entry) > unpacker->left_bytes) {
        return refuse_size(unpacker);
    }
    tidy(unpacker->name);
    if (unpacker->name[0] == '\0') {
        return SLUICE_OK; /* "./" */
    }
    int parent = open_parent(unpacker, unpacker->name, &last, &status);
    if (parent < 0) {
        return status;
    }
    status = write_entry(unpacker, parent, last);
    close(parent);
    return status;
}

static sluice_status unpack(struct unpacker *unpacker) {
    sluice_status status = SLUICE_OK;
    while (status == SLUICE_OK) {
        int got = archive_read_next_header(unpacker->archive, &unpacker->entry);
        if (got == ARCHIVE_EOF) {
            break;
        }
        if (got != ARCHIVE_OK && got != ARCHIVE_WARN) {
            return fail_to_read(unpacker);
        }
        if (++unpacker->n_entries > UNPACK_MAX_ENTRIES) {
            return refuse(unpacker, "there are too many before it");
        }
        status = take_entry(unpacker);
    }
    return status;
}

/* Returns: 0 when memory is out, or libarchive was built without one of them. */
static int support_formats(struct archive *archive) {
    return archive_read_support_format_tar(archive) == ARCHIVE_OK &&
           archive_read_support_format_zip(archive) == ARCHIVE_OK &&
           archive_read_support_filter_gzip(archive) == ARCHIVE_OK &&
           archive_read_support_filter_bzip2(archive) == ARCHIVE_OK &&
           archive_read_support_filter_xz(archive) == ARCHIVE_OK &&
           archive_read_support_filter_zstd(archive) == ARCHIVE_OK;
}

sluice_status unpack_archive(const char *path, int directory, uint64_t max_bytes,
                             sluice_error *error) {
    struct unpacker *unpacker = calloc(1, sizeof(*unpacker));
    struct archive *archive = archive_read_new();
    char *buffer = malloc(COPY_BYTES);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    sluice_status status;
    if (fd < 0) {
        status = error_set(error, SLUICE_INVALID_ARGUMENT, "%.200s: %s", path, strerror(errno));
    } else if (!unpacker || !archive || !buffer || !support_formats(archive)) {
        status = error_no_memory(error, "%.200s", path);
    } else {
        *unpacker = (struct unpacker){.path = path,
                                      .archive = archive,
                                      .directory = directory,
                                      .left_bytes = max_bytes,
                                      .max_bytes = max_bytes,
                                      .buffer = buffer,
                                      .error = error};
        /* libarchive converts names to the locale, and has none where that lacks a character. */
        locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
        locale_t before = uselocale(utf8);
        status = archive_read_open_fd(archive, fd, COPY_BYTES) == ARCHIVE_OK
                     ? unpack(unpacker)
                     : fail_to_read(unpacker);
        uselocale(before);
        if (utf8) {
            freelocale(utf8);
        }
    }
    archive_read_free(archive);
    if (fd >= 0) {
        close(fd);
    }
    free(buffer);
    free(unpacker);
    return status;
}
