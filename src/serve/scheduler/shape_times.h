/* The execution times of a version by the shapes of the inputs. A model may take microseconds for
 * one shape and minutes for another of the same bytes, so an execution counts as fast only after
 * executions with exactly its shapes were; the batch dimension apart, whose limit is in
 * exec_time_stats.
 *
 * A table of a fixed size: shapes that are seen again keep their place, and those that are not make
 * room. A concurrent change of a place may credit one time to other shapes; a decision needs many.
 *
 * Thread: any, but shape_times_init. */
#ifndef SLUICE_SERVE_SCHEDULER_SHAPE_TIMES_H
#define SLUICE_SERVE_SCHEDULER_SHAPE_TIMES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/arena.h"
#include "core/base/hash.h"
#include "core/base/status.h"
#include "serve/scheduler/exec_time_stats.h"
#include "sluice/backend.h"

enum {
    SHAPE_TIMES_SETS = 16,
    SHAPE_TIMES_WAYS = 4, /* places for the shapes of a set */
    /* so many other shapes of its set come in vain before the place is given away */
    SHAPE_TIMES_KEPT = 64,
};

/* Identifies the shapes of a request's inputs. */
enum {
    SHAPES_NEVER = 0, /* has a dimension 0: never fast */
    SHAPES_FIXED = 1, /* the configuration leaves no choice */
    SHAPES_HASHED     /* and above: a hash */
};

struct shape_times_place {
    _Atomic uint64_t shapes; /* SHAPES_NEVER: free */
    atomic_uint n_missed;    /* other shapes that came since these did */
    struct exec_time_stats times;
};

struct shape_times {
    bool is_fixed;   /* every request has the same shapes: SHAPES_FIXED */
    bool is_batched; /* the first dimension is the batch's */
    struct exec_time_stats fixed;
    struct hash_key key;              /* secret: a client cannot choose shapes with equal hashes */
    struct shape_times_place *places; /* SHAPE_TIMES_WAYS for each set; NULL: is_fixed */
};

/* Into zeroed memory. Returns: ST_NO_MEMORY. Owns: the arena. */
enum status shape_times_init(struct shape_times *times, struct arena *arena, bool is_fixed,
                             bool is_batched, struct error *err) SLUICE_MUST_USE;

/* Returns: what the functions below take. */
uint64_t shape_times_shapes_of(const struct shape_times *times, const sluice_request *request);

/* Returns: the times of these shapes; NULL: none are known. */
struct exec_time_stats *shape_times_find(struct shape_times *times, uint64_t shapes);
/* The same before an execution whose time will be added. Returns: NULL when none is kept: the
 * shapes are SHAPES_NEVER, or there is no place. */
struct exec_time_stats *shape_times_get(struct shape_times *times, uint64_t shapes);

#endif
