/* The answer that says a pick and little else, written straight: most answers are one, and it takes
 * a third of what ext_proc_answer_encode takes for any. For the ext_proc*.c files only. */
#ifndef SLUICE_CODEC_EXT_PROC_PICK_H
#define SLUICE_CODEC_EXT_PROC_PICK_H

#include "codec/ext_proc/answer.h"

/* At most as many bytes: two fields with their heads. */
enum {
    EXT_PROC_MOST_PART_BYTES = 127,
    EXT_PROC_MOST_PICK_BYTES = 2 * (2 + EXT_PROC_MOST_PART_BYTES)
};

/* The bytes that ext_proc_answer_encode gives, if the answer is one to headers that sets headers
 * and clears the route cache, with metadata of one space, each of them less than 128 bytes: they
 * end where `end` points. Returns: how many; 0: it is another. */
size_t ext_proc_pick_print(const struct ext_proc_answer *answer, char *end);

#endif
