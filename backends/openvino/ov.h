/* The OpenVINO library, once per process. Every API call that can fail is checked by ov_check,
 * which converts the library's error to our status and text. */
#ifndef SLUICE_OPENVINO_OV_H
#define SLUICE_OPENVINO_OV_H

#include <openvino/c/ov_common.h>
#include <openvino/c/ov_core.h>

#include "common/text.h"
#include "sluice/backend.h"

struct ov {
    const sluice_host *host;
    ov_core_t *core;
    char version[32]; /* of the loaded library, "2026.4.1" */
};

/* Owns: everything in *ov, until the process exits: the library's threads do not survive the
 * destruction of its core. Returns: not SLUICE_OK when the library fails. */
sluice_status ov_init(struct ov *ov, const sluice_host *host, sluice_error *error);

/* Checks the result of a call, on the calling thread and before the next call. `doing` begins the
 * text: "the model could not be loaded". Returns: SLUICE_OK, or the corresponding status. Thread:
 * any. */
sluice_status ov_check(ov_status_e result, const char *doing, sluice_error *error);

#endif
