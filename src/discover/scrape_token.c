/* A watched file, of which the text is kept. */
#include "discover/scrape_token.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"

enum { TOKEN_BYTES = 8192 };

static void forget(struct scrape_token *token) {
    if (token->text) {
        secret_wipe(token->text, strlen(token->text));
        free(token->text);
        token->text = NULL;
    }
}

static void take(struct scrape_token *token, struct str text) {
    while (text.len > 0 && (unsigned char)text.ptr[text.len - 1] <= ' ') {
        text.len--;
    }
    while (text.len > 0 && (unsigned char)text.ptr[0] <= ' ') {
        text = str_make(text.ptr + 1, text.len - 1);
    }
    forget(token);
    if (text.len > 0 && text.len < TOKEN_BYTES) {
        token->text = str_dup(text);
    }
}

/* A token is for who asks for that file: of another file nothing stays. */
static void follow_path(struct scrape_token *token, struct str path) {
    if (path.len > 0 && token->path && str_is(path, token->path)) {
        return;
    }
    scrape_token_fini(token);
    if (path.len > 0) {
        token->path = str_dup(path);
        token->file.path = token->path;
    }
}

void scrape_token_look(struct scrape_token *token, struct str path) {
    struct watched_file *file = &token->file;
    bool changed = false;
    struct error err;
    follow_path(token, path);
    if (!token->path) {
        return;
    }
    if (watched_file_read(file, &changed, &err) == ST_OK) {
        if (changed) {
            take(token, watched_file_text(file));
        }
    } else if (changed) {
        log_event(LOG_WARNING, "the token for endpoints' metrics can't be read",
                  LOG_TEXT_OF("file", token->path), LOG_TEXT_OF("reason", err.text));
    }
    watched_file_drop(file);
}

void scrape_token_fini(struct scrape_token *token) {
    forget(token);
    free(token->path);
    *token = (struct scrape_token){.path = NULL};
}
