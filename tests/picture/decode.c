/* Decodes pictures with serve/picture, for tests that compare with other decoders:
 *
 *     decode PART THREADS MAX_PIXELS <jobs
 *
 * Each input line is one picture, as words NAME=VALUE: file, bytes (of the file; default all), out
 * (a file for the elements), width, height, color, fit, filter, layout, datatype, scale, mean and
 * std (one per channel, comma-separated), pad. All are submitted at once; then one line per job, in
 * order, prints "OK", or the status and the error text. The last line prints how many bytes of
 * pixels the library still holds, or why there is none. Every file and result is held in memory. */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/base/num.h"
#include "serve/picture/picture.h"
#include "serve/picture/picture_part.h"

enum { MAX_JOBS = 4096, HELD_WAITS = 1000 };

struct task {
    struct picture_plan plan;
    char *file, *out; /* paths */
    uint64_t n_bytes; /* of the file */
    size_t n_out;
    struct picture_job job;
};

struct run {
    struct worker *worker;
    struct task *tasks;
    size_t n_tasks;
    size_t n_done;
};

static struct run run;

static void stop_if(bool wrong, const char *what) {
    if (wrong) {
        fprintf(stderr, "decode: %s\n", what);
        exit(2);
    }
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static int one_of(struct str value, const char *const *names) {
    for (int i = 0; names[i]; i++) {
        if (str_is(value, names[i])) {
            return i;
        }
    }
    stop_if(true, "a word that is not known");
    return 0;
}

static void three_of(struct str value, double out[PICTURE_MAX_CHANNELS]) {
    for (int i = 0; i < PICTURE_MAX_CHANNELS && value.ptr; i++) {
        stop_if(!num_parse_decimal(str_cut(&value, ','), &out[i]), "not numbers");
    }
}

static uint64_t number_of(struct str value) {
    uint64_t number = 0;
    stop_if(!num_parse_u64(value, &number), "not a number");
    return number;
}

static char *text_of(struct str value) {
    char *text = strndup(value.ptr, value.len);
    stop_if(!text, "out of memory");
    return text;
}

static void set_look(struct picture_plan *plan, struct str name, struct str value) {
    static const char *const colors[] = {"rgb", "bgr", "grey", NULL};
    static const char *const fits[] = {"stretch", "crop", "pad", NULL};
    static const char *const filters[] = {"auto",    "nearest", "bilinear",
                                          "bicubic", "lanczos", NULL};
    static const char *const layouts[] = {"nchw", "nhwc", NULL};
    if (str_is(name, "color")) {
        plan->color = (enum picture_color)one_of(value, colors);
    } else if (str_is(name, "fit")) {
        plan->fit = (enum picture_fit)one_of(value, fits);
    } else if (str_is(name, "filter")) {
        plan->filter = (enum picture_filter)one_of(value, filters);
    } else if (str_is(name, "layout")) {
        plan->layout = (enum picture_layout)one_of(value, layouts);
    } else {
        stop_if(true, "a name that is not known");
    }
}

static void set_word(struct task *task, struct str name, struct str value) {
    struct picture_plan *plan = &task->plan;
    if (str_is(name, "file")) {
        task->file = text_of(value);
    } else if (str_is(name, "out")) {
        task->out = text_of(value);
    } else if (str_is(name, "bytes")) {
        task->n_bytes = number_of(value);
    } else if (str_is(name, "width")) {
        plan->width = (uint32_t)number_of(value);
    } else if (str_is(name, "height")) {
        plan->height = (uint32_t)number_of(value);
    } else if (str_is(name, "pad")) {
        plan->pad = (uint8_t)number_of(value);
    } else if (str_is(name, "datatype")) {
        plan->datatype = datatype_parse(value);
    } else if (str_is(name, "scale")) {
        stop_if(!num_parse_decimal(value, &plan->scale), "not a number");
    } else if (str_is(name, "mean")) {
        three_of(value, plan->mean);
    } else if (str_is(name, "std")) {
        three_of(value, plan->std);
    } else {
        set_look(plan, name, value);
    }
}

static void on_done(struct picture_job *job) {
    (void)job;
    run.n_done++;
    if (run.n_done == run.n_tasks) {
        worker_stop(run.worker);
    }
}

static struct str read_file(const char *path, uint64_t most) {
    FILE *file = fopen(path, "rb");
    stop_if(!file || fseek(file, 0, SEEK_END) != 0, path);
    size_t n = (size_t)ftell(file);
    n = most < n ? (size_t)most : n;
    rewind(file);
    char *data = malloc(n > 0 ? n : 1); /* the exact size, so that a read past the end is
                                           detected */
    stop_if(!data || fread(data, 1, n, file) != n, path);
    fclose(file);
    return str_make(data, n);
}

static void read_task(struct task *task, struct str line) {
    *task = (struct task){.n_bytes = UINT64_MAX,
                          .plan = {.datatype = DT_UINT8, .scale = 1, .std = {1, 1, 1}}};
    while (line.ptr) {
        struct str value = str_cut(&line, ' ');
        struct str name = str_cut(&value, '=');
        set_word(task, name, value);
    }
    stop_if(!task->file || !picture_plan_bytes(&task->plan, &task->n_out), "half a job");
    task->job = (struct picture_job){.file = read_file(task->file, task->n_bytes),
                                     .plan = &task->plan,
                                     .out = malloc(task->n_out),
                                     .worker = run.worker,
                                     .done = on_done};
    stop_if(!task->job.out, "out of memory");
}

static void read_tasks(void) {
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    while ((n = getline(&line, &cap, stdin)) > 0) {
        stop_if(run.n_tasks == MAX_JOBS, "too many jobs");
        read_task(&run.tasks[run.n_tasks++], str_make(line, (size_t)n - (line[n - 1] == '\n')));
    }
    free(line);
}

/* ---- results --------------------------------------------------------------------------------- */

static void report(struct task *task) {
    const struct error *error = &task->job.error;
    if (error->status != ST_OK) {
        printf("%s %s\n", status_name(error->status), error->text);
    } else {
        puts("OK");
    }
    if (error->status == ST_OK && task->out) {
        FILE *file = fopen(task->out, "wb");
        stop_if(!file || fwrite(task->job.out, 1, task->n_out, file) != task->n_out ||
                    fclose(file) != 0,
                task->out);
    }
    free((char *)task->job.file.ptr);
    free(task->job.out);
    free(task->file);
    free(task->out);
}

static void report_held(const char *path) {
    const struct picture_part *(*entry)(void);
    void *library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    void *symbol = library ? dlsym(library, PICTURE_PART_ENTRY) : NULL;
    stop_if(!symbol, "the part is not loaded");
    memcpy(&entry, &symbol, sizeof(entry));
    for (int i = 0; entry()->held_bytes() > 0 && i < HELD_WAITS; i++) {
        usleep(10000); /* a thread of the library may not have ended yet */
    }
    printf("held %zu\n", entry()->held_bytes());
}

int main(int argc, char **argv) {
    struct error err = {0};
    struct pictures *pictures = NULL;
    stop_if(argc != 4, "expected PART THREADS MAX_PIXELS");
    struct pictures_options options = {.part = argv[1],
                                       .picture_threads = (unsigned)number_of(str_of(argv[2])),
                                       .max_queued = MAX_JOBS,
                                       .max_picture_pixels = number_of(str_of(argv[3]))};
    run.tasks = calloc(MAX_JOBS, sizeof(*run.tasks));
    stop_if(!run.tasks, "out of memory");
    stop_if(worker_new("main", &run.worker, &err) != ST_OK, err.text);
    stop_if(pictures_new(&options, &pictures, &err) != ST_OK, err.text);
    read_tasks();
    for (size_t i = 0; i < run.n_tasks; i++) {
        picture_submit(pictures, &run.tasks[i].job);
    }
    if (run.n_tasks > 0) {
        worker_run(run.worker);
    }
    for (size_t i = 0; i < run.n_tasks; i++) {
        report(&run.tasks[i]);
    }
    if (pictures_missing(pictures)) {
        printf("missing %s\n", pictures_missing(pictures));
    }
    bool loaded = !pictures_missing(pictures);
    pictures_free(pictures);
    if (loaded) {
        report_held(argv[1]);
    }
    worker_free(run.worker);
    free(run.tasks);
    return 0;
}
