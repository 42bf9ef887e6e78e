/* The defaults of the protocol's names. */
#include "pool/protocol.h"

#include <assert.h>

static struct protocol_headers split(struct str names) {
    struct protocol_headers headers = {.n = 0};
    while (names.ptr) {
        assert(headers.n < PROTOCOL_MOST_HEADERS);
        headers.names[headers.n++] = str_cut(&names, ',');
    }
    return headers;
}

#define PRESET_HEADER(preset) STR(preset)
#define PRESET_HEADERS(preset) split(STR(preset))
#define PRESET_KEY(preset) STR(preset)
#define PRESET_COOKIE(preset) STR(preset)

void protocol_init(struct protocol *protocol) {
    *protocol = (struct protocol){
#define NAME(field, kind, preset, help) .field = PRESET_##kind(preset),
#include "pool/protocol.def"
#undef NAME
    };
    protocol->n_fallbacks = 1;
}
