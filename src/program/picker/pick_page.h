/* The picker's status page: the contents of pick_page.html, embedded by cmake/embed.cmake. */
#ifndef SLUICE_PROGRAM_PICKER_PICK_PAGE_H
#define SLUICE_PROGRAM_PICKER_PICK_PAGE_H

#include "core/base/str.h"

struct str pick_page(void);

#endif
