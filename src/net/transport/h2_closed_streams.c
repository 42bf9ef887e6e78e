/* A ring of bits, one for each of the latest streams. */
#include "net/transport/h2_closed_streams.h"

#include <string.h>

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
