/* The values are the build's (cmake/version.cmake). */
#include "program/version/version.h"

#include <stdio.h>

void version_print(void) {
    puts("sluice " SLUICE_VERSION "\n"
         "commit " SLUICE_COMMIT "\n"
         "build " SLUICE_BUILD_KIND "\n"
         "libraries " SLUICE_LIBRARIES);
}
