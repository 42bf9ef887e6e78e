/* Walks the protobuf messages of an ONNX file (onnx.proto): the nodes of the main graph, and the
 * names of its inputs and initializers; weights are skipped without being read. What the walk does
 * not know makes the answer "no". */
#include "common/onnx_graph.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPERATOR_BYTES = 32, SEEK_MIN_BYTES = 8192 };
enum wire_type { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

/* ---- operators ------------------------------------------------------------------------------- */

/* Of an operator: which of its inputs must have a known value. A value is known when it is constant
 * or computed from constants and shapes: it is the same in all executions with the same shapes. */
#define INPUT(i) (UINT32_C(1) << (i))
#define ALL UINT32_C(0x3fffffff)
#define OUTPUTS_KNOWN (UINT32_C(1) << 30) /* also when the inputs are not: Shape */
#define OUTPUTS_VARY (UINT32_C(1) << 31)  /* also when the inputs are known: random */

struct op {
    const char *name;
    uint32_t mask;
};

/* ai.onnx, sorted. Loops, branches, sequences, optional values and operators on strings are left
 * out, and those whose time depends on values of their inputs. */
static const struct op onnx_ops[] = {
    {"Abs", 0},
    {"Acos", 0},
    {"Acosh", 0},
    {"Add", 0},
    {"AffineGrid", ALL & ~INPUT(0)},
    {"And", 0},
    {"ArgMax", 0},
    {"ArgMin", 0},
    {"Asin", 0},
    {"Asinh", 0},
    {"Atan", 0},
    {"Atanh", 0},
    {"Attention", INPUT(6)},
    {"AveragePool", 0},
    {"BatchNormalization", 0},
    {"BitCast", 0},
    {"BitShift", 0},
    {"BitwiseAnd", 0},
    {"BitwiseNot", 0},
    {"BitwiseOr", 0},
    {"BitwiseXor", 0},
    {"BlackmanWindow", ALL},
    {"Cast", 0},
    {"CastLike", 0},
    {"Ceil", 0},
    {"Celu", 0},
    {"CenterCropPad", ALL & ~INPUT(0)},
    {"Clip", 0},
    {"Col2Im", ALL & ~INPUT(0)},
    {"Compress", INPUT(1)},
    {"Concat", 0},
    {"Constant", 0},
    {"ConstantOfShape", ALL},
    {"Conv", 0},
    {"ConvInteger", 0},
    {"ConvTranspose", 0},
    {"Cos", 0},
    {"Cosh", 0},
    {"CumProd", 0},
    {"CumSum", 0},
    {"DFT", ALL & ~INPUT(0)},
    {"DeformConv", 0},
    {"DepthToSpace", 0},
    {"DequantizeLinear", 0},
    {"Det", 0},
    {"Div", 0},
    {"Dropout", INPUT(1) | INPUT(2) | OUTPUTS_VARY},
    {"DynamicQuantizeLinear", 0},
    {"Einsum", 0},
    {"Elu", 0},
    {"Equal", 0},
    {"Erf", 0},
    {"Exp", 0},
    {"Expand", ALL & ~INPUT(0)},
    {"EyeLike", 0},
    {"Flatten", 0},
    {"Floor", 0},
    {"GRU", INPUT(4)},
    {"Gather", 0},
    {"GatherElements", 0},
    {"GatherND", 0},
    {"Gelu", 0},
    {"Gemm", 0},
    {"GlobalAveragePool", 0},
    {"GlobalLpPool", 0},
    {"GlobalMaxPool", 0},
    {"Greater", 0},
    {"GreaterOrEqual", 0},
    {"GridSample", 0},
    {"GroupNormalization", 0},
    {"HammingWindow", ALL},
    {"HannWindow", ALL},
    {"HardSigmoid", 0},
    {"HardSwish", 0},
    {"Hardmax", 0},
    {"Identity", 0},
    {"InstanceNormalization", 0},
    {"IsInf", 0},
    {"IsNaN", 0},
    {"LRN", 0},
    {"LSTM", INPUT(4)},
    {"LayerNormalization", 0},
    {"LeakyRelu", 0},
    {"Less", 0},
    {"LessOrEqual", 0},
    {"Log", 0},
    {"LogSoftmax", 0},
    {"LpNormalization", 0},
    {"LpPool", 0},
    {"MatMul", 0},
    {"MatMulInteger", 0},
    {"Max", 0},
    {"MaxPool", 0},
    {"MaxUnpool", INPUT(2)},
    {"Mean", 0},
    {"MeanVarianceNormalization", 0},
    {"MelWeightMatrix", ALL},
    {"Min", 0},
    {"Mish", 0},
    {"Mod", 0},
    {"Mul", 0},
    {"Neg", 0},
    {"NegativeLogLikelihoodLoss", 0},
    {"NonZero", ALL},
    {"Not", 0},
    {"OneHot", INPUT(1)},
    {"Or", 0},
    {"PRelu", 0},
    {"Pad", INPUT(1) | INPUT(3)},
    {"Pow", 0},
    {"QLinearConv", 0},
    {"QLinearMatMul", 0},
    {"QuantizeLinear", 0},
    {"RMSNormalization", 0},
    {"RNN", INPUT(4)},
    {"Range", ALL},
    {"Reciprocal", 0},
    {"ReduceL1", ALL & ~INPUT(0)},
    {"ReduceL2", ALL & ~INPUT(0)},
    {"ReduceLogSum", ALL & ~INPUT(0)},
    {"ReduceLogSumExp", ALL & ~INPUT(0)},
    {"ReduceMax", ALL & ~INPUT(0)},
    {"ReduceMean", ALL & ~INPUT(0)},
    {"ReduceMin", ALL & ~INPUT(0)},
    {"ReduceProd", ALL & ~INPUT(0)},
    {"ReduceSum", ALL & ~INPUT(0)},
    {"ReduceSumSquare", ALL & ~INPUT(0)},
    {"Relu", 0},
    {"Reshape", ALL & ~INPUT(0)},
    {"Resize", ALL & ~INPUT(0)},
    {"ReverseSequence", 0},
    {"RotaryEmbedding", 0},
    {"Round", 0},
    {"STFT", ALL & ~INPUT(0)},
    {"Scatter", 0},
    {"ScatterElements", 0},
    {"ScatterND", 0},
    {"Selu", 0},
    {"Shape", OUTPUTS_KNOWN},
    {"Shrink", 0},
    {"Sigmoid", 0},
    {"Sign", 0},
    {"Sin", 0},
    {"Sinh", 0},
    {"Size", OUTPUTS_KNOWN},
    {"Slice", ALL & ~INPUT(0)},
    {"Softmax", 0},
    {"SoftmaxCrossEntropyLoss", 0},
    {"Softplus", 0},
    {"Softsign", 0},
    {"SpaceToDepth", 0},
    {"Split", ALL & ~INPUT(0)},
    {"Sqrt", 0},
    {"Squeeze", ALL & ~INPUT(0)},
    {"Sub", 0},
    {"Sum", 0},
    {"Swish", 0},
    {"Tan", 0},
    {"Tanh", 0},
    {"ThresholdedRelu", 0},
    {"Tile", ALL & ~INPUT(0)},
    {"TopK", ALL & ~INPUT(0)},
    {"Transpose", 0},
    {"Trilu", 0},
    {"Unique", ALL},
    {"Unsqueeze", ALL & ~INPUT(0)},
    {"Upsample", ALL & ~INPUT(0)},
    {"Where", 0},
    {"Xor", 0},
};

/* ai.onnx.ml, sorted. A tree is walked from its root to a leaf: the model's depth is the bound. */
static const struct op ml_ops[] = {
    {"ArrayFeatureExtractor", 0}, {"Binarizer", 0},
    {"FeatureVectorizer", 0},     {"Imputer", 0},
    {"LabelEncoder", 0},          {"LinearClassifier", 0},
    {"LinearRegressor", 0},       {"Normalizer", 0},
    {"OneHotEncoder", 0},         {"SVMClassifier", 0},
    {"SVMRegressor", 0},          {"Scaler", 0},
    {"TreeEnsemble", 0},          {"TreeEnsembleClassifier", 0},
    {"TreeEnsembleRegressor", 0},
};

static int compare_op(const void *name, const void *row) {
    return strcmp(name, ((const struct op *)row)->name);
}

/* Returns: NULL when the operator is not known. */
static const struct op *op_find(const char *domain, const char *name) {
    if (strcmp(domain, "ai.onnx.ml") == 0) {
        return bsearch(name, ml_ops, sizeof(ml_ops) / sizeof(ml_ops[0]), sizeof(ml_ops[0]),
                       compare_op);
    }
    if (domain[0] != '\0' && strcmp(domain, "ai.onnx") != 0) {
        return NULL;
    }
    return bsearch(name, onnx_ops, sizeof(onnx_ops) / sizeof(onnx_ops[0]), sizeof(onnx_ops[0]),
                   compare_op);
}

/* ---- sets of tensors ------------------------------------------------------------------------- */

/* Hashes of names: an open-addressing table, at most half full. */
struct name_set {
    uint64_t *hashes; /* 0: free */
    size_t n, n_slots;
};

/* Returns: the slot of the hash, or the free one where it belongs. */
static uint64_t *slot_find(const struct name_set *set, uint64_t hash) {
    size_t i = (size_t)hash & (set->n_slots - 1);
    while (set->hashes[i] != 0 && set->hashes[i] != hash) {
        i = (i + 1) & (set->n_slots - 1);
    }
    return &set->hashes[i];
}

static int set_has(const struct name_set *set, uint64_t hash) {
    return set->n_slots > 0 && *slot_find(set, hash) == hash;
}

static int set_grow(struct name_set *set) {
    struct name_set grown = {.n = set->n, .n_slots = set->n_slots > 0 ? 2 * set->n_slots : 64};
    grown.hashes = calloc(grown.n_slots, sizeof(*grown.hashes));
    if (!grown.hashes) {
        return 0;
    }
    for (size_t i = 0; i < set->n_slots; i++) {
        if (set->hashes[i] != 0) {
            *slot_find(&grown, set->hashes[i]) = set->hashes[i];
        }
    }
    free(set->hashes);
    *set = grown;
    return 1;
}

/* Returns: 0 when out of memory. */
static int set_add(struct name_set *set, uint64_t hash) {
    if (2 * (set->n + 1) > set->n_slots && !set_grow(set)) {
        return 0;
    }
    uint64_t *slot = slot_find(set, hash);
    set->n += *slot == 0;
    *slot = hash;
    return 1;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* A message of the file: `left` bytes of it remain. */
struct reader {
    FILE *file;
    uint64_t left;
};

struct field {
    uint64_t number;
    unsigned wire_type;
    uint64_t n_bytes; /* WIRE_BYTES: they follow */
};

static int read_byte(struct reader *reader) {
    int byte = reader->left > 0 ? getc(reader->file) : EOF;
    reader->left -= byte != EOF;
    return byte;
}

/* Returns: 0 at the end of the message or for a number of more than 64 bits. */
static int read_varint(struct reader *reader, uint64_t *value) {
    *value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        int byte = read_byte(reader);
        if (byte == EOF) {
            return 0;
        }
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            return 1;
        }
    }
    return 0;
}

/* Returns: 0 when the message is shorter. */
static int skip(struct reader *reader, uint64_t n_bytes) {
    if (n_bytes > reader->left) {
        return 0;
    }
    if (n_bytes >= SEEK_MIN_BYTES) { /* a seek drops what the stream has buffered */
        reader->left -= n_bytes;
        return fseeko(reader->file, (off_t)n_bytes, SEEK_CUR) == 0;
    }
    while (n_bytes > 0 && read_byte(reader) != EOF) {
        n_bytes--;
    }
    return n_bytes == 0;
}

/* Reads a field; the bytes of WIRE_BYTES are left to the caller. Returns: 0 when it is malformed,
 * or of a kind that onnx.proto does not use. */
static int read_field(struct reader *reader, struct field *field) {
    uint64_t key, value;
    if (!read_varint(reader, &key)) {
        return 0;
    }
    *field = (struct field){.number = key >> 3, .wire_type = (unsigned)(key & 7)};
    switch (field->wire_type) {
    case WIRE_VARINT:
        return read_varint(reader, &value);
    case WIRE_FIXED64:
        return skip(reader, 8);
    case WIRE_BYTES:
        return read_varint(reader, &field->n_bytes) && field->n_bytes <= reader->left;
    case WIRE_FIXED32:
        return skip(reader, 4);
    default:
        return 0;
    }
}

/* The message in a field of WIRE_BYTES, which the caller reads to its end. */
static struct reader enter(struct reader *reader, const struct field *field) {
    reader->left -= field->n_bytes;
    return (struct reader){reader->file, field->n_bytes};
}

/* FNV-1a. Returns: 0 when the file is shorter. */
static int read_hash(struct reader *reader, const struct field *field, uint64_t *hash) {
    *hash = UINT64_C(0xcbf29ce484222325);
    for (uint64_t i = 0; i < field->n_bytes; i++) {
        int byte = read_byte(reader);
        if (byte == EOF) {
            return 0;
        }
        *hash = (*hash ^ (uint64_t)byte) * UINT64_C(0x100000001b3);
    }
    *hash += *hash == 0;
    return 1;
}

/* Reads the field once into `text`. Returns: 0 when it is there twice, longer, or has a NUL. */
static int read_text(struct reader *reader, const struct field *field, char text[OPERATOR_BYTES]) {
    size_t n = (size_t)field->n_bytes;
    if (text[0] != '\0' || field->n_bytes >= OPERATOR_BYTES) {
        return 0;
    }
    reader->left -= n;
    return fread(text, 1, n, reader->file) == n && memchr(text, '\0', n) == NULL;
}

/* ---- the model ------------------------------------------------------------------------------- */

enum { MODEL_GRAPH = 7, MODEL_FUNCTIONS = 25 };
enum { GRAPH_NODE = 1, GRAPH_INITIALIZER = 5, GRAPH_INPUT = 11, GRAPH_SPARSE_INITIALIZER = 15 };
enum { NODE_INPUT = 1, NODE_OUTPUT = 2, NODE_OP_TYPE = 4, NODE_ATTRIBUTE = 5, NODE_DOMAIN = 7 };
enum { ATTRIBUTE_GRAPH = 6, ATTRIBUTE_GRAPHS = 11 };
enum { TENSOR_NAME = 8, VALUE_INFO_NAME = 1, SPARSE_TENSOR_VALUES = 1 };

/* The file has the nodes before the initializers, so it is walked twice. */
struct walk {
    int reads_nodes; /* the second time */
    struct name_set inputs, known;
};

static int is_known(const struct walk *walk, uint64_t hash) {
    return set_has(&walk->known, hash) && !set_has(&walk->inputs, hash);
}

/* Adds the name of a TensorProto, ValueInfoProto. */
static int read_named(struct reader reader, uint64_t number, struct name_set *set) {
    struct field field;
    uint64_t hash;
    while (reader.left > 0) {
        if (!read_field(&reader, &field)) {
            return 0;
        }
        if (field.wire_type != WIRE_BYTES) {
            continue;
        }
        if (field.number == number ? !read_hash(&reader, &field, &hash) || !set_add(set, hash)
                                   : !skip(&reader, field.n_bytes)) {
            return 0;
        }
    }
    return 1;
}

static int read_sparse(struct reader reader, struct name_set *set) {
    struct field field;
    while (reader.left > 0) {
        if (!read_field(&reader, &field)) {
            return 0;
        }
        if (field.wire_type == WIRE_BYTES &&
            !(field.number == SPARSE_TENSOR_VALUES
                  ? read_named(enter(&reader, &field), TENSOR_NAME, set)
                  : skip(&reader, field.n_bytes))) {
            return 0;
        }
    }
    return 1;
}

/* Returns: 0 when the attribute is a subgraph. */
static int read_attribute(struct reader reader) {
    struct field field;
    while (reader.left > 0) {
        if (!read_field(&reader, &field) || field.number == ATTRIBUTE_GRAPH ||
            field.number == ATTRIBUTE_GRAPHS ||
            (field.wire_type == WIRE_BYTES && !skip(&reader, field.n_bytes))) {
            return 0;
        }
    }
    return 1;
}

enum { NODE_OUTPUTS = 64 };

struct node {
    char domain[OPERATOR_BYTES], op_type[OPERATOR_BYTES];
    uint64_t outputs[NODE_OUTPUTS];
    size_t n_inputs, n_outputs;
    uint32_t unknown; /* a bit for each input; the last one for it and all after it */
};

static int read_node_field(struct walk *walk, struct reader *reader, const struct field *field,
                           struct node *node) {
    enum { LAST = 29 };
    uint64_t hash;
    switch (field->number) {
    case NODE_INPUT:
        if (!read_hash(reader, field, &hash)) {
            return 0;
        }
        if (field->n_bytes > 0 && !is_known(walk, hash)) { /* an input may be left out */
            node->unknown |= INPUT(node->n_inputs < LAST ? node->n_inputs : LAST);
        }
        node->n_inputs++;
        return 1;
    case NODE_OUTPUT:
        return node->n_outputs < NODE_OUTPUTS &&
               read_hash(reader, field, &node->outputs[node->n_outputs++]);
    case NODE_OP_TYPE:
        return read_text(reader, field, node->op_type);
    case NODE_DOMAIN:
        return read_text(reader, field, node->domain);
    case NODE_ATTRIBUTE:
        return read_attribute(enter(reader, field));
    default:
        return skip(reader, field->n_bytes);
    }
}

/* Returns: 0 when the time of the node does not follow from the shapes of its inputs, or the shapes
 * of its outputs do not. Nodes are in the order of execution; where they are not, a value that is
 * known counts as unknown. */
static int read_node(struct walk *walk, struct reader reader) {
    struct node node = {.domain = ""};
    struct field field;
    while (reader.left > 0) {
        if (!read_field(&reader, &field) ||
            (field.wire_type == WIRE_BYTES && !read_node_field(walk, &reader, &field, &node))) {
            return 0;
        }
    }
    const struct op *op = op_find(node.domain, node.op_type);
    if (!op || (node.unknown & op->mask & ALL) != 0) {
        return 0;
    }
    int known =
        (op->mask & OUTPUTS_KNOWN) != 0 || (node.unknown == 0 && (op->mask & OUTPUTS_VARY) == 0);
    for (size_t i = 0; known && i < node.n_outputs; i++) {
        if (!set_add(&walk->known, node.outputs[i])) {
            return 0;
        }
    }
    return 1;
}

static int read_graph_field(struct walk *walk, struct reader *reader, const struct field *field) {
    if (field->number == GRAPH_NODE && walk->reads_nodes) {
        return read_node(walk, enter(reader, field));
    }
    if (!walk->reads_nodes) {
        switch (field->number) {
        case GRAPH_INITIALIZER:
            return read_named(enter(reader, field), TENSOR_NAME, &walk->known);
        case GRAPH_SPARSE_INITIALIZER:
            return read_sparse(enter(reader, field), &walk->known);
        case GRAPH_INPUT: /* an initializer of this name is a default only */
            return read_named(enter(reader, field), VALUE_INFO_NAME, &walk->inputs);
        default:
            break;
        }
    }
    return skip(reader, field->n_bytes);
}

static int read_graph(struct walk *walk, struct reader reader) {
    struct field field;
    while (reader.left > 0) {
        if (!read_field(&reader, &field) ||
            (field.wire_type == WIRE_BYTES && !read_graph_field(walk, &reader, &field))) {
            return 0;
        }
    }
    return 1;
}

static int read_model(struct walk *walk, struct reader reader) {
    struct field field;
    while (reader.left > 0) {
        if (!read_field(&reader, &field) || field.number == MODEL_FUNCTIONS) {
            return 0;
        }
        if (field.wire_type == WIRE_BYTES &&
            !(field.number == MODEL_GRAPH ? read_graph(walk, enter(&reader, &field))
                                          : skip(&reader, field.n_bytes))) {
            return 0;
        }
    }
    return 1;
}

/* Closes the file. */
static int file_follows_shapes(FILE *file) {
    struct walk walk = {0};
    int follows = 0;
    off_t n_bytes = file && fseeko(file, 0, SEEK_END) == 0 ? ftello(file) : 0;
    if (n_bytes > 0) {
        rewind(file);
        follows = read_model(&walk, (struct reader){file, (uint64_t)n_bytes});
    }
    if (follows) {
        rewind(file);
        walk.reads_nodes = 1;
        follows = read_model(&walk, (struct reader){file, (uint64_t)n_bytes});
    }
    if (file) {
        (void)fclose(file);
    }
    free(walk.inputs.hashes);
    free(walk.known.hashes);
    return follows;
}

int onnx_graph_follows_shapes(char *data, size_t n_bytes) {
    return file_follows_shapes(n_bytes > 0 ? fmemopen(data, n_bytes, "rb") : NULL);
}
