/* Open sequences by their identifier: a table that doubles, with chains. Clients choose the
 * identifiers: without the key of its hash nobody knows which meet. */
#include <stdlib.h>

#include "serve/scheduler/sequence/sequence.h"

enum { FIRST_SLOTS = 64 };

static uint64_t hash_of(const struct sequences *all, const struct sequence_id *id) {
    struct str number = str_make((const char *)&id->number, sizeof(id->number));
    return keyed_hash_of(&all->key, id->is_text ? id->text : number).low;
}

static bool same_id(const struct sequence_id *a, const struct sequence_id *b) {
    return a->is_text == b->is_text && a->number == b->number && str_eq(a->text, b->text);
}

static struct sequence **bucket_of(const struct sequences *all, const struct sequence_id *id) {
    return &all->table[hash_of(all, id) & all->table_mask];
}

struct sequence *sequence_table_find(const struct sequences *all, const struct sequence_id *id) {
    struct sequence *sequence = all->table ? *bucket_of(all, id) : NULL;
    while (sequence && !same_id(&sequence->id, id)) {
        sequence = sequence->hash_next;
    }
    return sequence;
}

static void bucket_insert(struct sequences *all, struct sequence *sequence) {
    struct sequence **slot = bucket_of(all, &sequence->id);
    sequence->hash_next = *slot;
    *slot = sequence;
}

static bool table_grow(struct sequences *all) {
    size_t n_before = all->table ? all->table_mask + 1 : 0;
    size_t n = n_before > 0 ? n_before * 2 : FIRST_SLOTS;
    struct sequence **before = all->table;
    struct sequence **table = calloc(n, sizeof(struct sequence *));
    if (!table) {
        return before != NULL; /* chains get longer */
    }
    all->table = table;
    all->table_mask = n - 1;
    for (size_t i = 0; i < n_before; i++) {
        struct sequence *sequence = before[i];
        while (sequence) {
            struct sequence *next = sequence->hash_next;
            bucket_insert(all, sequence);
            sequence = next;
        }
    }
    free(before);
    return true;
}

bool sequence_table_add(struct sequences *all, struct sequence *sequence) {
    if ((!all->table || all->n_open > all->table_mask) && !table_grow(all)) {
        return false;
    }
    bucket_insert(all, sequence);
    sequence->open = true;
    all->n_open++;
    return true;
}

void sequence_table_remove(struct sequences *all, struct sequence *sequence) {
    struct sequence **slot = bucket_of(all, &sequence->id);
    while (*slot != sequence) {
        slot = &(*slot)->hash_next;
    }
    *slot = sequence->hash_next;
    sequence->hash_next = NULL;
    sequence->open = false;
    all->n_open--;
}
