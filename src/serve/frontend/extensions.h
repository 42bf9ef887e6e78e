/* The extensions that the server metadata lists, over every protocol. */
#ifndef SLUICE_SERVE_FRONTEND_EXTENSIONS_H
#define SLUICE_SERVE_FRONTEND_EXTENSIONS_H

#include <stddef.h>

static const char *const EXTENSIONS[] = {"classification",
                                         "model_repository",
                                         "model_repository(unload_dependents)",
                                         "model_configuration",
                                         "binary_tensor_data",
                                         "parameters",
                                         "statistics",
                                         "logging",
                                         "trace",
                                         "system_shared_memory",
                                         "sequence",
                                         "schedule_policy",
                                         NULL};

#endif
