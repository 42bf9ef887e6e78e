"""Server-sent events, as generate_stream sends them."""
import json


def parse_events(text):
    """Each event is `data: JSON` and an empty line, and nothing else."""
    pieces = text.decode().split("\n\n")
    assert pieces.pop() == ""
    assert all(piece.startswith("data: ") and "\n" not in piece for piece in pieces)
    return [json.loads(piece[6:]) for piece in pieces]
