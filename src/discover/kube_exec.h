/* A program that says who we are: what a kubeconfig has under "exec".
 *
 * Thread: one at a time. */
#ifndef SLUICE_DISCOVER_KUBE_EXEC_H
#define SLUICE_DISCOVER_KUBE_EXEC_H

#include "base/doc.h"

struct kube_exec;

/* `folder`: where the kubeconfig is. Returns: ST_BAD_CONFIG, ST_NO_MEMORY. Owns: *out until
 * kube_exec_free. */
enum status kube_exec_read(const struct doc_node *node, const char *folder, struct kube_exec **out,
                           struct error *err) __attribute__((warn_unused_result));
/* NULL is allowed. */
void kube_exec_free(struct kube_exec *exec);

#endif
