/* A request's part for a session that is in the proxy itself: no ProcessingRequest was sent, and
 * what its accessors read (request.h) is made from the proxy's own headers and metadata. */
#ifndef SLUICE_CODEC_EXT_PROC_PARTS_H
#define SLUICE_CODEC_EXT_PROC_PARTS_H

#include "codec/ext_proc/request.h"
#include "core/base/arena.h"

/* For struct ext_proc_request.fields; keys in lower case. Returns: ST_NO_MEMORY. Owns: a copy, in
 * `arena`. */
enum status ext_proc_headers_make(struct arena *arena, const struct ext_proc_header *headers,
                                  size_t n, struct ext_proc_headers *out,
                                  struct error *err) SLUICE_MUST_USE;
/* For its `metadata`. Keys and texts that are not UTF-8 are passed on as they are. Returns: ptr
 * NULL when out of memory. Owns: a copy, in `arena`. */
struct str ext_proc_metadata_make(struct arena *arena, const struct ext_proc_namespace *spaces,
                                  size_t n);
/* A google.protobuf.Struct of the namespace's entries. Returns: as ext_proc_metadata_make. */
struct str ext_proc_struct_make(struct arena *arena, const struct ext_proc_namespace *space);

#endif
