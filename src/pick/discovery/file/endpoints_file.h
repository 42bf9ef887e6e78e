/* The endpoints file of upstream's plugin file-discovery: a list of addresses with labels, in YAML
 * or JSON, beside the configuration that names it.
 *
 * Thread: one at a time. Reading a file blocks: it is local, and small. */
#ifndef SLUICE_PICK_DISCOVERY_FILE_ENDPOINTS_FILE_H
#define SLUICE_PICK_DISCOVERY_FILE_ENDPOINTS_FILE_H

#include "core/os/watched_file.h"
#include "pick/pool/spec.h"

/* Zeroed it has read no file. */
struct endpoints_file {
    struct watched_file file; /* owns its path */
    char *text;               /* of the last read that parsed; NULL: none */
    size_t text_len;
    bool is_watched;
};

void endpoints_file_clear(struct endpoints_file *self);
/* For trying a configuration, which may be refused: `from` stays as it is. Owns: *self until
 * endpoints_file_clear. */
void endpoints_file_dup(struct endpoints_file *self, const struct endpoints_file *from);

/* Adds the file's endpoints to the spec, which names the file; for a spec that names none `*self`
 * is cleared. The file is read when the spec names another one than before, otherwise the last text
 * is used. An entry that is wrong is left out, with a line of the log where `logs`; as upstream's
 * it leaves the others. Members of an entry that are unknown are ignored, as upstream does; without
 * a name its address is its name. Returns: ST_BAD_CONFIG, ST_IO, where the file as a whole cannot
 * be used; `*self` can then only be cleared. */
enum status endpoints_file_add_to(struct endpoints_file *self, struct pool_spec *spec, bool logs,
                                  struct error *err) SLUICE_MUST_USE;

/* Reads a watched file again. `now`: without waiting until two looks agree. Returns: ST_OK, with
 * `*changed` false where it has the same content; after an error the last text stays. */
enum status endpoints_file_check(struct endpoints_file *self, bool now, bool *changed,
                                 struct error *err) SLUICE_MUST_USE;

#endif
