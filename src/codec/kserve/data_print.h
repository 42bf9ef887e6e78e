/* Tensor data as JSON values: a whole flat array, or some elements at a time. Integers are printed
 * in full; floats so that parsing gives the same bits, non-finite ones as NaN, Infinity, -Infinity;
 * BOOL as true and false; BYTES as strings. The tensor's bytes may lie in several pieces, at any
 * alignment. */
#ifndef SLUICE_CODEC_KSERVE_DATA_PRINT_H
#define SLUICE_CODEC_KSERVE_DATA_PRINT_H

#include "core/base/buf.h"
#include "core/base/status.h"
#include "core/tensor/tensor.h"

/* Appends "[…]". Integers in full; floats so that parsing gives the same bits, non-finite ones as
 * NaN, Infinity, -Infinity; BOOL as true and false; BYTES as strings. The tensor's bytes may lie in
 * several pieces, at any alignment; its size must fit its shape. Returns: ST_BAD_DATA, naming the
 * element, for a BYTES element that is not UTF-8 or whose framing is broken; ST_NO_MEMORY. */
enum status v2_data_print(struct buf *out, const struct tensor *tensor, struct error *err)
    __attribute__((warn_unused_result));

struct element_print {
    const struct tensor *tensor;
    const char *hint; /* how a message on BYTES that are not UTF-8 goes on; "" for none */
    /* all but BYTES */
    size_t size;               /* of an element */
    const unsigned char *data; /* elements that lie one behind the other, at any alignment, */
    size_t n;                  /* so many; */
    size_t piece;              /* the next byte is in this piece, */
    size_t at;                 /* here */
    unsigned char straddling[8];
    /* BYTES */
    struct str all, rest;
    uint64_t n_strings; /* printed */
};

/* Starts with the first element. `advice` as above, a literal. Returns: ST_BAD_DATA when the
 * tensor's size does not fit its shape; ST_NO_MEMORY. Owns: in `arena`, a copy of BYTES that lie in
 * several pieces. */
enum status element_print_start(struct element_print *print, struct arena *arena,
                                const struct tensor *tensor, const char *hint, struct error *err)
    __attribute__((warn_unused_result));
/* Appends the next `n` elements, each with a comma behind it. Returns: ST_BAD_DATA, naming the
 * element, for one that is not UTF-8; also for one that is not there. */
enum status element_print_next(struct element_print *print, struct buf *out, uint64_t n,
                               struct error *err) __attribute__((warn_unused_result));
/* All that the shape has are printed: is nothing left? Returns: ST_BAD_DATA. */
enum status element_print_finish(const struct element_print *print, struct error *err)
    __attribute__((warn_unused_result));

/* All bytes of `tensor` in one place: its only piece, or a copy in `arena`. Returns: ptr NULL when
 * out of memory. */
struct str element_gather(struct arena *arena, const struct tensor *tensor);

/* Appends `n` doubles that lie at `data`, at any alignment, each with a comma behind it, so that
 * parsing gives the same bits; NaN, Infinity and -Infinity for what is not finite. */
void v2_data_print_doubles(struct buf *out, const unsigned char *data, size_t n);

#endif
