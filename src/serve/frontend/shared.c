/* Regions: a list under a lock, each with its object's descriptor and a count of who holds it. */
#include "serve/frontend/shared_region.h"

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

enum { MOST_REGIONS = 1024 /* each is an open file */ };

struct shared {
    struct shared_options options;
    struct lock lock;
    struct shared_region *first, **last; /* in the order they came */
    size_t n;
};

struct shared *shared_new(const struct shared_options *options) {
    struct shared *shared = calloc(1, sizeof(*shared));
    if (shared) {
        shared->options = *options;
        shared->last = &shared->first;
        lock_init(&shared->lock);
    }
    return shared;
}

struct net_budget *shared_budget(const struct shared *shared) {
    return shared->options.budget;
}

/* ---- a region -------------------------------------------------------------------------------- */

void shared_region_unref(struct shared_region *region) {
    if (region && atomic_fetch_sub_explicit(&region->refs, 1, memory_order_acq_rel) == 1) {
        metric_add(METRIC_SHARED_REGIONS, -1);
        close(region->fd);
        free(region->text);
        free(region);
    }
}

/* The place where the region of that name hangs, or the list's end. */
static struct shared_region **find(struct shared *shared, struct str name) {
    lock_assert_held(&shared->lock);
    struct shared_region **at = &shared->first;
    while (*at && !str_eq((*at)->what.name, name)) {
        at = &(*at)->next;
    }
    return at;
}

static struct shared_region *take_out(struct shared *shared, struct shared_region **at) {
    struct shared_region *region = *at;
    *at = region->next;
    if (!region->next) {
        shared->last = at;
    }
    shared->n--;
    return region;
}

struct shared_region *shared_region_find(struct shared *shared, struct str name) {
    lock_take(&shared->lock);
    struct shared_region *region = *find(shared, name);
    if (region) {
        atomic_fetch_add_explicit(&region->refs, 1, memory_order_relaxed);
    }
    lock_drop(&shared->lock);
    return region;
}

/* ---- register -------------------------------------------------------------------------------- */

static enum status off(struct error *err) {
    return error_set(err, ST_UNSUPPORTED,
                     "clients cannot share memory with this server (--allow-client-shm)");
}

static struct str without_slashes(struct str key) {
    while (key.len > 0 && key.ptr[0] == '/') {
        key = str_make(key.ptr + 1, key.len - 1);
    }
    return key;
}

static bool is_allowed(const struct shared_options *options, struct str key) {
    bool fits = options->n_prefixes == 0;
    for (size_t i = 0; !fits && i < options->n_prefixes; i++) {
        fits = str_starts(key, without_slashes(str_of(options->prefixes[i])));
    }
    return fits;
}

/* `key` is without slashes in front. */
static enum status check_key(const struct shared *shared, struct str key, struct error *err) {
    if (key.len == 0 || key.len >= NAME_MAX || memchr(key.ptr, '/', key.len) ||
        memchr(key.ptr, '\0', key.len) || str_is(key, ".") || str_is(key, "..")) {
        return error_set(err, ST_BAD_FIELD, "key: expected the name of a shared memory object");
    }
    if (str_starts(key, STR("triton_python_backend_shm_region_"))) {
        return error_set(err, ST_BAD_FIELD, "key: begins with a prefix that is reserved");
    }
    if (!is_allowed(&shared->options, key)) {
        return error_set(err, ST_BAD_FIELD,
                         "key: begins with none of the allowed prefixes (--client-shm-prefix)");
    }
    return ST_OK;
}

/* Is the region within its object? */
static enum status check_size(int fd, const struct v2_memory_region *what, struct error *err) {
    struct stat info;
    uint64_t end;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size < 0) {
        return error_set(err, ST_IO, "the shared memory object cannot be opened");
    }
    if (__builtin_add_overflow(what->offset, what->n_bytes, &end) || end > INT64_MAX ||
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
static struct shared_region *make(const struct v2_memory_region *what, int fd) {
    struct shared_region *region = calloc(1, sizeof(*region));
    char *text = malloc(what->name.len + what->key.len);
    if (!region || !text) {
        free(region);
        free(text);
        return NULL;
    }
    memcpy(text, what->name.ptr, what->name.len);
    memcpy(text + what->name.len, what->key.ptr, what->key.len);
    region->text = text;
    region->what = *what;
    region->what.name.ptr = text;
    region->what.key.ptr = text + what->name.len;
    region->fd = fd;
    atomic_init(&region->refs, 1);
    metric_add(METRIC_SHARED_REGIONS, 1);
    return region;
}

static enum status add(struct shared *shared, struct shared_region *region, struct error *err) {
    enum status st = ST_OK;
    lock_take(&shared->lock);
    if (*find(shared, region->what.name)) {
        st = error_set(err, ST_ALREADY_EXISTS, "a region of that name is registered already");
    } else if (shared->n == MOST_REGIONS) {
        st = error_set(err, ST_OVERLOADED, "there are %d regions already", MOST_REGIONS);
    } else {
        *shared->last = region;
        shared->last = &region->next;
        shared->n++;
    }
    lock_drop(&shared->lock);
    return st;
}

static enum status open_region(const struct v2_memory_region *what, struct str key,
                               struct shared_region **out, struct error *err) {
    int fd;
    enum status st = open_object(key, &fd, err);
    if (st != ST_OK) {
        return st;
    }
    st = check_size(fd, what, err);
    if (st == ST_OK) {
        *out = make(what, fd);
        st = *out ? ST_OK : error_set(err, ST_NO_MEMORY, "no memory for the region");
    }
    if (st != ST_OK) {
        close(fd);
    }
    return st;
}

enum status shared_register(struct shared *shared, const struct v2_memory_region *what,
                            struct error *err) {
    struct str key = without_slashes(what->key);
    struct shared_region *region = NULL;
    if (!shared->options.allowed) {
        return off(err);
    }
    if (what->name.len == 0) {
        return error_set(err, ST_BAD_FIELD, "expected a name for the region");
    }
    if (what->n_bytes == 0) {
        return error_set(err, ST_BAD_FIELD, "byte_size: expected at least 1");
    }
    enum status st = check_key(shared, key, err);
    if (st == ST_OK) {
        st = open_region(what, key, &region, err);
    }
    if (st == ST_OK) {
        st = add(shared, region, err);
        if (st != ST_OK) {
            shared_region_unref(region);
        }
    }
    return st;
}

/* ---- unregister, status ---------------------------------------------------------------------- */

enum status shared_unregister(struct shared *shared, struct str name, struct error *err) {
    struct shared_region *gone = NULL;
    if (!shared->options.allowed) {
        return off(err);
    }
    lock_take(&shared->lock);
    if (name.len == 0) {
        gone = shared->first;
        shared->first = NULL;
        shared->last = &shared->first;
        shared->n = 0;
    } else {
        struct shared_region **at = find(shared, name);
        gone = *at ? take_out(shared, at) : NULL;
        if (gone) {
            gone->next = NULL;
        }
    }
    lock_drop(&shared->lock);
    while (gone) {
        struct shared_region *next = gone->next;
        shared_region_unref(gone);
        gone = next;
    }
    return ST_OK;
}

enum status shared_visit(struct shared *shared, struct str name,
                         void (*visit)(void *cookie, const struct v2_memory_region *region),
                         void *cookie, struct error *err) {
    bool found = name.len == 0;
    lock_take(&shared->lock);
    for (struct shared_region *region = shared->first; region; region = region->next) {
        if (name.len == 0 || str_eq(region->what.name, name)) {
            found = true;
            visit(cookie, &region->what);
        }
    }
    lock_drop(&shared->lock);
    return found ? ST_OK : error_set(err, ST_NOT_FOUND, "no such shared memory region");
}

void shared_free(struct shared *shared) {
    if (shared) {
        while (shared->first) {
            shared_region_unref(take_out(shared, &shared->first));
        }
        lock_fini(&shared->lock);
        free(shared);
    }
}
