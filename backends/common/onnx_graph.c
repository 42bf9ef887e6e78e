/* Walks the protobuf messages of an ONNX file (onnx.proto): the nodes of the main graph, and the
 * names of its inputs and initializers. What the walk does not know makes the answer "no". */
#include "common/onnx_file.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { OPERATOR_BYTES = 32 };

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

/* FNV-1a; never 0. */
static uint64_t hash_of(struct bytes name) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < name.n; i++) {
        hash = (hash ^ (unsigned char)name.data[i]) * UINT64_C(0x100000001b3);
    }
    return hash + (hash == 0);
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

static int is_known(const struct walk *walk, struct bytes name) {
    uint64_t hash = hash_of(name);
    return set_has(&walk->known, hash) && !set_has(&walk->inputs, hash);
}

/* What is done with a field of WIRE_BYTES. Returns: 0 when the model does not follow. */
typedef int (*field_reader)(void *context, uint32_t number, struct bytes bytes);

static int read_fields(struct bytes rest, field_reader read, void *context) {
    struct field field;
    const char *why;
    int taken;
    while ((taken = field_take(&rest, &field, &why)) > 0) {
        if (field.wire_type == WIRE_BYTES && !read(context, field.number, field.bytes)) {
            return 0;
        }
    }
    return taken == 0;
}

/* ---- names ----------------------------------------------------------------------------------- */

/* The name of a TensorProto or ValueInfoProto. */
struct named {
    uint32_t number;
    struct name_set *set;
};

static int read_named_field(void *context, uint32_t number, struct bytes bytes) {
    const struct named *named = context;
    return number != named->number || set_add(named->set, hash_of(bytes));
}

static int read_named(struct bytes message, uint32_t number, struct name_set *set) {
    struct named named = {number, set};
    return read_fields(message, read_named_field, &named);
}

static int read_sparse_field(void *context, uint32_t number, struct bytes bytes) {
    return number != SPARSE_TENSOR_VALUES || read_named(bytes, TENSOR_NAME, context);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

enum { NODE_OUTPUTS = 64 };

struct node {
    const struct walk *walk;
    char domain[OPERATOR_BYTES], op_type[OPERATOR_BYTES];
    uint64_t outputs[NODE_OUTPUTS];
    size_t n_inputs, n_outputs;
    uint32_t unknown; /* a bit for each input; the last one for it and all after it */
};

/* Returns: 0 for a subgraph. */
static int read_attribute_field(void *context, uint32_t number, struct bytes bytes) {
    (void)context, (void)bytes;
    return number != ATTRIBUTE_GRAPH && number != ATTRIBUTE_GRAPHS;
}

/* Returns: 0 when the text is there twice, longer, or has a NUL. */
static int read_text(struct bytes bytes, char text[OPERATOR_BYTES]) {
    if (text[0] != '\0' || bytes.n >= OPERATOR_BYTES || memchr(bytes.data, '\0', bytes.n)) {
        return 0;
    }
    memcpy(text, bytes.data, bytes.n);
    return 1;
}

static int read_node_field(void *context, uint32_t number, struct bytes bytes) {
    enum { LAST = 29 };
    struct node *node = context;
    switch (number) {
    case NODE_INPUT:
        if (bytes.n > 0 && !is_known(node->walk, bytes)) { /* an input may be left out */
            node->unknown |= INPUT(node->n_inputs < LAST ? node->n_inputs : LAST);
        }
        node->n_inputs++;
        return 1;
    case NODE_OUTPUT:
        if (node->n_outputs == NODE_OUTPUTS) {
            return 0;
        }
        node->outputs[node->n_outputs++] = hash_of(bytes);
        return 1;
    case NODE_OP_TYPE:
        return read_text(bytes, node->op_type);
    case NODE_DOMAIN:
        return read_text(bytes, node->domain);
    case NODE_ATTRIBUTE:
        return read_fields(bytes, read_attribute_field, NULL);
    default:
        return 1;
    }
}

/* Returns: 0 when the time of the node does not follow from the shapes of its inputs, or the shapes
 * of its outputs do not. Nodes are in the order of execution; where they are not, a value that is
 * known counts as unknown. */
static int read_node(struct walk *walk, struct bytes message) {
    struct node node = {.walk = walk};
    if (!read_fields(message, read_node_field, &node)) {
        return 0;
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

/* ---- graph and model ------------------------------------------------------------------------- */

static int read_graph_field(void *context, uint32_t number, struct bytes bytes) {
    struct walk *walk = context;
    if (walk->reads_nodes) {
        return number != GRAPH_NODE || read_node(walk, bytes);
    }
    switch (number) {
    case GRAPH_INITIALIZER:
        return read_named(bytes, TENSOR_NAME, &walk->known);
    case GRAPH_SPARSE_INITIALIZER:
        return read_fields(bytes, read_sparse_field, &walk->known);
    case GRAPH_INPUT: /* an initializer of this name is a default only */
        return read_named(bytes, VALUE_INFO_NAME, &walk->inputs);
    default:
        return 1;
    }
}

static int read_model_field(void *context, uint32_t number, struct bytes bytes) {
    return number != MODEL_FUNCTIONS &&
           (number != MODEL_GRAPH || read_fields(bytes, read_graph_field, context));
}

int onnx_graph_follows_shapes(struct bytes model) {
    struct walk walk = {0};
    int follows = model.n > 0 && read_fields(model, read_model_field, &walk);
    walk.reads_nodes = 1;
    follows = follows && read_fields(model, read_model_field, &walk);
    free(walk.inputs.hashes);
    free(walk.known.hashes);
    return follows;
}
