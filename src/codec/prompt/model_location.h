/* Where a request names its model. An endpoint picker first sees method and path, which decide
 * whether the body is needed.
 *
 * Clauses: OIP, the paths of its HTTP calls; the reference server's generate extension; KServe's
 * first protocol, which is TensorFlow Serving's; OpenAI's and Anthropic's APIs, whose paths may
 * have any prefix. */
#ifndef SLUICE_CODEC_PROMPT_MODEL_LOCATION_H
#define SLUICE_CODEC_PROMPT_MODEL_LOCATION_H

#include "codec/prompt/prompt_scan.h"
#include "core/base/buf.h"
#include "core/base/status.h"
#include "core/base/str.h"

enum model_location_kind {
    MODEL_LOCATION_NONE, /* no model: any endpoint can serve it */
    /* In the path: …/v2/models/M[/versions/V]/infer, /generate, /generate_stream or /explain;
     * …/v1/models/M[/versions/V or /labels/L]:predict, :explain, :classify or :regress */
    MODEL_LOCATION_PATH,
    /* In the body, a JSON object with a member "model": a POST to a path with one of the ends of
     * struct model_paths */
    MODEL_LOCATION_JSON_BODY,
    /* In the body, a ModelInferRequest. A stream (ModelStreamInfer) may name several models and
     * is MODEL_LOCATION_NONE. */
    MODEL_LOCATION_GRPC_BODY,
};

struct model_location {
    enum model_location_kind kind;
    bool is_unclaimed;            /* by the parsers: no parser reads the bodies of this path */
    bool is_model_optional;       /* MODEL_LOCATION_JSON_BODY: a body without a model is right */
    bool has_prompt;              /* the body may have one, too */
    bool may_have_system;         /* with has_prompt: and a member with the system's text */
    enum prompt_format format;    /* with has_prompt */
    struct str required;          /* with has_prompt: a member of the body; ptr NULL: none */
    struct str model;             /* MODEL_LOCATION_PATH: decoded, not empty, valid UTF-8 */
    struct str version;           /* decoded, also a label; ptr NULL: none */
    size_t model_at, model_bytes; /* offset and size of the encoded model name in the path */
};

/* The upstream project's parsers, a bit each: by the ends of paths they say what is in a body
 * (parser_path.def). */
enum model_parsers {
    MODEL_PARSER_OPENAI = 1,
    MODEL_PARSER_ANTHROPIC = 2,
    MODEL_PARSER_VLLM_HTTP = 4,
    MODEL_PARSER_SGLANG_HTTP = 8,
    MODEL_PARSER_VLLM_GRPC = 16,
    MODEL_PARSER_VERTEX = 32,
    MODEL_PARSER_PASSTHROUGH = 64, /* of all other paths; it reads no body */
    MODEL_PARSERS_OWN = 128,       /* the paths that this picker knows without a list of parsers
                                      come first */
};
/* Upstream's, where its configuration lists none. */
#define MODEL_PARSERS_DEFAULT                                                                      \
    (MODEL_PARSER_OPENAI | MODEL_PARSER_ANTHROPIC | MODEL_PARSER_VLLM_HTTP |                       \
     MODEL_PARSER_PASSTHROUGH | MODEL_PARSERS_OWN)

/* Ends of the paths whose bodies name the model: "/v1/completions" is also that of
 * "/openai/v1/completions". */
struct model_paths {
    const struct str *items; /* NULL: the default */
    size_t n;
    unsigned parsers; /* enum model_parsers; 0: the list alone counts */
};
/* Those of OpenAI's and Anthropic's APIs, their token counting and rendering, and of what servers
 * of these APIs have beside them. */
struct model_paths model_paths_default(void);

/* `path` is the value of ":path": with the query, encoded. `paths` NULL: the default. Returns:
 * ST_BAD_REQUEST if a proxy or server that removes empty and dot segments (RFC 3986, 5.2.4) or
 * decodes unreserved characters (6.2.2.2) would find another model; for a path of
 * MODEL_LOCATION_PATH ST_NOT_FOUND if no model can have the name, ST_BAD_REQUEST for a malformed
 * escape; ST_NO_MEMORY. Owns: views of `path`, or in `arena` if it had escapes. */
enum status model_location_parse(struct arena *arena, const struct model_paths *paths,
                                 struct str method, struct str path, struct model_location *out,
                                 struct error *err) SLUICE_MUST_USE;

/* Appends the path of MODEL_LOCATION_PATH with its model replaced by `model`, escaped. */
void model_location_print_path(struct buf *out, const struct model_location *location,
                               struct str path, struct str model);

#endif
