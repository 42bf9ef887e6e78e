/* Walks from frame head to frame head; nghttp2 validates the frames themselves. */
#include "net/transport/h2_scan.h"

#include <nghttp2/nghttp2.h>
#include <string.h>

/* ---- ended streams: a ring of bits, one for each of the latest ------------------------------- */

static unsigned slot_of(int32_t id) {
    return (unsigned)id / 2 % H2_CLOSED_STREAMS;
}

static bool is_in_window(const struct h2_closed_streams *ended, int32_t id) {
    return id % 2 == 1 && id <= ended->newest && ended->newest - id < 2 * H2_CLOSED_STREAMS;
}

void h2_closed_streams_begin(struct h2_closed_streams *ended, int32_t id) {
    if (id - ended->newest >= 2 * H2_CLOSED_STREAMS) {
        memset(ended->bits, 0, sizeof(ended->bits));
    } else {
        for (int32_t at = id; at > ended->newest; at -= 2) {
            ended->bits[slot_of(at) / 64] &= ~(UINT64_C(1) << slot_of(at) % 64);
        }
    }
    ended->newest = id;
}

void h2_closed_streams_add(struct h2_closed_streams *ended, int32_t id) {
    if (is_in_window(ended, id)) {
        ended->bits[slot_of(id) / 64] |= UINT64_C(1) << slot_of(id) % 64;
    }
}

bool h2_closed_streams_has(const struct h2_closed_streams *ended, int32_t id) {
    return is_in_window(ended, id) && (ended->bits[slot_of(id) / 64] >> slot_of(id) % 64 & 1);
}

/* ---- the scan -------------------------------------------------------------------------------- */

/* Returns: false when the frame follows the peer's end of its stream. */
static bool note_frame(struct h2_closed_streams *ended, const unsigned char *head) {
    int32_t id = (head[5] & 0x7f) << 24 | head[6] << 16 | head[7] << 8 | head[8];
    bool ends = head[3] == NGHTTP2_RST_STREAM;
    if (head[3] == NGHTTP2_HEADERS || head[3] == NGHTTP2_DATA) {
        if (h2_closed_streams_has(ended, id)) {
            return false;
        }
        if (head[3] == NGHTTP2_HEADERS && id % 2 == 1 && id > ended->newest) {
            h2_closed_streams_begin(ended, id);
        }
        ends = head[4] & NGHTTP2_FLAG_END_STREAM;
    }
    if (ends) {
        h2_closed_streams_add(ended, id);
    }
    return true;
}

/* Returns: the next frame head, when it is complete. */
static const unsigned char *next_head(struct h2_scan *scan, struct str *data) {
    const unsigned char *head = (const unsigned char *)data->ptr;
    size_t n = H2_FRAME_HEAD_BYTES - scan->n_head;
    n = n < data->len ? n : data->len;
    if (n < H2_FRAME_HEAD_BYTES) {
        memcpy(scan->head + scan->n_head, data->ptr, n);
        head = scan->head;
    }
    *data = str_make(data->ptr + n, data->len - n);
    scan->n_head = (unsigned char)((scan->n_head + n) % H2_FRAME_HEAD_BYTES);
    return scan->n_head == 0 ? head : NULL;
}

static size_t length_of(const unsigned char *head) {
    return (size_t)head[0] << 16 | (size_t)head[1] << 8 | head[2];
}

size_t h2_scan_add(struct h2_scan *scan, struct str data) {
    struct str rest = data;
    while (rest.len > scan->skip) {
        size_t n_before = data.len - rest.len + scan->skip;
        rest = str_make(data.ptr + n_before, data.len - n_before);
        scan->skip = 0;
        const unsigned char *head = next_head(scan, &rest);
        if (head) {
            if (!note_frame(&scan->ended, head)) {
                return n_before;
            }
            scan->skip = length_of(head);
            scan->in_fields = head[3] == NGHTTP2_HEADERS || head[3] == NGHTTP2_CONTINUATION;
            scan->ends_fields = head[4] & NGHTTP2_FLAG_END_HEADERS;
        }
    }
    scan->skip -= rest.len;
    return data.len;
}

size_t h2_scan_find_frame_end(const struct h2_scan *scan, struct str data, size_t n_least) {
    struct h2_scan ahead = *scan;
    struct str rest = data;
    size_t end = scan->skip;
    while (end < n_least && end < data.len) {
        rest = str_make(data.ptr + end, data.len - end);
        const unsigned char *head = next_head(&ahead, &rest);
        end = data.len - rest.len + (head ? length_of(head) : 0);
    }
    return end < data.len ? end : data.len;
}

bool h2_scan_is_in_fields(const struct h2_scan *scan) {
    return scan->in_fields && !(scan->ends_fields && scan->skip == 0);
}
