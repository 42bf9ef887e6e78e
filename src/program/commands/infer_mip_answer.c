/* The items of a MIP answer. The type is the server's claim: the bytes are checked. */
#include "program/commands/infer_mip_answer.h"

#include <inttypes.h>
#include <stdio.h>

#include "core/base/json_writer.h"
#include "core/base/utf8.h"
#include "program/commands/infer_answer.h"
#include "program/requests/file.h"
#include "program/requests/json_text.h"

static struct str bytes_of(const sluice_mip_item *item) {
    return str_make(item->n_bytes > 0 ? item->data : "", item->n_bytes);
}

/* ---- lines ----------------------------------------------------------------------------------- */

static enum status print_item(struct json_writer *json, const sluice_mip_item *item,
                              struct error *err) {
    struct str bytes = bytes_of(item);
    enum status status;
    switch (item->type) {
    case SLUICE_MIP_TEXT:
        if (!utf8_is_valid(bytes.ptr, bytes.len)) {
            return error_set(err, ST_BAD_ANSWER, "it is text that is not UTF-8");
        }
        json_write_string(json, JSON_ELEMENT, bytes);
        return ST_OK;
    case SLUICE_MIP_JSON:
        status = json_line_check(json->out->arena, bytes, err);
        if (status == ST_OK) {
            json_line_print(json_write_begin(json, JSON_ELEMENT), bytes);
        }
        return status;
    case SLUICE_MIP_IMAGE:
        return error_set(err, ST_BAD_ANSWER, "it is a picture of %zu bytes", item->n_bytes);
    }
    return error_set(err, ST_BAD_ANSWER, "it is %zu bytes of the unknown type %u", item->n_bytes,
                     (unsigned)item->type);
}

static enum status print_element(struct buf *out, const struct client_mip_answer *answer,
                                 uint32_t element, struct error *err) {
    const sluice_mip_item *items = answer->items + (size_t)element * answer->n_outputs;
    struct json_writer json = {.out = out, .layout = JSON_SPACED};
    bool array = answer->n_outputs != 1;
    if (array) {
        json_write_open(&json, JSON_ELEMENT, '[');
    }
    for (uint32_t i = 0; i < answer->n_outputs; i++) {
        if (print_item(&json, &items[i], err) != ST_OK) {
            struct error why = *err;
            return error_set(err, ST_BAD_ANSWER,
                             "output %" PRIu32 " of element %" PRIu32
                             " can't be printed as JSON: %s; --format raw writes it as it is",
                             i, element, why.text);
        }
    }
    if (array) {
        json_write_close(&json, ']');
    }
    buf_add_char(out, '\n');
    return ST_OK;
}

enum status infer_items_print(struct buf *out, const struct client_mip_answer *answer,
                              struct error *err) {
    enum status status = ST_OK;
    for (uint32_t i = 0; i < answer->batch && status == ST_OK; i++) {
        status = print_element(out, answer, i, err);
    }
    return status;
}

/* ---- files ----------------------------------------------------------------------------------- */

const char *infer_item_suffix(const sluice_mip_item *item) {
    static const struct {
        size_t at;
        struct str magic;
        const char *suffix;
    } kinds[] = {
        {0, {"\xff\xd8\xff", 3}, "jpg"},
        {0, {"\x89PNG\r\n\x1a\n", 8}, "png"},
        {8, {"WEBP", 4}, "webp"},
        {0, {"GIF8", 4}, "gif"},
    };
    struct str bytes = bytes_of(item);
    if (item->type == SLUICE_MIP_TEXT || item->type == SLUICE_MIP_JSON) {
        return item->type == SLUICE_MIP_TEXT ? "txt" : "json";
    }
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        if (bytes.len >= kinds[i].at &&
            str_starts_with(str_make(bytes.ptr + kinds[i].at, bytes.len - kinds[i].at),
                            kinds[i].magic)) {
            return kinds[i].suffix;
        }
    }
    return "bin";
}

static enum status save_to_dir(struct arena *arena, const char *dir,
                               const struct client_mip_answer *answer, struct error *err) {
    enum status status = infer_output_dir_create(dir, err);
    size_t n = (size_t)answer->batch * answer->n_outputs;
    for (size_t i = 0; i < n && status == ST_OK; i++) {
        const sluice_mip_item *item = &answer->items[i];
        struct str bytes = bytes_of(item);
        const char *path = arena_printf(arena, "%s/%zu-%zu.%s", dir, i / answer->n_outputs,
                                        i % answer->n_outputs, infer_item_suffix(item))
                               .ptr;
        status = file_write(path, &bytes, 1, err);
        if (status == ST_OK) {
            fprintf(stderr, "%s\n", path);
        }
    }
    return status;
}

enum status infer_items_save(struct arena *arena, const struct infer_settings *settings,
                             const struct client_mip_answer *answer, struct error *err) {
    if (settings->output_dir) {
        return save_to_dir(arena, settings->output_dir, answer, err);
    }
    size_t n = (size_t)answer->batch * answer->n_outputs;
    if (n != 1) {
        return error_set(err, ST_BAD_CONFIG,
                         "the answer has %zu items (%" PRIu32 " of %" PRIu32
                         " outputs), and one file holds one: write them with --output-dir DIR",
                         n, answer->batch, answer->n_outputs);
    }
    struct str bytes = bytes_of(answer->items);
    return file_write(settings->output_file, &bytes, 1, err);
}
