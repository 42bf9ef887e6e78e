/* What tests with many streams at a time share: what a session says is read at once. */
#ifndef SLUICE_PICK_SESSION_CHURN_FIXTURE_H
#define SLUICE_PICK_SESSION_CHURN_FIXTURE_H

#include <string.h>

#include "lib/ext_proc/client.h"
#include "pick/session/session.h"

struct churn_said {
    char bytes[4096];
    struct ext_proc_client_response reply; /* views of them */
};

/* Lets go of it. Returns: false where the proxy can't read it. */
static inline bool churn_read(const struct piece *pieces, size_t n_pieces,
                              void (*release)(void *cookie), void *cookie, struct churn_said *out) {
    size_t n = 0;
    for (size_t i = 0; i < n_pieces && n + pieces[i].n_bytes <= sizeof(out->bytes); i++) {
        memcpy(out->bytes + n, pieces[i].data, pieces[i].n_bytes);
        n += pieces[i].n_bytes;
    }
    if (release) {
        release(cookie);
    }
    return ext_proc_client_response_decode(str_make(out->bytes, n), &out->reply, NULL) == ST_OK;
}

#endif
