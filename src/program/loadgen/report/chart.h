/* Charts as inline SVG: lines over two axes, rows of distributions, and sparklines. Colours come
 * from the page's style, for light and dark mode. */
#ifndef SLUICE_PROGRAM_LOADGEN_REPORT_CHART_H
#define SLUICE_PROGRAM_LOADGEN_REPORT_CHART_H

#include "core/base/buf.h"
#include "program/loadgen/report/scale.h"

/* A line with a name. Colours are hues, 0 to 360. */
struct bench_series {
    const char *name;
    double hue;
    const double *x, *y;
    size_t n;
    bool dots; /* draw points, with their value as a tooltip */
};

/* A labelled mark on the x axis. */
struct bench_mark {
    double at;
    char text[16];
};

struct bench_chart {
    const char *title, *x_label; /* the title names the unit of y */
    struct bench_scale x, y;
    const struct bench_mark *marks; /* of the x axis; NULL: its ticks */
    size_t n_marks;
    const struct bench_series *series;
    size_t n_series;
};

/* Prints a <figure>: title, drawing, and a legend if there are several lines. */
void bench_chart_print(struct buf *out, const struct bench_chart *chart);

/* One row of a chart of distributions: heights from 0 to 1 over equal parts of the axis. */
struct bench_ridge {
    const char *name;
    double hue;
    const double *heights;
    size_t n;
    double middle, high; /* marked positions: the median and p99 */
};

struct bench_ridges {
    const char *title, *x_label, *row_label;
    struct bench_scale x;
    const struct bench_ridge *rows;
    size_t n_rows;
};
void bench_ridges_print(struct buf *out, const struct bench_ridges *ridges);

/* Prints a sparkline: no axes, 0 at the bottom. `label` describes it. */
void bench_spark_print(struct buf *out, const char *label, const double *y, size_t n, double hue);

/* Prints text as XML: special characters are escaped, invalid ones replaced by '?'. */
void bench_xml_print(struct buf *out, struct str text);

#endif
