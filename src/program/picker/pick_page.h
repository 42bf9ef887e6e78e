/* The picker's status page, as it is sent: pick_page.html, which cmake/embed.cmake makes part of
 * the program. */
#ifndef SLUICE_PROGRAM_PICKER_PICK_PAGE_H
#define SLUICE_PROGRAM_PICKER_PICK_PAGE_H

#include "core/base/str.h"

struct str pick_page(void);

#endif
