/* Static assertions on the layout of the backend interface: a change of a size or offset would
 * break backends that are already compiled. New members go to the end of a struct and add rows
 * here; existing rows never change. For 64-bit machines. */
#include <assert.h>
#include <stddef.h>

#include "sluice/backend.h"

_Static_assert(sizeof(sluice_error) == 512, "sluice_error");
_Static_assert(offsetof(sluice_error, text) == 0, "sluice_error.text");

_Static_assert(sizeof(sluice_param) == 64, "sluice_param");
_Static_assert(offsetof(sluice_param, name) == 0, "sluice_param.name");
_Static_assert(offsetof(sluice_param, name_bytes) == 8, "sluice_param.name_bytes");
_Static_assert(offsetof(sluice_param, kind) == 16, "sluice_param.kind");
_Static_assert(offsetof(sluice_param, boolean) == 20, "sluice_param.boolean");
_Static_assert(offsetof(sluice_param, int64) == 24, "sluice_param.int64");
_Static_assert(offsetof(sluice_param, uint64) == 32, "sluice_param.uint64");
_Static_assert(offsetof(sluice_param, number) == 40, "sluice_param.number");
_Static_assert(offsetof(sluice_param, string) == 48, "sluice_param.string");
_Static_assert(offsetof(sluice_param, string_bytes) == 56, "sluice_param.string_bytes");

_Static_assert(sizeof(sluice_model_args) == 128, "sluice_model_args");
_Static_assert(offsetof(sluice_model_args, size) == 0, "sluice_model_args.size");
_Static_assert(offsetof(sluice_model_args, name) == 8, "sluice_model_args.name");
_Static_assert(offsetof(sluice_model_args, version) == 16, "sluice_model_args.version");
_Static_assert(offsetof(sluice_model_args, path) == 24, "sluice_model_args.path");
_Static_assert(offsetof(sluice_model_args, directory) == 32, "sluice_model_args.directory");
_Static_assert(offsetof(sluice_model_args, max_batch_size) == 40,
               "sluice_model_args.max_batch_size");
_Static_assert(offsetof(sluice_model_args, n_threads) == 48, "sluice_model_args.n_threads");
_Static_assert(offsetof(sluice_model_args, may_spin) == 52, "sluice_model_args.may_spin");
_Static_assert(offsetof(sluice_model_args, params) == 56, "sluice_model_args.params");
_Static_assert(offsetof(sluice_model_args, n_params) == 64, "sluice_model_args.n_params");
_Static_assert(offsetof(sluice_model_args, max_output_bytes) == 72,
               "sluice_model_args.max_output_bytes");
_Static_assert(offsetof(sluice_model_args, op_libraries) == 80, "sluice_model_args.op_libraries");
_Static_assert(offsetof(sluice_model_args, n_op_libraries) == 88,
               "sluice_model_args.n_op_libraries");
_Static_assert(offsetof(sluice_model_args, from_request) == 96, "sluice_model_args.from_request");
_Static_assert(offsetof(sluice_model_args, is_complete) == 100, "sluice_model_args.is_complete");
_Static_assert(offsetof(sluice_model_args, config_json) == 104, "sluice_model_args.config_json");
_Static_assert(offsetof(sluice_model_args, config_json_bytes) == 112,
               "sluice_model_args.config_json_bytes");
_Static_assert(offsetof(sluice_model_args, calls) == 120, "sluice_model_args.calls");

_Static_assert(sizeof(sluice_tensor_info) == 48, "sluice_tensor_info");
_Static_assert(offsetof(sluice_tensor_info, name) == 0, "sluice_tensor_info.name");
_Static_assert(offsetof(sluice_tensor_info, datatype) == 8, "sluice_tensor_info.datatype");
_Static_assert(offsetof(sluice_tensor_info, dims) == 16, "sluice_tensor_info.dims");
_Static_assert(offsetof(sluice_tensor_info, rank) == 24, "sluice_tensor_info.rank");
_Static_assert(offsetof(sluice_tensor_info, symbols) == 32, "sluice_tensor_info.symbols");
_Static_assert(offsetof(sluice_tensor_info, optional) == 40, "sluice_tensor_info.optional");

_Static_assert(sizeof(sluice_model_info) == 88, "sluice_model_info");
_Static_assert(offsetof(sluice_model_info, size) == 0, "sluice_model_info.size");
_Static_assert(offsetof(sluice_model_info, platform) == 8, "sluice_model_info.platform");
_Static_assert(offsetof(sluice_model_info, inputs) == 16, "sluice_model_info.inputs");
_Static_assert(offsetof(sluice_model_info, n_inputs) == 24, "sluice_model_info.n_inputs");
_Static_assert(offsetof(sluice_model_info, outputs) == 32, "sluice_model_info.outputs");
_Static_assert(offsetof(sluice_model_info, n_outputs) == 40, "sluice_model_info.n_outputs");
_Static_assert(offsetof(sluice_model_info, takes_any) == 48, "sluice_model_info.takes_any");
_Static_assert(offsetof(sluice_model_info, cheap) == 52, "sluice_model_info.cheap");
_Static_assert(offsetof(sluice_model_info, data_dependent) == 56,
               "sluice_model_info.data_dependent");
_Static_assert(offsetof(sluice_model_info, time_follows_shapes) == 60,
               "sluice_model_info.time_follows_shapes");
_Static_assert(offsetof(sluice_model_info, iterative) == 64, "sluice_model_info.iterative");
_Static_assert(offsetof(sluice_model_info, adds_config) == 68, "sluice_model_info.adds_config");
_Static_assert(offsetof(sluice_model_info, decoupled) == 72, "sluice_model_info.decoupled");
_Static_assert(offsetof(sluice_model_info, dynamic_batching) == 76,
               "sluice_model_info.dynamic_batching");
_Static_assert(offsetof(sluice_model_info, max_batch_size) == 80,
               "sluice_model_info.max_batch_size");

_Static_assert(sizeof(sluice_piece) == 16, "sluice_piece");
_Static_assert(offsetof(sluice_piece, data) == 0, "sluice_piece.data");
_Static_assert(offsetof(sluice_piece, n_bytes) == 8, "sluice_piece.n_bytes");

_Static_assert(sizeof(sluice_input) == 56, "sluice_input");
_Static_assert(offsetof(sluice_input, index) == 0, "sluice_input.index");
_Static_assert(offsetof(sluice_input, datatype) == 4, "sluice_input.datatype");
_Static_assert(offsetof(sluice_input, name) == 8, "sluice_input.name");
_Static_assert(offsetof(sluice_input, dims) == 16, "sluice_input.dims");
_Static_assert(offsetof(sluice_input, rank) == 24, "sluice_input.rank");
_Static_assert(offsetof(sluice_input, n_bytes) == 32, "sluice_input.n_bytes");
_Static_assert(offsetof(sluice_input, pieces) == 40, "sluice_input.pieces");
_Static_assert(offsetof(sluice_input, n_pieces) == 48, "sluice_input.n_pieces");

_Static_assert(sizeof(sluice_model_config) == 40, "sluice_model_config");
_Static_assert(offsetof(sluice_model_config, size) == 0, "sluice_model_config.size");
_Static_assert(offsetof(sluice_model_config, json) == 8, "sluice_model_config.json");
_Static_assert(offsetof(sluice_model_config, json_bytes) == 16, "sluice_model_config.json_bytes");
_Static_assert(offsetof(sluice_model_config, max_batch_size) == 24,
               "sluice_model_config.max_batch_size");
_Static_assert(offsetof(sluice_model_config, decoupled) == 32, "sluice_model_config.decoupled");

_Static_assert(sizeof(sluice_request) == 144, "sluice_request");
_Static_assert(offsetof(sluice_request, size) == 0, "sluice_request.size");
_Static_assert(offsetof(sluice_request, host) == 8, "sluice_request.host");
_Static_assert(offsetof(sluice_request, id) == 16, "sluice_request.id");
_Static_assert(offsetof(sluice_request, id_bytes) == 24, "sluice_request.id_bytes");
_Static_assert(offsetof(sluice_request, batch) == 32, "sluice_request.batch");
_Static_assert(offsetof(sluice_request, inputs) == 40, "sluice_request.inputs");
_Static_assert(offsetof(sluice_request, n_inputs) == 48, "sluice_request.n_inputs");
_Static_assert(offsetof(sluice_request, wanted) == 56, "sluice_request.wanted");
_Static_assert(offsetof(sluice_request, n_wanted) == 64, "sluice_request.n_wanted");
_Static_assert(offsetof(sluice_request, params) == 72, "sluice_request.params");
_Static_assert(offsetof(sluice_request, n_params) == 80, "sluice_request.n_params");
_Static_assert(offsetof(sluice_request, deadline_ns) == 88, "sluice_request.deadline_ns");
_Static_assert(offsetof(sluice_request, sequence_id) == 96, "sluice_request.sequence_id");
_Static_assert(offsetof(sluice_request, sequence_name) == 104, "sluice_request.sequence_name");
_Static_assert(offsetof(sluice_request, sequence_name_bytes) == 112,
               "sluice_request.sequence_name_bytes");
_Static_assert(offsetof(sluice_request, sequence_flags) == 120, "sluice_request.sequence_flags");
_Static_assert(offsetof(sluice_request, priority) == 128, "sluice_request.priority");
_Static_assert(offsetof(sluice_request, timeout_us) == 136, "sluice_request.timeout_us");

_Static_assert(sizeof(sluice_output) == 40, "sluice_output");
_Static_assert(offsetof(sluice_output, index) == 0, "sluice_output.index");
_Static_assert(offsetof(sluice_output, datatype) == 4, "sluice_output.datatype");
_Static_assert(offsetof(sluice_output, dims) == 8, "sluice_output.dims");
_Static_assert(offsetof(sluice_output, rank) == 16, "sluice_output.rank");
_Static_assert(offsetof(sluice_output, data) == 24, "sluice_output.data");
_Static_assert(offsetof(sluice_output, n_bytes) == 32, "sluice_output.n_bytes");

_Static_assert(sizeof(sluice_response) == 88, "sluice_response");
_Static_assert(offsetof(sluice_response, size) == 0, "sluice_response.size");
_Static_assert(offsetof(sluice_response, status) == 8, "sluice_response.status");
_Static_assert(offsetof(sluice_response, error) == 16, "sluice_response.error");
_Static_assert(offsetof(sluice_response, outputs) == 24, "sluice_response.outputs");
_Static_assert(offsetof(sluice_response, n_outputs) == 32, "sluice_response.n_outputs");
_Static_assert(offsetof(sluice_response, params) == 40, "sluice_response.params");
_Static_assert(offsetof(sluice_response, n_params) == 48, "sluice_response.n_params");
_Static_assert(offsetof(sluice_response, final) == 56, "sluice_response.final");
_Static_assert(offsetof(sluice_response, release) == 64, "sluice_response.release");
_Static_assert(offsetof(sluice_response, cookie) == 72, "sluice_response.cookie");
_Static_assert(offsetof(sluice_response, run_again) == 80, "sluice_response.run_again");

_Static_assert(sizeof(sluice_host) == 104, "sluice_host");
_Static_assert(offsetof(sluice_host, size) == 0, "sluice_host.size");
_Static_assert(offsetof(sluice_host, abi) == 8, "sluice_host.abi");
_Static_assert(offsetof(sluice_host, respond) == 16, "sluice_host.respond");
_Static_assert(offsetof(sluice_host, is_cancelled) == 24, "sluice_host.is_cancelled");
_Static_assert(offsetof(sluice_host, log) == 32, "sluice_host.log");
_Static_assert(offsetof(sluice_host, now_ns) == 40, "sluice_host.now_ns");
_Static_assert(offsetof(sluice_host, computed) == 48, "sluice_host.computed");
_Static_assert(offsetof(sluice_host, metric_family_open) == 56, "sluice_host.metric_family_open");
_Static_assert(offsetof(sluice_host, metric_family_close) == 64, "sluice_host.metric_family_close");
_Static_assert(offsetof(sluice_host, metric_open) == 72, "sluice_host.metric_open");
_Static_assert(offsetof(sluice_host, metric_close) == 80, "sluice_host.metric_close");
_Static_assert(offsetof(sluice_host, metric_change) == 88, "sluice_host.metric_change");
_Static_assert(offsetof(sluice_host, metric_value) == 96, "sluice_host.metric_value");

_Static_assert(sizeof(sluice_backend) == 104, "sluice_backend");
_Static_assert(offsetof(sluice_backend, size) == 0, "sluice_backend.size");
_Static_assert(offsetof(sluice_backend, abi) == 8, "sluice_backend.abi");
_Static_assert(offsetof(sluice_backend, name) == 16, "sluice_backend.name");
_Static_assert(offsetof(sluice_backend, version) == 24, "sluice_backend.version");
_Static_assert(offsetof(sluice_backend, extensions) == 32, "sluice_backend.extensions");
_Static_assert(offsetof(sluice_backend, model_open) == 40, "sluice_backend.model_open");
_Static_assert(offsetof(sluice_backend, model_describe) == 48, "sluice_backend.model_describe");
_Static_assert(offsetof(sluice_backend, model_close) == 56, "sluice_backend.model_close");
_Static_assert(offsetof(sluice_backend, instance_open) == 64, "sluice_backend.instance_open");
_Static_assert(offsetof(sluice_backend, instance_close) == 72, "sluice_backend.instance_close");
_Static_assert(offsetof(sluice_backend, execute) == 80, "sluice_backend.execute");
_Static_assert(offsetof(sluice_backend, model_configured) == 88, "sluice_backend.model_configured");
_Static_assert(offsetof(sluice_backend, model_is_ready) == 96, "sluice_backend.model_is_ready");

_Static_assert(sizeof(sluice_status) == 4, "sluice_status");
_Static_assert(sizeof(sluice_datatype) == 4, "sluice_datatype");
_Static_assert(sizeof(sluice_log_level) == 4, "sluice_log_level");
_Static_assert(sizeof(sluice_param_kind) == 4, "sluice_param_kind");

_Static_assert(sizeof(sluice_call_response) == 72, "sluice_call_response");
_Static_assert(offsetof(sluice_call_response, size) == 0, "sluice_call_response.size");
_Static_assert(offsetof(sluice_call_response, status) == 8, "sluice_call_response.status");
_Static_assert(offsetof(sluice_call_response, error) == 16, "sluice_call_response.error");
_Static_assert(offsetof(sluice_call_response, outputs) == 24, "sluice_call_response.outputs");
_Static_assert(offsetof(sluice_call_response, n_outputs) == 32, "sluice_call_response.n_outputs");
_Static_assert(offsetof(sluice_call_response, params) == 40, "sluice_call_response.params");
_Static_assert(offsetof(sluice_call_response, n_params) == 48, "sluice_call_response.n_params");
_Static_assert(offsetof(sluice_call_response, final) == 56, "sluice_call_response.final");
_Static_assert(offsetof(sluice_call_response, backend) == 64, "sluice_call_response.backend");

_Static_assert(sizeof(sluice_call_args) == 168, "sluice_call_args");
_Static_assert(offsetof(sluice_call_args, size) == 0, "sluice_call_args.size");
_Static_assert(offsetof(sluice_call_args, parent) == 8, "sluice_call_args.parent");
_Static_assert(offsetof(sluice_call_args, model) == 16, "sluice_call_args.model");
_Static_assert(offsetof(sluice_call_args, version) == 24, "sluice_call_args.version");
_Static_assert(offsetof(sluice_call_args, id) == 32, "sluice_call_args.id");
_Static_assert(offsetof(sluice_call_args, inputs) == 40, "sluice_call_args.inputs");
_Static_assert(offsetof(sluice_call_args, n_inputs) == 48, "sluice_call_args.n_inputs");
_Static_assert(offsetof(sluice_call_args, wanted) == 56, "sluice_call_args.wanted");
_Static_assert(offsetof(sluice_call_args, n_wanted) == 64, "sluice_call_args.n_wanted");
_Static_assert(offsetof(sluice_call_args, params) == 72, "sluice_call_args.params");
_Static_assert(offsetof(sluice_call_args, n_params) == 80, "sluice_call_args.n_params");
_Static_assert(offsetof(sluice_call_args, sequence_id) == 88, "sluice_call_args.sequence_id");
_Static_assert(offsetof(sluice_call_args, sequence_name) == 96, "sluice_call_args.sequence_name");
_Static_assert(offsetof(sluice_call_args, sequence_flags) == 104,
               "sluice_call_args.sequence_flags");
_Static_assert(offsetof(sluice_call_args, priority) == 112, "sluice_call_args.priority");
_Static_assert(offsetof(sluice_call_args, timeout_us) == 120, "sluice_call_args.timeout_us");
_Static_assert(offsetof(sluice_call_args, takes_many) == 128, "sluice_call_args.takes_many");
_Static_assert(offsetof(sluice_call_args, waits) == 132, "sluice_call_args.waits");
_Static_assert(offsetof(sluice_call_args, why) == 136, "sluice_call_args.why");
_Static_assert(offsetof(sluice_call_args, respond) == 144, "sluice_call_args.respond");
_Static_assert(offsetof(sluice_call_args, ended) == 152, "sluice_call_args.ended");
_Static_assert(offsetof(sluice_call_args, user) == 160, "sluice_call_args.user");

_Static_assert(sizeof(sluice_model_file) == 24, "sluice_model_file");
_Static_assert(offsetof(sluice_model_file, path) == 0, "sluice_model_file.path");
_Static_assert(offsetof(sluice_model_file, data) == 8, "sluice_model_file.data");
_Static_assert(offsetof(sluice_model_file, n_bytes) == 16, "sluice_model_file.n_bytes");

_Static_assert(sizeof(sluice_model_change) == 72, "sluice_model_change");
_Static_assert(offsetof(sluice_model_change, size) == 0, "sluice_model_change.size");
_Static_assert(offsetof(sluice_model_change, action) == 8, "sluice_model_change.action");
_Static_assert(offsetof(sluice_model_change, model) == 16, "sluice_model_change.model");
_Static_assert(offsetof(sluice_model_change, config) == 24, "sluice_model_change.config");
_Static_assert(offsetof(sluice_model_change, files) == 32, "sluice_model_change.files");
_Static_assert(offsetof(sluice_model_change, n_files) == 40, "sluice_model_change.n_files");
_Static_assert(offsetof(sluice_model_change, unload_dependents) == 48,
               "sluice_model_change.unload_dependents");
_Static_assert(offsetof(sluice_model_change, done) == 56, "sluice_model_change.done");
_Static_assert(offsetof(sluice_model_change, user) == 64, "sluice_model_change.user");

_Static_assert(sizeof(sluice_calls) == 56, "sluice_calls");
_Static_assert(offsetof(sluice_calls, size) == 0, "sluice_calls.size");
_Static_assert(offsetof(sluice_calls, start) == 8, "sluice_calls.start");
_Static_assert(offsetof(sluice_calls, cancel) == 16, "sluice_calls.cancel");
_Static_assert(offsetof(sluice_calls, unref) == 24, "sluice_calls.unref");
_Static_assert(offsetof(sluice_calls, release) == 32, "sluice_calls.release");
_Static_assert(offsetof(sluice_calls, is_ready) == 40, "sluice_calls.is_ready");
_Static_assert(offsetof(sluice_calls, change) == 48, "sluice_calls.change");
