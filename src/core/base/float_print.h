/* The shortest decimal text of an FP32 number: no text with fewer digits parses to the same bits,
 * and among those with as many it is the closest. It is also the right text for who parses it as a
 * double and rounds that. */
#ifndef SLUICE_CORE_BASE_FLOAT_PRINT_H
#define SLUICE_CORE_BASE_FLOAT_PRINT_H

/* Room for any number's text. */
enum { FLOAT_PRINT_BYTES = 24 };

/* Prints `value` at `out`, without a NUL, as a JSON number with a point or an exponent ("1.0",
 * "-0.25", "3.4028235e38"); what is not finite as NaN, Infinity or -Infinity. Returns: characters
 * written. */
unsigned float_print(char *out, float value);

#endif
