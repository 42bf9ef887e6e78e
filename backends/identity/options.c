/* Parses the parameters of config.pbtxt. Values are text and parsed strictly: an unexpected one
 * fails the load with a text that says what is expected. */
#include "identity/identity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DELAY_US = 60000000, MAX_CREATION_DELAY_S = 600, MAX_RESPONSES = 1000 };

/* Parses decimal digits up to `max`. */
static int number_parse(const char *text, size_t n_bytes, uint64_t max, uint64_t *value) {
    uint64_t sum = 0;
    for (size_t i = 0; i < n_bytes; i++) {
        if (text[i] < '0' || text[i] > '9') {
            return 0;
        }
        sum = sum * 10 + (uint64_t)(text[i] - '0');
        if (sum > max) { /* max is far below UINT64_MAX / 10: no overflow */
            return 0;
        }
    }
    *value = sum;
    return n_bytes > 0;
}

static sluice_status number_read(const sluice_param *param, uint64_t min, uint64_t max,
                                 uint64_t *value, sluice_error *error) {
    if (number_parse(param->string, param->string_bytes, max, value) && *value >= min) {
        return SLUICE_OK;
    }
    snprintf(error->text, sizeof(error->text),
             "parameter %s: expected a whole number from %llu to %llu, got \"%.80s\"", param->name,
             (unsigned long long)min, (unsigned long long)max, param->string);
    return SLUICE_INVALID_ARGUMENT;
}

static sluice_status flag_read(const sluice_param *param, int *value, sluice_error *error) {
    *value = strcmp(param->string, "true") == 0;
    if (*value || strcmp(param->string, "false") == 0) {
        return SLUICE_OK;
    }
    snprintf(error->text, sizeof(error->text),
             "parameter %s: expected \"true\" or \"false\", got \"%.80s\"", param->name,
             param->string);
    return SLUICE_INVALID_ARGUMENT;
}

static sluice_status respond_from_read(const sluice_param *param, struct options *options,
                                       sluice_error *error) {
    options->from_thread = strcmp(param->string, "thread") == 0;
    if (options->from_thread || strcmp(param->string, "execute") == 0) {
        return SLUICE_OK;
    }
    snprintf(error->text, sizeof(error->text),
             "parameter %s: expected \"execute\" or \"thread\", got \"%.80s\"", param->name,
             param->string);
    return SLUICE_INVALID_ARGUMENT;
}

static sluice_status fail_read(const sluice_param *param, struct options *options,
                               sluice_error *error) {
    free(options->fail); /* an earlier parameter of the same key */
    options->fail = strdup(param->string);
    if (!options->fail) {
        snprintf(error->text, sizeof(error->text), "out of memory for parameter %s", param->name);
        return SLUICE_NO_MEMORY;
    }
    return SLUICE_OK;
}

static void warn_of_unknown(const sluice_model_args *args, const sluice_param *param,
                            const sluice_host *host) {
    char text[320];
    if (strncmp(param->name, "sluice.", 7) == 0) { /* a parameter of the server */
        return;
    }
    snprintf(text, sizeof(text),
             "parameter %.80s is unknown to the identity backend and ignored (it knows "
             "creation_delay_sec, delay_us, echo_parameters, execute_delay_ms, fail, "
             "interval_us, respond_from, responses, responses_by_request and end_apart)",
             param->name);
    host->log(SLUICE_LOG_WARNING, args->name, text);
}

static sluice_status param_read(struct options *options, const sluice_model_args *args,
                                const sluice_param *param, const sluice_host *host,
                                sluice_error *error) {
    if (strcmp(param->name, "delay_us") == 0) {
        return number_read(param, 0, MAX_DELAY_US, &options->delay_us, error);
    }
    if (strcmp(param->name, "execute_delay_ms") == 0) { /* Triton's name */
        sluice_status status =
            number_read(param, 0, MAX_DELAY_US / 1000, &options->delay_us, error);
        options->delay_us *= 1000;
        return status;
    }
    if (strcmp(param->name, "creation_delay_sec") == 0) { /* Triton's name */
        return number_read(param, 0, MAX_CREATION_DELAY_S, &options->creation_delay_s, error);
    }
    if (strcmp(param->name, "interval_us") == 0) {
        return number_read(param, 0, MAX_DELAY_US, &options->interval_us, error);
    }
    if (strcmp(param->name, "responses") == 0) {
        return number_read(param, 1, MAX_RESPONSES, &options->n_responses, error);
    }
    if (strcmp(param->name, "responses_by_request") == 0) {
        return flag_read(param, &options->by_request, error);
    }
    if (strcmp(param->name, "end_apart") == 0) {
        return flag_read(param, &options->end_apart, error);
    }
    if (strcmp(param->name, "respond_from") == 0) {
        return respond_from_read(param, options, error);
    }
    if (strcmp(param->name, "echo_parameters") == 0) {
        return flag_read(param, &options->echo_params, error);
    }
    if (strcmp(param->name, "fail") == 0) {
        return fail_read(param, options, error);
    }
    warn_of_unknown(args, param, host);
    return SLUICE_OK;
}

sluice_status options_init(struct options *options, const sluice_model_args *args,
                           const sluice_host *host, sluice_error *error) {
    *options = (struct options){.n_responses = 1};
    for (size_t i = 0; i < args->n_params; i++) {
        sluice_status status = param_read(options, args, &args->params[i], host, error);
        if (status != SLUICE_OK) {
            options_fini(options);
            return status;
        }
    }
    return SLUICE_OK;
}

void options_fini(struct options *options) {
    free(options->fail);
    options->fail = NULL;
}
