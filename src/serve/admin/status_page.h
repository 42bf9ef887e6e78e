/* The bytes of status_page.html, which cmake/embed.cmake compiles into the program. */
#ifndef SLUICE_SERVE_ADMIN_STATUS_PAGE_H
#define SLUICE_SERVE_ADMIN_STATUS_PAGE_H

#include "core/base/str.h"

struct str status_page(void);

#endif
