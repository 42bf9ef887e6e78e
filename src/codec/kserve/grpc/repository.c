/* Repository requests over gRPC. Of equal parameters the last counts, as in every protobuf map. */
#include "codec/kserve/repository.h"
#include "codec/kserve/grpc/fields.h"

/* RepositoryIndexRequest has `ready` where the others have the model's name. */
enum { REPOSITORY = 1, READY = 2, MODEL = 2, PARAMETERS = 3 };
/* ModelRepositoryParameter */
enum { BOOL = 1, INT64 = 2, STRING = 3, BYTES = 4 };

static enum status reject_repository_name(const struct pb_field *field, struct error *err) {
    struct str name = {NULL, 0};
    enum status st = pb_get_string(field, "repository_name", &name, err);
    return st == ST_OK && name.len > 0
               ? error_set(err, ST_UNSUPPORTED, "repository_name: naming one is not supported")
               : st;
}

enum status v2_grpc_repository_index_decode(struct str message, struct v2_repository_request *out,
                                            struct error *err) {
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    enum status st = ST_OK;
    *out = (struct v2_repository_request){.ready = false};
    while (st == ST_OK && pb_next(&reader, &field)) {
        if (field.number == REPOSITORY) {
            st = reject_repository_name(&field, err);
        } else if (field.number == READY && field.type == PB_VARINT) {
            out->ready = field.value != 0;
        }
    }
    return st == ST_OK && reader.error_text
               ? pb_reader_error(&reader, "RepositoryIndexRequest", err)
               : st;
}

/* ---- parameters ------------------------------------------------------------------------------ */

struct entry {
    struct str key;
    uint32_t kind;    /* BOOL to BYTES; 0: none */
    struct str bytes; /* of STRING and BYTES */
};

static enum status read_value(struct str message, struct entry *out, struct error *err) {
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    while (pb_next(&reader, &field)) {
        bool of_bytes = field.number == STRING || field.number == BYTES;
        if (field.number >= BOOL && field.number <= BYTES) {
            if (field.type != (of_bytes ? PB_BYTES : PB_VARINT)) {
                return error_set(err, ST_BAD_FIELD, "parameters: \"%.*s\" has a wrong type",
                                 STR_ARG(out->key));
            }
            out->kind = field.number;
            out->bytes = field.bytes;
        }
    }
    return reader.error_text ? pb_reader_error(&reader, "ModelRepositoryParameter", err) : ST_OK;
}

static enum status read_entry(const struct pb_field *whole, struct entry *out, struct error *err) {
    struct str value;
    *out = (struct entry){.key = STR("")};
    enum status st = v2_grpc_get_map_entry(whole, "parameters", &out->key, &value, err);
    return st == ST_OK ? read_value(value, out, err) : st;
}

static enum status wrong_kind(const struct entry *entry, const char *expected, struct error *err) {
    return error_set(err, ST_BAD_FIELD, "parameters: expected %s for \"%.*s\"", expected,
                     STR_ARG(entry->key));
}

/* ---- load and unload ------------------------------------------------------------------------- */

enum { MAX_FILES = 256 };

/* What one of the parameters says. `files` has room for one more than FILES_MOST. */
typedef enum status entry_handler(const struct entry *entry, struct v2_repository_file *files,
                                  struct v2_repository_request *out, struct error *err);

/* RepositoryModelLoadRequest and RepositoryModelUnloadRequest. */
static enum status decode_model_request(struct str message, const char *what,
                                        entry_handler *handle_entry,
                                        struct v2_repository_file *files,
                                        struct v2_repository_request *out, struct error *err) {
    struct pb_reader reader = pb_read(message);
    struct pb_field field;
    struct entry entry;
    enum status st = ST_OK;
    *out = (struct v2_repository_request){.model = STR(""), .files = files};
    while (st == ST_OK && pb_next(&reader, &field)) {
        if (field.number == REPOSITORY) {
            st = reject_repository_name(&field, err);
        } else if (field.number == MODEL) {
            st = pb_get_string(&field, "model_name", &out->model, err);
        } else if (field.number == PARAMETERS) {
            st = read_entry(&field, &entry, err);
            st = st == ST_OK ? handle_entry(&entry, files, out, err) : st;
        }
    }
    return st == ST_OK && reader.error_text ? pb_reader_error(&reader, what, err) : st;
}

/* Of a repeated file the last counts. */
static void add_file(struct v2_repository_file *files, size_t *n, const struct entry *entry) {
    struct str path = str_make(entry->key.ptr + 5, entry->key.len - 5);
    size_t i = 0;
    while (i < *n && !str_eq(files[i].path, path)) {
        i++;
    }
    files[i] = (struct v2_repository_file){path, entry->bytes};
    *n += i == *n;
}

static enum status handle_load_entry(const struct entry *entry, struct v2_repository_file *files,
                                     struct v2_repository_request *out, struct error *err) {
    if (str_is(entry->key, "config")) {
        out->config = entry->bytes;
        return entry->kind == STRING ? ST_OK : wrong_kind(entry, "string_param", err);
    }
    if (!str_starts_with(entry->key, STR("file:"))) {
        return error_set(err, ST_BAD_FIELD,
                         "parameters: expected config and file:VERSION/NAME, got \"%.*s\"",
                         STR_ARG(entry->key));
    }
    if (entry->kind != BYTES) {
        return wrong_kind(entry, "bytes_param", err);
    }
    add_file(files, &out->n_files, entry);
    return out->n_files <= MAX_FILES
               ? ST_OK
               : error_set(err, ST_BAD_FIELD, "parameters: more than %d files", MAX_FILES);
}

static enum status handle_unload_entry(const struct entry *entry, struct v2_repository_file *files,
                                       struct v2_repository_request *out, struct error *err) {
    (void)files, (void)out;
    bool wrong = str_is(entry->key, "unload_dependents") && entry->kind != BOOL;
    return wrong ? wrong_kind(entry, "bool_param", err) : ST_OK;
}

enum status v2_grpc_repository_load_decode(struct arena *arena, struct str message,
                                           struct v2_repository_request *out, struct error *err) {
    struct v2_repository_file *files = arena_calloc(arena, MAX_FILES + 1, sizeof(*files));
    return files ? decode_model_request(message, "RepositoryModelLoadRequest", handle_load_entry,
                                        files, out, err)
                 : error_set(err, ST_NO_MEMORY, "no memory for the parameters");
}

enum status v2_grpc_repository_unload_decode(struct str message, struct v2_repository_request *out,
                                             struct error *err) {
    return decode_model_request(message, "RepositoryModelUnloadRequest", handle_unload_entry, NULL,
                                out, err);
}
