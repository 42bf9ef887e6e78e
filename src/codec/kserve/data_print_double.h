/* FP64 elements as JSON numbers. */
#ifndef SLUICE_CODEC_KSERVE_DATA_PRINT_DOUBLE_H
#define SLUICE_CODEC_KSERVE_DATA_PRINT_DOUBLE_H

#include "core/base/buf.h"

/* Appends `n` doubles that lie at `data`, at any alignment, each with a comma behind it, so that
 * parsing gives the same bits; NaN, Infinity and -Infinity for what is not finite. */
void v2_data_print_doubles(struct buf *out, const unsigned char *data, size_t n);

#endif
