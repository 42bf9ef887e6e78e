/* Reads ensemble_scheduling, for read.c. */
#ifndef SLUICE_SERVE_CONFIG_ENSEMBLE_READ_H
#define SLUICE_SERVE_CONFIG_ENSEMBLE_READ_H

#include "core/base/doc/reader.h"
#include "serve/config/config.h"

/* The fields of ModelEnsembling, and of those inside of it. */
extern const struct doc_member ENSEMBLE_SCHEDULING[];
/* Reads ensemble_scheduling into config->ensemble, after the other members, and checks the graph: a
 * tensor is made once, each input is used, each output is made, nothing is unused or made of
 * itself. */
void ensemble_read(struct doc_reader *reader, const struct doc_node *node,
                   struct model_config *config);

#endif
