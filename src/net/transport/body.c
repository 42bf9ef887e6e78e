/* Bodies in memory. A small one lives in the exchange's arena and is not accounted: the number of
 * connections bounds those. A larger one has a block of the worker's pool; budget is reserved in
 * steps as bytes arrive, so a client that announces much and sends little holds little. The size
 * limit is exact, compressed or not. */
#include "net/transport/body.h"

#include <assert.h>
#include <string.h>

#include "core/base/metric/metric.h"

enum {
    UNACCOUNTED_BYTES = 2048, /* of each body, never accounted */
    ARENA_MAX_BYTES = 16384,  /* bodies up to this size are in the arena */
    ALIGNMENT = 64,
    INITIAL_CAPACITY = 1024,     /* of a body of unknown length */
    MIN_RESERVE_BYTES = 65536,   /* smallest step of the budget */
    RESERVE_RATIO = 4,           /* step as a multiple of the received bytes, */
    MAX_RESERVE_BYTES = 1 << 22, /* up to this */
    NEED_STEP_BYTES = 4096,      /* step when the budget has no more: not each byte on its own */
};

/* ---- the budget ------------------------------------------------------------------------------ */

enum status body_check_budget(const struct net_budget *budget, uint64_t n_bytes,
                              struct error *err) {
    bool fits =
        n_bytes <= UNACCOUNTED_BYTES || net_budget_fits(budget, n_bytes - UNACCOUNTED_BYTES);
    return fits ? ST_OK : net_budget_error(budget, err);
}

/* Returns: the largest size this body can have. */
static size_t max_body_bytes(const struct body *body) {
    bool known = !body->inflate && body->length != UINT64_MAX;
    return known ? (size_t)body->length : body->max_bytes;
}

/* Reserves budget for `wanted` bytes, at most max_body_bytes. The more was received, the larger the
 * step ahead. Returns: false when the budget has not so much. */
static bool try_reserve_budget(struct body *body, size_t wanted) {
    if (wanted <= body->n_reserved) {
        return true;
    }
    size_t need = wanted - body->n_reserved, most = max_body_bytes(body) - body->n_reserved;
    size_t step = body->len < MIN_RESERVE_BYTES / RESERVE_RATIO   ? MIN_RESERVE_BYTES
                  : body->len < MAX_RESERVE_BYTES / RESERVE_RATIO ? body->len * RESERVE_RATIO
                                                                  : MAX_RESERVE_BYTES;
    step = step < need ? need : step < most ? step : most;
    if (!net_budget_reserve(body->allocator.budget, body->allocator.owner, step)) {
        step = NEED_STEP_BYTES < most ? NEED_STEP_BYTES : most;
        step = step < need ? need : step;
        if (!net_budget_reserve(body->allocator.budget, body->allocator.owner, step)) {
            return false;
        }
    }
    body->n_reserved += step;
    return true;
}

static enum status reserve_budget(struct body *body, size_t wanted, struct error *err) {
    return try_reserve_budget(body, wanted) ? ST_OK : net_budget_error(body->allocator.budget, err);
}

/* Bytes were added of a body that is read in place: the next read needs space for one at least. */
static enum status reserve_next_byte(struct body *body, struct error *err) {
    return body->left > 0 ? reserve_budget(body, body->len + 1, err) : ST_OK;
}

/* ---- capacity -------------------------------------------------------------------------------- */

static enum status size_error(const struct body *body, struct error *err) {
    return error_set(err, ST_BODY_TOO_LARGE, "expected a body of at most %zu bytes%s (%s)",
                     body->max_bytes, body->inflate ? " after decompression" : "", body->setting);
}

/* Returns: padding before the first byte so that the byte at align_at is aligned. */
static size_t alignment_padding(const struct body *body) {
    return (0 - body->align_at) % ALIGNMENT;
}

static enum status grow_in_arena(struct body *body, size_t cap, struct error *err) {
    size_t pad = alignment_padding(body);
    char *fresh = arena_alloc_aligned(body->allocator.arena, pad + cap, ALIGNMENT);
    if (!fresh) {
        return error_no_memory(err, "a body of %zu bytes", cap);
    }
    if (body->len > 0) {
        memcpy(fresh + pad, body->data, body->len);
        metric_add(METRIC_COPIED_BYTES_TOTAL, (int64_t)body->len);
    }
    body->data = fresh + pad;
    body->cap = cap;
    return ST_OK;
}

static enum status grow_in_pool(struct body *body, size_t cap, struct error *err) {
    size_t pad = alignment_padding(body), got;
    char *fresh = body->block ? body_pool_grow(body->allocator.pool, body->block, body->block_bytes,
                                               pad + cap, &got)
                              : body_pool_alloc(body->allocator.pool, pad + cap, &got);
    if (!fresh) {
        return error_no_memory(err, "a body of %zu bytes", cap);
    }
    if (!body->block && body->len > 0) {
        memcpy(fresh + pad, body->data, body->len);
        metric_add(METRIC_COPIED_BYTES_TOTAL, (int64_t)body->len);
    }
    body->block = fresh;
    body->block_bytes = got;
    body->data = fresh + pad;
    body->cap = got - pad;
    return ST_OK;
}

/* Grows the buffer to `cap` bytes. */
static enum status grow_buffer(struct body *body, size_t cap, struct error *err) {
    if (cap > SIZE_MAX / 2) {
        return error_no_memory(err, "a body of %zu bytes", cap);
    }
    return cap <= ARENA_MAX_BYTES ? grow_in_arena(body, cap, err) : grow_in_pool(body, cap, err);
}

/* Ensures capacity for `n_bytes` more, doubling where the length is unknown. */
static enum status ensure_capacity(struct body *body, size_t n_bytes, struct error *err) {
    if (n_bytes > body->max_bytes - body->len) {
        return size_error(body, err);
    }
    size_t wanted = body->len + n_bytes;
    enum status st = reserve_budget(body, wanted, err);
    if (st == ST_OK && wanted > body->cap) {
        size_t cap = body->cap < INITIAL_CAPACITY ? INITIAL_CAPACITY : body->cap;
        while (cap < wanted) {
            cap = cap <= SIZE_MAX / 2 ? 2 * cap : wanted;
        }
        st = grow_buffer(body, cap < body->max_bytes ? cap : body->max_bytes, err);
    }
    return st;
}

static void count_in_flight(struct body *body, size_t n_bytes) {
    body->len += n_bytes;
    metric_add(METRIC_BODY_BYTES_IN_FLIGHT, (int64_t)n_bytes);
}

/* ---- starting -------------------------------------------------------------------------------- */

enum status body_init(struct body *body, const struct body_allocator *allocator,
                      const struct body_plan *plan, struct error *err) {
    *body = (struct body){
        .allocator = *allocator,
        .n_reserved = UNACCOUNTED_BYTES,
        .max_bytes = plan->max_bytes < SIZE_MAX ? (size_t)plan->max_bytes : SIZE_MAX,
        .setting = plan->setting ? plan->setting : "--max-body-size",
        .align_at = plan->align_at,
        .length = plan->length,
        .left = plan->length,
    };
    if (plan->length != UINT64_MAX && plan->length > body->max_bytes) {
        return error_set(err, ST_BODY_TOO_LARGE,
                         "expected a body of at most %zu bytes (%s), got a Content-Length of %llu",
                         body->max_bytes, body->setting, (unsigned long long)plan->length);
    }
    if (plan->coding != HTTP_IDENTITY) {
        body->inflate = inflate_new(plan->coding);
        return body->inflate ? ST_OK : error_no_memory(err, "decompressing the body");
    }
    if (plan->length == UINT64_MAX) {
        return ST_OK;
    }
    body->in_place = true;
    return grow_buffer(body, (size_t)plan->length, err);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* The limit is reached: any further output of the decompressor is an error. */
static enum status inflate_nothing(struct body *body, struct str *data, size_t *n_out,
                                   struct error *err) {
    char scratch;
    enum status st = inflate_step(body->inflate, data, &scratch, 1, n_out, err);
    if (st == ST_OK && *n_out > 0) {
        st = size_error(body, err);
    }
    return st;
}

static enum status inflate_add(struct body *body, struct str data, struct error *err) {
    size_t capacity, n_out;
    enum status st = ST_OK;
    do {
        if (body->len == body->max_bytes) {
            capacity = 1;
            st = inflate_nothing(body, &data, &n_out, err);
            continue;
        }
        st = ensure_capacity(body, 1, err);
        if (st != ST_OK) {
            return st;
        }
        size_t end = body->cap < body->n_reserved ? body->cap : body->n_reserved;
        end = end < body->max_bytes ? end : body->max_bytes;
        capacity = end - body->len;
        st = inflate_step(body->inflate, &data, body->data + body->len, capacity, &n_out, err);
        count_in_flight(body, n_out);
    } while (st == ST_OK && (data.len > 0 || n_out == capacity));
    return st;
}

static void count_received(struct body *body, size_t n_bytes) {
    metric_add(METRIC_BODY_BYTES_TOTAL, (int64_t)n_bytes);
    if (body->left != UINT64_MAX) {
        assert(n_bytes <= body->left);
        body->left -= n_bytes;
    }
}

static bool is_in_place(const struct body *body, struct str data) {
    return body->in_place && data.ptr == body->data + body->len;
}

enum status body_add(struct body *body, struct str data, struct error *err) {
    if (is_in_place(body, data)) {
        assert(data.len <= body->n_reserved - body->len);
        return body_advance(body, data.len, err);
    }
    count_received(body, data.len);
    if (body->inflate) {
        return inflate_add(body, data, err);
    }
    while (data.len > 0) {
        /* At most what is reserved: the next step depends on what was received. */
        enum status st = ensure_capacity(body, 1, err);
        size_t n = body->n_reserved - body->len;
        n = n < data.len ? n : data.len;
        if (st == ST_OK) {
            st = ensure_capacity(body, n, err);
        }
        if (st != ST_OK) {
            return st;
        }
        memcpy(body->data + body->len, data.ptr, n);
        metric_add(METRIC_COPIED_BYTES_TOTAL, (int64_t)n);
        count_in_flight(body, n);
        data = str_make(data.ptr + n, data.len - n);
    }
    return body->in_place ? reserve_next_byte(body, err) : ST_OK;
}

char *body_read_buffer(struct body *body, size_t *n_bytes) {
    assert(body->in_place);
    /* Prefer a large read, if the budget has it; else whatever capacity is left. */
    size_t good = body->left < MIN_RESERVE_BYTES ? (size_t)body->left : MIN_RESERVE_BYTES;
    (void)try_reserve_budget(body, body->len + good);
    size_t granted = body->n_reserved - body->len;
    *n_bytes = body->left < granted ? (size_t)body->left : granted;
    return body->data + body->len;
}

enum status body_advance(struct body *body, size_t n_bytes, struct error *err) {
    count_received(body, n_bytes);
    count_in_flight(body, n_bytes);
    return reserve_next_byte(body, err);
}

enum status body_check_size(const struct body *body, uint64_t n_bytes, struct error *err) {
    if (!body->inflate && n_bytes > body->max_bytes - body->len) {
        return size_error(body, err);
    }
    return ST_OK;
}

enum status body_finish(struct body *body, struct error *err) {
    return body->inflate ? inflate_finish(body->inflate, err) : ST_OK;
}

uint64_t body_reserved_bytes(const struct body *body) {
    return body->n_reserved > UNACCOUNTED_BYTES ? body->n_reserved - UNACCOUNTED_BYTES : 0;
}

void body_fini(struct body *body, uint64_t now_ns) {
    inflate_free(body->inflate);
    if (body->block) {
        body_pool_free(body->allocator.pool, body->block, body->block_bytes, now_ns);
    }
    if (body_reserved_bytes(body) > 0) {
        net_budget_release(body->allocator.budget, body->allocator.owner,
                           body_reserved_bytes(body));
    }
    if (body->len > 0) {
        metric_add(METRIC_BODY_BYTES_IN_FLIGHT, -(int64_t)body->len);
    }
    *body = (struct body){0};
}
