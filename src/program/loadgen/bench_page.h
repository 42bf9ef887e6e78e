/* The bytes of bench_page.html, which cmake/embed.cmake compiles into the program. */
#ifndef SLUICE_PROGRAM_LOADGEN_BENCH_PAGE_H
#define SLUICE_PROGRAM_LOADGEN_BENCH_PAGE_H

#include "core/base/str.h"

struct str bench_page(void);

#endif
