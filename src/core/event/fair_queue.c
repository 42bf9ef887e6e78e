/* Three levels of pairing heaps. A flow is made with its first job and freed with its last one:
 * what has nothing to do needs no memory of the past, because the clock is as far as the last job
 * that was taken. */
#include "core/event/fair_queue.h"

#include <assert.h>
#include <stdlib.h>

#include "core/base/compiler.h"

/* ---- pairing heaps --------------------------------------------------------------------------- */

/* Returns: the root of both; each may be NULL. */
static struct fair_node *heap_meld(struct fair_node *a, struct fair_node *b) {
    if (!a || !b) {
        return a ? a : b;
    }
    bool b_is_first = b->key < a->key || (b->key == a->key && b->order < a->order);
    struct fair_node *root = b_is_first ? b : a, *child = b_is_first ? a : b;
    child->previous = root;
    child->next = root->child;
    if (root->child) {
        root->child->previous = child;
    }
    root->child = child;
    root->next = root->previous = NULL;
    return root;
}

/* Melds siblings: pairs from the first to the last, then the pairs from the last to the first.
 * Returns: the root; NULL when there is none. */
static struct fair_node *heap_meld_siblings(struct fair_node *first) {
    struct fair_node *pairs = NULL, *root = NULL; /* a stack, linked by `next` */
    while (first) {
        struct fair_node *second = first->next;
        struct fair_node *rest = second ? second->next : NULL;
        first->next = first->previous = NULL;
        if (second) {
            second->next = second->previous = NULL;
        }
        struct fair_node *pair = heap_meld(first, second);
        pair->next = pairs;
        pairs = pair;
        first = rest;
    }
    while (pairs) {
        struct fair_node *next = pairs->next;
        pairs->next = NULL;
        root = heap_meld(root, pairs);
        pairs = next;
    }
    return root;
}

static void heap_insert(struct fair_node **root, struct fair_node *node, uint64_t key,
                        uint64_t order) {
    *node = (struct fair_node){.key = key, .order = order};
    *root = heap_meld(*root, node);
}

static void heap_remove(struct fair_node **root, struct fair_node *node) {
    struct fair_node *children = heap_meld_siblings(node->child);
    if (node == *root) {
        *root = children;
        return;
    }
    if (node->previous->child == node) {
        node->previous->child = node->next;
    } else {
        node->previous->next = node->next;
    }
    if (node->next) {
        node->next->previous = node->previous;
    }
    *root = heap_meld(*root, children);
}

/* ---- flows ----------------------------------------------------------------------------------- */

static struct fair_entry *first_entry(const struct fair_flow *flow) {
    while (!flow->is_conn) {
        flow = CONTAINER_OF(flow->first, struct fair_flow, node);
    }
    return CONTAINER_OF(flow->first, struct fair_entry, node);
}

/* Its next job, or another one, is the next one of `parent`. */
static void flow_insert(struct fair_flow *parent, struct fair_flow *flow, uint64_t order) {
    heap_insert(&parent->first, &flow->node, flow->start + first_entry(flow)->cost_ns, order);
}

static void flow_raise_clock(struct fair_flow *flow, uint64_t clock) {
    flow->clock = flow->clock > clock ? flow->clock : clock;
}

static size_t bucket_of(struct fair_client client, bool is_conn) {
    uint64_t x = client.host ^ (client.conn + is_conn) * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 32)) * UINT64_C(0xbf58476d1ce4e5b9);
    return (size_t)(x >> 54);
}

static_assert(FAIR_QUEUE_BUCKETS == 1 << 10, "bucket_of takes 10 bits");

static struct fair_flow *flow_find(struct fair_queue *queue, struct fair_client client,
                                   bool is_conn) {
    struct fair_flow *flow;
    LIST_FOREACH(flow, &queue->flows[bucket_of(client, is_conn)], link) {
        if (flow->is_conn == is_conn && flow->client.host == client.host &&
            flow->client.conn == client.conn) {
            return flow;
        }
    }
    return NULL;
}

/* Returns: NULL when out of memory. */
static struct fair_flow *flow_get(struct fair_queue *queue, struct fair_flow *parent,
                                  struct fair_client client, bool is_conn) {
    struct fair_flow *flow = flow_find(queue, client, is_conn);
    if (!flow && (flow = calloc(1, sizeof(*flow)))) {
        flow->parent = parent;
        flow->client = client;
        flow->is_conn = is_conn;
        LIST_INSERT_HEAD(&queue->flows[bucket_of(client, is_conn)], flow, link);
    }
    return flow;
}

static void free_if_empty(struct fair_queue *queue, struct fair_flow *flow) {
    bool is_spare = flow == &queue->spare[0] || flow == &queue->spare[1];
    if (!flow->first && flow != &queue->all && !is_spare) {
        LIST_REMOVE(flow, link);
        free(flow);
    }
}

/* Returns: the connection's flow, which may be empty. */
static struct fair_flow *conn_flow(struct fair_queue *queue, struct fair_client client) {
    struct fair_client host_client = {.host = client.host};
    struct fair_flow *host = flow_get(queue, &queue->all, host_client, false);
    struct fair_flow *conn = host ? flow_get(queue, host, client, true) : NULL;
    if (!conn && host) {
        free_if_empty(queue, host);
    }
    return conn ? conn : &queue->spare[1];
}

/* ---- the queue ------------------------------------------------------------------------------- */

void fair_queue_init(struct fair_queue *queue) {
    *queue = (struct fair_queue){.n = 0};
    queue->spare[0].parent = &queue->all;
    queue->spare[1].parent = &queue->spare[0];
    queue->spare[1].is_conn = true;
    for (size_t i = 0; i < FAIR_QUEUE_BUCKETS; i++) {
        LIST_INIT(&queue->flows[i]);
    }
}

void fair_queue_fini(struct fair_queue *queue) {
    assert(queue->n == 0 && !queue->all.first);
}

/* So that clocks, which are sums, do not wrap. */
static const uint64_t MAX_COST_NS = UINT64_C(1) << 40;

void fair_queue_push(struct fair_queue *queue, struct fair_entry *entry, struct fair_client client,
                     uint64_t cost_ns) {
    struct fair_flow *flow = conn_flow(queue, client);
    bool was_empty = !flow->first;
    uint64_t order = queue->n_pushed++;
    entry->cost_ns = cost_ns < MAX_COST_NS ? cost_ns : MAX_COST_NS;
    entry->flow = flow;
    heap_insert(&flow->first, &entry->node, flow->clock + entry->cost_ns, order);
    queue->n++;
    for (struct fair_flow *parent = flow->parent; parent; flow = parent, parent = parent->parent) {
        bool parent_was_empty = !parent->first;
        if (was_empty) {
            flow->start = parent->clock;
            flow_insert(parent, flow, order);
        } else {
            heap_remove(&parent->first, &flow->node);
            flow_insert(parent, flow, flow->node.order);
        }
        was_empty = parent_was_empty;
    }
}

struct fair_entry *fair_queue_first(const struct fair_queue *queue) {
    return queue->all.first ? first_entry(&queue->all) : NULL;
}

/* `taken`: the job was the next one, and has its turn now. */
static void remove_entry(struct fair_queue *queue, struct fair_entry *entry, bool taken) {
    struct fair_flow *flow = entry->flow;
    struct fair_node removed = entry->node; /* of the level below `flow` */
    heap_remove(&flow->first, &entry->node);
    queue->n--;
    for (struct fair_flow *parent = flow->parent; parent; flow = parent, parent = parent->parent) {
        struct fair_node node = flow->node;
        heap_remove(&parent->first, &flow->node);
        if (taken) {
            flow_raise_clock(flow, removed.key);
            flow->start = node.key;
        }
        if (flow->first) {
            flow_insert(parent, flow, taken ? queue->n_pushed++ : node.order);
        } else {
            flow->clock = 0;
            free_if_empty(queue, flow);
        }
        removed = node;
    }
    if (taken) {
        flow_raise_clock(&queue->all, removed.key);
    }
}

struct fair_entry *fair_queue_pop(struct fair_queue *queue) {
    struct fair_entry *entry = fair_queue_first(queue);
    if (entry) {
        remove_entry(queue, entry, true);
    }
    return entry;
}

void fair_queue_remove(struct fair_queue *queue, struct fair_entry *entry) {
    remove_entry(queue, entry, false);
}
