/* Requests and answers that use regions. Bytes are copied by the kernel, which says how many there
 * were: a region that has become shorter than it was is an error like others. */
#include <assert.h>
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/metric/metric.h"
#include "serve/frontend/shm_region.h"

enum { ALIGNMENT = 64 };

/* Finds the region, and sees that the part that is named lies in it. Returns: with a reference. */
static enum status find_region(struct shm_registry *registry, const char *kind, struct str tensor,
                               const struct infer_region *range, struct shm_region **out,
                               struct error *err) {
    char name[TENSOR_NAME_TEXT_BYTES];
    uint64_t end;
    *out = shm_region_find(registry, range->name);
    if (!*out) {
        return error_set(err, ST_NOT_FOUND, "%s %s: no such shared memory region", kind,
                         tensor_name_print(tensor, name));
    }
    uint64_t n_bytes = (*out)->spec.n_bytes;
    if (range->offset >= n_bytes || __builtin_add_overflow(range->offset, range->n_bytes, &end) ||
        end > n_bytes) {
        shm_region_unref(*out);
        *out = NULL;
        return error_set(err, ST_BAD_SHAPE,
                         "%s %s: shared_memory_offset and shared_memory_byte_size lead beyond the "
                         "end of the region",
                         kind, tensor_name_print(tensor, name));
    }
    return ST_OK;
}

/* ---- inputs ---------------------------------------------------------------------------------- */

static bool read_all(const struct shm_region *region, uint64_t offset, char *data, size_t n) {
    uint64_t at = region->spec.offset + offset; /* within the object when it was registered */
    while (n > 0) {
        ssize_t got = pread(region->fd, data, n, (off_t)at);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return false;
        }
        data += got;
        at += (uint64_t)got;
        n -= (size_t)got;
    }
    return true;
}

/* A few bytes of a request name any number of an object's: they count as if they had been sent. */
static enum status charge_memory(struct shm_registry *registry, struct shm_request *use, uint64_t n,
                                 struct error *err) {
    use->budget = shm_registry_budget(registry);
    if (!net_budget_reserve(use->budget, n)) {
        return error_set(err, ST_OVERLOADED,
                         "tensors in shared memory count as bodies in flight, which fill the %llu "
                         "bytes that they may take (--body-memory)",
                         (unsigned long long)use->budget->body_memory);
    }
    use->n_bytes += n;
    metric_add(METRIC_BODY_BYTES_IN_FLIGHT, (int64_t)n);
    return ST_OK;
}

void shm_request_fini(struct shm_request *use) {
    if (use->n_bytes > 0) {
        net_budget_release(use->budget, use->n_bytes);
        metric_add(METRIC_BODY_BYTES_IN_FLIGHT, -(int64_t)use->n_bytes);
        use->n_bytes = 0;
    }
}

/* The part of the region that is the input's. */
static enum status read_region(const struct shm_region *region, struct arena *arena,
                               struct infer_input *input, struct error *err) {
    struct tensor *tensor = &input->tensor;
    size_t n = (size_t)input->region.n_bytes;
    struct piece *piece = arena_alloc(arena, sizeof(*piece));
    char *data = n > 0 ? arena_alloc_aligned(arena, n, ALIGNMENT) : NULL;
    if (!piece || (n > 0 && !data)) {
        return error_set(err, ST_NO_MEMORY, "out of memory for a tensor in shared memory");
    }
    if (!read_all(region, input->region.offset, data, n)) {
        char name[TENSOR_NAME_TEXT_BYTES];
        return error_set(err, ST_BAD_SHAPE,
                         "input %s: the shared memory object is shorter than it was when its "
                         "region was registered",
                         tensor_name_print(tensor->name, name));
    }
    *piece = (struct piece){data, n};
    tensor->pieces = piece;
    tensor->n_pieces = n > 0 ? 1 : 0;
    tensor->n_bytes = n;
    metric_add(METRIC_COPIED_BYTES_TOTAL, (int64_t)n);
    return ST_OK;
}

static enum status read_input(struct shm_registry *registry, struct infer_request *request,
                              struct infer_input *input, struct shm_request *use,
                              struct error *err) {
    struct shm_region *region;
    enum status st =
        find_region(registry, "input", input->tensor.name, &input->region, &region, err);
    if (st != ST_OK) {
        return st;
    }
    assert(region);
    st = charge_memory(registry, use, input->region.n_bytes, err);
    if (st == ST_OK) {
        st = read_region(region, request->arena, input, err);
    }
    shm_region_unref(region);
    return st;
}

/* ---- outputs --------------------------------------------------------------------------------- */

static bool has_output_regions(const struct infer_request *request) {
    for (size_t i = 0; i < request->n_wanted; i++) {
        if (request->wanted[i].region.name.ptr) {
            return true;
        }
    }
    return false;
}

static enum status ref_output_regions(struct shm_registry *registry,
                                      const struct infer_request *request, struct shm_request *use,
                                      struct error *err) {
    if (!has_output_regions(request)) {
        return ST_OK;
    }
    use->regions = arena_calloc(request->arena, request->n_wanted, sizeof(struct shm_region *));
    if (!use->regions) {
        return error_set(err, ST_NO_MEMORY, "no memory for the request");
    }
    enum status st = ST_OK;
    for (; st == ST_OK && use->n < request->n_wanted; use->n++) {
        const struct infer_requested_output *wanted = &request->wanted[use->n];
        if (wanted->region.name.ptr) {
            st = find_region(registry, "output", wanted->name, &wanted->region,
                             &use->regions[use->n], err);
        }
    }
    return st;
}

enum status shm_request_read_inputs(struct shm_registry *registry, struct infer_request *request,
                                    struct shm_request *use, struct error *err) {
    enum status st = ref_output_regions(registry, request, use, err);
    for (size_t i = 0; st == ST_OK && i < request->n_inputs; i++) {
        if (request->inputs[i].region.name.ptr) {
            st = read_input(registry, request, &request->inputs[i], use, err);
        }
    }
    if (st != ST_OK) {
        shm_request_finish_outputs(use, request, &(struct infer_response){.error.status = st});
    }
    return st;
}

/* Writing behind the end would make the object longer again. */
static bool is_within_object(const struct shm_region *region, uint64_t end) {
    struct stat info;
    return fstat(region->fd, &info) == 0 && info.st_size >= 0 && end <= (uint64_t)info.st_size;
}

static bool write_all(const struct shm_region *region, uint64_t at, const char *data, size_t n) {
    while (n > 0) {
        ssize_t put = pwrite(region->fd, data, n, (off_t)at);
        if (put < 0 && errno == EINTR) {
            continue;
        }
        if (put <= 0) {
            return false;
        }
        data += put;
        at += (uint64_t)put;
        n -= (size_t)put;
    }
    return true;
}

static enum status write_output(const struct shm_region *region, const struct infer_region *range,
                                struct tensor *output, struct error *err) {
    char name[TENSOR_NAME_TEXT_BYTES];
    uint64_t at = region->spec.offset + range->offset;
    if (output->n_bytes > range->n_bytes) {
        return error_set(err, ST_BAD_OUTPUT,
                         "output %s: it has %zu bytes, more than its shared_memory_byte_size",
                         tensor_name_print(output->name, name), output->n_bytes);
    }
    bool written = is_within_object(region, at + output->n_bytes);
    for (size_t i = 0; written && i < output->n_pieces; i++) {
        written = write_all(region, at, output->pieces[i].data, output->pieces[i].n_bytes);
        at += output->pieces[i].n_bytes;
    }
    if (!written) {
        return error_set(err, ST_BAD_OUTPUT, "output %s: the shared memory cannot be written",
                         tensor_name_print(output->name, name));
    }
    metric_add(METRIC_COPIED_BYTES_TOTAL, (int64_t)output->n_bytes);
    output->n_pieces = 0;
    output->n_bytes = 0;
    return ST_OK;
}

void shm_request_finish_outputs(struct shm_request *use, const struct infer_request *request,
                                struct infer_response *response) {
    struct error err;
    for (size_t i = 0; i < use->n; i++) {
        struct shm_region *region = use->regions[i];
        if (region && response->error.status == ST_OK &&
            write_output(region, &request->wanted[i].region, &response->outputs[i], &err) !=
                ST_OK) {
            infer_response_release(response);
            response->error = err;
        }
        shm_region_unref(region);
    }
    use->regions = NULL;
    use->n = 0;
}
