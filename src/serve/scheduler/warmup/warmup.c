/* Builds warm-up requests from model_warmup and runs them one after the other on every instance.
 * Each is checked, prepared and executed like a client's call, but is not queued; its answer
 * returns to a worker, which is the loading thread. */
#include "serve/scheduler/warmup/warmup.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/checked.h"
#include "core/base/compiler.h"
#include "core/base/log.h"
#include "core/event/clock.h"
#include "core/tensor/bytes.h"
#include "core/tensor/float16.h"
#include "serve/config/config.h"
#include "serve/scheduler/call_run.h"
#include "serve/scheduler/joint/joint_request.h"

enum { MAX_INTEGER = 127 };

/* The bytes of one row or of all rows. */
struct block {
    char *bytes;
    size_t n_bytes;
};

/* ---- generated data -------------------------------------------------------------------------- */

/* splitmix64: a fixed pseudo-random sequence. */
static uint64_t next_random(uint64_t *state) {
    *state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t x = *state;
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* Little-endian, as tensor data is. */
static void put_random(char *at, enum datatype datatype, uint64_t random) {
    size_t size = datatype_size(datatype);
    double unit = (double)(random >> 11) * 0x1p-53;
    float single = (float)(random >> 40) * 0x1p-24f;
    uint64_t whole = random % (datatype == DT_BOOL ? 2 : MAX_INTEGER + 1);
    if (datatype == DT_FP64) {
        memcpy(&whole, &unit, sizeof(unit));
    } else if (datatype == DT_FP32) {
        uint32_t bits;
        memcpy(&bits, &single, sizeof(bits));
        whole = bits;
    } else if (datatype == DT_FP16) {
        whole = half_from_double(unit);
    } else if (datatype == DT_BF16) {
        whole = bfloat_from_double(unit);
    }
    memcpy(at, &whole, size);
}

/* Zero bytes are also empty BYTES elements; random_data produces empty ones too, as in Triton. */
static enum status generate_bytes(struct arena *arena, const struct model_warmup_input *input,
                                  uint64_t n_elements, struct block *out, struct error *err) {
    size_t size = input->datatype == DT_BYTES ? BYTES_LENGTH_BYTES : datatype_size(input->datatype);
    uint64_t state = 0;
    out->bytes = arena_calloc(arena, n_elements, size);
    if (!out->bytes) {
        return error_no_memory(err, "the sample (none may have more than 1 GiB)");
    }
    out->n_bytes = n_elements * size; /* the configuration was checked: no overflow */
    if (input->data == WARMUP_RANDOM && input->datatype != DT_BYTES) {
        for (uint64_t i = 0; i < n_elements; i++) {
            put_random(out->bytes + i * size, input->datatype, next_random(&state));
        }
    }
    return ST_OK;
}

/* ---- data from a file ------------------------------------------------------------------------ */

static enum status read_all(struct arena *arena, FILE *file, const char *path, struct block *out,
                            struct error *err) {
    struct stat info;
    if (fstat(fileno(file), &info) != 0 || !S_ISREG(info.st_mode)) {
        return error_set(err, ST_IO, "%s is not a file", path);
    }
    out->n_bytes = (size_t)info.st_size;
    out->bytes = arena_alloc_aligned(arena, out->n_bytes, 64);
    if (!out->bytes) {
        return error_no_memory(err, "the sample (none may have more than 1 GiB)");
    }
    size_t got = fread(out->bytes, 1, out->n_bytes, file);
    return got == out->n_bytes
               ? ST_OK
               : error_set(err, ST_IO, "%s: expected %zu bytes, got %zu", path, out->n_bytes, got);
}

static enum status read_file(struct arena *arena, const struct model_warmup_input *input,
                             const struct warmup_target *target, struct block *out,
                             struct error *err) {
    struct str path = arena_printf(arena, "%.*s/warmup/%.*s", STR_ARG(target->directory),
                                   STR_ARG(input->filename));
    if (!path.ptr) {
        return error_no_memory(err, "the sample (none may have more than 1 GiB)");
    }
    const char *reason;
    FILE *file = model_file_open(target->config, target->directory, path.ptr, &reason);
    if (!file) {
        return error_set(err, status_of_errno(errno, ST_IO), "cannot open %s: %s", path.ptr,
                         reason);
    }
    enum status st = read_all(arena, file, path.ptr, out, err);
    fclose(file);
    return st;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static uint64_t count_elements(struct block block) {
    struct str rest = str_make(block.bytes, block.n_bytes), element;
    uint64_t n = 0;
    while (bytes_next(&rest, &element)) {
        n++;
    }
    return n;
}

static enum status check_size(const struct model_warmup_input *input, struct block block,
                              uint64_t n_elements, uint64_t n_rows, struct error *err) {
    uint64_t all_bytes, n_bytes = n_elements * datatype_size(input->datatype);
    if (input->datatype == DT_BYTES || block.n_bytes == n_bytes ||
        (checked_mul_u64(n_bytes, n_rows, &all_bytes) && block.n_bytes == all_bytes)) {
        return ST_OK; /* infer_check validates BYTES */
    }
    return error_set(err, ST_BAD_CONFIG,
                     "%.*s has %zu bytes; expected %" PRIu64 ", for one row, or as many for each "
                     "of %" PRIu64,
                     STR_ARG(input->filename), block.n_bytes, n_bytes, n_rows);
}

/* Adds the batch dimension and one piece per row. */
static enum status build_tensor(struct arena *arena, const struct model_warmup_input *input,
                                struct block block, size_t n_pieces, const uint64_t *n_rows,
                                struct tensor *out, struct error *err) {
    struct piece *pieces = arena_calloc(arena, n_pieces, sizeof(*pieces));
    int64_t *dims = arena_calloc(arena, input->dims.rank + 1, sizeof(*dims));
    size_t rank = 0;
    *out = (struct tensor){.name = input->name, .datatype = input->datatype};
    if (!pieces || !dims || !checked_mul(block.n_bytes, n_pieces, &out->n_bytes)) {
        return error_no_memory(err, "the sample (none may have more than 1 GiB)");
    }
    for (size_t i = 0; i < n_pieces; i++) {
        pieces[i] = (struct piece){block.bytes, block.n_bytes};
    }
    if (n_rows) {
        dims[rank++] = (int64_t)*n_rows;
    }
    for (size_t i = 0; i < input->dims.rank; i++) {
        dims[rank++] = input->dims.dims[i];
    }
    out->pieces = pieces;
    out->n_pieces = block.n_bytes > 0 ? n_pieces : 0;
    out->shape = (struct shape){dims, rank};
    return ST_OK;
}

static enum status make_input(struct arena *arena, const struct model_warmup *sample,
                              const struct model_warmup_input *input,
                              const struct warmup_target *target, struct tensor *out,
                              struct error *err) {
    bool batches = target->max_batch_size > 0;
    uint64_t n_elements, n_bytes;
    struct block block = {NULL, 0};
    if (!shape_elements(input->dims, &n_elements) ||
        (input->datatype != DT_BYTES && !shape_bytes(input->dims, input->datatype, &n_bytes))) {
        return error_set(err, ST_BAD_CONFIG, "its dims have too many elements");
    }
    enum status st = input->data == WARMUP_FILE
                         ? read_file(arena, input, target, &block, err)
                         : generate_bytes(arena, input, n_elements, &block, err);
    if (st == ST_OK) {
        st = check_size(input, block, n_elements, sample->batch_size, err);
    }
    if (st != ST_OK) {
        return st;
    }
    bool repeated = input->datatype == DT_BYTES /* one row; otherwise the block is all rows */
                        ? count_elements(block) == n_elements
                        : block.n_bytes == n_elements * datatype_size(input->datatype);
    return build_tensor(arena, input, block, repeated ? (size_t)sample->batch_size : 1,
                        batches ? &sample->batch_size : NULL, out, err);
}

enum status warmup_sample_make(struct arena *arena, const struct model_warmup *sample,
                               const struct warmup_target *target, struct infer_input **out,
                               struct error *err) {
    uint64_t most = target->max_batch_size > 0 ? target->max_batch_size : 1;
    struct infer_input *inputs = arena_calloc(arena, sample->n_inputs, sizeof(*inputs));
    if (!inputs) {
        return error_no_memory(err, "the sample (none may have more than 1 GiB)");
    }
    if (sample->batch_size > most) { /* checked before pieces are allocated per row */
        return error_set(err, ST_BAD_CONFIG,
                         "its batch_size is %" PRIu64 ", but the model takes %" PRIu64,
                         sample->batch_size, most);
    }
    for (size_t i = 0; i < sample->n_inputs; i++) {
        const struct model_warmup_input *input = &sample->inputs[i];
        enum status st = make_input(arena, sample, input, target, &inputs[i].tensor, err);
        if (st != ST_OK) {
            char name[QUOTED_NAME_BYTES];
            return error_prefix(err, "input %s", quote_name(input->name, name));
        }
    }
    *out = inputs;
    return ST_OK;
}

static const size_t SAMPLE_BYTES = (size_t)1 << 30; /* a larger sample is a mistake in its dims */

struct warmup {
    struct model_version *version;
    struct worker *worker;
    struct worker_msg next; /* runs the next call */
    /* its position */
    size_t sample;
    uint64_t repetition;
    size_t instance;
    /* memory of the sample */
    struct arena *arena;
    struct infer_input *inputs;
    /* the running call */
    struct call call;
    struct infer_request request;
    struct error *err;
};

static const struct model_warmup *sample_of(const struct warmup *warmup) {
    return &warmup->version->config.warmups[warmup->sample];
}

/* ---- running a call -------------------------------------------------------------------------- */

/* Advances to the next call. */
static void advance_to_next(struct warmup *warmup) {
    warmup->instance++;
    if (warmup->instance == warmup->version->n_instances) {
        warmup->instance = 0;
        warmup->repetition++;
    }
    if (warmup->repetition == sample_of(warmup)->count) {
        warmup->repetition = 0;
        warmup->sample++;
        arena_free(warmup->arena);
        warmup->arena = NULL;
    }
}

static void on_done(struct call *call) {
    struct warmup *warmup = CONTAINER_OF(call, struct warmup, call);
    *warmup->err = call->response.error;
    infer_response_release(&call->response);
    arena_free(warmup->request.arena);
    if (warmup->err->status == ST_OK) {
        advance_to_next(warmup);
    } else {
        error_prefix(warmup->err, "on instance %zu", warmup->instance);
    }
    worker_post(warmup->worker, &warmup->next);
}

static enum status make_sample(struct warmup *warmup) {
    struct warmup_target target = {
        .config = &warmup->version->config,
        .directory = warmup->version->directory,
        .max_batch_size = warmup->version->config.max_batch_size,
    };
    warmup->arena = arena_new(NULL, SAMPLE_BYTES);
    if (!warmup->arena) {
        return error_no_memory(warmup->err, "the sample");
    }
    return warmup_sample_make(warmup->arena, sample_of(warmup), &target, &warmup->inputs,
                              warmup->err);
}

static enum status begin_call(struct warmup *warmup) {
    struct call *call = &warmup->call;
    warmup->request = (struct infer_request){
        .arena = arena_new(worker_arenas(warmup->worker), 0),
        .inputs = warmup->inputs,
        .n_inputs = sample_of(warmup)->n_inputs,
    };
    if (!warmup->request.arena) {
        return error_no_memory(warmup->err, "the sample");
    }
    call->request = &warmup->request;
    call->worker = warmup->worker;
    call->done = on_done;
    if (infer_check(&warmup->request, &warmup->version->plan.spec, warmup->err) == ST_OK &&
        infer_align_copy(&warmup->request, warmup->err) == ST_OK &&
        call_init(call, warmup->version, warmup->err) == ST_OK &&
        call_prepare(call, warmup->err) == ST_OK) {
        return ST_OK;
    }
    arena_free(warmup->request.arena);
    return warmup->err->status;
}

/* instance_execute would count it in the statistics. */
static void execute_call(struct warmup *warmup) {
    struct model_version *version = warmup->version;
    const sluice_request *request = &warmup->call.run->backend_request;
    struct error err;
    bool entered = version_enter(version, &err);
    assert(entered); /* the version is not published, so it cannot be stopping */
    (void)entered;
    model_version_ref(version);
    call_set_state(&warmup->call, CALL_RUNNING);
    struct instance *instance = &version->instances[warmup->instance];
    warmup->call.run->instance = instance->index; /* backends tell when it computes */
    if (version->plan.layout) {
        struct call *call = &warmup->call;
        joint_execute(instance, &call, 1);
    } else {
        version->backend->execute(instance->handle, &request, 1);
    }
}

static void run_next(struct worker_msg *msg) {
    struct warmup *warmup = CONTAINER_OF(msg, struct warmup, next);
    bool over = warmup->sample == warmup->version->config.n_warmups;
    if (over || warmup->err->status != ST_OK || (!warmup->arena && make_sample(warmup) != ST_OK) ||
        begin_call(warmup) != ST_OK) {
        worker_stop(warmup->worker);
        return;
    }
    execute_call(warmup);
}

/* ---- running all samples --------------------------------------------------------------------- */

enum status warmup_run(struct model_version *version, struct error *err) {
    struct warmup warmup = {.version = version, .next.run = run_next, .err = err};
    uint64_t began_ns = clock_now_ns();
    if (version->config.n_warmups == 0) {
        return ST_OK;
    }
    err->status = ST_OK;
    enum status st = worker_new("warm-up", &warmup.worker, err);
    if (st != ST_OK) {
        return st;
    }
    worker_post(warmup.worker, &warmup.next);
    worker_run(warmup.worker);
    if (err->status != ST_OK) {
        char name[QUOTED_NAME_BYTES];
        quote_name(sample_of(&warmup)->name, name);
        st = error_prefix(err, "model_warmup %s", name);
    }
    arena_free(warmup.arena);
    worker_free(warmup.worker);
    if (st == ST_OK) {
        log_event(LOG_INFO, "model warmed up", LOG_STR("model", version->plan.spec.name),
                  LOG_U64("samples", warmup.sample), LOG_U64("instances", version->n_instances),
                  LOG_F64("seconds", (double)(clock_now_ns() - began_ns) / 1e9));
    }
    return st;
}
