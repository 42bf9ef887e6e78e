/* The scan of frame heads, compared with nghttp2's own state at every split of the input. Side A is
 * what the server does: the scan before a session that forgets closed streams. Side B is a session
 * that remembers them. Both respond alike, so they must process the same frames, have the same open
 * and half-closed streams, and fail at the same frame with the same code. */
#include <glob.h>
#include <nghttp2/nghttp2.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "net/transport/h2_preface.h"
#include "net/transport/h2_scan.h"

enum {
    MOST_BYTES = 64000,
    MOST_EVENTS = 8192,
    MOST_FRAMES = 4096,
    MOST_IDS = 4096,
    MAX_STREAMS = 1024, /* so many closed streams are remembered by side B */
};

/* ---- one side -------------------------------------------------------------------------------- */

/* How the server answers a stream, chosen by its id. */
enum answer {
    ANSWER_AT_END,  /* at END_STREAM */
    ANSWER_AT_HEAD, /* before the client's end; then RST_STREAM with NO_ERROR, as the server does */
    ANSWER_NEVER,
    ANSWER_RESET,   /* RST_STREAM after the head */
    ANSWER_REFUSED, /* RST_STREAM before the head was read */
    ANSWER_FAILED,  /* nghttp2 resets it, because a callback failed */
    ANSWER_GOAWAY,  /* GOAWAY after the head: nghttp2 ignores newer streams */
    N_ANSWERS,
};

struct event {
    char kind; /* begin, head, frame, invalid, closed, sent */
    uint8_t type;
    int32_t id;
};

struct side {
    nghttp2_session *h2;
    bool scans;
    struct h2_scan scan;
    size_t n_scanned; /* bytes before the frame that the scan refused */
    unsigned shift;   /* of the answers, by id */
    bool failed;      /* GOAWAY with an error was sent */
    bool refused;     /* by the scan */
    uint32_t code;    /* of the GOAWAY */
    int32_t last;     /* the stream id in it */
    bool opened[MOST_IDS], reset[MOST_IDS], ended[MOST_IDS];
    struct event events[MOST_EVENTS];
    size_t n_events;
};

/* Ids that only the corpus has share slot 0, which is never opened. */
static size_t slot_of(int32_t id) {
    return id > 0 && id < MOST_IDS ? (size_t)id : 0;
}

static void note(struct side *side, char kind, const nghttp2_frame_hd *hd) {
    assert_in_range(side->n_events, 0, MOST_EVENTS - 1);
    side->events[side->n_events++] = (struct event){kind, hd->type, hd->stream_id};
}

static enum answer answer_of(const struct side *side, int32_t id) {
    return (enum answer)(((unsigned)id / 2 + side->shift) % N_ANSWERS);
}

static void reset(struct side *side, int32_t id, uint32_t code) {
    side->reset[slot_of(id)] = true;
    assert_int_equal(nghttp2_submit_rst_stream(side->h2, 0, id, code), 0);
}

static void answer(struct side *side, int32_t id) {
    static const nghttp2_nv STATUS = {(uint8_t *)":status", (uint8_t *)"200", 7, 3, 0};
    assert_int_equal(nghttp2_submit_response(side->h2, id, &STATUS, 1, NULL), 0);
}

static int on_begin_frame(nghttp2_session *h2, const nghttp2_frame_hd *hd, void *user) {
    (void)h2;
    note(user, 'b', hd);
    return 0;
}

static int on_begin_headers(nghttp2_session *h2, const nghttp2_frame *frame, void *user) {
    struct side *side = user;
    int32_t id = frame->hd.stream_id;
    (void)h2;
    note(side, 'h', &frame->hd);
    if (frame->headers.cat != NGHTTP2_HCAT_REQUEST) {
        return 0;
    }
    side->opened[slot_of(id)] = true;
    if (answer_of(side, id) == ANSWER_REFUSED) {
        reset(side, id, NGHTTP2_REFUSED_STREAM);
    }
    if (answer_of(side, id) == ANSWER_FAILED) {
        side->reset[slot_of(id)] = true;
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    return 0;
}

static int on_frame(nghttp2_session *h2, const nghttp2_frame *frame, void *user) {
    struct side *side = user;
    int32_t id = frame->hd.stream_id;
    enum answer how = answer_of(side, id);
    if (frame->hd.type != NGHTTP2_PRIORITY) { /* on a closed stream only side B reports it */
        note(side, 'f', &frame->hd);
    }
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA) {
        return 0;
    }
    side->ended[slot_of(id)] = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
    bool is_head = frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST;
    if (is_head && how == ANSWER_RESET) {
        reset(side, id, NGHTTP2_INTERNAL_ERROR);
    } else if (is_head && how == ANSWER_GOAWAY) {
        nghttp2_submit_goaway(h2, 0, nghttp2_session_get_last_proc_stream_id(h2), NGHTTP2_NO_ERROR,
                              NULL, 0);
    }
    if (how == ANSWER_AT_HEAD ? is_head : how == ANSWER_AT_END && side->ended[slot_of(id)]) {
        answer(side, id);
    }
    return 0;
}

/* nghttp2 resets the stream. */
static int on_invalid(nghttp2_session *h2, const nghttp2_frame *frame, int code, void *user) {
    struct side *side = user;
    (void)h2, (void)code;
    note(side, 'i', &frame->hd);
    side->reset[slot_of(frame->hd.stream_id)] = true;
    return 0;
}

static int on_close(nghttp2_session *h2, int32_t id, uint32_t code, void *user) {
    struct side *side = user;
    (void)h2;
    note(side, 'c', &(nghttp2_frame_hd){.stream_id = id});
    side->reset[slot_of(id)] |= code == NGHTTP2_REFUSED_STREAM; /* newer than the one in GOAWAY */
    return 0;
}

static int on_sent(nghttp2_session *h2, const nghttp2_frame *frame, void *user) {
    struct side *side = user;
    int32_t id = frame->hd.stream_id;
    (void)h2;
    if (frame->hd.type == NGHTTP2_GOAWAY && frame->goaway.error_code != NGHTTP2_NO_ERROR) {
        side->failed = true;
        side->code = frame->goaway.error_code;
        side->last = frame->goaway.last_stream_id;
        return 0;
    }
    note(side, 's', &frame->hd);
    if (frame->hd.type == NGHTTP2_RST_STREAM) {
        side->reset[slot_of(id)] = true;
    } else if (frame->hd.type == NGHTTP2_HEADERS && !side->ended[slot_of(id)]) {
        reset(side, id, NGHTTP2_NO_ERROR);
    }
    return 0;
}

static void side_open(struct side *side, bool scans, unsigned shift) {
    const nghttp2_settings_entry setting = {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, MAX_STREAMS};
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *option;
    memset(side, 0, sizeof(*side));
    side->scans = scans;
    side->shift = shift;
    assert_int_equal(nghttp2_session_callbacks_new(&callbacks), 0);
    nghttp2_session_callbacks_set_on_begin_frame_callback(callbacks, on_begin_frame);
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(callbacks, on_invalid);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_sent);
    assert_int_equal(nghttp2_option_new(&option), 0);
    nghttp2_option_set_no_closed_streams(option, scans);
    assert_int_equal(nghttp2_session_server_new2(&side->h2, callbacks, side, option), 0);
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    assert_int_equal(nghttp2_submit_settings(side->h2, 0, &setting, 1), 0);
    ssize_t n = nghttp2_session_mem_recv(side->h2, (const uint8_t *)NGHTTP2_CLIENT_MAGIC,
                                         NGHTTP2_CLIENT_MAGIC_LEN);
    assert_int_equal(n, NGHTTP2_CLIENT_MAGIC_LEN);
}

/* Receives the bytes and sends all output, as an event-loop iteration does. */
static void side_feed(struct side *side, struct str data) {
    size_t n_good = side->scans ? h2_scan_add(&side->scan, data) : data.len;
    side->n_scanned += n_good;
    ssize_t n = nghttp2_session_mem_recv(side->h2, (const uint8_t *)data.ptr, n_good);
    if (n < 0) { /* too many CONTINUATION frames; nghttp2 counts them by reads of their heads */
        side->failed = true;
        side->code = (uint32_t)-n;
        return;
    }
    assert_int_equal(n, n_good);
    if (n_good < data.len) {
        side->refused = true;
        nghttp2_session_terminate_session(side->h2, NGHTTP2_STREAM_CLOSED);
    }
    const uint8_t *out;
    while (nghttp2_session_mem_send(side->h2, &out) > 0) {
    }
}

/* ---- frames of an input ---------------------------------------------------------------------- */

struct input {
    const char *name;
    char bytes[MOST_BYTES];
    size_t n;
    unsigned shift;
};

/* A frame head, found by walking the whole input. */
struct head {
    size_t at, n_payload;
    uint8_t type;
    int32_t id;
};

static size_t list_heads(const struct input *input, struct head *heads) {
    size_t n = 0;
    for (size_t at = 0; at + H2_FRAME_HEAD_BYTES <= input->n;) {
        const uint8_t *b = (const uint8_t *)input->bytes + at;
        assert_in_range(n, 0, MOST_FRAMES - 1);
        heads[n] = (struct head){at, (size_t)b[0] << 16 | (size_t)b[1] << 8 | b[2], b[3],
                                 (b[5] & 0x7f) << 24 | b[6] << 16 | b[7] << 8 | b[8]};
        at += H2_FRAME_HEAD_BYTES + heads[n++].n_payload;
    }
    return n;
}

static void add_frame(struct input *input, uint8_t type, uint8_t flags, int32_t id,
                      struct str body) {
    const uint8_t head[] = {
        (uint8_t)(body.len >> 16), (uint8_t)(body.len >> 8), (uint8_t)body.len,  type,       flags,
        (uint8_t)(id >> 24),       (uint8_t)(id >> 16),      (uint8_t)(id >> 8), (uint8_t)id};
    assert_in_range(input->n + sizeof(head) + body.len, 0, MOST_BYTES);
    memcpy(input->bytes + input->n, head, sizeof(head));
    if (body.len > 0) {
        memcpy(input->bytes + input->n + sizeof(head), body.ptr, body.len);
    }
    input->n += sizeof(head) + body.len;
}

static void input_start(struct input *input, const char *name, unsigned shift) {
    input->name = name;
    input->shift = shift;
    input->n = 0;
    add_frame(input, NGHTTP2_SETTINGS, 0, 0, STR(""));
}

/* ---- the comparison -------------------------------------------------------------------------- */

static struct side side_a, side_b;
static struct head heads[MOST_FRAMES];
static size_t n_heads;
static size_t n_refused, n_stricter, n_in_fields; /* so that no check is empty */

/* Returns: whether nghttp2 may ignore what the peer sends on this stream. */
static bool is_ignored(int32_t id) {
    return !side_b.opened[slot_of(id)] || side_b.reset[slot_of(id)];
}

/* The scan is where nghttp2's parser is: in the same frame, and every head that nghttp2 reported
 * since `before` bytes ended between there and `at`. */
static void check_place(const char *name, size_t before, size_t at, size_t n_events_before) {
    size_t i = 0, k = n_events_before;
    while (i < n_heads && heads[i].at + H2_FRAME_HEAD_BYTES <= before) {
        i++;
    }
    for (; k < side_a.n_events; k++) {
        const struct event *event = &side_a.events[k];
        while (event->kind == 'b' && i < n_heads &&
               (heads[i].type != event->type || heads[i].id != event->id)) {
            i++;
        }
        if (event->kind == 'b') {
            assert_true(i < n_heads && heads[i].at + H2_FRAME_HEAD_BYTES <= at);
            i++;
        }
    }
    size_t n_head = 0, skip = 0;
    for (i = 0; i < n_heads && heads[i].at <= at; i++) {
        size_t end = heads[i].at + H2_FRAME_HEAD_BYTES + heads[i].n_payload;
        bool in_head = at < heads[i].at + H2_FRAME_HEAD_BYTES;
        n_head = in_head ? at - heads[i].at : 0;
        skip = in_head || at >= end ? 0 : end - at;
        if (at > end && i + 1 == n_heads) {
            n_head = at - end; /* the input ends within a head */
        }
    }
    if (side_a.scan.walk.n_head != n_head || side_a.scan.walk.skip != skip) {
        fail_msg("%s, at %zu: the scan is at another place", name, at);
    }
}

/* Returns: the stream of a frame or header block that is incomplete; 0: none. The scan has noted
 * its end already, nghttp2 does so when it is complete. */
static int32_t incomplete_id(size_t at) {
    int32_t id = 0;
    for (size_t i = 0; i < n_heads && heads[i].at + H2_FRAME_HEAD_BYTES <= at; i++) {
        id = heads[i].id;
    }
    return side_a.scan.walk.skip > 0 || h2_scan_is_in_fields(&side_a.scan) ? id : 0;
}

static void check_streams(const char *name, size_t at) {
    const struct h2_closed_streams *ended = &side_a.scan.ended;
    int32_t oldest = ended->newest - 2 * H2_CLOSED_STREAMS;
    for (int32_t id = oldest > 0 ? oldest + 2 : 1; id <= ended->newest; id += 2) {
        bool has = h2_closed_streams_has(ended, id);
        int a = nghttp2_session_get_stream_remote_close(side_a.h2, id);
        int b = nghttp2_session_get_stream_remote_close(side_b.h2, id);
        bool open = b >= 0; /* else closed: what follows on it is checked by the probes */
        if (a != b || (open && b == 1 && !has) ||
            (open && b == 0 && has && !is_ignored(id) && id != incomplete_id(at))) {
            fail_msg("%s, at %zu: stream %d: nghttp2 %d and %d, the scan %d", name, at, (int)id, a,
                     b, has);
        }
        assert_true(!open || nghttp2_session_find_stream(side_a.h2, id));
    }
}

/* Returns: the stream of the frame that the scan refused. */
static int32_t refused_id(void) {
    for (size_t i = 0; i < n_heads; i++) {
        if (heads[i].at + H2_FRAME_HEAD_BYTES > side_a.n_scanned) {
            return heads[i].id;
        }
    }
    fail_msg("no frame was refused");
    return 0;
}

/* Both sides saw the same since then. The frame that the scan refused is reported by side B only:
 * as begun, as invalid. */
static void check_events(size_t n_before) {
    size_t k = n_before;
    for (size_t i = n_before; i < side_b.n_events; i++) {
        const struct event *a = &side_a.events[k], *b = &side_b.events[i];
        bool same =
            k < side_a.n_events && a->kind == b->kind && a->type == b->type && a->id == b->id;
        if (!same &&
            !(side_a.refused && (b->kind == 'b' || b->kind == 'i') && b->id == refused_id())) {
            fail_msg("event %zu: %c of stream %d", i, b->kind, (int)b->id);
        }
        k += same;
    }
    assert_int_equal(k, side_a.n_events);
}

/* Returns: whether to feed more. */
static bool check(const char *name, size_t before, size_t at, size_t n_events_before) {
    if (side_a.refused && is_ignored(refused_id())) {
        n_stricter++; /* the one difference (h2_scan.h) */
        return false;
    }
    if (side_a.failed != side_b.failed || side_a.code != side_b.code ||
        side_a.last != side_b.last) {
        fail_msg("%s, at %zu: ended %d, code %u, stream %d; nghttp2: %d, %u, %d", name, at,
                 side_a.failed, side_a.code, (int)side_a.last, side_b.failed, side_b.code,
                 (int)side_b.last);
    }
    n_refused += side_a.refused;
    check_events(n_events_before);
    if (side_a.failed) {
        return false;
    }
    check_place(name, before, at, n_events_before);
    check_streams(name, at);
    /* After GOAWAY and the last stream the server closes the connection, and nghttp2 reads
     * nothing. */
    return nghttp2_session_want_read(side_a.h2);
}

/* Feeds the input in chunks: the first of `first` bytes, others of `piece`. Returns: whether the
 * connection is open, with both sides at the input's end. */
static bool run(const struct input *input, size_t first, size_t piece) {
    bool open = true;
    side_open(&side_a, true, input->shift);
    side_open(&side_b, false, input->shift);
    n_heads = list_heads(input, heads);
    for (size_t at = 0; at < input->n && open;) {
        size_t n = at == 0 && first > 0 ? first : piece;
        size_t n_events = side_a.n_events;
        struct str data = str_make(input->bytes + at, n < input->n - at ? n : input->n - at);
        side_feed(&side_a, data);
        side_feed(&side_b, data);
        open = check(input->name, at, at + data.len, n_events);
        at += data.len;
    }
    return open;
}

static void run_end(void) {
    nghttp2_session_del(side_a.h2);
    nghttp2_session_del(side_b.h2);
}

static bool runs(const struct input *input, size_t first, size_t piece) {
    bool open = run(input, first, piece);
    run_end();
    return open;
}

/* At each frame's end: nghttp2 accepts a PING exactly when no header block is incomplete. */
static void check_fields(const struct input *input) {
    static struct head all[MOST_FRAMES];
    size_t n = list_heads(input, all);
    for (size_t i = 0; i < n; i++) {
        struct input cut = *input;
        cut.n = all[i].at + H2_FRAME_HEAD_BYTES + all[i].n_payload;
        if (cut.n > input->n) {
            return;
        }
        bool open = run(&cut, 0, SIZE_MAX);
        if (open) {
            bool in_fields = h2_scan_is_in_fields(&side_a.scan);
            struct input ping = {.n = 0};
            add_frame(&ping, NGHTTP2_PING, 0, 0, STR("12345678"));
            side_feed(&side_a, str_make(ping.bytes, ping.n));
            assert_int_equal(side_a.failed, in_fields);
            n_in_fields += in_fields;
        }
        run_end();
    }
}

/* What follows on a stream that nghttp2 has forgotten: DATA, HEADERS, and DATA after RST_STREAM. */
static void check_probes(const struct input *input) {
    bool open = runs(input, 0, SIZE_MAX);
    int32_t newest = side_a.scan.ended.newest;
    bool whole = side_a.scan.walk.skip == 0 && side_a.scan.walk.n_head == 0;
    for (int32_t id = 1; open && whole && id <= newest + 2; id += 2) {
        for (int how = 0; how < 3; how++) {
            struct input probed = *input;
            if (how == 2) {
                add_frame(&probed, NGHTTP2_RST_STREAM, 0, id, STR("\0\0\0\x8"));
            }
            if (how == 1) {
                add_frame(&probed, NGHTTP2_HEADERS, 5, id, STR("\0\1t\1v"));
            } else {
                add_frame(&probed, NGHTTP2_DATA, 0, id, STR("x"));
            }
            runs(&probed, 0, SIZE_MAX);
            runs(&probed, input->n, SIZE_MAX);
        }
    }
}

/* ---- the inputs ------------------------------------------------------------------------------ */

#define REQUEST "\x83\x86\x04\2/e\x01\1a"
#define NO_PATH "\x83\x86\x01\1a"
#define TRAILER "\0\1t\1v"

enum { END = NGHTTP2_FLAG_END_STREAM, WHOLE = NGHTTP2_FLAG_END_HEADERS };

static void add_head(struct input *input, int32_t id, uint8_t flags) {
    add_frame(input, NGHTTP2_HEADERS, flags, id, STR(REQUEST));
}

static void add_data(struct input *input, int32_t id, uint8_t flags) {
    add_frame(input, NGHTTP2_DATA, flags, id, STR("\0\0\0\0\5hello"));
}

static void add_reset(struct input *input, int32_t id) {
    add_frame(input, NGHTTP2_RST_STREAM, 0, id, STR("\0\0\0\x8"));
}

/* Streams of all answers, each with what `tail` says. */
static void add_calls(struct input *input, int tail) {
    for (int32_t id = 1; id < 2 * N_ANSWERS; id += 2) {
        add_head(input, id, tail == 0 ? WHOLE | END : WHOLE);
        if (tail == 1 || tail == 2) {
            add_data(input, id, tail == 1 ? END : 0);
        }
        if (tail == 2) {
            add_frame(input, NGHTTP2_HEADERS, WHOLE | END, id, STR(TRAILER));
        } else if (tail == 3) {
            add_reset(input, id);
        }
    }
}

static void check_input(const struct input *input) {
    runs(input, 0, SIZE_MAX);
    runs(input, 0, 1);
    for (size_t first = 1; first < input->n; first++) {
        runs(input, first, SIZE_MAX);
    }
    check_fields(input);
    check_probes(input);
}

static struct input input;

static void h2_scan_calls_at_every_split_match_nghttp2(void **state) {
    (void)state;
    for (unsigned shift = 0; shift < N_ANSWERS; shift++) {
        for (int tail = 0; tail <= 4; tail++) {
            input_start(&input, "calls", shift);
            add_calls(&input, tail);
            check_input(&input);
        }
    }
}

/* Frames on ended, reset, idle and refused streams, and heads in several frames. */
static void h2_scan_wrong_frames_at_every_split_match_nghttp2(void **state) {
    (void)state;
    for (unsigned shift = 0; shift < N_ANSWERS; shift++) {
        for (int what = 0; what < 14; what++) {
            input_start(&input, "wrong frames", shift);
            add_head(&input, 1, what == 1 || what == 2 ? WHOLE | END : WHOLE);
            switch (what) {
            case 0: /* END_STREAM twice */
                add_data(&input, 1, END);
                add_data(&input, 1, END);
                break;
            case 1:
                add_data(&input, 1, 0);
                break;
            case 2:
                add_frame(&input, NGHTTP2_HEADERS, WHOLE | END, 1, STR(TRAILER));
                break;
            case 3:
                add_reset(&input, 1);
                add_data(&input, 1, 0);
                break;
            case 4:
                add_reset(&input, 1);
                add_reset(&input, 1);
                add_head(&input, 1, WHOLE);
                break;
            case 5: /* DATA on an idle stream */
                add_data(&input, 5, END);
                break;
            case 6: /* a lower id that was skipped */
                add_head(&input, 9, WHOLE | END);
                add_head(&input, 5, WHOLE | END);
                add_data(&input, 5, 0);
                break;
            case 7: /* an invalid head with END_STREAM */
                add_frame(&input, NGHTTP2_HEADERS, WHOLE | END, 3, STR(NO_PATH));
                add_data(&input, 3, 0);
                break;
            case 8: /* a head in three frames */
                add_frame(&input, NGHTTP2_HEADERS, END, 3, STR("\x83\x86"));
                add_frame(&input, NGHTTP2_CONTINUATION, 0, 3, STR("\x04\2/e"));
                add_frame(&input, NGHTTP2_CONTINUATION, WHOLE, 3, STR("\x01\1a"));
                add_data(&input, 3, 0);
                break;
            case 9: /* a frame between them */
                add_frame(&input, NGHTTP2_HEADERS, END, 3, STR("\x83\x86"));
                add_data(&input, 1, END);
                add_data(&input, 1, END);
                break;
            case 10: /* trailers without END_STREAM, which nghttp2 refuses */
                add_frame(&input, NGHTTP2_HEADERS, WHOLE, 1, STR(TRAILER));
                add_data(&input, 1, END);
                break;
            case 11: /* an even id, and stream 0 */
                add_frame(&input, NGHTTP2_RST_STREAM, 0, 2, STR("\0\0\0\x8"));
                add_head(&input, 0, WHOLE);
                break;
            case 12: /* padding, priority, unknown frames, and frames that concern no stream */
                add_frame(&input, NGHTTP2_DATA, NGHTTP2_FLAG_PADDED, 1, STR("\2xyz"));
                add_frame(&input, NGHTTP2_PRIORITY, 0, 1, STR("\0\0\0\0\5"));
                add_frame(&input, 77, 0xff, 1, STR("unknown"));
                add_frame(&input, NGHTTP2_WINDOW_UPDATE, 0, 0, STR("\0\0\0\1"));
                add_frame(&input, NGHTTP2_DATA, NGHTTP2_FLAG_PADDED | END, 1, STR("\1yz"));
                add_frame(&input, NGHTTP2_WINDOW_UPDATE, 0, 1, STR("\0\0\0\1"));
                add_frame(&input, NGHTTP2_PRIORITY, 0, 1, STR("\0\0\0\0\5"));
                break;
            default: /* a call after the refused frame is not begun */
                add_data(&input, 1, END);
                add_data(&input, 1, 0);
                add_head(&input, 3, WHOLE | END);
                break;
            }
            check_input(&input);
        }
    }
}

/* The inputs of the fuzzer that are bytes, and those of the client's fuzzer as a server would read
 * them. */
static void h2_scan_fuzz_corpus_at_every_split_matches_nghttp2(void **state) {
    (void)state;
    static const char *const FOLDERS[] = {"grpc_session", "grpc_client"};
    char build[4096] = "", pattern[4200];
    glob_t files;
    assert_true(readlink("/proc/self/exe", build, sizeof(build) - 1) > 0);
    char *unit = strstr(build, "/unit/"); /* BUILD/unit/net/transport/… */
    assert_non_null(unit);
    *unit = '\0';
    for (size_t i = 0; i < 2; i++) {
        snprintf(pattern, sizeof(pattern), "%s/fuzz/seeds/%s/*", build, FOLDERS[i]);
        assert_int_equal(glob(pattern, 0, NULL, &files), 0);
        for (size_t k = 0; k < files.gl_pathc; k++) {
            char bytes[4096];
            FILE *file = fopen(files.gl_pathv[k], "rb");
            assert_non_null(file);
            size_t n = fread(bytes, 1, sizeof(bytes), file);
            fclose(file);
            input_start(&input, files.gl_pathv[k], (unsigned)k);
            size_t at = 1; /* the first byte is the mode */
            if (n >= 1 + H2_PREFACE_BYTES && memcmp(bytes + 1, "PRI", 3) == 0) {
                at += H2_PREFACE_BYTES;
                input.n = 0;
            }
            memcpy(input.bytes + input.n, bytes + at, n - at);
            input.n += n - at;
            check_input(&input);
        }
        globfree(&files);
    }
}

static unsigned seed;

static unsigned random_below(unsigned n) {
    seed = seed * 1103515245 + 12345;
    return seed / 65536 % n;
}

static void add_random_frame(struct input *to, int32_t *newest) {
    int32_t id = *newest - 2 * (int32_t)random_below(6);
    unsigned what = random_below(12);
    id = id < 1 ? 1 : id;
    if (what < 4 || *newest == 0) {
        *newest = *newest == 0 ? 1 : *newest + 2 + 2 * (int32_t)(random_below(8) == 0);
        if (random_below(4) == 0) {
            add_frame(to, NGHTTP2_HEADERS, random_below(2) ? END : 0, *newest, STR("\x83\x86\x04"));
            add_frame(to, NGHTTP2_CONTINUATION, WHOLE, *newest, STR("\2/e\x01\1a"));
        } else {
            add_head(to, *newest, random_below(2) ? WHOLE | END : WHOLE);
        }
    } else if (what < 7) {
        add_data(to, id, random_below(2) ? END : 0);
    } else if (what == 7) {
        add_reset(to, id);
    } else if (what == 8) {
        add_frame(to, NGHTTP2_HEADERS, WHOLE | END, id, STR(TRAILER));
    } else if (what == 9) {
        add_frame(to, NGHTTP2_PRIORITY, 0, id, STR("\0\0\0\0\5"));
    } else if (what == 10) {
        add_frame(to, NGHTTP2_WINDOW_UPDATE, 0, random_below(2) ? id : 0, STR("\0\0\0\1"));
    } else {
        add_frame(to, NGHTTP2_PING, 0, 0, STR("12345678"));
    }
}

static void h2_scan_random_frames_match_nghttp2(void **state) {
    (void)state;
    for (unsigned i = 0; i < 3000; i++) {
        int32_t newest = 0;
        seed = i;
        input_start(&input, "random frames", random_below(N_ANSWERS));
        for (unsigned n = 1 + random_below(24); n > 0; n--) {
            add_random_frame(&input, &newest);
        }
        runs(&input, 0, SIZE_MAX);
        runs(&input, 0, 1);
        runs(&input, 0, 1 + random_below(60));
        runs(&input, 1 + random_below((unsigned)input.n), SIZE_MAX);
    }
}

/* More streams than the scan remembers: frames on the latest 256 end the connection. */
static void h2_scan_many_streams_match_nghttp2(void **state) {
    (void)state;
    input_start(&input, "many streams", 0);
    for (int32_t id = 1; id < 2 * 700; id += 2) {
        while (answer_of(&(struct side){.shift = 0}, id) == ANSWER_GOAWAY) {
            id += 2;
        }
        add_head(&input, id, id % 3 == 0 ? WHOLE | END : WHOLE);
        if (id % 3 == 1) {
            add_data(&input, id, END);
        }
    }
    int32_t newest = 2 * 700 - 1;
    struct input more = input;
    assert_true(runs(&input, 0, SIZE_MAX));
    assert_true(runs(&input, 0, 1000));
    for (int32_t back = 0; back < 2 * H2_CLOSED_STREAMS; back += 34) {
        more.n = input.n;
        add_data(&more, newest - back, 0);
        runs(&more, 0, SIZE_MAX);
        runs(&more, 0, 777);
    }
}

static void h2_scan_checks_are_not_empty(void **state) {
    (void)state;
    assert_true(n_refused > 1000);
    assert_true(n_stricter > 100);
    assert_true(n_in_fields > 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(h2_scan_calls_at_every_split_match_nghttp2),
        cmocka_unit_test(h2_scan_wrong_frames_at_every_split_match_nghttp2),
        cmocka_unit_test(h2_scan_fuzz_corpus_at_every_split_matches_nghttp2),
        cmocka_unit_test(h2_scan_random_frames_match_nghttp2),
        cmocka_unit_test(h2_scan_many_streams_match_nghttp2),
        cmocka_unit_test(h2_scan_checks_are_not_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
