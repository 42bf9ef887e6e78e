/* The routes of KServe v2: which resource a path names. Names are percent-decoded once; empty
 * names, ".", "..", names with a slash or a control character and invalid UTF-8 are rejected. */
#ifndef SLUICE_CODEC_KSERVE_PATH_H
#define SLUICE_CODEC_KSERVE_PATH_H

#include "core/base/arena.h"
#include "core/base/buf.h"
#include "core/base/status.h"
#include "core/base/str.h"

enum v2_resource {
    V2_SERVER,                   /* /v2, /v2/ */
    V2_LIVE,                     /* /v2/health/live */
    V2_READY,                    /* /v2/health/ready */
    V2_MODEL,                    /* /v2/models/M[/versions/V] */
    V2_MODEL_READY,              /* …/ready */
    V2_MODEL_INFER,              /* …/infer */
    V2_GENERATE,                 /* …/generate */
    V2_GENERATE_STREAM,          /* …/generate_stream */
    V2_STATISTICS,               /* /v2/models/stats, /v2/models/M[/versions/V]/stats */
    V2_MODELS,                   /* /v2/models */
    V2_LOAD,                     /* /v2/load */
    V2_MODEL_CONFIG,             /* …/config */
    V2_REPOSITORY_INDEX,         /* /v2/repository[/R]/index */
    V2_REPOSITORY_LOAD,          /* /v2/repository[/R]/models/M/load */
    V2_REPOSITORY_UNLOAD,        /* …/unload */
    V2_LOGGING,                  /* /v2/logging */
    V2_TRACE,                    /* /v2/trace/setting, /v2/models/M/trace/setting */
    V2_SHARED_MEMORY_STATUS,     /* /v2/systemsharedmemory[/region/N]/status */
    V2_SHARED_MEMORY_REGISTER,   /* …/register */
    V2_SHARED_MEMORY_UNREGISTER, /* …/unregister */
    V2_CUDA_MEMORY_STATUS,       /* /v2/cudasharedmemory[/region/N]/status */
    V2_CUDA_MEMORY_UNREGISTER,   /* …/unregister */
    V2_OTHER,                    /* none of these */
};

struct v2_path {
    enum v2_resource resource;
    struct str model;      /* decoded; empty where there is none */
    struct str version;    /* decoded, as text; ptr NULL where there is none */
    struct str repository; /* R, still encoded; ptr NULL where there is none */
    struct str region;     /* N, decoded; empty where there is none */
};

/* `path` is without the query, still encoded. Returns: ST_NOT_FOUND for V2_OTHER, and for an
 * invalid name (no such resource can exist; for the model of a load or unload ST_BAD_REQUEST, as
 * the reference server does); ST_BAD_REQUEST for a malformed escape; ST_UNSUPPORTED to register
 * CUDA shared memory. Owns: the names are views of `path`, or in `arena` if they had escapes.
 * Clause: OIP, the paths of its HTTP calls. */
enum status v2_path_parse(struct arena *arena, struct str path, struct v2_path *out,
                          struct error *err) SLUICE_MUST_USE;
/* Decodes the percent escapes of a path segment. Returns: ST_BAD_REQUEST for a malformed one,
 * ST_NO_MEMORY. Owns: a view of `text`, or in `arena` if it had escapes. */
enum status v2_path_unescape(struct arena *arena, struct str text, struct str *out,
                             struct error *err) SLUICE_MUST_USE;
/* Appends `text` with percent escapes for all but the unreserved characters (RFC 3986, 2.3): a
 * slash is escaped too. */
void v2_path_escape(struct buf *out, struct str text);

#endif
