/* The body of an error over HTTP, as the Open Inference Protocol has it. */
#ifndef SLUICE_CODEC_JSON_ERROR_BODY_H
#define SLUICE_CODEC_JSON_ERROR_BODY_H

#include "core/base/buf.h"
#include "core/base/status.h"

/* {"error":"…"} */
void json_error_body_print(struct buf *out, const struct error *error);

#endif
