/* Where does this answer end? Enough HTTP/1.1 for the servers that are measured here: a status line
 * and a Content-Length; and MIP's header. */
#include "load.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

bool load_head_parse(const char *data, size_t n, size_t *head_bytes, uint64_t *body_bytes,
                     int *status) {
    const char *end = memmem(data, n, "\r\n\r\n", 4);
    if (!end || n < 12) {
        return false;
    }
    *head_bytes = (size_t)(end - data) + 4;
    *body_bytes = 0;
    *status = atoi(data + 9);
    static const char name[] = "\r\nContent-Length:";
    for (const char *at = data; at < end; at++) {
        if (*at == '\r' && strncasecmp(at, name, sizeof name - 1) == 0) {
            *body_bytes = strtoull(at + sizeof name - 1, NULL, 10);
            break;
        }
    }
    return true;
}

bool load_packet_parse(const char *data, size_t n, size_t *head_bytes, uint64_t *body_bytes,
                       int *status) {
    enum { HEADER_BYTES = 8, KIND = 1, SIZE = 4 };
    if (n < HEADER_BYTES) {
        return false;
    }
    *head_bytes = HEADER_BYTES;
    *body_bytes = 0;
    for (int i = SIZE; i < HEADER_BYTES; i++) {
        *body_bytes = *body_bytes << 8 | (unsigned char)data[i];
    }
    *status = data[KIND] == 0 ? 500 : 200;
    return true;
}
