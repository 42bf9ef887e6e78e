/* Finds tensors with external data in a model file (onnx.proto), and reads their files. The model
 * is walked as protobuf fields; only the messages on the way to a tensor are looked into. */
#include "common/onnx_external.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"

enum { MAX_DEPTH = 100 /* as protobuf's own */ };

/* Messages on the way to a tensor. */
enum kind { MODEL, FUNCTION, GRAPH, NODE, ATTRIBUTE, SPARSE_TENSOR, TENSOR, KINDS };

/* Fields of onnx.proto that contain such messages. */
static const struct {
    enum kind parent;
    uint64_t number;
    enum kind kind;
} children[] = {
    {MODEL, 7, GRAPH},
    {MODEL, 25, FUNCTION},
    {FUNCTION, 7, NODE},
    {GRAPH, 1, NODE},
    {GRAPH, 5, TENSOR},
    {GRAPH, 15, SPARSE_TENSOR},
    {NODE, 5, ATTRIBUTE},
    {ATTRIBUTE, 5, TENSOR},
    {ATTRIBUTE, 6, GRAPH},
    {ATTRIBUTE, 10, TENSOR},
    {ATTRIBUTE, 11, GRAPH},
    {ATTRIBUTE, 22, SPARSE_TENSOR},
    {ATTRIBUTE, 23, SPARSE_TENSOR},
    {SPARSE_TENSOR, 1, TENSOR},
    {SPARSE_TENSOR, 2, TENSOR},
};

/* Fields of TensorProto and StringStringEntryProto. */
enum { TENSOR_RAW_DATA = 9, TENSOR_EXTERNAL_DATA = 13, TENSOR_DATA_LOCATION = 14 };
enum { ENTRY_KEY = 1, ENTRY_VALUE = 2 };
enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

/* ---- fields ---------------------------------------------------------------------------------- */

struct bytes {
    const char *data;
    size_t n;
};

struct field {
    uint64_t number;
    unsigned wire_type;
    uint64_t value;     /* WIRE_VARINT */
    struct bytes bytes; /* WIRE_BYTES */
    struct bytes whole; /* with its tag */
};

/* Returns: 0 at the end or when it is malformed. */
static int varint_take(struct bytes *rest, uint64_t *value) {
    *value = 0;
    for (unsigned shift = 0; shift < 64 && rest->n > 0; shift += 7) {
        unsigned char byte = (unsigned char)*rest->data++;
        rest->n--;
        *value |= (uint64_t)(byte & 0x7fU) << shift;
        if (byte < 0x80) {
            return 1;
        }
    }
    return 0;
}

/* Returns: 0 at the end; else 1, and `*malformed` tells whether the field is. */
static int field_take(struct bytes *rest, struct field *field, int *malformed) {
    struct bytes from = *rest;
    uint64_t tag = 0, n = 0;
    if (rest->n == 0) {
        return 0;
    }
    int whole = varint_take(rest, &tag);
    *field = (struct field){.number = tag >> 3, .wire_type = (unsigned)(tag & 7)};
    switch (field->wire_type) {
    case WIRE_VARINT:
        whole = whole && varint_take(rest, &field->value);
        break;
    case WIRE_FIXED64:
        n = 8;
        break;
    case WIRE_FIXED32:
        n = 4;
        break;
    case WIRE_BYTES:
        whole = whole && varint_take(rest, &n);
        break;
    default:
        whole = 0;
    }
    if (!whole || n > rest->n) {
        *malformed = 1;
        return 1;
    }
    field->bytes = (struct bytes){rest->data, (size_t)n};
    rest->data += n;
    rest->n -= (size_t)n;
    field->whole = (struct bytes){from.data, from.n - rest->n};
    return 1;
}

/* ---- output ---------------------------------------------------------------------------------- */

/* A growing buffer. */
struct output {
    char *data;
    size_t n, cap;
    int failed; /* out of memory */
};

static void output_add(struct output *output, const void *data, size_t n) {
    if (n > output->cap - output->n) {
        size_t cap = 2 * output->cap + n;
        char *grown = realloc(output->data, cap);
        if (!grown) {
            output->failed = 1;
            return;
        }
        output->data = grown;
        output->cap = cap;
    }
    if (n > 0) {
        memcpy(output->data + output->n, data, n);
        output->n += n;
    }
}

static void output_add_varint(struct output *output, uint64_t value) {
    for (; value >= 0x80; value >>= 7) {
        char byte = (char)(value | 0x80);
        output_add(output, &byte, 1);
    }
    char last = (char)value;
    output_add(output, &last, 1);
}

static void output_add_bytes(struct output *output, uint64_t number, const char *data, size_t n) {
    output_add_varint(output, number << 3 | WIRE_BYTES);
    output_add_varint(output, n);
    output_add(output, data, n);
}

/* ---- external data of a tensor --------------------------------------------------------------- */

struct external_ref {
    struct bytes location; /* data NULL: not external */
    uint64_t offset;
    uint64_t length;
    int has_length;
};

static int number_read(struct bytes text, uint64_t *value) {
    *value = 0;
    for (size_t i = 0; i < text.n; i++) {
        unsigned digit = (unsigned char)text.data[i] - (unsigned)'0';
        if (digit > 9 || *value > (UINT64_MAX - digit) / 10) {
            return 0;
        }
        *value = *value * 10 + digit;
    }
    return text.n > 0;
}

static int is_text(struct bytes bytes, const char *text) {
    return bytes.n == strlen(text) && memcmp(bytes.data, text, bytes.n) == 0;
}

/* Returns: 0 when a number is malformed. */
static int entry_read(struct bytes rest, struct external_ref *ref) {
    struct bytes key = {"", 0}, value = {"", 0};
    struct field field;
    int malformed = 0;
    while (field_take(&rest, &field, &malformed) && !malformed) {
        if (field.number == ENTRY_KEY) {
            key = field.bytes;
        } else if (field.number == ENTRY_VALUE) {
            value = field.bytes;
        }
    }
    if (is_text(key, "location")) {
        ref->location = value;
    } else if (is_text(key, "offset")) {
        return number_read(value, &ref->offset);
    } else if (is_text(key, "length")) {
        ref->has_length = 1;
        return number_read(value, &ref->length);
    }
    return !malformed;
}

/* Returns: 0 when it is malformed. */
static int tensor_read(struct bytes rest, struct external_ref *ref) {
    struct field field;
    int malformed = 0, external = 0;
    *ref = (struct external_ref){0};
    while (field_take(&rest, &field, &malformed) && !malformed) {
        if (field.number == TENSOR_DATA_LOCATION && field.wire_type == WIRE_VARINT) {
            external = field.value == 1;
        } else if (field.number == TENSOR_EXTERNAL_DATA && field.wire_type == WIRE_BYTES) {
            malformed = !entry_read(field.bytes, ref);
        }
    }
    if (!external) {
        ref->location = (struct bytes){0};
    }
    return !malformed;
}

/* ---- walk ------------------------------------------------------------------------------------ */

struct walk {
    struct external *external;
    int has_inner; /* external data that is not an initializer of the main graph */
    int malformed;
    sluice_error *error;
};

/* Returns: 0 when it leaves the model's directory by its name. */
static int location_is_inside(const char *location) {
    const char *part = location;
    for (;;) {
        size_t n = strcspn(part, "/");
        if ((n == 0 && part == location) || (n == 2 && strncmp(part, "..", 2) == 0)) {
            return 0;
        }
        if (part[n] == '\0') {
            return 1;
        }
        part += n + 1;
    }
}

static sluice_status external_file_read(struct external *external, struct external_file *file,
                                        sluice_error *error) {
    char path[PATH_MAX];
    int n = snprintf(path, sizeof(path), "%s/%s", external->directory, file->location);
    if (n < 0 || (size_t)n >= sizeof(path) || !location_is_inside(file->location)) {
        return error_set(error, SLUICE_INVALID_ARGUMENT,
                         "external data \"%.200s\": expected a file in the directory of the "
                         "model's file",
                         file->location);
    }
    return file_read(&file->file, path, external->directory, error);
}

/* Reads the file unless it was. Returns: NULL on failure. */
static const struct external_file *external_file_get(struct walk *walk, struct bytes location,
                                                     sluice_status *status) {
    struct external *external = walk->external;
    for (size_t i = 0; i < external->n_files; i++) {
        if (is_text(location, external->files[i].location)) {
            return &external->files[i];
        }
    }
    struct external_file *files =
        realloc(external->files, (external->n_files + 1) * sizeof(*files));
    if (!files) {
        *status = error_no_memory(walk->error, "external data");
        return NULL;
    }
    external->files = files;
    struct external_file *file = &files[external->n_files];
    *file = (struct external_file){.location = strndup(location.data, location.n)};
    if (!file->location) {
        *status = error_no_memory(walk->error, "external data");
        return NULL;
    }
    external->n_files++;
    *status = external_file_read(external, file, walk->error);
    return *status == SLUICE_OK ? file : NULL;
}

static void add_tensor(struct bytes rest, const char *data, size_t n, struct output *output) {
    struct field field;
    int malformed = 0;
    while (field_take(&rest, &field, &malformed) && !malformed) {
        if (field.number != TENSOR_DATA_LOCATION && field.number != TENSOR_EXTERNAL_DATA) {
            output_add(output, field.whole.data, field.whole.n);
        }
    }
    output_add_bytes(output, TENSOR_RAW_DATA, data, n);
}

/* `output`: NULL, or where the tensor goes with its data stored within. */
static sluice_status tensor_visit(struct walk *walk, struct bytes tensor, int is_inner,
                                  struct output *output) {
    struct external_ref ref;
    sluice_status status = SLUICE_OK;
    walk->malformed = walk->malformed || !tensor_read(tensor, &ref);
    if (walk->malformed || !ref.location.data) {
        if (output) {
            output_add(output, tensor.data, tensor.n);
        }
        return SLUICE_OK;
    }
    const struct external_file *file = external_file_get(walk, ref.location, &status);
    if (!file) {
        return status;
    }
    size_t size = file->file.n_bytes;
    if (ref.offset > size || (ref.has_length && ref.length > size - ref.offset)) {
        return error_set(walk->error, SLUICE_INVALID_ARGUMENT,
                         "external data \"%.200s\": the file has %zu bytes, fewer than the model "
                         "needs",
                         file->location, size);
    }
    walk->has_inner = walk->has_inner || is_inner;
    if (output && is_inner) {
        size_t n = ref.has_length ? (size_t)ref.length : size - (size_t)ref.offset;
        add_tensor(tensor, file->file.data + ref.offset, n, output);
    } else if (output) {
        output_add(output, tensor.data, tensor.n);
    }
    return SLUICE_OK;
}

static enum kind kind_of(enum kind parent, const struct field *field) {
    for (size_t i = 0; i < sizeof(children) / sizeof(children[0]); i++) {
        if (children[i].parent == parent && children[i].number == field->number &&
            field->wire_type == WIRE_BYTES) {
            return children[i].kind;
        }
    }
    return KINDS;
}

/* Visits the tensors of a message. `output`: NULL, or where the message goes, with its external
 * data stored within except that of the main graph's initializers (which are at depth 1). */
static sluice_status message_visit(struct walk *walk, enum kind kind, struct bytes rest, int depth,
                                   struct output *output) {
    struct field field;
    sluice_status status = SLUICE_OK;
    walk->malformed = walk->malformed || depth > MAX_DEPTH;
    while (status == SLUICE_OK && !walk->malformed && field_take(&rest, &field, &walk->malformed) &&
           !walk->malformed) {
        enum kind inner = kind_of(kind, &field);
        if (inner == KINDS) {
            if (output) {
                output_add(output, field.whole.data, field.whole.n);
            }
            continue;
        }
        struct output message = {0};
        struct output *into = output ? &message : NULL;
        status = inner == TENSOR ? tensor_visit(walk, field.bytes, depth != 1, into)
                                 : message_visit(walk, inner, field.bytes, depth + 1, into);
        if (output) {
            output_add_bytes(output, field.number, message.data, message.n);
            output->failed = output->failed || message.failed;
        }
        free(message.data);
    }
    return status;
}

static sluice_status model_rewrite(struct walk *walk, struct bytes model) {
    struct output output = {0};
    sluice_status status = message_visit(walk, MODEL, model, 0, &output);
    walk->external->model = (struct file){output.data, output.n};
    if (status == SLUICE_OK && output.failed) {
        return error_no_memory(walk->error, "external data");
    }
    if (status == SLUICE_OK && output.n > INT_MAX) {
        return error_set(walk->error, SLUICE_UNSUPPORTED,
                         "the model has more than 2 GiB of external data in subgraphs or "
                         "attributes; store these weights as initializers of the main graph");
    }
    return status;
}

static char *directory_of(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
}

sluice_status external_read(struct external *external, const char *path, sluice_error *error) {
    struct file file;
    *external = (struct external){.directory = directory_of(path)};
    if (!external->directory) {
        return error_no_memory(error, "the model's path");
    }
    sluice_status status = file_read(&file, path, NULL, error);
    struct bytes model = {file.data, file.n_bytes};
    struct walk walk = {.external = external, .error = error};
    if (status == SLUICE_OK) {
        status = message_visit(&walk, MODEL, model, 0, NULL);
    }
    if (status == SLUICE_OK && walk.has_inner && !walk.malformed) {
        status = model_rewrite(&walk, model);
    }
    free(file.data);
    return status;
}

void external_fini(struct external *external) {
    for (size_t i = 0; i < external->n_files; i++) {
        free(external->files[i].location);
        free(external->files[i].file.data);
    }
    free(external->files);
    free(external->model.data);
    free(external->directory);
    *external = (struct external){0};
}
