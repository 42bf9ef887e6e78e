/* The content codings of HTTP bodies (RFC 9110, 8.4.1) that Sluice knows. */
#ifndef SLUICE_CODEC_HTTP1_CONTENT_CODING_H
#define SLUICE_CODEC_HTTP1_CONTENT_CODING_H

enum http_coding { HTTP_IDENTITY, HTTP_GZIP, HTTP_DEFLATE };

#endif
