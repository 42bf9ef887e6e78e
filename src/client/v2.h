/* The calls of KServe v2 over HTTP: each is one exchange of a client. Requests are encoded and
 * answers decoded here with codec/kserve. */
#ifndef SLUICE_CLIENT_V2_H
#define SLUICE_CLIENT_V2_H

#include <stdbool.h>

#include "client/connection/client.h"
#include "client/headers.h"
#include "codec/kserve/metadata.h"
#include "codec/kserve/request_encode.h"
#include "codec/kserve/response_decode.h"
#include "codec/kserve/shared_memory.h"

/* An inference request. */
struct client_infer {
    struct str model;
    struct str version;               /* ptr NULL: the server chooses */
    const struct v2_request *request; /* see v2_request_encode; when `raw` only its one input is
                                         used */
    const enum v2_form *forms;        /* of the inputs; NULL: binary */
    bool raw;                         /* a raw binary request */
    uint64_t timeout_ns;              /* 0: the client's default */
    struct client_headers headers;    /* to send beside the library's */
};

/* A request ready to be sent: method, path, header fields and body. */
struct client_request {
    struct str method, path; /* the path includes the URL's base */
    struct str head;         /* request line and header fields */
    struct v2_request_body body;
    const struct piece *pieces; /* the head, then the body's pieces */
    size_t n_pieces;
};

/* Encodes an inference. Returns: as v2_request_encode; ST_BAD_FIELD for an empty model name;
 * ST_UNSUPPORTED for a URL of another protocol. Owns: in `arena`, except the tensors' own bytes. */
enum status client_infer_encode(struct arena *arena, const struct client_url *url,
                                const struct client_infer *infer, struct client_request *out,
                                struct error *err) SLUICE_MUST_USE;

/* Requests other than inferences. Returns and owns: as above. */
enum client_query {
    CLIENT_LIVE,
    CLIENT_READY,
    CLIENT_MODEL_READY,
    CLIENT_SERVER,     /* its metadata */
    CLIENT_MODEL,      /* its metadata */
    CLIENT_CONFIG,     /* a model's configuration */
    CLIENT_STATISTICS, /* of a model, or of all */
    CLIENT_INDEX,      /* of the repository */
    CLIENT_LOAD,       /* a model */
    CLIENT_UNLOAD,     /* a model */
    CLIENT_SHM_REGISTER,
    CLIENT_SHM_UNREGISTER, /* a region, or all */
    CLIENT_GENERATE,       /* these two: over HTTP only */
    CLIENT_GENERATE_STREAM,
};
struct client_query_args {
    enum client_query query;
    struct str model, version;             /* of queries about a model */
    struct v2_shared_memory_region region; /* of shared memory; name.ptr NULL: all */
    struct str config; /* of CLIENT_LOAD: in place of the repository's; ptr NULL: that one */
    struct str json;   /* of CLIENT_GENERATE and _STREAM: the body */
    struct client_headers headers;
};
/* Checks the arguments, for any protocol. Returns: ST_BAD_FIELD. */
enum status client_query_check(const struct client_query_args *args,
                               struct error *err) SLUICE_MUST_USE;
enum status client_query_encode(struct arena *arena, const struct client_url *url,
                                const struct client_query_args *args, struct client_request *out,
                                struct error *err) SLUICE_MUST_USE;

/* Decode the answer of a completed exchange. Returns: ST_REFUSED with the server's own text for
 * a status other than 200; ST_BAD_ANSWER. `may_lack_data`: outputs may be in shared memory. Owns:
 * in `arena`; binary tensors of an inference's
 * answer are views that live until the next exchange begins. */
enum status client_infer_decode(struct arena *arena, const struct http_session *answer,
                                bool may_lack_data, struct v2_client_response *out,
                                struct error *err) SLUICE_MUST_USE;
enum status client_model_decode(struct arena *arena, const struct http_session *answer,
                                struct model_spec *out, struct error *err) SLUICE_MUST_USE;
/* The answer of a call without a result. */
enum status client_done_decode(struct arena *arena, const struct http_session *answer,
                               struct error *err) SLUICE_MUST_USE;
/* A JSON document, as received and with a NUL after it. */
enum status client_text_decode(struct arena *arena, const struct http_session *answer,
                               struct str *out, struct error *err) SLUICE_MUST_USE;
enum status client_server_decode(struct arena *arena, const struct http_session *answer,
                                 struct v2_server_metadata *out, struct error *err) SLUICE_MUST_USE;

/* Whole calls, which block: encode, exchange, decode. */
enum status client_infer(struct client *client, struct arena *arena,
                         const struct client_infer *infer, struct v2_client_response *out,
                         struct error *err) SLUICE_MUST_USE;
enum status client_model_metadata(struct client *client, struct arena *arena, struct str model,
                                  struct str version, struct model_spec *out,
                                  struct error *err) SLUICE_MUST_USE;

#endif
