/* Shared memory regions: a list under a lock, each with the open object and a reference count; and
 * the copies between regions and requests. */
#include "serve/frontend/shm_registry.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/metric/metric.h"
#include "core/event/lock.h"

enum { MAX_REGIONS = 1024 /* each has an open file descriptor */, ALIGNMENT = 64 };

struct shm_region {
    struct v2_shared_memory_region spec; /* as registered */
    char *text;                          /* storage of name and key */
    int fd;
    atomic_size_t refs; /* the list, and each request that uses it */
    TAILQ_ENTRY(shm_region) link;
};

TAILQ_HEAD(shm_region_list, shm_region);

struct shm_registry {
    struct shm_registry_options options;
    struct lock lock;
    struct shm_region_list regions; /* in order of registration */
    size_t n;
};

struct shm_registry *shm_registry_new(const struct shm_registry_options *options) {
    struct shm_registry *registry = calloc(1, sizeof(*registry));
    if (registry) {
        registry->options = *options;
        TAILQ_INIT(&registry->regions);
        lock_init(&registry->lock);
    }
    return registry;
}

/* ---- a region -------------------------------------------------------------------------------- */

static void region_unref(struct shm_region *region) {
    if (region && atomic_fetch_sub_explicit(&region->refs, 1, memory_order_acq_rel) == 1) {
        metric_add(METRIC_SHARED_REGIONS, -1);
        close(region->fd);
        free(region->text);
        free(region);
    }
}

/* Returns: the region of that name; NULL: there is none. */
static struct shm_region *lookup_region(struct shm_registry *registry, struct str name) {
    struct shm_region *region;
    lock_assert_held(&registry->lock);
    TAILQ_FOREACH(region, &registry->regions, link) {
        if (str_eq(region->spec.name, name)) {
            return region;
        }
    }
    return NULL;
}

/* Messages that clients compare begin as the reference server's do, but repeat no name or key. */

/* ---- register -------------------------------------------------------------------------------- */

static enum status error_disabled(struct error *err) {
    return error_set(
        err, ST_UNSUPPORTED,
        "Client shared memory is disabled: clients cannot share memory with this server "
        "(--allow-client-shm)");
}

static struct str skip_slashes(struct str key) {
    while (key.len > 0 && key.ptr[0] == '/') {
        key = str_make(key.ptr + 1, key.len - 1);
    }
    return key;
}

static bool is_allowed(const struct shm_registry_options *options, struct str key) {
    bool fits = options->n_client_shm_prefixes == 0;
    for (size_t i = 0; !fits && i < options->n_client_shm_prefixes; i++) {
        fits = str_starts_with(key, skip_slashes(str_of(options->client_shm_prefixes[i])));
    }
    return fits;
}

/* `key`: leading slashes are removed. */
static enum status check_key(const struct shm_registry *registry, struct str key,
                             struct error *err) {
    if (key.len == 0 || key.len >= NAME_MAX || memchr(key.ptr, '/', key.len) ||
        memchr(key.ptr, '\0', key.len) || str_is(key, ".") || str_is(key, "..")) {
        return error_set(err, ST_BAD_FIELD, "key: expected the name of a shared memory object");
    }
    if (str_starts_with(key, STR("triton_python_backend_shm_region_"))) {
        return error_set(err, ST_BAD_FIELD, "key: begins with a prefix that is reserved");
    }
    if (!is_allowed(&registry->options, key)) {
        return error_set(err, ST_BAD_FIELD,
                         "key: begins with none of the allowed prefixes (--client-shm-prefix)");
    }
    return ST_OK;
}

/* Checks that the region is inside its object. */
static enum status check_size(int fd, const struct v2_shared_memory_region *spec,
                              struct error *err) {
    struct stat info;
    uint64_t end;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size < 0) {
        return error_set(err, ST_BAD_FIELD, "the shared memory object cannot be opened");
    }
    if (__builtin_add_overflow(spec->offset, spec->n_bytes, &end) || end > INT64_MAX ||
        end > (uint64_t)info.st_size) {
        return error_set(
            err, ST_BAD_SHAPE,
            "failed to register shared memory region: invalid args: offset and byte_size "
            "exceed the size of the shared memory object");
    }
    return ST_OK;
}

static enum status open_object(struct str key, int *out, struct error *err) {
    char path[NAME_MAX + 2] = "/";
    assert(key.len < NAME_MAX);
    memcpy(path + 1, key.ptr, key.len);
    *out = shm_open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK, 0);
    return *out >= 0 ? ST_OK
                     : error_set(err, status_of_errno(errno, ST_BAD_FIELD),
                                 "the shared memory object cannot be opened");
}

/* Owns: `fd`, unless it returns NULL. */
static struct shm_region *region_new(const struct v2_shared_memory_region *spec, int fd) {
    struct shm_region *region = calloc(1, sizeof(*region));
    char *text = malloc(spec->name.len + spec->key.len);
    if (!region || !text) {
        free(region);
        free(text);
        return NULL;
    }
    memcpy(text, spec->name.ptr, spec->name.len);
    memcpy(text + spec->name.len, spec->key.ptr, spec->key.len);
    region->text = text;
    region->spec = *spec;
    region->spec.name.ptr = text;
    region->spec.key.ptr = text + spec->name.len;
    region->fd = fd;
    atomic_init(&region->refs, 1);
    metric_add(METRIC_SHARED_REGIONS, 1);
    return region;
}

static enum status add_region(struct shm_registry *registry, struct shm_region *region,
                              struct error *err) {
    enum status st = ST_OK;
    lock_acquire(&registry->lock);
    if (lookup_region(registry, region->spec.name)) {
        st = error_set(err, ST_ALREADY_EXISTS, "a region of that name is registered already");
    } else if (registry->n == MAX_REGIONS) {
        st = error_set(err, ST_OVERLOADED, "there are %d regions already", MAX_REGIONS);
    } else {
        TAILQ_INSERT_TAIL(&registry->regions, region, link);
        registry->n++;
    }
    lock_release(&registry->lock);
    return st;
}

static enum status open_region(const struct v2_shared_memory_region *spec, struct str key,
                               struct shm_region **out, struct error *err) {
    int fd;
    enum status st = open_object(key, &fd, err);
    if (st != ST_OK) {
        return st;
    }
    st = check_size(fd, spec, err);
    if (st == ST_OK) {
        *out = region_new(spec, fd);
        st = *out ? ST_OK : error_no_memory(err, "the region");
    }
    if (st != ST_OK) {
        close(fd);
    }
    return st;
}

enum status shm_register_region(struct shm_registry *registry,
                                const struct v2_shared_memory_region *spec, struct error *err) {
    struct str key = skip_slashes(spec->key);
    struct shm_region *region = NULL;
    if (!registry->options.allow_client_shm) {
        return error_disabled(err);
    }
    if (spec->name.len == 0) {
        return error_set(err, ST_BAD_FIELD, "expected a name for the region");
    }
    if (spec->n_bytes == 0) {
        return error_set(
            err, ST_BAD_FIELD,
            "failed to register shared memory region: invalid args: byte_size: expected at "
            "least 1");
    }
    enum status st = check_key(registry, key, err);
    if (st == ST_OK) {
        st = open_region(spec, key, &region, err);
    }
    if (st == ST_OK) {
        st = add_region(registry, region, err);
        if (st != ST_OK) {
            region_unref(region);
        }
    }
    return st;
}

/* ---- unregister, status ---------------------------------------------------------------------- */

static void unref_all(struct shm_region_list *regions) {
    struct shm_region *region;
    while ((region = TAILQ_FIRST(regions))) {
        TAILQ_REMOVE(regions, region, link);
        region_unref(region);
    }
}

static void remove_all_regions(struct shm_registry *registry, struct shm_region_list *removed) {
    lock_assert_held(&registry->lock);
    TAILQ_CONCAT(removed, &registry->regions, link);
    registry->n = 0;
}

static void remove_region(struct shm_registry *registry, struct str name,
                          struct shm_region_list *removed) {
    struct shm_region *region = lookup_region(registry, name);
    if (region) {
        TAILQ_REMOVE(&registry->regions, region, link);
        TAILQ_INSERT_TAIL(removed, region, link);
        registry->n--;
    }
}

enum status shm_unregister_region(struct shm_registry *registry, struct str name,
                                  struct error *err) {
    struct shm_region_list removed = TAILQ_HEAD_INITIALIZER(removed);
    if (!registry->options.allow_client_shm) {
        return error_disabled(err);
    }
    lock_acquire(&registry->lock);
    if (name.len == 0) {
        remove_all_regions(registry, &removed);
    } else {
        remove_region(registry, name, &removed);
    }
    lock_release(&registry->lock);
    unref_all(&removed);
    return ST_OK;
}

enum status shm_visit_regions(struct shm_registry *registry, struct str name,
                              void (*visit)(void *user,
                                            const struct v2_shared_memory_region *region),
                              void *user, struct error *err) {
    bool found = name.len == 0;
    const struct shm_region *region;
    lock_acquire(&registry->lock);
    TAILQ_FOREACH(region, &registry->regions, link) {
        if (name.len == 0 || str_eq(region->spec.name, name)) {
            found = true;
            visit(user, &region->spec);
        }
    }
    lock_release(&registry->lock);
    return found ? ST_OK : error_set(err, ST_NOT_FOUND, "no such shared memory region");
}

void shm_registry_free(struct shm_registry *registry) {
    if (registry) {
        unref_all(&registry->regions);
        lock_fini(&registry->lock);
        free(registry);
    }
}

/* ---- requests: regions ----------------------------------------------------------------------- */

/* Finds the region, and checks that the range is inside it. Returns: *out with a reference. */
static enum status find_region(struct shm_registry *registry, const char *kind, struct str tensor,
                               const struct infer_region *range, struct shm_region **out,
                               struct error *err) {
    char name[QUOTED_NAME_BYTES];
    uint64_t end;
    lock_acquire(&registry->lock);
    *out = lookup_region(registry, range->name);
    if (*out) {
        atomic_fetch_add_explicit(&(*out)->refs, 1, memory_order_relaxed);
    }
    lock_release(&registry->lock);
    if (!*out) {
        return error_set(err, ST_NOT_FOUND, "%s %s: no such shared memory region", kind,
                         quote_name(tensor, name));
    }
    const uint64_t n_bytes = (*out)->spec.n_bytes;
    const bool begins_outside = range->offset >= n_bytes;
    if (begins_outside || __builtin_add_overflow(range->offset, range->n_bytes, &end) ||
        end > n_bytes) {
        region_unref(*out);
        *out = NULL;
        return error_set(err, ST_BAD_SHAPE,
                         "Invalid offset%s for shared memory region: %s %s: shared_memory_offset "
                         "and shared_memory_byte_size exceed the size of the region",
                         begins_outside ? "" : " + byte size", kind, quote_name(tensor, name));
    }
    return ST_OK;
}

/* ---- requests: inputs ------------------------------------------------------------------------ */

enum { READ_BYTES = 16 << 20 };

static bool read_all(const struct shm_region *region, uint64_t offset, char *data, size_t n,
                     const struct arena *arena) {
    uint64_t at = region->spec.offset + offset; /* was inside the object at registration */
    while (n > 0 && !arena_is_cancelled(arena)) {
        ssize_t got = pread(region->fd, data, n < READ_BYTES ? n : READ_BYTES, (off_t)at);
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
    return n == 0;
}

/* A short request can name large regions: their bytes count against the body budget as if they had
 * been sent. */
static enum status charge_memory(struct shm_registry *registry, struct shm_request *use, uint64_t n,
                                 struct error *err) {
    use->budget = registry->options.budget;
    if (!net_budget_reserve(use->budget, NET_BODY_SHARED_MEMORY, n)) {
        metric_add(METRIC_DROPPED_MEMORY, 1);
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
        net_budget_release(use->budget, NET_BODY_SHARED_MEMORY, use->n_bytes);
        metric_add(METRIC_BODY_BYTES_IN_FLIGHT, -(int64_t)use->n_bytes);
        use->n_bytes = 0;
    }
}

/* Copies the input's range of the region into the arena. */
static enum status read_region(const struct shm_region *region, struct arena *arena,
                               struct infer_input *input, struct error *err) {
    struct tensor *tensor = &input->tensor;
    size_t n = (size_t)input->region.n_bytes;
    struct piece *piece = arena_alloc(arena, sizeof(*piece));
    char *data = n > 0 ? arena_alloc_aligned(arena, n, ALIGNMENT) : NULL;
    if (!piece || (n > 0 && !data)) {
        return error_no_memory(err, "a tensor in shared memory");
    }
    if (!read_all(region, input->region.offset, data, n, arena)) {
        char name[QUOTED_NAME_BYTES];
        return error_set(err, ST_BAD_SHAPE,
                         "input %s: the shared memory object is shorter than it was when its "
                         "region was registered",
                         quote_name(tensor->name, name));
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
    region_unref(region);
    return st;
}

/* ---- requests: outputs ----------------------------------------------------------------------- */

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
        return error_no_memory(err, "the request");
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

/* pwrite beyond the end would extend an object that the client has truncated. */
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
    char name[QUOTED_NAME_BYTES];
    uint64_t at = region->spec.offset + range->offset;
    if (output->n_bytes > range->n_bytes) {
        return error_set(err, ST_BAD_SHAPE,
                         "output %s: it has %zu bytes, more than its shared_memory_byte_size",
                         quote_name(output->name, name), output->n_bytes);
    }
    if (!is_within_object(region, at + output->n_bytes)) {
        return error_set(err, ST_BAD_SHAPE,
                         "output %s: the shared memory cannot be written: its object is shorter "
                         "than it was when its region was registered",
                         quote_name(output->name, name));
    }
    bool written = true;
    for (size_t i = 0; written && i < output->n_pieces; i++) {
        written = write_all(region, at, output->pieces[i].data, output->pieces[i].n_bytes);
        at += output->pieces[i].n_bytes;
    }
    if (!written) {
        return error_set(err, ST_BAD_OUTPUT, "output %s: the shared memory cannot be written",
                         quote_name(output->name, name));
    }
    metric_add(METRIC_COPIED_BYTES_TOTAL, (int64_t)output->n_bytes);
    output->n_pieces = 0;
    output->n_bytes = 0;
    return ST_OK;
}

void shm_request_finish_outputs(struct shm_request *use, const struct infer_request *request,
                                struct infer_response *response) {
    struct error err;
    for (size_t i = 0; response->error.status == ST_OK && i < response->n_outputs; i++) {
        size_t place = infer_response_place(response, i);
        struct shm_region *region = place < use->n ? use->regions[place] : NULL;
        if (region && write_output(region, &request->wanted[place].region, &response->outputs[i],
                                   &err) != ST_OK) {
            infer_response_release(response);
            response->error = err;
        }
    }
    for (size_t i = 0; i < use->n; i++) {
        region_unref(use->regions[i]);
    }
    use->regions = NULL;
    use->n = 0;
}
