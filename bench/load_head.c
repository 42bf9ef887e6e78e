/* Where does this answer end? Enough HTTP/1.1 for the servers that are measured here: a status line
 * and a Content-Length. */
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
