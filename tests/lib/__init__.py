"""What the tests over a live server share: starting and ending servers, models to serve, a strict
HTTP/1.1 client, the server's own gauges. Nothing here knows what is being tested."""
