/* Where does a request name its model? What an endpoint picker sees of it first is method and path,
 * and these say whether the body is needed at all.
 *
 * Clauses: OIP, the paths of its HTTP calls; the reference server's generate extension; OpenAI's
 * and Anthropic's interfaces, whose paths may have anything before them. */
#ifndef SLUICE_CODEC_PROMPT_PICK_PATH_H
#define SLUICE_CODEC_PROMPT_PICK_PATH_H

#include "core/base/buf.h"
#include "core/base/status.h"
#include "core/base/str.h"

enum pick_path_kind {
    PICK_PATH_OTHER, /* nowhere: any endpoint will do */
    /* Here: …/v2/models/M[/versions/V]/infer, /generate or /generate_stream */
    PICK_PATH_V2,
    /* In the body, a JSON object with a member "model": a POST of …/v1/completions,
     * /v1/chat/completions, /v1/embeddings, /v1/responses, /v1/messages, and what counts or renders
     * such a request */
    PICK_PATH_JSON,
    /* In the body, a ModelInferRequest. A stream of them (ModelStreamInfer) may name many models
     * and has none. */
    PICK_PATH_GRPC,
};

struct pick_path {
    enum pick_path_kind kind;
    struct str model;             /* PICK_PATH_V2: decoded, not empty, valid UTF-8 */
    struct str version;           /* decoded; ptr NULL where there is none */
    size_t model_at, model_bytes; /* where the model is in the path, encoded */
};

/* `path` is what ":path" is: with the query, encoded. Returns: for a path of PICK_PATH_V2
 * ST_NOT_FOUND where no model can have such a name, ST_BAD_REQUEST for a malformed escape;
 * ST_NO_MEMORY. Owns: views of `path`, or in `arena` where there were escapes. */
enum status pick_path_parse(struct arena *arena, struct str method, struct str path,
                            struct pick_path *out, struct error *err)
    __attribute__((warn_unused_result));

/* The last path that was parsed: most requests have that of the one before. Zeroed memory has none.
 * One thread's. */
enum { PICK_PATH_LAST_BYTES = 128 }; /* longer ones are not kept */
struct pick_path_last {
    struct pick_path where; /* its texts are not looked at, only whether and how long they are */
    size_t version_at;
    size_t n_bytes;
    bool is_post;
    char path[PICK_PATH_LAST_BYTES];
};
/* The same as pick_path_parse; `last` may be NULL. */
enum status pick_path_parse_like(struct pick_path_last *last, struct arena *arena,
                                 struct str method, struct str path, struct pick_path *out,
                                 struct error *err) __attribute__((warn_unused_result));

/* Appends the path of PICK_PATH_V2 with another model in it, whatever its name is. */
void pick_path_print(struct buf *out, const struct pick_path *of, struct str path,
                     struct str model);

#endif
