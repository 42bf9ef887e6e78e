"""Takes the place of OpenTelemetry's collector in L0_trace: otelcol --config FILE. Traces that come to port 10000 of localhost
as OTLP over HTTP are written to collected_traces.json, one JSON object a line for what comes within a second."""
import gzip
import http.server
import json
import threading

PORT, BATCH_S = 10000, 1
FILE = 'collected_traces.json'


class Batch:
    """What has come since the last line."""

    def __init__(self, out):
        self.out, self.lock, self.resources = out, threading.Lock(), []

    def add(self, request):
        with self.lock:
            if not self.resources:
                threading.Timer(BATCH_S, self.write).start()
            for resource in request['resourceSpans']:
                for span in (span for scope in resource['scopeSpans'] for span in scope['spans']):
                    span.setdefault('parentSpanId', '')  # the collector writes these members always
                    span.setdefault('events', [])
                self.resources.append(resource)

    def write(self):
        with self.lock:
            self.out.write(json.dumps({'resourceSpans': self.resources}) + '\n')
            self.out.flush()
            self.resources = []


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def do_POST(self):
        body = self.rfile.read(int(self.headers['Content-Length']))
        if self.headers.get('Content-Encoding') == 'gzip':
            body = gzip.decompress(body)
        self.server.batch.add(json.loads(body))
        self.send_response(200)
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', '2')
        self.end_headers()
        self.wfile.write(b'{}')


def main():
    with open(FILE, 'w', encoding='utf-8') as out, http.server.ThreadingHTTPServer(('127.0.0.1', PORT), Handler) as server:
        server.batch = Batch(out)
        server.serve_forever()


if __name__ == '__main__':
    main()
