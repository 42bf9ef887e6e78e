/* Fingerprints of a model's files. The order of directory entries is arbitrary, so their hashes are
 * added. */
#include "serve/config/fingerprint.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

static uint64_t hash_mix(uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ (hash >> 29);
}

static uint64_t hash_text(const char *text) {
    uint64_t hash = 1;
    for (; *text; text++) {
        hash = hash_mix(hash, (unsigned char)*text);
    }
    return hash;
}

static uint64_t hash_file(const char *name, const struct stat *info) {
    uint64_t hash = hash_mix(hash_text(name), (uint64_t)info->st_ino);
    hash = hash_mix(hash, (uint64_t)info->st_mode);
    if (S_ISDIR(info->st_mode)) { /* a directory's own time and size change with hidden entries
                                     too */
        return hash;
    }
    hash = hash_mix(hash, (uint64_t)info->st_size);
    hash = hash_mix(hash, (uint64_t)info->st_mtim.tv_sec);
    return hash_mix(hash, (uint64_t)info->st_mtim.tv_nsec);
}

struct visited {
    dev_t device;
    ino_t inode;
};

struct walk {
    const atomic_bool *cancelled;
    const struct fingerprint_entries *entries; /* NULL: none */
    struct visited root;
    size_t n_entries;
    struct visited *visited; /* directories: a hash table, at most half full */
    size_t n_visited, n_slots;
    struct error *err;
    enum status status;
};

/* ---- visited directories --------------------------------------------------------------------- */

static struct visited *visited_slot(struct visited *slots, size_t n_slots, struct visited key) {
    size_t i = (size_t)hash_mix((uint64_t)key.inode, (uint64_t)key.device) & (n_slots - 1);
    while (slots[i].inode != 0 && (slots[i].inode != key.inode || slots[i].device != key.device)) {
        i = (i + 1) & (n_slots - 1);
    }
    return &slots[i];
}

static bool visited_grow(struct walk *walk) {
    enum { FIRST_SLOTS = 64 };
    size_t n_slots = walk->n_slots > 0 ? 2 * walk->n_slots : FIRST_SLOTS;
    struct visited *slots = calloc(n_slots, sizeof(*slots));
    if (!slots) {
        walk->status = error_no_memory(walk->err, "the list of a model's directories");
        return false;
    }
    for (size_t i = 0; i < walk->n_slots; i++) {
        if (walk->visited[i].inode != 0) {
            *visited_slot(slots, n_slots, walk->visited[i]) = walk->visited[i];
        }
    }
    free(walk->visited);
    walk->visited = slots;
    walk->n_slots = n_slots;
    return true;
}

/* Returns: whether the directory was not visited before. */
static bool visit_first(struct walk *walk, const struct stat *info) {
    struct visited key = {info->st_dev, info->st_ino};
    if (2 * walk->n_visited >= walk->n_slots && !visited_grow(walk)) {
        return false;
    }
    struct visited *slot = visited_slot(walk->visited, walk->n_slots, key);
    if (slot->inode != 0 || key.inode == 0) {
        return false;
    }
    *slot = key;
    walk->n_visited++;
    return true;
}

/* Each entry of the root has a hash of its own: whatever the order of the entries, one that is a
 * link to another has the hash of what is there. */
static void forget_visited(struct walk *walk) {
    if (walk->n_visited > 0) {
        memset(walk->visited, 0, walk->n_slots * sizeof(*walk->visited));
        *visited_slot(walk->visited, walk->n_slots, walk->root) = walk->root;
        walk->n_visited = 1;
    }
}

/* ---- walk ------------------------------------------------------------------------------------ */

/* A directory that is walked. */
struct place {
    const char *path;
    const char *real; /* of the version that it is in, or of the model; no symbolic links */
    dev_t device;
    int depth;
};

static bool may_continue(struct walk *walk) {
    if (walk->status == ST_OK && walk->cancelled &&
        atomic_load_explicit(walk->cancelled, memory_order_relaxed)) {
        walk->status = error_set(walk->err, ST_NOT_READY, "the look at the files was cancelled");
    } else if (walk->status == ST_OK && ++walk->n_entries > FINGERPRINT_MAX_ENTRIES) {
        walk->status = error_set(walk->err, ST_BAD_MODEL,
                                 "the model's directory has more than %d files and directories",
                                 FINGERPRINT_MAX_ENTRIES);
    }
    return walk->status == ST_OK;
}

/* Returns: whether the directory is of the kernel's, whose files change by themselves. */
static bool is_of_kernel(const char *path) {
    struct statfs info;
    return statfs(path, &info) == 0 &&
           (info.f_type == PROC_SUPER_MAGIC || info.f_type == SYSFS_MAGIC);
}

static bool is_below(const char *path, const char *directory) {
    size_t len = strlen(directory);
    return strncmp(path, directory, len) == 0 && (path[len] == '/' || path[len] == '\0');
}

static uint64_t hash_directory(struct walk *walk, const struct place *place);

/* `link`: `path` is a link to a directory. Returns: 0 when it is not walked. */
static uint64_t hash_inner(struct walk *walk, const struct place *place, const char *path,
                           const struct stat *info, bool link) {
    enum { MAX_DEPTH = 16 };
    bool top = place->depth == 0;
    char *real = link || top ? realpath(path, NULL) : NULL;
    uint64_t hash = 0;
    bool follow = !link || (real && (top || is_below(real, place->real)));
    if (follow && place->depth < MAX_DEPTH && visit_first(walk, info) &&
        (info->st_dev == place->device || !is_of_kernel(path))) {
        const struct place inner = {path, top && real ? real : place->real, info->st_dev,
                                    place->depth + 1};
        hash = hash_directory(walk, &inner);
    }
    free(real);
    return hash;
}

static uint64_t hash_entry(struct walk *walk, const struct place *place, const char *name) {
    char path[PATH_MAX];
    struct stat info, own;
    if ((size_t)snprintf(path, sizeof(path), "%s/%s", place->path, name) >= sizeof(path) ||
        lstat(path, &own) != 0) {
        return 0;
    }
    info = own;
    if (S_ISLNK(own.st_mode) && stat(path, &info) != 0) {
        return 0;
    }
    uint64_t hash = hash_file(name, &info);
    return S_ISDIR(info.st_mode)
               ? hash_mix(hash, hash_inner(walk, place, path, &info, S_ISLNK(own.st_mode)))
               : hash;
}

static uint64_t hash_directory(struct walk *walk, const struct place *place) {
    uint64_t sum = 0;
    DIR *dir = opendir(place->path);
    struct dirent *entry;
    if (!dir && walk->status == ST_OK && status_of_errno(errno, ST_OK) != ST_OK) {
        /* Else the files would seem to have changed. */
        walk->status = error_set(walk->err, ST_NOT_READY, "%s: %s", place->path, strerror(errno));
    }
    while (dir && may_continue(walk) && (entry = readdir(dir))) {
        if (entry->d_name[0] == '.') {
            continue;
        }
        if (place->depth == 0) {
            forget_visited(walk);
        }
        uint64_t hash = hash_entry(walk, place, entry->d_name);
        sum += hash;
        if (place->depth == 0 && walk->entries) {
            walk->entries->on_entry(walk->entries->user, entry->d_name, hash);
        }
    }
    if (dir) {
        closedir(dir);
    }
    return sum;
}

static uint64_t hash_root(struct walk *walk, const char *path, const struct stat *info) {
    uint64_t hash = hash_file("", info);
    if (!S_ISDIR(info->st_mode)) {
        return hash;
    }
    char *real = realpath(path, NULL);
    const struct place place = {path, real ? real : path, info->st_dev, 0};
    walk->root = (struct visited){info->st_dev, info->st_ino};
    if (visit_first(walk, info) && !is_of_kernel(path)) {
        hash = hash_mix(hash, hash_directory(walk, &place));
    }
    free(real);
    return hash;
}

enum status fingerprint_take(const char *path, const atomic_bool *cancelled, uint64_t *out,
                             struct error *err) {
    return fingerprint_take_entries(path, NULL, cancelled, out, err);
}

enum status fingerprint_take_entries(const char *path, const struct fingerprint_entries *entries,
                                     const atomic_bool *cancelled, uint64_t *out,
                                     struct error *err) {
    struct walk walk = {.cancelled = cancelled, .entries = entries, .err = err, .status = ST_OK};
    struct stat info;
    *out = 0;
    if (stat(path, &info) != 0) {
        return ST_OK;
    }
    *out = hash_root(&walk, path, &info);
    free(walk.visited);
    if (walk.status == ST_BAD_MODEL) { /* where the walk ended may differ */
        *out = hash_text(path);
    }
    *out = *out != 0 ? *out : 1;
    return walk.status;
}
