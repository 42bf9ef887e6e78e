/* One member, the error's text. */
#include "codec/json/error_body.h"

#include "core/base/json_writer.h"

void json_error_body_print(struct buf *out, const struct error *error) {
    struct json_writer json = {.out = out};
    json_write_open(&json, JSON_ELEMENT, '{');
    json_write_string(&json, "error", str_of(error->text)); /* error_set has made it valid UTF-8 */
    json_write_close(&json, '}');
}
