/* Sizes are powers of two, so that a block fits the next batch, too. A few idle blocks are kept. */
#include "python/block.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    MIN_BYTES = 1 << 16,
    KEPT_BLOCKS = 8,        /* idle ones */
    KEPT_BYTES = 1 << 26,   /* of idle ones together, or the largest alone */
    MAX_DROPPED = BLOCK_MAX /* numbers that the worker still has to hear of */
};

struct block_pool {
    pthread_mutex_t lock;
    struct block *blocks; /* all that are mapped */
    size_t n_blocks, n_granted, n_idle, idle_bytes;
    uint32_t n_numbers;
    size_t n_new; /* blocks with a descriptor */
    uint32_t dropped[MAX_DROPPED];
    size_t n_dropped;
    size_t n_refs; /* the owner, and one for each block in BLOCK_OUTPUT */
};

struct block_pool *pool_new(void) {
    struct block_pool *pool = calloc(1, sizeof(*pool));
    if (pool) {
        pthread_mutex_init(&pool->lock, NULL);
        pool->n_refs = 1;
    }
    return pool;
}

static void block_free(struct block *block) {
    if (block->fd >= 0) {
        close(block->fd);
    }
    if (block->bytes) {
        munmap(block->bytes, block->n_bytes);
    }
    free(block);
}

/* Drops a reference on the pool, whose lock is held, and unlocks it. */
static void unlock_and_unref(struct block_pool *pool, int unref) {
    pool->n_refs -= unref ? 1 : 0;
    int last = pool->n_refs == 0;
    pthread_mutex_unlock(&pool->lock);
    if (!last) {
        return;
    }
    while (pool->blocks) {
        struct block *block = pool->blocks;
        pool->blocks = block->next;
        block_free(block);
    }
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

void pool_unref(struct block_pool *pool) {
    if (pool) {
        pthread_mutex_lock(&pool->lock);
        unlock_and_unref(pool, 1);
    }
}

/* ---- one block ------------------------------------------------------------------------------- */

/* The worker gets a descriptor of the same file: the seals keep it from making it shorter, which
 * would end the server with SIGBUS, or larger. */
static int make_file(size_t n_bytes) {
    int fd = memfd_create("sluice-python", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd >= 0 && (ftruncate(fd, (off_t)n_bytes) != 0 ||
                    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)) {
        int failed = errno;
        close(fd);
        errno = failed;
        return -1;
    }
    return fd;
}

static struct block *block_new(struct block_pool *pool, size_t n_bytes, const char **reason) {
    struct block *block = calloc(1, sizeof(*block));
    if (!block) {
        *reason = "out of memory";
        return NULL;
    }
    *block = (struct block){.pool = pool, .n_bytes = n_bytes, .fd = make_file(n_bytes)};
    void *bytes = block->fd < 0
                      ? MAP_FAILED
                      : mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, block->fd, 0);
    if (bytes == MAP_FAILED) {
        *reason = errno == EMFILE || errno == ENFILE ? "out of file descriptors" : "out of memory";
        block_free(block);
        return NULL;
    }
    block->bytes = bytes;
    return block;
}

static void unlink_block(struct block_pool *pool, struct block *block) {
    struct block **at = &pool->blocks;
    while (*at != block) {
        at = &(*at)->next;
    }
    *at = block->next;
    pool->n_blocks--;
}

/* A block becomes idle: it is kept, or freed where there are enough. */
static void make_idle(struct block_pool *pool, struct block *block) {
    block->state = BLOCK_IDLE;
    block->n_idle_s = 0;
    int keep = pool->n_idle < KEPT_BLOCKS &&
               (pool->n_idle == 0 || pool->idle_bytes + block->n_bytes <= KEPT_BYTES);
    /* The numbers of the dropped ones have to reach the worker. */
    if (keep || (block->fd < 0 && pool->n_dropped == MAX_DROPPED)) {
        pool->n_idle++;
        pool->idle_bytes += block->n_bytes;
        return;
    }
    if (block->fd < 0) {
        pool->dropped[pool->n_dropped++] = block->number;
    } else {
        pool->n_new--;
    }
    unlink_block(pool, block);
    block_free(block);
}

void pool_trim(struct block_pool *pool) {
    pthread_mutex_lock(&pool->lock);
    for (struct block *block = pool->blocks; block; block = block->next) {
        if (block->state == BLOCK_IDLE && block->n_idle_s <= BLOCK_TRIM_S &&
            ++block->n_idle_s > BLOCK_TRIM_S) {
            (void)madvise(block->bytes, block->n_bytes, MADV_REMOVE);
        }
    }
    pthread_mutex_unlock(&pool->lock);
}

static struct block *find(const struct block_pool *pool, uint32_t number, enum block_state state) {
    for (struct block *block = pool->blocks; block; block = block->next) {
        if (block->number == number) {
            return block->state == state ? block : NULL;
        }
    }
    return NULL;
}

/* ---- taking and giving back ------------------------------------------------------------------ */

static size_t size_for(size_t n_bytes) {
    size_t size = MIN_BYTES;
    while (size < n_bytes) {
        size *= 2;
    }
    return size;
}

static struct block *take_idle(struct block_pool *pool, size_t size) {
    struct block *best = NULL;
    for (struct block *block = pool->blocks; block; block = block->next) {
        if (block->state == BLOCK_IDLE && block->n_bytes >= size &&
            (!best || block->n_bytes < best->n_bytes)) {
            best = block;
        }
    }
    if (best) {
        pool->n_idle--;
        pool->idle_bytes -= best->n_bytes;
    }
    return best;
}

static struct block *take_new(struct block_pool *pool, size_t size, const char **reason) {
    if (pool->n_blocks >= BLOCK_MAX || pool->n_new >= POOL_MAX_FDS) {
        *reason = "too many blocks of memory are in use: responses that clients have not read, or "
                  "inputs that the model keeps";
        return NULL;
    }
    struct block *block = block_new(pool, size, reason);
    if (block) {
        block->number = ++pool->n_numbers;
        block->next = pool->blocks;
        pool->blocks = block;
        pool->n_blocks++;
        pool->n_new++;
    }
    return block;
}

struct block *pool_take(struct block_pool *pool, size_t n_bytes, enum block_state state,
                        const char **reason) {
    if (n_bytes > SIZE_MAX / 4) {
        *reason = "so many bytes are not possible";
        return NULL;
    }
    struct block *block = NULL;
    pthread_mutex_lock(&pool->lock);
    if (state == BLOCK_GRANTED && pool->n_granted >= BLOCK_MAX_GRANTED) {
        *reason = "the worker has too many blocks of memory that it does not use";
    } else {
        block = take_idle(pool, size_for(n_bytes));
        block = block ? block : take_new(pool, size_for(n_bytes), reason);
    }
    if (block) {
        block->state = state;
        pool->n_granted += state == BLOCK_GRANTED ? 1 : 0;
    }
    pthread_mutex_unlock(&pool->lock);
    return block;
}

int pool_give_back(struct block_pool *pool, uint32_t number, enum block_state state) {
    pthread_mutex_lock(&pool->lock);
    struct block *block = find(pool, number, state);
    if (block) {
        pool->n_granted -= state == BLOCK_GRANTED ? 1 : 0;
        make_idle(pool, block);
    }
    pthread_mutex_unlock(&pool->lock);
    return block != NULL;
}

struct block *pool_accept(struct block_pool *pool, uint32_t number) {
    pthread_mutex_lock(&pool->lock);
    struct block *block = find(pool, number, BLOCK_GRANTED);
    if (block) {
        pool->n_granted--;
        block->state = BLOCK_OUTPUT;
        block->n_refs = 1;
        pool->n_refs++;
    }
    pthread_mutex_unlock(&pool->lock);
    return block;
}

void block_ref(struct block *block) {
    pthread_mutex_lock(&block->pool->lock);
    block->n_refs++;
    pthread_mutex_unlock(&block->pool->lock);
}

void block_release(struct block *block) {
    struct block_pool *pool = block->pool;
    pthread_mutex_lock(&pool->lock);
    int last = --block->n_refs == 0;
    if (last) {
        make_idle(pool, block);
    }
    unlock_and_unref(pool, last);
}

size_t pool_announce(struct block_pool *pool, struct wire_buf *buf, int fds[POOL_MAX_FDS]) {
    size_t n = 0;
    pthread_mutex_lock(&pool->lock);
    wire_add_u32(buf, (uint32_t)pool->n_new);
    for (struct block *block = pool->blocks; block && pool->n_new > 0; block = block->next) {
        if (block->fd >= 0) {
            wire_add_u32(buf, block->number);
            wire_add_u64(buf, block->n_bytes);
            fds[n++] = block->fd;
            block->fd = -1;
            pool->n_new--;
        }
    }
    wire_add_u32(buf, (uint32_t)pool->n_dropped);
    for (size_t i = 0; i < pool->n_dropped; i++) {
        wire_add_u32(buf, pool->dropped[i]);
    }
    pool->n_dropped = 0;
    pthread_mutex_unlock(&pool->lock);
    return n;
}
