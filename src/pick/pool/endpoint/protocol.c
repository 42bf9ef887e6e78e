/* The default names of the protocol, and the sets of their lengths. */
#include "pick/pool/endpoint/protocol.h"

#include <assert.h>

static struct protocol_headers split_names(struct str names) {
    struct protocol_headers headers = {.n = 0};
    while (names.ptr) {
        assert(headers.n < PROTOCOL_MAX_HEADERS);
        headers.names[headers.n++] = str_cut(&names, ',');
    }
    return headers;
}

#define PRESET_HEADER(preset) STR(preset)
#define PRESET_HEADERS(preset) split_names(STR(preset))
#define PRESET_KEY(preset) STR(preset)
#define PRESET_COOKIE(preset) STR(preset)

void protocol_init(struct protocol *protocol) {
    *protocol = (struct protocol){
#define NAME(field, kind, preset, help) .field = PRESET_##kind(preset),
#include "pick/pool/endpoint/protocol.def"
#undef NAME
    };
    protocol->n_fallbacks = 1;
    protocol_update_lengths(protocol);
}

static uint64_t lengths_of(const struct protocol_headers *names) {
    uint64_t bits = 0;
    for (size_t i = 0; i < names->n; i++) {
        bits |= protocol_length_bit(names->names[i].len);
    }
    return bits;
}

void protocol_update_lengths(struct protocol *protocol) {
    protocol->listed_lengths =
        lengths_of(&protocol->objective_headers) | lengths_of(&protocol->rewrite_headers) |
        lengths_of(&protocol->fairness_headers) | lengths_of(&protocol->session_headers);
    protocol->single_lengths = protocol_length_bit(protocol->model_header.len) |
                               protocol_length_bit(protocol->request_id_header.len) |
                               protocol_length_bit(protocol->selection_header.len);
}
