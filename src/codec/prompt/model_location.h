/* Where does a request name its model? What an endpoint picker sees of it first is method and path,
 * and these say whether the body is needed at all.
 *
 * Clauses: OIP, the paths of its HTTP calls; the reference server's generate extension; OpenAI's
 * and Anthropic's interfaces, whose paths may have anything before them. */
#ifndef SLUICE_CODEC_PROMPT_MODEL_LOCATION_H
#define SLUICE_CODEC_PROMPT_MODEL_LOCATION_H

#include "core/base/buf.h"
#include "core/base/status.h"
#include "core/base/str.h"

enum model_location_kind {
    MODEL_LOCATION_NONE, /* nowhere: any endpoint will do */
    /* Here: …/v2/models/M[/versions/V]/infer, /generate or /generate_stream */
    MODEL_LOCATION_PATH,
    /* In the body, a JSON object with a member "model": a POST of …/v1/completions,
     * /v1/chat/completions, /v1/embeddings, /v1/responses, /v1/messages, and what counts or renders
     * such a request */
    MODEL_LOCATION_JSON_BODY,
    /* In the body, a ModelInferRequest. A stream of them (ModelStreamInfer) may name many models
     * and has none. */
    MODEL_LOCATION_GRPC_BODY,
};

struct model_location {
    enum model_location_kind kind;
    struct str model;             /* MODEL_LOCATION_PATH: decoded, not empty, valid UTF-8 */
    struct str version;           /* decoded; ptr NULL where there is none */
    size_t model_at, model_bytes; /* where the model is in the path, encoded */
};

/* `path` is what ":path" is: with the query, encoded. Returns: for a path of MODEL_LOCATION_PATH
 * ST_NOT_FOUND where no model can have such a name, ST_BAD_REQUEST for a malformed escape;
 * ST_NO_MEMORY. Owns: views of `path`, or in `arena` where there were escapes. */
enum status model_location_parse(struct arena *arena, struct str method, struct str path,
                                 struct model_location *out, struct error *err)
    __attribute__((warn_unused_result));

/* The last path that was parsed: most requests have that of the one before. Zeroed memory has none.
 * One thread's. */
enum { MODEL_LOCATION_CACHE_PATH_BYTES = 128 }; /* longer ones are not kept */
struct model_location_cache {
    struct model_location location; /* its texts are not looked at, only whether and how long they
                                       are */
    size_t version_at;
    size_t n_bytes;
    bool is_post;
    char path[MODEL_LOCATION_CACHE_PATH_BYTES];
};
/* The same as model_location_parse; `last` may be NULL. */
enum status model_location_parse_cached(struct model_location_cache *cache, struct arena *arena,
                                        struct str method, struct str path,
                                        struct model_location *out, struct error *err)
    __attribute__((warn_unused_result));

/* Appends the path of MODEL_LOCATION_PATH with another model in it, whatever its name is. */
void model_location_print_path(struct buf *out, const struct model_location *of, struct str path,
                               struct str model);

#endif
