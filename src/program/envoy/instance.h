/* The picker in an Envoy: what `sluice pick` has but for its own server. Its configuration is that
 * of a filter; filters with the same configuration, of several listeners or of a listener that was
 * updated, share one.
 *
 * Threads of its own: one for its timers and messages, and that of discovery
 * (program/picker/discovery.h). Picks are made on Envoy's workers. */
#ifndef SLUICE_PROGRAM_ENVOY_INSTANCE_H
#define SLUICE_PROGRAM_ENVOY_INSTANCE_H

#include "core/base/status.h"
#include "core/base/str.h"
#include "pick/envoy/worker.h"

struct envoy_instance;

/* Reads the configuration and starts, unless there is one that is the same. `config`: settings of
 * `sluice pick` as a JSON or YAML object, or the name of a pools' file. Returns: why it can't
 * start, with the setting; then nothing runs. Owns: *out until envoy_instance_unref. Thread:
 * any. */
enum status envoy_instance_get(struct str config, struct envoy_instance **out,
                               struct error *err) SLUICE_MUST_USE;
/* With the last reference it stops, after the last request. Waits for its threads. Thread: any but
 * its own. */
void envoy_instance_unref(struct envoy_instance *instance);

struct envoy_workers *envoy_instance_workers(struct envoy_instance *instance);

#endif
