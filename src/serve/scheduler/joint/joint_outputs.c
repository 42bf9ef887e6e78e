/* Parts are taken one after the other from the front of an output, so none can overlap or reach
 * beyond it. */
#include "serve/scheduler/joint/joint_outputs.h"

#include <inttypes.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/base/metric/metric.h"
#include "core/tensor/bytes.h"
#include "serve/scheduler/joint/joint_inputs.h"

enum { PART_ALIGNMENT = 64 };

/* One output while it is divided. */
struct division {
    struct arena *arena;
    const struct batch_layout *layout;
    const struct layout_output *target;
    const sluice_request *joint;
    const sluice_request *const *requests;
    size_t n;
    const sluice_output *output;
    struct str rest; /* bytes that no request has yet */
    struct error *err;
};

static enum status division_fail(const struct division *division, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static enum status division_fail(const struct division *division, const char *format, ...) {
    va_list args;
    va_start(args, format);
    error_setv(division->err, ST_BACKEND_FAILED, format, args);
    va_end(args);
    return error_prefix(division->err, "output \"%s\" of a batch", division->target->name);
}

/* Takes the next `n` elements. Returns: false when there are fewer. */
static bool take_elements(struct division *division, uint64_t n, struct str *out) {
    size_t size = datatype_size((enum datatype)division->output->datatype), n_bytes;
    struct str rest = division->rest, element;
    if (size > 0) {
        if (n > SIZE_MAX || !checked_mul((size_t)n, size, &n_bytes) || n_bytes > rest.len) {
            return false;
        }
    } else {
        for (uint64_t i = 0; i < n; i++) {
            if (!bytes_next(&rest, &element)) {
                return false;
            }
        }
        n_bytes = division->rest.len - rest.len;
    }
    *out = str_make(division->rest.ptr, n_bytes);
    division->rest = str_make(division->rest.ptr + n_bytes, division->rest.len - n_bytes);
    return true;
}

/* Describes the part of a request: the output's datatype with these bytes. */
static void part_set(const struct division *division, struct shape shape, struct str bytes,
                     sluice_output *part) {
    *part = *division->output;
    part->dims = shape.dims;
    part->rank = shape.rank;
    part->data = bytes.ptr;
    part->n_bytes = bytes.len;
}

static int64_t *dims_new(const struct division *division, size_t rank) {
    int64_t *dims = arena_calloc(division->arena, rank, sizeof(*dims));
    if (!dims) {
        error_no_memory(division->err, "the outputs of a batch");
    }
    return dims;
}

static uint64_t count_rows(const struct division *division) {
    uint64_t rows = 0;
    for (size_t i = 0; i < division->n; i++) {
        rows += division->requests[i]->batch;
    }
    return rows;
}

static enum status check_rows(const struct division *division) {
    const sluice_output *output = division->output;
    uint64_t rows = count_rows(division);
    if (output->rank == 0 || (uint64_t)output->dims[0] != rows) {
        return division_fail(division, "expected %" PRIu64 " rows, got %" PRId64, rows,
                             output->rank == 0 ? 0 : output->dims[0]);
    }
    return ST_OK;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Takes the rows of a request, of the output's own shape. */
static enum status take_rows(struct division *division, size_t i, sluice_output *part) {
    const sluice_output *output = division->output;
    int64_t *dims = dims_new(division, output->rank);
    struct str bytes = {NULL, 0};
    uint64_t n = 0;
    if (!dims) {
        return ST_NO_MEMORY;
    }
    memcpy(dims, output->dims, output->rank * sizeof(*dims));
    dims[0] = (int64_t)division->requests[i]->batch;
    struct shape shape = {dims, output->rank};
    if (!shape_elements(shape, &n) || !take_elements(division, n, &bytes)) {
        return division_fail(division, "it is shorter than its shape says");
    }
    part_set(division, shape, bytes, part);
    return ST_OK;
}

/* A request that is alone gets the output as it is. */
static enum status divide_rows(struct division *division, sluice_output *parts, size_t step) {
    if (division->n == 1) {
        parts[0] = *division->output;
        return ST_OK;
    }
    enum status st = check_rows(division);
    for (size_t i = 0; st == ST_OK && i < division->n; i++) {
        st = take_rows(division, i, &parts[i * step]);
    }
    return st;
}

/* ---- scattered ------------------------------------------------------------------------------- */

static enum status take_scattered(struct division *division, size_t i, sluice_output *part) {
    struct shape shape = division->target->shape;
    const sluice_input *source = joint_input_find(division->requests[i], division->target->source);
    int64_t *dims = dims_new(division, shape.rank);
    struct str bytes = {NULL, 0};
    uint64_t n = 0;
    if (!dims) {
        return ST_NO_MEMORY;
    }
    for (size_t d = 0; d < shape.rank; d++) {
        dims[d] = shape.dims[d] < 0 ? source->dims[d] : shape.dims[d];
    }
    shape.dims = dims;
    if (!shape_elements(shape, &n) || !take_elements(division, n, &bytes)) {
        return division_fail(division, "it has fewer elements than the shapes of input \"%s\" say",
                             source->name);
    }
    part_set(division, shape, bytes, part);
    return ST_OK;
}

static enum status divide_scattered(struct division *division, sluice_output *parts, size_t step) {
    enum status st = ST_OK;
    for (size_t i = 0; st == ST_OK && i < division->n; i++) {
        st = take_scattered(division, i, &parts[i * step]);
    }
    return st == ST_OK && division->rest.len > 0
               ? division_fail(division, "it has more elements than the shapes of its source say")
               : st;
}

/* ---- cut ------------------------------------------------------------------------------------- */

/* Rows of the padded shape `from` that lose the end of their dimensions. */
struct cut {
    struct shape from, to;
    size_t last;                    /* the last dimension that is shorter */
    size_t strides[SHAPE_MAX_RANK]; /* bytes of an index of each dimension of `from` */
};

/* Recursion: as deep as the rank. */
static void copy_cut(const struct cut *cut, size_t d, const char *from, char **to) {
    size_t n = (size_t)cut->to.dims[d];
    if (d == cut->last) {
        if (n > 0) {
            memcpy(*to, from, n * cut->strides[d]);
        }
        *to += n * cut->strides[d];
        return;
    }
    for (size_t i = 0; i < n; i++) {
        copy_cut(cut, d + 1, from + i * cut->strides[d], to);
    }
}

/* The bytes that are left of the rows: their beginning where nothing follows that is kept, else a
 * copy. */
static enum status cut_bytes(const struct division *division, struct cut *cut, struct str rows,
                             struct str *out) {
    size_t n_bytes = datatype_size((enum datatype)division->output->datatype), n_before = 1;
    for (size_t d = cut->from.rank; d > 0; d--) {
        cut->strides[d - 1] = n_bytes;
        n_bytes *= (size_t)cut->from.dims[d - 1]; /* the rows exist: no overflow, or 0 */
    }
    uint64_t left = 0;
    if (!shape_bytes(cut->to, (enum datatype)division->output->datatype, &left) ||
        left > rows.len) {
        return division_fail(division, "it cannot be cut");
    }
    for (size_t d = 0; d < cut->last && n_before <= 1; d++) {
        n_before *= (size_t)cut->to.dims[d];
    }
    *out = str_make(rows.ptr, (size_t)left);
    if (left == rows.len || left == 0 || n_before <= 1) {
        return ST_OK;
    }
    char *copy = arena_alloc_aligned(division->arena, (size_t)left, PART_ALIGNMENT);
    if (!copy) {
        return error_no_memory(division->err, "the outputs of a batch");
    }
    out->ptr = copy;
    copy_cut(cut, 0, rows.ptr, &copy);
    metric_add(METRIC_COPIED_BYTES_TOTAL, (int64_t)left);
    return ST_OK;
}

/* A free dimension of the output belongs to that of the source with the same place among the free
 * ones, or to its only one. */
static enum status cut_dims(const struct division *division, const sluice_request *request,
                            const sluice_output *part, int64_t *dims, size_t *last) {
    const struct layout_output *target = division->target;
    struct shape source_shape = division->layout->inputs[target->source].shape;
    const sluice_input *own = joint_input_find(request, target->source);
    const sluice_input *joint = joint_input_find(division->joint, target->source);
    bool one = joint_free_dim(source_shape, 1) == source_shape.rank;
    size_t n_free = 0;
    for (size_t d = 1; d < part->rank; d++) {
        dims[d] = part->dims[d];
        if (target->shape.dims[d] >= 0) {
            continue;
        }
        size_t of = joint_free_dim(source_shape, one ? 0 : n_free++);
        if (part->dims[d] != joint->dims[of]) {
            return division_fail(division,
                                 "dimension %zu is %" PRId64 ", input \"%s\" was padded to %" PRId64
                                 " (sluice.pad_cut)",
                                 d, part->dims[d], joint->name, joint->dims[of]);
        }
        dims[d] = own->dims[of];
        *last = dims[d] < part->dims[d] ? d : *last;
    }
    return ST_OK;
}

static enum status take_cut(struct division *division, size_t i, sluice_output *part) {
    enum status st = take_rows(division, i, part);
    int64_t *dims = st == ST_OK ? dims_new(division, part->rank) : NULL;
    struct cut cut = {.from = {part->dims, part->rank}, .to = {dims, part->rank}};
    struct str bytes = {NULL, 0};
    if (!dims) {
        return division->err->status;
    }
    dims[0] = part->dims[0];
    st = cut_dims(division, division->requests[i], part, dims, &cut.last);
    if (st == ST_OK) {
        st = cut_bytes(division, &cut, str_make(part->data, part->n_bytes), &bytes);
    }
    if (st == ST_OK) {
        part_set(division, cut.to, bytes, part);
    }
    return st;
}

static enum status divide_cut(struct division *division, sluice_output *parts, size_t step) {
    enum status st = check_rows(division);
    if (st == ST_OK && division->output->rank != division->target->shape.rank) {
        st = division_fail(division, "expected %zu dimensions, got %zu",
                           division->target->shape.rank, division->output->rank);
    }
    for (size_t i = 0; st == ST_OK && i < division->n; i++) {
        st = take_cut(division, i, &parts[i * step]);
    }
    return st;
}

/* ---- outputs --------------------------------------------------------------------------------- */

static enum status divide_output(struct division *division, sluice_output *parts, size_t step) {
    switch (division->target->kind) {
    case OUTPUT_ROWS:
        return divide_rows(division, parts, step);
    case OUTPUT_SCATTERED:
        return divide_scattered(division, parts, step);
    case OUTPUT_CUT:
        break;
    }
    return divide_cut(division, parts, step);
}

static struct str output_bytes(const sluice_output *output) {
    return str_make(output->n_bytes > 0 ? output->data : "", output->n_bytes);
}

enum status joint_outputs_divide(struct arena *arena, const struct batch_layout *layout,
                                 const sluice_request *joint, const sluice_request *const *requests,
                                 size_t n, const sluice_response *response, sluice_output **parts,
                                 struct error *err) {
    struct division division = {
        .arena = arena, .layout = layout, .joint = joint, .requests = requests, .n = n, .err = err};
    size_t n_parts;
    bool fits = checked_mul(n, response->n_outputs, &n_parts);
    enum status st = ST_OK;
    *parts = fits ? arena_calloc(arena, n_parts, sizeof(**parts)) : NULL;
    if (!*parts) {
        return error_no_memory(err, "the outputs of a batch");
    }
    for (size_t k = 0; st == ST_OK && k < response->n_outputs; k++) {
        division.output = &response->outputs[k];
        division.target = &layout->outputs[division.output->index];
        division.rest = output_bytes(division.output);
        st = divide_output(&division, *parts + k, response->n_outputs);
    }
    return st;
}
