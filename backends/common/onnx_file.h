/* ONNX files: a check that our walks and the library read the same, external data, ZipMap, and
 * whether the operators have times that follow from shapes. */
#ifndef SLUICE_COMMON_ONNX_FILE_H
#define SLUICE_COMMON_ONNX_FILE_H

#include "common/model_file.h"
#include "common/protobuf.h"
#include "sluice/backend.h"

/* ---- messages -------------------------------------------------------------------------------- */

/* Messages, and the leaves that have a type. */
enum onnx_message {
    ONNX_MODEL,
    ONNX_TRAINING,
    ONNX_FUNCTION,
    ONNX_GRAPH,
    ONNX_NODE,
    ONNX_ATTRIBUTE,
    ONNX_SPARSE_TENSOR,
    ONNX_TENSOR,
    ONNX_ENTRY, /* StringStringEntryProto of external data */
    ONNX_MESSAGES,
    ONNX_TEXT = ONNX_MESSAGES, /* a string or bytes */
    ONNX_NUMBER,               /* a varint */
};

enum { ONNX_MAX_DEPTH = 100 /* of messages in messages, as protobuf's own */ };

/* Numbers of fields. */
enum { ONNX_MODEL_GRAPH = 7 };
enum { ONNX_GRAPH_INITIALIZER = 5 };
enum { ONNX_TENSOR_RAW_DATA = 9, ONNX_TENSOR_EXTERNAL_DATA = 13, ONNX_TENSOR_DATA_LOCATION = 14 };
enum { ONNX_ENTRY_KEY = 1, ONNX_ENTRY_VALUE = 2 };

/* A field that is looked into, or whose value is used. */
struct onnx_member {
    enum onnx_message parent;
    uint32_t number;
    enum onnx_message type;
    int repeated;
    const char *name;
};

/* Returns: NULL for a field that is skipped. */
const struct onnx_member *onnx_member_find(enum onnx_message parent, uint32_t number);

/* Checks all messages of the file: fields are well-formed (field_take), have the wire type of their
 * member, and a member that is not repeated is there once: protobuf would merge the pieces of a
 * message. Messages are at most ONNX_MAX_DEPTH deep.
 * Returns: 1: it is well-formed; a walk can ignore errors then; 0: `out` is a sentence with the
 * byte where it is not. */
int onnx_check(struct bytes model, char *out, size_t n_bytes);

/* ---- external data --------------------------------------------------------------------------- */

/* Weights that a model keeps in files of its own. A library would open these files by paths of the
 * model's choice, and map them for as long as the model is served, so that a change of a file would
 * change the answers and its truncation would kill the process. They are checked and read here, and
 * the library gets memory and no path. */
struct onnx_external {
    char *location; /* as the model names it, relative to the model's directory */
    char name[24];  /* as `onnx_file.model` names it */
    struct file file;
};

/* Where external data goes. */
enum onnx_external_mode {
    /* Initializers of the main graph refer to `externals`; the data of other tensors (attributes,
     * subgraphs, functions) is stored in the model. */
    ONNX_EXTERNAL_FILES,
    /* All is stored in the model. */
    ONNX_EXTERNAL_EMBED,
};

struct onnx_file {
    struct file model; /* well-formed (onnx_check), and without a reference to another file */
    struct onnx_external *externals;
    size_t n_externals;
    char zipmap[320]; /* a line for the log where ZipMap was replaced (below); else "" */
};

/* Reads the model file `path` and its external data. A location is relative to the directory of
 * `path`, or else to that of the file that `path` links to; the file that it leads to must be below
 * one of the two: hub caches link `model.onnx` and its weights to files of other names.
 * Returns: as file_read, SLUICE_INVALID_ARGUMENT for a file that is no well-formed ONNX model or
 * has a location that is out of range or leaves these directories, SLUICE_UNSUPPORTED for more
 * than 2 GiB of stored data. Owns: *file until onnx_file_fini, also after an error. */
sluice_status onnx_file_read(struct onnx_file *file, const char *path, enum onnx_external_mode mode,
                             sluice_error *error);
void onnx_file_fini(struct onnx_file *file);

/* ---- ZipMap ---------------------------------------------------------------------------------- */

/* Converters of scikit-learn classifiers end models with ZipMap, which turns the tensor of
 * probabilities [n, classes] into a list of maps from class to probability. The protocols cannot
 * carry that. The model is changed so that the output of that name is the tensor: replaces each
 * ZipMap of the main graph by an Identity, and the type of its output by FP32
 * [n, classes]. A model that uses the maps in another node is left as it is, and so is
 * one without ZipMap. `model` is a file that onnx_check has passed; it is written anew, once.
 * `text`: a line for the log, "" where nothing was changed. Returns: SLUICE_NO_MEMORY, and `model`
 * is as it was. */
sluice_status onnx_zipmap_replace(struct file *model, char *text, size_t n_bytes,
                                  sluice_error *error);

/* ---- operators ------------------------------------------------------------------------------- */

/* Returns: 1 when each tensor of the graph in the file `model` has a shape that follows from the
 * shapes of the inputs, and each operator a time that follows from the shapes of its tensors. Only
 * known operators of ai.onnx and ai.onnx.ml are such, and those with an input that decides about a
 * shape or a time (the second of Reshape, the sequence lengths of LSTM) only where that input is
 * constant or computed from constants and shapes. 0: for any other model (with subgraphs,
 * functions, strings to parse, operators that are not known), also when the file is not read as an
 * ONNX model. */
int onnx_graph_follows_shapes(struct bytes model);

#endif
