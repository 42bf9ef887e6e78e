/* The smallest integer divided by -1 has a quotient that does not fit. x86 processors trap there,
 * which ends the process; libraries that run models divide what clients send without a check.
 * Afterwards such a division wraps around as on other processors: the quotient is the dividend, the
 * remainder 0. A division by zero still ends the process.
 *
 * Thread: main, before others start; for the whole process. */
#ifndef SLUICE_CORE_OS_DIVISION_TRAP_H
#define SLUICE_CORE_OS_DIVISION_TRAP_H

void division_trap_handle(void);

#endif
