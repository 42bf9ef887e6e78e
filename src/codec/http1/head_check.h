/* The rules for a request's head as a whole, which llhttp does not check: for request.c; and for
 * tokens, such as the names of fields and cookies. */
#ifndef SLUICE_CODEC_HTTP1_HEAD_CHECK_H
#define SLUICE_CODEC_HTTP1_HEAD_CHECK_H

#include <stdbool.h>

#include "codec/http1/request.h"
#include "core/base/status.h"
#include "core/base/str.h"

/* RFC 9110, 5.6.2: tchar. */
bool http1_is_token_char(char c);
/* The same for all of a text that is not empty. */
bool http1_is_token(struct str text);

/* Returns: ST_METHOD_NOT_ALLOWED. */
enum status http1_connect_error(struct error *err);

/* Checks a head whose method, target and fields are set (their characters are checked already), and
 * fills the rest of it. `version` is the text after "HTTP/". Returns: ST_BAD_REQUEST,
 * ST_BAD_VERSION, ST_METHOD_NOT_ALLOWED, ST_UNSUPPORTED. */
enum status http1_head_check(struct http_head *head, struct str version,
                             struct error *err) SLUICE_MUST_USE;

#endif
