/* Files read and written whole. */
#include "cli/file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { FIRST_BYTES = 65536 };

static enum status failed(const char *doing, const char *path, struct error *err) {
    const char *name = strcmp(path, "-") == 0 ? "standard input or output" : path;
    return error_set(err, ST_IO, "%s %s: %s", doing, name, strerror(errno));
}

static enum status read_all(struct arena *arena, FILE *file, const char *path, struct str *out,
                            struct error *err) {
    size_t n = 0, room = FIRST_BYTES;
    char *data = arena_alloc(arena, room);
    while (data && !feof(file) && !ferror(file)) {
        n += fread(data + n, 1, room - n, file);
        if (n == room) {
            data = arena_realloc(arena, data, room, room * 2);
            room *= 2;
        }
    }
    if (!data) {
        return error_set(err, ST_NO_MEMORY, "no memory for %s", path);
    }
    *out = str_make(data, n);
    return ferror(file) ? failed("reading", path, err) : ST_OK;
}

enum status file_read(struct arena *arena, const char *path, struct str *out, struct error *err) {
    if (strcmp(path, "-") == 0) {
        return read_all(arena, stdin, path, out, err);
    }
    FILE *file = fopen(path, "rbe");
    if (!file) {
        return failed("opening", path, err);
    }
    enum status status = read_all(arena, file, path, out, err);
    fclose(file);
    return status;
}

static enum status write_all(FILE *file, const char *path, const struct str *pieces, size_t n,
                             struct error *err) {
    for (size_t i = 0; i < n; i++) {
        if (pieces[i].len > 0 && fwrite(pieces[i].ptr, 1, pieces[i].len, file) != pieces[i].len) {
            return failed("writing", path, err);
        }
    }
    return fflush(file) == 0 ? ST_OK : failed("writing", path, err);
}

enum status file_write(const char *path, const struct str *pieces, size_t n, struct error *err) {
    if (strcmp(path, "-") == 0) {
        return write_all(stdout, path, pieces, n, err);
    }
    FILE *file = fopen(path, "wbe");
    if (!file) {
        return failed("opening", path, err);
    }
    enum status status = write_all(file, path, pieces, n, err);
    if (fclose(file) != 0 && status == ST_OK) {
        status = failed("writing", path, err);
    }
    return status;
}
