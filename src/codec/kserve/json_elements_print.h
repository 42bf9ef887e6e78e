/* Tensor data as JSON values: a whole flat array, or some elements at a time. Integers are printed
 * in full; floats so that parsing gives the same bits; non-finite ones as enum v2_non_finite says;
 * BOOL as true and false; BYTES as strings. The tensor's bytes may lie in several pieces, at any
 * alignment.
 *
 * Elements are appended to the buffer in runs, without core/base/json_writer.h: a call for each of
 * a million numbers costs more than printing it. */
#ifndef SLUICE_CODEC_KSERVE_JSON_ELEMENTS_PRINT_H
#define SLUICE_CODEC_KSERVE_JSON_ELEMENTS_PRINT_H

#include "core/base/buf.h"
#include "core/base/status.h"
#include "core/tensor/tensor.h"

/* How NaN and infinities are printed, which JSON has no numbers for. */
enum v2_non_finite {
    V2_NON_FINITE_DEFAULT, /* of a request: as the server's setting says; else as bare words */
    V2_NON_FINITE_WORDS,   /* NaN, Infinity, -Infinity, as Python's readers accept */
    V2_NON_FINITE_NULL,    /* null for each of them */
    V2_NON_FINITE_STRINGS, /* "NaN", "Infinity", "-Infinity" */
};

/* Parses "words", "null" or "strings". Returns: V2_NON_FINITE_DEFAULT for any other text. */
enum v2_non_finite v2_non_finite_parse(struct str text);

/* Appends all elements as "[…]". The tensor's size must fit its shape. Returns: ST_NOT_UTF8,
 * naming the BYTES element; ST_BAD_DATA for BYTES with broken framing; ST_NO_MEMORY. */
enum status v2_data_print(struct buf *out, const struct tensor *tensor,
                          enum v2_non_finite non_finite, struct error *err) SLUICE_MUST_USE;

struct element_print {
    const struct tensor *tensor;
    const char *hint; /* end of the error text for BYTES that are not UTF-8; may be "" */
    enum v2_non_finite non_finite; /* set by the caller after element_print_start */
    /* for all datatypes but BYTES */
    size_t size;               /* size of an element */
    const unsigned char *data; /* contiguous elements, at any alignment */
    size_t n;                  /* number of elements at `data` */
    size_t piece;              /* index of the piece of the next byte */
    size_t at;                 /* offset of the next byte in that piece */
    unsigned char straddling[8];
    /* for BYTES */
    struct str all, rest;
    uint64_t n_strings; /* number printed */
};

/* Starts at the first element. `hint`: a string literal, see the member. Returns: ST_BAD_DATA
 * when the tensor's size does not fit its shape; ST_NO_MEMORY. Owns: in `arena`, a copy of BYTES
 * that lie in several pieces. */
enum status element_print_start(struct element_print *print, struct arena *arena,
                                const struct tensor *tensor, const char *hint,
                                struct error *err) SLUICE_MUST_USE;
/* Appends the next `n` elements, each followed by a comma. Returns: ST_NOT_UTF8, naming the
 * element; ST_BAD_DATA when fewer elements are left. */
enum status element_print_next(struct element_print *print, struct buf *out, uint64_t n,
                               struct error *err) SLUICE_MUST_USE;
/* Checks that all bytes of the tensor are printed. Returns: ST_BAD_DATA. */
enum status element_print_finish(const struct element_print *print,
                                 struct error *err) SLUICE_MUST_USE;

/* Returns: all bytes of `tensor` in one place: its only piece, or a copy in `arena`; ptr NULL
 * when out of memory. */
struct str element_gather(struct arena *arena, const struct tensor *tensor);

/* Appends `n` doubles at `data`, at any alignment, each followed by a comma, so that parsing
 * gives the same bits; NaN, Infinity and -Infinity for non-finite ones. */
void v2_data_print_doubles(struct buf *out, const unsigned char *data, size_t n);

#endif
