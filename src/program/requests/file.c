/* Whole files, read and written. */
#include "program/requests/file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { FIRST_BYTES = 65536 };

static bool is_standard(const char *path) {
    return strcmp(path, "-") == 0;
}

const char *file_name(const char *path) {
    return is_standard(path) ? "standard input" : path;
}

static enum status file_error(const char *doing, const char *name, struct error *err) {
    return error_set(err, ST_IO, "%s %s: %s", doing, name, strerror(errno));
}

static enum status read_all(struct arena *arena, FILE *file, const char *name, uint64_t max_bytes,
                            struct str *out, struct error *err) {
    size_t n = 0, room = FIRST_BYTES;
    char *data = arena_alloc(arena, room);
    while (n <= max_bytes && !feof(file) && !ferror(file)) {
        n += fread(data + n, 1, room - n, file);
        if (n == room) {
            data = arena_realloc(arena, data, room, room * 2);
            room *= 2;
        }
    }
    if (ferror(file)) {
        return file_error("reading", name, err);
    }
    if (n > max_bytes) {
        return error_set(err, ST_BODY_TOO_LARGE,
                         "%s has more than %" PRIu64 " bytes, which is the limit "
                         "(--max-input-size)",
                         name, max_bytes);
    }
    *out = str_make(data, n);
    return ST_OK;
}

enum status file_read(struct arena *arena, const char *path, uint64_t max_bytes, struct str *out,
                      struct error *err) {
    if (is_standard(path) && feof(stdin)) {
        return error_set(err, ST_BAD_CONFIG,
                         "standard input is named twice: it can be read only once");
    }
    if (is_standard(path)) {
        return read_all(arena, stdin, file_name(path), max_bytes, out, err);
    }
    FILE *file = fopen(path, "rbe");
    if (!file) {
        return file_error("opening", path, err);
    }
    enum status status = read_all(arena, file, path, max_bytes, out, err);
    fclose(file);
    return status;
}

static enum status write_all(FILE *file, const char *name, const struct str *pieces, size_t n,
                             struct error *err) {
    for (size_t i = 0; i < n; i++) {
        if (pieces[i].len > 0 && fwrite(pieces[i].ptr, 1, pieces[i].len, file) != pieces[i].len) {
            return file_error("writing", name, err);
        }
    }
    return fflush(file) == 0 ? ST_OK : file_error("writing", name, err);
}

enum status file_write(const char *path, const struct str *pieces, size_t n, struct error *err) {
    if (is_standard(path)) {
        return write_all(stdout, "standard output", pieces, n, err);
    }
    FILE *file = fopen(path, "wbe");
    if (!file) {
        return file_error("opening", path, err);
    }
    enum status status = write_all(file, path, pieces, n, err);
    if (fclose(file) != 0 && status == ST_OK) {
        status = file_error("writing", path, err);
    }
    return status;
}
