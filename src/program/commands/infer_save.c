/* Outputs as files. */
#include "program/commands/infer_answer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "core/tensor/bytes.h"
#include "program/requests/file.h"
#include "program/requests/npy.h"

static bool is_safe(char c, bool first) {
    bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    return letter || c == '_' || (!first && (c == '-' || c == '.'));
}

const char *infer_output_path(struct arena *arena, const char *dir, struct str name,
                              const char *suffix) {
    struct str copy = arena_dup(arena, name);
    char *safe = (char *)(uintptr_t)copy.ptr;
    for (size_t i = 0; i < copy.len; i++) {
        safe[i] = is_safe(safe[i], i == 0) ? safe[i] : '_';
    }
    return arena_printf(arena, "%s/%s.%s", dir, copy.len > 0 ? safe : "_", suffix).ptr;
}

/* The raw form of a BYTES tensor is its one element, without its length; several elements have no
 * raw form, because their boundaries would be lost. */
static enum status only_element(const struct tensor *tensor, struct str *bytes, struct error *err) {
    struct str rest = *bytes;
    if (!bytes_next(&rest, bytes) || rest.len > 0) {
        return error_set(err, ST_BAD_DATATYPE,
                         "output \"%.*s\" has not one BYTES element: raw bytes can't tell several "
                         "apart; use --format json",
                         STR_ARG(tensor->name));
    }
    return ST_OK;
}

static enum status save_output(struct arena *arena, const struct infer_settings *settings,
                               const struct tensor *tensor, const char *path, struct error *err) {
    struct buf bytes;
    struct str pieces[2] = {STR(""), STR("")};
    enum status status = ST_OK;
    buf_init(&bytes, arena, 0);
    if (settings->format == INFER_FORMAT_NPY) {
        status = npy_encode_head(&bytes, tensor->datatype, tensor->shape, err);
        pieces[0] = arena_dup(arena, buf_str(&bytes));
        bytes.len = 0;
    }
    for (size_t i = 0; i < tensor->n_pieces; i++) {
        buf_add(&bytes, tensor->pieces[i].data, tensor->pieces[i].n_bytes);
    }
    pieces[1] = buf_str(&bytes);
    if (status == ST_OK && tensor->datatype == DT_BYTES) {
        status = only_element(tensor, &pieces[1], err);
    }
    if (status != ST_OK) {
        return error_prefix(err, "%s", path);
    }
    return file_write(path, pieces, 2, err);
}

enum status infer_output_dir_create(const char *dir, struct error *err) {
    if (mkdir(dir, 0777) != 0 && errno != EEXIST) {
        return error_set(err, ST_IO, "making %s: %s", dir, strerror(errno));
    }
    return ST_OK;
}

static enum status save_to_dir(struct arena *arena, const struct infer_settings *settings,
                               const struct v2_client_response *answer, struct error *err) {
    const char *suffix = settings->format == INFER_FORMAT_NPY ? "npy" : "raw";
    enum status status = infer_output_dir_create(settings->output_dir, err);
    for (size_t i = 0; i < answer->infer.n_outputs && status == ST_OK; i++) {
        const struct tensor *tensor = &answer->infer.outputs[i];
        const char *path = infer_output_path(arena, settings->output_dir, tensor->name, suffix);
        status = save_output(arena, settings, tensor, path, err);
        if (status == ST_OK) {
            fprintf(stderr, "%s\n", path);
        }
    }
    return status;
}

enum status infer_answer_save(struct arena *arena, const struct infer_settings *settings,
                              const struct v2_client_response *answer, struct error *err) {
    if (settings->output_dir) {
        return save_to_dir(arena, settings, answer, err);
    }
    if (answer->infer.n_outputs != 1) {
        return error_set(err, ST_BAD_CONFIG,
                         "the answer has %zu outputs, and one file holds one: choose it with "
                         "--output NAME, or write all with --output-dir DIR",
                         answer->infer.n_outputs);
    }
    return save_output(arena, settings, &answer->infer.outputs[0], settings->output_file, err);
}
