/* Keys that change while requests are under way: what a request reads is swapped whole, and never
 * freed before the end, since a worker may be looking at it. It is small, and changes are rare. */
#include "serve/frontend/keys.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/log.h"
#include "core/base/metric/metric.h"
#include "core/os/watched_file.h"

/* One state of the file. */
struct state {
    struct keys_file *file;
    struct state *before;
};

struct keys {
    struct watched_file watched;
    struct state *_Atomic now; /* the first of all states there were */
};

/* ---- a state after the other ----------------------------------------------------------------- */

static const struct keys_file *file_of(const struct keys *keys) {
    return atomic_load_explicit(&keys->now, memory_order_acquire)->file;
}

/* What was read becomes what counts. */
static enum status take(struct keys *keys, struct error *err) {
    struct state *state = calloc(1, sizeof(*state));
    if (!state) {
        return error_set(err, ST_NO_MEMORY, "no memory for the keys");
    }
    enum status st =
        keys_file_parse(keys->watched.path, watched_file_text(&keys->watched), &state->file, err);
    if (st != ST_OK) {
        free(state);
        return st;
    }
    state->before = atomic_load_explicit(&keys->now, memory_order_relaxed);
    atomic_store_explicit(&keys->now, state, memory_order_release);
    return ST_OK;
}

static enum status read_again(struct keys *keys, bool *changed, struct error *err) {
    enum status st = watched_file_read(&keys->watched, changed, err);
    if (st != ST_OK) {
        return error_prefix(err, "%s", keys->watched.path);
    }
    return *changed ? take(keys, err) : ST_OK;
}

enum status keys_new(const char *path, struct keys **out, struct error *err) {
    struct keys *keys = calloc(1, sizeof(*keys));
    bool changed = false;
    if (!keys) {
        return error_set(err, ST_NO_MEMORY, "no memory for the keys");
    }
    keys->watched.path = path;
    enum status st = read_again(keys, &changed, err);
    watched_file_drop(&keys->watched);
    if (st != ST_OK) {
        keys_free(keys);
        return st;
    }
    *out = keys;
    return ST_OK;
}

void keys_free(struct keys *keys) {
    struct state *state = keys ? atomic_load(&keys->now) : NULL;
    while (state) {
        struct state *before = state->before;
        keys_file_free(state->file);
        free(state);
        state = before;
    }
    free(keys);
}

bool keys_check(struct keys *keys) {
    bool changed = false;
    struct error err;
    enum status st = read_again(keys, &changed, &err);
    watched_file_drop(&keys->watched);
    if (changed && st == ST_OK) {
        metric_add(METRIC_RELOADS_KEYS, 1);
        log_event(LOG_INFO, "the keys have changed", LOG_TEXT_OF("file", keys->watched.path));
    } else if (changed) {
        metric_add(METRIC_RELOAD_FAILURES_KEYS, 1);
        log_event(LOG_ERROR, "the keys have changed and can't be used: the old ones stay",
                  LOG_TEXT_OF("reason", err.text));
    }
    return changed && st == ST_OK;
}

/* ---- what the front ends ask ----------------------------------------------------------------- */

bool keys_guard(const struct keys *keys, enum keys_group group) {
    return keys_file_guards(file_of(keys), group);
}

static enum status counted(enum status st) {
    if (st != ST_OK) {
        metric_add(METRIC_KEYS_REFUSED_TOTAL, 1);
    }
    return st;
}

enum status keys_admit_http(const struct keys *keys, enum keys_group group,
                            const struct http_head *head, char challenge[KEYS_CHALLENGE_BYTES],
                            struct error *err) {
    if (!keys) {
        return ST_OK;
    }
    const struct keys_file *file = file_of(keys);
    struct str value = STR("");
    size_t n = http_head_find(head, keys_file_field(file), &value);
    enum status st = counted(keys_file_admit(file, group, n, value, err));
    if (keys_file_is_bare(file)) {
        snprintf(challenge, KEYS_CHALLENGE_BYTES, "ApiKey realm=\"sluice\", header=\"%s\"",
                 keys_file_field(file));
    } else {
        snprintf(challenge, KEYS_CHALLENGE_BYTES, "Bearer realm=\"sluice\"");
    }
    return st;
}

enum status keys_admit(const struct keys *keys, enum keys_group group, keys_field_find *find,
                       const void *request, struct error *err) {
    if (!keys) {
        return ST_OK;
    }
    const struct keys_file *file = file_of(keys);
    struct str value = STR("");
    size_t n = find(request, keys_file_field(file), &value);
    return counted(keys_file_admit(file, group, n, value, err));
}
