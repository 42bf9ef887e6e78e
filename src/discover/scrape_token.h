/* The token that an endpoint's metrics are asked for with: what is in a file, which may change.
 *
 * Thread: one at a time. */
#ifndef SLUICE_DISCOVER_SCRAPE_TOKEN_H
#define SLUICE_DISCOVER_SCRAPE_TOKEN_H

#include "base/str.h"
#include "net/watched_file.h"

/* Zeroed memory is none. */
struct scrape_token {
    struct watched_file file;
    char *path; /* its own */
    char *text; /* without white space around it; NULL: there is none */
};

/* Reads the file again. `path`, len 0: there is none. One that can't be read leaves what was read
 * of it before, and is logged when that begins. */
void scrape_token_look(struct scrape_token *token, struct str path);
/* Overwrites and frees it. */
void scrape_token_fini(struct scrape_token *token);

#endif
