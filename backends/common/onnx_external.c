/* The model is walked as protobuf fields (onnx_message.h). When a tensor has external data, the
 * model is written anew: no location of the file's reaches the library. */
#include "common/onnx_external.h"

#include <inttypes.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/load_error.h"
#include "common/onnx_message.h"
#include "common/onnx_zipmap.h"
#include "common/text.h"

/* ---- writing --------------------------------------------------------------------------------- */

static void add_entry(struct writer *writer, const char *key, const char *value) {
    struct writer entry = {0};
    writer_add_bytes(&entry, ONNX_ENTRY_KEY, (struct bytes){key, strlen(key)});
    writer_add_bytes(&entry, ONNX_ENTRY_VALUE, (struct bytes){value, strlen(value)});
    writer_add_message(writer, ONNX_TENSOR_EXTERNAL_DATA, &entry);
}

/* ---- external data of a tensor --------------------------------------------------------------- */

struct external_ref {
    int is_external;
    struct bytes location; /* data NULL: none */
    uint64_t offset;
    uint64_t length;
    int has_length;
};

struct walk {
    struct onnx_file *file;
    enum onnx_external_mode mode;
    char *directories[2];  /* of the path, and of the file that it links to; no symbolic links */
    char *named_directory; /* of the path, as given */
    int has_external;
    sluice_error *error;
};

static sluice_status error_external(const struct walk *walk, const char *what,
                                    struct bytes location) {
    return error_set(walk->error, SLUICE_INVALID_ARGUMENT, "external data \"%.*s\": %s",
                     (int)(location.n < 200 ? location.n : 200), location.data ? location.data : "",
                     what);
}

static sluice_status entry_read(const struct walk *walk, struct bytes rest,
                                struct external_ref *ref) {
    struct bytes key = {"", 0}, value = {"", 0};
    struct field field;
    const char *why;
    while (field_take(&rest, &field, &why) > 0) {
        if (field.number == ONNX_ENTRY_KEY) {
            key = field.bytes;
        } else if (field.number == ONNX_ENTRY_VALUE) {
            value = field.bytes;
        }
    }
    if (bytes_equal(key, "location")) {
        if (ref->location.data) {
            return error_external(walk, "the tensor has a second location", value);
        }
        ref->location = value;
    } else if (bytes_equal(key, "offset") && !bytes_number(value, &ref->offset)) {
        return error_external(walk, "expected a number as offset", value);
    } else if (bytes_equal(key, "length")) {
        ref->has_length = 1;
        if (!bytes_number(value, &ref->length)) {
            return error_external(walk, "expected a number as length", value);
        }
    }
    return SLUICE_OK;
}

static sluice_status tensor_read(const struct walk *walk, struct bytes rest,
                                 struct external_ref *ref) {
    struct field field;
    const char *why;
    sluice_status status = SLUICE_OK;
    *ref = (struct external_ref){0};
    while (status == SLUICE_OK && field_take(&rest, &field, &why) > 0) {
        if (field.number == ONNX_TENSOR_DATA_LOCATION) {
            ref->is_external = field.value == 1;
            if (field.value > 1) { /* of which protobuf uses 32 bits */
                status = error_set(walk->error, SLUICE_INVALID_ARGUMENT,
                                   "a tensor has the data_location %" PRIu64
                                   "; expected 0 (in the model) or 1 (external)",
                                   field.value);
            }
        } else if (field.number == ONNX_TENSOR_EXTERNAL_DATA) {
            status = entry_read(walk, field.bytes, ref);
        }
    }
    return status;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Returns: 0 when it is absolute or has a part "..", or is no name of a file. */
static int location_is_inside(struct bytes location) {
    struct bytes rest = location;
    if (rest.n == 0 || rest.data[0] == '/' || memchr(rest.data, '\0', rest.n)) {
        return 0;
    }
    while (rest.n > 0) {
        const char *slash = memchr(rest.data, '/', rest.n);
        size_t n = slash ? (size_t)(slash - rest.data) : rest.n;
        if (n == 2 && memcmp(rest.data, "..", 2) == 0) {
            return 0;
        }
        n += slash != NULL;
        rest = (struct bytes){rest.data + n, rest.n - n};
    }
    return 1;
}

static sluice_status external_read_in(const struct walk *walk, struct onnx_external *external,
                                      const char *directory, sluice_error *error) {
    const char *const inside[] = {walk->directories[0], walk->directories[1]};
    const struct file_rules rules = {.inside = inside, .n_inside = 2};
    char path[PATH_MAX];
    int n = snprintf(path, sizeof(path), "%s/%s", directory, external->location);
    if (n < 0 || (size_t)n >= sizeof(path)) {
        return error_external(walk, "the path is too long",
                              (struct bytes){external->location, strlen(external->location)});
    }
    return file_read(&external->file, path, &rules, NULL, error);
}

/* Beside the path that the operator named first; that file is the one that an error names. */
static sluice_status external_read(const struct walk *walk, struct onnx_external *external) {
    sluice_error other;
    sluice_status status = external_read_in(walk, external, walk->named_directory, walk->error);
    if (status == SLUICE_NOT_FOUND && strcmp(walk->directories[0], walk->directories[1]) != 0 &&
        external_read_in(walk, external, walk->directories[1], &other) == SLUICE_OK) {
        return SLUICE_OK;
    }
    return status;
}

/* Reads the file unless it was. Returns: NULL on failure. */
static const struct onnx_external *external_get(const struct walk *walk, struct bytes location,
                                                sluice_status *status) {
    struct onnx_file *file = walk->file;
    for (size_t i = 0; i < file->n_externals; i++) {
        if (bytes_equal(location, file->externals[i].location)) {
            return &file->externals[i];
        }
    }
    if (!location_is_inside(location)) {
        *status =
            error_external(walk, "expected a file in the directory of the model's file", location);
        return NULL;
    }
    struct onnx_external *externals =
        realloc(file->externals, (file->n_externals + 1) * sizeof(*externals));
    if (externals) {
        file->externals = externals;
    }
    char *copy = externals ? malloc(location.n + 1) : NULL;
    if (!copy) {
        *status = error_no_memory(walk->error, "external data");
        return NULL;
    }
    memcpy(copy, location.data, location.n); /* which no zero byte ends */
    copy[location.n] = '\0';
    struct onnx_external *external = &externals[file->n_externals];
    *external = (struct onnx_external){.location = copy};
    snprintf(external->name, sizeof(external->name), "external-%zu", file->n_externals++);
    *status = external_read(walk, external);
    return *status == SLUICE_OK ? external : NULL;
}

/* ---- walk ------------------------------------------------------------------------------------ */

/* Writes a tensor whose external data is `ref` of `external`. */
static void add_tensor(const struct walk *walk, struct bytes rest, const struct external_ref *ref,
                       const struct onnx_external *external, int is_main, struct writer *output) {
    char text[24];
    struct field field;
    const char *why;
    while (field_take(&rest, &field, &why) > 0) {
        if (field.number != ONNX_TENSOR_DATA_LOCATION &&
            field.number != ONNX_TENSOR_EXTERNAL_DATA && field.number != ONNX_TENSOR_RAW_DATA) {
            writer_add(output, field.whole.data, field.whole.n);
        }
    }
    if (walk->mode == ONNX_EXTERNAL_EMBED || !is_main) {
        size_t n =
            ref->has_length ? (size_t)ref->length : external->file.n_bytes - (size_t)ref->offset;
        writer_add_bytes(output, ONNX_TENSOR_RAW_DATA,
                         (struct bytes){external->file.data + ref->offset, n});
        return;
    }
    add_entry(output, "location", external->name);
    snprintf(text, sizeof(text), "%" PRIu64, ref->offset);
    add_entry(output, "offset", text);
    if (ref->has_length) {
        snprintf(text, sizeof(text), "%" PRIu64, ref->length);
        add_entry(output, "length", text);
    }
    writer_add_number(output, ONNX_TENSOR_DATA_LOCATION, 1);
}

/* `is_main`: an initializer of the main graph. `output`: NULL, or where the tensor goes. */
static sluice_status tensor_visit(struct walk *walk, struct bytes tensor, int is_main,
                                  struct writer *output) {
    struct external_ref ref;
    sluice_status status = tensor_read(walk, tensor, &ref);
    if (status != SLUICE_OK) {
        return status;
    }
    if (!ref.is_external) {
        if (output) {
            writer_add(output, tensor.data, tensor.n);
        }
        return SLUICE_OK;
    }
    const struct onnx_external *external = external_get(walk, ref.location, &status);
    if (!external) {
        return status;
    }
    size_t size = external->file.n_bytes;
    if (ref.offset > size || (ref.has_length && ref.length > size - ref.offset)) {
        return error_set(walk->error, SLUICE_INVALID_ARGUMENT,
                         "external data \"%.200s\": the file has %zu bytes, fewer than the model "
                         "needs",
                         external->location, size);
    }
    walk->has_external = 1;
    if (output) {
        add_tensor(walk, tensor, &ref, external, is_main, output);
    }
    return SLUICE_OK;
}

static sluice_status message_visit(struct walk *walk, enum onnx_message kind, struct bytes rest,
                                   int depth, struct writer *output);

static sluice_status member_visit(struct walk *walk, const struct onnx_member *member,
                                  const struct field *field, int depth, struct writer *output) {
    if (member->type != ONNX_TENSOR) {
        return message_visit(walk, member->type, field->bytes, depth + 1, output);
    }
    int is_main = depth == 1 && member->parent == ONNX_GRAPH;
    return tensor_visit(walk, field->bytes, is_main, output);
}

/* Visits the tensors of a message that onnx_check has passed. `output`: NULL, or where the message
 * goes. Graphs at depth 1 are the main graph. */
static sluice_status message_visit(struct walk *walk, enum onnx_message kind, struct bytes rest,
                                   int depth, struct writer *output) {
    struct field field;
    const char *why;
    sluice_status status = SLUICE_OK;
    while (status == SLUICE_OK && field_take(&rest, &field, &why) > 0) {
        const struct onnx_member *member = onnx_member_find(kind, field.number);
        if (!member || member->type >= ONNX_MESSAGES) {
            if (output) {
                writer_add(output, field.whole.data, field.whole.n);
            }
            continue;
        }
        struct writer message = {0};
        status = member_visit(walk, member, &field, depth, output ? &message : NULL);
        if (output) {
            writer_add_message(output, field.number, &message);
            status = output->too_large || output->no_memory ? SLUICE_NO_MEMORY : status;
        }
    }
    return status;
}

/* Writes the model anew. */
static sluice_status model_rewrite(struct walk *walk) {
    struct file *model = &walk->file->model;
    struct writer output = {0};
    sluice_status status =
        message_visit(walk, ONNX_MODEL, (struct bytes){model->data, model->n_bytes}, 0, &output);
    free(model->data);
    *model = (struct file){output.data, output.n};
    if (output.too_large) {
        return error_set(walk->error, SLUICE_UNSUPPORTED,
                         walk->mode == ONNX_EXTERNAL_EMBED
                             ? "the model has more than 2 GiB of external data"
                             : "the model has more than 2 GiB of external data in subgraphs or "
                               "attributes; store these weights as initializers of the main graph");
    }
    return output.no_memory ? error_no_memory(walk->error, "external data") : status;
}

/* ---- the model's file ------------------------------------------------------------------------ */

static char *directory_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
}

/* `real`: the path without symbolic links; NULL: not known. */
static sluice_status directories_find(struct walk *walk, const char *path, const char *real) {
    walk->named_directory = directory_of(path);
    walk->directories[0] = walk->named_directory ? realpath(walk->named_directory, NULL) : NULL;
    walk->directories[1] = real                   ? directory_of(real)
                           : walk->directories[0] ? strdup(walk->directories[0])
                                                  : NULL;
    return walk->directories[0] && walk->directories[1]
               ? SLUICE_OK
               : error_set(walk->error, SLUICE_INTERNAL, "%s: its directory cannot be found", path);
}

/* What is wrong with the file as a whole is said first: that it is a web page, or ends early. */
static sluice_status error_malformed(const char *path, const char *why, sluice_error *error) {
    char text[sizeof(error->text)];
    if (load_error_explain(path, 0, text, sizeof(text))) {
        return error_set(error, SLUICE_INVALID_ARGUMENT, "%s", text);
    }
    if (!load_error_explain(path, 1, text, sizeof(text))) {
        snprintf(text, sizeof(text), "%.200s is not a well-formed ONNX model", path);
    }
    return strstr(text, "ends in the middle") || strstr(text, "is not an ONNX model")
               ? error_set(error, SLUICE_INVALID_ARGUMENT, "%s", text)
               : error_set(error, SLUICE_INVALID_ARGUMENT, "%.380s (%s)", text, why);
}

static sluice_status model_read(struct walk *walk, const char *path) {
    const struct file_rules rules = {
        .max_bytes = INT_MAX,
        .too_large = "is larger than 2 GiB, which an ONNX file cannot be: save its weights as "
                     "external data"};
    struct file *model = &walk->file->model;
    char *real = NULL, why[160];
    sluice_status status = file_read(model, path, &rules, &real, walk->error);
    if (status == SLUICE_OK) {
        status = directories_find(walk, path, real);
    }
    free(real);
    if (status == SLUICE_OK &&
        !onnx_check((struct bytes){model->data, model->n_bytes}, why, sizeof(why))) {
        status = error_malformed(path, why, walk->error);
    }
    return status;
}

sluice_status onnx_file_read(struct onnx_file *file, const char *path, enum onnx_external_mode mode,
                             sluice_error *error) {
    struct walk walk = {.file = file, .mode = mode, .error = error};
    *file = (struct onnx_file){0};
    sluice_status status = model_read(&walk, path);
    if (status == SLUICE_OK) {
        status = onnx_zipmap_replace(&file->model, file->zipmap, sizeof(file->zipmap), error);
    }
    if (status == SLUICE_OK) {
        status = message_visit(&walk, ONNX_MODEL,
                               (struct bytes){file->model.data, file->model.n_bytes}, 0, NULL);
    }
    if (status == SLUICE_OK && walk.has_external) {
        status = model_rewrite(&walk);
    }
    free(walk.named_directory);
    free(walk.directories[0]);
    free(walk.directories[1]);
    return status;
}

void onnx_file_fini(struct onnx_file *file) {
    for (size_t i = 0; i < file->n_externals; i++) {
        free(file->externals[i].location);
        free(file->externals[i].file.data);
    }
    free(file->externals);
    free(file->model.data);
    *file = (struct onnx_file){0};
}
