/* The metadata of a model. */
#include "serve/frontend/documents.h"

#include "codec/kserve/grpc/v2_grpc.h"

enum status document_encode_metadata(struct repository *repository, struct str model,
                                     struct str version, struct buf *out, struct error *err) {
    struct model_version *found;
    enum status st = repository_find(repository, model, version, &found, err);
    if (st != ST_OK) {
        return st;
    }
    const struct model_spec *spec = model_version_spec(found);
    size_t n = 1;
    const uint64_t *versions = &spec->version;
    if (!version.ptr) {
        versions = model_version_siblings(found, &n);
    }
    v2_grpc_model_metadata_encode(out, spec, versions, n);
    model_version_unref(found);
    return ST_OK;
}
