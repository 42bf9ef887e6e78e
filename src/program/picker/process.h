/* The running endpoint picker: puts the rooms together and takes them apart again.
 *
 *     the pool is read → listening and ready → SIGTERM: draining → no stream left: ended
 */
#ifndef SLUICE_PROGRAM_PICKER_PROCESS_H
#define SLUICE_PROGRAM_PICKER_PROCESS_H

#include "core/base/status.h"
#include "program/picker/settings.h"

/* Picks until SIGTERM or SIGINT, then until the streams at hand have ended, or --drain-timeout.
 * Returns: ST_OK when it ended as asked, else why it could not start. */
enum status pick_process_run(const struct pick_settings *settings, struct error *err)
    __attribute__((warn_unused_result));

#endif
