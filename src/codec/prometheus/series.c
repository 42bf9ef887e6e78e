/* A line is checked by its name first: most of a page is skipped by searching for the next
 * newline. */
#include "codec/prometheus/series.h"

#include <assert.h>
#include <math.h>

#include "core/base/num.h"

/* ---- characters ------------------------------------------------------------------------------ */

static bool is_name_char(char c) {
    char folded = (char)(c | 0x20);
    return (folded >= 'a' && folded <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == ':';
}

static bool is_blank(char c) {
    return c == ' ' || c == '\t';
}

static void skip_blanks(struct str *rest) {
    while (rest->len > 0 && is_blank(rest->ptr[0])) {
        *rest = str_make(rest->ptr + 1, rest->len - 1);
    }
}

static struct str take_name(struct str *rest) {
    size_t n = 0;
    while (n < rest->len && is_name_char(rest->ptr[n])) {
        n++;
    }
    struct str name = str_make(rest->ptr, n);
    *rest = str_make(rest->ptr + n, rest->len - n);
    return name;
}

static bool take_char(struct str *rest, char c) {
    if (rest->len == 0 || rest->ptr[0] != c) {
        return false;
    }
    *rest = str_make(rest->ptr + 1, rest->len - 1);
    return true;
}

static struct str take_word(struct str *rest) {
    size_t n = 0;
    while (n < rest->len && !is_blank(rest->ptr[n])) {
        n++;
    }
    struct str word = str_make(rest->ptr, n);
    *rest = str_make(rest->ptr + n, rest->len - n);
    skip_blanks(rest);
    return word;
}

/* ---- labels ---------------------------------------------------------------------------------- */

/* Takes a quoted text after its opening quote, and the closing quote. */
static bool take_quoted(struct str *rest, struct str *out) {
    for (size_t i = 0; i < rest->len; i++) {
        if (rest->ptr[i] == '\\') {
            i++;
        } else if (rest->ptr[i] == '"') {
            *out = str_make(rest->ptr, i);
            *rest = str_make(rest->ptr + i + 1, rest->len - i - 1);
            return true;
        }
    }
    return false;
}

/* Takes name="value" and a comma, if there is one. */
static bool take_label(struct str *rest, struct series_label *out) {
    skip_blanks(rest);
    out->name = take_name(rest);
    skip_blanks(rest);
    if (out->name.len == 0 || !take_char(rest, '=')) {
        return false;
    }
    skip_blanks(rest);
    if (!take_char(rest, '"') || !take_quoted(rest, &out->value)) {
        return false;
    }
    skip_blanks(rest);
    bool comma = take_char(rest, ',');
    skip_blanks(rest);
    return comma || rest->len == 0 || rest->ptr[0] == '}';
}

bool series_label_next(struct str *labels, struct series_label *out) {
    return labels->len > 0 && take_label(labels, out);
}

/* Takes the labels after their opening brace. */
static bool take_labels(struct str *rest, struct str *out) {
    struct series_label label;
    const char *begin = rest->ptr;
    skip_blanks(rest);
    while (rest->len > 0 && rest->ptr[0] != '}') {
        if (!take_label(rest, &label)) {
            return false;
        }
    }
    *out = str_make(begin, (size_t)(rest->ptr - begin));
    *out = str_trim(*out);
    return take_char(rest, '}');
}

static struct str find_label(const struct series *series, struct str name) {
    struct str labels = series->labels;
    struct series_label label;
    while (series_label_next(&labels, &label)) {
        if (str_eq(label.name, name)) {
            return label.value;
        }
    }
    return str_make(NULL, 0);
}

/* Takes the next character of an escaped text. A backslash before any other character stands for
 * itself. */
static char take_escaped(struct str *rest) {
    char c = rest->ptr[0], next = rest->len > 1 ? rest->ptr[1] : '\0';
    bool is_escape = c == '\\' && (next == 'n' || next == '"' || next == '\\');
    size_t n = is_escape ? 2 : 1;
    *rest = str_make(rest->ptr + n, rest->len - n);
    return !is_escape ? c : next == 'n' ? '\n' : next;
}

bool series_label_print(const struct series *series, struct str name, struct buf *out) {
    struct str value = find_label(series, name);
    if (!value.ptr) {
        return false;
    }
    while (value.len > 0) {
        buf_add_char(out, take_escaped(&value));
    }
    return true;
}

bool series_label_is(const struct series *series, struct str name, struct str value) {
    struct str text = find_label(series, name);
    if (!text.ptr) {
        return false;
    }
    size_t n = 0;
    for (; text.len > 0; n++) {
        char c = take_escaped(&text);
        if (n >= value.len || value.ptr[n] != c) {
            return false;
        }
    }
    return n == value.len;
}

/* ---- a line ---------------------------------------------------------------------------------- */

static bool parse_value(struct str word, double *out) {
    bool is_signed = word.len > 0 && (word.ptr[0] == '-' || word.ptr[0] == '+');
    struct str rest = is_signed ? str_make(word.ptr + 1, word.len - 1) : word;
    if (str_eq_nocase(rest, STR("inf")) || str_eq_nocase(rest, STR("infinity"))) {
        *out = word.ptr[0] == '-' ? -INFINITY : INFINITY;
        return true;
    }
    if (str_eq_nocase(word, STR("nan"))) {
        *out = NAN;
        return true;
    }
    return num_parse_decimal(word, out);
}

/* Parses the line after the name. */
static bool parse_rest(struct str rest, struct series *out) {
    skip_blanks(&rest);
    if (take_char(&rest, '{') && !take_labels(&rest, &out->labels)) {
        return false;
    }
    skip_blanks(&rest);
    if (!parse_value(take_word(&rest), &out->value)) {
        return false;
    }
    if (rest.len == 0 || rest.ptr[0] == '#') { /* an exemplar follows */
        return true;
    }
    out->has_time = parse_value(take_word(&rest), &out->time);
    return out->has_time && (rest.len == 0 || rest.ptr[0] == '#');
}

/* Returns: the names that the line may begin with, a bit each. It excludes nearly all lines of a
 * page. */
static uint32_t candidate_names(const struct series_reader *reader, struct str line) {
    size_t at = reader->differ_offset;
    if (line.len < at + 2) {
        return UINT32_MAX;
    }
    return reader->first[(unsigned char)line.ptr[at]] &
           reader->second[(unsigned char)line.ptr[at + 1]];
}

/* Takes a wanted name from the front of a line. */
static bool cut_wanted_name(const struct series_reader *reader, struct str *line, struct str *out) {
    uint32_t left = candidate_names(reader, *line);
    for (size_t i = 0; left != 0 && i < reader->n_names; i++, left >>= 1) {
        struct str name = reader->names[i];
        if (!(left & 1) || name.len == 0 || line->len < name.len) {
            continue;
        }
        bool ends = line->len == name.len || !is_name_char(line->ptr[name.len]);
        if (ends && memcmp(line->ptr, name.ptr, name.len) == 0) {
            *out = str_make(line->ptr, name.len);
            *line = str_make(line->ptr + name.len, line->len - name.len);
            return true;
        }
    }
    return false;
}

static void parse_line(struct series_reader *reader, struct str line) {
    struct series series = {0};
    reader->n_lines++;
    if (line.len > 0 && line.ptr[line.len - 1] == '\r') {
        line.len--;
    }
    skip_blanks(&line);
    if (!cut_wanted_name(reader, &line, &series.name)) {
        return;
    }
    if (parse_rest(line, &series)) {
        reader->on_series(reader->user, &series);
    } else {
        reader->n_malformed++;
    }
}

/* ---- chunks ---------------------------------------------------------------------------------- */

/* Returns: the offset after the common prefix of all names, but before the end of the shortest. */
static size_t find_difference(const struct series_reader *reader) {
    struct str first = reader->n_names > 0 ? reader->names[0] : STR("");
    size_t n = first.len, shortest = first.len;
    for (size_t i = 1; i < reader->n_names; i++) {
        struct str name = reader->names[i];
        shortest = name.len < shortest ? name.len : shortest;
        n = n < shortest ? n : shortest;
        while (memcmp(name.ptr, first.ptr, n) != 0) {
            n--;
        }
    }
    return n + 2 <= shortest ? n : shortest >= 2 ? shortest - 2 : 0;
}

/* A name that ends before `at` allows every character there. */
static void table_add(uint32_t table[UINT8_MAX + 1], struct str name, size_t at, uint32_t bit) {
    if (at < name.len) {
        table[(unsigned char)name.ptr[at]] |= bit;
        return;
    }
    for (size_t c = 0; c <= UINT8_MAX; c++) {
        table[c] |= bit;
    }
}

static void build_tables(struct series_reader *reader) {
    size_t at = find_difference(reader);
    reader->differ_offset = at;
    memset(reader->first, 0, sizeof(reader->first));
    memset(reader->second, 0, sizeof(reader->second));
    for (size_t i = 0; i < reader->n_names; i++) {
        uint32_t bit = UINT32_C(1) << i;
        table_add(reader->first, reader->names[i], at, bit);
        table_add(reader->second, reader->names[i], at + 1, bit);
    }
}

void series_reader_init(struct series_reader *reader) {
    assert(reader->n_names <= SERIES_MAX_NAMES);
    build_tables(reader);
    reader->n_bytes = reader->n_lines = reader->n_malformed = reader->n_too_long = 0;
    reader->n_line = 0;
    reader->skipping = false;
}

/* Can the incomplete line `begin` not become one of a wanted series? */
static bool is_unwanted(const struct series_reader *reader, struct str beginning) {
    skip_blanks(&beginning);
    struct str rest = beginning, name = take_name(&rest);
    for (size_t i = 0; i < reader->n_names; i++) {
        if (str_eq(reader->names[i], name)) {
            return false;
        }
    }
    return beginning.len > 0 && rest.len > 0;
}

/* Buffers the beginning of a line, if it can become one of a wanted series. */
static void buffer_line(struct series_reader *reader, struct str part) {
    size_t capacity = sizeof(reader->line) - reader->n_line;
    size_t n = part.len < capacity ? part.len : capacity;
    if (reader->skipping) {
        return;
    }
    if (n > 0) {
        memcpy(reader->line + reader->n_line, part.ptr, n);
        reader->n_line += n;
    }
    bool unwanted = is_unwanted(reader, str_make(reader->line, reader->n_line));
    reader->n_too_long += !unwanted && n < part.len;
    reader->skipping = unwanted || n < part.len;
}

static void end_line(struct series_reader *reader, struct str part) {
    if (reader->n_line == 0 && !reader->skipping) { /* the whole line is in this chunk */
        parse_line(reader, part);
        return;
    }
    buffer_line(reader, part);
    if (reader->skipping) {
        reader->n_lines++;
    } else {
        parse_line(reader, str_make(reader->line, reader->n_line));
    }
    reader->n_line = 0;
    reader->skipping = false;
}

/* Skips lines that begin as no wanted one does: nearly all of a page. Returns: the rest. Wanted
 * names are long enough that the characters read are within the line. */
static struct str skip_unwanted_lines(struct series_reader *reader, struct str chunk) {
    const char *line = chunk.ptr, *end = chunk.ptr + chunk.len;
    size_t at = reader->differ_offset;
    uint64_t n_lines = 0;
    while (
        (size_t)(end - line) >= at + 2 && !is_blank(*line) &&
        !(reader->first[(unsigned char)line[at]] & reader->second[(unsigned char)line[at + 1]])) {
        const char *next = memchr(line, '\n', (size_t)(end - line));
        if (!next) {
            break;
        }
        n_lines++;
        line = next + 1;
    }
    reader->n_lines += n_lines;
    return str_make(line, (size_t)(end - line));
}

void series_reader_feed(struct series_reader *reader, struct str chunk) {
    reader->n_bytes += chunk.len;
    while (chunk.len > 0) {
        if (reader->n_line == 0 && !reader->skipping) {
            chunk = skip_unwanted_lines(reader, chunk);
        }
        if (chunk.len == 0) {
            return;
        }
        const char *end = memchr(chunk.ptr, '\n', chunk.len);
        if (!end) {
            buffer_line(reader, chunk);
            return;
        }
        size_t n = (size_t)(end - chunk.ptr);
        end_line(reader, str_make(chunk.ptr, n));
        chunk = str_make(end + 1, chunk.len - n - 1);
    }
}

void series_reader_finish(struct series_reader *reader) {
    if (reader->n_line > 0 || reader->skipping) {
        end_line(reader, str_make(NULL, 0));
    }
}
