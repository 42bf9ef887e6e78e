/* The requests by which a program asks an API server for the user of a token, and whether that
 * user may read a page: TokenReview and SubjectAccessReview. Sans I/O.
 *
 * Thread: any. Clauses: Kubernetes API reference, "TokenReview v1 authentication.k8s.io",
 * "SubjectAccessReview v1 authorization.k8s.io". */
#ifndef SLUICE_CODEC_KUBE_REVIEW_H
#define SLUICE_CODEC_KUBE_REVIEW_H

#include <stdbool.h>

#include "core/base/buf.h"
#include "core/base/doc/doc.h"

/* Writes the TokenReview of a token. */
void kube_token_review_print(struct str token, struct buf *out);
/* Reads the answer. `user`: its status.user; val NULL: the token is of no user. Returns:
 * ST_BAD_ANSWER: it is no TokenReview, or the server could not check the token. */
enum status kube_token_review_read(const struct doc_node *answer, struct doc_node *user,
                                   struct error *err) SLUICE_MUST_USE;

/* Writes the SubjectAccessReview of a user, as kube_token_review_read has it, for a URL that is no
 * resource of the API. `verb`: the method of HTTP in lower case. */
void kube_access_review_print(const struct doc_node *user, struct str verb, struct str path,
                              struct buf *out);
/* Reads the answer. Returns: ST_BAD_ANSWER: it is no SubjectAccessReview. */
enum status kube_access_review_read(const struct doc_node *answer, bool *is_allowed,
                                    struct error *err) SLUICE_MUST_USE;

#endif
