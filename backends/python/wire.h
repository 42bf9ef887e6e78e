/* The messages between the server and the worker process of an instance, as bytes. It has no socket
 * and no memory but the message: a fuzzer reads with it what a worker could send.
 *
 * A message is a length of 4 bytes (of all of it), a type of 4 bytes, and its body. Numbers are
 * little-endian and not aligned; a text is a length of 4 bytes and UTF-8. The other side is
 * python/sluice_server/worker/wire.py; both are of one release, which INIT checks by WIRE_VERSION.
 *
 * To the worker:
 *   INIT      version u32, then pairs of texts: u32, (name, value)…
 *   EXECUTE   blocks (see below), batch u32, n u32, tail u32, input block u32, output block u32,
 *             then n requests: token u64, sequence u64, flags u32, priority u64, timeout in µs u64,
 *             n_params u32, n_outputs u32, n_inputs u32, id, sequence as text, parameters, outputs
 *             u32…, inputs: name, datatype u8, rank u8, offset u64, bytes u64, dimensions i64….
 *             Offsets of inputs count from the input block, or without one from `tail`, a position
 *             in the message. An output block is one that the worker may write outputs to.
 *   GRANT     tag u32, blocks, block u32; or block 0 and a text: why there is none
 *   STATE     tag u32, u8: answers ASK
 *   FINALIZE  nothing
 *   CHECK     nothing: is the model ready?
 *   TOLD      tag u32, u8, 8 bytes: answers FAMILY and SERIES with a number, VALUE with a double;
 *             or, where the u8 is 0, a text: why there is none
 *   CALLED    tag u32, blocks, final u8, status u8 (sluice_status): a response to CALL, or the
 *             answer to MANAGE; with a status other than 0 a text, else block u32, tail u32,
 *             n_outputs u32, n_params u32, outputs as the inputs of EXECUTE, parameters
 *   blocks    n u32, (block u32, bytes u64)…, whose descriptors come with the message; n u32,
 *             block u32…: these are not used any more
 * To the server:
 *   READY     checks u8: the model has is_ready, and CHECK is answered
 *   FAILED    text: the model cannot be loaded
 *   RESULT    batch u32, done u8, began u64, ended u64 (CLOCK_MONOTONIC), n u32, tail u32, block
 *             u32, then n responses: token u64, final u8 (enum wire_final), status u8
 *             (sluice_status); with a status other than 0 a text, else n u32, outputs: index u32,
 *             datatype u8, rank u8, offset u64, bytes u64, dimensions i64…; n u32, parameters;
 *             after them n u32, block u32…: the input blocks that are not used any more
 *   NEED      tag u32, bytes u64: asks for a block for outputs
 *   LOG       level u8 (sluice_log_level), text
 *   FREED     n u32, block u32…
 *   DESCRIBED max_batch_size u64, decoupled u8, dynamic batching u8, then inputs and outputs, each
 *             n u32, (name, datatype u8, optional u8, rank u8, dimensions i64…)…: in place of
 *             READY, where INIT asked for the configuration alone
 *   ASK       tag u32, token u64: is that request cancelled?
 *   CHECKED   ready u8, text: why it is not ready
 *   FAMILY    tag u32, kind u8 (sluice_metric_kind), name, description: opens a metric family
 *   SERIES    tag u32, family u32, labels: n u32, (name, value)…; n u32, bounds f64…
 *   CHANGE    series u32, change u8 (sluice_metric_change), value f64
 *   VALUE     tag u32, series u32
 *   CALL      tag u32, parent's token u64 (0: none), many u8, sequence u64, flags u32,
 *             priority u64, timeout in µs u64, n_inputs u32, n_outputs u32, n_params u32, tail u32,
 *             block u32, model, version, id, sequence as text, inputs (name, then as an output of
 *             RESULT)…, names of outputs, parameters: calls a model. Its first response is sent at
 *             once
 *   NEXT      tag u32: the next response to that call may be sent
 *   DROP      tag u32: cancels the call, and nothing more is sent of it
 *   MANAGE    tag u32, action u8 (wire_action), flag u8 (unload: dependents too; load: there is a
 *             configuration), model, version, configuration, n u32, (path, content)…
 *   parameter name, kind u8 (sluice_param_kind), and 8 bytes or a text */
#ifndef SLUICE_PYTHON_WIRE_H
#define SLUICE_PYTHON_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "sluice/backend.h"

enum {
    WIRE_VERSION = 1,
    WIRE_HEAD_BYTES = 8,
    WIRE_MAX_BYTES = 1 << 26, /* of a message of a worker */
    WIRE_MAX_RANK = 64,
    WIRE_ALIGNMENT = 64,      /* of tensors, to the first of them */
    WIRE_TAIL_ALIGNMENT = 16, /* of tensors that are in the message itself */
    WIRE_TAIL_BYTES = 16384,  /* at most, as the server sends them; more are in a block */
};

enum wire_type {
    WIRE_INIT = 1,
    WIRE_EXECUTE = 2,
    WIRE_GRANT = 3,
    WIRE_STATE = 4,
    WIRE_FINALIZE = 5,
    WIRE_CHECK = 6,
    WIRE_TOLD = 7,
    WIRE_CALLED = 10,
    WIRE_READY = 64,
    WIRE_FAILED = 65,
    WIRE_RESULT = 66,
    WIRE_NEED = 67,
    WIRE_LOG = 68,
    WIRE_FREED = 69,
    WIRE_ASK = 70,
    WIRE_DESCRIBED = 71,
    WIRE_CHECKED = 72,
    WIRE_FAMILY = 73,
    WIRE_SERIES = 74,
    WIRE_CHANGE = 75,
    WIRE_VALUE = 76,
    WIRE_CALL = 80,
    WIRE_NEXT = 81,
    WIRE_DROP = 82,
    WIRE_MANAGE = 83,
};

/* ---- writing --------------------------------------------------------------------------------- */

/* A message under construction; reused. {0} is valid. */
struct wire_buf {
    unsigned char *bytes;
    size_t n_bytes;
    size_t capacity;
    int failed; /* memory is out, or the message is too long: nothing more is added */
};

void wire_buf_fini(struct wire_buf *buf);
/* Frees memory that an unusually large message needed. */
void wire_buf_trim(struct wire_buf *buf);
/* Begins a message; wire_end completes its head. Returns of wire_end: 0 when it failed. */
void wire_begin(struct wire_buf *buf, enum wire_type type);
int wire_end(struct wire_buf *buf);
void wire_add_u8(struct wire_buf *buf, uint8_t value);
void wire_add_u32(struct wire_buf *buf, uint32_t value);
void wire_add_u64(struct wire_buf *buf, uint64_t value);
void wire_add_bytes(struct wire_buf *buf, const void *bytes, size_t n_bytes);
void wire_add_text(struct wire_buf *buf, const char *text, size_t n_bytes);
void wire_add_param(struct wire_buf *buf, const sluice_param *param);
/* Adds the description of an input of EXECUTE. `offset`: where the tensor before it ends; becomes
 * where this one ends. */
void wire_add_tensor(struct wire_buf *buf, const sluice_input *tensor, size_t *offset);
/* Returns: where the last of these tensors ends, of which the one before ends at `offset`. Sums
 * sizes of existing memory. */
size_t wire_tensors_end(const sluice_input *tensors, size_t n, size_t offset);
/* Copies their bytes to where wire_add_tensor has described them. Returns: where the last ends. */
size_t wire_copy_tensors(const sluice_input *tensors, size_t n, size_t offset, unsigned char *to);
/* Makes room for `n_bytes` of tensors, at most WIRE_TAIL_BYTES, at the end of the message, whose
 * u32 at `tail_at` becomes their place. Returns: the room; NULL when memory is out. */
unsigned char *wire_add_tail(struct wire_buf *buf, size_t tail_at, size_t n_bytes);
/* Overwrites what was added at position `at`. */
void wire_set_u32(struct wire_buf *buf, size_t at, uint32_t value);

/* ---- reading --------------------------------------------------------------------------------- */

/* What is left of a message. Once it has failed, all that is read is 0 or empty. */
struct wire_reader {
    const unsigned char *begin; /* of the message */
    size_t at;
    size_t n_bytes;
    int failed; /* it ended too early, or a number is not possible */
};

struct wire_text {
    const char *ptr; /* not NUL-terminated */
    size_t n_bytes;
};

struct wire_head {
    uint32_t n_bytes; /* of the whole message, at least WIRE_HEAD_BYTES */
    uint32_t type;
};

/* The first WIRE_HEAD_BYTES of a message. Returns: 0 when its length is not possible. */
int wire_head_read(const unsigned char bytes[WIRE_HEAD_BYTES], struct wire_head *head);
/* Reads the body of a message. */
void wire_reader_init(struct wire_reader *reader, const unsigned char *message, size_t n_bytes);
uint8_t wire_read_u8(struct wire_reader *reader);
uint32_t wire_read_u32(struct wire_reader *reader);
uint64_t wire_read_u64(struct wire_reader *reader);
struct wire_text wire_read_text(struct wire_reader *reader);
/* Returns: a copy that ends in NUL; NULL when out of memory. Owns: the caller. */
char *wire_text_copy(struct wire_text text);
/* Reads a number of items, each of which has at least `n_least` bytes; fails when so many cannot be
 * in what is left. */
uint32_t wire_read_count(struct wire_reader *reader, size_t n_least);

struct wire_result {
    uint32_t batch;
    uint8_t done; /* execute has returned */
    uint64_t began_ns, ended_ns;
    uint32_t n_responses;
    uint32_t tail; /* a multiple of 16 within the message */
    uint32_t block;
};

enum wire_final {
    WIRE_MORE = 0,
    WIRE_FINAL = 1,
    WIRE_RUN_AGAIN = 2, /* the request is to be executed again; without outputs */
};

struct wire_response {
    uint64_t token;
    enum wire_final final;
    sluice_status status;
    struct wire_text error; /* with a status other than SLUICE_OK */
    uint32_t n_outputs;
};

struct wire_output {
    uint32_t index;
    sluice_datatype datatype;
    size_t rank;
    uint64_t offset; /* from the block, or the tail of the message */
    uint64_t n_bytes;
    const unsigned char *dims; /* not aligned */
};

enum {
    WIRE_RESPONSE_LEAST = 14,
    WIRE_OUTPUT_LEAST = 22,
    WIRE_PARAM_LEAST = 9,
};

void wire_read_result(struct wire_reader *reader, struct wire_result *result);
void wire_read_response(struct wire_reader *reader, struct wire_response *response);
void wire_read_output(struct wire_reader *reader, struct wire_output *output);
struct wire_call {
    uint32_t tag;
    uint64_t parent;
    uint8_t takes_many, waits; /* bits of a byte: as in sluice_call_args */
    uint64_t sequence;
    uint32_t sequence_flags;
    uint64_t priority, timeout_us;
    uint32_t n_inputs, n_wanted, n_params;
    uint32_t tail, block; /* as in a result */
    struct wire_text model, version, id, sequence_name;
};

enum { WIRE_CALL_INPUT_LEAST = 4 + WIRE_OUTPUT_LEAST };

void wire_read_call(struct wire_reader *reader, struct wire_call *call);

enum wire_action { WIRE_IS_READY, WIRE_LOAD, WIRE_UNLOAD };

struct wire_manage {
    uint32_t tag;
    enum wire_action action;
    uint8_t flag;
    struct wire_text model, version, config;
    uint32_t n_files; /* each two texts */
};

void wire_read_manage(struct wire_reader *reader, struct wire_manage *manage);

/* Texts are views of the message, which names and values end in without a NUL. */
void wire_read_param(struct wire_reader *reader, sluice_param *param);
/* A tensor of DESCRIBED. */
struct wire_tensor {
    struct wire_text name;
    sluice_datatype datatype;
    uint8_t optional;
    size_t rank;
    const unsigned char *dims; /* not aligned; -1: any size */
};

enum { WIRE_TENSOR_LEAST = 7 };

void wire_read_tensor(struct wire_reader *reader, struct wire_tensor *tensor);

/* Copies the dimensions; a negative one makes the reader fail. */
void wire_copy_dims(struct wire_reader *reader, const struct wire_output *output, int64_t *dims);

#endif
