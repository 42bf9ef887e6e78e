/* Which requests web pages may make: the values of the settings, and the machine's name. */
#include "program/process/web_settings.h"

#include <unistd.h>

enum { NAME_BYTES = 256 };

/* Returns: NULL when it is unknown. */
static const char *machine_name(struct arena *arena) {
    char name[NAME_BYTES] = "";
    if (gethostname(name, sizeof(name) - 1) != 0) {
        return NULL;
    }
    return arena_dup(arena, str_of(name)).ptr;
}

enum status web_settings_resolve(const struct option_texts *allowed_hosts,
                                 const struct option_texts *allowed_origins, struct arena *arena,
                                 struct web_access *out, struct error *err) {
    *out = (struct web_access){.hosts = allowed_hosts->items,
                               .n_hosts = allowed_hosts->n,
                               .origins = allowed_origins->items,
                               .n_origins = allowed_origins->n,
                               .machine = machine_name(arena)};
    return web_access_validate(out, err);
}
