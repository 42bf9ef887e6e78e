/* For tests with many streams at a time: decodes a sent message at once. */
#ifndef SLUICE_PICK_SESSION_CHURN_FIXTURE_H
#define SLUICE_PICK_SESSION_CHURN_FIXTURE_H

#include <string.h>

#include "lib/ext_proc/client.h"
#include "pick/session/session.h"

struct churn_said {
    char bytes[4096];
    struct ext_proc_client_response reply; /* the views point into it */
};

/* Releases the message. Returns: false when the proxy cannot decode it. */
static inline bool churn_read(const struct piece *pieces, size_t n_pieces,
                              void (*release)(void *user), void *user, struct churn_said *out) {
    size_t n = 0;
    for (size_t i = 0; i < n_pieces && n + pieces[i].n_bytes <= sizeof(out->bytes); i++) {
        memcpy(out->bytes + n, pieces[i].data, pieces[i].n_bytes);
        n += pieces[i].n_bytes;
    }
    if (release) {
        release(user);
    }
    return ext_proc_client_response_decode(str_make(out->bytes, n), &out->reply, NULL) == ST_OK;
}

#endif
