/* The backend interface of Sluice: the functions of a shared library through which `sluice serve`
 * runs models. This file and types.h (datatypes) are the complete contract;
 * backends/identity is the example to copy.
 *
 * A backend is a file `libsluice_NAME.so` in the server's --backend-dir. It exports one function,
 * sluice_backend_entry, which returns a function table. A model selects it in config.pbtxt with
 * `backend: "NAME"`, NAME being [a-z0-9_-]+. It links with no library of Sluice:
 *
 *     cc -std=c11 -fPIC -shared -fvisibility=hidden -I PREFIX/include my.c -o libsluice_my.so
 *
 * Lifecycle: calls in order; each open call is paired with a close call:
 *
 *     sluice_backend_entry              once per process
 *       model_open  … model_close       once per served model version
 *         model_describe                once, right after model_open
 *         instance_open … instance_close  once per instance (config.pbtxt: instance_group)
 *           execute                     for each batch of requests
 *
 * Memory layout:
 *   - Numbers are in the machine's byte order, which is little-endian; tensors are row-major
 *     without padding. A BYTES element is a 4-byte little-endian length followed by that many
 *     bytes.
 *   - The backend borrows every pointer in a struct passed to it; each comment gives the lifetime.
 *   - Text is UTF-8 and NUL-terminated; where a length member exists, it is also counted.
 *
 * Threads:
 *   - model_open, model_describe, model_configured, instance_open, instance_close, model_close are
 *     called from one thread at a time per model, and may block.
 *   - execute is called by one thread at a time per instance, which may change between calls.
 *     Instances of one model execute concurrently. It may block, unless the model is described as
 *     cheap: then it may run on a thread that serves connections.
 *   - Host functions may be called from any thread.
 *
 * Versions: `abi` counts incompatible changes. A compatible addition grows `size`: each table and
 * versioned struct begins with its size in bytes as its writer was compiled, and a reader reads no
 * member past that size. Changes, newest first:
 *
 *   1  2026-11  SLUICE_ALREADY_EXISTS
 *   1  2026-11  sluice_model_args.calls with sluice_calls: models that call models
 *   1  2026-11  sluice_backend.model_configured with sluice_model_config, model_is_ready;
 *                sluice_request.sequence_id and the members after it;
 *                sluice_model_args.from_request,
 *                config_json and complete; sluice_model_info.adds_config
 *   1  2026-11  sluice_model_info.iterative, sluice_response.run_again: iterative sequences
 *   1  2026-11  sluice_model_args.op_libraries
 *   1  2026-11  sluice_model_info.time_follows_shapes: without it measured times no longer decide
 *                that a model runs on the threads that serve connections
 *   1  2026-11  sluice_model_info.data_dependent
 *   1  2026-11  sluice_model_args.max_output_bytes, SLUICE_TOO_LARGE
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

/* Result of a backend function, or of a request. A failure has a sentence with it; each protocol
 * maps the status to its own error code. */
typedef enum sluice_status {
    SLUICE_OK = 0,
    SLUICE_INVALID_ARGUMENT = 1, /* the request is invalid: HTTP 400 */
    SLUICE_NOT_FOUND = 2,        /* HTTP 404 */
    SLUICE_UNAVAILABLE = 3,      /* temporary, the client may retry: HTTP 503 */
    SLUICE_UNSUPPORTED = 4,      /* not supported by the model: HTTP 501 */
    SLUICE_CANCELLED = 5,        /* the backend stopped: request cancelled */
    SLUICE_NO_MEMORY = 6,        /* HTTP 503 */
    SLUICE_INTERNAL = 7,         /* the backend failed: HTTP 500 */
    SLUICE_TOO_LARGE = 8,        /* outputs over max_output_bytes: HTTP 400 */
    SLUICE_ALREADY_EXISTS = 9    /* HTTP 400; over gRPC a code of its own */
} sluice_status;

typedef enum sluice_log_level {
    SLUICE_LOG_ERROR = 0,
    SLUICE_LOG_WARNING = 1,
    SLUICE_LOG_INFO = 2,
    SLUICE_LOG_DEBUG = 3
} sluice_log_level;

/* A failure. The backend fills it when a function returns a status other than SLUICE_OK. */
typedef struct sluice_error {
    char text[512]; /* one sentence, NUL-terminated: expected and actual value */
} sluice_error;

/* ---- model description ---------------------------------------------------------------------- */

/* A named value. */
typedef struct sluice_param {
    const char *name;
    size_t name_bytes; /* without the NUL */
    sluice_param_kind kind;
    int32_t boolean;
    int64_t int64;
    uint64_t uint64;
    double number;
    const char *string;
    size_t string_bytes; /* without the final NUL; the string may contain NULs */
} sluice_param;

/* Arguments of model_open. Borrowed until model_open returns: the backend copies what it keeps. */
typedef struct sluice_model_args {
    size_t size;
    const char *name;
    uint64_t version;
    /* The model's file, or its version directory if it has no file. Derived from the server's
     * command line, so it may be relative to the working directory. */
    const char *path;
    const char *directory;   /* the model's directory; "" for a single file */
    uint64_t max_batch_size; /* from config.pbtxt; UINT64_MAX: not configured */
    /* Recommended maximum of threads per execution, >= 1, computed from the cgroup's CPU quota, the
     * affinity mask and the number of instances. */
    uint32_t n_threads;
    int32_t may_spin; /* 0: idle threads must sleep (the CPU quota is below the core count) */
    /* config.pbtxt `parameters`, all strings. Names with the prefix "sluice." belong to the server.
     * A backend logs a warning for unknown names, except these. */
    const sluice_param *params;
    size_t n_params;
    /* The host refuses a response whose outputs are more bytes together (SLUICE_TOO_LARGE). A
     * backend that knows a size before it allocates should refuse the request itself. 0: no limit.
     * Later addition: read it only if `size` includes it. */
    uint64_t max_output_bytes;
    /* Libraries of operators that config.pbtxt names (model_operations), absolute paths that the
     * host has found and allowed. A backend without such operators ignores them. Later addition. */
    const char *const *op_libraries;
    size_t n_op_libraries;
    /* 1: the configuration, and possibly the files, came with a request of a client: a backend that
     * runs programs out of them refuses such a model. Later addition. */
    int32_t from_request;
    /* 1: the configuration is used as it is (--disable-auto-complete-config): sluice_model_info
     * must not add to it. Later addition. */
    int32_t is_complete;
    /* The configuration before it is completed, as sluice_model_config.json; only for a backend
     * that has model_configured, else NULL. Later addition. */
    const char *config_json;
    size_t config_json_bytes;
    /* How the model calls other models of this server; valid until model_close. NULL: it cannot.
     * Later addition. */
    const struct sluice_calls *calls;
} sluice_model_args;

/* One input or output, as defined in the model. */
typedef struct sluice_tensor_info {
    const char *name;
    sluice_datatype datatype;
    const int64_t *dims;        /* -1: any size. Includes the batch dimension, if any */
    size_t rank;                /* up to 64 */
    const char *const *symbols; /* one per dimension: the name of a dynamic dimension, "" if it
                                   has none; NULL: no names */
    int32_t optional;           /* inputs: 1 if a request may omit it */
} sluice_tensor_info;

/* Filled by model_describe. Owns: the backend, all pointers, valid until model_close. */
typedef struct sluice_model_info {
    size_t size;
    const char *platform; /* for metadata, e.g. "onnxruntime_onnx"; NULL: the backend's name */
    const sluice_tensor_info *inputs;
    size_t n_inputs;
    const sluice_tensor_info *outputs;
    size_t n_outputs;
    int32_t takes_any; /* 1: config.pbtxt must define inputs and outputs, and those above are
                          ignored (identity). Inputs are numbered in the order of `input`,
                          `control_input` and `state`; outputs in that of `output` and `state`, but
                          a state that `output` lists has its number there */
    int32_t cheap;     /* 1: execute returns within microseconds for any request, never blocks */
    /* 1: the time of execute depends on the inputs' values, not on their shapes alone (loops,
     * outputs of data-dependent shapes). Measured times of such a model say nothing about the next
     * execution: it runs on instance threads unless config.pbtxt says otherwise.
     * Later addition: write it only if `size` includes it. */
    int32_t data_dependent;
    /* 1: the time of execute follows from the shapes of the inputs, the batch size among them:
     * neither their values, nor parameters, nor the choice of outputs can make it much longer (no
     * loops, no outputs of data-dependent shapes, no text that is parsed). Executions whose shapes
     * were seen to be quick then run on the thread that serves connections, where a slow one delays
     * other clients. 0, or not written: they run on instance threads unless config.pbtxt says
     * otherwise.
     * Later addition: write it only if `size` includes it. */
    int32_t time_follows_shapes;
    /* 1: execute may ask to run a request of this model again (sluice_response.run_again). A model
     * whose config.pbtxt says `iterative_sequence: true` is loaded only then.
     * Later addition: write it only if `size` includes it. */
    int32_t iterative;
    /* 1, with takes_any: the model adds to its configuration. Then inputs and outputs that
     * config.pbtxt does not have are added to it, with dimensions as config.pbtxt has them (without
     * the batch); max_batch_size and decoupled replace what it says; dynamic_batching 1 turns
     * batching on where it does not say so. Later addition: write it only if `size` includes it. */
    int32_t adds_config;
    int32_t decoupled;
    int32_t dynamic_batching;
    uint64_t max_batch_size;
} sluice_model_info;

/* The model's configuration, complete: what config.pbtxt gives, and what was taken from
 * model_describe and from the server's defaults. Borrowed until model_configured returns. */
typedef struct sluice_model_config {
    size_t size;
    const char *json; /* ModelConfig of the model configuration extension, as GET …/config has it */
    size_t json_bytes;
    uint64_t max_batch_size;
    int32_t decoupled;
} sluice_model_config;

/* ---- requests ------------------------------------------------------------------------------- */

typedef struct sluice_piece {
    const void *data; /* aligned to the element's size; n_bytes is a whole number of elements,
                         except for BYTES, which may be split at any byte */
    size_t n_bytes;
} sluice_piece;

/* An input of a request, validated by the host: name, datatype, rank, dimensions and byte size
 * match the model's description or configuration, and BYTES framing is valid. Each dimension is
 * >= 0; 0 means an empty tensor. */
typedef struct sluice_input {
    uint32_t index; /* into the model's inputs */
    sluice_datatype datatype;
    const char *name;
    const int64_t *dims; /* including the batch dimension; the elements of all rows in one dimension
                            where the configuration says allow_ragged_batch */
    size_t rank;
    size_t n_bytes; /* sum over pieces */
    const sluice_piece *pieces;
    size_t n_pieces; /* 0 only if n_bytes is 0 */
} sluice_input;

/* Flags of sluice_request.sequence_flags: the request is the first, or the last, of its
 * sequence. */
enum { SLUICE_SEQUENCE_START = 1, SLUICE_SEQUENCE_END = 2 };

/* One request. All members are valid and unchanged until its final response. */
typedef struct sluice_request {
    size_t size;
    void *host;     /* private to the host */
    const char *id; /* "": none */
    size_t id_bytes;
    uint64_t batch; /* batch dimension of every input, but of ragged ones and of those that
                       batch_input makes; 1 if the model has none */
    /* in the model's order; optional ones may be absent. Those of `control_input` and `state` in
     * config.pbtxt are there, too: the host fills them */
    const sluice_input *inputs;
    size_t n_inputs;
    /* indices of requested outputs, in that order; never empty. Outputs of `state`, which the host
     * keeps for the next request of the sequence, are always among them */
    const uint32_t *wanted;
    size_t n_wanted;
    const sluice_param *params; /* from the client, and forwarded headers; without those that the
                                   server handles (priority, timeout, …) */
    size_t n_params;
    uint64_t deadline_ns; /* CLOCK_MONOTONIC; 0: none. A hint: late responses are accepted */
    /* Later additions, which the host only reports: it has already acted on them. */
    uint64_t sequence_id;      /* correlation id of a sequence as a number; 0: none, or a name */
    const char *sequence_name; /* the same as a text; "": none, or a number */
    size_t sequence_name_bytes;
    uint32_t sequence_flags; /* SLUICE_SEQUENCE_START and SLUICE_SEQUENCE_END */
    uint64_t priority;       /* as the request gives it; 0: it does not */
    uint64_t timeout_us;     /* the same */
} sluice_request;

/* One output of a response. */
typedef struct sluice_output {
    uint32_t index; /* into the model's outputs */
    sluice_datatype datatype;
    const int64_t *dims; /* each >= 0; read during respond only */
    size_t rank;
    const void *data; /* aligned to the element's size; must stay valid and unchanged until release.
                         May point into the request's input bytes. NULL is
                         allowed if n_bytes is 0 */
    size_t n_bytes;   /* must match datatype and dims */
} sluice_output;

/* One response. Outputs must be among those of `wanted`, in that order, each once. One that the
 * model leaves out is left out of the client's response, too; an ensemble fails where it needs it,
 * as does a request whose response has outputs, but not those of `state`. The host reads the struct
 * and its arrays during respond only; it does not copy the bytes of the outputs. */
typedef struct sluice_response {
    size_t size;
    sluice_status status; /* not SLUICE_OK: outputs are ignored */
    const char *error;    /* a sentence, if status is not SLUICE_OK */
    const sluice_output *outputs;
    size_t n_outputs;
    const sluice_param *params; /* response parameters; copied */
    size_t n_params;
    int32_t final; /* 1: the last (usually only) response to this request. 0: more follow */
    /* Releases the outputs' bytes. Called exactly once, when the host no longer needs them (also
     * when respond rejects them). NULL: no release. Must not block. Thread: any. */
    void (*release)(void *cookie);
    void *cookie;
    /* 1, with final 0 and status SLUICE_OK: the request is not done. It goes back into the queue,
     * and is executed again with others, until it gets a response without this. The backend must
     * not access it in between; the next execution gets the same request and inputs, except for
     * CONTROL_SEQUENCE_START, which is true in the first execution only, and the inputs of `state`.
     * Either n_outputs is 0, and the state remains as it was; or outputs of `wanted` are given:
     * those of `state` are the next execution's inputs, and of a decoupled model the others are
     * sent to the client; otherwise the others are ignored (n_bytes may be 0). For models with
     * `iterative_sequence: true`; the request fails without it.
     * Later addition: the host reads it only if `size` includes it. */
    int32_t run_again;
} sluice_response;

/* ---- custom metrics ------------------------------------------------------------------------- */

typedef enum sluice_metric_kind {
    SLUICE_METRIC_COUNTER = 0,
    SLUICE_METRIC_GAUGE = 1,
    SLUICE_METRIC_HISTOGRAM = 2
} sluice_metric_kind;

typedef enum sluice_metric_change {
    SLUICE_METRIC_INCREMENT = 0, /* counters, by a value >= 0, and gauges */
    SLUICE_METRIC_SET = 1,       /* gauges */
    SLUICE_METRIC_OBSERVE = 2    /* histograms */
} sluice_metric_change;

typedef struct sluice_label {
    const char *name;
    const char *value; /* UTF-8 */
} sluice_label;

typedef struct sluice_metric_family sluice_metric_family; /* defined by the host */
typedef struct sluice_metric sluice_metric;               /* the same: a series of a family */

/* ---- host functions ------------------------------------------------------------------------- */

typedef struct sluice_host {
    size_t size;
    uint32_t abi;
    /* Sends a response to a request, during execute or later; responses before the last have
     * final 0. After the final response the backend must not access the request. Thread: any.
     *
     * Several responses, or none, require `model_transaction_policy { decoupled: true }` in the
     * model's configuration; for another model the second response is an error. The host sends each
     * response of a decoupled model immediately, in call order per request. Calls for one request
     * must not overlap. An error with final 0 is a response like others. The final response may
     * have no outputs: it only marks the end. Such a model always runs on instance threads.
     *
     * Back pressure: per request, at most 4 MiB of outputs and 1024 responses are in flight. At the
     * limit, a call with final 0 blocks until the client reads data, disconnects, or its
     * deadline passes (a response over 4 MiB waits until no other is in flight). For a cancelled
     * request (see is_cancelled) it returns at once. Do not call it from `release`, nor while
     * holding a lock that `release` takes. */
    void (*respond)(const sluice_request *request, const sluice_response *response);
    /* Returns: 1 if the request was cancelled, else 0. The backend may stop its work then, but must
     * still send a final response (SLUICE_CANCELLED). */
    int (*is_cancelled)(const sluice_request *request);
    /* Writes one line to the server's log. `model` NULL or "": the whole backend. */
    void (*log)(sluice_log_level level, const char *model, const char *text);
    /* Returns: CLOCK_MONOTONIC in ns, comparable with deadline_ns; a test may replace it. */
    uint64_t (*now_ns)(void);
    /* Reports the model's compute time for `n` requests, in times of now_ns. Statistics count the
     * time before `began_ns` as input preparation and the time after `ended_ns` as output
     * extraction. Optional: without it the whole execution counts as compute. Call it during
     * execute, before these requests' responses; once per request if they run one by one. */
    void (*computed)(const sluice_request *const *requests, size_t n, uint64_t began_ns,
                     uint64_t ended_ns);
    /* Metrics of the model's own, on the page of the server's. Later additions: call them only if
     * `size` includes them. They do not block, from any thread. On failure they return
     * SLUICE_INVALID_ARGUMENT (names, kinds, limits) or SLUICE_NO_MEMORY, with `error` filled.
     *
     * Opens a family. One of that name and kind that is open already is the same, with its first
     * description; one of another kind, and names that begin with sluice_, nv_ or process_, are
     * refused. Close it before model_close returns. */
    sluice_status (*metric_family_open)(const char *name, const char *help, sluice_metric_kind kind,
                                        sluice_metric_family **family, sluice_error *error);
    void (*metric_family_close)(sluice_metric_family *family);
    /* Opens a series of the family. One with the same labels that is open already is the same, so
     * that what instances count adds up; it is removed when all have closed it. `bounds`: the upper
     * bounds of a histogram's buckets, in ascending order; others have none. The family may be
     * closed before its series. */
    sluice_status (*metric_open)(sluice_metric_family *family, const sluice_label *labels,
                                 size_t n_labels, const double *bounds, size_t n_bounds,
                                 sluice_metric **metric, sluice_error *error);
    void (*metric_close)(sluice_metric *metric);
    sluice_status (*metric_change)(sluice_metric *metric, sluice_metric_change change, double value,
                                   sluice_error *error);
    /* The value of a counter or gauge. */
    sluice_status (*metric_value)(sluice_metric *metric, double *value, sluice_error *error);
} sluice_host;

/* ---- calls of other models ------------------------------------------------------------------- */

/* A model may have the server run another one, load it, or unload it: sluice_model_args.calls. A
 * call takes the same way as a request of a client: it is checked, queued, batched, counted and
 * traced. None of these functions blocks. */

typedef struct sluice_call sluice_call; /* defined by the host */

/* A response to a call, until sluice_calls.release. */
typedef struct sluice_call_response {
    size_t size;
    sluice_status status; /* not SLUICE_OK: there are no outputs, and it is the last response */
    const char *error;    /* a sentence, if status is not SLUICE_OK */
    const sluice_input *outputs; /* as inputs of a request; `index` into the model's outputs */
    size_t n_outputs;            /* may be 0 in the last response of a decoupled model */
    const sluice_param *params;
    size_t n_params;
    int32_t final; /* 1: the last */
    void *backend; /* for any use of the backend, such as a list of responses */
} sluice_call_response;

/* A call. Borrowed until `start` returns, but for the inputs' bytes. */
typedef struct sluice_call_args {
    size_t size;
    /* The request for which the model is called: the call has at most its deadline, counts in the
     * memory of its client, is a part of its trace, and is cancelled with it, and when it gets its
     * final response. NULL: none. */
    const sluice_request *parent;
    const char *model;
    const char *version; /* decimal digits; "": the highest that is ready */
    const char *id;      /* "": none */
    /* With the batch dimension where the model batches; `index` is ignored, the name counts. The
     * bytes must stay valid and unchanged until `ended`. */
    const sluice_input *inputs;
    size_t n_inputs;
    const char *const *wanted; /* names of outputs; none: all */
    size_t n_wanted;
    const sluice_param *params;
    size_t n_params;
    uint64_t sequence_id;      /* as in sluice_request */
    const char *sequence_name; /* "": none, or a number */
    uint32_t sequence_flags;
    uint64_t priority;   /* 0: the model's default */
    uint64_t timeout_us; /* from now on; 0: none but the parent's */
    /* 0: a decoupled model is refused, as one response is expected; `why` then completes the
     * sentence "model NAME is decoupled: it gives any number of answers, and …". */
    int32_t takes_many;
    /* 1: the instance that has `parent` executes nothing else until the call has ended. A call that
     * would wait for itself so, as each instance of the model does, is refused at once. */
    int32_t waits;
    const char *why;
    /* Called for each response in the model's order, once with `final`. The backend calls `release`
     * for each. Must not block. Thread: one that serves connections. */
    void (*respond)(void *user, sluice_call_response *response);
    /* Called once, when all responses are released: the inputs' bytes are not used any more. Must
     * not block. Thread: as respond. */
    void (*ended)(void *user);
    void *user;
} sluice_call_args;

typedef enum sluice_model_action {
    SLUICE_MODEL_LOAD = 1,
    SLUICE_MODEL_UNLOAD = 2
} sluice_model_action;

typedef struct sluice_model_file {
    const char *path; /* "1/model.onnx" */
    const void *data;
    size_t n_bytes;
} sluice_model_file;

/* A model to be loaded or unloaded, as by a client's request. Borrowed until `change` returns. */
typedef struct sluice_model_change {
    size_t size;
    sluice_model_action action;
    const char *model;
    const char *config;             /* load: JSON in place of config.pbtxt; NULL: none */
    const sluice_model_file *files; /* load with `config`: in place of the model's directory */
    size_t n_files;
    int32_t unload_dependents;
    /* Called once; SLUICE_OK: it is loaded, or not found any more. Must not block. Thread: one that
     * serves connections. */
    void (*done)(void *user, sluice_status status, const char *error);
    void *user;
} sluice_model_change;

typedef struct sluice_calls {
    size_t size;
    /* Starts a call. Returns: on failure, a status, with `error` filled, and neither `respond` nor
     * `ended` is called. Owns: *call, until unref, also after its last response. Thread: any; with
     * a parent, one that sends no final response to it meanwhile. */
    sluice_status (*start)(const struct sluice_calls *calls, const sluice_call_args *args,
                           sluice_call **call, sluice_error *error);
    /* Cancels it: a last response still comes, which may be one without an error. Idempotent.
     * Thread: any. */
    void (*cancel)(sluice_call *call);
    void (*unref)(sluice_call *call);
    /* Returns the outputs' bytes to their model, which is slowed until then. Once for each
     * response.
     * Thread: any. */
    void (*release)(sluice_call_response *response);
    /* Returns: 1 if the model, or that version of it, answers requests; `version` as in a call.
     * Thread: any but one that serves connections. */
    int (*is_ready)(const struct sluice_calls *calls, const char *model, const char *version);
    /* Returns: on failure, a status, with `error` filled, and `done` is not called. Thread: any. */
    sluice_status (*change)(const struct sluice_calls *calls, const sluice_model_change *change,
                            sluice_error *error);
} sluice_calls;

/* ---- backend functions ---------------------------------------------------------------------- */

typedef struct sluice_model sluice_model;       /* defined by the backend, per model version */
typedef struct sluice_instance sluice_instance; /* defined by the backend, per instance */

typedef struct sluice_backend {
    size_t size;
    uint32_t abi;        /* SLUICE_BACKEND_ABI */
    const char *name;    /* NAME of the file's name */
    const char *version; /* of the backend or its library, for the log */
    /* File extensions of this backend's models (".onnx"), NULL-terminated; an empty list: the model
     * is its directory. The default file is `model` plus the first extension. */
    const char *const *extensions;

    /* Loads a model. Returns: on failure, a status, with `error` filled and *model NULL. Owns: the
     * host, *model, until model_close. */
    sluice_status (*model_open)(const sluice_model_args *args, sluice_model **model,
                                sluice_error *error);
    /* Describes the model's inputs and outputs. The host sets `info->size`. */
    sluice_status (*model_describe)(sluice_model *model, sluice_model_info *info,
                                    sluice_error *error);
    /* Frees the model. All its instances are closed and all outputs are released. */
    void (*model_close)(sluice_model *model);

    /* Creates instance number `index` (>= 0), which executes one batch at a time. */
    sluice_status (*instance_open)(sluice_model *model, uint32_t index, sluice_instance **instance,
                                   sluice_error *error);
    /* Frees an idle instance: all requests have final responses; outputs may be unreleased. */
    void (*instance_close)(sluice_instance *instance);

    /* Runs a batch of `n` >= 1 requests with the same inputs and equal shapes except the batch
     * dimension; batch sizes sum to at most max_batch_size (n is 1 if the model does not batch, or
     * if requests of unequal shapes were joined to one: ragged and padded inputs).
     * Requested outputs may differ. The array is borrowed until execute returns, each request until
     * its final response, sent during this call or later. One request may fail without the
     * others. */
    void (*execute)(sluice_instance *instance, const sluice_request *const *requests, size_t n);

    /* Optional (NULL), and the host reads it only if `size` includes it. Tells the backend the
     * model's complete configuration, after model_describe and before instances are opened.
     * Returns: on failure, a status, with `error` filled: the model is not loaded. */
    sluice_status (*model_configured)(sluice_model *model, const sluice_model_config *config,
                                      sluice_error *error);
    /* Optional (NULL), and read only if `size` includes it. Returns: whether the model can answer
     * requests now; 0: health checks say that it is not ready. Must not block. Thread: any, from
     * the first instance_open until the last instance_close. */
    int (*model_is_ready)(sluice_model *model);
} sluice_backend;

/* The one exported function. `host` is valid until the process exits. Returns: the table,
 * valid as long; NULL if it can't work with this host (reason logged through host->log). */
#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
const sluice_backend *
sluice_backend_entry(const sluice_host *host);

#ifdef __cplusplus
}
#endif

#endif
