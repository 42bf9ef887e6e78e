/* Messages of single fields, read by tables: what is said of a wrong one is then the same
 * everywhere. */
#include "codec/ext_proc/fields.h"

enum status ext_proc_bytes_field_decode(const struct pb_field *field, const char *name,
                                        struct str *out, struct error *err) {
    *out = field->bytes;
    if (field->type != PB_BYTES) {
        return error_set(err, ST_BAD_FIELD, "%s: expected bytes or a message, got a number", name);
    }
    return ST_OK;
}

static enum status decode_number(const struct pb_field *field, const char *name, uint32_t *out,
                                 struct error *err) {
    *out = field->value < UINT32_MAX ? (uint32_t)field->value : UINT32_MAX;
    if (field->type != PB_VARINT) {
        return error_set(err, ST_BAD_FIELD, "%s: expected a number or a bool, got another type",
                         name);
    }
    return ST_OK;
}

static enum status decode_field(const struct pb_field *field,
                                const struct ext_proc_field_rule *rule, void *dest,
                                struct error *err) {
    uint32_t number = 0;
    enum status status = ST_OK;
    switch (rule->type) {
    case EXT_PROC_T_BYTES:
        return ext_proc_bytes_field_decode(field, rule->name, dest, err);
    case EXT_PROC_T_TEXT:
        return pb_get_string(field, rule->name, dest, err);
    case EXT_PROC_T_BOOL:
        status = decode_number(field, rule->name, &number, err);
        *(bool *)dest = number != 0;
        break;
    case EXT_PROC_T_MODE:
        status = decode_number(field, rule->name, &number, err);
        *(enum ext_proc_body_mode *)dest =
            number < EXT_PROC_BODY_OTHER ? (enum ext_proc_body_mode)number : EXT_PROC_BODY_OTHER;
        break;
    case EXT_PROC_T_NUMBER:
        return decode_number(field, rule->name, dest, err);
    }
    return status;
}

enum status ext_proc_field_decode(const struct pb_field *field,
                                  const struct ext_proc_field_rule *rules, void *out,
                                  struct error *err) {
    const struct ext_proc_field_rule *rule = rules;
    while (rule->number != 0 && rule->number != field->number) {
        rule++;
    }
    return rule->number != 0 ? decode_field(field, rule, (char *)out + rule->offset, err) : ST_OK;
}

enum status ext_proc_fields_decode(struct str message, const char *what,
                                   const struct ext_proc_field_rule *rules, void *out,
                                   struct error *err) {
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    enum status status = ST_OK;
    while (status == ST_OK && pb_next(&reader, &field)) {
        status = ext_proc_field_decode(&field, rules, out, err);
    }
    return reader.error_text ? pb_reader_error(&reader, what, err) : status;
}
