/* The page at / of --http for browsers: the bytes of try_page.html, which cmake/embed.cmake
 * compiles into the program. */
#ifndef SLUICE_SERVE_FRONTEND_HTTP_TRY_PAGE_H
#define SLUICE_SERVE_FRONTEND_HTTP_TRY_PAGE_H

#include "core/base/str.h"

struct str try_page(void);

#endif
