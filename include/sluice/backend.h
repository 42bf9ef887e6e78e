/* The backend interface of Sluice: what a shared library must offer so that `sluice serve` can run
 * models through it. Everything a backend author needs is on this page and in types.h (datatypes
 * and parameters); backends/identity is the example to copy.
 *
 * A backend is a file `libsluice_NAME.so` in the server's --backend-dir. It exports one function,
 * sluice_backend_entry, which returns a table of functions. Models name it in config.pbtxt with
 * `backend: "NAME"`, NAME being [a-z0-9_-]+. Nothing is linked with it:
 *
 *     cc -std=c11 -fPIC -shared -fvisibility=hidden -I PREFIX/include my.c -o libsluice_my.so
 *
 * Life, in order, each step undone by its counterpart:
 *
 *     sluice_backend_entry              once per process
 *       model_open  … model_close       once per served model version
 *         model_describe                once, right after model_open
 *         instance_open … instance_close  once per instance (config.pbtxt: instance_group)
 *           execute                     for each batch of requests
 *
 * Contents of memory:
 *   - Numbers are in the machine's byte order, which is little-endian; tensors are row-major
 *     without padding. A BYTES element is a 4-byte little-endian length followed by that many
 *     bytes.
 *   - Every pointer in a struct given to the backend is borrowed; each comment says until when.
 *   - Text is UTF-8, NUL-terminated, and additionally counted where a length stands beside it.
 *
 * Threads:
 *   - model_open, model_describe, instance_open, instance_close, model_close are called from one
 *     thread at a time per model, and may block.
 *   - execute is called by one thread at a time per instance, not always the same one. Instances of
 *     one model execute at the same time. It may block, unless the model was described as cheap:
 *     then it may be called on a thread that serves connections.
 *   - Host functions may be called from any thread.
 *
 * Versions: `abi` counts changes that break compatibility. What is only added grows `size`: each
 * table and struct begins with its size in bytes, as its writer knew it, and a reader looks at no
 * member past that size. Changes, newest first:
 *
 *   1  2026-11  sluice_host.computed
 *   1  2026-11  first version
 */
#ifndef SLUICE_BACKEND_H
#define SLUICE_BACKEND_H

#include <stddef.h>
#include <stdint.h>

#include "sluice/types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SLUICE_BACKEND_ABI 1u

/* What went wrong. A backend gives one of these with a sentence; each protocol makes its own code
 * of it. */
typedef enum sluice_status {
    SLUICE_OK = 0,
    SLUICE_INVALID_ARGUMENT = 1, /* the request is at fault: HTTP 400 */
    SLUICE_NOT_FOUND = 2,        /* HTTP 404 */
    SLUICE_UNAVAILABLE = 3,      /* not now, try again: HTTP 503 */
    SLUICE_UNSUPPORTED = 4,      /* the model can't do this: HTTP 501 */
    SLUICE_CANCELLED = 5,        /* the caller went away and the backend noticed */
    SLUICE_NO_MEMORY = 6,        /* HTTP 503 */
    SLUICE_INTERNAL = 7          /* the backend is at fault: HTTP 500 */
} sluice_status;

typedef enum sluice_log_level {
    SLUICE_LOG_ERROR = 0,
    SLUICE_LOG_WARNING = 1,
    SLUICE_LOG_INFO = 2,
    SLUICE_LOG_DEBUG = 3
} sluice_log_level;

/* A failure, filled by the backend when a function returns something other than SLUICE_OK. */
typedef struct sluice_error {
    char text[512]; /* one sentence, NUL-terminated: what was expected, what came */
} sluice_error;

/* ---- what a model is told when it is opened ------------------------------------------------- */

/* Borrowed until model_open returns; strings may be kept only as copies. */
typedef struct sluice_model_args {
    size_t size;
    const char *name;
    uint64_t version;
    /* The model's file, or its version directory where there is no file; as the server's command
     * line leads to it, perhaps relative to the working directory. */
    const char *path;
    const char *directory;   /* the model's own directory; "" for a single file */
    uint64_t max_batch_size; /* from config.pbtxt; UINT64_MAX: nothing was configured */
    /* How many threads one execution should use at most, >= 1: from the cgroup's quota, the
     * affinity and the number of instances. */
    uint32_t n_threads;
    int32_t may_spin; /* 0: threads waiting for work must sleep (a CPU quota below the cores) */
    /* config.pbtxt `parameters`, all strings. Names that begin with "sluice." are the server's own:
     * a backend warns of those it does not know, but not of these. */
    const sluice_param *params;
    size_t n_params;
} sluice_model_args;

/* One input or output as the model itself knows it. */
typedef struct sluice_tensor_info {
    const char *name;
    sluice_datatype datatype;
    const int64_t *dims; /* -1: any size. Includes the batch dimension if the model has one */
    size_t rank;         /* up to 64 */
    const char *const *symbols; /* one per dimension: the name of a dynamic dimension, "" when it
                                   has none; NULL: no names at all */
    int32_t optional;           /* inputs: 1 when a request may leave it out */
} sluice_tensor_info;

/* Filled by model_describe; all pointers are the backend's and live until model_close. */
typedef struct sluice_model_info {
    size_t size;
    const char *platform; /* shown in metadata, "onnxruntime_onnx"; NULL: the backend's name */
    const sluice_tensor_info *inputs;
    size_t n_inputs;
    const sluice_tensor_info *outputs;
    size_t n_outputs;
    int32_t takes_any; /* 1: the model takes whatever config.pbtxt says (identity): inputs and
                          outputs above are ignored and the configuration must give them */
    int32_t cheap; /* 1: execute returns within microseconds whatever the request, never blocks */
} sluice_model_info;

/* ---- requests ------------------------------------------------------------------------------- */

typedef struct sluice_piece {
    const void *data; /* aligned to the element's size; n_bytes is a whole number of elements,
                         except for BYTES, where pieces are split anywhere */
    size_t n_bytes;
} sluice_piece;

/* An input of a request. Name, datatype, rank, dimensions and byte size fit what the model
 * described or its configuration says; BYTES framing was checked; no dimension is negative, a 0
 * makes it empty. */
typedef struct sluice_input {
    uint32_t index; /* among the inputs of the model */
    sluice_datatype datatype;
    const char *name;
    const int64_t *dims; /* including the batch dimension */
    size_t rank;
    size_t n_bytes; /* sum over the pieces */
    const sluice_piece *pieces;
    size_t n_pieces; /* 0 only when n_bytes is 0 */
} sluice_input;

/* One request. Everything in it lives, unchanged, until its final response was given. */
typedef struct sluice_request {
    size_t size;
    void *host;     /* the host's; not to be touched */
    const char *id; /* "" when there is none */
    size_t id_bytes;
    uint64_t batch;             /* the batch dimension of every input; 1 where the model has none */
    const sluice_input *inputs; /* in the model's order; optional ones may be missing */
    size_t n_inputs;
    const uint32_t *wanted; /* indices of the outputs asked for, in that order; never empty */
    size_t n_wanted;
    const sluice_param *params; /* the client's own, and forwarded headers; not priority, timeout
                                   and what else is the server's business */
    size_t n_params;
    uint64_t deadline_ns; /* CLOCK_MONOTONIC; 0: none. A hint: later answers are accepted */
} sluice_request;

/* One output of an answer. */
typedef struct sluice_output {
    uint32_t index; /* among the outputs of the model */
    sluice_datatype datatype;
    const int64_t *dims; /* every one >= 0; read during respond only */
    size_t rank;
    const void *data; /* aligned to the element's size; must stay valid and unchanged until release.
                         May be (part of) the request's own input bytes. NULL is
                         allowed when n_bytes is 0 */
    size_t n_bytes;   /* must be what datatype and dims say */
} sluice_output;

/* One answer. Outputs must be those of `wanted`, in that order, each once. The struct and the
 * arrays it points to are read during respond only; the bytes of the outputs are not copied. */
typedef struct sluice_response {
    size_t size;
    sluice_status status; /* other than SLUICE_OK: outputs are ignored */
    const char *error;    /* a sentence, when status is not SLUICE_OK */
    const sluice_output *outputs;
    size_t n_outputs;
    const sluice_param *params; /* response parameters; copied */
    size_t n_params;
    int32_t final; /* 1: the last (usually only) answer to this request. 0: more will follow */
    /* Called exactly once, from any thread, when the outputs' bytes are no longer needed (also when
     * respond refuses them). NULL: nothing to release. Must not block. */
    void (*release)(void *cookie);
    void *cookie;
} sluice_response;

/* ---- what the host offers ------------------------------------------------------------------- */

typedef struct sluice_host {
    size_t size;
    uint32_t abi;
    /* Answers a request. May be called during execute or later, from any thread, once or, with
     * final 0 before the last, more often. After the final answer the request must not be touched.
     *
     * More than one answer, or none, is for models whose configuration says
     * `model_transaction_policy { decoupled: true }`; the second answer of another model is an
     * error. Of a decoupled model each answer leaves as it comes, those of one request in the order
     * of the calls, which must follow one another; an error with final 0 is an answer like others.
     * The last one may also come without outputs, with final 1: then it only says that nothing more
     * follows. Such a model always has instances of their own.
     *
     * Back pressure: of a request at most 4 MiB of outputs, or 1024 answers, are on their way to
     * the client; past that a call with final 0 blocks until the client has read, or is gone, or
     * its deadline has passed (an answer larger than that waits until it is alone). It returns at
     * once when the request was cancelled; is_cancelled tells. So it must not be called with a lock
     * held that `release` takes, nor from `release`. */
    void (*respond)(const sluice_request *request, const sluice_response *response);
    /* 1 when this request was cancelled: work on it may stop; a final response
     * (SLUICE_CANCELLED) must still be given. */
    int (*is_cancelled)(const sluice_request *request);
    /* Writes a line to the server's log. */
    void (*log)(sluice_log_level level, const char *model, const char *text);
    /* CLOCK_MONOTONIC in nanoseconds, for deadline_ns; a test may drive it. */
    uint64_t (*now_ns)(void);
    /* Says when the model itself computed for these requests, in times of now_ns: what an execution
     * spent before that is the preparing of inputs, what follows is the taking out of outputs. For
     * statistics only, and a backend may leave it out: then all of it counts as computing. Called
     * during execute, before these requests are answered; requests that were executed one after the
     * other say it each for itself. */
    void (*computed)(const sluice_request *const *requests, size_t n, uint64_t began_ns,
                     uint64_t ended_ns);
} sluice_host;

/* ---- what the backend offers ---------------------------------------------------------------- */

typedef struct sluice_model sluice_model;       /* the backend's own, per model version */
typedef struct sluice_instance sluice_instance; /* the backend's own, per instance */

typedef struct sluice_backend {
    size_t size;
    uint32_t abi;        /* SLUICE_BACKEND_ABI as compiled */
    const char *name;    /* as in the file's name */
    const char *version; /* of the backend or the library it drives, for the log */
    /* File extensions a model of this backend may have (".onnx"), NULL-terminated; an empty list:
     * none, the model is its directory. The default file is `model` with the first of them. */
    const char *const *extensions;

    /* Loads a model. On failure *model is left NULL and `error` says why. */
    sluice_status (*model_open)(const sluice_model_args *args, sluice_model **model,
                                sluice_error *error);
    /* Says what the model takes and gives. `info->size` is set by the host. */
    sluice_status (*model_describe)(sluice_model *model, sluice_model_info *info,
                                    sluice_error *error);
    /* All its instances are closed and every output that was given has been released. */
    void (*model_close)(sluice_model *model);

    /* Makes something that can execute one batch at a time. */
    sluice_status (*instance_open)(sluice_model *model, uint32_t index, sluice_instance **instance,
                                   sluice_error *error);
    /* No execution is running and every request was answered; outputs may still be held. */
    void (*instance_close)(sluice_instance *instance);

    /* Runs a batch: `n` >= 1 requests that have the same inputs, whose shapes, but for the batch
     * dimension, are equal, and whose batch sizes sum to at most max_batch_size (n is 1 where the
     * model does not batch). What they want may differ. The array is borrowed until execute
     * returns, each request until its final response. Each gets its own, during this call or later;
     * a failure of one need not fail the others. */
    void (*execute)(sluice_instance *instance, const sluice_request *const *requests, size_t n);
} sluice_backend;

/* The one exported function. `host` lives as long as the process. Returns: the table, which must do
 * the same; NULL when it can't work with this host (after saying why through host->log). */
#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
const sluice_backend *
sluice_backend_entry(const sluice_host *host);

#ifdef __cplusplus
}
#endif

#endif
