/* The strict parsers of numbers, one for each kind, used everywhere: whole text or nothing, no
 * spaces, no sign unless the kind has one, no locale, range checked. */
#ifndef SLUICE_CORE_BASE_NUM_H
#define SLUICE_CORE_BASE_NUM_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/str.h"

/* Decimal digits only ("007" is 7). Returns: false when empty, another character, or over
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
/* A span of time in nanoseconds: "250us", "20ms", "1.5s", "2m", "1h"; a bare number is seconds. */
bool num_parse_duration_ns(struct str text, uint64_t *out);
/* The same as Go writes it: each part with its unit, "1m30s", or a bare "0". */
bool num_parse_go_duration_ns(struct str text, uint64_t *out);

/* Prints `value` in decimal at `out` (room for 20 characters). Returns: characters written. */
unsigned num_print_u64(char *out, uint64_t value);
unsigned num_print_i64(char *out, int64_t value);

/* Room for any number's text. */
enum { FLOAT_PRINT_BYTES = 24 };

/* Prints `value` at `out`, without a NUL, as a JSON number with a point or an exponent ("1.0",
 * "-0.25", "3.4028235e38"); what is not finite as NaN, Infinity or -Infinity. It is the shortest
 * decimal text that parses to the same FP32 bits, and the closest of those with as many digits; a
 * reader that parses a double and rounds it gets the same bits. Returns: characters written. */
unsigned float_print(char *out, float value);

#endif
