/* The limits apply to each connection. */
#include "net/transport/h2_option.h"

#include <stddef.h>

enum { MAX_SETTINGS = 32, MAX_ACKS = 1000, MAX_HEADER_BLOCK_BYTES = 1 << 20 };

nghttp2_option *h2_option_new(void) {
    nghttp2_option *option;
    if (nghttp2_option_new(&option) != 0) {
        return NULL;
    }
    nghttp2_option_set_no_auto_window_update(option, 1);
    nghttp2_option_set_max_settings(option, MAX_SETTINGS);
    nghttp2_option_set_max_outbound_ack(option, MAX_ACKS);
    nghttp2_option_set_max_send_header_block_length(option, MAX_HEADER_BLOCK_BYTES);
    return option;
}
