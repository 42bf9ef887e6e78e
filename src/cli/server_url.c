/* URLs of servers. The client leaves TLS to a transport of its caller's, and the command line has
 * none. */
#include "cli/server_url.h"

enum status server_url_parse(struct arena *arena, const char *text, struct client_url *out,
                             struct error *err) {
    enum status status = client_url_parse(arena, str_of(text), out, err);
    if (status == ST_OK && out->is_tls) {
        return error_set(err, ST_BAD_CONFIG,
                         "\"%s\": the command line does not speak TLS yet; write http://HOST:PORT",
                         text);
    }
    return status;
}
