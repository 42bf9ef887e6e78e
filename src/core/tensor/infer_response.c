/* Giving an answer's bytes back to the backend that owns them. */
#include "core/tensor/infer.h"

void infer_response_release(struct infer_response *response) {
    void (*release)(void *cookie) = response->release;
    response->release = NULL;
    if (release) {
        release(response->cookie);
    }
}
