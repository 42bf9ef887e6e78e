/* OpenVINO itself, as the backend holds it: once per process. Every call of its API that can fail
 * goes through ov_check, which makes a status and a sentence of our interface from theirs. */
#ifndef SLUICE_OPENVINO_OV_H
#define SLUICE_OPENVINO_OV_H

#include <openvino/c/ov_common.h>
#include <openvino/c/ov_core.h>

#include "common/text.h"
#include "sluice/backend.h"

struct ov {
    const sluice_host *host;
    ov_core_t *core;
    char version[32]; /* of the library that was loaded, "2026.4.1" */
};

/* Owns: everything in *ov, for the life of the process: the library's own threads don't survive its
 * core well. Returns: not SLUICE_OK when the library fails. */
sluice_status ov_init(struct ov *ov, const sluice_host *host, sluice_error *error);

/* What became of a call; to be asked on the thread that made it, before the next one. `doing`
 * begins the sentence: "the model could not be loaded". Returns: SLUICE_OK, or the status that the
 * library's code stands for. Thread: any. */
sluice_status ov_check(ov_status_e result, const char *doing, sluice_error *error);

#endif
