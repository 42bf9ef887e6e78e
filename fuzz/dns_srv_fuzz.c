/* DNS answers with SRV records: decoded records are within the message, have valid host names
 * and are sorted; a truncated message is an error or has no more records than the whole. */
#include <stdint.h>
#include <stdlib.h>

#include "codec/dns/srv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct dns_srv_list *list) {
    for (size_t i = 0; i < list->n; i++) {
        const struct dns_srv *srv = &list->items[i];
        if (srv->port == 0 || !dns_name_is_valid(srv->target) ||
            srv->target.ptr[srv->target.len] != '\0' ||
            (i > 0 && list->items[i - 1].priority > srv->priority)) {
            __builtin_trap();
        }
    }
}

/* Returns: the number of records; -1: an error. */
static long decode(const uint8_t *data, size_t size) {
    struct arena *arena = arena_new(NULL, 0);
    char *copy = malloc(size + 1); /* exact size, to detect reads past it */
    struct dns_srv_list list;
    struct error err;
    long n = -1;
    char *end = copy + 1;
    if (size > 0) {
        memcpy(end, data, size);
    }
    if (dns_srv_decode(arena, str_make(end, size), &list, &err) == ST_OK) {
        check(&list);
        n = (long)list.n;
    }
    free(copy);
    arena_free(arena);
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    long whole = decode(data, size);
    if (whole >= 0 && size > 0 && decode(data, size - 1) > whole) {
        __builtin_trap();
    }
    return 0;
}
