/* Lists of small blocks that have come back, by size. A block knows its own size: nghttp2 does not
 * say it again. It refuses to give memory back to the system before its bound or its end. */
#include "net/h2_memory.h"

#include <stdalign.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

/* Stands before the bytes. */
struct h2_block {
    alignas(max_align_t) struct h2_block *next; /* while it is kept */
    size_t n_bytes;                             /* that the bytes have room for */
};

#ifdef SLUICE_ARENA_EMULATE
static const size_t most_kept = 0;
#else
static const size_t most_kept = H2_MEMORY_MOST_KEPT;
#endif

static bool is_kept(size_t n_bytes) {
    return n_bytes <= H2_MEMORY_LARGEST && most_kept > 0;
}

/* Of blocks of a size that is kept. */
static struct h2_block **list_of(struct h2_memory *memory, size_t n_bytes) {
    return &memory->kept[n_bytes / H2_MEMORY_STEP - 1];
}

/* What is asked for and isn't large gets the next size that is kept. */
static size_t rounded(size_t n_bytes) {
    if (!is_kept(n_bytes)) {
        return n_bytes;
    }
    return n_bytes == 0 ? H2_MEMORY_STEP
                        : (n_bytes + H2_MEMORY_STEP - 1) / H2_MEMORY_STEP * H2_MEMORY_STEP;
}

static void *allocate(size_t n_bytes, void *cookie) {
    struct h2_memory *memory = cookie;
    size_t room = rounded(n_bytes), total;
    if (is_kept(room) && *list_of(memory, room)) {
        struct h2_block **list = list_of(memory, room), *kept = *list;
        *list = kept->next;
        memory->kept_bytes -= room;
        return kept + 1;
    }
    struct h2_block *block = checked_add(room, sizeof(*block), &total) ? malloc(total) : NULL;
    if (!block) {
        return NULL;
    }
    block->n_bytes = room;
    return block + 1;
}

static void give_back(void *ptr, void *cookie) {
    struct h2_memory *memory = cookie;
    if (!ptr) {
        return;
    }
    struct h2_block *block = (struct h2_block *)ptr - 1;
    if (!is_kept(block->n_bytes) || memory->kept_bytes + block->n_bytes > most_kept) {
        free(block);
        return;
    }
    struct h2_block **list = list_of(memory, block->n_bytes);
    block->next = *list;
    *list = block;
    memory->kept_bytes += block->n_bytes;
}

static void *allocate_zeroed(size_t n, size_t size, void *cookie) {
    size_t n_bytes;
    void *ptr = checked_mul(n, size, &n_bytes) ? allocate(n_bytes, cookie) : NULL;
    return ptr ? memset(ptr, 0, n_bytes) : NULL;
}

static void *reallocate(void *ptr, size_t n_bytes, void *cookie) {
    size_t room = ptr ? ((struct h2_block *)ptr - 1)->n_bytes : 0;
    if (ptr && n_bytes <= room) {
        return ptr;
    }
    void *fresh = allocate(n_bytes, cookie);
    if (fresh && ptr) {
        memcpy(fresh, ptr, room);
        give_back(ptr, cookie);
    }
    return fresh;
}

nghttp2_mem h2_memory_functions(struct h2_memory *memory) {
    return (nghttp2_mem){.mem_user_data = memory,
                         .malloc = allocate,
                         .free = give_back,
                         .calloc = allocate_zeroed,
                         .realloc = reallocate};
}

void h2_memory_fini(struct h2_memory *memory) {
    for (size_t i = 0; i < sizeof(memory->kept) / sizeof(memory->kept[0]); i++) {
        while (memory->kept[i]) {
            struct h2_block *block = memory->kept[i];
            memory->kept[i] = block->next;
            free(block);
        }
    }
    memory->kept_bytes = 0;
}
