/* A hash table with open addressing that only grows: an entry is published by one store, after its
 * content. Clients choose the names, so the hash is keyed. */
#include "pick/session/label_names.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"
#include "core/base/utf8.h"
#include "core/event/lock.h"

struct label_name {
    struct keyed_hash hash; /* stands for the name */
    atomic_bool is_proven;
};

struct pick_label_names {
    struct lock lock; /* for writing */
    size_t most, most_on_trial;
    _Atomic size_t n, n_on_trial;
    struct hash_key key;
    size_t mask; /* number of slots, a power of two, less 1 */
    struct label_name *_Atomic slots[];
};

struct pick_label_names *pick_label_names_new(size_t most, size_t most_on_trial) {
    size_t n_slots = 4;
    while (n_slots < 2 * most) {
        n_slots *= 2;
    }
    struct pick_label_names *names =
        calloc(1, sizeof(*names) + n_slots * sizeof(struct label_name *));
    if (names) {
        lock_init(&names->lock);
        hash_key_init(&names->key);
        names->most = most;
        names->most_on_trial = most_on_trial;
        names->mask = n_slots - 1;
    }
    return names;
}

void pick_label_names_free(struct pick_label_names *names) {
    if (names) {
        for (size_t i = 0; i <= names->mask; i++) {
            free(atomic_load_explicit(&names->slots[i], memory_order_relaxed));
        }
        lock_fini(&names->lock);
        free(names);
    }
}

static bool is_label(struct str name) {
    return name.len <= PICK_LABEL_BYTES && utf8_is_valid(name.ptr, name.len);
}

/* Returns: the entry, or NULL; `*slot` is then the free one for it. */
static struct label_name *find(const struct pick_label_names *names, struct keyed_hash hash,
                               size_t *slot) {
    for (size_t at = (size_t)hash.low;; at++) {
        at &= names->mask;
        struct label_name *name = atomic_load_explicit(&names->slots[at], memory_order_acquire);
        if (!name || keyed_hash_eq(name->hash, hash)) {
            *slot = at;
            return name;
        }
    }
}

bool pick_label_names_has(const struct pick_label_names *names, struct str name) {
    size_t slot;
    return is_label(name) && find(names, keyed_hash_of(&names->key, name), &slot);
}

/* Another thread may have added it meanwhile. Returns: NULL where there is no place. */
static struct label_name *add(struct pick_label_names *names, struct keyed_hash hash,
                              bool is_proven) {
    size_t slot;
    lock_acquire(&names->lock);
    struct label_name *name = find(names, hash, &slot);
    if (!name && names->n < names->most &&
        (is_proven || names->n_on_trial < names->most_on_trial)) {
        name = calloc(1, sizeof(*name));
        if (name) {
            name->hash = hash;
            atomic_init(&name->is_proven, is_proven);
            atomic_store_explicit(&names->slots[slot], name, memory_order_release);
            names->n++;
            names->n_on_trial += !is_proven;
        }
    }
    lock_release(&names->lock);
    return name;
}

bool pick_label_names_admit(struct pick_label_names *names, struct str name) {
    size_t slot;
    if (!is_label(name)) {
        return false;
    }
    struct keyed_hash hash = keyed_hash_of(&names->key, name);
    if (find(names, hash, &slot)) {
        return true;
    }
    if (names->n >= names->most || names->n_on_trial >= names->most_on_trial) {
        return false;
    }
    return add(names, hash, false) != NULL;
}

void pick_label_names_prove(struct pick_label_names *names, struct str name) {
    size_t slot;
    if (!is_label(name)) {
        return;
    }
    struct keyed_hash hash = keyed_hash_of(&names->key, name);
    struct label_name *found = find(names, hash, &slot);
    if (!found && names->n < names->most) {
        found = add(names, hash, true);
    }
    if (found && !atomic_exchange(&found->is_proven, true)) {
        names->n_on_trial--;
    }
}
