/* Follows an ensemble's outputs to the members that make them. */
#include "serve/frontend/member_labels.h"

#include "serve/config/config.h"

enum { MAX_DEPTH = 16 /* of ensembles inside of ensembles */ };

/* The output of a version, which is held. */
struct found_output {
    struct model_version *version; /* NULL: there is none */
    size_t index;
};

/* Returns: the index of the tensor that is the ensemble's output; n_tensors: of no ensemble. */
static size_t index_of_tensor(const struct model_ensemble *ensemble, size_t output) {
    size_t i = 0;
    while (i < ensemble->n_tensors && ensemble->tensors[i].output != output) {
        i++;
    }
    return i;
}

/* The member's output that the ensemble's output is. */
static struct found_output find_member_output(struct repository *repository,
                                              const struct model_version *version, size_t output) {
    const struct model_ensemble *ensemble = &model_version_config(version)->ensemble;
    struct found_output found = {NULL, 0};
    struct error err;
    size_t tensor = index_of_tensor(ensemble, output);
    size_t made_by = tensor < ensemble->n_tensors ? ensemble->tensors[tensor].made_by : SIZE_MAX;
    if (made_by >= ensemble->n_steps) {
        return found;
    }
    const struct ensemble_step *step = &ensemble->steps[made_by];
    size_t i = 0;
    while (i < step->n_outputs && step->outputs[i].tensor != tensor) {
        i++;
    }
    if (i == step->n_outputs || repository_find_locked(repository, step->model, step->version,
                                                       &found.version, &err) != ST_OK) {
        return (struct found_output){NULL, 0};
    }
    const struct model_spec *spec = model_version_spec(found.version);
    found.index = tensor_spec_find(spec->outputs, spec->n_outputs, step->outputs[i].name);
    if (found.index == SIZE_MAX) { /* replaced by another one */
        model_version_unref(found.version);
        found.version = NULL;
    }
    return found;
}

/* Returns: the labels, and the member that has them, which is held; without labels there is
 * none. */
static struct labels find_labels(struct repository *repository, const struct model_version *version,
                                 size_t output, struct model_version **member) {
    struct labels none = {NULL, 0};
    *member = NULL;
    for (unsigned depth = 0; depth < MAX_DEPTH; depth++) {
        struct found_output found = find_member_output(repository, version, output);
        if (*member) {
            model_version_unref(*member);
        }
        *member = found.version;
        if (!found.version) {
            return none;
        }
        const struct labels *labels = &model_labels(found.version)[found.index];
        if (labels->n > 0) {
            return *labels;
        }
        version = found.version;
        output = found.index;
    }
    return none;
}

enum status response_labels_find(struct repository *repository, const struct model_version *version,
                                 const struct infer_request *request, struct arena *arena,
                                 struct response_labels *out, struct error *err) {
    const struct labels *own = model_labels(version);
    struct labels *all = NULL;
    size_t n_outputs = model_version_spec(version)->n_outputs;
    *out = (struct response_labels){.outputs = own};
    for (size_t i = 0; i < request->n_wanted; i++) {
        size_t output = request->wanted[i].spec;
        if (request->wanted[i].n_classes == 0 || own[output].n > 0 ||
            model_version_config(version)->ensemble.n_steps == 0) {
            continue;
        }
        if (!all) {
            all = arena_calloc(arena, n_outputs, sizeof(*all));
            out->members = arena_calloc(arena, request->n_wanted, sizeof(*out->members));
        }
        if (!all || !out->members) {
            return error_no_memory(err, "the labels of an ensemble");
        }
        if (out->outputs == own) {
            memcpy(all, own, n_outputs * sizeof(*all));
            out->outputs = all;
        }
        struct model_version *member;
        all[output] = find_labels(repository, version, output, &member);
        if (member) {
            out->members[out->n_members++] = member;
        }
    }
    return ST_OK;
}

void response_labels_release(struct response_labels *self) {
    for (size_t i = 0; i < self->n_members; i++) {
        model_version_unref(self->members[i]);
    }
    self->n_members = 0;
}
