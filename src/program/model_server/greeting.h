/* What a server prints in a terminal when its models have been loaded. */
#ifndef SLUICE_PROGRAM_MODEL_SERVER_GREETING_H
#define SLUICE_PROGRAM_MODEL_SERVER_GREETING_H

#include "program/model_server/listeners.h"

/* Prints where the models are served, which failed, and a command that sends a request to one of
 * them, to standard error, if that is a terminal and the log is text. `ready`: is the server?
 * Thread: main. */
void greeting_print(const struct serve_listeners *listeners, bool ready);

#endif
