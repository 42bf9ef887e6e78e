/* The model is walked as protobuf fields. When a tensor has external data, the model is written
 * anew: no location of the file's reaches the library. */
#include "common/onnx_file.h"

#include <inttypes.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"

/* ---- messages -------------------------------------------------------------------------------- */

enum { MAX_NUMBER = 64 /* of a member, as bits */ };

static const struct onnx_member members[] = {
    {ONNX_MODEL, ONNX_MODEL_GRAPH, ONNX_GRAPH, 0, "graph"},
    {ONNX_MODEL, 20, ONNX_TRAINING, 1, "training_info"},
    {ONNX_MODEL, 25, ONNX_FUNCTION, 1, "functions"},
    {ONNX_TRAINING, 1, ONNX_GRAPH, 0, "initialization"},
    {ONNX_TRAINING, 2, ONNX_GRAPH, 0, "algorithm"},
    {ONNX_FUNCTION, 7, ONNX_NODE, 1, "node"},
    {ONNX_FUNCTION, 11, ONNX_ATTRIBUTE, 1, "attribute_proto"},
    {ONNX_GRAPH, 1, ONNX_NODE, 1, "node"},
    {ONNX_GRAPH, ONNX_GRAPH_INITIALIZER, ONNX_TENSOR, 1, "initializer"},
    {ONNX_GRAPH, 15, ONNX_SPARSE_TENSOR, 1, "sparse_initializer"},
    {ONNX_NODE, 4, ONNX_TEXT, 0, "op_type"},
    {ONNX_NODE, 5, ONNX_ATTRIBUTE, 1, "attribute"},
    {ONNX_ATTRIBUTE, 5, ONNX_TENSOR, 0, "t"},
    {ONNX_ATTRIBUTE, 6, ONNX_GRAPH, 0, "g"},
    {ONNX_ATTRIBUTE, 10, ONNX_TENSOR, 1, "tensors"},
    {ONNX_ATTRIBUTE, 11, ONNX_GRAPH, 1, "graphs"},
    {ONNX_ATTRIBUTE, 22, ONNX_SPARSE_TENSOR, 0, "sparse_tensor"},
    {ONNX_ATTRIBUTE, 23, ONNX_SPARSE_TENSOR, 1, "sparse_tensors"},
    {ONNX_SPARSE_TENSOR, 1, ONNX_TENSOR, 0, "values"},
    {ONNX_SPARSE_TENSOR, 2, ONNX_TENSOR, 0, "indices"},
    {ONNX_TENSOR, ONNX_TENSOR_RAW_DATA, ONNX_TEXT, 0, "raw_data"},
    {ONNX_TENSOR, ONNX_TENSOR_EXTERNAL_DATA, ONNX_ENTRY, 1, "external_data"},
    {ONNX_TENSOR, ONNX_TENSOR_DATA_LOCATION, ONNX_NUMBER, 0, "data_location"},
    {ONNX_ENTRY, ONNX_ENTRY_KEY, ONNX_TEXT, 0, "key"},
    {ONNX_ENTRY, ONNX_ENTRY_VALUE, ONNX_TEXT, 0, "value"},
};

const struct onnx_member *onnx_member_find(enum onnx_message parent, uint32_t number) {
    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
        if (members[i].parent == parent && members[i].number == number) {
            return &members[i];
        }
    }
    return NULL;
}

struct check {
    const char *begin; /* of the file */
    char *out;
    size_t n_bytes;
};

static int fail(const struct check *check, const char *at, const char *why, const char *name) {
    snprintf(check->out, check->n_bytes, "byte %zu: %s%s%s", (size_t)(at - check->begin), why,
             name ? " " : "", name ? name : "");
    return 0;
}

static int member_check(const struct check *check, const struct onnx_member *member,
                        const struct field *field, uint64_t *seen) {
    unsigned wire_type = member->type == ONNX_NUMBER ? WIRE_VARINT : WIRE_BYTES;
    const char *at = field->whole.data;
    uint64_t bit = member->number < MAX_NUMBER ? UINT64_C(1) << member->number : 0;
    if (field->wire_type != wire_type) {
        return fail(check, at, "another wire type than that of the field", member->name);
    }
    if (!member->repeated && (*seen & bit)) {
        return fail(check, at, "there a second time: the field", member->name);
    }
    *seen |= bit;
    return 1;
}

static int message_check(const struct check *check, enum onnx_message kind, struct bytes rest,
                         int depth) {
    struct field field;
    const char *why = NULL;
    uint64_t seen = 0;
    int taken;
    if (depth > ONNX_MAX_DEPTH) {
        return fail(check, rest.data, "messages are nested too deeply", NULL);
    }
    while ((taken = field_take(&rest, &field, &why)) > 0) {
        const struct onnx_member *member = onnx_member_find(kind, field.number);
        if (member && !member_check(check, member, &field, &seen)) {
            return 0;
        }
        if (member && member->type < ONNX_MESSAGES &&
            !message_check(check, member->type, field.bytes, depth + 1)) {
            return 0;
        }
    }
    return taken == 0 || fail(check, field.whole.data, why, NULL);
}

int onnx_check(struct bytes model, char *out, size_t n_bytes) {
    const struct check check = {model.data, out, n_bytes};
    return message_check(&check, ONNX_MODEL, model, 0);
}

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
        struct writer message = {0}, *to = output ? &message : NULL;
        int is_main = depth == 1 && kind == ONNX_GRAPH;
        status = member->type == ONNX_TENSOR
                     ? tensor_visit(walk, field.bytes, is_main, to)
                     : message_visit(walk, member->type, field.bytes, depth + 1, to);
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
