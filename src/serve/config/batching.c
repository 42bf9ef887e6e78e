/* dynamic_batching: what shares a batch, how long it waits for that, priorities, and what becomes
 * of requests that wait too long. What depends on the model itself (sizes within max_batch_size) is
 * checked when it is known, in resolve_batching.c. */
#include "core/base/log.h"
#include "serve/config/read.h"

enum { MAX_PRIORITY_LEVELS = 1000 /* each has its place in the queue of every version */ };

/* ---- policies -------------------------------------------------------------------------------- */

static enum status read_action(const struct doc_node *policy, bool *delays, struct error *err) {
    struct doc_node node = doc_get(policy, "timeout_action");
    struct str action = STR("REJECT");
    enum status st = doc_read_str(&node, &action, err);
    *delays = str_is(action, "DELAY");
    if (st == ST_OK && !*delays && !str_is(action, "REJECT")) {
        st = doc_error(&node, err, "expected REJECT or DELAY, got \"%.*s\"", STR_ARG(action));
    }
    return st;
}

static enum status read_policy(const struct doc_node *node, struct model_queue_policy *out,
                               struct error *err) {
    struct doc_node override = doc_get(node, "allow_timeout_override");
    enum status st = read_action(node, &out->delay_on_timeout, err);
    if (st == ST_OK) {
        st = config_read_count(node, "default_timeout_microseconds", &out->timeout_us, err);
    }
    if (st == ST_OK) {
        st = doc_read_bool(&override, &out->allow_override, err);
    }
    if (st == ST_OK) {
        st = config_read_count(node, "max_queue_size", &out->max_size, err);
    }
    return st;
}

/* ---- priorities ------------------------------------------------------------------------------ */

static enum status read_priorities(const struct doc_node *batching, struct model_config *out,
                                   struct error *err) {
    struct doc_node levels = doc_get(batching, "priority_levels");
    struct doc_node ordinary = doc_get(batching, "default_priority_level");
    int64_t n = 0, number = 0;
    enum status st = doc_read_i64(&levels, 0, MAX_PRIORITY_LEVELS, &n, err);
    if (st == ST_OK) {
        st = doc_read_i64(&ordinary, 0, INT64_MAX, &number, err);
    }
    if (st == ST_OK && n > 0 && (number < 1 || number > n)) {
        st = doc_error(ordinary.val ? &ordinary : &levels, err,
                       "expected a default_priority_level from 1 to priority_levels, %lld, got "
                       "%lld",
                       (long long)n, (long long)number);
    }
    out->priority_levels = (uint64_t)n;
    out->default_priority = (uint64_t)number;
    return st;
}

static enum status read_level(const struct doc_node *node, const struct model_config *config,
                              const struct model_config_level *before, size_t n_before,
                              struct model_config_level *out, struct error *err) {
    struct doc_node key = doc_get(node, "key");
    struct doc_node value = doc_get(node, "value");
    int64_t level = 0;
    enum status st = doc_read_i64(&key, 1, (int64_t)config->priority_levels, &level, err);
    if (st == ST_OK && level == 0) {
        st = doc_error(node, err, "has no key: the level that it is for");
    }
    for (size_t i = 0; i < n_before && st == ST_OK; i++) {
        if (before[i].level == (uint64_t)level) {
            st = doc_error(&key, err, "level %lld is there twice", (long long)level);
        }
    }
    out->level = (uint64_t)level;
    return st == ST_OK ? read_policy(&value, &out->policy, err) : st;
}

static enum status read_levels(struct arena *arena, const struct doc_node *batching,
                               struct model_config *out, struct error *err) {
    struct doc_node list = doc_get(batching, "priority_queue_policy");
    size_t n = doc_count(&list);
    if (n > 0 && out->priority_levels == 0) {
        struct error where;
        doc_error(&list, &where, "has no effect without priority_levels");
        log_event(LOG_WARNING, "configuration", LOG_CSTR("text", where.text));
        return ST_OK;
    }
    struct model_config_level *levels = arena_calloc(arena, n, sizeof(*levels));
    if (!levels) {
        return config_no_memory(err);
    }
    for (size_t i = 0; i < n; i++) {
        struct doc_node node = doc_at(&list, i);
        enum status st = read_level(&node, out, levels, i, &levels[i], err);
        if (st != ST_OK) {
            return st;
        }
    }
    out->levels = levels;
    out->n_levels = n;
    return ST_OK;
}

/* ---- order ----------------------------------------------------------------------------------- */

/* Can a request of this policy be overtaken because it waited too long? */
static bool can_delay(const struct model_queue_policy *policy) {
    return policy->delay_on_timeout && (policy->timeout_us > 0 || policy->allow_override);
}

static enum status check_ordering(const struct doc_node *ordering,
                                  const struct model_config *config, struct error *err) {
    bool delays = can_delay(&config->queue);
    for (size_t i = 0; i < config->n_levels; i++) {
        delays = delays || can_delay(&config->levels[i].policy);
    }
    if (!config->preserve_ordering) {
        return ST_OK;
    }
    if (config->priority_levels > 1) {
        return doc_error(ordering, err,
                         "answers cannot leave in the order of their requests where some have "
                         "priority: priority_levels is %llu",
                         (unsigned long long)config->priority_levels);
    }
    return delays ? doc_error(ordering, err,
                              "answers cannot leave in the order of their requests where some let "
                              "others pass: timeout_action is DELAY")
                  : ST_OK;
}

enum status config_read_batching(struct arena *arena, const struct doc_node *root,
                                 struct model_config *out, struct error *err) {
    struct doc_node batching = doc_get(root, "dynamic_batching");
    struct doc_node preferred = doc_get(&batching, "preferred_batch_size");
    struct doc_node ordering = doc_get(&batching, "preserve_ordering");
    struct doc_node policy = doc_get(&batching, "default_queue_policy");
    out->has_dynamic_batching = batching.val != NULL;
    enum status st = config_read_numbers(arena, &preferred, 1, &out->preferred_batch_sizes,
                                         &out->n_preferred, err);
    if (st == ST_OK) {
        st = config_read_count(&batching, "max_queue_delay_microseconds", &out->max_queue_delay_us,
                               err);
    }
    if (st == ST_OK) {
        st = doc_read_bool(&ordering, &out->preserve_ordering, err);
    }
    if (st == ST_OK) {
        st = read_policy(&policy, &out->queue, err);
    }
    if (st == ST_OK) {
        st = read_priorities(&batching, out, err);
    }
    if (st == ST_OK) {
        st = read_levels(arena, &batching, out, err);
    }
    return st == ST_OK ? check_ordering(&ordering, out, err) : st;
}
