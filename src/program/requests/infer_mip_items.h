/* The items of a MIP request from the arguments of `sluice infer`: --image, --text and --json, in
 * the order in which they were given. */
#ifndef SLUICE_PROGRAM_REQUESTS_INFER_MIP_ITEMS_H
#define SLUICE_PROGRAM_REQUESTS_INFER_MIP_ITEMS_H

#include "program/requests/infer_settings.h"
#include "sluice/client_mip.h"

struct infer_items {
    sluice_mip_item *items;
    const char **files; /* per item: the file with its bytes; NULL: the argument or standard
                           input */
    size_t n;           /* n_inputs x batch */
    uint32_t n_inputs;
    uint32_t batch;
};

/* The flags that name items, of any command. */
struct infer_item_flags {
    const struct option_texts *images, *texts, *jsons;
    const char *json_flag; /* the name of the JSON flag */
    uint64_t n_inputs, max_input_size;
};

/* Checks that the number of items is a multiple of `n_inputs`. Returns: ST_BAD_CONFIG. */
enum status infer_items_check_count(size_t n_items, uint64_t n_inputs,
                                    struct error *err) SLUICE_MUST_USE;
/* Reads the sources. Returns: ST_BAD_CONFIG for an invalid item (text that is not UTF-8, invalid
 * JSON, an empty picture), and the errors of file_read, with flag and source. Owns: in `arena`,
 * argv. */
enum status infer_items_read(struct arena *arena, const struct infer_settings *settings,
                             struct infer_items *out, struct error *err) SLUICE_MUST_USE;
/* As infer_items_read, for a command with settings of its own. */
enum status infer_items_collect(struct arena *arena, const struct infer_item_flags *flags,
                                struct infer_items *out, struct error *err) SLUICE_MUST_USE;

#endif
