/* Gives a backend elements at their own alignment. What already lies well is left where it lies;
 * the rest is copied and counted, so that a protocol which never places bodies well shows in the
 * metrics. It refuses to touch BYTES, whose elements have no alignment. */
#include "core/base/metric/metric.h"
#include "core/tensor/infer.h"
#include "core/tensor/pieces.h"

/* Pieces first … first + n - 1 hold `n_bytes`, a whole number of elements (the fewest pieces that
 * do, except at the end of a tensor of the wrong size, which infer_check refuses). */
struct run {
    size_t first;
    size_t n;
    size_t n_bytes;
};

static struct run run_at(const struct tensor *tensor, size_t first, size_t element) {
    struct run run = {.first = first};
    do {
        run.n_bytes += tensor->pieces[first + run.n].n_bytes;
        run.n++;
    } while (run.n_bytes % element != 0 && first + run.n < tensor->n_pieces);
    return run;
}

static bool run_is_aligned(const struct tensor *tensor, struct run run, size_t element) {
    return run.n == 1 && (uintptr_t)tensor->pieces[run.first].data % element == 0;
}

static bool tensor_is_aligned(const struct tensor *tensor, size_t element) {
    for (size_t i = 0; i < tensor->n_pieces; i++) {
        struct run run = run_at(tensor, i, element);
        if (run.n_bytes > 0 && !run_is_aligned(tensor, run, element)) {
            return false;
        }
        i += run.n - 1;
    }
    return true;
}

/* Returns: the bytes of the run in the arena, or NULL when out of memory. */
static void *run_copy(struct arena *arena, const struct tensor *tensor, struct run run) {
    char *data = arena_alloc(arena, run.n_bytes);
    if (data) {
        pieces_copy(tensor->pieces + run.first, run.n, data, run.n_bytes);
        metric_add(METRIC_COPIED_BYTES_TOTAL, (int64_t)run.n_bytes);
    }
    return data;
}

static bool tensor_align_copy(struct arena *arena, struct tensor *tensor, size_t element) {
    struct piece *pieces = arena_calloc(arena, tensor->n_pieces, sizeof(*pieces));
    size_t n = 0;
    if (!pieces) {
        return false;
    }
    for (size_t i = 0; i < tensor->n_pieces; i++) {
        struct run run = run_at(tensor, i, element);
        if (run.n_bytes > 0) {
            const void *data = tensor->pieces[i].data;
            if (!run_is_aligned(tensor, run, element)) {
                data = run_copy(arena, tensor, run);
            }
            if (!data) {
                return false;
            }
            pieces[n++] = (struct piece){data, run.n_bytes};
        }
        i += run.n - 1;
    }
    metric_add(METRIC_MISALIGNED_TOTAL, 1);
    tensor->pieces = pieces;
    tensor->n_pieces = n;
    return true;
}

enum status infer_align_copy(struct infer_request *request, struct error *err) {
    for (size_t i = 0; i < request->n_inputs; i++) {
        struct tensor *tensor = &request->inputs[i].tensor;
        size_t element = datatype_size(tensor->datatype);
        if (element <= 1 || tensor_is_aligned(tensor, element)) {
            continue;
        }
        if (!tensor_align_copy(request->arena, tensor, element)) {
            char name[TENSOR_NAME_TEXT_BYTES];
            return error_set(err, ST_NO_MEMORY,
                             "out of memory while aligning input %s of %zu bytes",
                             tensor_name_print(tensor->name, name), tensor->n_bytes);
        }
    }
    return ST_OK;
}
