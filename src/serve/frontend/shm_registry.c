/* Regions: a list under a lock, each with its object's descriptor and a count of who holds it. */
#include "serve/frontend/shm_region.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/metric/metric.h"
#include "core/event/lock.h"

enum { MAX_REGIONS = 1024 /* each is an open file */ };

struct shm_registry {
    struct shm_registry_options options;
    struct lock lock;
    struct shm_region *first, **last; /* in the order they came */
    size_t n;
};

struct shm_registry *shm_registry_new(const struct shm_registry_options *options) {
    struct shm_registry *registry = calloc(1, sizeof(*registry));
    if (registry) {
        registry->options = *options;
        registry->last = &registry->first;
        lock_init(&registry->lock);
    }
    return registry;
}

struct net_budget *shm_registry_budget(const struct shm_registry *registry) {
    return registry->options.budget;
}

/* ---- a region -------------------------------------------------------------------------------- */

void shm_region_unref(struct shm_region *region) {
    if (region && atomic_fetch_sub_explicit(&region->refs, 1, memory_order_acq_rel) == 1) {
        metric_add(METRIC_SHARED_REGIONS, -1);
        close(region->fd);
        free(region->text);
        free(region);
    }
}

/* The place where the region of that name hangs, or the list's end. */
static struct shm_region **find_link(struct shm_registry *registry, struct str name) {
    lock_assert_held(&registry->lock);
    struct shm_region **at = &registry->first;
    while (*at && !str_eq((*at)->spec.name, name)) {
        at = &(*at)->next;
    }
    return at;
}

static struct shm_region *unlink_region(struct shm_registry *registry, struct shm_region **at) {
    struct shm_region *region = *at;
    *at = region->next;
    if (!region->next) {
        registry->last = at;
    }
    registry->n--;
    return region;
}

struct shm_region *shm_region_find(struct shm_registry *registry, struct str name) {
    lock_acquire(&registry->lock);
    struct shm_region *region = *find_link(registry, name);
    if (region) {
        atomic_fetch_add_explicit(&region->refs, 1, memory_order_relaxed);
    }
    lock_release(&registry->lock);
    return region;
}

/* ---- register -------------------------------------------------------------------------------- */

static enum status error_disabled(struct error *err) {
    return error_set(err, ST_UNSUPPORTED,
                     "clients cannot share memory with this server (--allow-client-shm)");
}

static struct str skip_slashes(struct str key) {
    while (key.len > 0 && key.ptr[0] == '/') {
        key = str_make(key.ptr + 1, key.len - 1);
    }
    return key;
}

static bool is_allowed(const struct shm_registry_options *options, struct str key) {
    bool fits = options->n_prefixes == 0;
    for (size_t i = 0; !fits && i < options->n_prefixes; i++) {
        fits = str_starts_with(key, skip_slashes(str_of(options->prefixes[i])));
    }
    return fits;
}

/* `key` is without slashes in front. */
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

/* Is the region within its object? */
static enum status check_size(int fd, const struct v2_shared_memory_region *spec,
                              struct error *err) {
    struct stat info;
    uint64_t end;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size < 0) {
        return error_set(err, ST_IO, "the shared memory object cannot be opened");
    }
    if (__builtin_add_overflow(spec->offset, spec->n_bytes, &end) || end > INT64_MAX ||
        end > (uint64_t)info.st_size) {
        return error_set(err, ST_BAD_SHAPE,
                         "offset and byte_size lead beyond the end of the shared memory object");
    }
    return ST_OK;
}

static enum status open_object(struct str key, int *out, struct error *err) {
    char path[NAME_MAX + 2] = "/";
    assert(key.len < NAME_MAX);
    memcpy(path + 1, key.ptr, key.len);
    *out = shm_open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK, 0);
    return *out >= 0 ? ST_OK : error_set(err, ST_IO, "the shared memory object cannot be opened");
}

/* Owns: `fd` from then on, when it is given a region. */
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
    if (*find_link(registry, region->spec.name)) {
        st = error_set(err, ST_ALREADY_EXISTS, "a region of that name is registered already");
    } else if (registry->n == MAX_REGIONS) {
        st = error_set(err, ST_OVERLOADED, "there are %d regions already", MAX_REGIONS);
    } else {
        *registry->last = region;
        registry->last = &region->next;
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
        st = *out ? ST_OK : error_set(err, ST_NO_MEMORY, "no memory for the region");
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
    if (!registry->options.allowed) {
        return error_disabled(err);
    }
    if (spec->name.len == 0) {
        return error_set(err, ST_BAD_FIELD, "expected a name for the region");
    }
    if (spec->n_bytes == 0) {
        return error_set(err, ST_BAD_FIELD, "byte_size: expected at least 1");
    }
    enum status st = check_key(registry, key, err);
    if (st == ST_OK) {
        st = open_region(spec, key, &region, err);
    }
    if (st == ST_OK) {
        st = add_region(registry, region, err);
        if (st != ST_OK) {
            shm_region_unref(region);
        }
    }
    return st;
}

/* ---- unregister, status ---------------------------------------------------------------------- */

enum status shm_unregister_region(struct shm_registry *registry, struct str name,
                                  struct error *err) {
    struct shm_region *removed = NULL;
    if (!registry->options.allowed) {
        return error_disabled(err);
    }
    lock_acquire(&registry->lock);
    if (name.len == 0) {
        removed = registry->first;
        registry->first = NULL;
        registry->last = &registry->first;
        registry->n = 0;
    } else {
        struct shm_region **at = find_link(registry, name);
        removed = *at ? unlink_region(registry, at) : NULL;
        if (removed) {
            removed->next = NULL;
        }
    }
    lock_release(&registry->lock);
    while (removed) {
        struct shm_region *next = removed->next;
        shm_region_unref(removed);
        removed = next;
    }
    return ST_OK;
}

enum status shm_visit_regions(struct shm_registry *registry, struct str name,
                              void (*visit)(void *user,
                                            const struct v2_shared_memory_region *region),
                              void *user, struct error *err) {
    bool found = name.len == 0;
    lock_acquire(&registry->lock);
    for (struct shm_region *region = registry->first; region; region = region->next) {
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
        while (registry->first) {
            shm_region_unref(unlink_region(registry, &registry->first));
        }
        lock_fini(&registry->lock);
        free(registry);
    }
}
