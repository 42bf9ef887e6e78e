/* Where a request names its model. An endpoint picker first sees method and path, which decide
 * whether the body is needed.
 *
 * Clauses: OIP, the paths of its HTTP calls; the reference server's generate extension; OpenAI's
 * and Anthropic's APIs, whose paths may have any prefix. */
#ifndef SLUICE_CODEC_PROMPT_MODEL_LOCATION_H
#define SLUICE_CODEC_PROMPT_MODEL_LOCATION_H

#include "core/base/buf.h"
#include "core/base/status.h"
#include "core/base/str.h"

enum model_location_kind {
    MODEL_LOCATION_NONE, /* no model: any endpoint can serve it */
    /* In the path: …/v2/models/M[/versions/V]/infer, /generate or /generate_stream */
    MODEL_LOCATION_PATH,
    /* In the body, a JSON object with a member "model": a POST of …/v1/completions,
     * /v1/chat/completions, /v1/embeddings, /v1/responses, /v1/messages, or of their token
     * counting and rendering; or of what else servers of that API have: …/invocations, /rerank,
     * /score, /pooling, /classify, /tokenize, /v1/audio/speech, /v1/images/generations */
    MODEL_LOCATION_JSON_BODY,
    /* In the body, a ModelInferRequest. A stream (ModelStreamInfer) may name several models and
     * is MODEL_LOCATION_NONE. */
    MODEL_LOCATION_GRPC_BODY,
};

struct model_location {
    enum model_location_kind kind;
    bool has_prompt;              /* MODEL_LOCATION_JSON_BODY: the body may have one, too */
    struct str model;             /* MODEL_LOCATION_PATH: decoded, not empty, valid UTF-8 */
    struct str version;           /* decoded; ptr NULL: none */
    size_t model_at, model_bytes; /* offset and size of the encoded model name in the path */
};

/* `path` is the value of ":path": with the query, encoded. Returns: ST_BAD_REQUEST if a proxy or
 * server that removes empty and dot segments (RFC 3986, 5.2.4) or decodes unreserved characters
 * (6.2.2.2) would find another model; for a path
 * of MODEL_LOCATION_PATH ST_NOT_FOUND if no model can have the name, ST_BAD_REQUEST for a malformed
 * escape; ST_NO_MEMORY. Owns: views of `path`, or in `arena` if it had escapes. */
enum status model_location_parse(struct arena *arena, struct str method, struct str path,
                                 struct model_location *out, struct error *err) SLUICE_MUST_USE;

/* Appends the path of MODEL_LOCATION_PATH with its model replaced by `model`, escaped. */
void model_location_print_path(struct buf *out, const struct model_location *location,
                               struct str path, struct str model);

#endif
