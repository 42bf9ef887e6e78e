/* Each entry's directory is opened from the top, name by name and without following links, so that
 * an entry cannot be written through a link that an earlier one has made. */
#include "python/archive.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include "common/text.h"

enum {
    BLOCK_BYTES = 512,
    MAX_NAME_BYTES = 4096,    /* of an entry, and of a link's target */
    MAX_HEADER_BYTES = 65536, /* of an extended header */
    COPY_BYTES = 1 << 18,
};

/* A header of ustar (POSIX.1-1988); GNU's has other fields in the place of the prefix. */
struct header {
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, link[100],
        magic[6], version[2], owner[32], group[32], major[8], minor[8], prefix[155], rest[12];
};

_Static_assert(sizeof(struct header) == BLOCK_BYTES, "a block of a tar file");

struct entry {
    char name[MAX_NAME_BYTES], link[MAX_NAME_BYTES];
    uint64_t size;
    time_t mtime;
    mode_t mode;
    char type;
};

struct archive {
    const char *path;
    gzFile file;
    int directory;
    uint64_t left_bytes, max_bytes;
    size_t n_entries;
    struct entry entry;
    /* what extended headers say of the next entry; empty, or -1: nothing */
    char next_name[MAX_NAME_BYTES], next_link[MAX_NAME_BYTES];
    int64_t next_size;
    char *buffer; /* COPY_BYTES */
    sluice_error *error;
};

/* ---- errors ---------------------------------------------------------------------------------- */

static sluice_status refuse(struct archive *archive, const char *why) {
    return error_set(archive->error, SLUICE_INVALID_ARGUMENT, "%.200s: entry \"%.120s\": %s",
                     archive->path, archive->entry.name, why);
}

static sluice_status fail(struct archive *archive, int number) {
    return error_set(archive->error, SLUICE_INTERNAL,
                     "%.200s: entry \"%.120s\" cannot be written: "
                     "%s",
                     archive->path, archive->entry.name, strerror(number));
}

/* ---- reading --------------------------------------------------------------------------------- */

static sluice_status read_bytes(struct archive *archive, void *out, size_t n_bytes) {
    int got = gzread(archive->file, out, (unsigned)n_bytes);
    if (got == (int)n_bytes) {
        return SLUICE_OK;
    }
    int number = Z_OK;
    const char *text = gzerror(archive->file, &number);
    return error_set(archive->error, SLUICE_INVALID_ARGUMENT, "%.200s: it cannot be unpacked: %s",
                     archive->path, got >= 0 && number == Z_OK ? "it ends too early" : text);
}

/* An octal number, or GNU's binary one. Returns: 0 when it is none, or too large. */
static int read_number(const char *field, size_t n, uint64_t *value) {
    uint64_t sum = 0;
    size_t i = 0;
    *value = 0;
    if ((unsigned char)field[0] == 0x80) {
        for (i = 1; i < n; i++) {
            if (sum >> 55) {
                return 0;
            }
            sum = sum << 8 | (unsigned char)field[i];
        }
        *value = sum;
        return 1;
    }
    while (i < n && field[i] == ' ') {
        i++;
    }
    for (; i < n && field[i] != '\0' && field[i] != ' '; i++) {
        if (field[i] < '0' || field[i] > '7' || sum >> 60) {
            return 0;
        }
        sum = sum << 3 | (uint64_t)(field[i] - '0');
    }
    *value = sum;
    return 1;
}

static int checksum_is_right(const struct header *header) {
    const unsigned char *bytes = (const unsigned char *)header;
    size_t at = offsetof(struct header, checksum);
    uint64_t sum = 0, expected;
    for (size_t i = 0; i < sizeof(*header); i++) {
        sum += i >= at && i < at + sizeof(header->checksum) ? ' ' : bytes[i];
    }
    return read_number(header->checksum, sizeof(header->checksum), &expected) && sum == expected;
}

static int is_zero(const struct header *header) {
    const char *bytes = (const char *)header;
    for (size_t i = 0; i < sizeof(*header); i++) {
        if (bytes[i]) {
            return 0;
        }
    }
    return 1;
}

static size_t padding_of(uint64_t size) {
    return (size_t)(-size % BLOCK_BYTES);
}

static sluice_status skip(struct archive *archive, uint64_t n_bytes) {
    sluice_status status = SLUICE_OK;
    while (n_bytes > 0 && status == SLUICE_OK) {
        size_t n = n_bytes < COPY_BYTES ? (size_t)n_bytes : COPY_BYTES;
        status = read_bytes(archive, archive->buffer, n);
        n_bytes -= n;
    }
    return status;
}

/* Reads digits, and moves *text after them. Returns: 0 when there are none, or they are more than
 * `max`. */
static int read_decimal(const char **text, uint64_t max, uint64_t *value) {
    const char *at = *text;
    uint64_t sum = 0;
    for (; *at >= '0' && *at <= '9'; at++) {
        uint64_t digit = (uint64_t)(*at - '0');
        if (sum > (max - digit) / 10) {
            return 0;
        }
        sum = sum * 10 + digit;
    }
    *value = sum;
    int has_digits = at > *text;
    *text = at;
    return has_digits;
}

/* One record of a pax header: "LENGTH KEY=VALUE\n". */
static void take_pax_record(struct archive *archive, const char *key, const char *value) {
    if (strcmp(key, "path") == 0) {
        snprintf(archive->next_name, sizeof(archive->next_name), "%s", value);
    } else if (strcmp(key, "linkpath") == 0) {
        snprintf(archive->next_link, sizeof(archive->next_link), "%s", value);
    } else if (strcmp(key, "size") == 0) {
        uint64_t size;
        archive->next_size =
            read_decimal(&value, INT64_MAX, &size) && *value == '\0' ? (int64_t)size : -1;
    }
}

static sluice_status take_pax(struct archive *archive, char *text, size_t n) {
    size_t at = 0;
    while (at < n) {
        const char *end = text + at;
        char *equals;
        uint64_t length;
        if (!read_decimal(&end, n - at, &length) || *end != ' ' || length < 5 ||
            text[at + length - 1] != '\n' || end - (text + at) >= (ptrdiff_t)length ||
            !(equals = memchr(text + (end - text), '=', length - (size_t)(end - (text + at))))) {
            return refuse(archive, "its extended header is not well-formed");
        }
        text[at + length - 1] = '\0';
        *equals = '\0';
        if (strlen(equals + 1) >= MAX_NAME_BYTES) {
            return refuse(archive, "a name is too long");
        }
        take_pax_record(archive, end + 1, equals + 1);
        at += length;
    }
    return SLUICE_OK;
}

/* An entry that is about the next one. */
static sluice_status take_extension(struct archive *archive) {
    const struct entry *entry = &archive->entry;
    if (entry->size > MAX_HEADER_BYTES) {
        return refuse(archive, "its extended header is too long");
    }
    char *text = malloc((size_t)entry->size + 1);
    if (!text) {
        return error_no_memory(archive->error, "%.200s", archive->path);
    }
    sluice_status status = read_bytes(archive, text, (size_t)entry->size);
    text[entry->size] = '\0';
    if (status == SLUICE_OK) {
        status = skip(archive, padding_of(entry->size));
    }
    if (status == SLUICE_OK && entry->type == 'x') {
        status = take_pax(archive, text, (size_t)entry->size);
    } else if (status == SLUICE_OK && entry->type != 'g') { /* 'g' is about all: nothing of ours */
        char *to = entry->type == 'L' ? archive->next_name : archive->next_link;
        if (strlen(text) >= MAX_NAME_BYTES) {
            status = refuse(archive, "a name is too long");
        } else {
            memcpy(to, text, strlen(text) + 1);
        }
    }
    free(text);
    return status;
}

/* Reads the header of an entry. *is_last: there is none. */
static sluice_status read_header(struct archive *archive, int *is_last) {
    struct entry *entry = &archive->entry;
    struct header header;
    uint64_t mode, mtime;
    sluice_status status = read_bytes(archive, &header, sizeof(header));
    *is_last = status == SLUICE_OK && is_zero(&header);
    if (status != SLUICE_OK || *is_last) {
        return status;
    }
    int has_prefix = memcmp(header.magic, "ustar\0", 6) == 0 && header.prefix[0];
    snprintf(entry->name, sizeof(entry->name), "%.*s%s%.100s", has_prefix ? 155 : 0, header.prefix,
             has_prefix ? "/" : "", header.name);
    snprintf(entry->link, sizeof(entry->link), "%.100s", header.link);
    if (!checksum_is_right(&header) || !read_number(header.mode, sizeof(header.mode), &mode) ||
        !read_number(header.size, sizeof(header.size), &entry->size) ||
        !read_number(header.mtime, sizeof(header.mtime), &mtime)) {
        return refuse(archive, "its header is not that of a tar file");
    }
    entry->type = header.type ? header.type : '0';
    entry->mode = (mode_t)(mode & 0777);
    entry->mtime = (time_t)mtime;
    return SLUICE_OK;
}

/* ---- names ----------------------------------------------------------------------------------- */

/* Opens the directory of `name`, of which *last is the last part; directories that are not there
 * are made. Returns: -1 with *status. */
static int open_parent(struct archive *archive, char *name, char **last, sluice_status *status) {
    int at = dup(archive->directory);
    char *rest = name;
    *status = SLUICE_OK;
    for (char *slash; at >= 0 && (slash = strchr(rest, '/')); rest = slash + 1) {
        *slash = '\0';
        if (rest[0] && strcmp(rest, ".") != 0) {
            if (mkdirat(at, rest, 0755) != 0 && errno != EEXIST) {
                *status = fail(archive, errno);
            }
            int next = openat(at, rest, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            if (next < 0 && *status == SLUICE_OK) {
                *status = errno == ELOOP || errno == ENOTDIR
                              ? refuse(archive, "its directory is a link, or a file")
                              : fail(archive, errno);
            }
            close(at);
            at = next;
        }
        *slash = '/';
    }
    if (at < 0 && *status == SLUICE_OK) {
        *status = fail(archive, errno);
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

static sluice_status write_file(struct archive *archive, int parent, const char *last) {
    struct entry *entry = &archive->entry;
    int fd = openat(parent, last, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                    (entry->mode & 0777) | 0600);
    sluice_status status = fd >= 0 ? SLUICE_OK : fail(archive, errno);
    uint64_t left = entry->size;
    while (left > 0 && status == SLUICE_OK) {
        size_t n = left < COPY_BYTES ? (size_t)left : COPY_BYTES, wrote = 0;
        status = read_bytes(archive, archive->buffer, n);
        while (wrote < n && status == SLUICE_OK) {
            ssize_t got = write(fd, archive->buffer + wrote, n - wrote);
            if (got < 0 && errno != EINTR) {
                status = fail(archive, errno);
            }
            wrote += got > 0 ? (size_t)got : 0;
        }
        left -= n;
    }
    if (status == SLUICE_OK) { /* compiled files are compared with the time of their source */
        const struct timespec times[2] = {{.tv_sec = entry->mtime}, {.tv_sec = entry->mtime}};
        status = fchmod(fd, (entry->mode & 0755) | 0600) == 0 && futimens(fd, times) == 0
                     ? skip(archive, padding_of(entry->size))
                     : fail(archive, errno);
    }
    if (fd >= 0) {
        close(fd);
    }
    return status;
}

static sluice_status make_hard_link(struct archive *archive, int parent, const char *last) {
    struct entry *entry = &archive->entry;
    sluice_status status;
    char *target;
    if (!is_inside(entry->link)) {
        return refuse(archive, "it is a link out of the archive");
    }
    tidy(entry->link);
    int from = open_parent(archive, entry->link, &target, &status);
    if (from < 0) {
        return status;
    }
    if (linkat(from, target, parent, last, 0) != 0) {
        status = fail(archive, errno);
    }
    close(from);
    return status;
}

static sluice_status write_entry(struct archive *archive, int parent, const char *last) {
    struct entry *entry = &archive->entry;
    if (entry->type == '5') {
        return mkdirat(parent, last, 0755) == 0 || errno == EEXIST ? SLUICE_OK
                                                                   : fail(archive, errno);
    }
    if (unlinkat(parent, last, 0) != 0 && errno != ENOENT) { /* the later one of a name counts */
        return fail(archive, errno);
    }
    switch (entry->type) {
    case '0':
    case '7':
        return write_file(archive, parent, last);
    case '1':
        return make_hard_link(archive, parent, last);
    case '2':
        if (!link_is_inside(entry->name, entry->link)) {
            return refuse(archive, "it is a link out of the archive");
        }
        return symlinkat(entry->link, parent, last) == 0 ? SLUICE_OK : fail(archive, errno);
    default:
        return refuse(archive, "it is neither a file nor a directory nor a link");
    }
}

/* Takes the entry whose header was read. */
static sluice_status take_entry(struct archive *archive) {
    struct entry *entry = &archive->entry;
    sluice_status status;
    char *last;
    if (archive->next_name[0]) {
        memcpy(entry->name, archive->next_name, sizeof(entry->name));
    }
    if (archive->next_link[0]) {
        memcpy(entry->link, archive->next_link, sizeof(entry->link));
    }
    entry->size = archive->next_size >= 0 ? (uint64_t)archive->next_size : entry->size;
    archive->next_name[0] = archive->next_link[0] = '\0';
    archive->next_size = -1;
    if (!is_inside(entry->name)) {
        return refuse(archive, "its name leads out of the archive");
    }
    tidy(entry->name);
    if (entry->name[0] == '\0') {
        return skip(archive, entry->size + padding_of(entry->size)); /* "./" */
    }
    int has_bytes = entry->type == '0' || entry->type == '7';
    if (has_bytes && entry->size > archive->left_bytes) {
        return error_set(archive->error, SLUICE_INVALID_ARGUMENT,
                         "%.200s: it has more than %llu MiB unpacked (parameter env_max_mb)",
                         archive->path, (unsigned long long)archive->max_bytes >> 20);
    }
    archive->left_bytes -= has_bytes ? entry->size : 0;
    int parent = open_parent(archive, entry->name, &last, &status);
    if (parent < 0) {
        return status;
    }
    status = write_entry(archive, parent, last);
    close(parent);
    if (status == SLUICE_OK && !has_bytes && entry->size > 0) {
        status = skip(archive, entry->size + padding_of(entry->size));
    }
    return status;
}

static sluice_status unpack(struct archive *archive) {
    int is_last = 0;
    sluice_status status = SLUICE_OK;
    while (status == SLUICE_OK && !is_last) {
        status = read_header(archive, &is_last);
        if (status != SLUICE_OK || is_last) {
            break;
        }
        if (++archive->n_entries > ARCHIVE_MAX_ENTRIES) {
            return refuse(archive, "there are too many before it");
        }
        char type = archive->entry.type;
        status = type == 'x' || type == 'g' || type == 'L' || type == 'K' ? take_extension(archive)
                                                                          : take_entry(archive);
    }
    return status;
}

sluice_status archive_unpack(const char *path, int directory, uint64_t max_bytes,
                             sluice_error *error) {
    struct archive *archive = calloc(1, sizeof(*archive));
    char *buffer = malloc(COPY_BYTES);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    gzFile file = fd >= 0 ? gzdopen(fd, "rb") : NULL;
    sluice_status status;
    if (!archive || !buffer || !file) {
        status =
            fd < 0 ? error_set(error, SLUICE_INVALID_ARGUMENT, "%.200s: %s", path, strerror(errno))
                   : error_no_memory(error, "%.200s", path);
    } else {
        *archive = (struct archive){.path = path,
                                    .file = file,
                                    .directory = directory,
                                    .left_bytes = max_bytes,
                                    .max_bytes = max_bytes,
                                    .next_size = -1,
                                    .buffer = buffer,
                                    .error = error};
        gzbuffer(file, COPY_BYTES);
        status = unpack(archive);
    }
    if (file) {
        gzclose(file);
    } else if (fd >= 0) {
        close(fd);
    }
    free(buffer);
    free(archive);
    return status;
}
