/* Log settings, the same bytes as JSON and as protobuf: an error has a text and one of the
 * protocol's statuses, and no setting after the invalid one is applied. */
#include "codec/kserve/logging.h"
#include "codec/kserve/v2_fixture.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds) {
    if (!holds) {
        __builtin_trap();
    }
}

static void check_done(enum status st, const struct v2_log_settings *done,
                       const struct error *err) {
    check(!done->given[V2_LOG_FILE]); /* the file can't be changed */
    check(st == ST_OK || (err->status == st && err->text[0] != '\0'));
    check(st != ST_UNSUPPORTED || !done->given[V2_LOG_INFO]); /* the file is read first */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct arena *arena = arena_new(NULL, 0);
    struct str bytes = str_make((const char *)data, size);
    struct v2_log_settings done;
    struct error err = {0};
    enum status st = v2_log_decode(arena, bytes, &fixture_limits, &done, &err);
    check_done(st, &done, &err);
    struct error other = {0};
    st = v2_grpc_log_decode(bytes, &done, &other);
    check_done(st, &done, &other);
    check(st != ST_INTERNAL && st != ST_NOT_READY); /* used over HTTP only */
    arena_free(arena);
    return 0;
}
