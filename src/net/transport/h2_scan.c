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

/* ---- the walk from frame to frame ------------------------------------------------------------ */

static struct h2_frame frame_of(const unsigned char *head) {
    return (struct h2_frame){
        .n_bytes = (uint32_t)head[0] << 16 | (uint32_t)head[1] << 8 | head[2],
        .stream_id = (head[5] & 0x7f) << 24 | head[6] << 16 | head[7] << 8 | head[8],
        .type = head[3],
        .flags = head[4],
    };
}

/* Reads on in the next frame's head. Returns: whether that is complete, and the frame the current
 * one. */
static bool add_head(struct h2_walk *walk, struct str *data) {
    const unsigned char *head = (const unsigned char *)data->ptr;
    size_t n = H2_FRAME_HEAD_BYTES - walk->n_head;
    n = n < data->len ? n : data->len;
    if (n < H2_FRAME_HEAD_BYTES) {
        memcpy(walk->head + walk->n_head, data->ptr, n);
        head = walk->head;
    }
    *data = str_make(data->ptr + n, data->len - n);
    walk->n_head = (unsigned char)((walk->n_head + n) % H2_FRAME_HEAD_BYTES);
    if (walk->n_head > 0) {
        return false;
    }
    walk->frame = frame_of(head);
    walk->skip = walk->frame.n_bytes;
    return true;
}

/* Leaves the current frame, which ends within the data. Returns: as add_head, of what follows. */
static bool next_frame(struct h2_walk *walk, struct str *data) {
    *data = str_make(data->ptr + walk->skip, data->len - walk->skip);
    walk->skip = 0;
    return add_head(walk, data);
}

void h2_walk_add(struct h2_walk *walk, struct str data) {
    while (data.len > walk->skip) {
        (void)next_frame(walk, &data);
    }
    walk->skip -= data.len;
}

/* ---- the scan -------------------------------------------------------------------------------- */

/* Returns: false when the frame follows the peer's end of its stream. */
static bool note_frame(struct h2_closed_streams *ended, const struct h2_frame *frame) {
    int32_t id = frame->stream_id;
    bool ends = frame->type == NGHTTP2_RST_STREAM;
    if (frame->type == NGHTTP2_HEADERS || frame->type == NGHTTP2_DATA) {
        if (h2_closed_streams_has(ended, id)) {
            return false;
        }
        if (frame->type == NGHTTP2_HEADERS && id % 2 == 1 && id > ended->newest) {
            h2_closed_streams_begin(ended, id);
        }
        ends = frame->flags & NGHTTP2_FLAG_END_STREAM;
    }
    if (ends) {
        h2_closed_streams_add(ended, id);
    }
    return true;
}

size_t h2_scan_add(struct h2_scan *scan, struct str data) {
    struct h2_walk *walk = &scan->walk;
    struct str rest = data;
    while (rest.len > walk->skip) {
        size_t n_before = data.len - rest.len + walk->skip;
        if (next_frame(walk, &rest)) {
            const struct h2_frame *frame = &walk->frame;
            if (!note_frame(&scan->ended, frame)) {
                walk->skip = 0;
                return n_before;
            }
            scan->in_fields = frame->type == NGHTTP2_HEADERS || frame->type == NGHTTP2_CONTINUATION;
            scan->ends_fields = frame->flags & NGHTTP2_FLAG_END_HEADERS;
        }
    }
    walk->skip -= rest.len;
    return data.len;
}

size_t h2_scan_find_frame_end(const struct h2_scan *scan, struct str data, size_t n_least) {
    struct h2_walk ahead = scan->walk;
    struct str rest = data;
    size_t end = ahead.skip;
    while (end < n_least && end < data.len) {
        (void)next_frame(&ahead, &rest);
        end = data.len - rest.len + ahead.skip;
    }
    return end < data.len ? end : data.len;
}

bool h2_scan_is_in_fields(const struct h2_scan *scan) {
    return scan->in_fields && !(scan->ends_fields && scan->walk.skip == 0);
}
