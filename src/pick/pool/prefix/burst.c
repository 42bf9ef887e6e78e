/* The batch owns copies of what placing needs, so that it runs without the lock, while requests may
 * leave. Lock order: the pool's lock of windows, then a wakeup's. */
#include "pick/pool/prefix/burst.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/event/clock.h"
#include "pick/pool/state.h"

/* Of a batch; the prompts beyond them are not placed. */
enum { MOST_HASHES = 4 << 20 };

struct entry {
    struct burst_member *member; /* NULL: it has left */
    uint32_t n_blocks, first;    /* of the batch's hashes */
};

struct burst_batch {
    uint32_t n_refs; /* of its members, of the pool while it is open, and while it is placed */
    bool is_sealed;  /* it is being placed, or was */
    uint64_t until_ns;
    struct burst_rules rules;
    struct entry *entries;
    uint32_t n, cap;
    uint64_t *hashes; /* of all prompts */
    size_t n_hashes, hashes_cap;
    /* The endpoints that the first request with a prompt may be sent to. */
    struct endpoint_address *replicas;
    float *n_running;
    uint32_t n_replicas;
};

static void unref(struct burst_batch *batch) {
    if (--batch->n_refs == 0) {
        free(batch->entries);
        free(batch->hashes);
        free(batch->replicas);
        free(batch->n_running);
        free(batch);
    }
}

/* ---- joining --------------------------------------------------------------------------------- */

static bool add_hashes(struct burst_batch *batch, const struct prefix_key *key) {
    size_t n = batch->n_hashes + key->n;
    if (n > batch->hashes_cap) {
        size_t cap = batch->hashes_cap * 2 > n ? batch->hashes_cap * 2 : n;
        uint64_t *hashes = realloc(batch->hashes, cap * sizeof(*hashes));
        if (!hashes) {
            return false;
        }
        batch->hashes = hashes;
        batch->hashes_cap = cap;
    }
    for (uint32_t i = 0; i < key->n; i++) {
        batch->hashes[batch->n_hashes++] = key->hashes[i] ^ key->salt;
    }
    return true;
}

/* Those that the filters of labels keep; other filters may still remove them. */
static bool may_serve(const struct profile *profile, struct pool_labels labels) {
    for (size_t i = 0; i < profile->n_filters; i++) {
        const struct profile_step *step = &profile->filters[i];
        if (step->plugin->allows && !step->plugin->allows(step->parameters, labels)) {
            return false;
        }
    }
    return true;
}

/* In the order of their addresses. Without memory nothing is placed. */
static void add_replicas(struct burst_batch *batch, const struct pool_reader *reader,
                         const struct pool_request *request, const struct profile *profile) {
    const struct pool_snapshot *snapshot = reader->snapshot;
    const struct pool_view *view = &reader->view;
    uint32_t n = snapshot->n_members;
    bool is_single = !snapshot->spec->handler; /* otherwise the stages have profiles of their own */
    batch->replicas = malloc((n + 1) * sizeof(*batch->replicas));
    batch->n_running = malloc((n + 1) * sizeof(*batch->n_running));
    for (uint32_t i = 0; batch->replicas && batch->n_running && i < n; i++) {
        const struct pool_member *member = &snapshot->members[i];
        uint32_t pos = view->index_of[i];
        bool is_allowed = !request->subset || subset_has(request->subset, &member->address);
        bool is_filtered = is_single && !may_serve(profile, member->labels);
        if (pos < view->n_eligible && is_allowed && !is_filtered) {
            bool is_known = (view->columns.known[pos] & LOAD_RUNNING) != 0;
            batch->n_running[batch->n_replicas] = is_known ? view->columns.n_running[pos] : 0;
            batch->replicas[batch->n_replicas++] = member->address;
        }
    }
}

static struct burst_batch *begin_batch(struct pool *pool, const struct burst_rules *rules,
                                       uint64_t now_ns) {
    struct burst_batch *batch = calloc(1, sizeof(*batch));
    if (batch) {
        batch->n_refs = 1;
        batch->rules = *rules;
        batch->until_ns = now_ns + rules->window_ns;
        pool->burst = batch;
    }
    return batch;
}

static bool add_entry(struct burst_batch *batch, struct burst_member *member) {
    if (batch->n == batch->cap) {
        uint32_t cap = batch->cap > 0 ? batch->cap * 2 : 16;
        struct entry *entries = realloc(batch->entries, cap * sizeof(*entries));
        if (!entries) {
            return false;
        }
        batch->entries = entries;
        batch->cap = cap;
    }
    member->entry = batch->n;
    batch->entries[batch->n++] =
        (struct entry){.member = member, .first = (uint32_t)batch->n_hashes};
    return true;
}

/* Under the lock of windows. */
static uint64_t join(struct pool_reader *reader, const struct pool_request *request,
                     const struct profile *profile, struct burst_member *member) {
    struct pool *pool = reader->pool;
    const struct pool_request_needs *needs = &profile->needs;
    const struct prefix_key *key = &request->prompt->keys[needs->burst_index];
    struct burst_batch *batch =
        pool->burst ? pool->burst : begin_batch(pool, &needs->burst, clock_now_ns());
    uint32_t most = needs->burst.max_batch < BURST_MOST ? needs->burst.max_batch : BURST_MOST;
    if (!batch || batch->n >= most || !add_entry(batch, member)) {
        return 0;
    }
    member->batch = batch;
    member->is_released = member->is_assigned = false;
    batch->n_refs++;
    if (key->n > 0 && batch->n_hashes + key->n <= MOST_HASHES && add_hashes(batch, key)) {
        batch->entries[member->entry].n_blocks = key->n;
        if (!batch->replicas) {
            add_replicas(batch, reader, request, profile);
        }
    }
    return batch->until_ns;
}

uint64_t burst_join(struct pool_reader *reader, const struct pool_request *request,
                    struct burst_member *member) {
    const struct profile *profile = pool_active_profile(reader);
    struct pool *pool = reader->pool;
    struct error err;
    if (!profile || !profile->needs.burst_on || !request->prompt ||
        pool_view_update(&reader->view, reader->snapshot, clock_now_ns(), &err) != ST_OK) {
        return 0;
    }
    lock_acquire(&pool->burst_lock);
    uint64_t until_ns = join(reader, request, profile, member);
    lock_release(&pool->burst_lock);
    return until_ns;
}

/* ---- sealing --------------------------------------------------------------------------------- */

/* Without the lock: nothing is added to a sealed batch, and what leaves it is not read. */
static void place(const struct burst_batch *batch, struct burst_entry *entries) {
    for (uint32_t i = 0; i < batch->n; i++) {
        entries[i].n_blocks = batch->entries[i].n_blocks;
        entries[i].hashes = batch->hashes + batch->entries[i].first;
    }
    burst_assign(entries, batch->n, batch->n_running, batch->n_replicas, &batch->rules);
}

static void release(const struct burst_batch *batch, const struct burst_entry *entries,
                    struct pool_notifications *notifications) {
    for (uint32_t i = 0; i < batch->n; i++) {
        struct burst_member *member = batch->entries[i].member;
        if (!member) {
            continue;
        }
        if (entries && entries[i].target != BURST_NOWHERE) {
            member->is_assigned = true;
            member->target = batch->replicas[entries[i].target];
        }
        pool_wakeup_release_held(member, notifications);
    }
}

void burst_seal(struct pool *pool, struct burst_member *member) {
    struct pool_notifications notifications = {NULL};
    lock_acquire(&pool->burst_lock);
    struct burst_batch *batch = member->batch;
    if (!batch || batch->is_sealed) {
        lock_release(&pool->burst_lock);
        return;
    }
    assert(pool->burst == batch);
    pool->burst = NULL; /* and its reference is that of the placing */
    batch->is_sealed = true;
    struct burst_entry *entries = calloc(batch->n, sizeof(*entries));
    for (uint32_t i = 0; entries && i < batch->n; i++) {
        entries[i].is_present = batch->entries[i].member != NULL;
    }
    lock_release(&pool->burst_lock);
    if (entries) {
        place(batch, entries);
    }
    lock_acquire(&pool->burst_lock);
    release(batch, entries, &notifications);
    unref(batch);
    lock_release(&pool->burst_lock);
    free(entries);
    pool_send_notifications(&notifications);
}

/* ---- leaving --------------------------------------------------------------------------------- */

/* A window that all have left ends: there is no timer any more. */
void burst_leave(struct pool *pool, struct burst_member *member) {
    if (!member->wakeup) {
        return;
    }
    lock_acquire(&pool->burst_lock);
    struct burst_batch *batch = member->batch;
    if (batch) {
        batch->entries[member->entry].member = NULL;
        member->batch = NULL;
        pool_wakeup_forget_held(member);
        if (pool->burst == batch && batch->n_refs == 2) { /* the pool's and this one */
            pool->burst = NULL;
            batch->n_refs--;
        }
        unref(batch);
    }
    lock_release(&pool->burst_lock);
}
