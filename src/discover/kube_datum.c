/* A watched file, of which the text is kept. */
#include "discover/kube_datum.h"

#include <stdlib.h>

#include "base/log.h"

static void forget(struct kube_datum *datum) {
    if (datum->text) {
        secret_wipe(datum->text, datum->len);
        free(datum->text);
    }
    datum->text = NULL;
    datum->len = 0;
}

enum status kube_datum_set(struct kube_datum *datum, struct str text, struct error *err) {
    char *copy = str_dup(text);
    if (!copy) {
        return error_set(err, ST_NO_MEMORY, "no memory for a token, or a certificate");
    }
    forget(datum);
    datum->text = copy;
    datum->len = text.len;
    return ST_OK;
}

static struct str trimmed(struct str text) {
    while (text.len > 0 && (unsigned char)text.ptr[text.len - 1] <= ' ') {
        text.len--;
    }
    while (text.len > 0 && (unsigned char)text.ptr[0] <= ' ') {
        text = str_make(text.ptr + 1, text.len - 1);
    }
    return text;
}

static enum status take(struct kube_datum *datum, bool word, struct error *err) {
    struct str text = watched_file_text(&datum->file);
    text = word ? trimmed(text) : text;
    if (text.len == 0) {
        return error_set(err, ST_IO, "there is nothing in it");
    }
    return kube_datum_set(datum, text, err);
}

enum status kube_datum_look(struct kube_datum *datum, bool word, struct error *err) {
    bool changed = false;
    if (!datum->path) {
        return ST_OK;
    }
    datum->file.path = datum->path;
    enum status status = watched_file_read(&datum->file, &changed, err);
    if (status == ST_OK && (changed || !datum->text)) {
        status = take(datum, word, err);
    }
    watched_file_drop(&datum->file);
    if (status == ST_OK) {
        return ST_OK;
    }
    if (changed && datum->text) {
        log_event(LOG_WARNING, "a file for the API server can't be read: what it held is used",
                  LOG_TEXT_OF("file", datum->path), LOG_TEXT_OF("reason", err->text));
    }
    error_prefix(err, "%s", datum->path);
    return datum->text ? ST_OK : status;
}

void kube_datum_fini(struct kube_datum *datum) {
    forget(datum);
    watched_file_drop(&datum->file);
    free(datum->path);
    *datum = (struct kube_datum){.path = NULL};
}
