/* Finds and loads the ONNX Runtime library. No version of it is linked: any version with the API of
 * the header serves. README.md ("Which ONNX Runtime") has the places and their order. */
#ifndef SLUICE_ONNXRUNTIME_LIBRARY_H
#define SLUICE_ONNXRUNTIME_LIBRARY_H

#include <onnxruntime_c_api.h>

#include "sluice/backend.h"

struct library {
    const OrtApi *api;   /* of ORT_API_VERSION */
    const char *version; /* "1.31.1" */
};

/* Logs the file that was taken, and each that could not be. Returns: SLUICE_UNAVAILABLE with what
 * to install, or with the reason of the first file that could not be loaded. Owns: the library
 * stays loaded until the process exits. */
sluice_status library_load(const sluice_host *host, struct library *library, sluice_error *error);

#endif
