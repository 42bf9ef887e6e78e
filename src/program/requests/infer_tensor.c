/* Tensors from JSON, .npy files and raw bytes. */
#include "program/requests/infer_tensor.h"

#include <inttypes.h>
#include <string.h>

#include "codec/kserve/json_elements.h"
#include "core/tensor/bytes.h"
#include "program/requests/infer_shape.h"
#include "program/requests/json_text.h"
#include "program/requests/npy.h"

/* The shape: given, deduced, or the data's own (one dimension where it has none). */
static enum status choose_shape(struct arena *arena, const struct infer_extent *data,
                                const struct infer_known *known, struct tensor *out,
                                struct error *err) {
    if (known->has_shape) {
        out->shape = known->shape;
        return ST_OK;
    }
    if (known->spec) {
        return infer_shape_resolve(arena, data, known->spec, &out->shape, err);
    }
    if (data->has_shape) {
        out->shape = data->shape;
        return ST_OK;
    }
    int64_t *dims = arena_calloc(arena, 1, sizeof(*dims));
    dims[0] = (int64_t)data->n_elements;
    out->shape = (struct shape){dims, 1};
    return ST_OK;
}

/* Uses the bytes as the tensor; their number must match the shape. */
static enum status set_bytes(struct arena *arena, const struct infer_source *source,
                             struct str bytes, struct tensor *out, struct error *err) {
    uint64_t elements = 0, expected = 0;
    bool fits = out->datatype == DT_BYTES
                    ? shape_elements(out->shape, &elements) && elements == 1
                    : shape_bytes(out->shape, out->datatype, &expected) && expected == bytes.len;
    if (!fits) {
        char text[SHAPE_TEXT_BYTES];
        return error_set(err, ST_BAD_DATA,
                         "input \"%.*s\": %zu bytes of %s are not a tensor of shape %s",
                         STR_ARG(source->name), bytes.len, datatype_name(out->datatype),
                         shape_print(out->shape, text));
    }
    struct piece *piece = arena_alloc(arena, sizeof(*piece));
    *piece = (struct piece){bytes.ptr, bytes.len};
    out->pieces = piece;
    out->n_pieces = 1;
    out->n_bytes = bytes.len;
    return ST_OK;
}

/* One BYTES element: its length, then the bytes. */
static enum status frame_copy(struct arena *arena, const struct infer_source *source,
                              struct str *bytes, struct error *err) {
    if (bytes->len > UINT32_MAX) {
        return error_set(err, ST_BAD_DATA, "input \"%.*s\": an element has at most 4 GiB",
                         STR_ARG(source->name));
    }
    char *framed = arena_alloc(arena, bytes->len + 4);
    bytes_encode_length(framed, (uint32_t)bytes->len);
    memcpy(framed + 4, bytes->ptr, bytes->len);
    *bytes = str_make(framed, bytes->len + 4);
    return ST_OK;
}

static enum status from_raw(struct arena *arena, const struct infer_source *source,
                            const struct infer_known *known, struct tensor *out,
                            struct error *err) {
    struct str bytes = source->bytes;
    size_t size = datatype_size(out->datatype);
    struct infer_extent extent = {.n_elements = 1};
    enum status status = ST_OK;
    if (size == 0) {
        status = frame_copy(arena, source, &bytes, err);
    } else if (bytes.len % size != 0) {
        return error_set(
            err, ST_BAD_DATA, "input \"%.*s\": %s has %zu bytes, which is not a whole number of %s",
            STR_ARG(source->name), source->file, bytes.len, datatype_name(out->datatype));
    } else {
        extent.n_elements = bytes.len / size;
    }
    if (status == ST_OK) {
        status = choose_shape(arena, &extent, known, out, err);
    }
    return status == ST_OK ? set_bytes(arena, source, bytes, out, err) : status;
}

/* NumPy's name of a datatype. */
static const char *numpy_name(enum datatype datatype) {
    static const char *const names[DT_COUNT_] = {
        [DT_BOOL] = "bool",     [DT_UINT8] = "uint8",   [DT_UINT16] = "uint16",
        [DT_UINT32] = "uint32", [DT_UINT64] = "uint64", [DT_INT8] = "int8",
        [DT_INT16] = "int16",   [DT_INT32] = "int32",   [DT_INT64] = "int64",
        [DT_FP16] = "float16",  [DT_FP32] = "float32",  [DT_FP64] = "float64",
    };
    return names[datatype];
}

static enum status from_npy(struct arena *arena, const struct infer_source *source,
                            const struct infer_known *known, struct tensor *out,
                            struct error *err) {
    struct npy npy;
    enum status status = npy_decode(arena, source->bytes, source->file, &npy, err);
    if (status != ST_OK) {
        return status;
    }
    if (out->datatype != DT_INVALID && out->datatype != npy.datatype) {
        const char *name = numpy_name(out->datatype);
        error_set(err, ST_BAD_DATATYPE, "input \"%.*s\" is %s, and %s holds %s",
                  STR_ARG(source->name), datatype_name(out->datatype), source->file,
                  datatype_name(npy.datatype));
        if (name) {
            struct error why = *err;
            error_set(err, ST_BAD_DATATYPE, "%s; save a.astype('%s')", why.text, name);
        }
        return ST_BAD_DATATYPE;
    }
    out->datatype = npy.datatype;
    struct infer_extent extent = {.has_shape = true, .shape = npy.shape};
    (void)shape_elements(npy.shape, &extent.n_elements); /* npy_decode has checked it */
    status = choose_shape(arena, &extent, known, out, err);
    return status == ST_OK ? set_bytes(arena, source, npy.data, out, err) : status;
}

/* Numbers with commas, as people write them in an argument, are a list. */
static struct str list_of(struct arena *arena, const struct infer_source *source) {
    struct str text = str_trim(source->bytes);
    bool commas = source->kind == INFER_SOURCE_INLINE && text.len > 0 && text.ptr[0] != '[' &&
                  text.ptr[0] != '"' && memchr(text.ptr, ',', text.len);
    return commas ? arena_printf(arena, "[%.*s]", STR_ARG(text)) : source->bytes;
}

/* Can the text of an argument begin a JSON value, or a number that the data's reader takes? */
static bool may_be_value(struct str text) {
    static const struct str words[] = {STR("true"), STR("false"), STR("NaN"), STR("Infinity"),
                                       STR("null")};
    text = str_trim(text);
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
        if (str_starts_with(text, words[i])) {
            return true;
        }
    }
    return text.len > 0 && strchr("+-.0123456789[{\"", text.ptr[0]);
}

static enum status from_json(struct arena *arena, const struct infer_source *source,
                             const struct infer_known *known, struct tensor *out,
                             struct error *err) {
    struct infer_extent extent = {.n_elements = 1};
    struct str text = list_of(arena, source);
    if (source->kind == INFER_SOURCE_INLINE && !may_be_value(source->bytes)) {
        return error_set(err, ST_BAD_DATA,
                         "input \"%.*s\" takes %s, not \"%.*s\": write %.*s=%s, or %.*s=@FILE",
                         STR_ARG(source->name), datatype_name(out->datatype),
                         STR_ARG(str_trim(source->bytes)), STR_ARG(source->name),
                         out->datatype == DT_BOOL ? "true,false" : "1,2,3", STR_ARG(source->name));
    }
    enum status status = json_shape(arena, text, &extent.shape, err);
    if (status != ST_OK) {
        goto out;
    }
    extent.has_shape = extent.shape.rank > 0;
    if (!extent.has_shape) { /* a scalar */
        text = arena_printf(arena, "[%.*s]", STR_ARG(text));
    } else if (!shape_elements(extent.shape, &extent.n_elements)) {
        status = error_set(err, ST_BAD_SHAPE, "too many elements");
        goto out;
    }
    status = choose_shape(arena, &extent, known, out, err);
    if (status != ST_OK) {
        return status; /* the error names the input */
    }
    struct json_limits limits = {.max_json_size = text.len,
                                 .max_json_depth = SHAPE_MAX_RANK + 1,
                                 .max_tensor_elements = text.len};
    status = v2_data_text_parse(arena, text, &limits, out, err);
out:
    if (status != ST_OK) {
        error_prefix(err, "input \"%.*s\"", STR_ARG(source->name));
    }
    return status;
}

/* An argument is JSON, but for a BYTES input it may also be the element itself. */
static bool is_plain_text(const struct infer_source *source, enum datatype datatype) {
    struct str text = str_trim(source->bytes);
    return source->kind == INFER_SOURCE_INLINE && datatype == DT_BYTES &&
           !(text.len > 0 && (text.ptr[0] == '[' || text.ptr[0] == '"'));
}

enum status infer_tensor_read(struct arena *arena, const struct infer_source *source,
                              const struct infer_known *known, struct tensor *out,
                              struct error *err) {
    *out = (struct tensor){.name = source->name, .datatype = known->datatype};
    if (out->datatype == DT_INVALID && known->spec) {
        out->datatype = known->spec->datatype;
    }
    if (source->kind == INFER_SOURCE_NPY) {
        return from_npy(arena, source, known, out, err);
    }
    if (out->datatype == DT_INVALID && known->raw && source->kind == INFER_SOURCE_RAW) {
        out->datatype = DT_UINT8;
    }
    if (out->datatype == DT_INVALID) {
        return error_set(err, ST_BAD_DATATYPE,
                         "input \"%.*s\": its datatype is not known; give --datatype %.*s=TYPE",
                         STR_ARG(source->name), STR_ARG(source->name));
    }
    if (source->kind == INFER_SOURCE_RAW || is_plain_text(source, out->datatype)) {
        return from_raw(arena, source, known, out, err);
    }
    return from_json(arena, source, known, out, err);
}
