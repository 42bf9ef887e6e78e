/* The text of --help: flags on the left, wrapped sentences on the right, one heading per group. A
 * flag too long for its column has a line of its own. */
#include "program/options/help.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { HELP_COLUMNS = 90, HELP_MIN = 80, HELP_MAX = 100, HELP_INDENT = 30 };

unsigned terminal_columns(int fd, unsigned unknown) {
    struct winsize window = {0};
    bool known = ioctl(fd, TIOCGWINSZ, &window) == 0 && window.ws_col > 0;
    return known ? window.ws_col : unknown;
}

struct help_style help_style_of(FILE *file) {
    struct help_style style = {.columns = HELP_COLUMNS};
    if (!isatty(fileno(file))) {
        return style;
    }
    unsigned columns = terminal_columns(fileno(file), HELP_COLUMNS);
    style.columns = columns < HELP_MIN ? HELP_MIN : columns > HELP_MAX ? HELP_MAX : columns;
    const char *no_colour = getenv("NO_COLOR"), *term = getenv("TERM");
    style.colour = !(no_colour && *no_colour) && term && strcmp(term, "dumb") != 0;
    return style;
}

/* Counts characters: UTF-8 continuation bytes take no column. */
static unsigned text_columns(const char *text, size_t n_bytes) {
    unsigned n = 0;
    for (size_t i = 0; i < n_bytes; i++) {
        n += ((unsigned char)text[i] & 0xc0) != 0x80;
    }
    return n;
}

static void add_line(struct buf *out, unsigned indent) {
    buf_add_char(out, '\n');
    for (unsigned i = 0; i < indent; i++) {
        buf_add_char(out, ' ');
    }
}

void help_wrap(struct buf *out, const char *text, unsigned at, unsigned indent, unsigned columns) {
    bool first = true;
    for (text += strspn(text, " "); *text; text += strspn(text, " ")) {
        if (*text == '\n') {
            buf_add_char(out, '\n');
            add_line(out, indent);
            at = indent;
            first = true;
            text++;
            continue;
        }
        size_t n = strcspn(text, " \n");
        unsigned width = text_columns(text, n);
        if (!first && at + 1 + width > columns) {
            add_line(out, indent);
            at = indent;
            first = true;
        }
        if (!first) {
            buf_add_char(out, ' ');
        }
        buf_add(out, text, n);
        at += width + !first;
        first = false;
        text += n;
    }
}

static void print_styled(struct buf *out, const char *code, struct str text,
                         struct help_style style) {
    if (style.colour) {
        buf_printf(out, "\033[%sm", code);
    }
    buf_add_str(out, text);
    if (style.colour) {
        buf_add_str(out, STR("\033[0m"));
    }
}

void help_heading(struct buf *out, const char *text, struct help_style style) {
    print_styled(out, "1", str_of(text), style);
}

/* "-o, --output-file FILE" */
static struct str option_left(struct arena *arena, const struct option *option) {
    if (option_is_argument(option)) {
        return arena_printf(arena, "%s%s", option->unit, option_is_list(option) ? "…" : "");
    }
    const char *unit = option->type == OPTION_SWITCH ? "" : option->unit;
    const char *letter = strlen(option->alias) == 1 ? option->alias : "";
    return arena_printf(arena, "%s%s%s--%s%s%s", *letter ? "-" : "", letter, *letter ? ", " : "",
                        option->name, *unit ? " " : "", unit);
}

/* The help sentence, followed by the notes on the value. */
static struct str option_right(struct arena *arena, const struct option *option) {
    struct buf text;
    buf_init(&text, arena, 0);
    buf_add_str(&text, str_of(option->help));
    if (option->type == OPTION_TEXTS) {
        buf_add_str(&text, STR(" Repeatable."));
    }
    if (strlen(option->alias) > 1) {
        buf_printf(&text, " Also --%s.", option->alias);
    }
    if (*option->value) {
        buf_printf(&text, " [default: %s]", option->value);
    }
    buf_add_char(&text, '\0');
    return buf_str(&text);
}

static void print_option(struct buf *out, const struct option *option, struct help_style style) {
    struct str left = option_left(out->arena, option);
    struct str right = option_right(out->arena, option);
    unsigned width = 2 + text_columns(left.ptr, left.len);
    buf_add_str(out, STR("  "));
    print_styled(out, "36", left, style);
    if (width + 2 > HELP_INDENT) {
        add_line(out, HELP_INDENT);
    } else {
        for (; width < HELP_INDENT; width++) {
            buf_add_char(out, ' ');
        }
    }
    help_wrap(out, right.ptr, HELP_INDENT, HELP_INDENT, style.columns);
    buf_add_char(out, '\n');
}

/* Is option `index` the first one of its group? */
static bool begins_group(const struct option_set *set, size_t index) {
    for (size_t i = 0; i < index; i++) {
        if (strcmp(set->options[i].group, set->options[index].group) == 0) {
            return false;
        }
    }
    return true;
}

/* A topic is the groups with the same first word: "Request", "Request over HTTP". */
static bool is_same_topic(const char *group, const char *other) {
    size_t n = strcspn(group, " ");
    return n == strcspn(other, " ") && strncmp(group, other, n) == 0;
}

/* Is option `index` the first one of a topic? The arguments, which have no group, are none. */
static bool begins_topic(const struct option_set *set, size_t index) {
    for (size_t i = 0; i < index; i++) {
        if (is_same_topic(set->options[i].group, set->options[index].group)) {
            return false;
        }
    }
    return *set->options[index].group != '\0';
}

/* Prints every option of the group of option `first`. */
static void print_group(struct buf *out, const struct option_set *set, size_t first,
                        struct help_style style) {
    const char *group = set->options[first].group;
    buf_add_char(out, '\n');
    if (*group) {
        help_heading(out, group, style);
        buf_add_char(out, '\n');
    }
    for (size_t i = first; i < set->n_options; i++) {
        if (strcmp(set->options[i].group, group) == 0) {
            print_option(out, &set->options[i], style);
        }
    }
}

static void print_most_used(struct buf *out, const struct option_set *set,
                            struct help_style style) {
    buf_add_char(out, '\n');
    help_heading(out, "Most used", style);
    buf_add_char(out, '\n');
    for (const char *const *name = set->most_used; *name; name++) {
        for (size_t i = 0; i < set->n_options; i++) {
            if (strcmp(set->options[i].name, *name) == 0) {
                print_option(out, &set->options[i], style);
            }
        }
    }
}

/* The word that --help takes: the first one of a group in lower case, "tls" of "TLS and keys". */
static struct str topic_of(struct arena *arena, const char *group) {
    struct str word = arena_printf(arena, "%.*s", (int)strcspn(group, " "), group);
    char *at = (char *)word.ptr;
    for (size_t i = 0; i < word.len; i++) {
        at[i] = (char)(at[i] | 0x20); /* it is ASCII letters */
    }
    return word;
}

/* Prints the names of the flags of a topic: "models  --model-repository, --check, …". */
static void print_topic_names(struct buf *out, const struct option_set *set, size_t first,
                              struct help_style style) {
    enum { NAMES_INDENT = 14 };
    struct str topic = topic_of(out->arena, set->options[first].group);
    struct buf names;
    buf_init(&names, out->arena, 0);
    for (size_t i = first; i < set->n_options; i++) {
        if (is_same_topic(set->options[i].group, set->options[first].group) &&
            !option_is_argument(&set->options[i])) {
            buf_printf(&names, "%s--%s", names.len > 0 ? ", " : "", set->options[i].name);
        }
    }
    buf_add_char(&names, '\0');
    buf_add_str(out, STR("  "));
    print_styled(out, "36", topic, style);
    for (size_t at = 2 + topic.len; at < NAMES_INDENT; at++) {
        buf_add_char(out, ' ');
    }
    help_wrap(out, names.data, NAMES_INDENT, NAMES_INDENT, style.columns);
    buf_add_char(out, '\n');
}

static void print_topics(struct buf *out, const struct option_set *set, struct help_style style) {
    buf_add_char(out, '\n');
    help_heading(out, "All flags, by topic", style);
    buf_printf(out, " (%s --help TOPIC, or --help all)\n", set->command);
    for (size_t i = 0; i < set->n_options; i++) {
        if (begins_topic(set, i)) {
            print_topic_names(out, set, i, style);
        }
    }
}

static void print_page(struct buf *out, const struct option_set *set, bool all,
                       struct help_style style) {
    help_heading(out, "usage:", style);
    buf_printf(out, " %s %s\n\n", set->command, set->usage);
    help_wrap(out, set->about, 0, 0, style.columns);
    buf_add_char(out, '\n');
    if (all || !set->most_used) {
        for (size_t i = 0; i < set->n_options; i++) {
            if (begins_group(set, i)) {
                print_group(out, set, i, style);
            }
        }
    } else {
        if (!*set->options[0].group) { /* the arguments */
            print_group(out, set, 0, style);
        }
        print_most_used(out, set, style);
        print_topics(out, set, style);
    }
    if (set->epilog) {
        buf_printf(out, "\n%s", set->epilog);
    }
}

void help_print(struct buf *out, const struct option_set *set, struct help_style style) {
    print_page(out, set, false, style);
}

static enum status unknown_topic(const struct option_set *set, const char *topic,
                                 struct arena *arena, struct error *err) {
    struct buf topics;
    buf_init(&topics, arena, 0);
    for (size_t i = 0; i < set->n_options; i++) {
        if (begins_topic(set, i)) {
            buf_add_str(&topics, topic_of(arena, set->options[i].group));
            buf_add_str(&topics, STR(", "));
        }
    }
    return error_set(err, ST_BAD_CONFIG, "no help on \"%s\"; the topics are %.*sall", topic,
                     (int)topics.len, topics.data);
}

enum status help_print_topic(struct buf *out, const struct option_set *set, const char *topic,
                             struct help_style style, struct error *err) {
    bool any = strcmp(topic, "all") == 0;
    if (any || !set->most_used) {
        print_page(out, set, true, style);
        return ST_OK;
    }
    for (size_t i = 0; i < set->n_options; i++) {
        if (begins_group(set, i) && strncasecmp(set->options[i].group, topic, strlen(topic)) == 0) {
            print_group(out, set, i, style);
            any = true;
        }
    }
    return any ? ST_OK : unknown_topic(set, topic, out->arena, err);
}
