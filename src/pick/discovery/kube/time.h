/* Times as the API writes them (RFC 3339): "2026-01-31T12:00:00Z". Thread: any. */
#ifndef SLUICE_PICK_DISCOVERY_KUBE_TIME_H
#define SLUICE_PICK_DISCOVERY_KUBE_TIME_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/str.h"

/* Reads seconds since 1970; a fraction is dropped. Returns: false for anything else. */
bool kube_time_parse(struct str text, int64_t *out_s);

#endif
