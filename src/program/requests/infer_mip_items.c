/* MIP items from arguments, files and standard input. Items that every server would reject are
 * rejected here, where the message can name the source. */
#include "program/requests/infer_mip_items.h"

#include <inttypes.h>
#include <string.h>

#include "codec/mip/packet.h"
#include "core/base/utf8.h"
#include "program/requests/file.h"
#include "program/requests/infer_source.h"
#include "program/requests/json_text.h"

enum { N_KINDS = 3 };

/* The flags that name items. */
struct item_kind {
    sluice_mip_type type;
    const char *flag;
    const struct option_texts *texts;
    size_t next; /* index of the next unused text */
};

enum status infer_items_check_count(size_t n_items, uint64_t n_inputs, struct error *err) {
    if (n_items % n_inputs == 0) {
        return ST_OK;
    }
    return error_set(err, ST_BAD_CONFIG,
                     "%zu item%s no whole number of elements of %" PRIu64 " inputs (--inputs)",
                     n_items, n_items == 1 ? " is" : "s are", n_inputs);
}

static enum status check_item(struct arena *arena, sluice_mip_type type, struct str data,
                              struct error *err) {
    switch (type) {
    case SLUICE_MIP_TEXT: {
        size_t good = utf8_valid_prefix(data.ptr, data.len);
        return good == data.len ? ST_OK
                                : error_set(err, ST_BAD_CONFIG, "it is not UTF-8 (byte %zu of %zu)",
                                            good, data.len);
    }
    case SLUICE_MIP_JSON:
        return json_line_check(arena, data, err);
    case SLUICE_MIP_IMAGE:
        break;
    }
    return data.len > 0 ? ST_OK : error_set(err, ST_BAD_CONFIG, "it is empty");
}

static enum status read_item(struct arena *arena, const struct item_kind *kind, const char *value,
                             uint64_t max_bytes, sluice_mip_item *item, const char **file,
                             struct error *err) {
    struct str data = str_of(value);
    const char *path = infer_source_path(value);
    if (!path && kind->type == SLUICE_MIP_IMAGE) {
        path = value; /* always the name of a file; a leading '@' is ignored, as for the others */
    }
    if (path && *path == '\0') {
        return error_set(err, ST_BAD_CONFIG, "--%s: the name of a file is missing", kind->flag);
    }
    enum status status = path ? file_read(arena, path, max_bytes, &data, err) : ST_OK;
    if (status != ST_OK) {
        return error_prefix(err, "--%s", kind->flag);
    }
    if (check_item(arena, kind->type, data, err) != ST_OK) {
        return error_prefix(err, "--%s %.60s", kind->flag, path ? file_name(path) : value);
    }
    *item = (sluice_mip_item){
        .size = sizeof(*item), .type = kind->type, .data = data.ptr, .n_bytes = data.len};
    *file = path && strcmp(path, "-") != 0 ? path : NULL;
    return ST_OK;
}

/* The flag whose next value was given first. Returns: its kind. */
static struct item_kind *next_kind(struct item_kind kinds[N_KINDS]) {
    struct item_kind *first = NULL;
    for (size_t i = 0; i < N_KINDS; i++) {
        struct item_kind *kind = &kinds[i];
        if (kind->next < kind->texts->n &&
            (!first || kind->texts->order[kind->next] < first->texts->order[first->next])) {
            first = kind;
        }
    }
    return first;
}

enum status infer_items_collect(struct arena *arena, const struct infer_item_flags *flags,
                                struct infer_items *out, struct error *err) {
    struct item_kind kinds[N_KINDS] = {{SLUICE_MIP_IMAGE, "image", flags->images, 0},
                                       {SLUICE_MIP_TEXT, "text", flags->texts, 0},
                                       {SLUICE_MIP_JSON, flags->json_flag, flags->jsons, 0}};
    struct item_kind *kind;
    size_t n = flags->images->n + flags->texts->n + flags->jsons->n;
    if (n / flags->n_inputs > MIP_MAX_BATCH) {
        return error_set(err, ST_BAD_CONFIG, "a request has at most %d elements, these are %zu",
                         MIP_MAX_BATCH, n / (size_t)flags->n_inputs);
    }
    *out = (struct infer_items){.n_inputs = (uint32_t)flags->n_inputs,
                                .batch = (uint32_t)(n / flags->n_inputs)};
    out->items = arena_calloc(arena, n, sizeof(*out->items));
    out->files = arena_calloc(arena, n, sizeof(*out->files));
    enum status status = ST_OK;
    while (status == ST_OK && (kind = next_kind(kinds))) {
        status = read_item(arena, kind, kind->texts->items[kind->next++], flags->max_input_size,
                           &out->items[out->n], &out->files[out->n], err);
        out->n++;
    }
    return status;
}

enum status infer_items_read(struct arena *arena, const struct infer_settings *settings,
                             struct infer_items *out, struct error *err) {
    struct infer_item_flags flags = {.images = &settings->images,
                                     .texts = &settings->texts,
                                     .jsons = &settings->jsons,
                                     .json_flag = "json",
                                     .n_inputs = settings->n_inputs,
                                     .max_input_size = settings->max_input_size};
    return infer_items_collect(arena, &flags, out, err);
}
