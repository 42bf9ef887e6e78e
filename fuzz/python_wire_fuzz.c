/* What a Python worker sends: every message type, read as the backend reads it. Nothing outside of
 * the message is read, and what passes is within its bounds. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "python/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile unsigned sum;

static void check(bool holds) {
    if (!holds) {
        __builtin_trap();
    }
}

static void touch(const void *bytes, size_t n_bytes) {
    for (size_t i = 0; i < n_bytes; i++) {
        sum += ((const unsigned char *)bytes)[i];
    }
}

static void read_params(struct wire_reader *reader) {
    uint32_t n = wire_read_count(reader, WIRE_PARAM_LEAST);
    check(n <= reader->n_bytes / WIRE_PARAM_LEAST);
    for (uint32_t i = 0; i < n; i++) {
        sluice_param param;
        wire_read_param(reader, &param);
        touch(param.name, param.name_bytes);
        touch(param.string, param.string_bytes);
    }
}

static void read_response(struct wire_reader *reader) {
    struct wire_response response;
    wire_read_response(reader, &response);
    touch(response.error.ptr, response.error.n_bytes);
    check(response.n_outputs <= reader->n_bytes / WIRE_OUTPUT_LEAST);
    for (uint32_t i = 0; i < response.n_outputs && !reader->failed; i++) {
        struct wire_output output;
        int64_t dims[WIRE_MAX_RANK];
        wire_read_output(reader, &output);
        wire_copy_dims(reader, &output, dims);
        for (size_t k = 0; k < output.rank && !reader->failed; k++) {
            check(dims[k] >= 0);
        }
    }
    if (response.status == SLUICE_OK) {
        read_params(reader);
    }
}

static void read_result(struct wire_reader *reader) {
    struct wire_result result;
    wire_read_result(reader, &result);
    check(result.n_responses <= reader->n_bytes / WIRE_RESPONSE_LEAST);
    check(reader->failed || result.tail <= reader->n_bytes);
    for (uint32_t i = 0; i < result.n_responses && !reader->failed; i++) {
        read_response(reader);
    }
    uint32_t n = wire_read_count(reader, sizeof(uint32_t));
    for (uint32_t i = 0; i < n; i++) {
        sum += wire_read_u32(reader);
    }
    check(n == 0 || !reader->failed);
}

static void touch_text(struct wire_text text) {
    touch(text.ptr, text.n_bytes);
}

static void read_call(struct wire_reader *reader) {
    struct wire_call call;
    wire_read_call(reader, &call);
    check(call.n_inputs <= reader->n_bytes / WIRE_CALL_INPUT_LEAST);
    check(call.n_wanted <= reader->n_bytes / sizeof(uint32_t));
    check(call.n_params <= reader->n_bytes / WIRE_PARAM_LEAST);
    check(reader->failed || call.tail <= reader->n_bytes);
    touch_text(call.model);
    touch_text(call.version);
    touch_text(call.id);
    touch_text(call.sequence_name);
    for (uint32_t i = 0; i < call.n_inputs && !reader->failed; i++) {
        struct wire_output input;
        int64_t dims[WIRE_MAX_RANK];
        touch_text(wire_read_text(reader));
        wire_read_output(reader, &input);
        wire_copy_dims(reader, &input, dims);
        for (size_t k = 0; k < input.rank && !reader->failed; k++) {
            check(dims[k] >= 0);
        }
    }
    for (uint32_t i = 0; i < call.n_wanted; i++) {
        touch_text(wire_read_text(reader));
    }
    for (uint32_t i = 0; i < call.n_params && !reader->failed; i++) {
        sluice_param param;
        wire_read_param(reader, &param);
        touch(param.name, param.name_bytes);
        touch(param.string, param.string_bytes);
    }
}

static void read_manage(struct wire_reader *reader) {
    struct wire_manage manage;
    wire_read_manage(reader, &manage);
    touch_text(manage.model);
    touch_text(manage.version);
    touch_text(manage.config);
    check(reader->failed || manage.action <= WIRE_UNLOAD);
    check(manage.n_files <= reader->n_bytes / (2 * sizeof(uint32_t)));
    for (uint32_t i = 0; i < manage.n_files; i++) {
        touch_text(wire_read_text(reader));
        touch_text(wire_read_text(reader));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct wire_head head;
    struct wire_reader reader;
    if (size < WIRE_HEAD_BYTES || !wire_head_read(data, &head)) {
        return 0;
    }
    wire_reader_init(&reader, data, size);
    if (head.type == WIRE_RESULT) {
        read_result(&reader);
    } else if (head.type == WIRE_CALL) {
        read_call(&reader);
    } else if (head.type == WIRE_MANAGE) {
        read_manage(&reader);
    } else {
        struct wire_text text = wire_read_text(&reader);
        touch(text.ptr, text.n_bytes);
        sum += (unsigned)(wire_read_u64(&reader) + wire_read_u8(&reader));
    }
    check(reader.at <= reader.n_bytes);
    return 0;
}
