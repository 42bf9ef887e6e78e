/* Class labels for one response: an ensemble's output without labels of its own has those of the
 * member's output that it is, by way of ensembles inside of ensembles. They are looked up for each
 * response, as a member may be replaced while the ensemble is served. */
#ifndef SLUICE_SERVE_FRONTEND_MEMBER_LABELS_H
#define SLUICE_SERVE_FRONTEND_MEMBER_LABELS_H

#include "core/tensor/infer.h"
#include "serve/frontend/labels.h"
#include "serve/repository/repository.h"

struct response_labels {
    const struct labels *outputs;   /* one for each of the model's */
    struct model_version **members; /* references */
    size_t n_members;
};

/* Finds the labels of the outputs for which `request` wants classes. Returns: ST_NO_MEMORY. Owns:
 * memory is in `arena`; the labels are valid until response_labels_release, also after an error.
 * Thread: any. */
enum status response_labels_find(struct repository *repository, const struct model_version *version,
                                 const struct infer_request *request, struct arena *arena,
                                 struct response_labels *out, struct error *err) SLUICE_MUST_USE;
void response_labels_release(struct response_labels *self);

#endif
