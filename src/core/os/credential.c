/* A watched file whose text is kept. */
#include "core/os/credential.h"

#include <stdlib.h>

#include "core/base/log.h"

static void credential_clear_text(struct credential *credential) {
    if (credential->text) {
        secret_wipe(credential->text, credential->len);
        free(credential->text);
    }
    credential->text = NULL;
    credential->len = 0;
}

enum status credential_set(struct credential *credential, struct str text, struct error *err) {
    char *copy = str_dup(text);
    if (!copy) {
        return error_no_memory(err, "a token or certificate");
    }
    credential_clear_text(credential);
    credential->text = copy;
    credential->len = text.len;
    return ST_OK;
}

bool credential_set_file(struct credential *credential, struct str path) {
    if (path.len > 0 && credential->path && str_is(path, credential->path)) {
        return true;
    }
    credential_fini(credential);
    credential->path = path.len > 0 ? str_dup(path) : NULL;
    return path.len == 0 || credential->path;
}

static struct str trim_spaces(struct str text) {
    while (text.len > 0 && (unsigned char)text.ptr[text.len - 1] <= ' ') {
        text.len--;
    }
    while (text.len > 0 && (unsigned char)text.ptr[0] <= ' ') {
        text = str_make(text.ptr + 1, text.len - 1);
    }
    return text;
}

enum status credential_refresh(struct credential *credential, bool trim, struct error *err) {
    bool changed = false;
    if (!credential->path) {
        return ST_OK;
    }
    credential->file.path = credential->path;
    enum status status = watched_file_read(&credential->file, &changed, err);
    if (status == ST_OK && (changed || !credential->text)) {
        struct str text = watched_file_text(&credential->file);
        text = trim ? trim_spaces(text) : text;
        status = text.len > 0 ? credential_set(credential, text, err)
                              : error_set(err, ST_IO, "the file is empty");
    }
    watched_file_clear(&credential->file);
    if (status == ST_OK) {
        return ST_OK;
    }
    if (changed) {
        log_event(LOG_WARNING,
                  credential->text ? "reading a credential file failed: its last content is used"
                                   : "reading a credential file failed",
                  LOG_CSTR("file", credential->path), LOG_CSTR("reason", err->text));
    }
    error_prefix(err, "%s", credential->path);
    return credential->text ? ST_OK : status;
}

void credential_fini(struct credential *credential) {
    credential_clear_text(credential);
    watched_file_clear(&credential->file);
    free(credential->path);
    *credential = (struct credential){.path = NULL};
}
