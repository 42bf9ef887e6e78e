/* Programs are not run: what names one is refused. */
#include "discover/kube_exec.h"

enum status kube_exec_read(const struct doc_node *node, const char *folder, struct kube_exec **out,
                           struct error *err) {
    (void)folder;
    (void)out;
    return doc_error(node, err, "programs are not supported");
}

void kube_exec_free(struct kube_exec *exec) {
    (void)exec;
}
