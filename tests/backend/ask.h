/* A request as a test writes it down, and the answers that came. Tensors are copied into memory of
 * their own, exactly as large as they are, so that the address sanitizer sees a backend read past
 * an end. */
#ifndef SLUICE_TEST_ASK_H
#define SLUICE_TEST_ASK_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sluice/backend.h"

enum { ASK_MAX_TENSORS = 4, ASK_MAX_PIECES = 64, ASK_MAX_RANK = 8, ASK_MAX_ANSWERS = 8 };

struct answer {
    sluice_status status;
    char error[512];
    int32_t final;
    sluice_output outputs[ASK_MAX_TENSORS]; /* dims point into `dims` */
    int64_t dims[ASK_MAX_TENSORS][ASK_MAX_RANK];
    size_t n_outputs;
    void (*release)(void *cookie);
    void *cookie;
};

struct ask {
    sluice_request request;
    sluice_input inputs[ASK_MAX_TENSORS];
    sluice_piece pieces[ASK_MAX_TENSORS][ASK_MAX_PIECES];
    int64_t dims[ASK_MAX_TENSORS][ASK_MAX_RANK];
    uint32_t wanted[ASK_MAX_TENSORS];
    bool cancelled;

    pthread_mutex_t lock; /* over what follows */
    pthread_cond_t answered;
    struct answer answers[ASK_MAX_ANSWERS];
    size_t n_answers;
    bool is_final;
    const char *complaint; /* the first rule of the interface that an answer broke; NULL: none */
};

/* Never moves afterwards: the request points into it. */
void ask_init(struct ask *ask, uint64_t batch);
/* Appends an input of one piece. */
void ask_input(struct ask *ask, uint32_t index, const char *name, sluice_datatype datatype,
               const int64_t *dims, size_t rank, const void *data, size_t n_bytes);
/* Cuts the last piece of the input at `position` in two; `at` counts from the piece's beginning. */
void ask_split(struct ask *ask, size_t position, size_t at);
void ask_want(struct ask *ask, uint32_t index);

/* Called by the host. */
void ask_take(struct ask *ask, const sluice_response *response);
void ask_computed(struct ask *ask, bool possible);

/* Waits for the final answer. Fails the test when an answer broke a rule. Returns: the final one.
 */
const struct answer *ask_wait(struct ask *ask);
/* The same, and that it is SLUICE_OK. */
const struct answer *ask_good(struct ask *ask);
/* The same, and that it is `status` with a sentence that contains `part`. */
void ask_bad(struct ask *ask, sluice_status status, const char *part);
/* Releases what was not released and frees the tensors. */
void ask_fini(struct ask *ask);

/* Bytes of one element; 0 for BYTES. */
size_t datatype_bytes(sluice_datatype datatype);

#endif
