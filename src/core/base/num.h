/* Numbers as text. There is one strict parser for each kind, used everywhere: it takes the whole
 * text, without spaces, without a sign unless the kind has one, independent of the locale, with the
 * range checked. */
#ifndef SLUICE_CORE_BASE_NUM_H
#define SLUICE_CORE_BASE_NUM_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/str.h"

/* Decimal digits only ("007" is 7). Returns: false when empty, with any other character, or over
 * 2^64-1. */
bool num_parse_u64(struct str text, uint64_t *out);
/* An optional '-' and decimal digits. */
bool num_parse_i64(struct str text, int64_t *out);
/* JSON's number grammar (no leading '+', no hexadecimal, no "inf" or "nan"); overflow to infinity
 * is false, underflow rounds. At most 4096 characters. */
bool num_parse_f64(struct str text, double *out);
/* A decimal number as configuration files write it: num_parse_f64's, but with an optional leading
 * '+', leading zeros, and digits on one side of the point only (".5", "5."). */
bool num_parse_decimal(struct str text, double *out);
/* Bytes: a whole number with an optional unit, B, KB, MB, GB (powers of 1000) or KiB, MiB, GiB
 * (powers of 1024), also K, M, G as the latter. */
bool num_parse_bytes(struct str text, uint64_t *out);
/* A duration in nanoseconds: "250us", "20ms", "1.5s", "2m", "1h"; a bare number is seconds. */
bool num_parse_duration_ns(struct str text, uint64_t *out);
/* A duration as Go writes it: each part with its unit, "1m30s", or a bare "0". */
bool num_parse_go_duration_ns(struct str text, uint64_t *out);

/* A word for yes or no: true, on, 1; false, off, 0; in any case. */
bool num_parse_bool(struct str text, bool *out);

/* Prints `value` in decimal at `out` (at least 20 bytes). Returns: characters written. */
unsigned num_print_u64(char *out, uint64_t value);
unsigned num_print_i64(char *out, int64_t value);

/* Enough for any number's text. */
enum { FLOAT_PRINT_BYTES = 24 };

/* Prints `value` at `out`, without a NUL, as a JSON number with a point or an exponent ("1.0",
 * "-0.25", "3.4028235e38"); values that are not finite as NaN, Infinity or -Infinity. It is the
 * shortest decimal text that parses to the same FP32 bits, also by way of a double, and the closest
 * of those with as many digits. Returns: characters written. */
unsigned float_print(char *out, float value);

#endif
