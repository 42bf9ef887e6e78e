/* The decoder threads over a loaded part: started by pictures_new, and by tests with a part of
 * their own. */
#ifndef SLUICE_SERVE_PICTURE_POOL_H
#define SLUICE_SERVE_PICTURE_POOL_H

#include "serve/picture/picture.h"
#include "serve/picture/picture_part.h"

static const uint64_t PICTURE_MEMORY_WAIT_NS = UINT64_C(5000000000);
static const uint64_t PICTURE_LONG_NS = UINT64_C(500000000); /* estimated */

struct picture_pool;

/* `part` is borrowed. Returns: ST_NO_MEMORY, ST_IO. */
enum status picture_pool_new(const struct picture_part *part,
                             const struct pictures_options *options, struct picture_pool **out,
                             struct error *err) SLUICE_MUST_USE;
/* As pictures_free, picture_submit and picture_cancel. */
void picture_pool_free(struct picture_pool *pool);
void picture_pool_submit(struct picture_pool *pool, struct picture_job *job);
void picture_pool_cancel(struct picture_pool *pool, struct picture_job *job);

/* Posts a job with job->error set: `done` runs on its worker. */
void picture_pool_post_done(struct picture_job *job);

#endif
