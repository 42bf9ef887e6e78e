/* The sources of inputs. The kind of a file is given by a prefix, else by its extension; for
 * standard input by its first bytes. */
#include "program/requests/infer_source.h"

#include <string.h>

#include "program/requests/file.h"
#include "program/requests/npy.h"

static const struct {
    const char *prefix;
    enum infer_source_kind kind;
} prefixes[] = {
    {"json:", INFER_SOURCE_JSON},
    {"npy:", INFER_SOURCE_NPY},
    {"raw:", INFER_SOURCE_RAW},
};

/* For standard input, which has no extension. */
static enum infer_source_kind kind_of_bytes(struct str bytes) {
    size_t i = 0;
    while (i < bytes.len && strchr(" \t\r\n", bytes.ptr[i]) && bytes.ptr[i] != '\0') {
        i++;
    }
    if (npy_has_magic(bytes)) {
        return INFER_SOURCE_NPY;
    }
    return i < bytes.len && bytes.ptr[i] == '[' ? INFER_SOURCE_JSON : INFER_SOURCE_RAW;
}

static enum infer_source_kind kind_of_name(struct str name) {
    if (str_ends_with(name, STR(".json"))) {
        return INFER_SOURCE_JSON;
    }
    return str_ends_with(name, STR(".npy")) ? INFER_SOURCE_NPY : INFER_SOURCE_RAW;
}

const char *infer_source_path(const char *text) {
    if (strcmp(text, "-") == 0) {
        return text;
    }
    return *text == '@' ? text + 1 : NULL;
}

static enum status read_file(struct arena *arena, const char *path, uint64_t max_bytes,
                             struct infer_source *out, struct error *err) {
    out->file = file_name(path);
    if (*path == '\0') {
        return error_set(err, ST_BAD_CONFIG, "--input %.*s=: the name of a file is missing",
                         STR_ARG(out->name));
    }
    return file_read(arena, path, max_bytes, &out->bytes, err);
}

enum status infer_source_read(struct arena *arena, const char *argument, uint64_t max_bytes,
                              struct infer_source *out, struct error *err) {
    struct str rest = str_of(argument);
    *out = (struct infer_source){.name = str_cut(&rest, '=')};
    if (!rest.ptr || out->name.len == 0) {
        return error_set(err, ST_BAD_CONFIG,
                         "--input %s: expected NAME=SOURCE, such as image=@seven.npy or "
                         "'x=[[1,2,3]]'",
                         argument);
    }
    const char *source = rest.ptr; /* NUL-terminated, as the end of the argument */
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(*prefixes); i++) {
        if (str_starts_with(rest, str_of(prefixes[i].prefix))) {
            out->kind = prefixes[i].kind;
            return read_file(arena, source + strlen(prefixes[i].prefix), max_bytes, out, err);
        }
    }
    const char *path = infer_source_path(source);
    if (path) {
        enum status status = read_file(arena, path, max_bytes, out, err);
        bool has_name = strcmp(path, "-") != 0;
        out->kind = has_name || status != ST_OK ? kind_of_name(rest) : kind_of_bytes(out->bytes);
        return status;
    }
    out->kind = INFER_SOURCE_INLINE;
    out->bytes = rest;
    out->file = arena_dup(arena, out->name).ptr;
    return ST_OK;
}
