/* Versions that did not change stay open while their model is loaded again: with their instances,
 * their queue and their statistics. The new model takes them over from the served one in the moment
 * in which it replaces it, so a version belongs to one model at any time.
 *
 * Its texts are in the arena of the model that opened it (struct model_attempt, `home`), which
 * therefore lives as long. */
#ifndef SLUICE_SERVE_REPOSITORY_KEPT_VERSIONS_H
#define SLUICE_SERVE_REPOSITORY_KEPT_VERSIONS_H

#include "serve/repository/model.h"

/* Marks the versions of the inspected `model` whose files, and all that versions have in common,
 * are those that `served` (NULL: none) has opened: they are not loaded. Until versions_take_over
 * `served` stays its slot's, or the model is abandoned. The repository's lock is held. */
void versions_keep(struct model *model, const struct model *served);
/* Makes a model of all versions that `served` has opened but one, marked as kept, to replace it.
 * Its configuration is that of a version. The lock is held. Returns: NULL when out of memory. */
struct model *versions_without(const struct model *served, uint64_t number);
/* Moves the kept versions from `served` to the model; versions_give_back undoes it. The lock is
 * held. */
void versions_take_over(struct model *model, struct model *served);
void versions_give_back(struct model *model, struct model *served);
/* Tells all versions of the published model which others are served. The lock is held. */
void versions_set_siblings(const struct model *model);

#endif
