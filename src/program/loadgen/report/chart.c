/* SVG drawing, in a view box of 460 by 300 units, which the page scales. The text is readable at
 * the width of a telephone. */
#include "program/loadgen/report/chart.h"

#include <math.h>
#include <stdio.h>

#include "core/base/utf8.h"
#include "program/loadgen/report/text.h"

enum {
    WIDTH = 460,
    HEIGHT = 300,
    LEFT = 64,
    RIGHT = 14,
    TOP = 12,
    BOTTOM = 46,
    CHARACTER = 7, /* approximate width, to avoid overlapping labels */
    RIDGE_LEFT = 62,
    RIDGE_ROWS_HEIGHT = 230,
    RIDGE_MOST = 96,
    RIDGE_LEAST = 20,
    SPARK_WIDTH = 96,
    SPARK_HEIGHT = 22,
};

void bench_xml_print(struct buf *out, struct str text) {
    bool valid = utf8_is_valid(text.ptr, text.len);
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        if (c == '<') {
            buf_add_str(out, STR("&lt;"));
        } else if (c == '>') {
            buf_add_str(out, STR("&gt;"));
        } else if (c == '&') {
            buf_add_str(out, STR("&amp;"));
        } else if (c == '"') {
            buf_add_str(out, STR("&quot;"));
        } else {
            bool bad = (c < 0x20 && c != '\n') || c == 0x7f || (c >= 0x80 && !valid);
            buf_add_char(out, bad ? '?' : (char)c);
        }
    }
}

static void print_xml(struct buf *out, const char *text) {
    bench_xml_print(out, str_of(text));
}

/* ---- primitives ------------------------------------------------------------------------------ */

static void begin_figure(struct buf *out, const char *title, int height) {
    buf_add_str(out, STR("<figure><figcaption>"));
    print_xml(out, title);
    buf_printf(out, "</figcaption>\n<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", WIDTH,
               height);
    print_xml(out, title);
    buf_add_str(out, STR("\">\n"));
}

static void print_text(struct buf *out, double x, double y, const char *anchor, const char *text) {
    buf_printf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
    print_xml(out, text);
    buf_add_str(out, STR("</text>\n"));
}

static void print_rule(struct buf *out, const char *class, double x1, double y1, double x2,
                       double y2) {
    buf_printf(out, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", class,
               x1, y1, x2, y2);
}

static double chart_x(const struct bench_chart *chart, double value) {
    return LEFT + bench_scale_at(&chart->x, value) * (WIDTH - LEFT - RIGHT);
}

static double chart_y(const struct bench_chart *chart, double value) {
    return HEIGHT - BOTTOM - bench_scale_at(&chart->y, value) * (HEIGHT - TOP - BOTTOM);
}

/* Axis labels, as short as possible. */
static const char *tick_text(double value, char out[BENCH_TEXT_BYTES]) {
    if (value >= 1000) {
        return bench_text_count((uint64_t)llround(value), out);
    }
    snprintf(out, BENCH_TEXT_BYTES, "%g", value);
    return out;
}

/* ---- lines over two axes --------------------------------------------------------------------- */

static void print_y_axis(struct buf *out, const struct bench_chart *chart) {
    char text[BENCH_TEXT_BYTES];
    for (size_t i = 0; i < chart->y.n_ticks; i++) {
        double y = chart_y(chart, chart->y.ticks[i]);
        print_rule(out, "grid", LEFT, y, WIDTH - RIGHT, y);
        print_text(out, LEFT - 7, y + 4, "end", tick_text(chart->y.ticks[i], text));
    }
}

/* Prints a mark unless it would overlap the previous one, which ends at *used. */
static void print_x_mark(struct buf *out, double x, const char *text, double *used) {
    double half = (double)str_of(text).len * CHARACTER / 2;
    if (x - half < *used) {
        return;
    }
    *used = x + half + CHARACTER;
    print_rule(out, "tick", x, HEIGHT - BOTTOM, x, HEIGHT - BOTTOM + 4);
    print_text(out, x, HEIGHT - BOTTOM + 17, "middle", text);
}

static void print_x_axis(struct buf *out, const struct bench_chart *chart) {
    char text[BENCH_TEXT_BYTES];
    double used = -WIDTH;
    for (size_t i = 0; i < chart->n_marks; i++) {
        print_x_mark(out, chart_x(chart, chart->marks[i].at), chart->marks[i].text, &used);
    }
    for (size_t i = 0; !chart->marks && i < chart->x.n_ticks; i++) {
        print_x_mark(out, chart_x(chart, chart->x.ticks[i]), tick_text(chart->x.ticks[i], text),
                     &used);
    }
    print_rule(out, "axis", LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, HEIGHT - BOTTOM);
    print_text(out, LEFT + (WIDTH - LEFT - RIGHT) / 2.0, HEIGHT - 8, "middle", chart->x_label);
}

static void print_series(struct buf *out, const struct bench_chart *chart,
                         const struct bench_series *series) {
    char number[BENCH_TEXT_BYTES], at[BENCH_TEXT_BYTES];
    buf_printf(out, "<g style=\"--hue:%.0f\"><path class=\"line\" d=\"", series->hue);
    for (size_t i = 0; i < series->n; i++) {
        buf_printf(out, "%c%.1f %.1f", i > 0 ? 'L' : 'M', chart_x(chart, series->x[i]),
                   chart_y(chart, series->y[i]));
    }
    buf_add_str(out, STR("\"/>\n"));
    for (size_t i = 0; series->dots && i < series->n; i++) {
        buf_printf(out, "<circle class=\"dot\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\"><title>",
                   chart_x(chart, series->x[i]), chart_y(chart, series->y[i]));
        print_xml(out, series->name);
        buf_printf(out, ": %s at %s</title></circle>\n", bench_text_number(series->y[i], number),
                   tick_text(series->x[i], at));
    }
    buf_add_str(out, STR("</g>\n"));
}

static void print_legend(struct buf *out, const struct bench_series *series, size_t n) {
    if (n < 2) {
        return;
    }
    buf_add_str(out, STR("<ul class=\"legend\">"));
    for (size_t i = 0; i < n; i++) {
        buf_printf(out, "<li style=\"--hue:%.0f\">", series[i].hue);
        print_xml(out, series[i].name);
        buf_add_str(out, STR("</li>"));
    }
    buf_add_str(out, STR("</ul>\n"));
}

void bench_chart_print(struct buf *out, const struct bench_chart *chart) {
    begin_figure(out, chart->title, HEIGHT);
    print_y_axis(out, chart);
    print_x_axis(out, chart);
    for (size_t i = 0; i < chart->n_series; i++) {
        print_series(out, chart, &chart->series[i]);
    }
    buf_add_str(out, STR("</svg>\n"));
    print_legend(out, chart->series, chart->n_series);
    buf_add_str(out, STR("</figure>\n"));
}

/* ---- distributions --------------------------------------------------------------------------- */

static double ridge_x(const struct bench_ridges *ridges, double value) {
    return RIDGE_LEFT + bench_scale_at(&ridges->x, value) * (WIDTH - RIDGE_LEFT - RIGHT);
}

static void print_ridge(struct buf *out, const struct bench_ridges *ridges,
                        const struct bench_ridge *row, double base, double height) {
    double part = (double)(WIDTH - RIDGE_LEFT - RIGHT) / (double)row->n;
    buf_printf(out, "<g style=\"--hue:%.0f\"><path class=\"area\" d=\"M%d %.1f", row->hue,
               RIDGE_LEFT, base);
    for (size_t i = 0; i < row->n; i++) {
        double y = base - row->heights[i] * height, x = RIDGE_LEFT + part * (double)i;
        buf_printf(out, "L%.1f %.1fL%.1f %.1f", x, y, x + part, y);
    }
    buf_printf(out, "L%d %.1fZ\"/>\n", WIDTH - RIGHT, base);
    double middle = ridge_x(ridges, row->middle), high = ridge_x(ridges, row->high);
    print_rule(out, "mark", middle, base - height, middle, base);
    print_rule(out, "mark dashed", high, base - height, high, base);
    buf_add_str(out, STR("</g>\n"));
    print_rule(out, "grid", RIDGE_LEFT, base, WIDTH - RIGHT, base);
    print_text(out, RIDGE_LEFT - 7, base - height / 2 + 4, "end", row->name);
}

void bench_ridges_print(struct buf *out, const struct bench_ridges *ridges) {
    char text[BENCH_TEXT_BYTES];
    double row = RIDGE_ROWS_HEIGHT / (double)ridges->n_rows, used = -WIDTH;
    row = fmin(RIDGE_MOST, fmax(RIDGE_LEAST, row));
    double bottom = TOP + 8 + row * (double)ridges->n_rows;
    begin_figure(out, ridges->title, (int)bottom + BOTTOM);
    for (size_t i = 0; i < ridges->n_rows; i++) {
        print_ridge(out, ridges, &ridges->rows[i], TOP + 8 + row * (double)(i + 1), row * 0.88);
    }
    for (size_t i = 0; i < ridges->x.n_ticks; i++) {
        double x = ridge_x(ridges, ridges->x.ticks[i]);
        const char *label = tick_text(ridges->x.ticks[i], text);
        double half = (double)str_of(label).len * CHARACTER / 2;
        print_rule(out, "tick", x, bottom, x, bottom + 4);
        if (x - half > used) {
            used = x + half + CHARACTER;
            print_text(out, x, bottom + 17, "middle", label);
        }
    }
    print_text(out, RIDGE_LEFT + (WIDTH - RIDGE_LEFT - RIGHT) / 2.0, bottom + BOTTOM - 8, "middle",
               ridges->x_label);
    buf_add_str(out, STR("</svg>\n<p class=\"key\">"));
    print_xml(out, ridges->row_label);
    buf_add_str(out, STR("</p></figure>\n"));
}

/* ---- sparklines ------------------------------------------------------------------------------ */

void bench_spark_print(struct buf *out, const char *label, const double *y, size_t n, double hue) {
    double most = 0;
    for (size_t i = 0; i < n; i++) {
        most = fmax(most, y[i]);
    }
    if (n < 2 || most <= 0) {
        return;
    }
    buf_printf(out, "<svg class=\"spark\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"",
               SPARK_WIDTH, SPARK_HEIGHT);
    print_xml(out, label);
    buf_printf(out, "\" style=\"--hue:%.0f\"><path class=\"line\" d=\"", hue);
    for (size_t i = 0; i < n; i++) {
        buf_printf(out, "%c%.1f %.1f", i > 0 ? 'L' : 'M',
                   1 + (double)i * (SPARK_WIDTH - 2) / (double)(n - 1),
                   SPARK_HEIGHT - 2 - y[i] / most * (SPARK_HEIGHT - 4));
    }
    buf_add_str(out, STR("\"/></svg>"));
}
