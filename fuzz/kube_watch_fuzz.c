/* Events of an API server's watch stream: splits make no difference to the events or the error,
 * and each event is one text. */
#include <stdint.h>
#include <stdlib.h>

#include "codec/kube/stream.h"

enum { MAX_EVENT_BYTES = 4096 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds) {
    if (!holds) {
        __builtin_trap();
    }
}

/* A hash of all events. */
static uint64_t add_event_hash(uint64_t sum, const struct kube_stream_event *event) {
    struct str name = kube_metadata_text(&event->object, "name");
    check(event->object.val && event->root.val);
    check(event->version.len > 0 || event->type == KUBE_WATCH_ERROR);
    for (size_t i = 0; i < name.len; i++) {
        sum = sum * 31 + (unsigned char)name.ptr[i];
    }
    for (size_t i = 0; i < event->version.len; i++) {
        sum = sum * 31 + (unsigned char)event->version.ptr[i];
    }
    return sum * 31 + event->type;
}

static uint64_t read_events(struct str text, size_t step) {
    struct kube_stream stream = {.max_event_bytes = MAX_EVENT_BYTES};
    struct kube_stream_event event;
    struct error err = {.status = ST_OK};
    enum status status = ST_OK;
    uint64_t sum = 0;
    while (status == ST_OK && text.len > 0) {
        size_t n = text.len < step ? text.len : step;
        char *part = malloc(n);
        memcpy(part, text.ptr, n);
        struct str piece = str_make(part, n);
        while (status == ST_OK && piece.len > 0) {
            size_t before = piece.len;
            status = kube_stream_step(&stream, &piece, &event, &err);
            check(status != ST_OK || piece.len < before);
            sum = status == ST_OK && event.complete ? add_event_hash(sum, &event) : sum;
        }
        free(part);
        text = str_make(text.ptr + n, text.len - n);
    }
    check(status == ST_OK || err.text[0] != '\0');
    kube_stream_fini(&stream);
    return sum * 31 + (uint64_t)status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1) {
        return 0;
    }
    struct str text = str_make((const char *)data + 1, size - 1);
    check(read_events(text, size) == read_events(text, 1 + data[0]));
    return 0;
}
