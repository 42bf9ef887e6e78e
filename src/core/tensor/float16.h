/* The two 16-bit floats, FP16 (half) and BF16 (bfloat), as bit patterns: conversion from them is
 * exact, conversion to them rounds to nearest, ties to even (a NaN stays a NaN, overflow becomes
 * infinity). */
#ifndef SLUICE_CORE_TENSOR_FLOAT16_H
#define SLUICE_CORE_TENSOR_FLOAT16_H

#include <stdint.h>

float half_to_float(uint16_t bits);
uint16_t half_from_double(double value); /* one rounding, not two */
float bfloat_to_float(uint16_t bits);
uint16_t bfloat_from_double(double value);

#endif
