/* Health bodies. */
#include "codec/kserve/metadata.h"

#include "core/base/json_writer.h"

/* Load balancers poll these two: their texts are constants. */
void v2_live_print(struct buf *out, bool live) {
    buf_add_str(out, live ? STR("{\"live\":true}") : STR("{\"live\":false}"));
}

void v2_ready_print(struct buf *out, bool ready) {
    buf_add_str(out, ready ? STR("{\"live\":true,\"ready\":true}")
                           : STR("{\"live\":false,\"ready\":false}"));
}

void v2_model_ready_print(struct buf *out, struct str name, bool ready) {
    struct json_writer json = {.out = out};
    json_write_open(&json, JSON_ELEMENT, '{');
    json_write_string(&json, "name", name);
    json_write_bool(&json, "ready", ready);
    json_write_close(&json, '}');
}
