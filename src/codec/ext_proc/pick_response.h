/* The answer that says a pick and little else, written straight: most answers are one, and it takes
 * a third of what ext_proc_response_encode takes for any. For the ext_proc*.c files only. */
#ifndef SLUICE_CODEC_EXT_PROC_PICK_RESPONSE_H
#define SLUICE_CODEC_EXT_PROC_PICK_RESPONSE_H

#include "codec/ext_proc/response.h"

/* At most as many bytes: two fields with their heads. */
enum {
    EXT_PROC_MAX_SHORT_FIELD_BYTES = 127,
    EXT_PROC_MAX_PICK_RESPONSE_BYTES = 2 * (2 + EXT_PROC_MAX_SHORT_FIELD_BYTES)
};

/* The bytes that ext_proc_response_encode gives, if the answer is one to headers that sets headers
 * and clears the route cache, with metadata of one space, each of them less than 128 bytes: they
 * end where `end` points. Returns: how many; 0: it is another. */
size_t ext_proc_pick_response_encode(const struct ext_proc_response *response, char *end);

#endif
