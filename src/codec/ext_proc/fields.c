/* Messages of single fields, read by tables: what is said of a wrong one is then the same
 * everywhere. */
#include "codec/ext_proc/fields.h"

enum status ext_proc_take_bytes(const struct pb_field *field, const char *name, struct str *out,
                                struct error *err) {
    *out = field->bytes;
    if (field->type != PB_BYTES) {
        return error_set(err, ST_BAD_FIELD, "%s: expected bytes or a message, got a number", name);
    }
    return ST_OK;
}

static enum status take_number(const struct pb_field *field, const char *name, uint32_t *out,
                               struct error *err) {
    *out = field->value < UINT32_MAX ? (uint32_t)field->value : UINT32_MAX;
    if (field->type != PB_VARINT) {
        return error_set(err, ST_BAD_FIELD, "%s: expected a number or a bool, got another type",
                         name);
    }
    return ST_OK;
}

static enum status take(const struct pb_field *field, const struct ext_proc_slot *slot, void *place,
                        struct error *err) {
    uint32_t number = 0;
    enum status status = ST_OK;
    switch (slot->type) {
    case EXT_PROC_T_BYTES:
        return ext_proc_take_bytes(field, slot->name, place, err);
    case EXT_PROC_T_TEXT:
        return pb_take_string(field, slot->name, place, err);
    case EXT_PROC_T_BOOL:
        status = take_number(field, slot->name, &number, err);
        *(bool *)place = number != 0;
        break;
    case EXT_PROC_T_MODE:
        status = take_number(field, slot->name, &number, err);
        *(enum ext_proc_body_mode *)place =
            number < EXT_PROC_BODY_OTHER ? (enum ext_proc_body_mode)number : EXT_PROC_BODY_OTHER;
        break;
    case EXT_PROC_T_NUMBER:
        return take_number(field, slot->name, place, err);
    }
    return status;
}

enum status ext_proc_take(const struct pb_field *field, const struct ext_proc_slot *slots,
                          void *out, struct error *err) {
    const struct ext_proc_slot *slot = slots;
    while (slot->number != 0 && slot->number != field->number) {
        slot++;
    }
    return slot->number != 0 ? take(field, slot, (char *)out + slot->offset, err) : ST_OK;
}

enum status ext_proc_read(struct str message, const char *what, const struct ext_proc_slot *slots,
                          void *out, struct error *err) {
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    enum status status = ST_OK;
    while (status == ST_OK && pb_next(&reader, &field)) {
        status = ext_proc_take(&field, slots, out, err);
    }
    return reader.broken ? pb_broken(&reader, what, err) : status;
}
