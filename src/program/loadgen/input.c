/* One tensor for each input of the model, given or generated. Arguments are matched to inputs by
 * name, and every name must be one of the model's. */
#include "program/loadgen/input.h"

#include <string.h>

#include "core/base/buf.h"
#include "core/base/checked.h"
#include "core/base/suggest.h"
#include "core/tensor/bytes.h"
#include "core/tensor/float16.h"
#include "program/requests/infer_shape.h"
#include "program/requests/infer_tensor.h"

/* ---- generated data -------------------------------------------------------------------------- */

enum { MAX_INTEGER = 100, N_LETTERS = 26 };
#define MAX_BYTES (UINT64_C(1) << 47) /* no process has more */

static void put_integer(char *at, size_t size, uint64_t value) {
    for (size_t i = 0; i < size; i++) {
        at[i] = (char)(value >> (8 * i));
    }
}

/* One element of a fixed size. */
static void put_random(char *at, enum datatype datatype, struct prng *random) {
    size_t size = datatype_size(datatype);
    double unit = prng_double(random);
    if (datatype == DT_FP32) {
        float value = (float)unit;
        memcpy(at, &value, sizeof(value));
    } else if (datatype == DT_FP64) {
        memcpy(at, &unit, sizeof(unit));
    } else if (datatype == DT_FP16) {
        put_integer(at, size, half_from_double(unit));
    } else if (datatype == DT_BF16) {
        put_integer(at, size, bfloat_from_double(unit));
    } else {
        put_integer(at, size, (uint64_t)(unit * (datatype == DT_BOOL ? 2 : MAX_INTEGER + 1)));
    }
}

enum status bench_data_generate(struct arena *arena, const struct bench_data_options *fill,
                                enum datatype datatype, struct shape shape, struct str *out,
                                struct error *err) {
    char text[SHAPE_TEXT_BYTES];
    uint64_t n;
    size_t n_bytes, size = datatype_size(datatype);
    uint64_t n_letters = fill->zeros ? 0 : fill->text_size;
    if (datatype == DT_BYTES) {
        size = 4 + (size_t)n_letters;
    }
    if (!shape_elements(shape, &n) || !checked_mul(n, size, &n_bytes) || n_bytes > MAX_BYTES) {
        return error_set(err, ST_BAD_SHAPE, "the shape %s has too many elements",
                         shape_print(shape, text));
    }
    char *bytes = arena_alloc(arena, n_bytes);
    *out = str_make(bytes, n_bytes);
    if (fill->zeros) {
        memset(bytes, 0, n_bytes);
        return ST_OK;
    }
    for (size_t at = 0; at < n_bytes; at += size) {
        if (datatype == DT_BYTES) {
            bytes_encode_length(bytes + at, (uint32_t)n_letters);
            for (uint64_t i = 0; i < n_letters; i++) {
                bytes[at + 4 + i] = (char)('a' + prng_next(fill->random) % N_LETTERS);
            }
        } else {
            put_random(bytes + at, datatype, fill->random);
        }
    }
    return ST_OK;
}

/* The input being made. */
struct maker {
    struct arena *arena;
    const struct bench_options *options;
    const struct tensor_spec *spec;
    bool has_shape;
    struct shape shape; /* --shape */
};

/* ---- arguments by name ----------------------------------------------------------------------- */

/* *value: the value of an item NAME=VALUE (with `colon` also NAME:VALUE). Returns: its name. */
static struct str split_item(const char *item, bool colon, struct str *value) {
    *value = str_of(item);
    struct str name = str_cut(value, '=');
    if (!value->ptr && colon) {
        *value = str_of(item);
        name = str_cut(value, ':');
    }
    return name;
}

/* Returns: the item for `name`, or NULL. */
static const char *find_item(const struct option_texts *texts, bool colon, struct str name) {
    struct str value;
    for (size_t i = 0; i < texts->n; i++) {
        if (str_eq(split_item(texts->items[i], colon, &value), name) && value.ptr) {
            return texts->items[i];
        }
    }
    return NULL;
}

/* The error for a name that the model does not have. */
static enum status unknown_name(struct arena *arena, const char *flag, struct str name,
                                const struct model_spec *model, struct error *err) {
    struct suggestion suggestion = {0};
    char hint[SUGGEST_HINT_BYTES];
    struct buf names;
    buf_init(&names, arena, 0);
    for (size_t i = 0; i < model->n_inputs; i++) {
        struct str known = model->inputs[i].name;
        buf_printf(&names, "%s%.*s", i > 0 ? ", " : "", STR_ARG(known));
        suggest_consider(&suggestion, name, known);
    }
    return error_set(err, ST_BAD_CONFIG,
                     "--%s: model \"%.*s\" has no input \"%.*s\"%s (it has: %.*s)", flag,
                     STR_ARG(model->name), STR_ARG(name), suggest_hint(&suggestion, hint),
                     STR_ARG(buf_str(&names)));
}

/* Every item must be well formed and name an input of the model, each at most once. */
static enum status check_names(struct arena *arena, const char *flag, const char *form,
                               const struct option_texts *texts, const struct model_spec *model,
                               struct error *err) {
    bool colon = strcmp(flag, "shape") == 0;
    for (size_t i = 0; i < texts->n; i++) {
        struct str value, name = split_item(texts->items[i], colon, &value);
        bool known = false;
        for (size_t k = 0; k < model->n_inputs; k++) {
            known = known || str_eq(name, model->inputs[k].name);
        }
        if (!value.ptr) {
            return error_set(err, ST_BAD_CONFIG, "--%s %s: expected %s", flag, texts->items[i],
                             form);
        }
        if (!known) {
            return unknown_name(arena, flag, name, model, err);
        }
        if (find_item(texts, colon, name) != texts->items[i]) {
            return error_set(err, ST_BAD_CONFIG, "--%s is given twice for input \"%.*s\"", flag,
                             STR_ARG(name));
        }
    }
    return ST_OK;
}

/* ---- shapes ---------------------------------------------------------------------------------- */

static bool is_open(struct shape spec, size_t i) {
    return i < spec.rank && spec.dims[i] < 0;
}

/* The model's shape with variable dimensions resolved: the first is the batch, the others come
 * from --shape, or are 1. */
static enum status choose_shape(const struct maker *maker, struct shape *out, struct error *err) {
    struct shape spec = maker->spec->shape, said = maker->shape;
    char a[SHAPE_TEXT_BYTES], b[SHAPE_TEXT_BYTES];
    bool batched = is_open(spec, 0);
    int64_t batch = (int64_t)maker->options->batch;
    int64_t *dims = arena_calloc(maker->arena, spec.rank, sizeof(*dims));
    size_t n_missing = maker->has_shape && said.rank < spec.rank ? 1 : 0;
    for (size_t i = 0; i < spec.rank; i++) {
        dims[i] = is_open(spec, i) ? (i == 0 ? batch : 1) : spec.dims[i];
        if (maker->has_shape && i >= n_missing && i - n_missing < said.rank) {
            dims[i] = said.dims[i - n_missing];
        }
    }
    *out = (struct shape){dims, spec.rank};
    if (maker->has_shape && (said.rank + n_missing != spec.rank || (n_missing && !batched) ||
                             !shape_matches(*out, spec))) {
        return error_set(err, ST_BAD_CONFIG,
                         "--shape for input \"%.*s\": %s does not fit the model's %s",
                         STR_ARG(maker->spec->name), shape_print(said, a), shape_print(spec, b));
    }
    if (batch != 1 && (!batched || dims[0] != batch)) {
        return error_set(
            err, ST_BAD_CONFIG, "--batch %lld: the first dimension of input \"%.*s\" is %lld%s",
            (long long)batch, STR_ARG(maker->spec->name), spec.rank > 0 ? (long long)dims[0] : 1,
            batched ? " as --shape says" : "; the model takes no batches");
    }
    return ST_OK;
}

/* ---- one input ------------------------------------------------------------------------------- */

/* Repeats one batch element to fill the batch. */
static enum status repeat_copy(const struct maker *maker, struct shape *shape, struct str *bytes,
                               struct error *err) {
    size_t times = (size_t)maker->options->batch;
    if (times == 1 || (shape->rank > 0 && shape->dims[0] == (int64_t)times)) {
        return ST_OK;
    }
    if (!is_open(maker->spec->shape, 0) || shape->dims[0] != 1) {
        return error_set(
            err, ST_BAD_CONFIG,
            "--batch %zu: input \"%.*s\" was given with a first dimension of %lld; give "
            "one element, or all",
            times, STR_ARG(maker->spec->name), shape->rank > 0 ? (long long)shape->dims[0] : 1);
    }
    int64_t *dims = arena_calloc(maker->arena, shape->rank, sizeof(*dims));
    char *all = arena_alloc_array(maker->arena, times, bytes->len);
    memcpy(dims, shape->dims, shape->rank * sizeof(*dims));
    dims[0] = (int64_t)times;
    for (size_t i = 0; i < times; i++) {
        memcpy(all + i * bytes->len, bytes->ptr, bytes->len);
    }
    *shape = (struct shape){dims, shape->rank};
    *bytes = str_make(all, times * bytes->len);
    return ST_OK;
}

static enum status read_given(const struct maker *maker, const char *argument,
                              enum datatype *datatype, struct shape *shape, struct str *bytes,
                              struct error *err) {
    struct infer_source source;
    struct tensor tensor;
    struct infer_known known = {
        .has_shape = maker->has_shape, .shape = maker->shape, .spec = maker->spec};
    enum status status =
        infer_source_read(maker->arena, argument, INFER_MAX_INPUT_BYTES, &source, err);
    if (status == ST_OK) {
        status = infer_tensor_read(maker->arena, &source, &known, &tensor, err);
    }
    if (status == ST_OK) {
        struct buf all;
        buf_init(&all, maker->arena, tensor.n_bytes);
        for (size_t i = 0; i < tensor.n_pieces; i++) {
            buf_add(&all, tensor.pieces[i].data, tensor.pieces[i].n_bytes);
        }
        *bytes = buf_str(&all);
        *datatype = tensor.datatype;
        *shape = tensor.shape;
        status = repeat_copy(maker, shape, bytes, err);
    }
    return status;
}

static enum status make_input(const struct maker *maker, struct prng *random, struct tensor *out,
                              struct error *err) {
    struct bench_data_options fill = {.zeros = maker->options->data == BENCH_DATA_ZEROS,
                                      .text_size = maker->options->text_size,
                                      .random = random};
    const char *given = find_item(&maker->options->inputs, false, maker->spec->name);
    struct str bytes = {NULL, 0};
    enum status status;
    *out = (struct tensor){.name = maker->spec->name, .datatype = maker->spec->datatype};
    if (given) {
        status = read_given(maker, given, &out->datatype, &out->shape, &bytes, err);
    } else {
        status = choose_shape(maker, &out->shape, err);
        if (status == ST_OK && bench_data_generate(maker->arena, &fill, out->datatype, out->shape,
                                                   &bytes, err) != ST_OK) {
            status = error_prefix(err, "input \"%.*s\"", STR_ARG(out->name));
        }
    }
    struct piece *piece = arena_alloc(maker->arena, sizeof(*piece));
    *piece = (struct piece){bytes.ptr, bytes.len};
    out->pieces = piece;
    out->n_pieces = 1;
    out->n_bytes = bytes.len;
    return status;
}

/* Reads --shape for the input. */
static enum status read_shape(struct maker *maker, struct error *err) {
    const char *item = find_item(&maker->options->shapes, true, maker->spec->name);
    struct str text;
    maker->has_shape = item != NULL;
    if (item) {
        (void)split_item(item, true, &text);
        if (infer_shape_parse(maker->arena, text, &maker->shape, err) != ST_OK) {
            return error_prefix(err, "--shape %.*s", STR_ARG(maker->spec->name));
        }
    }
    return ST_OK;
}

enum status bench_inputs_read(struct arena *arena, const struct bench_options *options,
                              const struct model_spec *model, const struct tensor **out,
                              struct error *err) {
    struct tensor *made = arena_calloc(arena, model->n_inputs, sizeof(*made));
    *out = made;
    enum status status = check_names(arena, "input", "NAME=SOURCE", &options->inputs, model, err);
    if (status == ST_OK) {
        status = check_names(arena, "shape", "NAME=DIMS", &options->shapes, model, err);
    }
    for (size_t i = 0; i < model->n_inputs && status == ST_OK; i++) {
        struct prng random = {.state = options->seed + i};
        struct maker maker = {.arena = arena, .options = options, .spec = &model->inputs[i]};
        status = read_shape(&maker, err);
        if (status == ST_OK) {
            status = make_input(&maker, &random, &made[i], err);
        }
    }
    return status;
}
