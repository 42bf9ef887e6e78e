/* The picker's status page, as it is sent: pick_page.html, which cmake/embed.cmake makes part of
 * the program. */
#ifndef SLUICE_CLI_PICK_PAGE_H
#define SLUICE_CLI_PICK_PAGE_H

#include "base/str.h"

struct str pick_page(void);

#endif
