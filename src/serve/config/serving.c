/* How a model is served, as its configuration says: versions, instances, and what its neighbours
 * read of batching, warm-up and parameters. */
#include "serve/config/read.h"

enum { MAX_INSTANCES = 1024 };

/* ---- versions -------------------------------------------------------------------------------- */

static enum status read_latest(const struct doc_node *policy, struct model_config *out,
                               struct error *err) {
    struct doc_node latest = doc_get(policy, "latest");
    struct doc_node number = doc_get(&latest, "num_versions");
    int64_t count = 1;
    enum status st = doc_read_i64(&number, 1, UINT32_MAX, &count, err);
    out->policy = VERSIONS_LATEST;
    out->latest_count = (uint64_t)count;
    return st;
}

static enum status read_specific(struct arena *arena, const struct doc_node *policy,
                                 struct model_config *out, struct error *err) {
    struct doc_node specific = doc_get(policy, "specific");
    struct doc_node versions = doc_get(&specific, "versions");
    out->policy = VERSIONS_SPECIFIC;
    enum status st =
        config_read_numbers(arena, &versions, 1, &out->specific, &out->n_specific, err);
    if (st == ST_OK && out->n_specific == 0) {
        st = doc_error(&specific, err, "lists no versions");
    }
    return st;
}

static enum status read_version_policy(struct arena *arena, const struct doc_node *root,
                                       struct model_config *out, struct error *err) {
    struct doc_node policy = doc_get(root, "version_policy");
    bool latest = doc_get(&policy, "latest").val != NULL;
    bool all = doc_get(&policy, "all").val != NULL;
    bool specific = doc_get(&policy, "specific").val != NULL;
    if ((int)latest + (int)all + (int)specific > 1) {
        return doc_error(&policy, err, "says more than one of latest, all and specific");
    }
    if (all) {
        out->policy = VERSIONS_ALL;
        return ST_OK;
    }
    return specific ? read_specific(arena, &policy, out, err) : read_latest(&policy, out, err);
}

/* ---- instances ------------------------------------------------------------------------------- */

static enum status check_kind(const struct doc_node *group, struct error *err) {
    struct doc_node node = doc_get(group, "kind");
    struct str kind = STR("KIND_AUTO");
    enum status st = doc_read_str(&node, &kind, err);
    if (st != ST_OK || str_is(kind, "KIND_AUTO") || str_is(kind, "KIND_CPU") ||
        str_is(kind, "KIND_MODEL")) {
        return st;
    }
    if (str_is(kind, "KIND_GPU")) {
        return doc_error(&node, err,
                         "this server runs models on CPUs only; KIND_CPU or KIND_AUTO would do");
    }
    return doc_error(&node, err, "expected KIND_AUTO, KIND_CPU or KIND_MODEL, got \"%.*s\"",
                     STR_ARG(kind));
}

static enum status read_instances(const struct doc_node *root, struct model_config *out,
                                  struct error *err) {
    struct doc_node groups = doc_get(root, "instance_group");
    for (size_t i = 0; i < doc_count(&groups); i++) {
        struct doc_node group = doc_at(&groups, i);
        struct doc_node number = doc_get(&group, "count");
        struct doc_node label = doc_get(&group, "name");
        struct str name;
        int64_t count = 1;
        enum status st = doc_read_i64(&number, 1, MAX_INSTANCES, &count, err);
        if (st == ST_OK) {
            st = doc_read_str(&label, &name, err); /* only a label */
        }
        if (st == ST_OK) {
            st = check_kind(&group, err);
        }
        if (st != ST_OK) {
            return st;
        }
        out->instance_count += (uint64_t)count;
    }
    if (out->instance_count > MAX_INSTANCES) {
        return doc_error(&groups, err, "%llu instances are more than %d",
                         (unsigned long long)out->instance_count, MAX_INSTANCES);
    }
    return ST_OK;
}

/* ---- answers --------------------------------------------------------------------------------- */

/* After batching, whose order of answers has no meaning where their number is open. */
static enum status read_transaction_policy(const struct doc_node *root, struct model_config *out,
                                           struct error *err) {
    struct doc_node policy = doc_get(root, "model_transaction_policy");
    struct doc_node decoupled = doc_get(&policy, "decoupled");
    enum status st = doc_read_bool(&decoupled, &out->decoupled, err);
    if (st == ST_OK && out->decoupled && out->preserve_ordering) {
        st = doc_error(&decoupled, err,
                       "the answers of a decoupled model leave as they come: preserve_ordering "
                       "must not be true");
    }
    return st;
}

/* After the policy above. */
static enum status read_response_cache(const struct doc_node *root, struct model_config *out,
                                       struct error *err) {
    struct doc_node cache = doc_get(root, "response_cache");
    struct doc_node enable = doc_get(&cache, "enable");
    enum status st = doc_read_bool(&enable, &out->response_cache, err);
    if (st == ST_OK && out->response_cache && out->decoupled) {
        st = doc_error(&enable, err,
                       "the answers of a decoupled model can't be kept: response_cache must not be "
                       "enabled");
    }
    if (st == ST_OK && out->response_cache && out->sequences.strategy != SEQUENCES_NONE) {
        st = doc_error(&enable, err,
                       "the answers to requests of sequences can't be kept: response_cache must "
                       "not be enabled");
    }
    return st;
}

/* ---- all of it ------------------------------------------------------------------------------- */

enum status config_read_serving(struct arena *arena, const struct doc_node *root,
                                struct model_config *out, struct error *err) {
    enum status st = read_version_policy(arena, root, out, err);
    if (st == ST_OK) {
        st = read_instances(root, out, err);
    }
    if (st == ST_OK) {
        st = config_read_batching(arena, root, out, err);
    }
    if (st == ST_OK) {
        st = config_read_sequences(arena, root, out, err);
    }
    if (st == ST_OK) {
        st = read_transaction_policy(root, out, err);
    }
    if (st == ST_OK) {
        st = read_response_cache(root, out, err);
    }
    if (st == ST_OK) {
        st = config_read_warmups(arena, root, out, err);
    }
    if (st == ST_OK) {
        st = config_read_params(arena, root, out, err);
    }
    return st;
}
