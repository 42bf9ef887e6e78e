/* Public functions that read the results of a call: each checks that the call is done, has such a
 * result, and that the caller's struct has a size. */
#include <string.h>

#include "client/call.h"
#include "client/sized_struct.h"

static bool has_result(const sluice_call *call, enum client_result result) {
    return call && call->kind->result == result &&
           (call->kind->next ? call->stream.has_answer : call->state == CLIENT_CALL_DONE);
}

static sluice_client_status write_out(void *out, const void *made, size_t n_known) {
    size_t n_given;
    memcpy(&n_given, out, sizeof(n_given));
    if (sized_struct_check(n_given, "", NULL) != ST_OK) {
        return SLUICE_CLIENT_INVALID;
    }
    sized_struct_write(out, made, n_known);
    return SLUICE_CLIENT_OK;
}

/* Gives element `index` of the `n` at `items`. */
static sluice_client_status write_element(void *out, const void *items, size_t n, size_t index,
                                          size_t n_known) {
    return index < n ? write_out(out, (const char *)items + index * n_known, n_known)
                     : SLUICE_CLIENT_NOT_FOUND;
}

/* ---- header fields --------------------------------------------------------------------------- */

sluice_client_status sluice_call_header(const sluice_call *call, size_t index, sluice_header *out) {
    return call && call->answer_headers
               ? write_element(out, call->answer_headers, call->n_answer_headers, index,
                               sizeof(*call->answer_headers))
               : SLUICE_CLIENT_INVALID;
}

sluice_client_status sluice_call_find_header(const sluice_call *call, const char *name,
                                             sluice_header *out) {
    if (!call || !name) {
        return SLUICE_CLIENT_INVALID;
    }
    size_t i = 0;
    while (i < call->n_answer_headers &&
           !str_eq_nocase(str_of(call->answer_headers[i].name), str_of(name))) {
        i++;
    }
    return sluice_call_header(call, i, out);
}

/* ---- health and metadata --------------------------------------------------------------------- */

sluice_client_status sluice_call_yes(const sluice_call *call, int32_t *yes) {
    if (!has_result(call, CLIENT_RESULT_YES)) {
        return SLUICE_CLIENT_INVALID;
    }
    *yes = call->result.yes;
    return SLUICE_CLIENT_OK;
}

sluice_client_status sluice_call_server(const sluice_call *call, sluice_server_metadata *out) {
    return has_result(call, CLIENT_RESULT_SERVER)
               ? write_out(out, &call->result.server, sizeof(call->result.server))
               : SLUICE_CLIENT_INVALID;
}

sluice_client_status sluice_call_model(const sluice_call *call, sluice_model_metadata *out) {
    const struct client_model *model = &call->result.model;
    return has_result(call, CLIENT_RESULT_MODEL) ? write_out(out, &model->info, sizeof(model->info))
                                                 : SLUICE_CLIENT_INVALID;
}

sluice_client_status sluice_call_model_input(const sluice_call *call, size_t index,
                                             sluice_tensor_spec *out) {
    if (!has_result(call, CLIENT_RESULT_MODEL)) {
        return SLUICE_CLIENT_INVALID;
    }
    const struct client_model *model = &call->result.model;
    return write_element(out, model->inputs, model->info.n_inputs, index, sizeof(*model->inputs));
}

sluice_client_status sluice_call_model_output(const sluice_call *call, size_t index,
                                              sluice_tensor_spec *out) {
    if (!has_result(call, CLIENT_RESULT_MODEL)) {
        return SLUICE_CLIENT_INVALID;
    }
    const struct client_model *model = &call->result.model;
    return write_element(out, model->outputs, model->info.n_outputs, index,
                         sizeof(*model->outputs));
}

sluice_client_status sluice_call_text(const sluice_call *call, const char **text, size_t *n_bytes) {
    if (!has_result(call, CLIENT_RESULT_TEXT)) {
        return SLUICE_CLIENT_INVALID;
    }
    struct str result = call->kind->next ? call->stream.text : call->result.text;
    *text = result.ptr;
    if (n_bytes) {
        *n_bytes = result.len;
    }
    return SLUICE_CLIENT_OK;
}

/* ---- inference ------------------------------------------------------------------------------- */

static const struct client_answer *answer_of(const sluice_call *call) {
    if (!has_result(call, CLIENT_RESULT_ANSWER)) {
        return NULL;
    }
    return call->kind->next ? &call->stream.answer : &call->result.answer;
}

sluice_client_status sluice_call_answer(const sluice_call *call, sluice_answer_info *out) {
    const struct client_answer *answer = answer_of(call);
    return answer ? write_out(out, &answer->info, sizeof(answer->info)) : SLUICE_CLIENT_INVALID;
}

sluice_client_status sluice_call_output(const sluice_call *call, size_t index, sluice_tensor *out) {
    const struct client_answer *answer = answer_of(call);
    return answer ? write_element(out, answer->outputs, answer->info.n_outputs, index,
                                  sizeof(*answer->outputs))
                  : SLUICE_CLIENT_INVALID;
}

sluice_client_status sluice_call_find_output(const sluice_call *call, const char *name,
                                             sluice_tensor *out) {
    const struct client_answer *answer = answer_of(call);
    if (!answer || !name) {
        return SLUICE_CLIENT_INVALID;
    }
    size_t i = 0;
    while (i < answer->info.n_outputs && strcmp(answer->outputs[i].name, name) != 0) {
        i++;
    }
    return sluice_call_output(call, i, out);
}

sluice_client_status sluice_call_param(const sluice_call *call, size_t index,
                                       sluice_parameter *out) {
    const struct client_answer *answer = answer_of(call);
    return answer ? write_element(out, answer->params, answer->info.n_params, index,
                                  sizeof(*answer->params))
                  : SLUICE_CLIENT_INVALID;
}

sluice_client_status sluice_call_find_param(const sluice_call *call, const char *name,
                                            sluice_parameter *out) {
    const struct client_answer *answer = answer_of(call);
    if (!answer || !name) {
        return SLUICE_CLIENT_INVALID;
    }
    size_t i = 0;
    while (i < answer->info.n_params && strcmp(answer->params[i].name, name) != 0) {
        i++;
    }
    return sluice_call_param(call, i, out);
}

/* ---- MIP ------------------------------------------------------------------------------------- */

sluice_client_status sluice_call_mip_answer(const sluice_call *call, sluice_mip_answer *out) {
    if (!has_result(call, CLIENT_RESULT_MIP)) {
        return SLUICE_CLIENT_INVALID;
    }
    const struct client_mip_answer *mip = &call->result.mip;
    const sluice_mip_answer made = {.size = sizeof(made),
                                    .n_inputs = mip->n_inputs,
                                    .n_outputs = mip->n_outputs,
                                    .batch = mip->batch};
    return write_out(out, &made, sizeof(made));
}

sluice_client_status sluice_call_mip_item(const sluice_call *call, size_t index,
                                          sluice_mip_item *out) {
    if (!has_result(call, CLIENT_RESULT_MIP)) {
        return SLUICE_CLIENT_INVALID;
    }
    const struct client_mip_answer *mip = &call->result.mip;
    return write_element(out, mip->items, (size_t)mip->batch * mip->n_outputs, index,
                         sizeof(*mip->items));
}
