/* How a part of a body is answered in the mode that it comes in. Only mode GRPC needs a look at it:
 *
 * Clause: ext-proc, mode GRPC. A proxy that has the mode takes gRPC apart: each of its messages is
 * one of gRPC, without a prefix, and is to be sent back. Observed: Envoy 1.40 takes the setting,
 * and then waits and shows a body as in BUFFERED, prefixes and all, whatever its sort. */
#include "pick/session/state.h"

enum { PREFIX_BYTES = 5 };

/* gRPC, "Length-Prefixed-Message": 0 or 1, and four bytes of length, the first the highest. No
 * protobuf message begins so: its first byte is a field's number. */
static bool is_prefixed(struct str body) {
    const unsigned char *bytes = (const unsigned char *)body.ptr;
    size_t at = 0;
    while (body.len - at >= PREFIX_BYTES && bytes[at] <= 1) {
        uint64_t n = (uint64_t)bytes[at + 1] << 24 | (uint64_t)bytes[at + 2] << 16 |
                     (uint64_t)bytes[at + 3] << 8 | bytes[at + 4];
        at += PREFIX_BYTES;
        if (n > body.len - at) {
            return false;
        }
        at += (size_t)n;
    }
    return at > 0 && at == body.len;
}

bool pick_session_needs_echo(const struct pick_session *session, enum ext_proc_body_mode mode,
                             const struct ext_proc_request *message) {
    if (mode != EXT_PROC_BODY_GRPC) {
        return pick_mode_is_duplex(mode);
    }
    return !session->is_not_grpc && !is_prefixed(message->body);
}

bool pick_session_echo_body(struct pick_session *session, const struct ext_proc_request *message,
                            enum ext_proc_body_mode mode, const struct pick_edits *edits) {
    struct pick_message_ref *message_ref =
        message->body.len > 0 ? pick_session_ref_message(session) : NULL;
    struct pick_body_chunk chunk = pick_body_chunk_of(message, message_ref);
    struct error err;
    if (session->phase == PICK_ENDED) {
        return false;
    }
    if (pick_body_chunk_send(&session->send_queue, message->kind, &chunk, 0, edits,
                             mode == EXT_PROC_BODY_GRPC, &err) != ST_OK) {
        pick_session_abort(session, &err);
        return false;
    }
    return true;
}
