/* ModelInfer, and what ModelInfer and ModelStreamInfer share: a message is decoded, checked, run on
 * the same worker, and encoded. */
#include "serve/frontend/grpc/infer.h"

#include "serve/frontend/header_forward.h"

/* ---- the steps of both methods --------------------------------------------------------------- */

void grpc_infer_init(struct grpc_infer *infer, const struct inference_protocol *protocol,
                     struct grpc_call *rpc, struct grpc_message *message) {
    const struct grpc_api_options *options = &grpc_method_context_of(rpc)->api->options;
    client_inference_init(&infer->inference, protocol, &options->services, rpc->worker,
                          rpc->account);
    infer->rpc = rpc;
    infer->message = message;
    infer->inference.base.arena = message->arena;
}

void grpc_infer_count_picked(const struct grpc_call *call) {
    picked_count(grpc_find_field(call, PICKED_FIELD, NULL).len > 0);
}

struct trace *grpc_infer_begin_trace(struct client_inference *inference, struct tracer *tracer) {
    struct trace *trace =
        trace_begin_grpc(tracer, inference->base.spec, grpc_infer_of(inference)->rpc);
    trace_timestamp_set(trace, TRACE_GRPC_WAITREAD_START);
    trace_timestamp_set(trace, TRACE_GRPC_WAITREAD_END);
    return trace;
}

enum status grpc_infer_decode(struct client_inference *inference, struct error *err) {
    struct grpc_infer *infer = grpc_infer_of(inference);
    struct v2_grpc_request *request = &infer->request;
    enum status st = v2_grpc_request_decode(inference_arena(&inference->base), infer->message->data,
                                            &inference->services->limits, request, err);
    inference->base.call.request = &request->infer;
    infer->typed = v2_grpc_request_wants_typed(
        request, grpc_method_context_of(infer->rpc)->api->options.output_contents);
    request->infer.deadline_ns = infer->rpc->deadline_ns;
    inference->model = request->model;
    inference->version_text = request->version.len > 0 ? request->version : str_make(NULL, 0);
    return st;
}

/* Of large messages only, so that small ones are not read twice. The time of a byte on a slow core:
 * a number of typed contents has one byte at least. */
uint64_t grpc_infer_decode_ns(const struct client_inference *inference) {
    enum { SMALL_BYTES = 65536, WALK_NS = 4 };
    const struct grpc_infer *infer = CONTAINER_OF(inference, struct grpc_infer, inference);
    struct str message = infer->message->data;
    return message.len < SMALL_BYTES ? 0 : v2_grpc_request_walked_bytes(message) * WALK_NS;
}

enum status grpc_infer_forward_metadata(struct client_inference *inference, struct params *params,
                                        struct error *err) {
    struct grpc_infer *infer = grpc_infer_of(inference);
    const struct grpc_api_options *options = &grpc_method_context_of(infer->rpc)->api->options;
    return header_forward_grpc(options->forward, inference_arena(&inference->base), infer->rpc,
                               params, err);
}

/* Times on a slow core: of compressing a byte, and of converting an element of typed contents. What
 * takes less than HELPER_MIN_NS to compress grpc_send does. */
enum { COMPRESS_NS = 20, COMPRESS_MIN_BYTES = HELPER_MIN_NS / COMPRESS_NS, CONVERT_NS = 10 };

uint64_t grpc_infer_encode_ns(const struct client_inference *inference,
                              const struct infer_response *response) {
    const struct grpc_infer *infer = CONTAINER_OF(inference, struct grpc_infer, inference);
    uint64_t n_bytes = infer_response_bytes(response);
    uint64_t ns = infer->typed ? v2_grpc_typed_elements(response) * CONVERT_NS : 0;
    return ns + (grpc_compresses(infer->rpc, n_bytes) ? n_bytes * COMPRESS_NS : 0);
}

enum status grpc_infer_encode_response(struct client_inference *inference,
                                       struct infer_response *response, struct arena *arena,
                                       bool stream, int final, struct grpc_infer_response *out,
                                       struct error *err) {
    struct v2_grpc_message *message = &out->message;
    const struct grpc_infer *infer = grpc_infer_of(inference);
    const struct grpc_call *call = infer->rpc;
    enum status st = v2_grpc_response_encode(
        arena, inference->base.spec, inference->base.call.request->id, response,
        (struct v2_grpc_response_form){infer->typed, stream, final}, message, err);
    out->is_compressed =
        st == ST_OK && message->n_bytes >= COMPRESS_MIN_BYTES &&
        grpc_compresses(call, message->n_bytes) &&
        grpc_compress(call, arena, message->pieces, message->n_pieces, &out->compressed);
    return st;
}

void grpc_infer_send(struct grpc_infer *infer, const struct grpc_infer_response *response,
                     void (*release)(void *user), void *user) {
    const struct v2_grpc_message *message = &response->message;
    if (response->is_compressed) {
        grpc_send_compressed(infer->rpc, &response->compressed, release, user);
    } else {
        grpc_send(infer->rpc, message->pieces, message->n_pieces, release, user);
    }
}

enum status grpc_infer_encode(struct grpc_infer *infer, struct grpc_infer_response *out,
                              struct error *err) {
    enum status st = client_inference_encode(&infer->inference.base.last, out, err);
    inference_count_answer(st);
    return st;
}

/* ---- ModelInfer ------------------------------------------------------------------------------ */

static enum status encode_response(struct client_inference *inference,
                                   struct infer_response *response, struct arena *arena, bool last,
                                   void *out, struct error *err) {
    (void)last;
    return grpc_infer_encode_response(inference, response, arena, false, -1, out, err);
}

static void release_response(void *user) {
    infer_response_release(user);
}

static void respond(struct client_inference *inference, struct outgoing_response *outgoing) {
    struct grpc_infer *infer = grpc_infer_of(inference);
    struct grpc_infer_response out;
    struct error err;
    (void)outgoing; /* the last one */
    if (grpc_infer_encode(infer, &out, &err) != ST_OK) {
        infer_response_release(&inference->base.call.response);
        grpc_finish(infer->rpc, &err);
        return;
    }
    grpc_infer_send(infer, &out, release_response, &inference->base.call.response);
    grpc_finish(infer->rpc, NULL);
}

static const struct inference_protocol infer_protocol = {
    .carries_one = "ModelInfer carries one; ModelStreamInfer carries all",
    .send_start = TRACE_GRPC_SEND_START,
    .send_end = TRACE_GRPC_SEND_END,
    .begin_trace = grpc_infer_begin_trace,
    .decode = grpc_infer_decode,
    .decode_ns = grpc_infer_decode_ns,
    .forward_headers = grpc_infer_forward_metadata,
    .encode = encode_response,
    .encode_ns = grpc_infer_encode_ns,
    .encoded_bytes = sizeof(struct grpc_infer_response),
    .respond = respond,
};

static void begin_infer(struct grpc_call *call) {
    struct grpc_infer *infer = arena_calloc(call->message->arena, 1, sizeof *infer);
    if (!infer) {
        struct error err;
        grpc_message_free(call->message);
        error_no_memory(&err, "the request");
        grpc_finish(call, &err);
        return;
    }
    grpc_infer_init(infer, &infer_protocol, call, call->message);
    call->user = infer;
    grpc_infer_count_picked(call);
    inference_run(&infer->inference.base);
}

void grpc_step_infer(struct grpc_call *call, enum grpc_event event) {
    struct grpc_infer *infer = call->user;
    if (event == GRPC_MESSAGE) {
        begin_infer(call);
    } else if (event == GRPC_CANCELLED && infer) {
        /* `respond` is still called, and finishes the call */
        inference_abandon(&infer->inference.base);
    } else if (event == GRPC_END && infer) {
        client_inference_fini(&infer->inference, !call->is_cancelled);
        grpc_message_free(infer->message);
    }
}
