/* Labels as the keys of a JSON object, so that none may be empty and no two may be equal: labels
 * that are in the file more than once get their line's index behind them, "crane (134)" and
 * "crane (517)". */
#ifndef SLUICE_SERVE_FRONTEND_MIP_LABELS_H
#define SLUICE_SERVE_FRONTEND_MIP_LABELS_H

#include "serve/frontend/labels.h"

/* Makes keys of labels, whose file `path` names in messages. Returns: ST_BAD_CONFIG with the line,
 * ST_NO_MEMORY. Owns: in `arena`, which the labels' text has to outlive. */
enum status mip_labels_make_keys(struct arena *arena, const char *path, struct labels *labels,
                                 struct error *err) __attribute__((warn_unused_result));

#endif
