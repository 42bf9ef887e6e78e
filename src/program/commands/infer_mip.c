/* `sluice infer` over MIP, through the public client. */
#include "program/commands/infer.h"

#include "codec/mip/packet.h"
#include "program/commands/dry_run.h"
#include "program/commands/infer_mip_answer.h"
#include "program/requests/file.h"
#include "program/requests/infer_mip_items.h"
#include "program/requests/shell.h"

/* ---- a dry run ------------------------------------------------------------------------------- */

/* The parts of the packet: head and counts, then each item's head and bytes. */
static enum status make_parts(struct arena *arena, const struct infer_items *items,
                              struct packet_part **parts, size_t *n, struct error *err) {
    struct mip_infer infer = {.n_inputs = (uint8_t)items->n_inputs,
                              .batch = (uint16_t)items->batch,
                              .items = arena_calloc(arena, items->n, sizeof(*infer.items)),
                              .n_items = items->n};
    char *heads = arena_calloc(arena, items->n + 2, MIP_ITEM_HEAD_BYTES);
    struct packet_part *part = *parts = arena_calloc(arena, 2 * items->n + 1, sizeof(*part));
    uint32_t n_bytes;
    for (size_t i = 0; i < items->n; i++) {
        const sluice_mip_item *item = &items->items[i];
        infer.items[i] = (struct mip_item){item->type, str_make(item->data, item->n_bytes)};
    }
    enum status status = mip_infer_size(&infer, false, &n_bytes, err);
    if (status != ST_OK) {
        return status;
    }
    mip_infer_head_encode(&infer, false, n_bytes, heads);
    *part++ = (struct packet_part){str_make(heads, MIP_HEADER_BYTES + MIP_COUNTS_BYTES), NULL};
    for (size_t i = 0; i < items->n; i++) {
        char *head = heads + (i + 2) * MIP_ITEM_HEAD_BYTES;
        mip_item_head_encode(&infer.items[i], head);
        *part++ = (struct packet_part){str_make(head, MIP_ITEM_HEAD_BYTES), NULL};
        *part++ = (struct packet_part){infer.items[i].data, items->files[i]};
    }
    *n = 2 * items->n + 1;
    return ST_OK;
}

static enum status dry_run(struct arena *arena, const struct infer_settings *settings,
                           const struct infer_items *items, struct error *err) {
    struct packet_part *parts;
    struct buf packet, out;
    size_t n = 0;
    enum status status = make_parts(arena, items, &parts, &n, err);
    if (status != ST_OK) {
        return status;
    }
    buf_init(&packet, arena, 0);
    buf_init(&out, arena, 0);
    for (size_t i = 0; i < n; i++) {
        buf_add_str(&packet, parts[i].bytes);
    }
    struct str text = buf_str(&packet);
    if (settings->output_file) {
        status = file_write(settings->output_file, &text, 1, err);
    }
    hexdump_print(&out, text, 0);
    buf_add_char(&out, '\n');
    if (!settings->output_file && packet_command_inline_bytes(parts, n) > SHELL_MAX_INLINE) {
        buf_add_str(&out, STR("The packet is too long for a command line: with -o FILE it is "
                              "written to a file, and the command that sends it is shown.\n"));
    } else {
        packet_command_print(&out, &settings->server, parts, n, settings->output_file);
    }
    text = buf_str(&out);
    return status == ST_OK ? file_write("-", &text, 1, err) : status;
}

/* ---- the call -------------------------------------------------------------------------------- */

/* The meaning of a MIP error for the user. (MIP, "Errors") */
static const char *error_meaning(int32_t mip_error) {
    static const char *const meanings[MIP_ERRORS] = {
        [MIP_ERROR_PROTOCOL] = "it does not speak this version of MIP",
        [MIP_ERROR_SUBTYPE] = "it did not take the packet for a request",
        [MIP_ERROR_METHOD] = "it does not serve inferences",
        [MIP_ERROR_MEMORY] = "the request, or what it would need, is over the server's limits or "
                             "its memory (sluice serve: --max-body-size and others)",
        [MIP_ERROR_SHAPE] = "the items do not fit the model: their number for each element of the "
                            "batch (--inputs), or their shape; the server's log has the reason",
        [MIP_ERROR_INTERNAL] = "an item could not be converted to the model's input, or the model "
                               "failed; the server's log has the reason",
    };
    return meanings[mip_error];
}

static enum status error_from_client(const sluice_client_error *error, struct error *err) {
    if (error->status == SLUICE_CLIENT_SERVER_ERROR && error->mip_error >= 0 &&
        error->mip_error < MIP_ERRORS) {
        return error_set(err, ST_REFUSED, "the server answered with the error %s: %s",
                         mip_error_name((unsigned)error->mip_error),
                         error_meaning(error->mip_error));
    }
    return error_set(err,
                     error->status == SLUICE_CLIENT_INVALID ||
                             error->status == SLUICE_CLIENT_UNSUPPORTED
                         ? ST_BAD_CONFIG
                         : ST_IO,
                     "%s", error->text);
}

/* The items of a call that is done. */
static enum status read_answer(struct arena *arena, const sluice_call *call,
                               struct client_mip_answer *out, struct error *err) {
    sluice_mip_answer info = {.size = sizeof(info)};
    if (sluice_call_mip_answer(call, &info) != SLUICE_CLIENT_OK) {
        return error_set(err, ST_INTERNAL, "the call has no answer");
    }
    size_t n = (size_t)info.batch * info.n_outputs;
    sluice_mip_item *items = arena_calloc(arena, n, sizeof(*items));
    for (size_t i = 0; i < n; i++) {
        items[i].size = sizeof(*items);
        (void)sluice_call_mip_item(call, i, &items[i]);
    }
    *out = (struct client_mip_answer){items, info.n_inputs, info.n_outputs, info.batch};
    return ST_OK;
}

static enum status write_answer(struct arena *arena, const struct infer_settings *settings,
                                const sluice_call *call, struct error *err) {
    struct client_mip_answer made, *answer = &made;
    enum status read = read_answer(arena, call, &made, err);
    if (read != ST_OK) {
        return read;
    }
    if (settings->format == INFER_FORMAT_RAW) {
        return infer_items_save(arena, settings, answer, err);
    }
    struct buf out;
    buf_init(&out, arena, 0);
    enum status status = infer_items_print(&out, answer, err);
    struct str text = buf_str(&out);
    const char *path = settings->output_file ? settings->output_file : "-";
    return status == ST_OK ? file_write(path, &text, 1, err) : status;
}

static enum status send_request(struct arena *arena, const struct infer_settings *settings,
                                const struct infer_items *items, struct error *err) {
    sluice_client_options options = {.size = sizeof(options),
                                     .url = settings->url,
                                     .timeout_ns = settings->timeout_ns,
                                     .max_answer_bytes = settings->max_answer_size};
    sluice_mip_request request = {.size = sizeof(request),
                                  .items = items->items,
                                  .n_inputs = items->n_inputs,
                                  .batch = items->batch};
    sluice_client_error error = {.size = sizeof(error)};
    sluice_client *client;
    sluice_call *call = NULL;
    sluice_client_status status = sluice_client_open(&options, &client, &error);
    if (status == SLUICE_CLIENT_OK) {
        status = sluice_client_mip_infer(client, &request, NULL, &call, &error);
    }
    enum status given = status == SLUICE_CLIENT_OK ? write_answer(arena, settings, call, err)
                                                   : error_from_client(&error, err);
    sluice_call_free(call);
    sluice_client_close(client);
    return given;
}

enum status infer_mip(struct arena *arena, const struct infer_settings *settings,
                      struct error *err) {
    struct infer_items items;
    enum status status = infer_items_read(arena, settings, &items, err);
    if (status != ST_OK) {
        return status;
    }
    return (settings->dry_run ? dry_run : send_request)(arena, settings, &items, err);
}
