/* Nothing that a worker sends is used before its place in the message was checked. */
#include "python/wire.h"

#include <stdlib.h>
#include <string.h>

enum { KEPT_BYTES = 1 << 16 };

/* ---- writing --------------------------------------------------------------------------------- */

void wire_buf_fini(struct wire_buf *buf) {
    free(buf->bytes);
    *buf = (struct wire_buf){0};
}

void wire_buf_trim(struct wire_buf *buf) {
    if (buf->capacity > KEPT_BYTES) {
        wire_buf_fini(buf);
    }
}

static unsigned char *extend(struct wire_buf *buf, size_t n_bytes) {
    if (buf->failed || n_bytes > UINT32_MAX - buf->n_bytes) {
        buf->failed = 1;
        return NULL;
    }
    size_t needed = buf->n_bytes + n_bytes;
    if (needed > buf->capacity) {
        size_t capacity = needed + needed / 2 + 1024;
        unsigned char *bytes = realloc(buf->bytes, capacity);
        if (!bytes) {
            buf->failed = 1;
            return NULL;
        }
        buf->bytes = bytes;
        buf->capacity = capacity;
    }
    unsigned char *at = buf->bytes + buf->n_bytes;
    buf->n_bytes = needed;
    return at;
}

void wire_add_bytes(struct wire_buf *buf, const void *bytes, size_t n_bytes) {
    unsigned char *at = extend(buf, n_bytes);
    if (at && n_bytes > 0) {
        memcpy(at, bytes, n_bytes);
    }
}

void wire_add_u8(struct wire_buf *buf, uint8_t value) {
    wire_add_bytes(buf, &value, sizeof(value));
}

void wire_add_u32(struct wire_buf *buf, uint32_t value) {
    wire_add_bytes(buf, &value, sizeof(value));
}

void wire_add_u64(struct wire_buf *buf, uint64_t value) {
    wire_add_bytes(buf, &value, sizeof(value));
}

void wire_add_text(struct wire_buf *buf, const char *text, size_t n_bytes) {
    if (n_bytes > UINT32_MAX) {
        buf->failed = 1;
        return;
    }
    wire_add_u32(buf, (uint32_t)n_bytes);
    wire_add_bytes(buf, text, n_bytes);
}

void wire_add_param(struct wire_buf *buf, const sluice_param *param) {
    wire_add_text(buf, param->name, param->name_bytes);
    wire_add_u8(buf, (uint8_t)param->kind);
    switch (param->kind) {
    case SLUICE_PARAM_BOOL:
        wire_add_u64(buf, param->boolean != 0);
        break;
    case SLUICE_PARAM_INT64:
        wire_add_u64(buf, (uint64_t)param->int64);
        break;
    case SLUICE_PARAM_UINT64:
        wire_add_u64(buf, param->uint64);
        break;
    case SLUICE_PARAM_DOUBLE:
        wire_add_bytes(buf, &param->number, sizeof(param->number));
        break;
    case SLUICE_PARAM_STRING:
        wire_add_text(buf, param->string, param->string_bytes);
        break;
    }
}

static size_t aligned(size_t n_bytes, size_t alignment) {
    return (n_bytes + alignment - 1) / alignment * alignment;
}

void wire_add_tensor(struct wire_buf *buf, const sluice_input *tensor, size_t *offset) {
    *offset = aligned(*offset, WIRE_ALIGNMENT);
    wire_add_text(buf, tensor->name, strlen(tensor->name));
    wire_add_u8(buf, (uint8_t)tensor->datatype);
    wire_add_u8(buf, (uint8_t)tensor->rank);
    wire_add_u64(buf, *offset);
    wire_add_u64(buf, tensor->n_bytes);
    wire_add_bytes(buf, tensor->dims, tensor->rank * sizeof(int64_t));
    *offset += tensor->n_bytes;
}

size_t wire_tensors_end(const sluice_input *tensors, size_t n, size_t offset) {
    for (size_t i = 0; i < n; i++) {
        offset = aligned(offset, WIRE_ALIGNMENT) + tensors[i].n_bytes;
    }
    return offset;
}

size_t wire_copy_tensors(const sluice_input *tensors, size_t n, size_t offset, unsigned char *to) {
    for (size_t i = 0; i < n; i++) {
        size_t at = offset = aligned(offset, WIRE_ALIGNMENT);
        for (size_t k = 0; k < tensors[i].n_pieces; k++) {
            const sluice_piece *piece = &tensors[i].pieces[k];
            if (piece->n_bytes > 0) {
                memcpy(to + at, piece->data, piece->n_bytes);
                at += piece->n_bytes;
            }
        }
        offset += tensors[i].n_bytes;
    }
    return offset;
}

unsigned char *wire_add_tail(struct wire_buf *buf, size_t tail_at, size_t n_bytes) {
    static const unsigned char zeros[WIRE_TAIL_BYTES + WIRE_TAIL_ALIGNMENT];
    size_t tail = aligned(buf->n_bytes, WIRE_TAIL_ALIGNMENT);
    wire_add_bytes(buf, zeros, tail - buf->n_bytes + n_bytes);
    wire_set_u32(buf, tail_at, (uint32_t)tail);
    return buf->failed ? NULL : buf->bytes + tail;
}

void wire_set_u32(struct wire_buf *buf, size_t at, uint32_t value) {
    if (!buf->failed) {
        memcpy(buf->bytes + at, &value, sizeof(value));
    }
}

void wire_begin(struct wire_buf *buf, enum wire_type type) {
    buf->n_bytes = 0;
    buf->failed = 0;
    wire_add_u32(buf, 0);
    wire_add_u32(buf, type);
}

int wire_end(struct wire_buf *buf) {
    wire_set_u32(buf, 0, (uint32_t)buf->n_bytes);
    return !buf->failed;
}

/* ---- reading --------------------------------------------------------------------------------- */

static uint32_t load_u32(const unsigned char *at) {
    uint32_t value;
    memcpy(&value, at, sizeof(value));
    return value;
}

int wire_head_read(const unsigned char bytes[WIRE_HEAD_BYTES], struct wire_head *head) {
    *head = (struct wire_head){load_u32(bytes), load_u32(bytes + 4)};
    return head->n_bytes >= WIRE_HEAD_BYTES && head->n_bytes <= WIRE_MAX_BYTES;
}

void wire_reader_init(struct wire_reader *reader, const unsigned char *message, size_t n_bytes) {
    *reader = (struct wire_reader){.begin = message, .at = WIRE_HEAD_BYTES, .n_bytes = n_bytes};
    reader->failed = n_bytes < WIRE_HEAD_BYTES;
}

/* Returns: where `n_bytes` are; NULL: so many are not left. */
static const unsigned char *take(struct wire_reader *reader, size_t n_bytes) {
    if (reader->failed || n_bytes > reader->n_bytes - reader->at) {
        reader->failed = 1;
        return NULL;
    }
    const unsigned char *at = reader->begin + reader->at;
    reader->at += n_bytes;
    return at;
}

uint8_t wire_read_u8(struct wire_reader *reader) {
    const unsigned char *at = take(reader, 1);
    return at ? *at : 0;
}

uint32_t wire_read_u32(struct wire_reader *reader) {
    const unsigned char *at = take(reader, sizeof(uint32_t));
    return at ? load_u32(at) : 0;
}

uint64_t wire_read_u64(struct wire_reader *reader) {
    uint64_t value = 0;
    const unsigned char *at = take(reader, sizeof(value));
    if (at) {
        memcpy(&value, at, sizeof(value));
    }
    return value;
}

struct wire_text wire_read_text(struct wire_reader *reader) {
    size_t n_bytes = wire_read_u32(reader);
    const unsigned char *at = take(reader, n_bytes);
    return at ? (struct wire_text){(const char *)at, n_bytes} : (struct wire_text){"", 0};
}

char *wire_text_copy(struct wire_text text) {
    char *copy = malloc(text.n_bytes + 1);
    if (copy) {
        if (text.n_bytes > 0) {
            memcpy(copy, text.ptr, text.n_bytes);
        }
        copy[text.n_bytes] = '\0';
    }
    return copy;
}

uint32_t wire_read_count(struct wire_reader *reader, size_t n_least) {
    uint32_t n = wire_read_u32(reader);
    if (!reader->failed && n > (reader->n_bytes - reader->at) / n_least) {
        reader->failed = 1;
    }
    return reader->failed ? 0 : n;
}

void wire_read_result(struct wire_reader *reader, struct wire_result *result) {
    result->batch = wire_read_u32(reader);
    result->done = wire_read_u8(reader);
    result->began_ns = wire_read_u64(reader);
    result->ended_ns = wire_read_u64(reader);
    uint32_t n_responses = wire_read_u32(reader);
    result->tail = wire_read_u32(reader);
    result->block = wire_read_u32(reader);
    if (!reader->failed &&
        (result->tail > reader->n_bytes || result->tail % WIRE_TAIL_ALIGNMENT != 0 ||
         n_responses > (reader->n_bytes - reader->at) / WIRE_RESPONSE_LEAST)) {
        reader->failed = 1;
    }
    result->n_responses = reader->failed ? 0 : n_responses;
}

void wire_read_response(struct wire_reader *reader, struct wire_response *response) {
    *response = (struct wire_response){.token = wire_read_u64(reader)};
    uint8_t final = wire_read_u8(reader);
    uint8_t status = wire_read_u8(reader);
    if (status > SLUICE_ALREADY_EXISTS || final > WIRE_RUN_AGAIN ||
        (final == WIRE_RUN_AGAIN && status != SLUICE_OK)) {
        reader->failed = 1;
    }
    response->final = reader->failed ? WIRE_FINAL : (enum wire_final) final;
    response->status = (sluice_status)status;
    if (response->status != SLUICE_OK) {
        response->error = wire_read_text(reader);
    } else {
        response->n_outputs = wire_read_count(reader, WIRE_OUTPUT_LEAST);
        if (response->final == WIRE_RUN_AGAIN && response->n_outputs > 0) {
            reader->failed = 1;
        }
    }
}

void wire_read_output(struct wire_reader *reader, struct wire_output *output) {
    output->index = wire_read_u32(reader);
    uint8_t datatype = wire_read_u8(reader);
    output->rank = wire_read_u8(reader);
    output->offset = wire_read_u64(reader);
    output->n_bytes = wire_read_u64(reader);
    if (datatype < SLUICE_BOOL || datatype > SLUICE_BF16 || output->rank > WIRE_MAX_RANK) {
        reader->failed = 1;
    }
    output->datatype = (sluice_datatype)datatype;
    output->dims = take(reader, output->rank * sizeof(int64_t));
}

void wire_read_tensor(struct wire_reader *reader, struct wire_tensor *tensor) {
    tensor->name = wire_read_text(reader);
    uint8_t datatype = wire_read_u8(reader);
    tensor->optional = wire_read_u8(reader);
    tensor->rank = wire_read_u8(reader);
    if (datatype < SLUICE_BOOL || datatype > SLUICE_BF16 || tensor->rank > WIRE_MAX_RANK) {
        reader->failed = 1;
    }
    tensor->datatype = (sluice_datatype)datatype;
    tensor->dims = take(reader, tensor->rank * sizeof(int64_t));
}

void wire_copy_dims(struct wire_reader *reader, const struct wire_output *output, int64_t *dims) {
    if (reader->failed) {
        return;
    }
    memcpy(dims, output->dims, output->rank * sizeof(*dims));
    for (size_t i = 0; i < output->rank; i++) {
        if (dims[i] < 0) {
            reader->failed = 1;
        }
    }
}

void wire_read_param(struct wire_reader *reader, sluice_param *param) {
    struct wire_text name = wire_read_text(reader);
    uint8_t kind = wire_read_u8(reader);
    *param = (sluice_param){.name = name.ptr, .name_bytes = name.n_bytes};
    if (kind > SLUICE_PARAM_STRING) {
        reader->failed = 1;
        return;
    }
    param->kind = (sluice_param_kind)kind;
    if (param->kind == SLUICE_PARAM_STRING) {
        struct wire_text value = wire_read_text(reader);
        param->string = value.ptr;
        param->string_bytes = value.n_bytes;
        return;
    }
    uint64_t bits = wire_read_u64(reader);
    param->boolean = bits != 0;
    param->uint64 = bits;
    param->int64 = (int64_t)bits;
    memcpy(&param->number, &bits, sizeof(bits));
}

/* Returns: whether `n` items of at least so many bytes can be in what is left. */
static int can_have(const struct wire_reader *reader, uint32_t n, size_t n_least) {
    return n <= (reader->n_bytes - reader->at) / n_least;
}

void wire_read_call(struct wire_reader *reader, struct wire_call *call) {
    *call = (struct wire_call){.tag = wire_read_u32(reader)};
    call->parent = wire_read_u64(reader);
    uint8_t flags = wire_read_u8(reader);
    call->takes_many = flags & 1;
    call->waits = flags >> 1 & 1;
    call->sequence = wire_read_u64(reader);
    call->sequence_flags = wire_read_u32(reader);
    call->priority = wire_read_u64(reader);
    call->timeout_us = wire_read_u64(reader);
    uint32_t n_inputs = wire_read_u32(reader), n_wanted = wire_read_u32(reader);
    uint32_t n_params = wire_read_u32(reader);
    call->tail = wire_read_u32(reader);
    call->block = wire_read_u32(reader);
    call->model = wire_read_text(reader);
    call->version = wire_read_text(reader);
    call->id = wire_read_text(reader);
    call->sequence_name = wire_read_text(reader);
    if (reader->failed || call->tail > reader->n_bytes || call->tail % WIRE_TAIL_ALIGNMENT != 0 ||
        !can_have(reader, n_inputs, WIRE_CALL_INPUT_LEAST) ||
        !can_have(reader, n_wanted, sizeof(uint32_t)) ||
        !can_have(reader, n_params, WIRE_PARAM_LEAST)) {
        reader->failed = 1;
        return;
    }
    call->n_inputs = n_inputs;
    call->n_wanted = n_wanted;
    call->n_params = n_params;
}

void wire_read_manage(struct wire_reader *reader, struct wire_manage *manage) {
    *manage = (struct wire_manage){.tag = wire_read_u32(reader)};
    uint8_t action = wire_read_u8(reader);
    manage->flag = wire_read_u8(reader);
    manage->model = wire_read_text(reader);
    manage->version = wire_read_text(reader);
    manage->config = wire_read_text(reader);
    manage->n_files = wire_read_count(reader, 2 * sizeof(uint32_t));
    if (action > WIRE_UNLOAD) {
        reader->failed = 1;
    }
    manage->action = (enum wire_action)action;
}
