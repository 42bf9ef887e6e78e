/* The main graph is read twice: for the ZipMap nodes, and for what uses their outputs. Then the
 * nodes and types that change are listed, and the model is written anew. */
#include "common/onnx_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"

/* Numbers of fields. */
enum { MODEL_OPSET_IMPORT = 8, OPSET_DOMAIN = 1 };
enum { GRAPH_NODE = 1, GRAPH_INPUT = 11, GRAPH_OUTPUT = 12, GRAPH_VALUE_INFO = 13 };
enum { NODE_INPUT = 1, NODE_OUTPUT = 2, NODE_NAME = 3, NODE_OP_TYPE = 4, NODE_ATTRIBUTE = 5 };
enum { NODE_DOMAIN = 7 };
enum { ATTRIBUTE_NAME = 1, ATTRIBUTE_GRAPH = 6, ATTRIBUTE_GRAPHS = 11 };
enum { ATTRIBUTE_INTS = 8, ATTRIBUTE_STRINGS = 9 };
enum { VALUE_NAME = 1, VALUE_TYPE = 2 };
enum { TYPE_TENSOR = 1, TENSOR_ELEM_TYPE = 1, TENSOR_SHAPE = 2, SHAPE_DIM = 1 };
enum { DIM_VALUE = 1, DIM_PARAM = 2, ELEM_FLOAT = 1 };

enum {
    MAX_NAMES = 64,    /* of outputs of ZipMap */
    MAX_CHANGES = 256, /* of nodes and types */
    IDENTITY_OPSET = 13,
};

/* The output of a ZipMap. */
struct zipped {
    struct bytes name;
    uint64_t n_classes;
    int is_output; /* of the graph */
};

/* A field of the graph that is written anew; data NULL: it is left out. */
struct change {
    struct bytes old;
    char *data;
    size_t n;
};

struct zipmap {
    struct zipped names[MAX_NAMES];
    size_t n_names;
    struct change changes[MAX_CHANGES];
    size_t n_changes;
    struct bytes batch; /* the name of the first dimension of the graph's first input */
    int has_input;
    int gives_up; /* the maps are used within the graph, or there is too much to change */
    int no_memory;
};

/* ---- reading --------------------------------------------------------------------------------- */

/* Takes the next field of bytes. Other fields are skipped. */
static int bytes_take(struct bytes *rest, struct field *field) {
    const char *why;
    while (field_take(rest, field, &why) > 0) {
        if (field->wire_type == WIRE_BYTES) {
            return 1;
        }
    }
    return 0;
}

/* Returns: the last field of that number, as protobuf takes it; data NULL: there is none. */
static struct bytes member_of(struct bytes message, uint32_t number) {
    struct bytes found = {NULL, 0};
    struct field field;
    while (bytes_take(&message, &field)) {
        if (field.number == number) {
            found = field.bytes;
        }
    }
    return found;
}

static int is_zipmap(struct bytes node) {
    struct bytes op_type = member_of(node, NODE_OP_TYPE), domain = member_of(node, NODE_DOMAIN);
    return op_type.data && bytes_equal(op_type, "ZipMap") && domain.data &&
           bytes_equal(domain, "ai.onnx.ml");
}

static struct zipped *zipped_find(struct zipmap *self, struct bytes name) {
    for (size_t i = 0; i < self->n_names && name.n > 0; i++) {
        struct zipped *zipped = &self->names[i];
        if (zipped->name.n == name.n && memcmp(zipped->name.data, name.data, name.n) == 0) {
            return zipped;
        }
    }
    return NULL;
}

static void zipped_add(struct zipmap *self, struct bytes name, uint64_t n_classes) {
    if (self->n_names == MAX_NAMES || name.n == 0 || n_classes == 0) {
        self->gives_up = 1;
        return;
    }
    self->names[self->n_names++] = (struct zipped){name, n_classes, 0};
}

static uint64_t count_labels(struct bytes attribute, uint32_t number) {
    struct field field;
    const char *why;
    uint64_t n = 0, value;
    while (field_take(&attribute, &field, &why) > 0) {
        if (field.number != number) {
            continue;
        }
        if (number == ATTRIBUTE_INTS && field.wire_type == WIRE_BYTES) { /* packed */
            while (varint_take(&field.bytes, &value)) {
                n++;
            }
        } else {
            n++;
        }
    }
    return n;
}

/* Returns: the number of the labels, which are integers or strings; 0: unknown. */
static uint64_t count_classes(struct bytes node) {
    struct field field;
    uint64_t n = 0;
    while (bytes_take(&node, &field)) {
        if (field.number != NODE_ATTRIBUTE) {
            continue;
        }
        struct bytes name = member_of(field.bytes, ATTRIBUTE_NAME);
        if (bytes_equal(name, "classlabels_int64s")) {
            n += count_labels(field.bytes, ATTRIBUTE_INTS);
        } else if (bytes_equal(name, "classlabels_strings")) {
            n += count_labels(field.bytes, ATTRIBUTE_STRINGS);
        }
    }
    return n;
}

/* ---- names ----------------------------------------------------------------------------------- */

/* Gives up when a node, or one within the graphs of its attributes, uses a zipped name. onnx_check
 * has limited the depth. */
static void check_node(struct zipmap *self, struct bytes message, enum onnx_message kind) {
    struct field field;
    while (bytes_take(&message, &field) && !self->gives_up) {
        if (kind == ONNX_NODE && field.number == NODE_INPUT) {
            self->gives_up = zipped_find(self, field.bytes) != NULL;
        } else if (kind == ONNX_NODE && field.number == NODE_ATTRIBUTE) {
            check_node(self, field.bytes, ONNX_ATTRIBUTE);
        } else if (kind == ONNX_ATTRIBUTE &&
                   (field.number == ATTRIBUTE_GRAPH || field.number == ATTRIBUTE_GRAPHS)) {
            check_node(self, field.bytes, ONNX_GRAPH);
        } else if (kind == ONNX_GRAPH && field.number == GRAPH_NODE) {
            check_node(self, field.bytes, ONNX_NODE);
        } else if (kind == ONNX_GRAPH && field.number == GRAPH_OUTPUT) {
            self->gives_up = zipped_find(self, member_of(field.bytes, VALUE_NAME)) != NULL;
        }
    }
}

/* The name of the first dimension of a value that is a tensor. */
static struct bytes batch_name(struct bytes value) {
    struct bytes shape =
        member_of(member_of(member_of(value, VALUE_TYPE), TYPE_TENSOR), TENSOR_SHAPE);
    struct field field;
    if (bytes_take(&shape, &field) && field.number == SHAPE_DIM) {
        return member_of(field.bytes, DIM_PARAM);
    }
    return (struct bytes){NULL, 0};
}

/* Returns: whether there is something to change. */
static int read_graph(struct zipmap *self, struct bytes graph) {
    struct bytes rest = graph;
    struct field field;
    size_t n_outputs = 0;
    while (bytes_take(&rest, &field) && !self->gives_up) {
        if (field.number == GRAPH_NODE && is_zipmap(field.bytes)) {
            zipped_add(self, member_of(field.bytes, NODE_OUTPUT), count_classes(field.bytes));
        } else if (field.number == GRAPH_INPUT && !self->has_input) {
            self->has_input = 1;
            self->batch = batch_name(field.bytes);
        }
    }
    for (rest = graph; self->n_names > 0 && !self->gives_up && bytes_take(&rest, &field);) {
        if (field.number == GRAPH_NODE) {
            check_node(self, field.bytes, ONNX_NODE);
        }
        struct zipped *zipped = field.number == GRAPH_OUTPUT
                                    ? zipped_find(self, member_of(field.bytes, VALUE_NAME))
                                    : NULL;
        if (zipped) {
            zipped->is_output = 1;
            n_outputs++;
        }
    }
    return n_outputs > 0 && !self->gives_up;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* A message that a field contains, written by `print`. */
struct content {
    void (*print)(struct writer *writer, const struct content *content);
    const struct zipmap *self;
    struct bytes old; /* the node or the value before */
    uint64_t n_classes;
};

static void put_message(struct writer *writer, uint32_t number, const struct content *content,
                        void (*print)(struct writer *writer, const struct content *content)) {
    struct writer message = {0};
    print(&message, content);
    writer_add_message(writer, number, &message);
}

static void print_batch_dim(struct writer *writer, const struct content *content) {
    if (content->self->batch.n > 0) {
        writer_add_bytes(writer, DIM_PARAM, content->self->batch);
    }
}

static void print_class_dim(struct writer *writer, const struct content *content) {
    writer_add_number(writer, DIM_VALUE, content->n_classes);
}

static void print_shape(struct writer *writer, const struct content *content) {
    put_message(writer, SHAPE_DIM, content, print_batch_dim);
    put_message(writer, SHAPE_DIM, content, print_class_dim);
}

static void print_tensor(struct writer *writer, const struct content *content) {
    writer_add_number(writer, TENSOR_ELEM_TYPE, ELEM_FLOAT);
    put_message(writer, TENSOR_SHAPE, content, print_shape);
}

static void print_type(struct writer *writer, const struct content *content) {
    put_message(writer, TYPE_TENSOR, content, print_tensor);
}

static void print_value(struct writer *writer, const struct content *content) {
    writer_add_bytes(writer, VALUE_NAME, member_of(content->old, VALUE_NAME));
    put_message(writer, VALUE_TYPE, content, print_type);
}

static void print_identity(struct writer *writer, const struct content *content) {
    writer_add_bytes(writer, NODE_INPUT, member_of(content->old, NODE_INPUT));
    writer_add_bytes(writer, NODE_OUTPUT, member_of(content->old, NODE_OUTPUT));
    writer_add_bytes(writer, NODE_NAME, member_of(content->old, NODE_NAME));
    writer_add_bytes(writer, NODE_OP_TYPE, (struct bytes){"Identity", strlen("Identity")});
}

/* ---- changes --------------------------------------------------------------------------------- */

/* `print` NULL: the field is left out. */
static void change_add(struct zipmap *self, const struct field *field, uint64_t n_classes,
                       void (*print)(struct writer *writer, const struct content *content)) {
    const struct content content = {
        .self = self, .old = field->bytes, .n_classes = n_classes, .print = print};
    struct writer writer = {0};
    if (self->n_changes == MAX_CHANGES) {
        self->gives_up = 1;
        return;
    }
    struct change *change = &self->changes[self->n_changes++];
    *change = (struct change){.old = field->whole};
    if (!print) {
        return;
    }
    put_message(&writer, field->number, &content, print);
    self->no_memory = self->no_memory || writer.no_memory || writer.too_large;
    change->data = writer.data;
    change->n = writer.n;
}

/* The fields of the graph that change, in their order. */
static void list_changes(struct zipmap *self, struct bytes graph) {
    struct field field;
    while (bytes_take(&graph, &field) && !self->gives_up && !self->no_memory) {
        const struct zipped *zipped =
            field.number == GRAPH_OUTPUT || field.number == GRAPH_VALUE_INFO
                ? zipped_find(self, member_of(field.bytes, VALUE_NAME))
                : NULL;
        if (field.number == GRAPH_NODE && is_zipmap(field.bytes)) {
            change_add(self, &field, 0, print_identity);
        } else if (zipped && field.number == GRAPH_OUTPUT) {
            change_add(self, &field, zipped->n_classes, print_value);
        } else if (zipped) {
            change_add(self, &field, 0, NULL); /* its type is inferred */
        }
    }
}

/* Writes the graph, whose fields in the list of changes are replaced. */
static void put_graph(struct writer *writer, const struct zipmap *self, struct bytes old) {
    const char *at = old.data;
    size_t n = old.n;
    for (size_t i = 0; i < self->n_changes; i++) {
        n += self->changes[i].n - self->changes[i].old.n;
    }
    writer_add_head(writer, ONNX_MODEL_GRAPH, n);
    for (size_t i = 0; i < self->n_changes; i++) {
        const struct change *change = &self->changes[i];
        writer_add(writer, at, (size_t)(change->old.data - at));
        writer_add(writer, change->data, change->n);
        at = change->old.data + change->old.n;
    }
    writer_add(writer, at, (size_t)(old.data + old.n - at));
}

/* Identity is of the default domain, which a model of ai.onnx.ml alone does not import. */
static int imports_default_domain(struct bytes model) {
    struct field field;
    while (bytes_take(&model, &field)) {
        struct bytes domain = member_of(field.bytes, OPSET_DOMAIN);
        if (field.number == MODEL_OPSET_IMPORT &&
            (domain.n == 0 || bytes_equal(domain, "ai.onnx"))) {
            return 1;
        }
    }
    return 0;
}

static void print_opset(struct writer *writer, const struct content *content) {
    enum { OPSET_VERSION = 2 };
    (void)content;
    writer_add_number(writer, OPSET_VERSION, IDENTITY_OPSET);
}

/* Returns: 0 when out of memory. */
static int model_write(const struct zipmap *self, struct file *model, const struct field *graph) {
    enum { SPARE_BYTES = 4096 }; /* what the changes may add; more is added as well */
    struct bytes old = {model->data, model->n_bytes};
    const char *after = graph->whole.data + graph->whole.n;
    struct writer writer = {0};
    writer_reserve(&writer, old.n + SPARE_BYTES);
    writer_add(&writer, old.data, (size_t)(graph->whole.data - old.data));
    put_graph(&writer, self, graph->bytes);
    writer_add(&writer, after, (size_t)(old.data + old.n - after));
    if (!imports_default_domain(old)) {
        put_message(&writer, MODEL_OPSET_IMPORT, NULL, print_opset);
    }
    if (writer.no_memory || writer.too_large) {
        free(writer.data);
        return 0;
    }
    free(model->data);
    *model = (struct file){writer.data, writer.n};
    return 1;
}

static void print_log_line(const struct zipmap *self, char *text, size_t n_bytes) {
    const struct zipped *first = self->names;
    size_t n = 0;
    for (size_t i = 0; i < self->n_names; i++) {
        first = n == 0 && self->names[i].is_output ? &self->names[i] : first;
        n += (size_t)self->names[i].is_output;
    }
    char others[32] = "";
    if (n > 1) {
        snprintf(others, sizeof(others), ", and %zu more", n - 1);
    }
    snprintf(text, n_bytes,
             "output \"%.*s\" (%" PRIu64 " classes)%s is the tensor of probabilities that the "
             "model's ZipMap turns into maps, which cannot be served",
             (int)(first->name.n < 100 ? first->name.n : 100), first->name.data, first->n_classes,
             others);
}

sluice_status onnx_zipmap_replace(struct file *model, char *text, size_t n_bytes,
                                  sluice_error *error) {
    struct bytes rest = {model->data, model->n_bytes};
    struct field graph = {0};
    int has_graph = 0;
    text[0] = '\0';
    while (!has_graph && bytes_take(&rest, &graph)) {
        has_graph = graph.number == ONNX_MODEL_GRAPH;
    }
    struct zipmap *self = has_graph ? calloc(1, sizeof(*self)) : NULL;
    if (!self) {
        return has_graph ? error_no_memory(error, "the model") : SLUICE_OK;
    }
    int done = 1;
    if (read_graph(self, graph.bytes)) {
        list_changes(self, graph.bytes);
        if (!self->gives_up && !self->no_memory) {
            print_log_line(self, text, n_bytes);
            done = model_write(self, model, &graph);
        }
    }
    int no_memory = self->no_memory || !done;
    for (size_t i = 0; i < self->n_changes; i++) {
        free(self->changes[i].data);
    }
    free(self);
    return no_memory ? error_no_memory(error, "the model without ZipMap") : SLUICE_OK;
}
