/* Values are texts of config.pbtxt, and checked strictly. Parameters that the backend does not know
 * are the model's own: it gets them with its configuration. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/text.h"
#include "python/model.h"

enum { MAX_SECONDS = 86400, MAX_MB = 1 << 24, MAX_THREADS = 4096 };

static sluice_status number_read(const sluice_param *param, uint64_t min, uint64_t max,
                                 uint64_t *value, sluice_error *error) {
    uint64_t sum = 0;
    int ok = param->string_bytes > 0;
    for (size_t i = 0; i < param->string_bytes && ok; i++) {
        ok = param->string[i] >= '0' && param->string[i] <= '9' && sum <= max;
        sum = sum * 10 + (uint64_t)(param->string[i] - '0');
    }
    if (!ok || sum < min || sum > max) {
        return error_set(error, SLUICE_INVALID_ARGUMENT,
                         "parameter %s: expected a whole number from %llu to %llu, got \"%.80s\"",
                         param->name, (unsigned long long)min, (unsigned long long)max,
                         param->string);
    }
    *value = sum;
    return SLUICE_OK;
}

static sluice_status seconds_read(const sluice_param *param, uint64_t min, int *value,
                                  sluice_error *error) {
    uint64_t number = 0;
    sluice_status status = number_read(param, min, MAX_SECONDS, &number, error);
    *value = status == SLUICE_OK ? (int)number : *value;
    return status;
}

static sluice_status text_read(const sluice_param *param, char **value, sluice_error *error) {
    free(*value); /* an earlier parameter of the same key */
    *value = strdup(param->string);
    return *value ? SLUICE_OK : error_no_memory(error, "parameter %s", param->name);
}

static sluice_status param_read(struct options *options, const sluice_param *param,
                                sluice_error *error) {
    if (strcmp(param->name, "python") == 0) {
        return text_read(param, &options->of_model, error);
    }
    if (strcmp(param->name, "EXECUTION_ENV_PATH") == 0) {
        return text_read(param, &options->of_env, error);
    }
    if (strcmp(param->name, "default-python") == 0) {
        return text_read(param, &options->of_server, error);
    }
    if (strcmp(param->name, "start_timeout_s") == 0) {
        return seconds_read(param, 1, &options->start_timeout_s, error);
    }
    if (strcmp(param->name, "execute_timeout_s") == 0) {
        return seconds_read(param, 0, &options->execute_timeout_s, error);
    }
    if (strcmp(param->name, "finalize_timeout_s") == 0) {
        return seconds_read(param, 0, &options->finalize_timeout_s, error);
    }
    if (strcmp(param->name, "threads") == 0) {
        uint64_t number = 0;
        sluice_status status = number_read(param, 0, MAX_THREADS, &number, error);
        options->n_threads = (int)number;
        return status;
    }
    if (strcmp(param->name, "env_cache") == 0) {
        return text_read(param, &options->env_cache, error);
    }
    if (strcmp(param->name, "env_max_mb") == 0) {
        return number_read(param, 1, MAX_MB, &options->env_max_mb, error);
    }
    if (strcmp(param->name, "memory_limit_mb") == 0) {
        return number_read(param, 0, MAX_MB, &options->memory_limit_mb, error);
    }
    return SLUICE_OK;
}

sluice_status options_init(struct options *options, const sluice_model_args *args,
                           sluice_error *error) {
    *options =
        (struct options){.start_timeout_s = 120, .finalize_timeout_s = 30, .env_max_mb = 16384};
    for (size_t i = 0; i < args->n_params; i++) {
        sluice_status status = param_read(options, &args->params[i], error);
        if (status != SLUICE_OK) {
            options_fini(options);
            return status;
        }
    }
    return SLUICE_OK;
}

void options_fini(struct options *options) {
    free(options->of_model);
    free(options->of_env);
    free(options->of_server);
    free(options->env_cache);
    *options = (struct options){0};
}
