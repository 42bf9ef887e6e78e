/* The threads that decode, over a part that is already there: what pictures_new starts when it has
 * loaded one, and what tests start over a part of their own. */
#ifndef SLUICE_PICTURE_POOL_H
#define SLUICE_PICTURE_POOL_H

#include "picture/picture.h"
#include "picture/picture_part.h"

struct pool;

/* `part` stays. Returns: ST_NO_MEMORY, ST_IO. */
enum status pool_new(const struct picture_part *part, const struct pictures_options *options,
                     struct pool **out, struct error *err) __attribute__((warn_unused_result));
/* As pictures_free, picture_submit and picture_cancel. */
void pool_free(struct pool *pool);
void pool_submit(struct pool *pool, struct picture_job *job);
void pool_cancel(struct pool *pool, struct picture_job *job);

/* job->error is set: runs `done` on the job's worker. */
void pool_post_done(struct picture_job *job);

#endif
