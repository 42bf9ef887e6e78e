/* Keys that can change while requests run. A request reads one snapshot of the file. Replaced
 * snapshots are freed only by keys_free, because a worker may still read one; they are small and
 * changes are rare. */
#include "serve/frontend/keys.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/log.h"
#include "core/base/metric/metric.h"
#include "core/os/watched_file.h"

/* One snapshot of the file. */
struct keys_snapshot {
    struct keys_file *file;
    struct keys_snapshot *prev;
};

struct keys {
    struct watched_file watched;
    struct keys_snapshot *_Atomic current; /* head of the list of all snapshots */
};

/* ---- snapshots ----------------------------------------------------------------- */

static const struct keys_file *current_file(const struct keys *keys) {
    return atomic_load_explicit(&keys->current, memory_order_acquire)->file;
}

/* A file may lack groups because it is cut, or by mistake: what they guarded stays closed. */
static enum status keep_groups(struct keys_file *file, const struct keys_file *previous,
                               struct error *err) {
    char kept[KEYS_NAMES_BYTES], opened[KEYS_NAMES_BYTES];
    enum status st = keys_file_keep(file, previous, kept, opened, err);
    if (st == ST_OK && kept[0]) {
        log_event(LOG_WARNING,
                  "keys file lacks groups that had keys: their keys stay in use; `GROUP: open` "
                  "opens a group",
                  LOG_CSTR("groups", kept));
    }
    if (st == ST_OK && opened[0]) {
        log_event(LOG_WARNING, "keys file opens groups to all", LOG_CSTR("groups", opened));
    }
    return st;
}

/* Parses the bytes just read and publishes them as the current snapshot. */
static enum status publish_snapshot(struct keys *keys, struct error *err) {
    struct keys_snapshot *snapshot = calloc(1, sizeof(*snapshot));
    if (!snapshot) {
        return error_no_memory(err, "the keys");
    }
    snapshot->prev = atomic_load_explicit(&keys->current, memory_order_relaxed);
    enum status st = keys_file_parse(keys->watched.path, watched_file_text(&keys->watched),
                                     &snapshot->file, err);
    if (st == ST_OK && snapshot->prev) {
        st = keep_groups(snapshot->file, snapshot->prev->file, err);
    }
    if (st != ST_OK) {
        keys_file_free(snapshot->file);
        free(snapshot);
        return st;
    }
    atomic_store_explicit(&keys->current, snapshot, memory_order_release);
    return ST_OK;
}

static enum status read_if_changed(struct keys *keys, bool now, bool *changed, struct error *err) {
    enum status st = now ? watched_file_read(&keys->watched, changed, err)
                         : watched_file_read_settled(&keys->watched, changed, err);
    if (st != ST_OK) {
        return error_prefix(err, "%s", keys->watched.path);
    }
    return *changed ? publish_snapshot(keys, err) : ST_OK;
}

enum status keys_new(const char *path, struct keys **out, struct error *err) {
    struct keys *keys = calloc(1, sizeof(*keys));
    bool changed = false;
    if (!keys) {
        return error_no_memory(err, "the keys");
    }
    keys->watched.path = path;
    enum status st = read_if_changed(keys, true, &changed, err);
    watched_file_clear(&keys->watched);
    if (st != ST_OK) {
        keys_free(keys);
        return st;
    }
    *out = keys;
    return ST_OK;
}

void keys_free(struct keys *keys) {
    struct keys_snapshot *snapshot = keys ? atomic_load(&keys->current) : NULL;
    while (snapshot) {
        struct keys_snapshot *prev = snapshot->prev;
        keys_file_free(snapshot->file);
        free(snapshot);
        snapshot = prev;
    }
    free(keys);
}

bool keys_reload(struct keys *keys, bool now) {
    bool changed = false;
    struct error err;
    enum status st = read_if_changed(keys, now, &changed, &err);
    watched_file_clear(&keys->watched);
    if (changed && st == ST_OK) {
        metric_add(METRIC_RELOADS_KEYS, 1);
        log_event(LOG_INFO, "keys file reloaded", LOG_CSTR("file", keys->watched.path));
    } else if (changed) {
        metric_add(METRIC_RELOAD_FAILURES_KEYS, 1);
        log_event(LOG_ERROR, "keys file invalid: the previous keys stay in use",
                  LOG_CSTR("reason", err.text));
    }
    return changed && st == ST_OK;
}

/* ---- authorization ----------------------------------------------------------------- */

bool keys_are_required(const struct keys *keys, enum keys_group group) {
    return keys_file_requires_key(current_file(keys), group);
}

bool keys_read_field(const struct keys *keys, struct str name) {
    return keys && str_is(name, keys_file_field(current_file(keys)));
}

static enum status count_refusal(enum status st) {
    if (st != ST_OK) {
        metric_add(METRIC_KEYS_REFUSED_TOTAL, 1);
    }
    return st;
}

/* Checks a request against one state of the file. */
static enum status authorize(const struct keys_file *file, enum keys_group group,
                             keys_field_find *find, const void *request, struct error *err) {
    struct str value = STR("");
    size_t n = find(request, keys_file_field(file), &value);
    return count_refusal(keys_file_authorize(file, group, n, value, err));
}

enum status keys_authorize(const struct keys *keys, enum keys_group group, keys_field_find *find,
                           const void *request, struct error *err) {
    return keys ? authorize(current_file(keys), group, find, request, err) : ST_OK;
}

/* A keys_field_find. */
static size_t find_header(const void *head, const char *name, struct str *value) {
    return http_head_find(head, str_of(name), value);
}

enum status keys_authorize_http(const struct keys *keys, enum keys_group group,
                                const struct http_head *head, char challenge[KEYS_CHALLENGE_BYTES],
                                struct error *err) {
    if (!keys) {
        return ST_OK;
    }
    const struct keys_file *file = current_file(keys);
    enum status st = authorize(file, group, find_header, head, err);
    if (keys_file_has_raw_key(file)) {
        snprintf(challenge, KEYS_CHALLENGE_BYTES, "ApiKey realm=\"sluice\", header=\"%s\"",
                 keys_file_field(file));
    } else {
        snprintf(challenge, KEYS_CHALLENGE_BYTES, "Bearer realm=\"sluice\"");
    }
    return st;
}
