/* Server-sent events: a body of text/event-stream, of which a client takes the events one after the
 * other as they arrive. Sans I/O.
 *
 * Clauses: HTML (WHATWG), 9.2.5 "Parsing an event stream" and 9.2.6 "Interpreting an event stream";
 * of an event's fields only `data` is read. */
#ifndef SLUICE_CODEC_HTTP1_EVENT_STREAM_H
#define SLUICE_CODEC_HTTP1_EVENT_STREAM_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/arena.h"
#include "core/base/compiler.h"
#include "core/base/str.h"

/* Looks for the first whole block of lines, which an empty line ends. *n_searched: bytes at the
 * beginning in which an earlier call found no end; 0 at first, updated. Returns: the bytes of the
 * block with its empty line; 0: more are needed. */
size_t event_stream_find(struct str bytes, size_t *n_searched);

/* Reads the data of a block: its `data` lines, joined by line feeds. Returns: false when out of
 * memory. *out has a NUL after it; its ptr is NULL if the block has no data (a comment, for
 * instance). Owns: in `arena`. */
bool event_stream_data(struct arena *arena, struct str block, struct str *out) SLUICE_MUST_USE;

#endif
