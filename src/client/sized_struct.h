/* Structs of sluice/client.h, which begin with their size as the caller was compiled. They are
 * copied before use, so that a shorter one gets zeros for the members that it lacks. */
#ifndef SLUICE_CLIENT_SIZED_STRUCT_H
#define SLUICE_CLIENT_SIZED_STRUCT_H

#include "core/base/status.h"

/* Returns: ST_BAD_FIELD, naming the struct, for a size smaller than the member `size`. */
enum status sized_struct_check(size_t n_given, const char *name, struct error *err) SLUICE_MUST_USE;
/* Copies a caller's struct; members beyond its size are zero. Returns: as sized_struct_check, also
 * for a size that no version has; ST_UNSUPPORTED for a byte from n_known on that is not zero. */
enum status sized_struct_read(void *out, size_t n_known, const void *from, const char *name,
                              struct error *err) SLUICE_MUST_USE;
/* Copies an element of a caller's array of such structs, all of which have the same size. Returns:
 * ST_BAD_FIELD, naming struct and index, if this one has another size than the first, or none; else
 * as sized_struct_read. */
enum status sized_array_read(void *out, size_t n_known, const void *items, size_t index,
                             const char *name, struct error *err) SLUICE_MUST_USE;
/* Copies to a caller's struct as much as its size allows; its `size` member is unchanged. */
void sized_struct_write(void *out, const void *from, size_t n_known);

#endif
