/* A command that works, as an example of how to send a request to a model. */
#ifndef SLUICE_PROGRAM_OPTIONS_EXAMPLE_H
#define SLUICE_PROGRAM_OPTIONS_EXAMPLE_H

#include "core/base/buf.h"
#include "core/tensor/tensor.h"

/* Appends the command that sends the model zeros: `sluice infer URL MODEL --input 'x=[[0,0]]'`,
 * with 1 for each free dimension; for inputs that are too large for a command line, that of `sluice
 * bench`, which generates its data. Appends nothing for a name that needs more than quotes. */
void example_command_print(struct buf *out, const char *url, const struct model_spec *model);

#endif
