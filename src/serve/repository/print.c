/* What each model resolved to, as a block of text that a person reads: `sluice serve --check`. */
#include <inttypes.h>

#include "serve/repository/internal.h"

static void print_tensors(const char *label, const struct tensor_spec *specs, size_t n,
                          const struct model_config_tensor *tensors,
                          const struct plan_tensor *plans, struct buf *out) {
    for (size_t i = 0; i < n; i++) {
        char shape[SHAPE_TEXT_BYTES];
        buf_printf(out, "  %-10s %.*s  %s  %s", i == 0 ? label : "", STR_ARG(specs[i].name),
                   datatype_name(specs[i].datatype), shape_print(specs[i].shape, shape));
        if (plans[i].reshaped) {
            buf_printf(out, ", the model sees %s", shape_print(plans[i].reshape, shape));
        }
        if (specs[i].optional) {
            buf_printf(out, ", optional");
        }
        if (tensors[i].label_filename.len > 0) {
            buf_printf(out, ", labels in %.*s", STR_ARG(tensors[i].label_filename));
        }
        buf_add_char(out, '\n');
    }
}

static const char *run_on_text(const struct model_version *version) {
    switch (version->run_on) {
    case RUN_ON_WORKER:
        return "on the thread that read the request";
    case RUN_ON_INSTANCE:
        return "on threads of their own";
    case RUN_AUTO:
        break;
    }
    return "on threads of their own, or where the request was read once measured to be quick";
}

static void print_instances(const struct model_version *version, struct buf *out) {
    buf_printf(out, "  instances  %zu with %" PRIu32 " thread%s each%s, %s\n", version->n_instances,
               version->n_threads, version->n_threads == 1 ? "" : "s",
               version->may_spin ? " that may spin" : "", run_on_text(version));
}

static void print_batching(const struct model_config *config, struct buf *out) {
    if (config->max_batch_size == 0) {
        buf_printf(out, "  batching   no: %s\n", config->batch_reason);
        return;
    }
    buf_printf(out, "  batching   up to %" PRIu64 " in the first dimension: %s\n",
               config->max_batch_size, config->batch_reason);
    for (size_t i = 0; i < config->n_preferred; i++) {
        buf_printf(out, "%s%" PRIu64 "%s", i == 0 ? "  preferred  batches of " : ", ",
                   config->preferred_batch_sizes[i], i + 1 == config->n_preferred ? "\n" : "");
    }
    if (config->max_queue_delay_us > 0) {
        buf_printf(out, "  delay      up to %" PRIu64 " us, for company\n",
                   config->max_queue_delay_us);
    }
}

static void print_queue(const struct model_config *config, struct buf *out) {
    if (config->priority_levels > 0) {
        buf_printf(out, "  priorities %" PRIu64 ", by default %" PRIu64 "\n",
                   config->priority_levels, config->default_priority);
    }
    if (config->queue.max_size > 0) {
        buf_printf(out, "  queue      up to %" PRIu64 " requests wait%s\n", config->queue.max_size,
                   config->priority_levels > 1 ? " at each priority without a limit of its own"
                                               : "");
    }
    if (config->queue.timeout_us > 0) {
        buf_printf(out, "  timeout    %" PRIu64 " us in the queue, then %s\n",
                   config->queue.timeout_us,
                   config->queue.delay_on_timeout ? "behind the others" : "refused");
    }
    if (config->preserve_ordering) {
        buf_printf(out, "  order      answers leave in the order of their requests\n");
    }
    if (config->response_cache) {
        buf_printf(out, "  cache      the same request may get the same answer again, where the "
                        "server has a cache\n");
    }
    if (config->n_warmups > 0) {
        buf_printf(out, "  warm-up    %zu sample%s on each instance\n", config->n_warmups,
                   config->n_warmups == 1 ? "" : "s");
    }
}

static const char *control_text(enum model_control_kind kind) {
    switch (kind) {
    case CONTROL_START:
        return "whether a request begins its sequence";
    case CONTROL_READY:
        return "whether there is a request";
    case CONTROL_END:
        return "whether a request ends its sequence";
    case CONTROL_CORRID:
        break;
    }
    return "the sequence's identifier";
}

static void print_sequences(const struct model_version *version, struct buf *out) {
    const struct model_sequences *config = &version->config.sequences;
    if (config->strategy == SEQUENCES_NONE) {
        return;
    }
    buf_printf(out,
               "  sequences  %s: %zu at once at each instance, over after %" PRIu64 " us of rest\n",
               config->strategy == SEQUENCES_DIRECT ? "direct" : "oldest",
               version->scheduler.sequences->slots_per_instance, config->idle_us);
    for (size_t i = 0; i < config->n_controls; i++) {
        const struct model_control *control = &config->controls[i];
        buf_printf(out, "  %-10s %.*s  %s, %s\n", i == 0 ? "controls" : "", STR_ARG(control->name),
                   datatype_name(control->datatype), control_text(control->kind));
    }
}

static void print_version(const struct model_version *version, struct buf *out) {
    const struct model_spec *spec = &version->plan.spec;
    const struct model_config *config = &version->config;
    buf_printf(out, "  version    %.*s: %.*s\n", STR_ARG(spec->version_text),
               STR_ARG(version->path));
    buf_printf(out, "  platform   %.*s (backend %s)\n", STR_ARG(spec->platform),
               version->backend->name);
    print_tensors("inputs", spec->inputs, spec->n_inputs, config->inputs, version->plan.inputs,
                  out);
    print_tensors("outputs", spec->outputs, spec->n_outputs, config->outputs, version->plan.outputs,
                  out);
    print_batching(config, out);
    print_queue(config, out);
    print_sequences(version, out);
    if (config->decoupled) {
        buf_printf(out, "  answers    any number to a request (decoupled)\n");
    }
    print_instances(version, out);
}

/* What it came to: the only try there was, as nothing else happens meanwhile. */
static void print_model(const struct model_slot *model_slot, struct buf *out) {
    const struct model *model = model_slot->serving    ? model_slot->serving
                                : model_slot->inactive ? model_slot->inactive
                                                       : model_slot->loading;
    const struct ready_list *ready = model_slot->serving ? model_slot->serving->ready : NULL;
    char served[SERVED_TEXT_BYTES];
    buf_printf(out, "%.*s  %s  %.*s%s\n", STR_ARG(model_slot->name),
               ready                  ? "ready"
               : model_slot->inactive ? "FAILED"
               : model                ? "loading"
                                      : "not loaded",
               STR_ARG(model_slot->origin.path),
               model && model->has_config ? " with config.pbtxt" : "");
    if (ready && ready->n > 1) {
        buf_printf(out, "  versions   %s\n", ready_list_print(ready, served));
    }
    for (size_t i = 0; ready && i < ready->n; i++) {
        print_version(ready->versions[i], out);
    }
    if (model && model->error.status != ST_OK && !model_slot->loading) {
        buf_printf(out, "  error      %s\n", model->error.text);
    }
}

void repository_print(struct repository *repository, struct buf *out) {
    const struct name_table *name_table = repository_name_table(repository);
    lock_acquire(&repository->lock);
    for (size_t i = 0; i < name_table->n; i++) {
        if (i > 0) {
            buf_add_char(out, '\n');
        }
        print_model(name_table->model_slots[i], out);
    }
    lock_release(&repository->lock);
    if (name_table->n == 0) {
        buf_printf(out, "no models\n");
    }
}
