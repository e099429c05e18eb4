#!/bin/sh
# OpenAI's Python client asks for base64 whether or not the caller names a form, and gives numbers of 32 bits.
#
# With openai 3.54.0. Guess: `embeddings.create(model, input)` asks for `float`, the default that the API's reference names.
# Seen: it sends `encoding_format: base64`, and decodes what it gets; lists of numbers in the answer are taken as well. With
# `encoding_format="float"` it hands over the numbers as the server wrote them. So a server that speaks "the same
# interface" must know base64, and .1 arrives as 0.10000000149011612 by one way and as 0.1 by the other.
# Joined here: a client and a service that is not its maker's.
# Fails if that changes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet openai==3.54.0
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import base64
import http.server
import json
import struct
import threading

import openai

EXPECTED = {"asked": ["base64", "float"], "got": [0.10000000149011612, 0.1]}
asked = []


class Service(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        asked.append(body.get("encoding_format"))
        coded = base64.b64encode(struct.pack("<f", 0.1)).decode()
        vector = coded if asked[-1] == "base64" else [0.1]
        row = {"object": "embedding", "index": 0, "embedding": vector}
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        answer = json.dumps({"object": "list", "model": "m", "data": [row], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *given: object) -> None:
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Service)
threading.Thread(target=server.serve_forever, daemon=True).start()
client = openai.OpenAI(api_key="k", base_url=f"http://127.0.0.1:{server.server_port}")
got = [
    client.embeddings.create(model="m", input="x", **form).data[0].embedding[0]
    for form in ({}, {"encoding_format": "float"})
]
print("openai", openai.__version__)
seen = {"asked": asked, "got": got}
print("seen:", seen)
assert seen == EXPECTED, f"it changed, the finding is out of date: {EXPECTED}"
PY
