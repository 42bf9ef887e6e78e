/* Options and memory of sessions of nghttp2. */
#include "net/transport/h2_setup.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- options --------------------------------------------------------------------------------- */

enum { MAX_SETTINGS = 32, MAX_ACKS = 1000, MAX_HEADER_BLOCK_BYTES = 1 << 20 };

nghttp2_option *h2_option_new(void) {
    nghttp2_option *option;
    if (nghttp2_option_new(&option) != 0) {
        return NULL;
    }
    nghttp2_option_set_no_auto_window_update(option, 1);
    nghttp2_option_set_max_settings(option, MAX_SETTINGS);
    nghttp2_option_set_max_outbound_ack(option, MAX_ACKS);
    nghttp2_option_set_max_send_header_block_length(option, MAX_HEADER_BLOCK_BYTES);
    return option;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* The first two blocks of at least FRAME_BYTES are mapped; all others, and those where no mapping
 * can be had, are the heap's. */
enum { FRAME_BYTES = 16384 };

/* Returns: the mapping of that block, or a free one for NULL; NULL: there is none. */
static struct h2_mapping *find_mapping(struct h2_memory *memory, const void *block) {
    for (size_t i = 0; i < sizeof(memory->mappings) / sizeof(memory->mappings[0]); i++) {
        if (memory->mappings[i].block == block) {
            return &memory->mappings[i];
        }
    }
    return NULL;
}

/* The slow paths are functions of their own: each call allocates some small blocks. */
static __attribute__((cold, noinline)) void *map(struct h2_memory *memory, size_t n_bytes) {
    struct h2_mapping *mapping = find_mapping(memory, NULL);
    void *mapped = MAP_FAILED;
    if (mapping) {
        mapped = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    if (mapped == MAP_FAILED) { /* the kernel's limit on mappings, say */
        return malloc(n_bytes);
    }
    *mapping = (struct h2_mapping){mapped, n_bytes};
    return mapped;
}

/* The kernel makes one mapping of neighbours that are alike. At its limit on mappings it does not
 * divide one again, and munmap fails; madvise divides nothing, and frees the pages. What stays is a
 * range of addresses without memory, 20 KiB of the 128 TiB that a process has, or 260. */
static __attribute__((cold, noinline)) void unmap(struct h2_mapping *mapping) {
    if (munmap(mapping->block, mapping->n_bytes) != 0) {
        madvise(mapping->block, mapping->n_bytes, MADV_DONTNEED);
    }
    *mapping = (struct h2_mapping){NULL, 0};
}

static void *allocate(size_t n_bytes, void *user) {
    return n_bytes < FRAME_BYTES ? malloc(n_bytes) : map(user, n_bytes);
}

static void release(void *block, void *user) {
    struct h2_mapping *mapping = block ? find_mapping(user, block) : NULL;
    if (mapping) {
        unmap(mapping);
    } else {
        free(block);
    }
}

static void *allocate_zeroed(size_t n, size_t n_bytes_each, void *user) {
    (void)user;
    return calloc(n, n_bytes_each);
}

static __attribute__((cold, noinline)) void *move(struct h2_mapping *mapping, size_t n_bytes) {
    void *moved = malloc(n_bytes);
    if (moved) {
        memcpy(moved, mapping->block, n_bytes < mapping->n_bytes ? n_bytes : mapping->n_bytes);
        unmap(mapping);
    }
    return moved;
}

static void *resize(void *block, size_t n_bytes, void *user) {
    if (!block) {
        return allocate(n_bytes, user);
    }
    struct h2_mapping *mapping = find_mapping(user, block);
    return mapping ? move(mapping, n_bytes) : realloc(block, n_bytes);
}

nghttp2_mem h2_memory_functions(struct h2_memory *memory) {
    return (nghttp2_mem){.mem_user_data = memory,
                         .malloc = allocate,
                         .free = release,
                         .calloc = allocate_zeroed,
                         .realloc = resize};
}
