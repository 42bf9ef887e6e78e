/* `sluice infer` of a server of MIP. */
#ifndef SLUICE_PROGRAM_COMMANDS_INFER_MIP_H
#define SLUICE_PROGRAM_COMMANDS_INFER_MIP_H

#include "program/requests/infer_settings.h"

/* Sends the request and prints or saves the answer; with --dry-run prints the packet. Returns:
 * ST_BAD_CONFIG for what can't be sent, ST_REFUSED with the server's error and what it means,
 * otherwise ST_IO and others with the client's words. */
enum status infer_mip(struct arena *arena, const struct infer_settings *settings, struct error *err)
    __attribute__((warn_unused_result));

#endif
