/* What this program was built from. */
#ifndef SLUICE_PROGRAM_VERSION_VERSION_H
#define SLUICE_PROGRAM_VERSION_VERSION_H

/* Prints the version, the commit, the kind of build and the libraries, a line each. */
void version_print(void);

#endif
