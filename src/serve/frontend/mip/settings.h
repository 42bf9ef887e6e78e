/* The MIP settings of a model, which control how items become tensors and back: its parameters that
 * begin with "mip.", from config.pbtxt or the server's own settings.
 *
 *     mip.SETTING           for every input (output)
 *     mip.TENSOR.SETTING    for that one; it takes precedence
 *
 * of an input, for pictures
 *     color   grey, rgb or bgr; by default from the number of channels (3: rgb)
 *     fit     stretch (default), crop or pad
 *     filter  nearest, bilinear, bicubic or lanczos; by default auto, as Pillow's resize: nearest
 *             for a picture with a palette or one bit per pixel, else bicubic
 *     scale   a factor: "0.5", "1/255"; 1 by default
 *     mean    one number, or three: subtracted after scaling; 0 by default
 *     std     the same: divided by after that; 1 by default
 *     layout  nchw, nhwc or auto (default): from the shape
 *     size    WIDTHxHEIGHT, or one number for both, where the shape has -1
 *     pad     0 to 255: the border of a padded picture; 0 by default
 * of an output
 *     softmax true or false (default), over all values of an element
 *     top_k   N: a JSON object of the N greatest values, greatest first; 0 (default): all values
 *     labels  a file with one label per line; by default the output's label_filename */
#ifndef SLUICE_SERVE_FRONTEND_MIP_SETTINGS_H
#define SLUICE_SERVE_FRONTEND_MIP_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/status.h"
#include "core/tensor/tensor.h"
#include "serve/config/config.h"
#include "serve/picture/picture.h"

enum mip_layout { MIP_LAYOUT_AUTO, MIP_LAYOUT_NCHW, MIP_LAYOUT_NHWC };

/* One number for every channel, or three. */
struct mip_per_channel {
    double values[PICTURE_MAX_CHANNELS];
    size_t n;
};

/* The settings of one tensor; an input uses the upper half, an output the lower. */
struct mip_settings {
    bool given;         /* a setting is given for it, or for all */
    const char *prefix; /* of the settings' names in errors: "mip." */
    struct str own_key; /* the parameter that names this tensor; ptr NULL: none */

    bool has_color;
    enum picture_color color;
    enum picture_fit fit;
    enum picture_filter filter;
    double scale;
    struct mip_per_channel mean, std;
    enum mip_layout layout;
    uint32_t width, height; /* 0: not set */
    uint8_t pad;

    bool softmax;
    uint32_t top_k;        /* 0: all values */
    struct str labels;     /* ptr NULL: not set */
    bool labels_by_server; /* set by the server's own settings: may be any path */
};

/* The largest top_k. */
enum { MIP_TOP_K_MAX = 1000 };

/* Parses all parameters of `config` that begin with "mip." into one struct for each input and
 * output of `spec`. Returns: ST_BAD_CONFIG with the parameter, the expected value and the nearest
 * valid name. Texts are views of `config`. */
enum status mip_settings_read(const struct model_config *config, const struct model_spec *spec,
                              struct mip_settings *inputs, struct mip_settings *outputs,
                              struct error *err) SLUICE_MUST_USE;

/* The names of the values, for messages and --check. */
const char *mip_color_name(enum picture_color color);
const char *mip_fit_name(enum picture_fit fit);
const char *mip_filter_name(enum picture_filter filter);

/* The parsers of the values, one for each setting, from text to the fields of struct mip_settings.
 * An error has the expected and the actual value; the caller adds the parameter. Returns:
 * ST_BAD_CONFIG. */
typedef enum status mip_value_read(struct str value, struct mip_settings *out, struct error *err);

mip_value_read mip_value_color, mip_value_fit, mip_value_filter, mip_value_scale, mip_value_mean,
    mip_value_std, mip_value_layout, mip_value_size, mip_value_pad, mip_value_softmax,
    mip_value_top_k, mip_value_labels;

#endif
