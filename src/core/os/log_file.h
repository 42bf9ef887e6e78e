/* Standard error, and with it the log, into a file, which is opened again when it was rotated.
 *
 * Thread: the main thread. */
#ifndef SLUICE_CORE_OS_LOG_FILE_H
#define SLUICE_CORE_OS_LOG_FILE_H

#include "core/base/status.h"

/* Opens the file for appending, or makes it, and puts it in the place of standard error; a second
 * call replaces the first file. Returns: ST_IO, with standard error unchanged. */
enum status log_file_open(const char *path, struct error *err) SLUICE_MUST_USE;

#endif
