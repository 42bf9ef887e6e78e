/* Label files, and the labels of a model's outputs. */
#include "serve/frontend/labels.h"

#include <errno.h>
#include <stdio.h>

#include "core/base/buf.h"
#include "core/base/utf8.h"
#include "serve/config/config.h"

enum { FILE_BYTES = 16 << 20, CHUNK_BYTES = 4096 };

static const char BYTE_ORDER_MARK[] = "\xef\xbb\xbf";

/* ---- lines ----------------------------------------------------------------------------------- */

static enum status read_lines(const char *path, struct str text, struct str *out,
                              struct error *err) {
    struct str rest = text;
    for (size_t i = 0; rest.ptr; i++) {
        struct str line = str_cut(&rest, '\n');
        if (line.len > 0 && line.ptr[line.len - 1] == '\r') {
            line.len--;
        }
        out[i] = str_trim(line);
        if (!utf8_is_valid(out[i].ptr, out[i].len)) {
            return error_set(err, ST_BAD_CONFIG, "%s:%zu: expected UTF-8", path, i + 1);
        }
    }
    return ST_OK;
}

enum status labels_parse(struct arena *arena, const char *path, struct str text, struct labels *out,
                         struct error *err) {
    if (str_starts_with(text, str_of(BYTE_ORDER_MARK))) {
        text = str_make(text.ptr + 3, text.len - 3);
    }
    while (text.len > 0 && (text.ptr[text.len - 1] == '\n' || text.ptr[text.len - 1] == '\r')) {
        text.len--;
    }
    *out = (struct labels){NULL, 0};
    size_t n = text.len > 0 ? 1 : 0;
    for (size_t i = 0; i < text.len; i++) {
        n += text.ptr[i] == '\n';
    }
    if (n == 0) {
        return ST_OK;
    }
    struct str *labels = arena_calloc(arena, n, sizeof(*labels));
    if (!labels) {
        return error_no_memory(err, "the labels in %s", path);
    }
    *out = (struct labels){labels, n};
    return read_lines(path, text, labels, err);
}

/* ---- the file -------------------------------------------------------------------------------- */

/* Returns: the whole file, or ptr NULL with `err` filled. */
static struct str read_file(struct arena *arena, FILE *file, const char *path, struct error *err) {
    struct buf text;
    size_t n_read;
    buf_init(&text, arena, 0);
    do {
        char *space = buf_reserve(&text, CHUNK_BYTES);
        n_read = space ? fread(space, 1, CHUNK_BYTES, file) : 0;
        buf_advance(&text, n_read);
    } while (n_read > 0 && text.len <= FILE_BYTES);
    if (text.failed) {
        error_no_memory(err, "the labels in %s", path);
    } else if (ferror(file)) {
        error_set(err, ST_BAD_CONFIG, "%s: %s", path, strerror(errno));
    } else if (text.len > FILE_BYTES) {
        error_set(err, ST_BAD_CONFIG, "%s: a file of labels has at most %d bytes", path,
                  FILE_BYTES);
    } else {
        return buf_str(&text);
    }
    return str_make(NULL, 0);
}

enum status labels_load(struct arena *arena, const struct model_config *config,
                        struct str directory, const char *path, struct labels *out,
                        struct error *err) {
    struct error why = {.status = ST_OK};
    const char *reason;
    FILE *file = model_file_open(config, directory, path, &reason);
    if (!file) {
        return error_set(err, status_of_errno(errno, ST_BAD_CONFIG), "%s: %s", path, reason);
    }
    struct str text = read_file(arena, file, path, &why);
    fclose(file);
    if (!text.ptr) {
        *err = why;
        return why.status;
    }
    return labels_parse(arena, path, text, out, err);
}

/* ---- of a model ------------------------------------------------------------------------------ */

/* The configuration reader has checked that the file is inside the model's directory. */
static enum status load_output_labels(struct arena *arena, const struct model_config *config,
                                      struct str directory,
                                      const struct model_config_tensor *output, struct labels *out,
                                      struct error *err) {
    if (output->label_filename.len == 0) {
        return ST_OK;
    }
    struct str path =
        arena_printf(arena, "%.*s/%.*s", STR_ARG(directory), STR_ARG(output->label_filename));
    if (!path.ptr) {
        return error_no_memory(err, "the model's labels");
    }
    enum status st = labels_load(arena, config, directory, path.ptr, out, err);
    char name[QUOTED_NAME_BYTES];
    return st == ST_BAD_CONFIG
               ? error_prefix(err, "labels of output %s", quote_name(output->name, name))
               : st;
}

enum status model_labels_load(struct model_version *version, struct error *err) {
    const struct model_config *config = model_version_config(version);
    struct arena *arena = model_version_arena(version);
    struct labels *labels =
        arena_calloc(arena, model_version_spec(version)->n_outputs, sizeof(*labels));
    if (!labels) {
        return error_no_memory(err, "the model's labels");
    }
    enum status st = ST_OK;
    for (size_t i = 0; st == ST_OK && i < config->n_outputs; i++) {
        st = load_output_labels(arena, config, model_version_directory(version),
                                &config->outputs[i], &labels[i], err);
    }
    model_version_set_user_data(version, MODEL_VERSION_LABELS, labels);
    return st;
}

const struct labels *model_labels(const struct model_version *version) {
    return model_version_user_data(version, MODEL_VERSION_LABELS);
}
