/* Public functions for the data of tensors: names, copies, strings, 16-bit floats. */
#include <string.h>

#include "client/sized_struct.h"
#include "core/base/num.h"
#include "core/base/str.h"
#include "core/tensor/bytes.h"
#include "core/tensor/datatype.h"
#include "core/tensor/float16.h"
#include "sluice/client.h"

static bool is_datatype(int32_t datatype) {
    return datatype > (int32_t)DT_INVALID && datatype < (int32_t)DT_COUNT_;
}

const char *sluice_datatype_name(int32_t datatype) {
    return is_datatype(datatype) ? datatype_name((enum datatype)datatype) : "unknown";
}

size_t sluice_datatype_bytes(int32_t datatype) {
    return is_datatype(datatype) ? datatype_size((enum datatype)datatype) : 0;
}

size_t sluice_n_elements(const int64_t *dims, size_t rank) {
    size_t n = 1;
    for (size_t i = 0; i < rank; i++) {
        if (dims[i] == 0) {
            return 0;
        }
    }
    for (size_t i = 0; i < rank; i++) {
        if (dims[i] < 0 || __builtin_mul_overflow(n, (uint64_t)dims[i], &n)) {
            return SIZE_MAX;
        }
    }
    return n;
}

/* Is it in shared memory, and the caller has not set its address? */
static bool is_elsewhere(const sluice_tensor *tensor) {
    return !tensor->data && tensor->n_bytes > 0;
}

sluice_client_status sluice_tensor_read(const sluice_tensor *tensor, sluice_datatype datatype,
                                        void *out, size_t n) {
    size_t element_bytes = sluice_datatype_bytes((int32_t)tensor->datatype);
    if (tensor->datatype != datatype || element_bytes == 0 || is_elsewhere(tensor)) {
        return SLUICE_CLIENT_INVALID;
    }
    size_t n_here = tensor->n_bytes / element_bytes;
    if (n_here != n) {
        return n_here > n ? SLUICE_CLIENT_BUFFER_TOO_SMALL : SLUICE_CLIENT_NOT_FOUND;
    }
    if (n > 0) {
        memcpy(out, tensor->data, n * element_bytes);
    }
    return SLUICE_CLIENT_OK;
}

/* ---- strings --------------------------------------------------------------------------------- */

static size_t length_of(const char *const *texts, const size_t *lengths, size_t index) {
    return lengths ? lengths[index] : strlen(texts[index]);
}

size_t sluice_strings_bytes(const char *const *texts, const size_t *lengths, size_t n) {
    size_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        size_t n_text = length_of(texts, lengths, i);
        if (n_text > UINT32_MAX || __builtin_add_overflow(sum, BYTES_LENGTH_BYTES + n_text, &sum)) {
            return SIZE_MAX;
        }
    }
    return sum;
}

sluice_client_status sluice_strings_pack(const char *const *texts, const size_t *lengths, size_t n,
                                         void *out, size_t out_bytes) {
    size_t n_bytes = sluice_strings_bytes(texts, lengths, n);
    char *at = out;
    if (n_bytes == SIZE_MAX) {
        return SLUICE_CLIENT_INVALID;
    }
    if (n_bytes > out_bytes) {
        return SLUICE_CLIENT_BUFFER_TOO_SMALL;
    }
    for (size_t i = 0; i < n; i++) {
        size_t n_text = length_of(texts, lengths, i);
        bytes_encode_length(at, (uint32_t)n_text);
        if (n_text > 0) {
            memcpy(at + BYTES_LENGTH_BYTES, texts[i], n_text);
        }
        at += BYTES_LENGTH_BYTES + n_text;
    }
    return SLUICE_CLIENT_OK;
}

sluice_client_status sluice_strings_next(const sluice_tensor *tensor, size_t *at, const char **text,
                                         size_t *n_bytes) {
    if (tensor->datatype != SLUICE_BYTES || *at > tensor->n_bytes || is_elsewhere(tensor)) {
        return SLUICE_CLIENT_INVALID;
    }
    if (*at == tensor->n_bytes) {
        return SLUICE_CLIENT_NOT_FOUND;
    }
    struct str element;
    struct str rest = str_make((const char *)tensor->data + *at, tensor->n_bytes - *at);
    if (!bytes_next(&rest, &element)) {
        return SLUICE_CLIENT_PROTOCOL;
    }
    *at = tensor->n_bytes - rest.len;
    *text = element.ptr;
    *n_bytes = element.len;
    return SLUICE_CLIENT_OK;
}

/* ---- classes --------------------------------------------------------------------------------- */

sluice_client_status sluice_classes_next(const sluice_tensor *tensor, size_t *at,
                                         sluice_class *out) {
    struct str text, value, index;
    sluice_class made = {.size = sizeof(made)};
    size_t next = *at;
    if (sized_struct_check(out->size, "", NULL) != ST_OK) {
        return SLUICE_CLIENT_INVALID;
    }
    sluice_client_status status = sluice_strings_next(tensor, &next, &text.ptr, &text.len);
    if (status != SLUICE_CLIENT_OK) {
        return status;
    }
    value = str_cut(&text, ':');
    index = text.ptr ? str_cut(&text, ':') : text;
    if (!num_parse_f64(value, &made.value) || !num_parse_u64(index, &made.index)) {
        return SLUICE_CLIENT_PROTOCOL;
    }
    made.label = text.ptr;
    made.label_bytes = text.len;
    sized_struct_write(out, &made, sizeof(made));
    *at = next;
    return SLUICE_CLIENT_OK;
}

/* ---- 16-bit floats --------------------------------------------------------------------------- */

/* `out` and `in` may be unaligned and of either format. */
static void to_16_bits(void *out, const float *in, size_t n, uint16_t (*convert)(double)) {
    for (size_t i = 0; i < n; i++) {
        uint16_t bits = convert((double)in[i]);
        memcpy((char *)out + i * sizeof(bits), &bits, sizeof(bits));
    }
}

static void from_16_bits(float *out, const void *in, size_t n, float (*convert)(uint16_t)) {
    for (size_t i = 0; i < n; i++) {
        uint16_t bits;
        memcpy(&bits, (const char *)in + i * sizeof(bits), sizeof(bits));
        out[i] = convert(bits);
    }
}

void sluice_f16_from_f32(void *out, const float *in, size_t n) {
    to_16_bits(out, in, n, half_from_double);
}

void sluice_f16_to_f32(float *out, const void *in, size_t n) {
    from_16_bits(out, in, n, half_to_float);
}

void sluice_bf16_from_f32(void *out, const float *in, size_t n) {
    to_16_bits(out, in, n, bfloat_from_double);
}

void sluice_bf16_to_f32(float *out, const void *in, size_t n) {
    from_16_bits(out, in, n, bfloat_to_float);
}
