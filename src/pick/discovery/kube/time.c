/* Reads RFC 3339 times. */
#include "pick/discovery/kube/time.h"

#include <time.h>

#include "core/base/num.h"

/* Reads `n` digits at `at`. */
static bool read_digits(struct str text, size_t at, size_t n, int *out) {
    uint64_t value = 0;
    if (at + n > text.len || !num_parse_u64(str_make(text.ptr + at, n), &value)) {
        return false;
    }
    *out = (int)value;
    return true;
}

static bool is_at(struct str text, size_t at, const char *any) {
    return at < text.len && text.ptr[at] != '\0' && strchr(any, text.ptr[at]);
}

/* Reads "Z" or "+01:00" at the end. */
static bool read_zone(struct str text, size_t at, int64_t *out_s) {
    int hours = 0, minutes = 0;
    if (is_at(text, at, "Zz")) {
        *out_s = 0;
        return at + 1 == text.len;
    }
    if (!is_at(text, at, "+-") || !read_digits(text, at + 1, 2, &hours) ||
        !is_at(text, at + 3, ":") || !read_digits(text, at + 4, 2, &minutes) || hours > 23 ||
        minutes > 59) {
        return false;
    }
    *out_s = (text.ptr[at] == '-' ? -1 : 1) * (int64_t)(hours * 3600 + minutes * 60);
    return at + 6 == text.len;
}

static bool read_clock(struct str text, struct tm *out) {
    bool shaped = is_at(text, 4, "-") && is_at(text, 7, "-") && is_at(text, 10, "Tt") &&
                  is_at(text, 13, ":") && is_at(text, 16, ":");
    bool read = shaped && read_digits(text, 0, 4, &out->tm_year) &&
                read_digits(text, 5, 2, &out->tm_mon) && read_digits(text, 8, 2, &out->tm_mday) &&
                read_digits(text, 11, 2, &out->tm_hour) && read_digits(text, 14, 2, &out->tm_min) &&
                read_digits(text, 17, 2, &out->tm_sec);
    return read && out->tm_mon >= 1 && out->tm_mon <= 12 && out->tm_mday >= 1 &&
           out->tm_mday <= 31 && out->tm_hour <= 23 && out->tm_min <= 59 && out->tm_sec <= 60;
}

bool kube_time_parse(struct str text, int64_t *out_s) {
    struct tm clock = {0};
    int64_t zone_s = 0;
    size_t at = 19;
    if (!read_clock(text, &clock)) {
        return false;
    }
    if (is_at(text, at, ".")) {
        size_t first = ++at;
        while (is_at(text, at, "0123456789")) {
            at++;
        }
        if (at == first) {
            return false;
        }
    }
    if (!read_zone(text, at, &zone_s)) {
        return false;
    }
    clock.tm_year -= 1900;
    clock.tm_mon -= 1;
    *out_s = (int64_t)timegm(&clock) - zone_s;
    return true;
}
